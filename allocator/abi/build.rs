//! Link arguments of `libample.so`.

fn main() {
    // Threads hold pointers into the library until they end (the destructor of their heap): once loaded, it stays.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // What one of our functions calls of ours is ours, also where the library was opened later and the program's malloc is another.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rerun-if-changed=build.rs");
}
