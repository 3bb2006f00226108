//! What a program of the user's was asked to do.

use serde::{Deserialize, Serialize};

/// What a run of the user's own program measures: another task is another row, whatever the program's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The command line, as a shell takes it; of a server, with that of its load.
    pub command: String,
    /// The file that the command names: of a script, the script.
    pub file: String,
    /// SHA-256 of that file, in hexadecimal; none where it cannot be read.
    pub sha256: Option<String>,
    /// The figures that are read from the output, each with its direction; none: wall time is what counts.
    pub metrics: Vec<String>,
    /// The exit code of success.
    pub exit_code: i32,
}

impl Task {
    /// In what another task is no longer the same, in words. A file may lie elsewhere, or be another build: only
    /// one of other content in another place is another program.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let mut hold = |what: &str, one: String, another: String| {
            if one != another {
                found.push(format!("{what}: {one}, and {another}"));
            }
        };
        hold("command", self.command.clone(), other.command.clone());
        if self.sha256 != other.sha256 {
            hold("program", self.file.clone(), other.file.clone());
        }
        hold("metric", self.metric(), other.metric());
        hold("exit code of success", self.exit_code.to_string(), other.exit_code.to_string());
        found
    }

    /// What tells it from others, in a line.
    pub fn line(&self) -> String {
        let exit_code =
            if self.exit_code == 0 { String::new() } else { format!(", exit code {}", self.exit_code) };
        format!("{} ({}), {}{exit_code}", self.command, self.file, self.metric())
    }

    fn metric(&self) -> String {
        if self.metrics.is_empty() { "wall time".into() } else { self.metrics.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            command: "./run.sh 3".into(),
            file: "/a/run.sh".into(),
            sha256: Some("00".into()),
            metrics: Vec::new(),
            exit_code: 0,
        }
    }

    #[test]
    fn another_command_metric_exit_code_or_program_is_another_task() {
        let other = |change: &dyn Fn(&mut Task)| {
            let mut other = task();
            change(&mut other);
            task().differences(&other).join("; ")
        };
        assert_eq!(other(&|_| {}), "");
        assert_eq!(other(&|task| task.command.push('0')), "command: ./run.sh 3, and ./run.sh 30");
        let metric = other(&|task| task.metrics.push("requests (more is better)".into()));
        assert_eq!(metric, "metric: wall time, and requests (more is better)");
        assert_eq!(other(&|task| task.exit_code = 3), "exit code of success: 0, and 3");
        assert_eq!(other(&|task| task.file = "/b/run.sh".into()), "", "the same file in another place");
        assert_eq!(other(&|task| task.sha256 = None), "", "another build");
        let elsewhere = other(&|task| (task.file, task.sha256) = ("/b/run.sh".into(), None));
        assert_eq!(elsewhere, "program: /a/run.sh, and /b/run.sh");
        assert_eq!(task().line(), "./run.sh 3 (/a/run.sh), wall time");
    }
}
