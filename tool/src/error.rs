//! Errors that decide the exit code, usage errors told apart from failures; and how the user hears of them.

use std::fmt;
use std::io::Write as _;

/// The command line asks for something that does not exist or makes no sense: exit code 2.
///
/// Everything else that goes wrong is an [`anyhow::Error`] of another kind: exit code 1.
#[derive(Debug)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Says something on standard error. Where nobody can hear it, as on a full disk, the work goes on all the same.
pub fn say(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// A usage error for an unknown name: the nearest valid one, and all of them.
pub fn unknown(kind: &str, name: &str, valid: &[&str]) -> UsageError {
    let near = nearest(name, valid.iter().copied());
    let suggestion = near.map_or(String::new(), |near| format!(" did you mean '{near}'?"));
    let valid = valid.join(", ");
    UsageError(format!("unknown {kind} '{name}';{suggestion} valid: {valid}"))
}

/// The one of these names that is most like this one; none where none is alike.
pub fn nearest<'a>(name: &str, valid: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const ALIKE: f64 = 0.75;
    valid
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, near)| near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_a_far_one_is_not() {
        let near = unknown("allocator", "jemaloc", &["glibc", "jemalloc"]).to_string();
        assert_eq!(near, "unknown allocator 'jemaloc'; did you mean 'jemalloc'? valid: glibc, jemalloc");
        let far = unknown("allocator", "xyz", &["glibc", "jemalloc"]).to_string();
        assert_eq!(far, "unknown allocator 'xyz'; valid: glibc, jemalloc");
    }
}
