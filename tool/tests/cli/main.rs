//! The finished tool with real processes.

mod bench;
mod common;
mod errors;
mod faults;
mod measures;
mod selftest;
