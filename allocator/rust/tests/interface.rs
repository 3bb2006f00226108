//! What a Rust program may ask of its allocator besides blocks.

use std::alloc::{GlobalAlloc, Layout};

use ample_alloc::{Ample, Parameter, options};

#[global_allocator]
static GLOBAL: Ample = Ample;

#[test]
fn statistics_trimming_thresholds_and_shared_blocks() {
    let before = GLOBAL.statistics();
    let blocks = vec![vec![1u8; 3000]; 1000];
    let large = vec![1u8; 5 << 20];
    let during = GLOBAL.statistics();
    assert!(during.allocated() - before.allocated() >= 1000 * 3000 + large.len());
    let class = during.classes.iter().find(|class| class.size >= 3000).expect("a class");
    assert!(class.live >= blocks.len());
    drop((blocks, large));
    assert!(GLOBAL.trim());
    assert!(GLOBAL.statistics().allocated() < before.allocated() + 1_000_000);
    assert_eq!(GLOBAL.statistics().retained, 0);

    GLOBAL.set(Parameter::MmapThreshold, 1 << 20);
    drop(vec![1u8; 5 << 20]);
    assert_eq!(GLOBAL.statistics().retained, 0, "it went back at once");

    let shared = GLOBAL.alloc_shared(10);
    assert!(!shared.is_null() && shared.addr().is_multiple_of(64));
    let layout = Layout::from_size_align(10, 1).expect("a layout");
    // SAFETY: live, and given up here.
    unsafe { GLOBAL.dealloc(shared, layout) };
}

#[test]
fn the_options_are_listed() {
    let mut text = String::new();
    options::to_json(&mut |part| text.push_str(part));
    assert!(text.contains("AMPLE_SOFT_LIMIT"));
    assert!(options::DEFINITIONS.iter().any(|option| option.variable() == "AMPLE_CACHE"));
}
