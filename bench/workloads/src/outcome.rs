//! From a workload's figures to the line that the tool reads.

use ample_protocol::{Measurement, Outcome, SCHEMA_VERSION};

use crate::definition::{Definition, Figures, Settings, Stop};
use crate::harness::crew::Reading;
use crate::harness::served_by::served_by;

/// Runs the workload once, and judges what it found out.
pub fn run(workload: &Definition, settings: &Settings) -> Outcome {
    match (workload.run)(settings) {
        Ok(figures) => judge(workload, settings, figures),
        Err(Stop::NotMeasurable(reason)) => Outcome::NotMeasurable { reason },
        Err(Stop::Failed(failure)) => Outcome::Failed { reason: failure.to_string() },
    }
}

fn judge(workload: &Definition, settings: &Settings, figures: Figures) -> Outcome {
    let Figures { reading, expected_operations, peak_live_bytes, extra } = figures;
    if reading.operations != expected_operations {
        let reason = format!("{} operations were done, not {expected_operations}", reading.operations);
        return Outcome::Failed { reason };
    }
    let wall_ns = reading.wall_ns();
    let Reading { operations, worker_ns, usage, memory, .. } = reading;
    Outcome::Measured(Box::new(Measurement {
        schema_version: SCHEMA_VERSION,
        workload: workload.name.into(),
        threads: settings.threads,
        parameters: settings.parameters(),
        operations,
        expected_operations,
        wall_ns,
        worker_ns,
        user_ns: usage.user_ns,
        kernel_ns: usage.kernel_ns,
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        voluntary_switches: usage.voluntary_switches,
        involuntary_switches: usage.involuntary_switches,
        peak_rss_bytes: memory.peak_rss_bytes,
        final_rss_bytes: memory.rss_bytes,
        peak_live_bytes,
        served_by: served_by(),
        extra,
    }))
}
