//! How a program of the user's scales under each allocator.

use serde::Serialize;

use crate::report::summary::Summary;
use crate::report::{table, units};
use crate::run::Conclusion;
use crate::stats::{Bootstrap, Estimate, MIN_BLOCKS, Resamples, log_ratio};
use crate::trial::Subject;

/// The share of the ideal from which on a program is said to scale.
const SCALES_FROM: f64 = 0.75;

/// How much more work is done in a time on more threads.
#[derive(Debug, Serialize)]
pub struct Scaling {
    /// Under this allocator.
    pub allocator: String,
    /// The fewest threads.
    pub from: u32,
    /// More threads.
    pub to: u32,
    /// The work done in a time on these, as a multiple of that on the fewest, with its 95 % interval.
    pub factor: Estimate,
    /// What it would be if threads had nothing in common but the processors.
    pub ideal: f64,
    /// What may be said of it.
    pub word: &'static str,
}

/// One entry for each allocator and each thread count but the least; none for a program that ran on one.
pub fn scaling(conclusion: &Conclusion, summary: &Summary, subject: &Subject) -> Vec<Scaling> {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    let Some(&from) = subject.thread_counts.iter().min() else { return Vec::new() };
    let mut found = Vec::new();
    for allocator in &summary.allocators {
        for &to in subject.thread_counts.iter().rev().filter(|&&count| count > from) {
            let growth = |block| {
                let more = conclusion.rate(block, &allocator.name, to)?;
                let ratio = log_ratio(more, conclusion.rate(block, &allocator.name, from)?)?;
                // A run's time is that of as much work for each thread.
                let work = if subject.metrics.is_empty() { f64::from(to) / f64::from(from) } else { 1.0 };
                Some(ratio + work.ln())
            };
            let growths: Option<Vec<f64>> = (0..conclusion.blocks).map(growth).collect();
            let Some(growths) = growths else { continue };
            let Some(found_here) = Bootstrap::of(&growths, &Resamples::new(growths.len(), 1)) else {
                continue;
            };
            let ideal = f64::from(to.min(cpus)) / f64::from(from.min(cpus));
            let factor = found_here.estimate().exp();
            let word = word(factor, ideal, growths.len());
            found.push(Scaling { allocator: allocator.name.clone(), from, to, factor, ideal, word });
        }
    }
    found
}

fn word(factor: Estimate, ideal: f64, blocks: usize) -> &'static str {
    if blocks < MIN_BLOCKS {
        "cannot be told from so few blocks"
    } else if factor.low >= SCALES_FROM * ideal {
        "scales"
    } else if factor.high < SCALES_FROM * ideal {
        "does not scale"
    } else {
        "cannot be told"
    }
}

/// The finding on the most threads, in a sentence; none where nothing may be said.
pub fn told(all: &[Scaling]) -> Option<String> {
    let most = all.iter().map(|scaling| scaling.to).max()?;
    let list = |word: &str| {
        let those = all.iter().filter(|scaling| scaling.to == most && scaling.word == word);
        let text: Vec<String> = those
            .map(|scaling| format!("{} ({:.2} times the work)", scaling.allocator, scaling.factor.value))
            .collect();
        (!text.is_empty()).then(|| text.join(", "))
    };
    let first = all.first()?;
    let said: Vec<String> = [
        list("scales").map(|names| format!("it scales on {names}")),
        list("does not scale").map(|names| format!("it does not scale on {names}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!said.is_empty()).then(|| {
        format!(
            "From {} to {most} threads, where {:.0} times would be ideal, {}.",
            first.from,
            ideal(all, most),
            said.join("; ")
        )
    })
}

fn ideal(all: &[Scaling], threads: u32) -> f64 {
    all.iter().find(|scaling| scaling.to == threads).map_or(1.0, |scaling| scaling.ideal)
}

/// All of it as a table for a terminal; empty where there is nothing.
pub fn table(all: &[Scaling]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let head = ["scaling", "threads", "times the work", "95 % interval", "ideal", ""].map(str::to_owned);
    let line = |scaling: &Scaling| {
        vec![
            scaling.allocator.clone(),
            format!("{} → {}", scaling.from, scaling.to),
            format!("{:.2}", scaling.factor.value),
            units::interval(scaling.factor),
            format!("{:.0}", scaling.ideal),
            scaling.word.to_owned(),
        ]
    };
    format!("\n{}\n", table::rows(&head, &all.iter().map(line).collect::<Vec<_>>(), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaling(allocator: &str, value: f64, width: f64) -> Scaling {
        let factor = Estimate { value, low: value - width, high: value + width };
        Scaling {
            allocator: allocator.into(),
            from: 1,
            to: 2,
            factor,
            ideal: 2.0,
            word: word(factor, 2.0, MIN_BLOCKS),
        }
    }

    #[test]
    fn what_scales_and_what_does_not_is_said_of_those_of_which_it_can_be() {
        let all = [scaling("ample", 1.95, 0.05), scaling("old", 0.9, 0.1), scaling("noisy", 1.5, 0.4)];
        let told = told(&all).expect("a sentence");
        assert_eq!(
            told,
            "From 1 to 2 threads, where 2 times would be ideal, it scales on ample (1.95 times the work); it does not \
             scale on old (0.90 times the work)."
        );
        assert!(table(&all).contains("1.10–1.90"), "{}", table(&all));
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn few_blocks_and_wide_intervals_tell_nothing() {
        let factor = Estimate { value: 2.0, low: 2.0, high: 2.0 };
        assert_eq!(word(factor, 2.0, MIN_BLOCKS - 1), "cannot be told from so few blocks");
        assert_eq!(super::told(&[scaling("noisy", 1.5, 0.4)]), None);
        assert_eq!(super::told(&[]), None);
    }
}
