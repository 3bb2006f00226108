//! Builds jemalloc's own shared library, the way its INSTALL.md says: `./configure && make`.
//!
//! Nothing is configured away from jemalloc's defaults, which for a release are -O3 -funroll-loops,
//! statistics on, C++ operators in, initial-exec thread-local storage. (The package's own build script
//! turns statistics and the C++ operators off and prefixes every name.) Documentation is not made.

use std::fs;
use std::path::Path;
use std::process::Command;

use peer_recipe::{Source, fail, out_dir, publish, run};

fn main() {
    let source = Source::of("tikv-jemalloc-sys");
    // 0.7.1+5.3.1-0-g81034ce1… : jemalloc's version is the build metadata of the package's.
    let Some((_, full)) = source.version.split_once('+') else {
        fail(&format!("no jemalloc version in {}", source.version));
    };
    let version = full.split('-').next().unwrap_or(full);

    // jemalloc's configure writes headers beside its source, and the registry's copy is not to be changed.
    let build = out_dir().join("jemalloc");
    if build.exists() {
        fs::remove_dir_all(&build)
            .unwrap_or_else(|error| fail(&format!("cannot clear the build folder: {error}")));
    }
    copy(&source.root.join("jemalloc"), &build);
    copy(&source.root.join("configure"), &build);

    let mut configure = Command::new("sh");
    configure.arg("configure").arg(format!("--with-version={full}")).arg("--enable-doc=no");
    run(configure.current_dir(&build));
    run(Command::new("make").arg("build_lib_shared").current_dir(&build));
    publish(&build.join("lib/libjemalloc.so.2"), version);
}

/// Copies all that is in `from` into the folder `to`, which is made where it is missing.
fn copy(from: &Path, to: &Path) {
    let copied = fs::create_dir_all(to).and_then(|()| {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                copy(&entry.path(), &target);
            } else {
                fs::copy(entry.path(), target)?;
            }
        }
        Ok(())
    });
    copied.unwrap_or_else(|error| fail(&format!("cannot copy {}: {error}", from.display())));
}
