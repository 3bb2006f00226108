//! Link arguments of `libample.so`.

fn main() {
    // Programs that are linked with it ask for this name; a copy that is preloaded answers to it, so that no process has two.
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libample.so.{major}");
    // Threads hold pointers into the library until they end (the destructor of their heap): once loaded, it stays.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // What one of our functions calls of ours is ours, also where the library was opened later and the program's malloc is another.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // But for the operators that programs replace and expect ours to call. (Where the library was opened later, ours call those of the program's C++ runtime.)
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/replaceable.list");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--dynamic-list={list}");
    println!("cargo::rerun-if-changed={list}");
    println!("cargo::rerun-if-changed=build.rs");
}
