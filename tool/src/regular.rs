//! Reads whole files, and only regular ones: a pipe or a device may have no end.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a regular file. Fails for what is none: a pipe that nobody writes to would be waited for, and a device
/// may have no end.
pub fn open(path: &Path) -> io::Result<File> {
    // Opening a pipe waits for a writer, unless it is asked not to; regular files do not care.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

/// All bytes of a regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn pipes_devices_and_folders_are_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        for path in [&pipe, Path::new("/dev/zero"), folder.path()] {
            let error = read(path).expect_err("refused");
            assert_eq!(error.to_string(), "it is no regular file", "{}", path.display());
        }
        std::fs::write(folder.path().join("file"), "text").expect("written");
        assert_eq!(read(&folder.path().join("file")).expect("read"), b"text");
    }
}
