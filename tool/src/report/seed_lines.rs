//! What the program that malloc-test comes from prints, in its own words.

use crate::allocators::Allocator;
use crate::record::{Judgement, Pass};
use crate::run::Conclusion;

/// The lines of the last complete block: those of every thread, under the name of the allocator. Empty
/// where no run was measured.
pub fn seed_lines(conclusion: &Conclusion, allocators: &[Allocator]) -> String {
    let last = conclusion.blocks.checked_sub(1);
    let mut text = String::new();
    for allocator in allocators {
        let mut own = conclusion.samples.iter().filter(|sample| {
            sample.pass == Pass::Timed && sample.block == last && sample.allocator == allocator.name
        });
        let Some(Judgement::Measured(measurement)) = own.next().map(|sample| &sample.result) else {
            continue;
        };
        let parameter = |name: &str| measurement.parameters.get(name).copied().unwrap_or_default();
        let (requests, size) = (parameter("iterations"), parameter("size"));
        text.push_str(&format!("{}:\n", allocator.name));
        for (index, time) in measurement.worker_ns.iter().enumerate() {
            let microseconds = time / 1000;
            text.push_str(&format!(
                "Thread {} adjusted timing: {}.{:06} seconds for {requests} requests of {size} bytes.\n",
                index + 1,
                microseconds / 1_000_000,
                microseconds % 1_000_000
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing::conclude;

    #[test]
    fn every_thread_has_its_line_as_the_source_prints_it() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let (_, conclusion) = conclude(&allocators, 1, usize::MAX, |asked, measurement| {
            measurement.parameters = [("iterations".into(), 10_000_000.0), ("size".into(), 512.0)].into();
            measurement.worker_ns = vec![23_316_156_999, 1000];
            (asked.allocator == "x").then(|| "nothing".to_owned())
        });
        assert_eq!(
            seed_lines(&conclusion, &allocators),
            "glibc:\n\
             Thread 1 adjusted timing: 23.316156 seconds for 10000000 requests of 512 bytes.\n\
             Thread 2 adjusted timing: 0.000001 seconds for 10000000 requests of 512 bytes.\n"
        );
    }
}
