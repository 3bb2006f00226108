//! From a workload's figures to the line that the tool reads.

use ample_protocol::{Measurement, Outcome, SCHEMA_VERSION};

use crate::definition::{Definition, Figures, Settings, Stop};
use crate::harness::crew::Reading;
use crate::harness::curve::excess;
use crate::harness::failure::Failure;
use crate::harness::served_by::served_by;
use crate::harness::{counted, counters, phase, timed};
use crate::pass::Pass;

/// Runs the workload once, and judges what it found out.
pub fn run(workload: &Definition, settings: &Settings) -> Outcome {
    let measured = prepare(settings.pass).and_then(|()| (workload.run)(settings));
    let judged = measured.and_then(|figures| {
        let mut measurement = judge(workload, settings, figures)?;
        add_measures(settings.pass, &mut measurement)?;
        Ok(measurement)
    });
    match judged {
        Ok(measurement) => Outcome::Measured(Box::new(measurement)),
        Err(Stop::NotMeasurable(reason)) => Outcome::NotMeasurable { reason },
        Err(Stop::Failed(failure)) => Outcome::Failed { reason: failure.to_string() },
    }
}

fn prepare(pass: Pass) -> Result<(), Stop> {
    match pass {
        Pass::Memory => counted::prepare()?,
        Pass::Counters => counters::switch_on(),
        Pass::SystemCalls => phase::tell_tracer(),
        Pass::Timed | Pass::Canary | Pass::Latency => {}
    }
    Ok(())
}

/// What the heaps of this pass found out beside the workload itself.
fn add_measures(pass: Pass, measurement: &mut Measurement) -> Result<(), Stop> {
    match pass {
        Pass::Latency => {
            let none =
                || Stop::NotMeasurable("its process calls no malloc or free in the measured part".into());
            measurement.extra.extend(timed::figures().ok_or_else(none)?);
        }
        Pass::Memory => {
            measurement.curve = counted::points();
            if measurement.curve.is_empty() {
                return Err(Stop::NotMeasurable("its process allocates no block".into()));
            }
            if let Some((factor, bytes)) = excess(&measurement.curve) {
                measurement.extra.insert("peak_rss_to_live".into(), factor);
                measurement.extra.insert("peak_rss_minus_live_bytes".into(), bytes as f64);
            }
        }
        Pass::Counters if measurement.counters.is_empty() => {
            let reason = "neither the processor's counters nor the kernel's may be read (perf_event_open)";
            return Err(Stop::NotMeasurable(reason.into()));
        }
        Pass::Timed | Pass::Canary | Pass::Counters | Pass::SystemCalls => {}
    }
    Ok(())
}

fn judge(workload: &Definition, settings: &Settings, figures: Figures) -> Result<Measurement, Stop> {
    let Figures { reading, expected_operations, peak_live_bytes, extra } = figures;
    if reading.operations != expected_operations {
        return Err(Stop::Failed(Failure::Miscounted {
            done: reading.operations,
            expected: expected_operations,
        }));
    }
    let wall_ns = reading.wall_ns();
    let Reading { operations, worker_ns, usage, memory, counters, .. } = reading;
    Ok(Measurement {
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
        counters,
        curve: Vec::new(),
    })
}
