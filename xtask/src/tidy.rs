//! `xtask tidy`: the house rules as a check, also run by `cargo test`.
//!
//! Each rule is a function from text (or from what cargo says) to violations:
//!
//! - [`lines`]: length of files, marks of unfinished work, code in comments, comments on memory orderings
//! - [`dependencies`]: which package may depend on which
//! - [`layers`]: which module of the allocator's core and of the tool may use which
//! - [`circles`]: modules use each other in no circle
//! - [`documents`]: documents mention only files that exist

mod circles;
mod dependencies;
mod documents;
mod layers;
mod lines;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::cargo;

/// Folders that hold no source of ours, at any depth. Hidden folders are passed over as well.
const FOREIGN_FOLDERS: [&str; 4] = ["target", "ample-out", "node_modules", "__pycache__"];

/// Endings of the files in which unfinished work may not be marked.
const SOURCE_ENDINGS: [&str; 9] = ["rs", "c", "cc", "cpp", "h", "py", "sh", "toml", "yml"];

/// One breach of a house rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The file, relative to the root of the repository.
    pub file: PathBuf,
    /// The line, counted from 1; 0 where the whole file is meant.
    pub line: usize,
    /// What is wrong, and what to do about it.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file.display(), self.message),
            line => write!(f, "{}:{line}: {}", self.file.display(), self.message),
        }
    }
}

/// Prints every violation; the exit code says whether there are any.
///
/// # Errors
/// When the repository cannot be read.
pub fn report() -> Result<ExitCode> {
    let (files, violations) = check()?;
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() {
        println!("tidy: {files} files, no violation");
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("error: {} violations of the house rules", violations.len());
    Ok(ExitCode::FAILURE)
}

/// Applies every rule to the repository; returns how many files were read, and the violations in order.
fn check() -> Result<(usize, Vec<Violation>)> {
    let workspace = cargo::workspace()?;
    let root = &workspace.workspace_root;
    let mut files = Vec::new();
    collect(root, &mut files)?;
    let mut violations = dependencies::check(&workspace);
    let architecture =
        fs::read_to_string(root.join("ARCHITECTURE.md")).context("cannot read ARCHITECTURE.md")?;
    let layered = layers::LAYERED.map(|(folder, heading)| (folder, layers::modules(&architecture, heading)));
    let mut packages = circles::Packages::default();
    for path in &files {
        let file = path.strip_prefix(root).unwrap_or(path);
        let Ok(text) = fs::read_to_string(path) else { continue };
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let mut found = Vec::new();
        if SOURCE_ENDINGS.contains(&ending) {
            found.extend(lines::unfinished_work(&text));
        }
        if ending == "rs" {
            found.extend(lines::too_long(&text));
            found.extend(lines::code_in_comments(&text));
        }
        if ending == "rs" && file.starts_with("allocator/core") && !is_test(file) {
            found.extend(lines::unexplained_orderings(&text));
        }
        if ending == "rs" && !is_test(file) {
            packages.add(file, &text);
        }
        for (folder, modules) in layered.iter().filter(|_| ending == "rs" && !is_test(file)) {
            let module = layers::module_of(file, folder);
            found.extend(module.map(|module| layers::upward(modules, module, &text)).unwrap_or_default());
        }
        if ending == "md" && file != Path::new("CHANGELOG.md") {
            let exists = |mentioned: &str| {
                root.join(mentioned).exists()
                    || path.parent().is_some_and(|parent| parent.join(mentioned).exists())
            };
            found.extend(documents::missing_files(&text, exists, |folder| root.join(folder).is_dir()));
        }
        violations.extend(found.into_iter().map(|(line, message)| Violation {
            file: file.to_path_buf(),
            line,
            message,
        }));
    }
    violations.extend(packages.circles());
    violations.sort();
    Ok((files.len(), violations))
}

/// Whether the file holds tests only.
fn is_test(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == "tests.rs") || file.iter().any(|folder| folder == "tests")
}

/// All files below `folder` but those of [`FOREIGN_FOLDERS`] and hidden ones.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let kind = entry.file_type()?;
        if name.starts_with('.') || (kind.is_dir() && FOREIGN_FOLDERS.contains(&&*name)) {
            continue;
        }
        if kind.is_dir() {
            collect(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_keeps_the_house_rules() {
        let (files, violations) = check().expect("readable");
        assert!(files > 20, "only {files} files found");
        let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert!(list.is_empty(), "\n{}", list.join("\n"));
    }

    #[test]
    fn a_file_of_tests_is_known_by_its_path() {
        assert!(is_test(Path::new("allocator/core/src/heap/tests.rs")));
        assert!(is_test(Path::new("allocator/core/tests/stress.rs")));
        assert!(!is_test(Path::new("allocator/core/src/heap.rs")));
    }

    #[test]
    fn foreign_and_hidden_folders_are_passed_over() {
        let root = tempfile::tempdir().expect("a folder");
        for file in ["src/a.rs", "target/b.rs", "x/target/c.rs", ".git/d.rs"] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            fs::write(path, "").expect("written");
        }
        let mut files = Vec::new();
        collect(root.path(), &mut files).expect("readable");
        assert_eq!(files, [root.path().join("src/a.rs")]);
    }
}
