//! `target/peers/peers.json`: what the tool knows about the bundled peers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

const FILE: &str = "peers.json";

/// One peer in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Name of the allocator.
    pub name: String,
    /// The package of crates.io that ships its source.
    #[serde(rename = "crate")]
    pub crate_name: String,
    /// Version of that package.
    pub crate_version: String,
    /// Version of the allocator itself; that of the package, where the peer was not built.
    pub version: String,
    /// File name of the shared object, beside the manifest; none where the last build failed.
    pub library: Option<String>,
    /// Why the last build failed, in one line.
    pub error: Option<String>,
    /// Environment in which programs are to run on this allocator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// The entries, by name.
#[derive(Debug, Default)]
pub struct Manifest {
    entries: BTreeMap<String, Entry>,
}

impl Manifest {
    /// Reads the manifest in `folder`; empty where there is none that can be read: it is made anew then.
    pub fn load(folder: &Path) -> Manifest {
        let entries: Vec<Entry> = fs::read(folder.join(FILE))
            .ok()
            .and_then(|content| serde_json::from_slice(&content).ok())
            .unwrap_or_default();
        Manifest { entries: entries.into_iter().map(|entry| (entry.name.clone(), entry)).collect() }
    }

    /// The entries, by name.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Drops the entries whose name `keep` refuses.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.entries.retain(|name, _| keep(name));
    }

    /// Enters one peer in place of an older entry.
    pub fn enter(&mut self, entry: Entry) {
        self.entries.insert(entry.name.clone(), entry);
    }

    /// Writes the manifest into `folder`; a reader sees the old one or the new one, never half of it.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let entries: Vec<&Entry> = self.entries().collect();
        let new = folder.join(format!("{FILE}.new"));
        fs::write(&new, serde_json::to_string_pretty(&entries)? + "\n")
            .and_then(|()| fs::rename(&new, folder.join(FILE)))
            .with_context(|| format!("cannot write {}", folder.join(FILE).display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, error: Option<&str>) -> Entry {
        Entry {
            name: name.into(),
            crate_name: "x-sys".into(),
            crate_version: "0.1.0".into(),
            version: "1.2.3".into(),
            library: error.is_none().then(|| format!("lib{name}.so")),
            error: error.map(String::from),
            env: BTreeMap::new(),
        }
    }

    #[test]
    fn other_entries_survive_a_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut manifest = Manifest::load(folder.path());
        manifest.enter(entry("a", None));
        manifest.enter(entry("b", Some("no compiler")));
        manifest.save(folder.path()).expect("saved");

        let mut again = Manifest::load(folder.path());
        again.enter(entry("b", None));
        again.retain(|name| name != "gone");
        again.save(folder.path()).expect("saved");
        let last = Manifest::load(folder.path());
        assert_eq!(last.entries.values().cloned().collect::<Vec<_>>(), [entry("a", None), entry("b", None)]);
    }

    #[test]
    fn the_format_is_what_the_tool_reads() {
        let text = serde_json::to_string(&entry("a", None)).expect("text");
        assert_eq!(
            text,
            r#"{"name":"a","crate":"x-sys","crate_version":"0.1.0","version":"1.2.3","library":"liba.so","error":null}"#
        );
    }

    #[test]
    fn a_broken_manifest_is_made_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(FILE), "[{").expect("written");
        assert!(Manifest::load(folder.path()).entries.is_empty());
    }
}
