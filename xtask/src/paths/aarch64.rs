//! What aarch64 code is made of.

use anyhow::{Context, Result, anyhow};
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::{Made, Next};

/// Counts the instructions of `code`, which lies at `start`, up to the first return.
///
/// # Errors
/// When there is none before a jump or within the longest path's length.
pub(super) fn count(code: &[u8], start: u64, made: &mut Made) -> Result<()> {
    let (decoder, mut words) = (InstDecoder::default(), code.chunks_exact(4));
    let mut address = start;
    made.until_return(|made| {
        let word = words.next().context("the code ends")?;
        let instruction = decoder
            .decode(&mut U8Reader::new(word))
            .map_err(|error| anyhow!("no instruction at {address:#x}: {error}"))?;
        address += 4;
        let text = instruction.to_string();
        Ok(add(made, text.split_whitespace().next().unwrap_or_default()))
    })
}

/// Counts what an instruction is made of, told by its name: a pair is one load or store.
fn add(made: &mut Made, name: &str) -> Next {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    // Exclusive accesses, and the atomic instructions of Armv8.1, which load and store.
    let exclusive = starts(&["ldx", "ldax", "stx", "stlx"]);
    let atomic =
        starts(&["cas", "swp", "ldadd", "ldclr", "ldeor", "ldset", "stadd", "stclr", "steor", "stset"]);
    made.branches += usize::from(starts(&["b.", "cbz", "cbnz", "tbz", "tbnz"]));
    made.loads += usize::from(name.starts_with("ld") || atomic);
    made.stores += usize::from(name.starts_with("st") || atomic);
    made.calls += usize::from(matches!(name, "bl" | "blr" | "svc"));
    made.locked += usize::from(exclusive || atomic);
    match name {
        "ret" => Next::Returns,
        "b" | "br" => Next::Jumps,
        _ => Next::Continues,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn loads_stores_branches_and_locks_are_told_apart() {
        let words = [
            0xf940_0001, // ldr x1, [x0]
            0xf900_0001, // str x1, [x0]
            0xa940_0801, // ldp x1, x2, [x0]
            0xb400_0040, // cbz x0, +8
            0x5400_0040, // b.eq +8
            0xd63f_0000, // blr x0
            0xc85f_7c01, // ldxr x1, [x0]
            0xf821_0002, // ldadd x1, x2, [x0]
            0x9100_0400, // add x0, x0, 1
            0xd65f_03c0, // ret
        ];
        let mut made = Made::default();
        count(&code(&words), 0, &mut made).expect("a return");
        let expected = Made { instructions: 10, branches: 2, loads: 4, stores: 2, calls: 1, locked: 2 };
        assert_eq!(made, expected);
        // b +4; ret
        assert!(count(&code(&[0x1400_0001, 0xd65f_03c0]), 0, &mut Made::default()).is_err(), "it jumps");
        assert!(count(&code(&[0x9100_0400]), 0, &mut Made::default()).is_err(), "it has no return");
    }
}
