//! Which package of the workspace may depend on which: dependencies point downward only.

use std::path::Path;

use super::Violation;
use crate::cargo::Metadata;

/// A folder and the folders that the packages in it must not depend on.
const FORBIDDEN: [(&str, &[&str]); 3] = [
    ("allocator", &["bench", "tool", "tests", "xtask"]),
    // A workload links no allocator: whatever is preloaded serves it.
    ("bench/workloads", &["allocator"]),
    // The tool sees allocators as files, ours like the others.
    ("tool", &["allocator/core"]),
];

/// Dependencies of the workspace's packages against [`FORBIDDEN`], those for tests and build scripts included.
pub fn check(workspace: &Metadata) -> Vec<Violation> {
    let root = &workspace.workspace_root;
    let mut violations = Vec::new();
    for package in &workspace.packages {
        let file = package.manifest_path.strip_prefix(root).unwrap_or(&package.manifest_path);
        for dependency in &package.dependencies {
            let path = dependency.path.as_deref().and_then(|path| path.strip_prefix(root).ok());
            if let Some(path) = path.filter(|path| is_forbidden(file, path)) {
                let message = format!("must not depend on {} ({})", dependency.name, path.display());
                violations.push(Violation { file: file.to_path_buf(), line: 0, message });
            }
        }
    }
    violations
}

/// Whether the package with this Cargo.toml must not depend on the package in folder `dependency`; both
/// relative to the root of the workspace.
fn is_forbidden(manifest: &Path, dependency: &Path) -> bool {
    FORBIDDEN.iter().any(|(folder, forbidden)| {
        manifest.starts_with(folder) && forbidden.iter().any(|below| dependency.starts_with(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(manifest: &str, dependency: &str) -> Metadata {
        let text = serde_json::json!({
            "workspace_root": "/w", "target_directory": "/w/target",
            "packages": [{
                "manifest_path": format!("/w/{manifest}/Cargo.toml"),
                "dependencies": [
                    { "name": "libc", "req": "^0.2", "path": null },
                    { "name": "planted", "req": "*", "path": format!("/w/{dependency}") },
                ],
                "metadata": null,
            }],
        });
        serde_json::from_value(text).expect("as cargo prints it")
    }

    #[test]
    fn a_dependency_upward_or_on_an_allocator_is_found() {
        for (manifest, dependency) in [
            ("allocator/core", "bench/protocol"),
            ("allocator/abi", "tool"),
            ("bench/workloads", "allocator/rust"),
            ("tool", "allocator/core"),
        ] {
            let found = check(&workspace(manifest, dependency));
            assert_eq!(found.len(), 1, "{manifest} on {dependency}");
            let line = format!("{manifest}/Cargo.toml: must not depend on planted ({dependency})");
            assert_eq!(found[0].to_string(), line);
        }
    }

    #[test]
    fn a_dependency_downward_is_fine() {
        for (manifest, dependency) in [
            ("allocator/abi", "allocator/core"),
            ("bench/workloads", "bench/protocol"),
            ("tool", "bench/protocol"),
            ("tests/conformance", "allocator/core"),
        ] {
            assert!(check(&workspace(manifest, dependency)).is_empty(), "{manifest} on {dependency}");
        }
    }
}
