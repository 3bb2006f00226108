//! Which class serves which request, and where blocks begin.

use super::*;
use crate::os;

#[test]
fn every_request_gets_the_smallest_class_that_holds_it() {
    for size in 1..=SMALL_MAX {
        let class = class_of(size).expect("small");
        let smallest =
            (1..=CLASSES).find(|&class| !is_aligned_only(class) && of(class).size as usize >= size);
        assert_eq!(Some(class), smallest);
    }
    assert_eq!(class_of(0), None);
    assert_eq!(class_of(SMALL_MAX + 1), None);
    assert_eq!(class_of(usize::MAX), None);
}

#[test]
fn classes_waste_no_more_than_they_say() {
    let mut smaller = of(1).size;
    for class in (2..=CLASSES).filter(|&class| !is_aligned_only(class)) {
        let size = of(class).size;
        let slack = f64::from(size - smaller) / f64::from(smaller);
        let bound = match smaller {
            ..128 => 1.0,
            960 => 2.0 / 15.0,
            128..4096 => 0.125,
            _ => 0.2,
        };
        assert!(slack <= bound, "{size}");
        smaller = size;
    }
    for info in &INFO[1..=CLASSES] {
        let largest = info.next_units(usize::MAX);
        assert!(info.blocks(largest) <= SPAN_BLOCKS_MAX && largest <= SPAN_UNITS_MAX);
    }
}

#[test]
fn the_reciprocal_finds_every_block() {
    for class in 1..=CLASSES {
        let info = of(class);
        for index in 0..info.blocks(info.next_units(usize::MAX)) as u64 {
            let offset = index * u64::from(info.size);
            assert_eq!((offset * u64::from(info.reciprocal)) >> 32, index);
        }
    }
}

#[test]
fn filling_classes_fill_lines_and_are_no_larger_than_they_must_be() {
    for size in 1..=NEAR_MAX {
        let class = near_class(&NEAR_FILLING, size).expect("near");
        let smallest = (1..=CLASSES)
            .find(|&class| fills_lines(class) && !is_aligned_only(class) && of(class).size as usize >= size);
        assert_eq!(Some(class), smallest);
    }
    assert!((NEAR_MAX + 1..=SMALL_MAX).all(|size| far_class(size).is_some_and(fills_lines)));
}

/// The largest power of two of which the addresses of all blocks of a class are multiples.
fn alignment(class: Class) -> usize {
    let info = of(class);
    let colours = (0..PAGE_LINES).map(|number| info.colour(number, UNIT));
    let bits = colours.fold(UNIT | info.size as usize, |bits, colour| bits | colour);
    1 << bits.trailing_zeros()
}

#[test]
fn an_aligned_class_is_aligned() {
    for align in (0..=UNIT.ilog2()).map(|shift| 1 << shift) {
        for size in (0..=SMALL_MAX).step_by(if cfg!(miri) { 499 } else { 1 }) {
            let rounded = size.max(1).next_multiple_of(align);
            let expected = if rounded <= os::PAGE || align <= LINE {
                (1..=CLASSES).find(|&class| {
                    of(class).size as usize >= size
                        && alignment(class) >= align
                        && (align > LINE || !is_aligned_only(class))
                })
            } else {
                None
            };
            assert_eq!(class_of_aligned(size, align), expected, "{size} bytes at multiples of {align}");
            let near = near_class(&NEAR_TABLE, rounded).filter(|_| is_near_aligned(size, align));
            assert!(near.is_none() || size == 0 || near == expected, "{size} bytes at multiples of {align}");
            assert!(
                size <= PAIRS_MAX || far_aligned_class(size, align) == expected,
                "{size} bytes at multiples of {align}"
            );
        }
    }
    assert_eq!(class_of_aligned(16, 32 << 10), None);
    assert!(is_near_aligned(64, 64) && is_near_aligned(PAIRS_MAX, 2 * LINE) && is_near_aligned(256, 256));
    assert!(![1 << 62, 1 << 63].iter().any(|&align| is_near_aligned(1, align)));
}

#[test]
fn long_blocks_that_are_neighbours_begin_in_different_sets_of_a_cache() {
    const SETS: usize = 64;
    for class in (1..=CLASSES).filter(|&class| of(class).size as usize > NEAR_MAX && class != PAGE_CLASS) {
        let info = of(class);
        let mut begin = [0; SETS];
        let blocks = info.blocks(info.next_units(usize::MAX));
        (0..blocks).for_each(|index| begin[index * info.size as usize / LINE % SETS] += 1);
        let most = begin.iter().max();
        assert!(most <= Some(&(2 * blocks.div_ceil(SETS))), "{most:?} of {blocks} blocks of {}", info.size);
    }
}

#[test]
fn spans_one_after_the_other_begin_in_different_sets_of_a_cache() {
    const SETS: usize = 64;
    // Units of the smallest spans, of which blocks lie in so many sets; without colours in those of one span.
    for (size, units, sets) in [(512, 1, 32), (832, 1, 64), (1024, 1, 30), (5000, 3, 64), (8200, 4, 64)] {
        let info = of(class_of(size).expect("small"));
        assert_eq!(usize::from(info.units), units, "{size}");
        let blocks = info.blocks(units);
        let left = units * UNIT - blocks * info.size as usize;
        let mut begin = [false; SETS];
        for span in 0..64 {
            let colour = info.colour(span, left);
            assert!(colour <= left && colour < os::PAGE);
            (0..blocks).for_each(|index| begin[(colour + index * info.size as usize) / LINE % SETS] = true);
        }
        let found = begin.iter().filter(|&&begins| begins).count();
        assert_eq!(found, sets, "{size}");
    }
    assert!((0..64).all(|span| of(PAGE_CLASS).colour(span, UNIT) == 0));
}

#[test]
fn a_class_is_busy_from_sixteen_of_its_shortest_spans_on() {
    for info in &INFO[1..=CLASSES] {
        let units = usize::from(info.units);
        assert!(!info.is_busy(16 * units - 1) && info.is_busy(16 * units));
    }
}
