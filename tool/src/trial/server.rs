//! A server under an allocator, and a load that is run against it.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::life::{Event, Finished, Running, watch};
use super::once::Trial;
use crate::programs::Sightings;
use crate::run::{End, Interrupt};

/// Time between two questions whether the server answers.
const PAUSE: Duration = Duration::from_millis(20);
/// How long one connection may take to be accepted on this machine.
const CONNECTION: Duration = Duration::from_millis(200);
/// How long the server rests after the load, before its memory is read for the last time.
const REST: Duration = Duration::from_secs(1);
/// How long a server may take to end when it is asked to.
const FAREWELL: Duration = Duration::from_secs(10);

/// A server with its load.
#[derive(Debug, Clone)]
pub struct Server {
    /// The server's program and arguments.
    pub server: Vec<OsString>,
    /// The load's program and arguments.
    pub load: Vec<OsString>,
    /// How to tell that the server answers.
    pub ready: Ready,
}

/// How to tell that a server answers.
#[derive(Debug, Clone)]
pub enum Ready {
    /// It accepts connections on this port of 127.0.0.1.
    Port(u16),
    /// This command succeeds.
    Command(Vec<OsString>),
}

/// Why a run went no further.
enum Stop {
    Reason(String),
    /// The time was over: what had not come about.
    Late(String),
    /// The server ended by itself: when.
    Gone(&'static str),
    End(End),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Reason(error.to_string())
    }
}

impl Server {
    /// Runs it once. `command` makes the server's start of its words, `plain` that of everything else.
    pub(super) fn run(
        &self,
        server: Command,
        plain: impl Fn(&[OsString]) -> Command,
        interrupt: &Interrupt,
        timeout: Duration,
        (sightings, known_files): (Option<Sightings>, u64),
    ) -> io::Result<Trial> {
        if let Ready::Port(port) = self.ready
            && answers(port)
        {
            let reason = format!("something answers on port {port} already; end it, or choose another port");
            return Ok(Trial::failed(reason));
        }
        let deadline = Instant::now() + timeout;
        let mut running = Running::start(server, true)?;
        running.known_files = known_files;
        running.note(sightings);
        let pid = running.pid();
        let loaded = self.load(&mut running, plain, interrupt, deadline);
        let last = running.tree.as_ref().map_or(0, super::Tree::now);
        let finished = stop(running, interrupt)?;
        let ended = finished.end.clone();
        let mut trial = Trial {
            pid,
            usage: Some(finished.usage),
            last,
            server_output: finished.stdout + &finished.stderr,
            ..Trial::failed(String::new())
        }
        .with_memory(finished.tree);
        match loaded {
            Ok((load, wall)) => {
                (trial.end, trial.wall, trial.failure) = (load.end, wall, None);
                trial.load = Some(load.usage);
                (trial.stdout, trial.stderr) = (load.stdout, load.stderr);
            }
            Err(Stop::End(end)) => (trial.end, trial.failure) = (end, None),
            Err(Stop::Reason(reason)) => trial.failure = Some(reason),
            Err(Stop::Late(what)) => {
                let limit = timeout.as_secs_f64();
                trial.failure = Some(format!("{what} within {limit} s; --timeout allows more"));
            }
            Err(Stop::Gone(when)) => trial.failure = Some(gone(&ended, when)),
        }
        Ok(trial)
    }

    /// Waits until the server answers, runs the load, and lets the server rest.
    fn load(
        &self,
        server: &mut Running,
        plain: impl Fn(&[OsString]) -> Command,
        interrupt: &Interrupt,
        deadline: Instant,
    ) -> Result<(Finished, Duration), Stop> {
        while !self.is_ready(server, &plain, interrupt, deadline)? {
            match watch(&mut [server], interrupt, deadline.min(Instant::now() + PAUSE))? {
                Event::TimedOut if Instant::now() < deadline => {}
                event => return Err(self.unanswered(event)),
            }
        }
        let mut load = Running::start(plain(&self.load), false)
            .map_err(|error| Stop::Reason(format!("the load fails: {error}")))?;
        let event = watch(&mut [&mut load, server], interrupt, deadline)?;
        let wall = load.age();
        let finished = load.finish()?;
        if event != Event::Ended(0) {
            let late = || format!("the load ({}) did not end", shown(&self.load));
            return Err(ended_early(event, "during the load", late));
        }
        match watch(&mut [server], interrupt, Instant::now() + REST)? {
            Event::TimedOut => Ok((finished, wall)),
            Event::Interrupted => Err(Stop::End(End::Interrupted)),
            Event::Ended(_) => Err(Stop::Gone("after the load")),
        }
    }

    fn is_ready(
        &self,
        server: &mut Running,
        plain: impl Fn(&[OsString]) -> Command,
        interrupt: &Interrupt,
        deadline: Instant,
    ) -> Result<bool, Stop> {
        let words = match &self.ready {
            Ready::Port(port) => return Ok(answers(*port)),
            Ready::Command(words) => words,
        };
        let mut question = Running::start(plain(words), false)?;
        let event = watch(&mut [&mut question, server], interrupt, deadline)?;
        let finished = question.finish()?;
        match event {
            Event::Ended(0) => Ok(finished.end == End::Exited(0)),
            event => Err(self.unanswered(event)),
        }
    }

    /// Why it went no further than the wait for an answer.
    fn unanswered(&self, event: Event) -> Stop {
        let late = || match &self.ready {
            Ready::Port(port) => format!("the server did not answer on port {port}"),
            Ready::Command(words) => format!("the server was not ready: {} did not succeed", shown(words)),
        };
        ended_early(event, "before it answered", late)
    }
}

/// A command as a reader knows it.
pub(super) fn shown(words: &[OsString]) -> String {
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// That the server ended by itself, and how. Only one that says that all is well may have gone to the background.
fn gone(end: &End, when: &str) -> String {
    match end {
        End::Exited(0) => {
            format!(
                "the server ended {when} with exit code 0 (one that goes to the background must be told to stay)"
            )
        }
        End::Exited(code) => format!("the server ended {when} with exit code {code}"),
        end => format!("the server ended {when}: {end}"),
    }
}

fn ended_early(event: Event, when: &'static str, late: impl FnOnce() -> String) -> Stop {
    match event {
        Event::Interrupted => Stop::End(End::Interrupted),
        Event::TimedOut => Stop::Late(late()),
        Event::Ended(_) => Stop::Gone(when),
    }
}

/// Asks the server's group to end, and kills what is left of it.
fn stop(mut server: Running, interrupt: &Interrupt) -> io::Result<Finished> {
    server.tree.as_mut().map(super::Tree::look);
    server.signal(Signal::TERM);
    // An interruption is no reason to wait less: it stays raised, and the process is gone soon.
    let deadline = Instant::now() + FAREWELL;
    while watch(&mut [&mut server], interrupt, deadline)? == Event::Interrupted {
        std::thread::sleep(PAUSE);
    }
    server.finish()
}

fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, CONNECTION).is_ok()
}
