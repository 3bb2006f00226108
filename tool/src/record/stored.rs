//! A run as it lies in its folder.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use flate2::read::MultiGzDecoder;

use super::{Run, SCHEMA_VERSION, Sample};
use crate::regular;

/// Blocks that no run has: two processes of a millisecond in each would take two days.
const TOO_MANY_BLOCKS: usize = 100_000_000;
/// Shards that no run has.
const TOO_MANY_SHARDS: usize = 1_000_000;

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
        let text = regular::read(&record).map_err(|error| match error.kind() {
            ErrorKind::NotFound if !path.exists() => anyhow!("there is no folder {}", path.display()),
            ErrorKind::NotFound => anyhow!("{} holds no run: it has no run.json", path.display()),
            _ => anyhow!("cannot read {}: {error}", record.display()),
        })?;
        let damaged = || format!("{} is damaged", record.display());
        let fields: serde_json::Value = serde_json::from_slice(&text).with_context(damaged)?;
        if fields["schema_version"].as_u64() != Some(u64::from(SCHEMA_VERSION)) {
            bail!(
                "{} is of version {}, and this tool reads version {SCHEMA_VERSION}",
                record.display(),
                fields["schema_version"]
            );
        }
        let run: Run = serde_json::from_value(fields).with_context(damaged)?;
        if let Some(nonsense) = nonsense(&run) {
            bail!("{} is damaged: {nonsense}", record.display());
        }
        let file = path.join("samples.jsonl");
        let bytes =
            if file.exists() { regular::read(&file) } else { unpacked(&path.join("samples.jsonl.gz")) };
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

/// What this tool cannot have written; none where nothing speaks against the record.
fn nonsense(run: &Run) -> Option<String> {
    // It becomes part of the name of a folder.
    if let Some(started) = Some(&run.started).filter(|started| !is_timestamp(started)) {
        return Some(format!("its start is {started:?}, and no time as in 20261120T143200Z"));
    }
    if run.blocks > TOO_MANY_BLOCKS {
        return Some(format!("it tells of {} blocks", run.blocks));
    }
    let shards = run.shard.into_iter().chain(run.merged.iter().map(|part| part.shard));
    let mut wrong =
        shards.filter(|shard| !(1..=shard.count).contains(&shard.index) || shard.count > TOO_MANY_SHARDS);
    wrong.next().map(|shard| format!("it tells of a shard {shard}"))
}

/// Whether this is a time as runs have it.
fn is_timestamp(text: &str) -> bool {
    let form = b"00000000T000000Z";
    let fits = |(byte, form): (u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == *form };
    text.len() == form.len() && text.bytes().zip(form).all(fits)
}

/// The lines that were written to their end.
pub fn complete(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    &bytes[..end]
}

fn unpacked(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(regular::open(path)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing::record;
    use std::fs;

    #[test]
    fn what_is_no_run_is_told_in_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = || Stored::open(folder.path()).expect_err("refused").to_string();
        assert!(refused().ends_with("holds no run: it has no run.json"), "{}", refused());
        let nowhere = Stored::open(Path::new("/nonexistent/run")).expect_err("refused").to_string();
        assert_eq!(nowhere, "there is no folder /nonexistent/run");
        fs::write(folder.path().join("run.json"), "{").expect("written");
        assert!(refused().ends_with("run.json is damaged"), "{}", refused());
        fs::write(folder.path().join("run.json"), r#"{"schema_version":7}"#).expect("written");
        assert!(refused().ends_with("is of version 7, and this tool reads version 1"), "{}", refused());
    }

    #[test]
    fn a_record_that_this_tool_cannot_have_written_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("samples.jsonl"), "").expect("written");
        let opened = |change: &dyn Fn(&mut Run)| {
            let mut run = record();
            change(&mut run);
            let text = serde_json::to_string(&run).expect("encoded");
            fs::write(folder.path().join("run.json"), text).expect("written");
            Stored::open(folder.path()).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(opened(&|_| {}), Ok(()));
        let refused = |change: &dyn Fn(&mut Run)| opened(change).expect_err("refused");
        let started = refused(&|run| run.started = "../../../x".into());
        assert!(started.contains("run.json is damaged: its start is \"../../../x\""), "{started}");
        let blocks = refused(&|run| run.blocks = 1_000_000_000);
        assert!(blocks.ends_with("it tells of 1000000000 blocks"), "{blocks}");
        for (index, count) in [(0, 2), (3, 2), (1, usize::MAX)] {
            let shard = refused(&|run| run.shard = Some(super::super::Shard { index, count }));
            assert!(shard.contains("it tells of a shard"), "{shard}");
        }
    }

    #[test]
    fn a_line_counts_once_it_has_ended() {
        assert_eq!(complete(b"one\ntwo\nthr"), b"one\ntwo\n");
        assert_eq!(complete(b"on"), b"");
        assert_eq!(complete(b"one\n"), b"one\n");
    }
}
