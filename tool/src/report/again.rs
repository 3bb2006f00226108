//! The commands that rerun a run, or a part of it.

use crate::record::{Run, Workload};

/// The command of the whole run, as it was given.
pub fn whole(run: &Run) -> String {
    let words = run.command.iter().skip(1).map(|word| quote(word));
    std::iter::once("ample".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The command that measures one workload of the run again, in as many blocks: its times, or one measure.
pub fn of_workload(run: &Run, workload: &Workload, measure: Option<&str>) -> String {
    let option = |long: &str, short: &str| values(&run.command, long, short);
    let app = run
        .command
        .iter()
        .take_while(|word| *word != "--")
        .any(|word| word.split('=').next() == Some("--apps"));
    let mut words = vec!["ample".to_owned(), "bench".into()];
    if app {
        words.push("--apps".into());
    }
    words.push(quote(&workload.name));
    if !app {
        words.extend(["--preset".into(), quote(&run.preset)]);
    }
    for list in option("--allocators", "-a") {
        words.extend(["--allocators".into(), quote(list)]);
    }
    if app {
        words.extend(["--runs".into(), run.blocks.max(1).to_string()]);
        return words.join(" ");
    }
    let threads: Vec<String> = workload.threads.iter().map(u32::to_string).collect();
    words.extend(["--threads".into(), threads.join(",")]);
    words.extend(["--runs".into(), run.blocks.max(1).to_string()]);
    if run.seed != 1 {
        words.extend(["--seed".into(), run.seed.to_string()]);
    }
    let from_seed_arguments = run.command.iter().any(|word| word == "--");
    let own = |setting: &&str| {
        let of = setting.split('.').next();
        of == Some(&workload.name) || of == Some(&workload.workload)
    };
    let mut settings: Vec<String> = option("--set", "--set").into_iter().filter(own).map(quote).collect();
    if from_seed_arguments {
        let all = workload.settings.iter().map(|(key, value)| format!("{}.{key}={value}", workload.name));
        settings.extend(all.map(|setting| quote(&setting)));
    }
    words.extend(settings.into_iter().flat_map(|setting| ["--set".into(), setting]));
    words.extend(["--measures".into(), measure.unwrap_or("none").into()]);
    words.join(" ")
}

/// The values of an option on a command line, in the order of their occurrence.
fn values<'a>(command: &'a [String], long: &str, short: &str) -> Vec<&'a str> {
    let options: Vec<&String> = command.iter().take_while(|word| *word != "--").collect();
    let mut found = Vec::new();
    for (index, word) in options.iter().enumerate() {
        if *word == long || *word == short {
            found.extend(options.get(index + 1).map(|value| value.as_str()));
        } else if let Some(value) = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('=')) {
            found.push(value);
        }
    }
    found
}

/// A word of a command line as a shell takes it.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing::record;

    fn run(command: &[&str]) -> Run {
        Run { command: command.iter().map(|word| (*word).to_owned()).collect(), blocks: 7, ..record() }
    }

    fn workload() -> Workload {
        Workload {
            name: "threadtest-small".into(),
            workload: "threadtest".into(),
            tells: String::new(),
            source: String::new(),
            operation: String::new(),
            settings: [("size".to_owned(), 64.0)].into(),
            threads: vec![1, 2],
            task: None,
        }
    }

    #[test]
    fn a_real_program_is_asked_for_as_one() {
        let run = run(&["ample", "bench", "--apps", "-a", "glibc,ample", "--runs", "7"]);
        let redis = Workload { name: "redis".into(), ..workload() };
        assert_eq!(
            of_workload(&run, &redis, None),
            "ample bench --apps redis --allocators glibc,ample --runs 7"
        );
    }

    #[test]
    fn a_workload_keeps_the_options_that_concern_it() {
        let command = [
            "target/tool/ample",
            "bench",
            "-a",
            "ample,glibc",
            "--set=threadtest.rounds=3",
            "--set",
            "larson.rounds=9",
            "--out",
            "x",
        ];
        assert_eq!(
            of_workload(&run(&command), &workload(), Some("latency")),
            "ample bench threadtest-small --preset quick --allocators ample,glibc --threads 1,2 --runs 7 \
             --set threadtest.rounds=3 --measures latency"
        );
        assert_eq!(whole(&run(&["/x/ample", "bench", "it's"])), r"ample bench 'it'\''s'");
    }

    #[test]
    fn the_arguments_of_the_source_become_settings() {
        let text = of_workload(&run(&["ample", "bench", "--", "64", "--set", "x"]), &workload(), None);
        assert!(text.ends_with("--set threadtest-small.size=64 --measures none"), "{text}");
    }
}
