//! The proof of who serves a program can fail.

use ample_conformance::{Loading, Suite, system_library};

#[test]
fn a_program_that_another_library_serves_fails() {
    let suite = Suite {
        source: "functions.c",
        libraries: &[],
        loading: Loading::Preloaded,
        scratch: env!("CARGO_TARGET_TMPDIR"),
    };
    let text = suite.fail_unserved("malloc_and_free", &system_library("libm.so.6"));
    assert!(text.contains("are not all served by"), "another reason than the wrong library: {text}");
}
