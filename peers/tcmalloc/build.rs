//! Builds Google's tcmalloc (not gperftools') as one shared object, with the flags that `bazel build -c opt`
//! gives to GCC: -O2 -DNDEBUG, frame pointers, C++17; 8 KiB pages, the default of its BUILD file.
//! The source asks for initial-exec thread-local storage itself. Upstream has no preload library; this one
//! holds all of tcmalloc, and of Abseil what tcmalloc refers to, hidden from the program.
//!
//! Its per-CPU caches work only where glibc leaves the restartable-sequences area to it:
//! `GLIBC_TUNABLES=glibc.pthread.rseq=0` (see Cargo.toml). Without it, its per-thread caches serve.

use std::path::PathBuf;

use peer_recipe::{Source, compile, compiler, fail, link_shared, out_dir, publish};

const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O2",
    "-DNDEBUG",
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=1",
    "-fstack-protector",
    "-fno-omit-frame-pointer",
    "-ffunction-sections",
    "-fdata-sections",
    "-fPIC",
    "-DNOMINMAX",
    "-DTCMALLOC_INTERNAL_8K_PAGES",
];

fn main() {
    let source = Source::of("libtcmalloc-sys");
    let root = source.root.join("c_src");
    let files = |prefix: &str| -> Vec<PathBuf> {
        include_str!("sources.txt")
            .lines()
            .filter(|line| line.starts_with(prefix))
            .map(|line| root.join(line))
            .collect()
    };
    let build = || {
        let mut build = compiler(FLAGS);
        build.cpp(true).include(root.join("abseil-cpp")).include(root.join("tcmalloc"));
        build
    };

    if let Err(error) = build().files(files("abseil-cpp/")).try_compile("abseil") {
        fail(&format!("Abseil does not compile: {error}"));
    }
    let tcmalloc = compile(&mut build(), files("tcmalloc/"));
    let abseil = out_dir().join("libabseil.a");
    let library = link_shared(
        &build(),
        "tcmalloc",
        &[tcmalloc, vec![abseil]].concat(),
        &["-Wl,--exclude-libs,libabseil.a", "-Wl,--gc-sections"],
    );
    publish(&library, &date(&source.read("CHANGELOG.md"), &source.version));
    println!("cargo::rerun-if-changed=sources.txt");
}

/// tcmalloc has no versions: the date on which the package took its source, from the heading
/// `## [0.1.14](…) - 2025-06-16` of the package's changelog.
fn date(changelog: &str, version: &str) -> String {
    changelog
        .lines()
        .find_map(|line| line.strip_prefix(&format!("## [{version}]"))?.rsplit_once(" - "))
        .map(|(_, date)| date.to_string())
        .unwrap_or_else(|| fail(&format!("no date for {version} in the changelog")))
}
