//! The process's mappings on Linux (`/proc/self/maps`): a line begins with its mapping's first address, a hyphen, and the address just past its
//! end.

use core::ops::Range;

use crate::text::digit;

/// Reads the text piece by piece, wherever it is cut.
pub(super) struct Maps {
    start: usize,
    number: usize,
    field: Field,
}

enum Field {
    Start,
    End,
    Rest,
}

impl Maps {
    pub(super) const fn new() -> Self {
        Self { start: 0, number: 0, field: Field::Start }
    }

    /// Calls `visit` with each mapping whose end the piece tells.
    pub(super) fn read(&mut self, piece: &[u8], mut visit: impl FnMut(Range<usize>)) {
        for &byte in piece {
            match (&self.field, byte) {
                (_, b'\n') => *self = Self::new(),
                (Field::Rest, _) => {}
                (Field::Start, b'-') => *self = Self { start: self.number, number: 0, field: Field::End },
                (Field::End, b' ') => {
                    visit(self.start..self.number);
                    self.field = Field::Rest;
                }
                (_, _) => self.number = (self.number << 4) + usize::from(digit(byte)) % 16,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_wherever_the_text_is_cut() {
        let text = b"00400000-004af000 r-xp 00000000 08:01 12 /bin/a-b c\n\
            7ffc12345000-7FFC12366000 rw-p 00000000 00:00 0 [stack]\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
        for length in 1..text.len() {
            let (mut maps, mut found) = (Maps::new(), Vec::new());
            text.chunks(length).for_each(|piece| maps.read(piece, |mapping| found.push(mapping)));
            assert_eq!(
                found,
                [
                    0x40_0000..0x4a_f000,
                    0x7ffc_1234_5000..0x7ffc_1236_6000,
                    0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000
                ]
            );
        }
    }
}
