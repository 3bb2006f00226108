//! A slowdown that is planted on purpose: what must be found is known.

use ample_protocol::Outcome;

use super::executor::{Ended, Executor, Invocation, Traced};
use crate::record::Noise;

/// An environment variable that marks the processes which do more work. It never reaches them.
pub const MARK: &str = "AMPLE_PLANTED_SLOWDOWN";

/// Runs processes through another executor, some of them with more work than they then count: the
/// workload's parameter for the amount of work is raised by a share, and the operations in its result
/// are lowered by the same. Everything else takes its normal way.
pub struct Planted<'a> {
    /// Runs the processes.
    pub inner: &'a mut dyn Executor,
    /// The parameter that the number of operations is proportional to.
    pub parameter: &'static str,
    /// How much more work: 0.05 for 5 %.
    pub share: f64,
}

impl Executor for Planted<'_> {
    fn execute(&mut self, invocation: &Invocation) -> Ended {
        let mut invocation = invocation.clone();
        let marked = invocation.environment.remove(MARK).is_some();
        let Some(factor) = marked.then(|| self.raise(&mut invocation.arguments)).flatten() else {
            return self.inner.execute(&invocation);
        };
        let mut ended = self.inner.execute(&invocation);
        if let Some(stdout) = lower(&ended.stdout, factor) {
            ended.stdout = stdout;
        }
        ended
    }

    fn trace(&mut self, invocation: &Invocation) -> Traced {
        self.inner.trace(invocation)
    }

    fn is_interrupted(&self) -> bool {
        self.inner.is_interrupted()
    }

    fn noise(&self) -> Noise {
        self.inner.noise()
    }
}

impl Planted<'_> {
    /// Raises the parameter, and tells by which factor, whole numbers considered; none where it is not set.
    fn raise(&self, arguments: &mut [String]) -> Option<f64> {
        let argument = arguments
            .iter_mut()
            .find(|argument| argument.split_once('=').is_some_and(|(name, _)| name == self.parameter))?;
        let (_, value) = argument.split_once('=')?;
        let before: f64 = value.parse().ok()?;
        let after = (before * (1.0 + self.share)).round();
        *argument = format!("{}={after}", self.parameter);
        Some(after / before)
    }
}

/// The result with fewer operations; none for one without any.
fn lower(stdout: &str, factor: f64) -> Option<String> {
    let mut outcome: Outcome = serde_json::from_str(stdout.trim()).ok()?;
    if let Outcome::Measured(measurement) = &mut outcome {
        let lowered = |operations: u64| (operations as f64 / factor).round() as u64;
        measurement.operations = lowered(measurement.operations);
        measurement.expected_operations = lowered(measurement.expected_operations);
    }
    serde_json::to_string(&outcome).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::run::executor::End;
    use crate::run::testing::{ended, measurement};
    use std::collections::BTreeMap;
    use std::time::Duration;

    /// Does as many operations as it is told, one a microsecond.
    struct Counting;

    impl Executor for Counting {
        fn execute(&mut self, invocation: &Invocation) -> Ended {
            assert!(!invocation.environment.contains_key(MARK));
            let count = invocation.arguments.last().and_then(|last| last.strip_prefix("iterations="));
            let count: u64 = count.expect("set").parse().expect("a number");
            let mut result = measurement(&Allocator::fake("glibc"), "malloc-test", 1, count);
            result.wall_ns = count * 1000;
            let line = serde_json::to_string(&Outcome::Measured(Box::new(result))).expect("encoded");
            ended(End::Exited(0), &line)
        }

        fn trace(&mut self, invocation: &Invocation) -> Traced {
            Traced { ended: self.execute(invocation), system_calls: Ok(None) }
        }

        fn is_interrupted(&self) -> bool {
            false
        }

        fn noise(&self) -> Noise {
            Noise::default()
        }
    }

    #[test]
    fn what_is_marked_takes_longer_for_as_many_operations() {
        let run = |marked: bool| {
            let mut planted = Planted { inner: &mut Counting, parameter: "iterations", share: 0.05 };
            let mark = marked.then(|| (MARK.to_owned(), String::new()));
            let ended = planted.execute(&Invocation {
                program: "/fake/program".into(),
                arguments: ["run", "malloc-test", "--set", "iterations=1000"].map(str::to_owned).to_vec(),
                environment: BTreeMap::from_iter(mark),
                timeout: Duration::from_secs(1),
            });
            match serde_json::from_str(&ended.stdout).expect("readable") {
                Outcome::Measured(result) => (result.operations, result.expected_operations, result.wall_ns),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(run(false), (1000, 1000, 1_000_000));
        assert_eq!(run(true), (1000, 1000, 1_050_000));
    }
}
