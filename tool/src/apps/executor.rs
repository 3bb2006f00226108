//! Runs apps where the campaign expects workloads.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ample_protocol::Outcome;

use crate::allocators::{Allocator, BASELINE};
use crate::programs::{NotFound, examine, system_of};
use crate::record::Noise;
use crate::run::{End, Ended, Executor, Interrupt, Invocation};
use crate::trial::{Subject, TrialExecutor};

/// One app of a run.
struct Place<'a> {
    subject: &'a Subject,
    trial: TrialExecutor<'a>,
    /// What its first run without any preload said; none before it.
    looked: Option<Looked>,
}

/// What the first run of an app said.
enum Looked {
    /// It can be measured.
    Measurable,
    /// Why it is not measured.
    Refused(Outcome),
    /// The user wants to stop.
    Interrupted,
}

/// Runs each app by an executor of its own. Before its first run it is tried without any preload, which gives the
/// product that every run is held against.
pub struct AppsExecutor<'a> {
    places: BTreeMap<&'static str, Place<'a>>,
    absent: BTreeMap<&'static str, Outcome>,
    baseline: Option<Allocator>,
    interrupt: Interrupt,
    remarks: Vec<String>,
}

impl<'a> AppsExecutor<'a> {
    /// An executor that stops when `interrupt` is raised.
    pub fn new(interrupt: Interrupt) -> Self {
        Self {
            places: BTreeMap::new(),
            absent: BTreeMap::new(),
            baseline: None,
            interrupt,
            remarks: Vec::new(),
        }
    }

    /// Adds an app that is there, with an interrupt of its own; the output of its failed runs goes into a
    /// folder of its name in `out`.
    pub fn add(
        &mut self,
        name: &'static str,
        subject: &'a Subject,
        interrupt: Interrupt,
        (allocators, out): (&[Allocator], &Path),
    ) {
        let mut trial = TrialExecutor::new(subject, interrupt);
        trial.prepare(allocators, &out.join(name));
        self.baseline = allocators.iter().find(|allocator| allocator.name == BASELINE).cloned();
        self.places.insert(name, Place { subject, trial, looked: None });
    }

    /// Adds an app that is not installed, with the command that installs it.
    pub fn add_missing(&mut self, name: &'static str, install: &str) {
        let reason = format!("not installed: {install}");
        self.absent.insert(name, Outcome::NotMeasurable { reason });
    }

    /// Adds an app whose input could not be made.
    pub fn add_broken(&mut self, name: &'static str, reason: String) {
        self.absent.insert(name, Outcome::Failed { reason });
    }

    /// What was noticed about the programs.
    pub fn remarks(&self) -> Vec<String> {
        let of_runs = self.places.iter().flat_map(|(name, place)| {
            place.trial.remarks().into_iter().map(move |remark| format!("{name}: {remark}."))
        });
        self.remarks.iter().cloned().chain(of_runs).collect()
    }

    /// Tries an app as it is, and takes down what is noticed. Why it is not measured; none where it is.
    fn look(
        place: &mut Place<'_>,
        name: &str,
        baseline: Option<&Allocator>,
        remarks: &mut Vec<String>,
    ) -> Looked {
        let baseline = baseline.map(|baseline| baseline.library.as_path());
        let prospect = match examine(&place.subject.words()[0], baseline.and_then(system_of)) {
            Ok(prospect) => prospect,
            Err(NotFound::Missing(reason) | NotFound::NotExecutable(reason)) => {
                return Looked::Refused(Outcome::Failed { reason });
            }
        };
        if let Some(obstacle) = prospect.obstacle {
            let reason = format!("no allocator can take the place of its own: it {obstacle}");
            return Looked::Refused(Outcome::NotMeasurable { reason });
        }
        remarks.extend(prospect.in_part.map(|part| format!("{name} {part}.")));
        let look = match place.trial.first_look() {
            Ok(Some(look)) => look,
            Ok(None) => return Looked::Interrupted,
            Err(error) => return Looked::Refused(Outcome::Failed { reason: format!("{error:#}") }),
        };
        let others = look.libraries.iter().filter(|library| Some(library.as_path()) != baseline);
        remarks.extend(others.map(|library| {
            let library = library.display();
            format!("{name}: without a preload {library} serves it; in glibc's column glibc does.")
        }));
        Looked::Measurable
    }
}

impl Executor for AppsExecutor<'_> {
    fn execute(&mut self, invocation: &Invocation) -> Ended {
        let name = invocation.arguments.get(1).map_or("", String::as_str);
        let Some(place) = self.places.get_mut(name) else {
            let unknown = || Outcome::Failed { reason: format!("there is no app '{name}'") };
            return told(self.absent.get(name).cloned().unwrap_or_else(unknown));
        };
        if place.looked.is_none() {
            place.looked = Some(Self::look(place, name, self.baseline.as_ref(), &mut self.remarks));
        }
        match &place.looked {
            Some(Looked::Refused(outcome)) => told(outcome.clone()),
            Some(Looked::Interrupted) => {
                let reason = "interrupted".to_owned();
                Ended { end: End::Interrupted, ..told(Outcome::NotMeasurable { reason }) }
            }
            Some(Looked::Measurable) | None => place.trial.execute(invocation),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_raised()
    }

    fn noise(&self) -> Noise {
        Noise::read()
    }
}

/// An answer without a run.
fn told(outcome: Outcome) -> Ended {
    Ended {
        end: End::Exited(0),
        stdout: serde_json::to_string(&outcome).unwrap_or_default(),
        stderr: String::new(),
        elapsed: Duration::ZERO,
        usage: None,
    }
}
