//! Where workers meet in the middle of their work, and where memory is sampled at equal live bytes.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::failure::Failure;
use super::usage::Memory;

/// A meeting point of a fixed number of workers.
#[derive(Debug)]
pub struct Rendezvous {
    state: Mutex<State>,
    turned: Condvar,
    parties: usize,
}

#[derive(Debug)]
struct State {
    arrived: usize,
    turn: u64,
    live_bytes: u64,
    samples: Vec<Sample>,
    failure: Option<Failure>,
}

/// Live and resident bytes at a point that the definition fixes, when no worker is working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Bytes that the workers hold.
    pub live_bytes: u64,
    /// Resident bytes of the process.
    pub rss_bytes: u64,
}

impl Rendezvous {
    /// For so many workers, and with room for so many samples.
    pub fn new(parties: usize, samples: usize) -> Self {
        let samples = Vec::with_capacity(samples);
        let state = State { arrived: 0, turn: 0, live_bytes: 0, samples, failure: None };
        Self { state: Mutex::new(state), turned: Condvar::new(), parties }
    }

    /// Does a worker's work; if it fails, whoever waits here for this worker fails as well.
    ///
    /// # Errors
    /// The work's own.
    pub fn attend<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        work().inspect_err(|failure| {
            self.lock().failure.get_or_insert(failure.clone());
            self.turned.notify_all();
        })
    }

    /// Waits until all workers are here.
    ///
    /// # Errors
    /// The failure of a worker that will not come.
    pub fn meet(&self) -> Result<(), Failure> {
        self.arrive(0, |_| Ok(()))
    }

    /// Waits until all workers are here, and the last one takes a sample: the sum of what the
    /// workers hold, and what is resident.
    ///
    /// # Errors
    /// As [`meet`](Self::meet); or resident memory cannot be read.
    pub fn sample(&self, live_bytes: u64) -> Result<(), Failure> {
        self.arrive(live_bytes, |state| {
            let rss_bytes = Memory::now()?.rss_bytes;
            state.samples.push(Sample { live_bytes: state.live_bytes, rss_bytes });
            Ok(())
        })
    }

    /// The samples so far, each under two names: `rss_NAME_NN_bytes` and `live_NAME_NN_bytes`, counted
    /// from 1.
    pub fn figures(&self, name: &str) -> BTreeMap<String, f64> {
        let state = self.lock();
        let named = |(index, sample): (usize, &Sample)| {
            let figure = |kind, bytes| (format!("{kind}_{name}_{:02}_bytes", index + 1), bytes as f64);
            [figure("rss", sample.rss_bytes), figure("live", sample.live_bytes)]
        };
        state.samples.iter().enumerate().flat_map(named).collect()
    }

    /// The samples so far.
    pub fn samples(&self) -> Vec<Sample> {
        self.lock().samples.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrive(
        &self,
        live_bytes: u64,
        last: impl FnOnce(&mut State) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut state = self.lock();
        state.arrived += 1;
        state.live_bytes += live_bytes;
        if state.arrived == self.parties {
            if let Err(failure) = last(&mut state) {
                state.failure.get_or_insert(failure);
            }
            state.arrived = 0;
            state.live_bytes = 0;
            state.turn += 1;
            self.turned.notify_all();
        } else {
            let turn = state.turn;
            let waiting = |state: &mut State| state.turn == turn && state.failure.is_none();
            state = self.turned.wait_while(state, waiting).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn nobody_passes_before_all_are_there_and_samples_add_up() {
        let (rendezvous, before) = (Rendezvous::new(3, 2), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for held in [1, 2, 4] {
                let (rendezvous, before) = (&rendezvous, &before);
                scope.spawn(move || {
                    // Relaxed: the rendezvous's mutex orders these.
                    before.fetch_add(1, Ordering::Relaxed);
                    rendezvous.meet().expect("met");
                    assert_eq!(before.load(Ordering::Relaxed), 3);
                    rendezvous.sample(held).expect("met");
                    rendezvous.sample(10 * held).expect("met");
                });
            }
        });
        let live: Vec<_> = rendezvous.samples().iter().map(|sample| sample.live_bytes).collect();
        assert_eq!(live, [7, 70]);
        assert_eq!(rendezvous.figures("after_phase")["live_after_phase_02_bytes"], 70.0);
        assert!(rendezvous.samples().iter().all(|sample| sample.rss_bytes > 0));
    }

    #[test]
    fn who_fails_sends_the_waiting_home_with_the_same_failure() {
        let rendezvous = Rendezvous::new(2, 0);
        let failure = Failure::Null { size: 3 };
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| rendezvous.attend(|| rendezvous.meet()));
            assert_eq!(rendezvous.attend(|| Err::<(), _>(failure.clone())), Err(failure.clone()));
            assert_eq!(waiting.join().expect("no panic"), Err(failure.clone()));
        });
    }
}
