//! Stand-ins for tests: processes that never ran, workloads that do nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use ample_protocol::{CurvePoint, Description, Measurement, Outcome, Parameter, ServedBy};

use super::executor::{End, Ended, Executor, Invocation, Traced};
use super::presets::{QUICK, find};
use super::{Campaign, Conclusion, Entry, Past, Plan, Progress, Request, Stopping};
use crate::allocators::Allocator;
use crate::record::{Machine, Noise, Pass, Run, SCHEMA_VERSION, Sample, Workload};

/// A process that ended so, with this output.
pub fn ended(end: End, stdout: &str) -> Ended {
    Ended {
        end,
        stdout: stdout.into(),
        stderr: String::new(),
        elapsed: Duration::from_millis(1),
        usage: None,
    }
}

/// A flawless result: one second of wall time, one MiB of memory.
pub fn measurement(allocator: &Allocator, workload: &str, threads: u32, operations: u64) -> Measurement {
    let served = ["malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc"];
    let path = allocator.library.display().to_string();
    Measurement {
        schema_version: ample_protocol::SCHEMA_VERSION,
        workload: workload.into(),
        threads,
        parameters: BTreeMap::new(),
        operations,
        expected_operations: operations,
        wall_ns: 1_000_000_000,
        worker_ns: vec![1_000_000_000; threads as usize],
        user_ns: 1,
        kernel_ns: 1,
        minor_faults: 1,
        major_faults: 0,
        voluntary_switches: 0,
        involuntary_switches: 0,
        peak_rss_bytes: 1 << 20,
        final_rss_bytes: 1 << 20,
        peak_live_bytes: None,
        served_by: served
            .map(|symbol| ServedBy { symbol: symbol.into(), path: path.clone(), build_id: None })
            .to_vec(),
        extra: BTreeMap::new(),
        counters: BTreeMap::new(),
        curve: Vec::new(),
    }
}

/// A workload with these parameters.
pub fn describe(name: &str, keys: &[&str], max_threads: Option<u32>) -> Description {
    let parameter = |&key: &&str| Parameter {
        name: key.into(),
        meaning: "a number".into(),
        unit: "count".into(),
        default: 1.0,
        test: 1.0,
    };
    Description {
        name: name.into(),
        tells: "something".into(),
        source: "somewhere".into(),
        operation: "one step".into(),
        parameters: keys.iter().map(parameter).collect(),
        max_threads,
    }
}

/// Two workloads of the default selection, and one with at most two threads.
pub fn descriptions() -> Vec<Description> {
    vec![
        describe("threadtest", &["size", "objects", "rounds"], None),
        describe("larson", &["rounds"], None),
        describe("bounded", &[], Some(2)),
    ]
}

/// What the mock is asked.
pub struct Asked<'a> {
    /// Name of the allocator.
    pub allocator: &'a str,
    /// Name of the workload.
    pub workload: &'a str,
    /// Threads.
    pub threads: u32,
    /// Whether this is the canary pass.
    pub canary: bool,
    /// Parameters set.
    pub settings: BTreeMap<String, f64>,
    /// What the process is for, as on the command line; nothing for a timed pass or a probe.
    pub pass: &'a str,
}

/// Changes an answer, or replaces it.
type Deviation<'a> = dyn FnMut(&Asked<'_>, &mut Measurement) -> Option<Ended> + 'a;

/// Answers every request with a flawless result, but for what `deviate` says.
pub struct MockExecutor<'a> {
    /// The allocators by whose libraries requests are told apart.
    pub allocators: &'a [Allocator],
    /// Changes an answer.
    pub deviate: Box<Deviation<'a>>,
    /// Requests so far.
    pub requests: usize,
    /// Requests after which the user interrupts.
    pub interrupt_after: usize,
    /// Requests during which the hypervisor takes all CPUs.
    pub stolen: Range<usize>,
}

