//! Runs apps where the campaign expects workloads.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ample_protocol::Outcome;

use crate::allocators::{Allocator, BASELINE};
use crate::programs::{NotFound, architecture, examine};
use crate::record::Noise;
use crate::run::{End, Ended, Executor, Interrupt, Invocation};
use crate::trial::{Subject, TrialExecutor};

/// One app of a run.
struct Place<'a> {
    subject: &'a Subject,
    trial: TrialExecutor<'a>,
    looked: bool,
    /// Why it is not measured.
    refusal: Option<Outcome>,
}

/// Runs each app by an executor of its own. Before its first run it is tried without any preload, which gives the
/// product that every run is held against.
pub struct AppsExecutor<'a> {
    places: BTreeMap<&'static str, Place<'a>>,
    missing: BTreeMap<&'static str, String>,
    baseline: Option<Allocator>,
    interrupt: Interrupt,
    remarks: Vec<String>,
}

impl<'a> AppsExecutor<'a> {
    /// An executor that stops when `interrupt` is raised.
    pub fn new(interrupt: Interrupt) -> Self {
        Self {
            places: BTreeMap::new(),
            missing: BTreeMap::new(),
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
        self.places.insert(name, Place { subject, trial, looked: false, refusal: None });
    }

    /// Adds an app that is not installed, with the command that installs it.
    pub fn add_missing(&mut self, name: &'static str, install: &str) {
        self.missing.insert(name, format!("not installed: {install}"));
    }

    /// What was noticed about the programs.
    pub fn remarks(&self) -> Vec<String> {
        let of_runs = self.places.iter().flat_map(|(name, place)| {
            place.trial.remarks().into_iter().map(move |remark| format!("{name}: {remark}."))
        });
        self.remarks.iter().cloned().chain(of_runs).collect()
    }

    /// Tries the app as it is, once. False if interrupted.
    fn look(&mut self, name: &'static str) -> bool {
        let Some(place) = self.places.get_mut(name).filter(|place| !place.looked) else { return true };
        place.looked = true;
        let library = self.baseline.as_ref().and_then(|baseline| architecture(&baseline.library));
        let prospect = match examine(&place.subject.words()[0], library) {
            Ok(prospect) => prospect,
            Err(NotFound::Missing(reason) | NotFound::NotExecutable(reason)) => {
                place.refusal = Some(Outcome::Failed { reason });
                return true;
            }
        };
        if let Some(obstacle) = prospect.obstacle {
            let reason = format!("no allocator can take the place of its own: it {obstacle}");
            place.refusal = Some(Outcome::NotMeasurable { reason });
            return true;
        }
        self.remarks.extend(prospect.in_part.map(|part| format!("{name} {part}.")));
        match place.trial.first_look() {
            Ok(None) => return false,
            Ok(Some(look)) => {
                let baseline = self.baseline.as_ref().map(|baseline| &baseline.library);
                let others = look.libraries.iter().filter(|&library| Some(library) != baseline);
                self.remarks.extend(others.map(|library| {
                    format!(
                        "{name}: without a preload {} serves it; here glibc is preloaded too.",
                        library.display()
                    )
                }));
            }
            Err(error) => place.refusal = Some(Outcome::Failed { reason: format!("{error:#}") }),
        }
        true
    }
}

impl Executor for AppsExecutor<'_> {
    fn execute(&mut self, invocation: &Invocation) -> Ended {
        let asked = invocation.arguments.get(1).map_or("", String::as_str);
        if let Some(reason) = self.missing.get(asked) {
            return told(Outcome::NotMeasurable { reason: reason.clone() });
        }
        let Some(name) = self.places.keys().copied().find(|name| *name == asked) else {
            return told(Outcome::Failed { reason: format!("there is no app '{asked}'") });
        };
        if !self.look(name) {
            return Ended { end: End::Interrupted, ..told(Outcome::NotMeasurable { reason: String::new() }) };
        }
        match self.places.get_mut(name) {
            Some(Place { refusal: Some(outcome), .. }) => told(outcome.clone()),
            Some(place) => place.trial.execute(invocation),
            None => told(Outcome::Failed { reason: format!("there is no app '{asked}'") }),
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
