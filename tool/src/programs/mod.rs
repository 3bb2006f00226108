//! The user's own program: what its file tells, how it starts on an allocator, what then serves it.
//!
//! [`examine`] reads the file before anything runs; [`put_on`] prepares the start; [`Record`] is the dynamic
//! linker's own account of who serves malloc; [`Sightings`] is what a look at the processes adds to it; [`Watcher`]
//! looks whether the library is there.

mod bindings;
mod elf;
mod file;
mod sightings;
mod start;
mod watch;

pub use bindings::{Operators, Record, Served};
pub use elf::system_of;
pub use file::{NotFound, Prospect, examine};
pub use sightings::{Sightings, Unserved};
pub use start::{preload, preloaded_by_user, put_as_is, put_on};
pub use watch::Watcher;
