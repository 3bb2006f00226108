//! Ample as a Rust global allocator.
#![no_std]
