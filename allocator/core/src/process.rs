//! The one allocator that serves the process, and its helper thread.

use crate::allocator::{Allocator, Tables};
use crate::helper::Helper;

pub(crate) static PROCESS: Allocator = Allocator::new(&TABLES);
static TABLES: Tables = Tables::new();
pub(crate) static HELPER: Helper = Helper::new();
