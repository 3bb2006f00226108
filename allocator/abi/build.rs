//! Link arguments of `libample.so`.

fn main() {
    // Threads hold pointers into the library until they end (the destructor of their heap): once loaded, it stays.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
