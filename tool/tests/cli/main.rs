//! The finished tool with real processes.

mod bench;
mod common;
mod errors;
mod faults;
mod limits;
mod measures;
mod selftest;
