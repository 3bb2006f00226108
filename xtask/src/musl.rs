//! `xtask musl`: the allocator for systems whose C library is musl (Alpine): as a library that musl's programs preload, and in Rust's static programs.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::conformance::{self, LeftOut};

const COMPILER: &str = "musl-gcc";

const INSTALL: &str = "apt-get install musl-tools linux-libc-dev (Debian)";

/// Folders of Linux's headers, which musl's compiler does not look for, and where Debian has them.
const HEADERS: [(&str, &[&str]); 3] = [
    ("linux", &["/usr/include/linux"]),
    ("asm-generic", &["/usr/include/asm-generic"]),
    ("asm", &["/usr/include/x86_64-linux-gnu/asm", "/usr/include/aarch64-linux-gnu/asm", "/usr/include/asm"]),
];

/// Cases of the conformance programs that musl does not allow, and why.
const NOT_ON_MUSL: LeftOut = &[
    (
        "musl opens no library that has thread-local storage of the initial-exec model",
        &[
            "loading::closing_it_harms_no_thread",
            "loading::it_opens_bound_to_itself_first",
            "loading::it_opens_lazily_and_globally",
            "loading::it_opens_with_all_symbols_bound",
            "loading::it_serves_although_no_key_is_left",
            "loading::its_other_names_lead_to_itself",
            "loading::no_case_is_left_out",
            "loading::threads_older_than_it_use_it",
        ],
    ),
    (
        "musl tells libraries apart by their files, not by the name that they give themselves",
        &["linked_and_preloaded::one_library_serves_it"],
    ),
    (
        "musl starts no program of which a function is missing",
        &["a_program_that_another_library_serves_fails"],
    ),
    (
        "musl's fork takes the lock of the list of streams after all handlers, and lends it to nobody",
        &["fork::fork_while_other_threads_read_and_flush_streams"],
    ),
    (
        "in the child of a fork, musl's first thread keeps a lock when it leaves (1.2.3)",
        &["helper::a_process_ends_with_its_last_thread"],
    ),
    ("musl does not tell whether a program has had one thread only", &["fork::a_signal_handler_forks"]),
    (
        "musl runs no function before all constructors",
        &[
            "lifecycle::blocks_from_before_all_constructors_live_on",
            "lifecycle::thread_specific_destructors_allocate_in_every_round",
        ],
    ),
    (
        "musl does not know RTLD_DEEPBIND",
        &[
            "hostile::a_library_that_sees_another_malloc",
            "hostile::a_library_that_sees_another_malloc_with_few_addresses",
            "hostile::a_library_that_sees_another_malloc_with_few_addresses_from_the_beginning",
            "hostile::a_library_that_sees_another_malloc_with_locked_memory",
        ],
    ),
    (
        "musl's static programs open no libraries",
        &["static_pie::libraries_can_be_opened", "static_program::libraries_can_be_opened"],
    ),
    (
        "musl's own malloc has no other names",
        &[
            "libc_names::no_case_is_left_out",
            "libc_names::the_library_defines_them_all",
            "libc_names::their_blocks_and_those_of_malloc_are_of_one_kind",
        ],
    ),
    (
        "the programs that are installed here run on glibc",
        &[
            "fork::posix_spawn_while_other_threads_allocate",
            "fork::vfork_while_other_threads_allocate",
            "options::statistics_are_written_as_json_at_the_end",
            "php_runs_with_its_extensions",
        ],
    ),
    (
        "Debian has no C++ compiler for musl",
        &[
            "lifecycle_cxx::no_case_is_left_out",
            "lifecycle_cxx::static_destructors_allocate",
            "lifecycle_cxx::static_objects_live_on",
            "lifecycle_cxx::thread_local_destructors_allocate",
            "operators::aligned_new_and_delete",
            "operators::aligned_nothrow_new_and_delete",
            "operators::aligned_sized_delete",
            "operators::array_new_and_delete",
            "operators::huge_nothrow_requests_give_null",
            "operators::huge_requests_throw_bad_alloc_through_frames",
            "operators::new_leaves_errno_alone",
            "operators::new_of_zero_gives_distinct_blocks",
            "operators::no_case_is_left_out",
            "operators::nothrow_new_and_delete",
            "operators::nothrow_new_gives_null_when_the_new_handler_throws_bad_alloc",
            "operators::objects_and_containers",
            "operators::plain_new_and_delete",
            "operators::sized_delete",
            "operators::the_library_defines_every_operator",
            "operators::the_new_handler_is_called_until_it_has_made_room",
            "operators::the_new_handler_may_free_a_reserve",
            "operators::the_new_handler_may_throw_an_exception_of_its_own",
            "plugin::huge_nothrow_requests_give_null_in_the_library",
            "plugin::huge_requests_throw_bad_alloc_in_the_library",
            "plugin::no_case_is_left_out",
            "plugin::the_new_handler_of_the_library_is_called",
            "replaced_forms::aligned_forms_lead_to_the_programs",
            "replaced_forms::array_forms_lead_to_the_programs",
            "replaced_forms::forms_that_do_not_throw_catch_what_the_programs_throws",
            "replaced_forms::no_case_is_left_out",
            "replaced_forms::plain_forms_stay_the_librarys",
            "replaced_forms::the_sized_form_is_the_programs",
            "replaced_operators::aligned_forms_stay_the_librarys",
            "replaced_operators::array_forms_lead_to_the_programs",
            "replaced_operators::containers_lead_to_the_programs",
            "replaced_operators::expressions_lead_to_the_programs",
            "replaced_operators::forms_that_do_not_throw_catch_what_the_programs_throws",
            "replaced_operators::forms_that_do_not_throw_lead_to_the_programs",
            "replaced_operators::no_case_is_left_out",
            "replaced_operators::plain_forms_lead_to_the_programs",
        ],
    ),
];