impl<'a> MockExecutor<'a> {
    /// A mock that deviates so, and is never interrupted.
    pub fn new(
        allocators: &'a [Allocator],
        deviate: impl FnMut(&Asked<'_>, &mut Measurement) -> Option<Ended> + 'a,
    ) -> Self {
        Self {
            allocators,
            deviate: Box::new(deviate),
            requests: 0,
            interrupt_after: usize::MAX,
            stolen: 0..0,
        }
    }
}

impl Executor for MockExecutor<'_> {
    fn execute(&mut self, invocation: &Invocation) -> Ended {
        self.requests += 1;
        let library = &invocation.environment["LD_PRELOAD"];
        let allocator = self
            .allocators
            .iter()
            .find(|allocator| allocator.library.to_str() == Some(library))
            .expect("a known library");
        let arguments = &invocation.arguments;
        let threads = arguments[3].parse().expect("a thread count");
        let pass = arguments.iter().skip_while(|argument| *argument != "--pass").nth(1);
        let pass = pass.map_or("", String::as_str);
        let (workload, canary) = (arguments[1].as_str(), pass == "canary");
        let settings = arguments.iter().filter_map(|argument| setting(argument)).collect();
        let asked = Asked { allocator: &allocator.name, workload, threads, canary, settings, pass };
        let mut measurement = measurement(allocator, workload, threads, 1000);
        match pass {
            "latency" => {
                for function in ["malloc", "free"] {
                    let figures = ["p50", "p90", "p99", "p99_9", "p99_99", "max"]
                        .into_iter()
                        .zip([20, 30, 90, 400, 900, 5000]);
                    let figures =
                        figures.map(|(name, value)| (format!("{function}_{name}_ns"), f64::from(value)));
                    measurement.extra.extend(figures.chain([(format!("{function}_calls"), 1000.0)]));
                }
                measurement.extra.insert("timer_cost_ns".into(), 20.0);
            }
            "memory" => {
                let point = |index: u64| CurvePoint {
                    operations: 100 * index,
                    live_bytes: index << 20,
                    rss_bytes: index << 21,
                };
                measurement.curve = (1..=20).map(point).collect();
            }
            "counters" => measurement.counters.extend([("cycles".to_owned(), 5e6)]),
            _ => {}
        }
        (self.deviate)(&asked, &mut measurement).unwrap_or_else(|| {
            let outcome = Outcome::Measured(Box::new(measurement));
            ended(End::Exited(0), &serde_json::to_string(&outcome).expect("encoded"))
        })
    }

    fn trace(&mut self, invocation: &Invocation) -> Traced {
        let calls = BTreeMap::from([("mmap".to_owned(), 30), ("futex".to_owned(), 7)]);
        Traced { ended: self.execute(invocation), system_calls: Ok(Some(calls)) }
    }

    fn is_interrupted(&self) -> bool {
        self.requests >= self.interrupt_after
    }

    fn noise(&self) -> Noise {
        // Seconds in which the whole test cannot end.
        let stolen = self.requests.clamp(self.stolen.start, self.stolen.end) - self.stolen.start;
        Noise { steal_seconds: Some(stolen as f64 * 1000.0), ..Noise::default() }
    }
}

/// A parameter and its value, where an argument sets one.
fn setting(argument: &str) -> Option<(String, f64)> {
    let (key, value) = argument.split_once('=')?;
    Some((key.to_owned(), value.parse().ok()?))
}

