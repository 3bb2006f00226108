//! Places the names of curves and points so that they overlap as little as possible.

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

/// A rectangle in pixels: left, top, right, bottom.
pub type Area = (i32, i32, i32, i32);

/// Width of a character, also of the bold name of ours, and height of a line, in pixels, rather too large than too small.
const CHARACTER: i32 = 9;
const BOLD_CHARACTER: i32 = 11;
const LINE: i32 = 17;

/// The end of a label that lies at its place: where a name is shorter than its room, it stays beside its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The label is to the right of the point.
    Left,
    /// It is to the left.
    Right,
}

/// How far above or below its point the middle line of a label is at most that stands beside it.
const BESIDE: i32 = 12;

/// A line from a point to the end of its label that lies at this place; none where the label is beside it.
pub fn leader(point: (i32, i32), place: (i32, i32)) -> Option<[(i32, i32); 2]> {
    let (across, along) = (place.0 - point.0, place.1 - point.1);
    let near = (point.0 + 2 * across.signum(), point.1 + 6 * along.signum());
    (along.abs() > BESIDE).then_some([near, (place.0 - 2 * across.signum(), place.1)])
}

/// Where an end of each label's middle line goes, and which, for labels around points anywhere within
/// `bounds`: the place next to the point that covers least of other labels and of `obstacles`.
pub fn place_around(labels: Vec<Label>, obstacles: &[Area], bounds: Area) -> Vec<(Label, (i32, i32), End)> {
    let mut taken = obstacles.to_vec();
    let mut placed = Vec::with_capacity(labels.len());
    for label in labels {
        let character = if label.look.is_bold() { BOLD_CHARACTER } else { CHARACTER };
        let width = label.text.chars().count() as i32 * character;
        let (x, y) = label.at;
        let rows = [-BESIDE, BESIDE, -26, 26, -40, 40, -54, 54, -68, 68];
        let beside =
            rows.into_iter().flat_map(|row| [(x + 8, y + row, End::Left), (x - 8, y + row, End::Right)]);
        // What is too long for the room on either side ends at the edge, and so is not cut off.
        let within = (x + 8).min(bounds.2 - width).max(bounds.0);
        let places = beside.chain(rows.map(|row| (within, y + row, End::Left)));
        let area = |&(at, middle, end): &(i32, i32, End)| {
            let left = if end == End::Left { at } else { at - width };
            (left, middle - LINE / 2, left + width, middle + LINE / 2)
        };
        let cost = |place: &(i32, i32, End)| {
            let area = area(place);
            let inside = common(area, bounds) == common(area, area);
            taken.iter().map(|other| common(area, *other)).sum::<i32>()
                + if inside { 0 } else { i32::MAX / 2 }
        };
        // Of equal places, the first: to the right, and close.
        let best = places.min_by_key(cost).unwrap_or((x, y, End::Left));
        taken.push(area(&best));
        placed.push((label, (best.0, best.1), best.2));
    }
    placed
}

/// Pixels that two rectangles have in common.
fn common(a: Area, b: Area) -> i32 {
    let width = a.2.min(b.2) - a.0.max(b.0);
    let height = a.3.min(b.3) - a.1.max(b.1);
    width.max(0) * height.max(0)
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
    }

    #[test]
    fn a_name_away_from_its_point_is_led_to() {
        assert_eq!([(108, 88), (92, 112)].map(|place| leader((100, 100), place)), [None, None]);
        assert_eq!(leader((100, 100), (108, 74)), Some([(102, 94), (106, 74)]));
        assert_eq!(leader((100, 100), (92, 140)), Some([(98, 106), (94, 140)]));
    }

    #[test]
    fn names_avoid_each_other_obstacles_and_the_edge() {
        const BOUNDS: Area = (0, 0, 400, 300);
        let places = |points: &[(i32, i32)], obstacles: &[Area]| -> Vec<(i32, i32, End)> {
            let labels =
                points.iter().map(|&at| Label { at, text: "name".into(), look: look("x") }).collect();
            let placed = place_around(labels, obstacles, BOUNDS).into_iter();
            placed.map(|(_, place, end)| (place.0, place.1, end)).collect()
        };
        assert_eq!(places(&[(100, 100)], &[]), [(108, 88, End::Left)]);
        assert_eq!(places(&[(100, 100)], &[(100, 80, 200, 95)]), [(92, 88, End::Right)]);
        assert_eq!(places(&[(390, 100)], &[]), [(382, 88, End::Right)]);
        let beside = |name| {
            place_around(vec![Label { at: (355, 100), text: "name".into(), look: look(name) }], &[], BOUNDS)
        };
        assert_eq!(["glibc", "ample"].map(|name| beside(name)[0].2), [End::Left, End::Right], "ours is bold");
        let long = Label { at: (250, 100), text: "glibc:arena_max=1:tcache_count=0".into(), look: look("x") };
        let width = long.text.chars().count() as i32 * CHARACTER;
        let placed = place_around(vec![long], &[(245, 95, 255, 105)], BOUNDS);
        assert_eq!(
            placed[0].1,
            (400 - width, 74),
            "it has room neither to the right of its point nor to the left"
        );
        let twelve = places(&[(100, 100); 12], &[]);
        let area = |&(x, y, end): &(i32, i32, End)| {
            let left = if end == End::Left { x } else { x - 4 * CHARACTER };
            (left, y - LINE / 2, left + 4 * CHARACTER, y + LINE / 2)
        };
        for (index, place) in twelve.iter().enumerate() {
            assert!(twelve[..index].iter().all(|other| common(area(other), area(place)) == 0), "{twelve:?}");
        }
    }
}
