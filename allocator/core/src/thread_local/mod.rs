//! What each thread has for itself: a pointer to its heap. On the systems that we know, by the initial-exec model of thread-local storage,
//! which costs two instructions in a shared library (`thread_local!` calls a function); it needs so little of
//! the static TLS block that the library can be loaded by `dlopen` too.
//!
//! | function | contract |
//! |---|---|
//! | `heap()` | the calling thread's heap: [`FRESH`](crate::heap::FRESH) at first, then what `set_heap` stored |
//! | `near_place(size)` | its place for the class that serves `size` bytes; `None` for 0 and for sizes above [`NEAR_MAX`](crate::size_class::NEAR_MAX) |
//! | `place(class)` | its place for a class |
//! | `own_place(entry)` | as [`Heap::own_place`](crate::heap::Heap::own_place) of it |
//! | `set_heap(heap)` | stores it; to be called again when its table of near requests or its mask has changed |

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#[path = "x86_64.rs"]
mod arch;
#[cfg(all(target_arch = "aarch64", target_os = "linux", not(miri)))]
#[path = "aarch64.rs"]
mod arch;

pub(crate) use arch::{heap, near_place, own_place, place, set_heap};
