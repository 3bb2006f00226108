//! A host may close a library that has this allocator, while threads that have used it go on. (On musl libraries are never closed.)
#![cfg(target_env = "gnu")]

use std::env;
use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::mpsc::channel;
use std::thread;

#[test]
fn threads_end_well_after_their_plugin_was_closed() {
    // Examples are built with the tests, beside the folder that these are in.
    let test = env::current_exe().expect("a path");
    let plugin = test.ancestors().nth(2).expect("a folder").join("examples/libplugin.so");
    let path = CString::new(plugin.as_os_str().as_bytes()).expect("no zero");
    // SAFETY: its constructors do nothing.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "{}", plugin.display());
    // SAFETY: the example's function has this signature.
    let work = unsafe {
        let work = libc::dlsym(library, c"work".as_ptr());
        assert!(!work.is_null());
        std::mem::transmute::<*mut c_void, extern "C" fn(usize) -> usize>(work)
    };
    let (done, is_done) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let thread = thread::spawn(move || {
        assert_eq!(work(1000), 1);
        done.send(()).expect("the test waits");
        may_go_on.recv().expect("the test sends");
    });
    is_done.recv().expect("the thread sends");
    // SAFETY: this test calls it no more.
    assert_eq!(unsafe { libc::dlclose(library) }, 0);
    go_on.send(()).expect("the thread waits");
    thread.join().expect("it ended well");
}
