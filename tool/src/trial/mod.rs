//! Runs a program of the user's under the suite's engine: as if it were a workload.
//!
//! [`Subject`] says what is run: a command, or a server with its load. [`TrialExecutor`] stands where the
//! campaign expects something that runs workloads: it runs the subject instead, and answers in a workload's
//! words, so that order, blocks, disturbance, stopping and verdicts are those of every other run.

mod care;
mod executor;
mod life;
mod metric;
mod once;
mod plan;
mod server;
mod tree;

pub use care::Care;
pub use executor::{FirstLook, LOAD_PROCESSORS, TrialExecutor};
pub use life::input_is_lost;
pub use metric::Metric;
pub use plan::{AS_IS, as_is, marked, plan};
pub use server::{Ready, Server};
pub use tree::Tree;

use std::ffi::OsString;
use std::time::Duration;

/// What is run under every allocator.
#[derive(Debug)]
pub struct Subject {
    /// How it is run.
    pub kind: Kind,
    /// The thread counts that are put in for [`THREADS`], the largest first; none: one row, and the words as they are.
    pub thread_counts: Vec<u32>,
    /// What is read from the output.
    pub metrics: Vec<Metric>,
    /// The exit code of success.
    pub exit_code: i32,
    /// Longest life of one run.
    pub timeout: Duration,
    /// Environment variables of the program that the allocator serves.
    pub environment: Vec<(&'static str, OsString)>,
    /// What is done before each run, and how its product is checked; none: the exit code says it all.
    pub care: Option<Care>,
}

/// What stands in a command for the number of threads.
pub const THREADS: &str = "{threads}";

/// The two ways of running something.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A program that ends by itself.
    Command(Vec<OsString>),
    /// A server, and a load that is run against it without the allocator.
    Server(Server),
}

impl Subject {
    /// How it is run on so many threads.
    fn on(&self, threads: u32) -> Kind {
        let mut kind = self.kind.clone();
        if !self.thread_counts.is_empty() {
            for word in kind.all_words() {
                if let Some(text) = word.to_str().filter(|text| text.contains(THREADS)) {
                    *word = text.replace(THREADS, &threads.to_string()).into();
                }
            }
        }
        kind
    }

    /// The program that the allocator serves, and its arguments.
    pub fn words(&self) -> &[OsString] {
        self.kind.words()
    }
}

impl Kind {
    /// The words of all its commands.
    pub fn all_words(&mut self) -> impl Iterator<Item = &mut OsString> {
        let (first, second) = match self {
            Self::Command(words) => (words, None),
            Self::Server(Server { server, load, .. }) => (server, Some(load)),
        };
        first.iter_mut().chain(second.into_iter().flatten())
    }

    /// The program that the allocator serves, and its arguments.
    fn words(&self) -> &[OsString] {
        match self {
            Self::Command(words) => words,
            Self::Server(server) => &server.server,
        }
    }
}
