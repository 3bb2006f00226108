//! The frontier of a trade-off: the allocators that no other one beats in both respects.

/// Which of the points (more of the first is better, less of the second) no other point beats: none has at least as much of the first
/// and at most as much of the second, and is better in one of them.
pub fn frontier(points: &[(f64, f64)]) -> Vec<bool> {
    let beats = |a: (f64, f64), b: (f64, f64)| a.0 >= b.0 && a.1 <= b.1 && a != b;
    points.iter().map(|&point| !points.iter().any(|&other| beats(other, point))).collect()
}

/// The corners of the frontier's line, from the left end to the upper end of the picture: everything above it and to its left is
/// beaten by a point on it.
pub fn staircase(points: &[(f64, f64)], left: f64, top: f64) -> Vec<(f64, f64)> {
    let kept = frontier(points);
    let mut best: Vec<(f64, f64)> =
        points.iter().zip(kept).filter(|(_, kept)| *kept).map(|(point, _)| *point).collect();
    best.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut corners = Vec::with_capacity(best.len() * 2 + 1);
    let mut from = left;
    for point in best {
        corners.extend([(from, point.1), point]);
        from = point.0;
    }
    corners.extend(corners.last().map(|last| (last.0, top)));
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_beaten_in_both_is_not_on_it() {
        let points = [(1.0, 1.0), (2.0, 1.1), (1.5, 2.0), (3.0, 4.0), (2.0, 1.1)];
        assert_eq!(frontier(&points), [true, true, false, true, true]);
        assert_eq!(
            staircase(&points[..4], 0.5, 9.0),
            [(0.5, 1.0), (1.0, 1.0), (1.0, 1.1), (2.0, 1.1), (2.0, 4.0), (3.0, 4.0), (3.0, 9.0)]
        );
        assert!(staircase(&[], 0.0, 1.0).is_empty());
    }
}
