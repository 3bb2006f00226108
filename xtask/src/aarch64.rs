//! `xtask aarch64`: the allocator as code for the other architecture, on an emulator of one of its processors (QEMU's user mode).
//!
//! What is shown is that the code works, not that its orderings of memory accesses suffice: the emulator runs on a processor that keeps
//! stores in order. Loom shows those.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

use crate::conformance::{self, LeftOut};
use crate::{cargo, paths};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const COMPILERS: [(&str, &str); 2] = [("CC", "aarch64-linux-gnu-gcc"), ("CXX", "aarch64-linux-gnu-g++")];

/// A processor with Armv8.1's atomic instructions, and without vectors of any length: QEMU 7.2 faults where those read pages that another
/// thread has just made readable.
const EMULATOR: [&str; 5] = ["qemu-aarch64", "-cpu", "neoverse-n1", "-L", "/usr/aarch64-linux-gnu"];

const INSTALL: &str = "apt-get install qemu-user gcc-aarch64-linux-gnu g++-aarch64-linux-gnu (Debian), and \
                       rustup target add aarch64-unknown-linux-gnu";

/// A test of the core whose simulated system is the same for every processor, and which takes the emulator four times as long as all others together.
const SLOW: &str = "interface::tests::faults::every_call_into_the_system_fails_once";

/// Cases of the conformance programs that an emulated process cannot pass, whoever its allocator is, and why.
const NOT_EMULATED: LeftOut = &[
    (
        "the resident memory of the process is the emulator's too, and it knows no limit of addresses",
        &[
            "failures::exhaustion_by_large_blocks_is_survived",
            "failures::exhaustion_by_medium_blocks_is_survived",
            "failures::exhaustion_by_small_blocks_is_survived",
            "glibc::memory_comes_back_although_the_program_does_nothing",
            "hostile::a_control_group_of_64_mib",
            "hostile::no_more_mappings",
            "limits::few_addresses_from_now_on",
            "limits::few_addresses_from_now_on_by_another_hand",
            "limits::few_addresses_from_now_on_in_several_threads",
            "lifecycle::thread_specific_destructors_allocate_in_every_round",
            "limits::all_memory_is_locked",
            "limits::all_memory_is_locked_from_now_on",
            "lifecycle_cxx::thread_local_destructors_allocate",
            "operators::the_new_handler_is_called_until_it_has_made_room",
            "operators::the_new_handler_may_free_a_reserve",
            "sizes::realloc_to_zero_frees_and_gives_null",
            "threads::a_thread_frees_what_another_allocates",
            "threads::a_thread_with_a_block_costs_five_pages",
            "threads::five_thousand_short_threads_leave_nothing_behind",
            "thresholds::free_memory_stays_up_to_the_trim_threshold",
        ],
    ),
    (
        "a program cannot start itself anew: the system does not know its format",
        &[
            "hostile::a_library_that_sees_another_malloc",
            "hostile::a_library_that_sees_another_malloc_with_few_addresses",
            "hostile::a_library_that_sees_another_malloc_with_few_addresses_from_the_beginning",
            "hostile::a_library_that_sees_another_malloc_with_locked_memory",
            "hostile::few_addresses_from_the_beginning",
            "options::a_bad_value_is_told_in_one_line_and_ignored",
            "options::a_signal_asks_for_statistics",
            "options::above_the_soft_limit_memory_goes_back_at_once",
            "options::isolated_blocks_have_their_lines_to_themselves",
            "options::statistics_are_printed_at_the_end_on_request",
            "options::statistics_are_written_as_json_at_the_end",
            "options::the_options_in_force_are_printed_on_request",
            "options::without_caches_everything_works",
            "options::threads_of_one_arena_have_what_another_freed",
            "static_malloc::a_setuid_program_ignores_the_environment",
            "static_pie::a_setuid_program_ignores_the_environment",
            "static_program::a_setuid_program_ignores_the_environment",
            "thresholds::a_threshold_set_by_a_tunable_ends_that",
            "thresholds::a_threshold_set_by_a_variable_ends_that",
            "thresholds::without_mappings_large_blocks_are_kept",
        ],
    ),
    (
        "the emulator's fork ends or hangs the child where the parent has several threads",
        &[
            "fork::a_child_forks_again",
            "fork::fork_from_several_threads_at_once",
            "fork::fork_handlers_allocate",
            "fork::fork_while_other_threads_allocate",
            "fork::fork_while_other_threads_read_and_flush_streams",
            "hostile::a_storm_of_forks",
            "limits::later_memory_is_locked",
            "lifecycle::atexit_handlers_allocate",
            "lifecycle::destructors_of_the_program_allocate",
            "lifecycle::exit_while_other_threads_allocate",
            "linked::threads_and_forks_work",
            "linked_and_preloaded::threads_and_forks_work",
            "static_malloc::threads_and_forks_work",
            "static_pie::threads_and_forks_work",
            "static_program::threads_and_forks_work",
        ],
    ),
    (
        "the emulator does not tell how many threads there are, and has one of its own",
        &[
            "helper::a_process_ends_with_its_last_thread",
            "helper::it_ends_when_the_program_is_alone_again",
            "helper::it_is_gone_when_a_program_forks_that_is_alone_again",
            "helper::it_is_started_although_the_program_was_alone_before",
            "helper::it_runs_where_the_program_may_whoever_starts_it",
            "helper::there_is_none_after_a_thread_that_has_ended",
            "purging::free_memory_comes_back_where_only_one_thread_allocates",
            "static_malloc::the_helper_is_started",
            "static_pie::the_helper_is_started",
            "static_malloc::threads_that_never_ask_for_memory_end",
            "static_pie::threads_that_never_ask_for_memory_end",
            "static_program::the_helper_is_started",
            "static_program::threads_that_never_ask_for_memory_end",
            "threads::threads_that_never_ask_for_memory_end",
        ],
    ),
    (
        "a fork takes the emulator a third of a second where tables are reserved",
        &["fork::a_signal_handler_forks"],
    ),
    (
        "the emulator does not give memory back from which pages were moved, so blocks are copied",
        &["glibc::large_blocks_move_without_a_page_fault_for_each_page"],
    ),
    ("the emulator has a thread of its own", &["purging::a_program_of_one_thread_stays_one"]),
    (
        "the emulator has no prctl(PR_SET_THP_DISABLE)",
        &[
            "thresholds::a_threshold_set_by_mallopt_ends_that",
            "thresholds::any_other_parameter_ends_that_too",
            "thresholds::large_blocks_are_kept_as_long_as_nothing_is_set",
            "thresholds::parameters_that_tune_nothing_end_nothing",
        ],
    ),
];

