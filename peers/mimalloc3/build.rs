//! Builds mimalloc v3's shared library as its own CMakeLists.txt does for a release
//! (the package leaves out CMake's helper files, so that CMake itself cannot be used):
//! the same list of source files, C11, -O3 -DNDEBUG, hidden visibility, initial-exec thread-local storage,
//! malloc overridden.

use peer_recipe::{Source, compile, compiler, fail, link_shared, publish};

/// `mi_sources` of CMakeLists.txt.
const SOURCES: &[&str] = &[
    "alloc.c",
    "alloc-aligned.c",
    "alloc-posix.c",
    "arena.c",
    "arena-meta.c",
    "bitmap.c",
    "heap.c",
    "init.c",
    "libc.c",
    "options.c",
    "os.c",
    "page.c",
    "page-map.c",
    "random.c",
    "stats.c",
    "theap.c",
    "threadlocal.c",
    "prim/prim.c",
];

const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O3",
    "-DNDEBUG",
    "-fPIC",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-builtin-malloc",
    "-DMI_CMAKE_BUILD_TYPE=release",
    "-DMI_BUILD_RELEASE",
    "-DMI_SHARED_LIB",
    "-DMI_SHARED_LIB_EXPORT",
    "-DMI_MALLOC_OVERRIDE",
];

fn main() {
    let source = Source::of("libmimalloc-sys");
    let root = source.root.join("c_src/mimalloc/v3");
    let mut build = compiler(FLAGS);
    build.include(root.join("include"));
    let objects = compile(&mut build, SOURCES.iter().map(|file| root.join("src").join(file)));
    let library = link_shared(&build, "mimalloc3", &objects, &["-O3", "-lrt", "-latomic"]);
    publish(&library, &version(&source.read("c_src/mimalloc/v3/include/mimalloc.h")));
}

/// `#define MI_MALLOC_VERSION 30302` is version 3.3.2.
fn version(header: &str) -> String {
    let number = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define MI_MALLOC_VERSION"))
        .find_map(|rest| rest.split_whitespace().next()?.parse::<u32>().ok())
        .unwrap_or_else(|| fail("no MI_MALLOC_VERSION in mimalloc.h"));
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}
