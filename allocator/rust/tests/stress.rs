//! A program whose allocator is Ample, on the real system: threads that come and go, rest, and free each other's blocks of all
//! sizes. `AMPLE_STRESS_ROUNDS` or `AMPLE_STRESS_SECONDS` sets how long it runs (default 20 rounds, about three seconds); CONTRIBUTING.md says how to
//! run it under ThreadSanitizer.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

#[global_allocator]
static GLOBAL: ample_alloc::Ample = ample_alloc::Ample;

/// In one round of so many the threads rest before they end, and in another one nobody is there but the main thread, until the helper thread
/// has emptied their heaps and given back what is free.
const REST_EVERY: u64 = 16;
const REST: Duration = Duration::from_millis(1200);
/// In one round of so many, threads are so many for each processor: they share arenas.
const CROWD_EVERY: u64 = 4;
const CROWD: usize = 10;
/// Steps of all threads of a round together, and of each at least.
const STEPS: usize = 12_000;
const STEPS_MIN: usize = 100;
/// One block of so many is a large one.
const LARGE_EVERY: usize = 500;

/// A number that the environment sets.
fn set(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text}")))
}

/// The rounds that are to be done.
fn rounds() -> impl Iterator<Item = u64> {
    let (started, seconds) = (Instant::now(), set("AMPLE_STRESS_SECONDS").map(Duration::from_secs));
    let rounds = set("AMPLE_STRESS_ROUNDS").unwrap_or(if seconds.is_some() { u64::MAX } else { 20 });
    (0..rounds).take_while(move |_| seconds.is_none_or(|seconds| started.elapsed() < seconds))
}

/// xorshift64*, S. Vigna 2016.
fn random(state: &mut u64) -> usize {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize
}

/// A block whose bytes all say the same, which a receiver can check: a fresh one, one that was zero, one that has grown, or shrunk.
fn block(state: &mut u64) -> Vec<u8> {
    let is_large = random(state).is_multiple_of(LARGE_EVERY);
    let shift = if is_large { 17 + random(state) % 6 } else { random(state) % 17 };
    let size = 1 + random(state) % (1 << shift);
    let byte = size as u8;
    match random(state) % 8 {
        0 => {
            // The compiler knows what calloc promises.
            let mut block = black_box(vec![0; size]);
            assert!(block.iter().all(|&byte| byte == 0), "{size} bytes from calloc are not zero");
            block.fill(byte);
            block
        }
        1 => {
            let mut block = vec![byte; size / 3];
            block.reserve_exact(size - size / 3);
            block.resize(size, byte);
            block
        }
        2 => {
            let mut block = vec![byte; size * 3];
            block.truncate(size);
            block.shrink_to_fit();
            block
        }
        _ => vec![byte; size],
    }
}

fn check(block: &[u8]) {
    let expected = block.len() as u8;
    assert!(block.iter().all(|&byte| byte == expected), "a block of {} bytes lost its content", block.len());
}

#[test]
fn threads_free_what_others_allocated() {
    let processors = thread::available_parallelism().map_or(2, usize::from);
    for round in rounds() {
        let threads = if round % CROWD_EVERY == 1 { CROWD * processors } else { 4 };
        if round % REST_EVERY == REST_EVERY - 1 {
            thread::sleep(REST);
        }
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads).map(|_| mpsc::channel::<Vec<u8>>()).unzip();
        let workers: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(index, receiver)| {
                let next = senders[(index + 1) % threads].clone();
                thread::spawn(move || {
                    let mut state = round * 1000 + index as u64 + 1;
                    let mut kept: Vec<Vec<u8>> = Vec::new();
                    for _ in 0..(STEPS / threads).max(STEPS_MIN) {
                        let fresh = block(&mut state);
                        match random(&mut state) % 3 {
                            0 => kept.push(fresh),
                            1 if next.send(fresh).is_err() => break,
                            _ => {
                                if !kept.is_empty() {
                                    let index = random(&mut state) % kept.len();
                                    check(&kept.swap_remove(index));
                                }
                            }
                        }
                        if let Ok(other) = receiver.try_recv() {
                            check(&other);
                        }
                    }
                    drop(next);
                    if round % REST_EVERY == REST_EVERY / 2 {
                        thread::sleep(REST);
                    }
                    kept.iter().for_each(|block| check(block));
                    receiver
                })
            })
            .collect();
        drop(senders);
        for worker in workers {
            let receiver = worker.join().expect("no panic");
            receiver.iter().for_each(|block| check(&block));
        }
    }
}

#[test]
fn threads_replace_what_one_has_loaded() {
    const THREADS: usize = 4;
    const LOADED: usize = 40_000;
    for round in rounds() {
        let mut state = round + 1;
        let mut shares: Vec<Vec<Vec<u8>>> = (0..THREADS).map(|_| Vec::new()).collect();
        // Neighbours in memory go to different threads; sizes of classes that do not fill lines.
        for index in 0..LOADED {
            let size = 65 + random(&mut state) % 60;
            shares[index % THREADS].push(vec![size as u8; size]);
        }
        let workers: Vec<_> = (1..)
            .zip(shares)
            .map(|(worker, mut share)| {
                thread::spawn(move || {
                    let mut state = round * 100 + worker;
                    for _ in 0..2 * share.len() {
                        let index = random(&mut state) % share.len();
                        let size = 65 + random(&mut state) % 60;
                        check(&std::mem::replace(&mut share[index], vec![size as u8; size]));
                    }
                    share
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("no panic").iter().for_each(|block| check(block));
        }
    }
}

#[test]
fn ordinary_collections_work() {
    let mut map = HashMap::new();
    let mut tree = BTreeMap::new();
    for number in 0..20_000u64 {
        map.insert(number, number.to_string());
        tree.insert(number.to_string(), number);
    }
    assert!(map.iter().all(|(number, text)| tree[text] == *number));
    let mut grown = String::new();
    for _ in 0..100_000 {
        grown.push_str("0123456789");
    }
    grown.shrink_to_fit();
    assert_eq!(grown.len(), 1_000_000);
}

#[test]
fn alignments_are_kept_through_growth() {
    use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
    for shift in 0..22 {
        let layout = Layout::from_size_align(100, 1 << shift).expect("a valid layout");
        // SAFETY: the layout is not empty.
        let (plain, zeroed) = unsafe { (alloc(layout), alloc_zeroed(layout)) };
        assert!(plain.addr() % layout.align() == 0 && zeroed.addr() % layout.align() == 0);
        // SAFETY: a live block of 100 bytes.
        assert!((0..100).all(|index| unsafe { *zeroed.add(index) } == 0));
        // SAFETY: live blocks with this layout.
        let grown = unsafe { realloc(plain, layout, 300_000) };
        assert_eq!(grown.addr() % layout.align(), 0);
        let larger = Layout::from_size_align(300_000, 1 << shift).expect("a valid layout");
        // SAFETY: live blocks with these layouts.
        unsafe { dealloc(grown, larger) };
        // SAFETY: as above.
        unsafe { dealloc(zeroed, layout) };
    }
}
