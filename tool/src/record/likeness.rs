//! In what two runs differ, in words: the machine, what was measured, the files that took part.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use super::{Machine, Run};
use crate::allocators::Allocator;

/// Share by which the memory of two machines of one kind may differ: the kernel keeps some of it.
const MEMORY_SHARE: f64 = 0.01;

impl Machine {
    /// In what another machine is of another kind, as far as that bears on figures. Hosts of one kind may have
    /// names of their own.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Differences::default();
        found.hold("architecture", &self.architecture, &other.architecture);
        found.hold("processor", &self.cpu, &other.cpu);
        found.hold("usable CPUs", &self.cpus, &other.cpus);
        found.hold("threads of the first core", &self.thread_siblings, &other.thread_siblings);
        found.hold("caches", &self.caches, &other.caches);
        found.hold("NUMA nodes", &self.numa, &other.numa);
        if !alike(self.memory_bytes, other.memory_bytes) {
            found.hold("bytes of memory", &self.memory_bytes, &other.memory_bytes);
        }
        found.hold("bytes of a page", &self.page_bytes, &other.page_bytes);
        found.hold("kernel", &self.kernel, &other.kernel);
        found.hold("system", &self.system, &other.system);
        found.hold("huge pages", &self.transparent_huge_pages, &other.transparent_huge_pages);
        found.hold("overcommit", &self.overcommit, &other.overcommit);
        found.hold("governor", &self.governor, &other.governor);
        found.hold("limits of control groups", &self.limits(), &other.limits());
        found.0
    }

    /// The limits without the names of the groups, which are new for each container and job.
    fn limits(&self) -> Vec<(String, &str)> {
        let file = |path: &str| Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
        let limits = self.cgroup_limits.iter();
        let mut limits: Vec<_> =
            limits.map(|(path, limit)| (file(path).unwrap_or_default(), limit.as_str())).collect();
        limits.sort();
        limits
    }
}

impl Run {
    /// In what another run measures something else, or in another way. The machine is not looked at.
    pub fn plan_differences(&self, other: &Self) -> Vec<String> {
        let mut found = Differences::default();
        let rows = |run: &Self| -> BTreeMap<String, String> {
            let row = |workload: &super::Workload| {
                (workload.name.clone(), format!("threads {:?}, {:?}", workload.threads, workload.settings))
            };
            run.workloads.iter().map(row).collect()
        };
        found.by_name("workload", &rows(self), &rows(other));
        found.0.extend(self.task_differences(other));
        found.hold("seed", &self.seed, &other.seed);
        found.hold("preset", &self.preset, &other.preset);
        found.hold("rule for the end", &self.stopping, &other.stopping);
        found.hold("measures", &self.measures, &other.measures);
        found.hold("time-out in seconds", &self.timeout_seconds, &other.timeout_seconds);
        found.0.extend(self.environment_differences(other));
        found.0
    }

