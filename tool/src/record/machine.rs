//! The machine that a run took place on, as far as it bears on the figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use procfs::{Current as _, CurrentSI as _, FromRead as _};
use serde::{Deserialize, Serialize};

/// What does not change during a run. Fields are none where the system does not tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the host.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Architecture.
    pub architecture: String,
    /// Name of the distribution.
    pub system: Option<String>,
    /// Model of the first CPU.
    pub cpu: Option<String>,
    /// CPUs that this process may run on.
    pub cpus: usize,
    /// CPUs that are on line.
    pub cpus_online: Option<String>,
    /// Hardware threads that share the first core.
    pub thread_siblings: Option<String>,
    /// Caches of the first CPU: `L1 Data 32K`, …
    pub caches: Vec<String>,
    /// NUMA nodes and their CPUs.
    pub numa: BTreeMap<String, String>,
    /// Memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Swap, in bytes.
    pub swap_bytes: Option<u64>,
    /// Size of an OS page, in bytes.
    pub page_bytes: usize,
    /// Mode of transparent huge pages, as the kernel prints it.
    pub transparent_huge_pages: Option<String>,
    /// Overcommit mode.
    pub overcommit: Option<String>,
    /// Frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Limits of the control groups that this process is in, by file.
    pub cgroup_limits: BTreeMap<String, String>,
}

/// What disturbs a run from outside: counters since boot, taken at its start and end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// CPU time taken by the hypervisor for others, in seconds, over all CPUs.
    pub steal_seconds: Option<f64>,
    /// Load average over one minute.
    pub load: Option<f32>,
    /// Time in which some task waited for a CPU, in microseconds.
    pub cpu_pressure_us: Option<u64>,
    /// Time in which some task waited for memory, in microseconds.
    pub memory_pressure_us: Option<u64>,
    /// Time in which some task waited for input or output, in microseconds.
    pub io_pressure_us: Option<u64>,
}

impl Machine {
    /// Reads it from `/proc` and `/sys`.
    pub fn read() -> Self {
        let uname = rustix::system::uname();
        let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
        let memory = procfs::Meminfo::current().ok();
        let cpu = procfs::CpuInfo::current().ok();
        let first = Path::new("/sys/devices/system/cpu/cpu0");
        Self {
            host: text(uname.nodename()),
            kernel: text(uname.release()),
            architecture: text(uname.machine()),
            system: distribution(),
            cpu: cpu.and_then(|cpu| cpu.model_name(0).map(str::to_owned)),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpus_online: line("/sys/devices/system/cpu/online"),
            thread_siblings: line(first.join("topology/thread_siblings_list")),
            caches: caches(&first.join("cache")),
            numa: numa(Path::new("/sys/devices/system/node")),
            memory_bytes: memory.as_ref().map(|memory| memory.mem_total),
            swap_bytes: memory.as_ref().map(|memory| memory.swap_total),
            page_bytes: rustix::param::page_size(),
            transparent_huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled"),
            overcommit: line("/proc/sys/vm/overcommit_memory"),
            governor: line(first.join("cpufreq/scaling_governor")),
            cgroup_limits: cgroup_limits(),
        }
    }
}

impl Noise {
    /// Reads the counters.
    pub fn read() -> Self {
        let ticks = procfs::ticks_per_second() as f64;
        let stat = procfs::KernelStats::current().ok();
        let pressure = |name: &str| {
            let file = fs::File::open(Path::new("/proc/pressure").join(name)).ok()?;
            procfs::CpuPressure::from_read(file).ok().map(|pressure| pressure.some.total)
        };
        Self {
            steal_seconds: stat.and_then(|stat| stat.total.steal).map(|steal| steal as f64 / ticks),
            load: procfs::LoadAverage::current().ok().map(|load| load.one),
            cpu_pressure_us: pressure("cpu"),
            memory_pressure_us: pressure("memory"),
            io_pressure_us: pressure("io"),
        }
    }
}

/// Content of a one-line file.
fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn distribution() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn caches(folder: &Path) -> Vec<String> {
    children(folder)
        .iter()
        .filter_map(|cache| {
            let field = |name: &str| line(cache.join(name));
            Some(format!("L{} {} {}", field("level")?, field("type")?, field("size")?))
        })
        .collect()
}

fn numa(folder: &Path) -> BTreeMap<String, String> {
    children(folder).iter().filter_map(|node| Some((name_of(node), line(node.join("cpulist"))?))).collect()
}

/// Limits of the version 2 hierarchy, from this process's group up to the root.
fn cgroup_limits() -> BTreeMap<String, String> {
    const ROOT: &str = "/sys/fs/cgroup";
    let mut limits = BTreeMap::new();
    let Some(own) = line("/proc/self/cgroup")
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("0::/").map(str::to_owned)))
    else {
        return limits;
    };
    for group in Path::new(ROOT).join(own).ancestors().take_while(|path| path.starts_with(ROOT)) {
        for name in ["cpu.max", "memory.max", "memory.high", "cpuset.cpus.effective"] {
            let file = group.join(name);
            if let Some(limit) = line(&file).filter(|limit| !limit.starts_with("max")) {
                limits.insert(file.display().to_string(), limit);
            }
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linux_machine_tells_the_essentials() {
        let machine = Machine::read();
        assert!(!machine.kernel.is_empty() && !machine.host.is_empty());
        assert!(machine.cpus >= 1 && machine.page_bytes >= 4096);
        assert!(machine.memory_bytes.is_some_and(|bytes| bytes > 0));
        assert!(Noise::read().steal_seconds.is_some_and(|seconds| seconds >= 0.0));
    }

    #[test]
    fn empty_and_missing_files_are_none() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(line(file.path()), None);
        assert_eq!(line("/nonexistent"), None);
        fs::write(file.path(), " always [madvise] never\n").expect("written");
        assert_eq!(line(file.path()).as_deref(), Some("always [madvise] never"));
    }
}
