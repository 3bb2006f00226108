//! The finished tool with real processes.

mod bench;
mod common;
mod compare;
mod errors;
mod faults;
mod limits;
mod manual;
mod measures;
mod run;
mod selftest;
