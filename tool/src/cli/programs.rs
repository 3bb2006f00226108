//! Arguments of the commands that take a program of the user's.

use std::ffi::OsString;

use clap::Args;

/// Arguments of `ample run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The allocator: a name (see `ample allocators`), a file, with settings of its own if you like, as in
    /// `ample bench --allocators`
    #[arg(short, long, value_name = "NAME", default_value = crate::allocators::OURS)]
    pub allocator: String,
    /// Let the dynamic linker record who serves malloc in every process of the program, and tell when it has
    /// ended: exit code 0 if that was the allocator and no other, 1 if not, 2 for wrong usage
    #[arg(long)]
    pub check: bool,
    /// Do not say where the allocator cannot serve the program
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}
