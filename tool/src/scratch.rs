//! Folders for files that nobody keeps.

use std::io;

use tempfile::TempDir;

/// Makes one, which goes when it is dropped. The reason why there can be none says what it was for.
pub fn folder() -> io::Result<TempDir> {
    tempfile::tempdir().map_err(|error| {
        let told = format!("cannot make a folder for scratch files (TMPDIR says where): {error}");
        io::Error::new(error.kind(), told)
    })
}
