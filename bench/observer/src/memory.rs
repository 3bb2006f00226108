//! What the process has in memory, and what it has used of the processor.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use ample_protocol::observation::Fact;

use crate::file;

/// Looks at the resident memory, and notes it if it is more than ever; at the account as well.
pub fn look() {
    account();
    let Some(resident) = resident() else { return };
    let resident = resident.saturating_sub(file::add(Fact::OwnBytes, 0));
    // Two threads that look at once may note the figure of one beside that of the other: both are true of this moment.
    if resident > file::add(Fact::PeakResidentBytes, 0) {
        file::set(Fact::PeakResidentBytes, resident);
        file::set(Fact::LiveAtPeakResident, file::add(Fact::LiveBytes, 0));
    }
}

/// Notes what the system has counted of the process so far.
pub fn account() {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: valid for a write of its type; zeroed is a value of it, plain integers, where the call fails.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    file::raise(Fact::CpuNs, ns(usage.ru_utime) + ns(usage.ru_stime));
    file::raise(Fact::MinorFaults, usage.ru_minflt as u64);
}

/// Bytes of memory of its own, mapped files left out: the second number of `statm` less the third, in pages.
fn resident() -> Option<u64> {
    let mut text = [0_u8; 128];
    // SAFETY: strings that end; the buffer is as long as it is said to be. errno is put back, as malloc leaves it alone.
    let length = unsafe {
        let errno = *libc::__errno_location();
        let file = libc::open(c"/proc/self/statm".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let length = if file < 0 { -1 } else { libc::read(file, text.as_mut_ptr().cast(), text.len()) };
        if file >= 0 {
            libc::close(file);
        }
        *libc::__errno_location() = errno;
        usize::try_from(length).ok()?
    };
    let [resident, shared] = pages(&text[..length])?;
    // SAFETY: a question without arguments.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    Some(resident.saturating_sub(shared) * page)
}

/// Where the stack of this thread begins and ends; not that of the process's first thread, whose mapping has a name.
pub fn stack() -> Option<[u64; 2]> {
    // SAFETY: questions without arguments.
    if unsafe { libc::gettid() == libc::getpid() } {
        return None;
    }
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are read and destroyed only where the call has filled them in; it may call malloc, which is not observed
    // within a call. errno is put back, as malloc leaves it alone.
    let known = unsafe {
        let errno = *libc::__errno_location();
        let filled = libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) == 0;
        let known =
            filled && libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut bytes) == 0;
        if filled {
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
        *libc::__errno_location() = errno;
        known
    };
    known.then(|| [start as u64, start as u64 + bytes as u64])
}

/// Marks memory as the program's own, so that the system does not make one mapping of it and malloc's: the tool asks each mapping whether it has
/// a block. The advice is about how much of a file is read ahead, and changes nothing else.
pub fn set_apart(start: *mut c_void, bytes: usize) {
    // SAFETY: advice that leaves the content as it is. errno is put back, as the call succeeded that it comes after.
    unsafe {
        let errno = *libc::__errno_location();
        libc::madvise(start, bytes, libc::MADV_RANDOM);
        *libc::__errno_location() = errno;
    }
}

fn pages(statm: &[u8]) -> Option<[u64; 2]> {
    let mut numbers =
        std::str::from_utf8(statm).ok()?.split_ascii_whitespace().map(|number| number.parse().ok());
    numbers.next()?;
    Some([numbers.next()??, numbers.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_and_third_number_are_taken() {
        assert_eq!(pages(b"2000 300 100 5 0 50 0\n"), Some([300, 100]));
        assert_eq!((pages(b"2000 300"), pages(b"a b c")), (None, None));
        assert!(resident().expect("this process") > 100_000);
    }

    #[test]
    fn a_thread_knows_its_stack() {
        let here = 0_u8;
        let [from, to] = stack().expect("a test is not the first thread");
        assert!((from..to).contains(&(&raw const here as u64)) && to - from < 1 << 30, "{from:x} to {to:x}");
    }
}
