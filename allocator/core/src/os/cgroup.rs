//! The memory limit of the process's control groups on Linux, version 2 (`memory.max`) and 1 (`memory.limit_in_bytes`), as far as their
//! file systems are where they usually are.

use core::ffi::CStr;

use crate::text::digits_in;

/// Bytes of a path, and of a line of `/proc/self/cgroup`, at most; longer ones are not followed.
const ROOM: usize = 512;

/// Reads the beginning of a file; how many bytes, `None` if there is no such file.
pub(super) trait Read: Fn(&CStr, &mut [u8]) -> Option<usize> {}
impl<F: Fn(&CStr, &mut [u8]) -> Option<usize>> Read for F {}

/// The lowest limit of the process's groups and of all groups above them, in bytes; `None`: there is none.
pub(super) fn memory_limit(read: impl Read) -> Option<usize> {
    let mut text = [0; 4 * ROOM];
    let length = read(c"/proc/self/cgroup", &mut text)?;
    // A line is `number:controllers:path`; version 2 has no controllers there.
    text[..length]
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.splitn(3, |&byte| byte == b':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            if controllers.is_empty() {
                lowest(&read, b"/sys/fs/cgroup", path, b"/memory.max")
            } else if controllers.split(|&byte| byte == b',').any(|name| name == b"memory") {
                lowest(&read, b"/sys/fs/cgroup/memory", path, b"/memory.limit_in_bytes")
            } else {
                None
            }
        })
        .min()
}

/// The lowest limit on the way from the group at `path` up to the root. Inside a container the path may be one that only the
/// world outside has: then the container's own group is at the root.
fn lowest(read: &impl Read, root: &[u8], path: &[u8], file: &[u8]) -> Option<usize> {
    let mut path = path.strip_suffix(b"/").unwrap_or(path);
    let mut least = None;
    loop {
        if let Some(limit) = limit(read, [root, path, file]) {
            least = Some(least.map_or(limit, |least: usize| least.min(limit)));
        }
        let Some(end) = path.iter().rposition(|&byte| byte == b'/') else { return least };
        path = &path[..end];
    }
}

fn limit(read: &impl Read, parts: [&[u8]; 3]) -> Option<usize> {
    let (mut name, mut end) = ([0; ROOM], 0);
    for part in parts {
        name.get_mut(end..end + part.len())?.copy_from_slice(part);
        end += part.len();
    }
    let mut text = [0; 32];
    let length = read(CStr::from_bytes_until_nul(&name).ok()?, &mut text)?;
    // "max" is no number: there is no limit. Version 1 says the same with one that no machine has.
    digits_in(text[..length].trim_ascii(), 10).filter(|&limit| limit < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the files say, by path.
    fn limit_of(files: &[(&str, &str)]) -> Option<usize> {
        memory_limit(|path: &CStr, text: &mut [u8]| {
            let path = path.to_str().expect("text");
            let (_, content) = files.iter().find(|(name, _)| *name == path)?;
            let count = content.len().min(text.len());
            text[..count].copy_from_slice(&content.as_bytes()[..count]);
            Some(count)
        })
    }

    #[test]
    fn the_lowest_limit_on_the_way_up_holds() {
        let process = ("/proc/self/cgroup", "0::/a/b\n");
        let (own, above) = ("/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max");
        assert_eq!(limit_of(&[process, (own, "max\n"), (above, "8192\n")]), Some(8192));
        assert_eq!(limit_of(&[process, (own, "4096\n"), (above, "8192\n")]), Some(4096));
        assert_eq!(limit_of(&[process, (own, "9000\n"), (above, "8192\n")]), Some(8192));
        assert_eq!(limit_of(&[process, (own, "max\n")]), None);
    }

    #[test]
    fn in_a_container_the_root_is_the_group() {
        let root = ("/sys/fs/cgroup/memory.max", "100000\n");
        for path in ["0::/\n", "0::/docker/1234\n", "0::/../outside\n"] {
            assert_eq!(limit_of(&[("/proc/self/cgroup", path), root]), Some(100_000), "{path}");
        }
    }

    #[test]
    fn version_1_is_read_where_memory_is_its_controller() {
        let file = "/sys/fs/cgroup/memory/x/memory.limit_in_bytes";
        for (line, expected) in
            [("4:memory:/x\n0::/\n", Some(5000)), ("4:cpu,memory:/x", Some(5000)), ("4:cpu:/x\n", None)]
        {
            assert_eq!(limit_of(&[("/proc/self/cgroup", line), (file, "5000\n")]), expected, "{line}");
        }
        let none = [("/proc/self/cgroup", "4:memory:/x\n"), (file, "9223372036854771712\n")];
        assert_eq!(limit_of(&none), None, "that is no limit");
    }

    #[test]
    fn what_is_missing_or_too_long_is_no_limit() {
        assert_eq!(limit_of(&[]), None);
        assert_eq!(limit_of(&[("/proc/self/cgroup", "nonsense\n\n::\n")]), None);
        let long = format!("0::/{}\n", "y".repeat(ROOM));
        assert_eq!(limit_of(&[("/proc/self/cgroup", &long)]), None);
    }
}
