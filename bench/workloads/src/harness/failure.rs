//! What can go wrong in a run, in words for the reader of the table.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a run yields no number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// The allocator returned NULL.
    Null {
        /// Bytes asked for.
        size: usize,
    },
    /// The block's address is no multiple of the alignment that it must have.
    Misaligned {
        /// Address of the block.
        address: usize,
        /// Bytes asked for.
        size: usize,
        /// Alignment that the block must have, in bytes.
        alignment: usize,
    },
    /// The block holds the canary of another block: the two overlap.
    Overlap {
        /// Address of the block.
        address: usize,
        /// Bytes asked for.
        size: usize,
        /// First byte of the block that differs from its canary.
        offset: usize,
        /// The worker that wrote the other block's canary.
        other_owner: u32,
    },
    /// The block no longer holds its canary, nor that of another block.
    LostContent {
        /// Address of the block.
        address: usize,
        /// Bytes asked for.
        size: usize,
        /// First byte of the block that differs from its canary.
        offset: usize,
    },
    /// The workload did not do what its definition demands.
    Miscounted {
        /// Operations done.
        done: u64,
        /// Operations demanded.
        expected: u64,
    },
    /// The system refused something that the harness needs.
    System {
        /// What was refused, and the system's word on it.
        reason: String,
    },
    /// A process of a run with several processes ended without a result.
    Process {
        /// Which one, and how it ended.
        reason: String,
    },
}

impl Failure {
    /// A refusal of the system: what the harness wanted, and the system's error.
    pub fn system(wanted: &str, error: &std::io::Error) -> Self {
        Self::System { reason: format!("{wanted}: {error}") }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null { size } => write!(f, "the allocator returned NULL for {size} bytes"),
            Self::Misaligned { address, size, alignment } => {
                write!(f, "the block of {size} bytes at {address:#x} is not aligned to {alignment} bytes")
            }
            Self::Overlap { address, size, offset, other_owner } => write!(
                f,
                "the block of {size} bytes at {address:#x} overlaps another: \
                 its byte {offset} holds the canary of a block of worker {other_owner}"
            ),
            Self::LostContent { address, size, offset } => {
                write!(f, "the block of {size} bytes at {address:#x} lost its content at byte {offset}")
            }
            Self::Miscounted { done, expected } => write!(f, "{done} operations were done, not {expected}"),
            Self::System { reason } | Self::Process { reason } => f.write_str(reason),
        }
    }
}
