//! Where the functions lie that programs call most: each begins a cache line, in a section of its own. The linker packs code that is built
//! for size, so that functions begin anywhere; where one reaches into one line more, a pair of malloc and free takes up to 1.3 times as long (docs/experiments/fast-paths.md,
//! "Where should malloc begin?").

/// Lets the section `.text.ample.<name>` begin a cache line. (Rust has no attribute for that yet: `fn_align` is unstable.)
macro_rules! begin_line {
    ($($name:literal),*) => {
        $(core::arch::global_asm!(
            concat!(".pushsection .text.ample.", $name, ",\"ax\",@progbits"),
            ".p2align 6",
            ".popsection",
        );)*
    };
}

begin_line!(
    "malloc",
    "malloc_far",
    "malloc_kept",
    "free",
    "free_far",
    "calloc",
    "realloc",
    "new",
    "delete",
    "derived"
);
