//! How far the run is, on standard error, and only on a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Stopping;

/// A progress line with the time that is left.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    part: String,
    stopping: Stopping,
    started: Instant,
    before: Duration,
}

impl Progress {
    /// Starts the clock.
    pub fn start(stopping: Stopping) -> Self {
        Self::part(stopping, String::new())
    }

    /// A line for a program that runs once, without any allocator, as long as it likes: it tells the seconds by itself.
    pub fn first_look() -> Self {
        let progress = Self::start(Stopping::blocks(1));
        let style = ProgressStyle::with_template("first look, without any allocator: {elapsed}");
        progress.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        progress.bar.enable_steady_tick(Duration::from_secs(1));
        progress
    }

    /// The same for a part of something larger, which the line begins with.
    pub fn part(stopping: Stopping, part: String) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self { bar, part, stopping, started: Instant::now(), before: Duration::ZERO }
    }

    /// The same for a run that has gone on for so long before.
    pub fn after(self, before: Duration) -> Self {
        Self { before, ..self }
    }

    /// Time since the start of the run.
    pub fn elapsed(&self) -> Duration {
        self.before + self.started.elapsed()
    }

    /// The checks before the timed pass: this one of so many.
    pub fn check(&self, done: usize, total: usize, what: &str) {
        self.bar.set_message(format!("{}checking {}/{total}: {what}", self.part, done + 1));
    }

    /// The runs that heap-leak's prediction is measured with: this one of so many.
    pub fn calibration(&self, done: usize, total: usize, name: &str) {
        self.bar.set_message(format!("{}calibrating heap-leak {}/{total}: {name}", self.part, done + 1));
    }

    /// The timed pass: within this block, which began at `began` after the start, so many samples
    /// of so many are done.
    pub fn sample(&self, block: usize, began: Duration, done: usize, total: usize, what: &str) {
        let elapsed = self.elapsed();
        let left = self.stopping.left(block, began, elapsed, done as f64 / total as f64);
        let left = left.map_or(String::new(), |left| format!(", {} left", clock(left)));
        let part = &self.part;
        self.bar.set_message(format!("{part}block {}, sample {}/{total}{left}: {what}", block + 1, done + 1));
    }

    /// The measures after the timed pass, begun with the line: this one of so many.
    pub fn measure(&self, done: usize, total: usize, what: &str) {
        let left = extrapolated(self.started.elapsed(), done, total);
        let left = left.map_or(String::new(), |left| format!(", {} left", clock(left)));
        self.bar.set_message(format!("{}measuring {}/{total}{left}: {what}", self.part, done + 1));
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The time that the rest takes if it goes on like this; none before a twentieth is done.
fn extrapolated(elapsed: Duration, done: usize, total: usize) -> Option<Duration> {
    (done > 0 && done * 20 >= total).then(|| elapsed.mul_f64(total.saturating_sub(done) as f64 / done as f64))
}

/// Rounded to what a person wants to know.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {:02} s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        assert_eq!(extrapolated(Duration::from_secs(10), 2, 6), Some(Duration::from_secs(20)));
        assert_eq!(extrapolated(Duration::from_secs(10), 4, 100), None);
        assert_eq!(extrapolated(Duration::ZERO, 0, 0), None);
    }

    #[test]
    fn times_read_well() {
        assert_eq!(clock(Duration::from_secs(59)), "59 s");
        assert_eq!(clock(Duration::from_secs(125)), "2 min 05 s");
    }
}