    /// In what the user's programs of the same name do something else in another run, or are measured otherwise.
    /// What older versions recorded does not tell.
    pub fn task_differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for workload in &self.workloads {
            let others = other.workloads.iter().find(|others| others.name == workload.name);
            if let (Some(task), Some(others)) =
                (&workload.task, others.and_then(|others| others.task.as_ref()))
            {
                let differences = task.differences(others).into_iter();
                found.extend(differences.map(|difference| format!("{}: {difference}", workload.name)));
            }
        }
        found
    }

    /// In which environment variables that configure allocators the processes of another run differ.
    pub fn environment_differences(&self, other: &Self) -> Vec<String> {
        let variables = |run: &Self| {
            let mut variables = run.inherited_environment.clone();
            variables.remove("PATH");
            variables
        };
        let mut found = Differences::default();
        found.by_name("environment variable", &variables(self), &variables(other));
        found.0
    }

    /// That the environment which the run was started in configured allocators, and how; none where it did not. A
    /// reader who does not know it takes the figures for those of allocators as they come.
    pub fn configured_from_outside(&self) -> Option<String> {
        let configures = |(name, value): &(&String, &String)| match name.as_str() {
            "PATH" | "LD_LIBRARY_PATH" => false,
            name if self.unread_environment.contains_key(name) => false,
            // It holds settings of all of the C library.
            "GLIBC_TUNABLES" => value.contains("glibc.malloc."),
            _ => true,
        };
        let variables: Vec<String> = self
            .inherited_environment
            .iter()
            .filter(configures)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let configured = (!variables.is_empty()).then(|| {
            format!(
                "Not as they come: the environment of the run configured allocators by {}; unset that to see them as \
                 they are.",
                variables.join(", ")
            )
        });
        let sentences: Vec<String> = configured.into_iter().chain(self.unread_from_outside()).collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }

    /// What the environment holds that was meant to configure Ample, it seems, and does not, in a sentence.
    fn unread_from_outside(&self) -> Option<String> {
        let told = |(name, reason): (&String, &String)| {
            let value = self.inherited_environment.get(name).map_or("", String::as_str);
            format!("{name}={value} ({reason})")
        };
        let variables: Vec<String> = self.unread_environment.iter().map(told).collect();
        (!variables.is_empty())
            .then(|| format!("In the environment, and without effect on Ample: {}.", variables.join(", ")))
    }

    /// In what other files took part in another run: the allocators, the program of the workloads.
    pub fn binary_differences(&self, other: &Self) -> Vec<String> {
        let mut found = Differences::default();
        let files = |run: &Self| -> BTreeMap<String, String> {
            let file = |allocator: &Allocator| {
                (allocator.name.clone(), format!("SHA-256 {}, {:?}", allocator.sha256, allocator.environment))
            };
            run.allocators.iter().map(file).collect()
        };
        found.by_name("allocator", &files(self), &files(other));
        let (program, others) = (&self.workload_program_sha256, &other.workload_program_sha256);
        found.hold("SHA-256 of the workloads' program", program, others);
        found.hold("version of the tool", &self.tool_version, &other.tool_version);
        found.0
    }
}

fn alike(one: Option<u64>, other: Option<u64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => (one as f64 - other as f64).abs() <= MEMORY_SHARE * one as f64,
        (one, other) => one == other,
    }
}

/// What was found so far.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn hold<T: PartialEq + Debug>(&mut self, what: &str, one: &T, other: &T) {
        if one != other {
            self.0.push(format!("{what}: {one:?}, and {other:?}"));
        }
    }

    fn by_name(&mut self, kind: &str, one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) {
        for (name, value) in one {
            match other.get(name) {
                Some(others) if others != value => {
                    self.0.push(format!("{kind} {name}: {value}, and {others}"));
                }
                Some(_) => {}
                None => self.0.push(format!("{kind} {name}: only in the first")),
            }
        }
        let more = other.keys().filter(|name| !one.contains_key(*name));
        self.0.extend(more.map(|name| format!("{kind} {name}: only in the second")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_the_same_kind_may_have_another_name_and_a_little_less_memory() {
        let mut machine = Machine::read();
        machine.memory_bytes = Some(1 << 30);
        machine.cgroup_limits = [("/a/cpu.max".to_owned(), "100".to_owned())].into();
        let mut other = machine.clone();
        other.host = "another".into();
        other.memory_bytes = Some((1 << 30) - (1 << 20));
        other.cgroup_limits = [("/b/cpu.max".to_owned(), "100".to_owned())].into();
        assert_eq!(machine.differences(&other), [""; 0]);
        other.memory_bytes = Some(1 << 29);
        other.cpus += 1;
        other.cgroup_limits.clear();
        let found = machine.differences(&other);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("usable CPUs: "), "{found:?}");
    }

    #[test]
    fn names_are_held_against_each_other_on_both_sides() {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let mut found = Differences::default();
        found.by_name(
            "thing",
            &map(&[("a", "1"), ("b", "2"), ("c", "3")]),
            &map(&[("a", "1"), ("b", "4"), ("d", "5")]),
        );
        assert_eq!(
            found.0,
            ["thing b: 2, and 4", "thing c: only in the first", "thing d: only in the second"]
        );
    }
}
