//! Addresses of functions that not every program has. (Rust cannot say that a reference is weak.)

/// Makes `getter`, a function that gives the address of the C library's `name`, or null where that is not linked.
macro_rules! weak_address {
    ($getter:literal, $name:literal) => {
        core::arch::global_asm!(
            concat!(".weak ", $name),
            concat!(".pushsection .text.", $getter, ",\"ax\",@progbits"),
            concat!(".hidden ", $getter),
            concat!(".globl ", $getter),
            concat!(".type ", $getter, ",@function"),
            concat!($getter, ":"),
            load_address!($name),
            "ret",
            ".popsection",
        );
    };
}
#[cfg(target_arch = "x86_64")]
macro_rules! load_address {
    ($name:literal) => {
        concat!("mov rax, qword ptr [rip + ", $name, "@GOTPCREL]")
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! load_address {
    ($name:literal) => {
        concat!("adrp x0, :got:", $name, "\nldr x0, [x0, :got_lo12:", $name, "]")
    };
}
