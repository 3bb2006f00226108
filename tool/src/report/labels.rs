//! Places the names of curves and points so that they do not overlap.

use std::ops::Range;

use super::palette::Look;

/// A name, and the point that it belongs to, in pixels.
#[derive(Debug, Clone)]
pub struct Label {
    /// The point.
    pub at: (i32, i32),
    /// The name.
    pub text: String,
    /// Looks of its allocator.
    pub look: Look,
}

/// Heights for labels that stand in one column, `gap` apart and within `bounds` as far as they fit:
/// each as close to its point as the order of the points allows.
pub fn place(mut labels: Vec<Label>, gap: i32, bounds: Range<i32>) -> Vec<(Label, i32)> {
    labels.sort_by_key(|label| label.at.1);
    let mut heights: Vec<i32> = labels.iter().map(|label| label.at.1).collect();
    // Down, to keep the gap; then up, to keep the lower bound.
    let mut least = bounds.start;
    for height in &mut heights {
        *height = (*height).max(least);
        least = *height + gap;
    }
    let mut most = bounds.end;
    for height in heights.iter_mut().rev() {
        *height = (*height).min(most);
        most = *height - gap;
    }
    labels.into_iter().zip(heights).collect()
}

/// Heights for labels beside points anywhere: moved down past those that they would cover.
pub fn place_near(mut labels: Vec<Label>, gap: i32) -> Vec<(Label, i32)> {
    /// Width of a character, in pixels, rather too large than too small.
    const CHARACTER: i32 = 8;
    labels.sort_by_key(|label| label.at.1);
    let mut placed: Vec<(Label, i32)> = Vec::with_capacity(labels.len());
    for label in labels {
        let width = |label: &Label| label.text.chars().count() as i32 * CHARACTER;
        let mut height = label.at.1;
        for (other, taken) in &placed {
            let apart = label.at.0 + width(&label) < other.at.0 || other.at.0 + width(other) < label.at.0;
            if !apart && (height - taken).abs() < gap {
                height = taken + gap;
            }
        }
        placed.push((label, height));
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::palette::look;
    use proptest::prelude::*;

    fn labels(heights: &[i32]) -> Vec<Label> {
        heights.iter().map(|&y| Label { at: (0, y), text: "name".into(), look: look("x") }).collect()
    }

    proptest! {
        #[test]
        fn a_column_keeps_order_gap_and_bounds(heights in prop::collection::vec(0..300i32, 0..14)) {
            let placed = place(labels(&heights), 15, 0..300);
            for pair in placed.windows(2) {
                prop_assert!(pair[1].1 - pair[0].1 >= 15);
                prop_assert!(pair[0].0.at.1 <= pair[1].0.at.1);
            }
            prop_assert!(placed.iter().all(|(_, height)| (0..=300).contains(height)));
        }

        #[test]
        fn names_at_one_place_do_not_cover_each_other(heights in prop::collection::vec(0..60i32, 0..14)) {
            let placed = place_near(labels(&heights), 15);
            for (index, (_, height)) in placed.iter().enumerate() {
                prop_assert!(placed[..index].iter().all(|(_, other)| (height - other).abs() >= 15));
            }
        }
    }

    #[test]
    fn names_without_neighbours_stay_where_they_are() {
        let placed = place_near(labels(&[10, 100]), 15);
        assert_eq!(placed.iter().map(|(_, height)| *height).collect::<Vec<_>>(), [10, 100]);
    }
}
