//! Memory over operations: points at fixed numbers of operations, however many there will be.

use ample_protocol::CurvePoint;

/// Most points kept. When there would be more, every second one is dropped, and from then on they are
/// taken half as often.
const MOST: usize = 256;
/// Live bytes from which on resident memory is compared with them: below, what every process needs weighs
/// too much.
const LEAST_LIVE_BYTES: u64 = 1 << 20;

/// Points at multiples of an interval. Adding one takes no memory.
#[derive(Debug)]
pub struct Curve {
    points: [CurvePoint; MOST],
    length: usize,
    interval: u64,
}

impl Curve {
    /// No point yet, and one for every operation to begin with.
    pub const fn new() -> Self {
        const NOTHING: CurvePoint = CurvePoint { operations: 0, live_bytes: 0, rss_bytes: 0 };
        Self { points: [NOTHING; MOST], length: 0, interval: 1 }
    }

    /// The points, in the order of their operations.
    pub fn points(&self) -> &[CurvePoint] {
        &self.points[..self.length]
    }

    /// Adds a point, unless the interval has grown since it was taken. Returns the operations from one
    /// point to the next from now on.
    pub fn add(&mut self, point: CurvePoint) -> u64 {
        if self.length == MOST {
            self.halve();
        }
        if point.operations.is_multiple_of(self.interval) {
            // Threads may come in another order than their operations.
            let later = self.points().partition_point(|other| other.operations < point.operations);
            self.points.copy_within(later..self.length, later + 1);
            self.points[later] = point;
            self.length += 1;
        }
        self.interval
    }

    fn halve(&mut self) {
        self.interval *= 2;
        let mut kept = 0;
        for index in 0..self.length {
            if self.points[index].operations.is_multiple_of(self.interval) {
                self.points[kept] = self.points[index];
                kept += 1;
            }
        }
        self.length = kept;
    }
}

/// The most that resident memory exceeded live bytes by, as a factor and in bytes, over the points with
/// at least a mebibyte of them. None without any such point.
pub fn excess(points: &[CurvePoint]) -> Option<(f64, u64)> {
    let compared = points.iter().filter(|point| point.live_bytes >= LEAST_LIVE_BYTES);
    compared
        .map(|point| {
            let factor = point.rss_bytes as f64 / point.live_bytes as f64;
            (factor, point.rss_bytes.saturating_sub(point.live_bytes))
        })
        .reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(operations: u64) -> CurvePoint {
        CurvePoint { operations, live_bytes: 10 * operations, rss_bytes: 20 * operations }
    }

    fn filled(operations: u64) -> Curve {
        let (mut curve, mut interval) = (Curve::new(), 1);
        for operation in 1..=operations {
            if operation % interval == 0 {
                interval = curve.add(point(operation));
            }
        }
        curve
    }

    #[test]
    fn points_lie_at_multiples_of_an_interval_that_doubles() {
        for (operations, interval) in [(1, 1), (256, 1), (257, 2), (1000, 4), (10_000, 64)] {
            let curve = filled(operations);
            let expected: Vec<_> = (1..=operations / interval).map(|index| point(index * interval)).collect();
            assert_eq!(curve.points(), expected, "{operations}");
        }
    }

    #[test]
    fn points_that_come_late_find_their_place_or_are_dropped() {
        let mut curve = filled(256);
        assert_eq!(curve.add(point(262)), 2);
        assert_eq!(curve.add(point(260)), 2);
        assert_eq!(curve.add(point(259)), 2, "taken before the interval grew");
        let last: Vec<_> = curve.points().iter().rev().take(3).map(|point| point.operations).collect();
        assert_eq!(last, [262, 260, 256]);
    }

    #[test]
    fn only_points_with_enough_live_bytes_are_compared() {
        let small = CurvePoint { operations: 1, live_bytes: 100, rss_bytes: 1 << 20 };
        assert_eq!(excess(&[small]), None);
        let large = CurvePoint { operations: 2, live_bytes: 1 << 20, rss_bytes: 3 << 20 };
        let larger = CurvePoint { operations: 3, live_bytes: 8 << 20, rss_bytes: 12 << 20 };
        assert_eq!(excess(&[small, large, larger]), Some((3.0, 4 << 20)));
    }
}
