//! Ties processes to the tool: none outlives it, and none outlives its run.
//!
//! A process dies when the *thread* that started it ends, so only threads that wait for their processes start any.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, waitpid,
};

/// Whether orphans come to this process.
static ADOPTS: AtomicBool = AtomicBool::new(false);

/// Lets the process that this command starts be killed when the tool is.
pub fn tie(command: &mut Command) {
    let parent = getpid();
    let tied = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The tool may have gone before that.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: between fork and exec the closure makes two system calls, takes no lock and no memory.
    unsafe { command.pre_exec(tied) };
}

/// From now on descendants whose parents have ended become children of this process. To be called where it starts
/// nothing but runs.
pub fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    // Relaxed: nothing is published with it, and the thread that runs programs sets it itself.
    ADOPTS.store(true, Ordering::Relaxed);
    Ok(())
}

/// Kills what a run has left behind, in process groups or sessions of its own: all children of this process, where
/// it adopts orphans. To be called when the run's own processes have been waited for.
pub fn end_orphans() {
    // Relaxed: as in `adopt_orphans`.
    while ADOPTS.load(Ordering::Relaxed) {
        let left = children(getpid().as_raw_pid()).into_iter().filter_map(Pid::from_raw);
        // One of another user, as a setuid program is, may be out of reach.
        let killed: Vec<Pid> = left.filter(|&pid| kill_process(pid, Signal::KILL).is_ok()).collect();
        if killed.is_empty() {
            return;
        }
        // Their own children come to this process in their turn.
        for pid in killed {
            // Fails only if it is already gone.
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

/// The children of a process: each of its threads has its own.
pub fn children(process: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let mut found = Vec::new();
    for thread in threads.into_iter().flatten().flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}
