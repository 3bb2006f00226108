//! What measuring itself costs: the clock, the loops around the calls, the start of a process.

use std::time::Instant;

use ample_protocol::Measurement;
use serde::Serialize;

use super::Program;
use super::executor::Executor;
use super::plan::Entry;
use super::presets::TIMEOUT;
use super::shot::Shot;
use crate::allocators::{Allocator, Missing};
use crate::record::{Judgement, Pass};
use crate::stats::median;

/// Processes of each kind; the median counts.
const RUNS: usize = 5;
/// Readings of the clock in one go.
const READINGS: u32 = 100_000;
/// The workload whose loops are timed, and its amount of work.
const LOOPS: (&str, &str, f64) = ("malloc-test", "iterations", 2_000_000.0);
/// The workload that starts processes, and its amount of work.
const STARTS: (&str, &str, f64) = ("startup", "launches", 50.0);

/// One of the costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// What costs.
    pub name: &'static str,
    /// How that was found out.
    pub how: &'static str,
    /// How much; none where it could not be measured.
    pub value: Option<f64>,
    /// Unit of the value.
    pub unit: &'static str,
    /// Why there is no value; none where there is one.
    pub reason: Option<String>,
}

/// A figure, or why there is none.
type Figure = Result<f64, String>;

/// Measures all of them, in a few seconds; none if interrupted. `floor` is the limit by that name.
pub fn costs(
    executor: &mut dyn Executor,
    program: &Program,
    glibc: &Allocator,
    floor: Result<&Allocator, &Missing>,
) -> Option<Vec<Cost>> {
    let null_loop = median_of(executor, program, glibc, LOOPS, |measurement| {
        let seconds = measurement.extra.get("null_loop_mean_s")?;
        Some(seconds * 1e9 / measurement.parameters.get(LOOPS.1)?)
    })?;
    let pair = match floor {
        Ok(floor) => median_of(executor, program, floor, LOOPS, |measurement| {
            Some(measurement.wall_ns as f64 / measurement.operations as f64)
        })?,
        Err(missing) => Err(format!("{} is {}; run: {}", missing.name, missing.reason, missing.install)),
    };
    let start = median_of(executor, program, glibc, STARTS, |measurement| {
        Some(measurement.extra.get("launch_us")? / 1e3)
    })?;
    let cost = |name, how, unit, figure: Figure| {
        let (value, reason) = figure.map_or_else(|reason| (None, Some(reason)), |value| (Some(value), None));
        Cost { name, how, value, unit, reason }
    };
    Some(vec![
        cost("reading the clock", "clock_gettime, mean of 100 000 in a row", "ns", Ok(clock_ns())),
        cost(
            "an iteration of the null loop",
            "malloc-test's own: two calls of an empty function",
            "ns",
            null_loop,
        ),
        cost(
            "the harness, for a pair, at most",
            "malloc-test under the limit floor, whose own 16 instructions are included",
            "ns",
            pair,
        ),
        cost("starting a process", "startup's launch of true under glibc, to its end", "ms", start),
    ])
}

/// Mean time of one reading, in nanoseconds: the median over several series.
fn clock_ns() -> f64 {
    let mut means: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..READINGS {
                std::hint::black_box(Instant::now());
            }
            start.elapsed().as_nanos() as f64 / f64::from(READINGS)
        })
        .collect();
    median(&mut means).unwrap_or_default()
}

/// The median of a figure over some processes of a workload on one thread; none if interrupted.
fn median_of(
    executor: &mut dyn Executor,
    program: &Program,
    allocator: &Allocator,
    (workload, work, amount): (&str, &str, f64),
    figure: fn(&Measurement) -> Option<f64>,
) -> Option<Figure> {
    let Some(description) = program.descriptions.iter().find(|description| description.name == workload)
    else {
        return Some(Err(format!("the workloads' program does not offer {workload}")));
    };
    let mut entry = Entry::plain(description);
    entry.settings.insert(work.to_owned(), amount);
    let mut values = Vec::with_capacity(RUNS);
    for position in 0..RUNS {
        let shot = Shot {
            program: &program.path,
            entry: &entry,
            allocator,
            threads: 1,
            pass: Pass::Timed,
            block: None,
            attempt: 0,
            position,
            padding: 0,
            timeout: TIMEOUT,
        };
        match shot.take(executor)?.result {
            Judgement::Measured(measurement) => values.extend(figure(&measurement)),
            Judgement::NotMeasurable { reason } | Judgement::Failed { reason } => return Some(Err(reason)),
        }
    }
    Some(median(&mut values).ok_or_else(|| format!("{workload} does not tell")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Limit;
    use crate::run::executor::{End, Ended};
    use crate::run::testing::{Asked, MockExecutor, descriptions, ended};

    /// The costs, with malloc-test and startup as `deviate` lets them be; without floor where it is missing.
    fn measured(
        with_floor: bool,
        deviate: impl FnMut(&Asked<'_>, &mut Measurement) -> Option<Ended>,
    ) -> Option<Vec<Cost>> {
        let mut offered = descriptions();
        (offered[0].name, offered[1].name) = (LOOPS.0.into(), STARTS.0.into());
        let program = Program { path: "/fake/program".into(), descriptions: offered };
        let allocators = [Allocator::fake("glibc"), Allocator::fake_limit("floor", Limit::OneSize)];
        let mut executor = MockExecutor::new(&allocators, deviate);
        let missing =
            Missing { name: "floor".into(), reason: "not built yet".into(), install: "make it".into() };
        let floor = if with_floor { Ok(&allocators[1]) } else { Err(&missing) };
        costs(&mut executor, &program, &allocators[0], floor)
    }

    #[test]
    fn each_cost_is_the_median_in_its_unit() {
        let mut run = 0;
        let found = measured(true, |asked, measurement| {
            run += 1;
            measurement.parameters = [(LOOPS.1.to_owned(), 1000.0)].into();
            measurement.extra =
                [("null_loop_mean_s".into(), 2e-6), ("launch_us".into(), 1000.0 * f64::from(run))].into();
            measurement.wall_ns = if asked.allocator == "floor" { 4000 } else { 9_000_000 };
            None
        });
        let found = found.expect("not interrupted");
        let values: Vec<Option<f64>> = found.iter().map(|cost| cost.value).collect();
        // A thousand operations each; the last five runs are those of startup.
        assert_eq!(values[1..], [Some(2.0), Some(4.0), Some(13.0)]);
        assert!(values[0].is_some_and(|clock| clock > 0.0));
        assert_eq!([0, 1, 2, 3].map(|index| found[index].unit), ["ns", "ns", "ns", "ms"]);
        assert!(found.iter().all(|cost| cost.reason.is_none()));
    }

    #[test]
    fn what_cannot_be_measured_has_a_reason() {
        let found = measured(false, |asked, _| {
            let failed = r#"{"outcome":"failed","reason":"no room"}"#;
            (asked.workload == LOOPS.0).then(|| ended(End::Exited(1), failed))
        });
        let found = found.expect("not interrupted");
        let reasons: Vec<Option<&str>> = found.iter().map(|cost| cost.reason.as_deref()).collect();
        let missing = Some("floor is not built yet; run: make it");
        assert_eq!(reasons, [None, Some("no room"), missing, Some("startup does not tell")]);
        assert_eq!(measured(true, |_, _| Some(ended(End::Interrupted, ""))), None);
    }
}
