//! Where the functions lie that programs call most: each begins a cache line, malloc and free a pair of lines, in a section of its own. The linker packs code that is built
//! for size, so that functions begin anywhere; where one reaches into one line more, a pair of malloc and free takes up to 1.3 times as long (docs/experiments/fast-paths.md,
//! "Where should malloc begin?").

/// Lets the section `.text.ample.<name>` begin at a multiple of two to the power of `align`. (Rust has no attribute for that yet: `fn_align` is unstable.)
macro_rules! begin {
    ($align:literal: $($name:literal),*) => {
        $(core::arch::global_asm!(
            concat!(".pushsection .text.ample.", $name, ",\"ax\",@progbits"),
            concat!(".p2align ", $align),
            ".popsection",
        );)*
    };
}

begin!(7: "malloc");
begin!(6: "malloc_far", "malloc_kept");
begin!(7: "free");
begin!(6: "free_remote", "free_full", "calloc", "realloc", "new", "delete", "derived");
