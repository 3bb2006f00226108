//! Builds snmalloc's own preload library (the target `snmallocshim` of its CMakeLists.txt, unchecked)
//! with CMake's Release configuration and nothing changed: -O3 -DNDEBUG, C++20, hidden visibility,
//! initial-exec thread-local storage, libstdc++ linked statically.
//! snmalloc folds identical functions when the lld linker is installed; GNU ld does not.

use std::process::Command;

use peer_recipe::{Source, out_dir, publish, run};

fn main() {
    let source = Source::of("snmalloc-sys");
    let build = out_dir().join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(source.root.join("upstream")).arg("-B").arg(&build);
    configure.args(["-DCMAKE_BUILD_TYPE=Release", "-DSNMALLOC_BUILD_TESTING=OFF"]);
    run(&mut configure);
    run(Command::new("cmake").arg("--build").arg(&build).args(["--target", "snmallocshim"]));
    publish(&build.join("libsnmallocshim.so"), &source.version);
}
