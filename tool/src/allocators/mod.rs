//! The allocators to compare: which there are, where they lie, what they are.
//!
//! [`catalogue`] names those that the tool knows; [`Finder`] looks for them on this machine;
//! [`select()`] resolves what the user asked for.

mod catalogue;
mod discover;
mod identify;
mod options;
mod select;
mod settings;
mod unread;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use catalogue::{BASELINE, Limit};
pub use discover::{Finder, Missing};
pub use identify::{file_sha256, package_version, resolve};
pub use options::{Definition, told_by};
pub use select::{one, select};
pub use unread::{OWN_VARIABLES, unread};

/// Name of the project's own allocator.
pub const OURS: &str = "ample";
/// Name of the baseline's second appearance, which is held against the first one. It is in no table: the
/// spread of their ratio is the noise floor.
pub const TWIN: &str = "glibc (A/A)";

/// One entry of a comparison: a library to preload, and the environment that configures it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Allocator {
    /// Name in tables. A variant carries its settings: `glibc:mmap_threshold=131072`.
    pub name: String,
    /// The library, as a canonical path.
    pub library: PathBuf,
    /// Environment variables that this entry sets in its processes.
    pub environment: BTreeMap<String, String>,
    /// Version, as far as known.
    pub version: Option<String>,
    /// SHA-256 of the library file, in hexadecimal.
    pub sha256: String,
    /// GNU build id of the library, in hexadecimal, where it has one.
    pub build_id: Option<String>,
    /// The commit of the checkout that it was built in, with `-dirty` where that was changed; only of our own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// How it was found, in a few words.
    pub found: String,
    /// What it serves, if it is a limit and no allocator to use.
    pub limit: Option<Limit>,
    /// Functions of the malloc family that the library defines.
    #[serde(skip)]
    pub defines: BTreeSet<String>,
    /// Why the library is not what its names say; none where nothing speaks against them.
    #[serde(skip)]
    pub false_name: Option<String>,
}

/// Names of all known allocators, in the order of tables.
pub fn names() -> impl Iterator<Item = &'static str> {
    catalogue::KNOWN.iter().map(|known| known.name)
}

impl Allocator {
    /// Whether this is the one that all others are held against.
    pub fn is_baseline(&self) -> bool {
        self.name == BASELINE
    }

    /// Which build of it this is: version, commit, build id, as far as known.
    pub fn build(&self) -> String {
        let shortened = |digits: &str| digits.get(..12).unwrap_or(digits).to_owned();
        let version = self.version.clone().unwrap_or_else(|| "unknown version".into());
        let commit = self.commit.as_ref().map(|commit| format!("commit {commit}"));
        let file = match &self.build_id {
            Some(id) => format!("build id {}", shortened(id)),
            None => format!("SHA-256 {}", shortened(&self.sha256)),
        };
        [Some(version), commit, Some(file)].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// What it sets in the environment of its processes, as one would write it in a shell; none where it sets nothing.
    pub fn assignments(&self) -> Option<String> {
        let each: Vec<String> =
            self.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!each.is_empty()).then(|| each.join(" "))
    }

    /// The same once more, under the name [`TWIN`].
    pub fn twin(&self) -> Self {
        Self { name: TWIN.into(), ..self.clone() }
    }

    /// A limit without a file behind it.
    #[cfg(test)]
    pub fn fake_limit(name: &str, limit: Limit) -> Self {
        Self { limit: Some(limit), ..Self::fake(name) }
    }

    /// An entry without a file behind it.
    #[cfg(test)]
    pub fn fake(name: &str) -> Self {
        Self {
            name: name.into(),
            library: format!("/fake/lib{name}.so").into(),
            environment: BTreeMap::new(),
            version: Some("1.0".into()),
            sha256: "00".into(),
            build_id: None,
            commit: None,
            found: "made up".into(),
            limit: None,
            defines: BTreeSet::new(),
            false_name: None,
        }
    }
}
