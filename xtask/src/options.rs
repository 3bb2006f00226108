//! `xtask options`: the allocator's options as a document, from the allocator's own table.
//!
//! The document is kept in `docs/options.md`; a test holds it against the table, and README.md against both.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ample_core::options::{DEFINITIONS, Kind};
use anyhow::{Context, Result, bail};

/// `xtask options`: prints the document; with `--record`, into its file.
///
/// # Errors
/// When the file cannot be written.
pub fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let record = match arguments {
        [] => false,
        [only] if only == "--record" => true,
        _ => bail!("usage: cargo xtask options [--record]"),
    };
    let text = document();
    print!("{text}");
    if record {
        fs::write(file(), &text).with_context(|| format!("cannot write {}", file().display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

fn file() -> PathBuf {
    root().join("docs/options.md")
}

fn document() -> String {
    let mut text = String::from(
        "# Options\n\n\
         Environment variables, read once when the library is loaded; K, M and G stand for powers of 1024. A bad value is told in\n\
         one line on standard error, and ignored. Programs that run with more rights than their caller (setuid) ignore all of them.\n\n\
         `cargo ample options` prints this table from the library itself, `cargo xtask options --record` writes this file.\n\n\
         | option | default | values | |\n|---|--:|---|---|\n",
    );
    for definition in &DEFINITIONS {
        let (default, values) = match &definition.kind {
            Kind::Path => (String::new(), "a path".to_owned()),
            Kind::Number { default, range } => {
                (default.to_string(), format!("{} to {}", range.start(), range.end()))
            }
        };
        let _ = writeln!(
            text,
            "| `{}` | {default} | {values} | {} |",
            definition.variable(),
            definition.meaning.trim_end_matches('.')
        );
    }
    text.push_str(
        "\n## glibc's parameters\n\n\
         `mallopt`, the variables `MALLOC_MMAP_THRESHOLD_`, `MALLOC_MMAP_MAX_`, `MALLOC_TRIM_THRESHOLD_` and `MALLOC_TOP_PAD_`, and their\n\
         names in `GLIBC_TUNABLES` (`glibc.malloc.mmap_threshold=262144`, which come first) are honoured. As long as nobody sets one, freed large blocks\n\
         are kept for 0.7 s, to be used again. Whoever sets one ends that:\n\n\
         | parameter | meaning |\n|---|---|\n\
         | `M_MMAP_THRESHOLD` | blocks that are larger than 32 KiB and, in units of 16 KiB, at least this large go back to the system as soon as they are freed (128 KiB if only another parameter is set); smaller ones are kept as before |\n\
         | `M_MMAP_MAX` | 0: no block goes back in this way; any other value changes nothing |\n\
         | `M_TRIM_THRESHOLD` | other free memory stays, however old, until there is more of it than this; then all but `M_TOP_PAD` of it goes back at once; -1: it never does, except by `malloc_trim` |\n\
         | `M_TOP_PAD` | how much free memory stays then; the heap also grows by this much more than is asked for |\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_and_the_readme_have_all_options_of_the_table() {
        let recorded = fs::read_to_string(file()).expect("docs/options.md");
        assert_eq!(document(), recorded, "cargo xtask options --record");
        let readme = fs::read_to_string(root().join("README.md")).expect("README.md");
        for definition in &DEFINITIONS {
            let name = format!("`{}`", definition.variable());
            assert!(readme.contains(&name), "README.md does not mention {name}");
        }
    }
}
