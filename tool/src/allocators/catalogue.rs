//! The allocators that the tool knows by name, and the command that installs each; limits among them.

use serde::{Deserialize, Serialize};

/// Name of the allocator that ratios refer to.
pub const BASELINE: &str = "glibc";

/// Where a known allocator comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This project.
    Ours,
    /// The C library of this system.
    System,
    /// Built from crates.io by `cargo ample peers`.
    Bundled,
    /// A Debian package: its name, and the library's file name.
    Debian {
        /// The package that installs it.
        package: &'static str,
        /// The file to look for in the library folders.
        file: &'static str,
    },
    /// The scudo runtime in LLVM's own folders.
    Llvm {
        /// The package that installs it.
        package: &'static str,
    },
    /// Built from this project's own sources with the tool: no allocator to use, but one to hold others against.
    Limit(Limit),
}

/// What a limit serves. Limits take part only where they are asked for, and are never ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Blocks of any size.
    AnySize,
    /// Blocks of the size that a row's parameter `size` says.
    OneSize,
}

/// One allocator that the tool knows by name.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Name on the command line and in tables.
    pub name: &'static str,
    /// Where it comes from.
    pub origin: Origin,
}

impl Known {
    /// The exact command that brings it onto this machine, for a tool that is installed, or one in a clone.
    pub fn install(&self, installed: bool) -> String {
        match self.origin {
            Origin::Ours | Origin::Limit(_) if installed => "ample allocators".into(),
            Origin::Ours | Origin::Limit(_) => "cargo ample allocators".into(),
            Origin::Bundled if installed => {
                format!(
                    "cargo ample peers {} in a clone, whose target/peers AMPLE_PEERS_DIR then names",
                    self.name
                )
            }
            Origin::System => "apt-get install libc6".into(),
            Origin::Bundled => format!("cargo ample peers {}", self.name),
            Origin::Debian { package, .. } | Origin::Llvm { package } => format!("apt-get install {package}"),
        }
    }
}

const fn debian(name: &'static str, package: &'static str, file: &'static str) -> Known {
    Known { name, origin: Origin::Debian { package, file } }
}

const fn bundled(name: &'static str) -> Known {
    Known { name, origin: Origin::Bundled }
}

const fn limit(name: &'static str, serves: Limit) -> Known {
    Known { name, origin: Origin::Limit(serves) }
}

/// All of them, in the order of tables.
pub const KNOWN: &[Known] = &[
    Known { name: super::OURS, origin: Origin::Ours },
    Known { name: BASELINE, origin: Origin::System },
    bundled("jemalloc"),
    bundled("mimalloc2"),
    bundled("mimalloc3"),
    bundled("snmalloc"),
    bundled("rpmalloc"),
    bundled("tcmalloc"),
    debian("jemalloc-debian", "libjemalloc2", "libjemalloc.so.2"),
    debian("gperftools", "libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
    debian("mimalloc-debian", "libmimalloc2.0", "libmimalloc.so.2"),
    debian("tbbmalloc", "libtbbmalloc2", "libtbbmalloc_proxy.so.2"),
    Known { name: "scudo", origin: Origin::Llvm { package: "libclang-rt-dev" } },
    limit("floor", Limit::OneSize),
    limit("single-lock", Limit::AnySize),
];
