//! In which order blocks come back.

use super::*;

/// Rounds of a program that allocates many blocks, frees all and begins again.
const ROUNDS: usize = 6;

/// Bytes of blocks in a round: four times what is kept in any order.
const MANY: usize = 4 << 20;
/// Less than what is kept in any order.
const FEW: usize = 768 << 10;

/// Which part of the blocks of the last round, `bytes` in all, lie beside the one before, when those of each round are freed as `mix` puts them.
fn neighbours(bytes: usize, size: usize, mix: impl Fn(&mut [*mut u8])) -> f64 {
    neighbours_of(bytes, &[size], mix)
}

/// The same for the first of several `sizes`, so many bytes of each.
fn neighbours_of(bytes: usize, sizes: &[usize], mix: impl Fn(&mut [*mut u8])) -> f64 {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let mut blocks = Vec::new();
    for round in 1..=ROUNDS {
        let of =
            |&size: &usize| (0..bytes / size).map(|_| allocator.allocate(heap, size)).collect::<Vec<_>>();
        blocks = sizes.iter().map(of).collect();
        if round < ROUNDS {
            blocks.iter_mut().for_each(|blocks| mix(blocks));
            // Those of all sizes side by side.
            let part = |of: &Vec<_>, place: usize| (place << 20) / of.len();
            let placed =
                |of: &Vec<_>| -> Vec<_> { (0..of.len()).map(|place| (part(of, place), of[place])).collect() };
            let mut all: Vec<_> = blocks.iter().flat_map(placed).collect();
            all.sort_by_key(|&(part, _)| part);
            for (_, block) in all {
                // SAFETY: the block is live, and given up here.
                assert_eq!(unsafe { allocator.free(heap, block) }, Ok(()));
            }
        }
    }
    let beside = |pair: &&[*mut u8]| pair[0].addr().abs_diff(pair[1].addr()) == sizes[0];
    blocks[0].windows(2).filter(beside).count() as f64 / blocks[0].len() as f64
}

/// Puts each block where one of the `within` before it was, by chance.
fn shuffle(blocks: &mut [*mut u8], within: usize) {
    let mut random = Random(7);
    for index in (1..blocks.len()).rev() {
        blocks.swap(index, index - random.below(within.min(index + 1)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of thousands of blocks take hours")]
fn many_blocks_that_were_freed_in_no_order_come_back_in_that_of_their_addresses() {
    // Classes that fill lines and others.
    for size in [16, 48, 64, 512, 640, 1088] {
        let all_over = neighbours(MANY, size, |blocks| shuffle(blocks, usize::MAX));
        assert!(all_over > 0.7, "{size} bytes: {all_over}");
        let nearby = neighbours(MANY, size, |blocks| shuffle(blocks, 50));
        assert!(nearby > 0.7, "{size} bytes: {nearby}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of thousands of blocks take hours")]
fn a_few_blocks_are_kept_in_the_order_in_which_they_were_freed() {
    for size in [16, 64, 640] {
        let all_over = neighbours(FEW, size, |blocks| shuffle(blocks, usize::MAX));
        assert!(all_over < 0.1, "{size} bytes: {all_over}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of thousands of blocks take hours")]
fn a_few_blocks_of_each_of_many_classes_come_back_in_that_of_their_addresses() {
    let mut sizes = [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256];
    for _ in 0..3 {
        let all_over = neighbours_of(FEW, &sizes, |blocks| shuffle(blocks, usize::MAX));
        assert!(all_over > 0.2, "{} bytes among others: {all_over}", sizes[0]);
        sizes.rotate_left(4);
    }
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of thousands of blocks take hours")]
fn blocks_that_were_freed_in_order_stay_in_order() {
    for size in [16, 64, 640] {
        let forwards = neighbours(MANY, size, |_| ());
        assert!(forwards > 0.9, "{size} bytes: {forwards}");
        let backwards = neighbours(MANY, size, |blocks| blocks.reverse());
        assert!(backwards > 0.9, "{size} bytes: {backwards}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of thousands of blocks take hours")]
fn blocks_of_structures_that_were_taken_down_in_an_order_of_their_own_come_back_in_that_of_their_addresses() {
    for size in [16, 48, 64, 640] {
        // A part of each structure goes before all others.
        let parts = neighbours(MANY, size, |blocks| {
            let places = 0..blocks.len();
            let early = |place: &usize| place % 7 == 6;
            let (first, rest) = (places.clone().filter(early), places.filter(|place| !early(place)));
            let order: Vec<_> = first.chain(rest).map(|place| blocks[place]).collect();
            blocks.copy_from_slice(&order);
        });
        assert!(parts > 0.8, "{size} bytes: {parts}");
        // The parts of each go before itself.
        let children = neighbours(MANY, size, |blocks| {
            for structure in blocks.chunks_exact_mut(7) {
                let [root, left, a, b, right, c, d] = structure else { unreachable!("seven") };
                let order = [*a, *b, *left, *c, *d, *right, *root];
                structure.copy_from_slice(&order);
            }
        });
        assert!(children > 0.9, "{size} bytes: {children}");
    }
}

#[test]
#[should_panic(expected = "free already")]
fn a_block_whose_unit_has_blocks_of_another_class_by_now_ends_the_process() {
    let allocator = allocator();
    let heap = allocator.attach().expect("memory");
    let magazine = crate::magazine::tests::magazines(1)[0];
    // SAFETY: just made.
    let magazine = unsafe { magazine.as_ref() };
    magazine.empty(1);
    magazine.slot(0).set(allocator.allocate(heap, 20_000));
    magazine.count.set(1);
    allocator.give_back_all(magazine, true);
}
