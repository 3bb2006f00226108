//! The finished tool with real processes.

mod bench;
mod common;
mod compare;
mod errors;
mod faults;
mod limits;
mod measures;
mod options;
mod run;
mod selftest;
