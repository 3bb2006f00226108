//! What is left of one run of the user's program.

use std::time::Duration;

use super::Tree;
use crate::programs::Sightings;
use crate::record::Usage;
use crate::run::End;

/// What came of one run.
pub(super) struct Trial {
    /// Number of the process that the allocator serves.
    pub pid: u32,
    /// How the program ended; of a server, how its load did.
    pub end: End,
    /// What else went wrong.
    pub failure: Option<String>,
    /// Time from start to end; of a server, of its load.
    pub wall: Duration,
    /// The kernel's account of the program, or of the server over its whole life.
    pub usage: Option<Usage>,
    /// The kernel's account of a server's load.
    pub load: Option<Usage>,
    /// Peak memory of the process tree, in bytes.
    pub peak: u64,
    /// Its memory at the last look; of a server, one second after the load.
    pub last: u64,
    /// What the program, or the load, printed.
    pub stdout: String,
    /// The same for standard error.
    pub stderr: String,
    /// Both streams of the server.
    pub server_output: String,
    /// What was seen of the programs in the tree, where they were noted.
    pub sightings: Sightings,
    /// Processor time of the tree as far as it was seen, where programs were noted, in nanoseconds.
    pub seen_cpu_ns: u64,
    /// The most pages of files that one process had, in bytes.
    pub files: u64,
    /// What it produced, where that is looked at.
    pub product: Option<String>,
}

/// What whoever waits for a process says of one that crashed: shells and make use these words of strsignal(3), xargs its own.
const DEATHS: [&str; 6] = [
    "Segmentation fault",
    "Aborted",
    "Bus error",
    "Illegal instruction",
    "Trace/breakpoint trap",
    "terminated by signal",
];

impl Trial {
    /// The lines on standard error, or of a server, that tell of a crash, and by which word: of a process whose end its parent may have passed over in its own exit code.
    pub fn deaths(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let lines = self.stderr.lines().chain(self.server_output.lines());
        lines.filter_map(|line| Some((DEATHS.into_iter().find(|word| line.contains(word))?, line)))
    }

    /// A run without any figure.
    pub fn failed(reason: String) -> Self {
        Self {
            pid: 0,
            end: End::Exited(0),
            failure: Some(reason),
            wall: Duration::ZERO,
            usage: None,
            load: None,
            peak: 0,
            last: 0,
            stdout: String::new(),
            stderr: String::new(),
            server_output: String::new(),
            sightings: Sightings::default(),
            seen_cpu_ns: 0,
            files: 0,
            product: None,
        }
    }

    /// Takes the memory of a tree.
    pub fn with_memory(mut self, tree: Option<Tree>) -> Self {
        if let Some(tree) = tree {
            (self.peak, self.files) = (tree.peak(), tree.most_files());
            self.seen_cpu_ns = tree.seen_cpu_ns();
            self.sightings = tree.sightings();
        }
        self
    }
}
