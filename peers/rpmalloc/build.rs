//! Builds rpmalloc's own preload library (`rpmallocwrap` of its configure.py) with the flags that its
//! build generator gives a release: -O3 -funroll-loops, hidden visibility, no stack protector, malloc
//! overridden. The source itself asks for initial-exec thread-local storage.

use peer_recipe::{Source, compile, compiler, link_shared, publish};

const FLAGS: &[&str] = &[
    "-std=c11",
    "-O3",
    "-funroll-loops",
    "-fPIC",
    "-fvisibility=hidden",
    "-fomit-frame-pointer",
    "-fno-stack-protector",
    "-fstrict-aliasing",
    "-ffast-math",
    "-D_GNU_SOURCE=1",
    "-DRPMALLOC_COMPILE=1",
    "-DBUILD_RELEASE=1",
    "-DENABLE_PRELOAD=1",
    "-DENABLE_OVERRIDE=1",
];

/// `git describe` of the commit in the package's version (0.2.3+b097fd0): no version newer than
/// this one of April 2022 is on crates.io.
const VERSION: &str = "1.4.3-18-gb097fd0";

fn main() {
    let source = Source::of("rpmalloc-sys");
    let mut build = compiler(FLAGS);
    let objects = compile(&mut build, [source.root.join("rpmalloc/rpmalloc/rpmalloc.c")]);
    let library = link_shared(&build, "rpmalloc", &objects, &["-lm", "-ldl"]);
    publish(&library, VERSION);
}
