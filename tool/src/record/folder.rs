//! The output folder: `<UTC>-<host>/{run.json,samples.jsonl,report.html,plots/*.svg}`.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::Sample;
use super::stored::complete;

/// Where a run without `--out` puts its folder.
const DEFAULT_PARENT: &str = "ample-out";

/// An output folder that exists and takes files.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    samples: File,
}

impl Folder {
    /// Makes the folder `out`, or a new one named after time and host under `ample-out`, and opens
    /// `samples.jsonl` in it.
    ///
    /// Fails where that cannot be written, or where the folder already holds a run.
    pub fn create(out: Option<&Path>, started: &str, host: &str) -> Result<Self> {
        let path = Self::place(out, started, host)?;
        let explain =
            || format!("cannot write to the output folder {}; choose another with --out", path.display());
        fs::create_dir_all(path.join("plots")).with_context(explain)?;
        let samples = path.join("samples.jsonl");
        let samples = File::create_new(&samples).with_context(|| {
            if samples.exists() {
                format!("{} already holds a run; choose another folder with --out", path.display())
            } else {
                explain()
            }
        })?;
        Ok(Self { path, samples })
    }

    /// The folder `out`, or a new one named after time and host under `ample-out`, with a number where there is
    /// one of that name: another tool may have begun in the same second.
    ///
    /// Fails where a new one cannot be made.
    pub fn place(out: Option<&Path>, started: &str, host: &str) -> Result<PathBuf> {
        out.map_or_else(
            || new_folder(Path::new(DEFAULT_PARENT), &format!("{started}-{host}")),
            |out| Ok(out.to_owned()),
        )
    }

    /// Opens the folder of a run that is gone on with. A last line of `samples.jsonl` that was not written to
    /// its end is cut off.
    ///
    /// Fails where that cannot be written.
    pub fn reopen(path: &Path) -> Result<Self> {
        let file = path.join("samples.jsonl");
        let explain = || format!("cannot go on writing {}", file.display());
        fs::create_dir_all(path.join("plots")).with_context(explain)?;
        let written = complete(&fs::read(&file).with_context(explain)?).len();
        let samples = File::options().append(true).open(&file).with_context(explain)?;
        samples.set_len(written as u64).with_context(explain)?;
        Ok(Self { path: path.to_owned(), samples })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one sample; it is on its way to the disk when this returns.
    pub fn append(&mut self, sample: &Sample) -> Result<()> {
        let mut line = serde_json::to_vec(sample).context("cannot encode a sample")?;
        line.push(b'\n');
        self.samples.write_all(&line).context("cannot write samples.jsonl")
    }

    /// Writes a value as a JSON file of this name.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let mut text =
            serde_json::to_string_pretty(value).with_context(|| format!("cannot encode {name}"))?;
        text.push('\n');
        self.write(name, &text).map(drop)
    }

    /// Writes a text file of this name, and returns its path. What was there stays until the new text is whole: the disk may be full.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        let unfinished = self.path.join(format!("{name}.unfinished"));
        let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, &path));
        if let Err(error) = written {
            // Half a file helps nobody; without it there is at least its room.
            let _ = fs::remove_file(&unfinished);
            return Err(error).with_context(|| format!("cannot write {}", path.display()));
        }
        Ok(path)
    }
}

/// Makes a folder of this name, or of the first free one of name-2, name-3 …; whoever makes it has it alone.
fn new_folder(parent: &Path, name: &str) -> Result<PathBuf> {
    let explain = |path: &Path| {
        format!("cannot write to the output folder {}; choose another with --out", path.display())
    };
    fs::create_dir_all(parent).with_context(|| explain(parent))?;
    let mut number = 1_u64;
    loop {
        let path = parent.join(if number == 1 { name.to_owned() } else { format!("{name}-{number}") });
        match fs::create_dir(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|()| path.clone()).with_context(|| explain(&path)),
        }
    }
}

/// Now, in UTC, as in `20261120T143200Z`.
pub fn timestamp() -> String {
    jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_holds_a_run_is_never_overwritten() {
        let parent = tempfile::tempdir().expect("a folder");
        let out = parent.path().join("out");
        let folder = Folder::create(Some(&out), "20260101T000000Z", "host").expect("made");
        assert!(folder.path().join("plots").is_dir());
        let error = Folder::create(Some(&out), "20260101T000000Z", "host").expect_err("refused");
        assert!(error.to_string().contains("already holds a run"), "{error}");
    }

    #[test]
    fn a_folder_that_nobody_named_gets_a_number_where_there_is_one() {
        let parent = tempfile::tempdir().expect("a folder");
        let deep = parent.path().join("ample-out");
        let made = [1, 2, 3].map(|_| new_folder(&deep, "20260101T000000Z-host").expect("made"));
        let names = made.map(|path| path.file_name().expect("a name").to_string_lossy().into_owned());
        assert_eq!(names, ["20260101T000000Z-host", "20260101T000000Z-host-2", "20260101T000000Z-host-3"]);
        fs::write(parent.path().join("file"), "").expect("written");
        let error = new_folder(&parent.path().join("file"), "x").expect_err("refused").to_string();
        assert!(error.ends_with("choose another with --out"), "{error}");
    }

    #[test]
    fn a_run_is_gone_on_with_behind_its_last_whole_line() {
        let parent = tempfile::tempdir().expect("a folder");
        let file = parent.path().join("samples.jsonl");
        fs::write(&file, "{\"a\":1}\n{\"b\":").expect("written");
        let mut folder = Folder::reopen(parent.path()).expect("opened");
        folder.samples.write_all(b"next\n").expect("written");
        assert_eq!(fs::read_to_string(&file).expect("a file"), "{\"a\":1}\nnext\n");
        assert!(Folder::reopen(&parent.path().join("nothing")).is_err());
    }

    #[test]
    fn what_was_written_stays_where_it_cannot_be_replaced() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = Folder::create(Some(&parent.path().join("run")), "t", "h").expect("made");
        folder.write("a.txt", "first").expect("written");
        fs::create_dir(parent.path().join("run/a.txt.unfinished")).expect("in the way");
        assert!(folder.write("a.txt", "second").is_err());
        assert_eq!(fs::read_to_string(parent.path().join("run/a.txt")).expect("a file"), "first");
        assert!(folder.write("b.txt", "other").is_ok_and(|path| path.ends_with("run/b.txt")));
        assert!(!parent.path().join("run/b.txt.unfinished").exists());
    }

    #[test]
    fn a_file_in_the_way_is_one_clear_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = Folder::create(Some(file.path()), "t", "h").expect_err("refused");
        assert!(error.to_string().contains("choose another with --out"), "{error}");
    }
}