/// Builds the library for musl and runs the core's and the Rust crate's tests, as static programs, and the conformance programs.
///
/// # Errors
/// When the compiler is missing, which is named with the command that installs it, or cargo cannot be run.
pub fn run(arguments: &[OsString]) -> Result<ExitCode> {
    if !arguments.is_empty() {
        bail!("usage: cargo xtask musl");
    }
    if Command::new(COMPILER).arg("--version").output().is_err() {
        bail!("there is no {COMPILER}: {INSTALL}");
    }
    let workspace = cargo::workspace()?;
    let folder = workspace.target_directory.join("musl");
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let cargo = |words: &[&str]| {
        let mut command = cargo::command();
        command.current_dir(&workspace.workspace_root).env("CARGO_TARGET_DIR", &folder).args(words);
        command
    };
    // Rust's programs for musl are static by themselves, and a shared library cannot be.
    let mut build = cargo(&["build", "--release", "-p", "ample-abi", "--target", &target]);
    build.env("RUSTFLAGS", "-Ctarget-feature=-crt-static -Clinker=musl-gcc");
    if !conformance::passes(&mut build)?
        || !conformance::passes(&mut cargo(&[
            "test",
            "-p",
            "ample-core",
            "-p",
            "ample-alloc",
            // No examples: one is a library to be opened, which this target does not make.
            "--lib",
            "--tests",
            "--target",
            &target,
        ]))?
    {
        return Ok(ExitCode::FAILURE);
    }
    let headers = folder.join("include");
    gather(&headers).with_context(|| format!("cannot write {}", headers.display()))?;
    let mut tests = cargo(&conformance::TEST);
    // The programs call functions that only the library has: mallinfo2, …
    let flags = format!("-idirafter {} -Wl,--unresolved-symbols=ignore-all", headers.display());
    tests.env("CC", COMPILER).env("CFLAGS", flags);
    conformance::judge(&mut tests, &folder.join(&target).join("release/libample.so"), NOT_ON_MUSL)
}

/// Makes a folder of links to Linux's headers alone: those beside them are glibc's.
fn gather(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, places) in HEADERS {
        let link = folder.join(name);
        if let Some(place) = places.iter().find(|place| Path::new(place).exists())
            && !link.exists()
        {
            symlink(place, link)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_left_out_exists() {
        super::conformance::assert_exist(super::NOT_ON_MUSL);
    }
}
