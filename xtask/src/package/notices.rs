//! What the licenses of other projects' packages ask for that are compiled into the tool and into what it carries: their notices and texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cargo;

/// What is built into the packages.
const BUILT: &[&str] = &["ample-abi", "ample-observer", "ample-tool", "ample-workloads"];
/// How the MIT license goes on behind its notice.
const PERMISSION: &str = "Permission is hereby granted";
/// How files with licenses begin.
const NAMES: &[&str] = &["COPYING", "COPYRIGHT", "LICENCE", "LICENSE", "NOTICE", "UNLICENSE"];

/// The part of `cargo metadata` that is read.
#[derive(Debug, Deserialize)]
struct Graph {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    authors: Vec<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
    /// None for the workspace's own.
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
struct EdgeKind {
    /// None for what is compiled in; else for building or testing.
    kind: Option<String>,
}

/// The notices: which packages there are, and the texts, each once.
///
/// # Errors
/// When cargo does not tell, or a package has no license.
pub fn notices(workspace: &cargo::Metadata) -> Result<String> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let manifest = workspace.workspace_root.join("Cargo.toml");
    let graph: Graph = cargo::ask(&["--locked", "--filter-platform", &platform], &manifest)?;
    let mut list = String::from(
        "The library, the tool, the workloads and the observer have packages of other projects compiled in, besides Rust's standard library\n\
         (MIT OR Apache-2.0; https://github.com/rust-lang/rust). Where there is a choice, they are used by the MIT license. Their texts follow.\n\n",
    );
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for package in graph.compiled_in()? {
        let license =
            package.license.as_deref().with_context(|| format!("{} has no license", package.name))?;
        let (by, from) = (package.authors.join(", "), package.repository.as_deref().unwrap_or(""));
        let told: Vec<&str> = [license, &by, from].into_iter().filter(|part| !part.is_empty()).collect();
        writeln!(list, "{} {}: {}", package.name, package.version, told.join("; "))?;
        let mut found = package.texts()?;
        if found.is_empty() {
            // It names a license of which the text is known, and the notice is in the list.
            ensure!(
                license.contains("MIT"),
                "{} {} brings no text of its license, {license}",
                package.name,
                package.version
            );
            let own = read(&workspace.workspace_root.join("LICENSE-MIT"))?;
            let (_, permission) = own.split_once(PERMISSION).context("LICENSE-MIT is another license")?;
            found.push(format!("{PERMISSION}{permission}"));
        }
        for text in found {
            texts.entry(text).or_default().push(&package.name);
        }
    }
    for (text, packages) in texts {
        write!(list, "\n{}\n{}\n\n{text}\n", "-".repeat(80), packages.join(", "))?;
    }
    Ok(list)
}

impl Graph {
    /// The packages of others that what is built consists of, by name.
    fn compiled_in(&self) -> Result<Vec<&Package>> {
        let nodes: BTreeMap<&str, &Node> = self.resolve.nodes.iter().map(|node| (&*node.id, node)).collect();
        let built = self.packages.iter().filter(|package| BUILT.contains(&&*package.name));
        let mut reached: BTreeSet<&str> = built.map(|package| &*package.id).collect();
        ensure!(reached.len() == BUILT.len(), "the workspace lacks one of {BUILT:?}");
        let mut left: Vec<&str> = reached.iter().copied().collect();
        while let Some(id) = left.pop() {
            let node = nodes.get(id).with_context(|| format!("cargo tells nothing of {id}"))?;
            let compiled =
                node.deps.iter().filter(|edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            left.extend(compiled.map(|edge| &*edge.pkg).filter(|id| reached.insert(id)));
        }
        let others = self.packages.iter().filter(|package| package.source.is_some());
        let mut packages: Vec<_> = others.filter(|package| reached.contains(&*package.id)).collect();
        packages.sort_by_key(|package| (&package.name, &package.version));
        Ok(packages)
    }
}

impl Package {
    /// The texts that are to be told.
    fn texts(&self) -> Result<Vec<String>> {
        let folder = self.manifest_path.parent().context("a manifest lies in a folder")?;
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_file() {
                files.push(name);
            }
        }
        files.sort();
        chosen(files, self.license.as_deref().unwrap_or(""))
            .iter()
            .map(|name| read(&folder.join(name)))
            .collect()
    }
}

/// Of a package's files those with its license: that of the MIT license alone, beside notices, where that is enough.
fn chosen(files: Vec<String>, license: &str) -> Vec<String> {
    let is_text = |name: &String| NAMES.iter().any(|begin| name.to_uppercase().starts_with(begin));
    let texts: Vec<String> = files.into_iter().filter(is_text).collect();
    let is_mit = |name: &String| name.to_uppercase().contains("MIT");
    let has_choice = !license.contains(" AND ") && (license.contains(" OR ") || license.contains('/'));
    let is_notice =
        |name: &String| ["NOTICE", "COPYRIGHT"].iter().any(|begin| name.to_uppercase().starts_with(begin));
    if has_choice && texts.iter().any(is_mit) {
        texts.into_iter().filter(|name| is_mit(name) || is_notice(name)).collect()
    } else {
        texts
    }
}

fn read(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    Ok(lines.join("\n").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[&str], license: &str) -> Vec<String> {
        chosen(files.iter().map(ToString::to_string).collect(), license)
    }

    #[test]
    fn where_there_is_a_choice_the_mit_license_is_told_beside_notices() {
        let files = ["Cargo.toml", "COPYRIGHT", "LICENSE-APACHE", "LICENSE-MIT", "src.rs"];
        assert_eq!(of(&files, "MIT OR Apache-2.0"), ["COPYRIGHT", "LICENSE-MIT"]);
        assert_eq!(of(&files, "MIT/Apache-2.0"), ["COPYRIGHT", "LICENSE-MIT"]);
        assert_eq!(
            of(&["LICENSE-APACHE", "license-mit", "LICENSE-UNICODE"], "(MIT OR Apache-2.0) AND Unicode-3.0"),
            ["LICENSE-APACHE", "license-mit", "LICENSE-UNICODE"]
        );
        assert_eq!(of(&["LICENSE", "README.md"], "ISC"), ["LICENSE"]);
        assert_eq!(of(&["LICENSE-APACHE"], "Apache-2.0 OR MIT"), ["LICENSE-APACHE"]);
        assert!(of(&["README.md"], "MIT").is_empty());
    }

    #[test]
    fn every_package_that_the_tool_has_in_it_is_told_and_none_that_only_tests_need() {
        let told = notices(&cargo::workspace().expect("a workspace")).expect("notices");
        for name in ["clap ", "procfs ", "serde_json ", "rustix "] {
            assert!(told.contains(&format!("\n{name}")), "{name}");
        }
        assert!(!told.contains("\nloom ") && !told.contains("\nample-core "));
        assert!(told.contains(PERMISSION));
    }
}
