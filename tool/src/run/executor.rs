//! The contract between the campaign and whatever runs a process.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::record::{Noise, Usage};

/// One process to run.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Environment variables beside those that every process gets.
    pub environment: BTreeMap<String, String>,
    /// The longest that it may run.
    pub timeout: Duration,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// It ran longer than allowed and was killed.
    TimedOut,
    /// The tool was asked to stop, and killed it.
    Interrupted,
    /// It never ran: the reason.
    NotStarted(String),
}

impl fmt::Display for End {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(out, "exit code {code}"),
            Self::Killed(signal) => {
                let name = signal_hook::low_level::signal_name(*signal).unwrap_or("an unnamed signal");
                write!(out, "killed by {name} (signal {signal})")
            }
            Self::TimedOut => out.write_str("ran longer than allowed"),
            Self::Interrupted => out.write_str("interrupted"),
            Self::NotStarted(reason) => out.write_str(reason),
        }
    }
}

/// What is left of a process.
#[derive(Debug, Clone)]
pub struct Ended {
    /// How it ended.
    pub end: End,
    /// Its standard output, cut at a bound.
    pub stdout: String,
    /// Its standard error, cut at a bound.
    pub stderr: String,
    /// Its life as seen from outside.
    pub elapsed: Duration,
    /// The kernel's account of it; none if it never ran.
    pub usage: Option<Usage>,
}

/// A process that was traced.
#[derive(Debug, Clone)]
pub struct Traced {
    /// What is left of it.
    pub ended: Ended,
    /// Its system calls and those of its descendants by name, in the part that it marked as measured. None
    /// without any such part; an error where this machine does not permit tracing.
    pub system_calls: Result<Option<BTreeMap<String, u64>>, String>,
}

/// Runs processes, one at a time.
pub trait Executor {
    /// Runs one process to its end.
    fn execute(&mut self, invocation: &Invocation) -> Ended;
    /// Runs one process to its end, and counts its system calls, where it can.
    fn trace(&mut self, invocation: &Invocation) -> Traced {
        Traced { ended: self.execute(invocation), system_calls: Ok(None) }
    }
    /// Whether the tool was asked to stop.
    fn is_interrupted(&self) -> bool;
    /// What disturbs this machine: counters that only grow.
    fn noise(&self) -> Noise;
}
