//! A run as it lies in its folder.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use flate2::read::MultiGzDecoder;

use super::{Run, SCHEMA_VERSION, Sample};

/// A run that was measured before.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its folder.
    pub path: PathBuf,
    /// Its record.
    pub run: Run,
    /// Its samples in the order of execution: all of them, also those of blocks that were run again.
    pub samples: Vec<Sample>,
}

impl Stored {
    /// Reads `run.json`, and `samples.jsonl` or `samples.jsonl.gz`. A last line that was not written to its
    /// end, as a run leaves it that was killed, is passed over.
    ///
    /// Fails where they are missing, damaged, or of a later version.
    pub fn open(path: &Path) -> Result<Self> {
        let record = path.join("run.json");
        let text = fs::read_to_string(&record).map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow!("{} holds no run: it has no run.json", path.display()),
            _ => anyhow!("cannot read {}: {error}", record.display()),
        })?;
        let damaged = || format!("{} is damaged", record.display());
        let fields: serde_json::Value = serde_json::from_str(&text).with_context(damaged)?;
        if fields["schema_version"].as_u64() != Some(u64::from(SCHEMA_VERSION)) {
            bail!(
                "{} is of version {}, and this tool reads version {SCHEMA_VERSION}",
                record.display(),
                fields["schema_version"]
            );
        }
        let run = serde_json::from_value(fields).with_context(damaged)?;
        let file = path.join("samples.jsonl");
        let bytes = if file.exists() { fs::read(&file) } else { unpacked(&path.join("samples.jsonl.gz")) };
        let bytes = bytes.with_context(|| format!("cannot read the samples of {}", path.display()))?;
        let mut samples = Vec::new();
        for (index, line) in complete(&bytes).split(|byte| *byte == b'\n').enumerate() {
            if !line.is_empty() {
                let sample = serde_json::from_slice(line);
                samples.push(
                    sample.with_context(|| format!("{}, line {}: damaged", file.display(), index + 1))?,
                );
            }
        }
        Ok(Self { path: path.to_owned(), run, samples })
    }
}

/// The lines that were written to their end.
pub fn complete(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    &bytes[..end]
}

fn unpacked(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(fs::File::open(path)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_run_is_told_in_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = || Stored::open(folder.path()).expect_err("refused").to_string();
        assert!(refused().ends_with("holds no run: it has no run.json"), "{}", refused());
        fs::write(folder.path().join("run.json"), "{").expect("written");
        assert!(refused().ends_with("run.json is damaged"), "{}", refused());
        fs::write(folder.path().join("run.json"), r#"{"schema_version":7}"#).expect("written");
        assert!(refused().ends_with("is of version 7, and this tool reads version 1"), "{}", refused());
    }

    #[test]
    fn a_line_counts_once_it_has_ended() {
        assert_eq!(complete(b"one\ntwo\nthr"), b"one\ntwo\n");
        assert_eq!(complete(b"on"), b"");
        assert_eq!(complete(b"one\n"), b"one\n");
    }
}