/// Builds the library, compares its fast paths with the golden file (with `--record` writes that anew), and runs the core's and the Rust
/// crate's tests, but for `SLOW`, and the conformance programs.
///
/// # Errors
/// When a tool is missing, which is named with the command that installs it, or cargo cannot be run.
pub fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let record = match arguments {
        [] => false,
        [only] if only == "--record" => true,
        _ => bail!("usage: cargo xtask aarch64 [--record]"),
    };
    for tool in [EMULATOR[0], COMPILERS[0].1, COMPILERS[1].1] {
        if Command::new(tool).arg("--version").output().is_err() {
            bail!("there is no {tool}: {INSTALL}");
        }
    }
    let workspace = cargo::workspace()?;
    let target = workspace.target_directory.join("aarch64");
    let cargo = |words: &[&str]| {
        let mut command = cargo::command();
        command.current_dir(&workspace.workspace_root).env("CARGO_TARGET_DIR", &target).args(words);
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILERS[0].1);
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", EMULATOR.join(" "));
        command
    };
    if !conformance::passes(&mut cargo(&["build", "--release", "-p", "ample-abi", "--target", TARGET]))? {
        return Ok(ExitCode::FAILURE);
    }
    let library = target.join(TARGET).join("release/libample.so");
    if record {
        return paths::record(&library);
    }
    paths::check(&library)?;
    if !conformance::passes(&mut cargo(&[
        "test",
        "-p",
        "ample-core",
        "-p",
        "ample-alloc",
        "--target",
        TARGET,
        "--",
        "--skip",
        SLOW,
    ]))? {
        return Ok(ExitCode::FAILURE);
    }
    let mut tests = cargo(&conformance::TEST);
    tests.envs(COMPILERS).env("AMPLE_CONFORMANCE_EMULATOR", EMULATOR.join(" "));
    conformance::judge(&mut tests, &library, NOT_EMULATED)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_left_out_exists() {
        super::conformance::assert_exist(super::NOT_EMULATED);
        let tests = include_str!("../../allocator/core/src/interface/tests/faults.rs");
        let (_, slow) = super::SLOW.rsplit_once("::").expect("a test in a module");
        assert!(tests.contains(&format!("fn {slow}()")));
    }
}
