//! What happens when the process limits itself, as far as the allocator must know of it.

use crate::os;
use crate::process::PROCESS;

/// To be called before the process locks all of its memory. From then on free memory stays locked as well, for the program must not wait for a page.
///
/// `most`: how many bytes of what is mapped now may be locked; then the addresses that are reserved for what may come, which would be locked as well, are given up. `None`: only what is mapped later is locked.
pub fn before_locking(most: Option<usize>) {
    os::keep_locked();
    let Some(most) = most else { return };
    let reach = os::address_limit().map_or(most, |limit| limit.min(most));
    // As long as this lives the tables stay as they are.
    let _records = PROCESS.meta.lock();
    PROCESS.units.let_go(reach);
}

/// After a limit of the process changed: where addresses are limited to fewer than are reserved, gives up those that are reserved for what may come, lest
/// they be missing for the stacks of threads, and for all else that does not come from here. Waits for nobody: some set limits where nothing may wait, as
/// in the child of a fork that runs no handlers. (The child of a vfork gives up its parent's, which come back island by island.) What is left undone is done when
/// no more memory comes.
pub fn after_limiting() {
    if let Some(_records) = PROCESS.meta.try_lock() {
        PROCESS.units.heed_address_limit();
    }
}
