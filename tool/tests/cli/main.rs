//! The finished tool with real processes.

mod apps;
mod bench;
mod common;
mod compare;
mod crashes;
mod ends;
mod errors;
mod faults;
mod limits;
mod manual;
mod measures;
mod observe;
mod options;
mod run;
mod running;
mod runs;
mod selftest;
mod served;
mod terminal;