/// Runs larson on one and two threads under these allocators, so many blocks, until the user
/// interrupts after so many processes. `deviate` changes a result, or replaces the whole output.
pub fn conclude(
    allocators: &[Allocator],
    blocks: usize,
    interrupt_after: usize,
    deviate: impl FnMut(&Asked<'_>, &mut Measurement) -> Option<String>,
) -> (Plan, Conclusion) {
    conclude_with(&[], allocators, blocks, interrupt_after, deviate)
}

/// The same, and then these measures.
pub fn conclude_with(
    measures: &[Pass],
    allocators: &[Allocator],
    blocks: usize,
    interrupt_after: usize,
    deviate: impl FnMut(&Asked<'_>, &mut Measurement) -> Option<String>,
) -> (Plan, Conclusion) {
    let (_, conclusion) = conclude_from(Vec::new(), measures, allocators, blocks, interrupt_after, deviate);
    (larson(), conclusion)
}

/// larson on one and two threads.
fn larson() -> Plan {
    let workloads = ["larson".to_owned()];
    let request = Request {
        workloads: &workloads,
        threads: Some(&[1, 2]),
        settings: &[],
        preset: find(QUICK).expect("known"),
        cpus: 2,
    };
    Plan::new(&request, &descriptions(), 1).expect("a plan")
}

/// The same from what was measured before: the samples that were taken, and what it came to.
pub fn conclude_from(
    past: impl Into<Past>,
    measures: &[Pass],
    allocators: &[Allocator],
    blocks: usize,
    interrupt_after: usize,
    mut deviate: impl FnMut(&Asked<'_>, &mut Measurement) -> Option<String>,
) -> (Vec<Sample>, Conclusion) {
    let plan = larson();
    let stopping = Stopping::blocks(blocks);
    let mut executor = MockExecutor::new(allocators, |asked, measurement| {
        deviate(asked, measurement).map(|output| ended(End::Exited(1), &output))
    });
    executor.interrupt_after = interrupt_after;
    let campaign = Campaign {
        plan: &plan,
        allocators,
        program: "/fake/program".as_ref(),
        stopping,
        timeout: Duration::from_secs(1),
        progress: &Progress::start(stopping),
    };
    let mut kept = Vec::new();
    let mut keep = |sample: &Sample| {
        kept.push(sample.clone());
        Ok(())
    };
    let conclusion = campaign.run(past, &mut executor, &mut keep).expect("concluded");
    let conclusion = campaign.measure(measures, conclusion, &mut executor, &mut keep).expect("concluded");
    (kept, conclusion)
}

/// The record of a run of larson on one and two threads under these allocators.
pub fn run_of(allocators: &[Allocator], conclusion: &Conclusion) -> Run {
    Run {
        command: vec!["ample".into(), "bench".into(), "it's".into()],
        ended: Some("20260101T000100Z".into()),
        interrupted: conclusion.interrupted,
        blocks: conclusion.blocks,
        block_log: conclusion.block_log.clone(),
        allocators: allocators.to_vec(),
        workloads: workloads(&larson()),
        ..record()
    }
}

/// The record of a run of ten blocks, without workloads and allocators.
pub fn record() -> Run {
    Run {
        schema_version: SCHEMA_VERSION,
        tool_version: "1".into(),
        id: None,
        command: vec!["ample".into(), "bench".into()],
        shard: None,
        merged: Vec::new(),
        damage: None,
        resumed: Vec::new(),
        started: "20260101T000000Z".into(),
        ended: None,
        interrupted: false,
        blocks: 10,
        measures: Vec::new(),
        seed: 1,
        preset: "quick".into(),
        stopping: "10 blocks".into(),
        noise_rule: "none".into(),
        block_log: Vec::new(),
        fault_predictions: Vec::new(),
        timeout_seconds: 1.0,
        machine: Machine::read(),
        noise_at_start: Noise::read(),
        noise_at_end: Some(Noise::read()),
        inherited_environment: BTreeMap::new(),
        unread_environment: BTreeMap::new(),
        workload_program: "/fake/program".into(),
        workload_program_sha256: None,
        allocators: Vec::new(),
        workloads: Vec::new(),
    }
}

/// The workloads of a plan, as a record has them.
pub fn workloads(plan: &Plan) -> Vec<Workload> {
    let workload = |entry: &Entry| Workload {
        name: entry.label.clone(),
        workload: entry.description.name.clone(),
        tells: entry.description.tells.clone(),
        source: entry.description.source.clone(),
        operation: entry.description.operation.clone(),
        settings: entry.settings.clone(),
        threads: entry.threads.clone(),
        task: entry.task.clone(),
    };
    plan.entries.iter().map(workload).collect()
}
