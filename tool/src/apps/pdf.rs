//! A PDF document that is always the same: text in several fonts, curves, shadings, clipping, images.

use std::fmt::Write as _;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Width and height of a page, in points.
const PAGE: (u32, u32) = (595, 842);
/// Pixels of an image to a side.
const IMAGE: usize = 96;
/// Objects before the first page: catalogue, tree of pages, fonts, shading with its function.
const SHARED: usize = 7;
/// Objects of one page: itself, its content, its image.
const OF_PAGE: usize = 3;

const FONTS: [&str; 3] = ["Helvetica", "Times-Roman", "Courier"];

/// A document with so many pages.
pub fn document(pages: usize) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let children: Vec<String> =
        (0..pages).map(|page| format!("{} 0 R", SHARED + page * OF_PAGE + 1)).collect();
    let mut objects: Vec<Vec<u8>> = vec![
        b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
        format!("<< /Type /Pages /Count {pages} /Kids [{}] >>", children.join(" ")).into_bytes(),
    ];
    objects.extend(
        FONTS.map(|font| format!("<< /Type /Font /Subtype /Type1 /BaseFont /{font} >>").into_bytes()),
    );
    objects.push(
        b"<< /ShadingType 2 /ColorSpace /DeviceRGB /Coords [50 50 500 500] /Function 7 0 R /Extend [true true] >>"
            .to_vec(),
    );
    objects.push(b"<< /FunctionType 2 /Domain [0 1] /C0 [0.9 0.2 0.1] /C1 [0.1 0.3 0.9] /N 1.5 >>".to_vec());
    for page in 0..pages {
        let own = SHARED + page * OF_PAGE + 1;
        objects.push(
            format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {} {}] /Contents {} 0 R /Resources << /Font << /F0 3 0 R \
                 /F1 4 0 R /F2 5 0 R >> /Shading << /S 6 0 R >> /XObject << /I {} 0 R >> >> >>",
                PAGE.0,
                PAGE.1,
                own + 1,
                own + 2
            )
            .into_bytes(),
        );
        objects.push(stream("", content(page, &mut random).as_bytes()));
        let pixels: Vec<u8> = (0..IMAGE * IMAGE * 3).map(|_| random.random_range(0..=255)).collect();
        let kind = format!(
            "/Type /XObject /Subtype /Image /Width {IMAGE} /Height {IMAGE} /ColorSpace /DeviceRGB \
             /BitsPerComponent 8 "
        );
        objects.push(stream(&kind, &pixels));
    }
    file(&objects)
}

/// What is drawn on a page.
fn content(page: usize, random: &mut ChaCha8Rng) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    let at = |random: &mut ChaCha8Rng| (random.random_range(0..PAGE.0), random.random_range(0..PAGE.1));
    line(format_args!("q 60 60 300 300 re W n /S sh Q"));
    for number in 0..80 {
        let [a, b, c, d] = [(); 4].map(|()| at(random));
        let shade = number % 10;
        line(format_args!("0.{shade} 0.{} 0.5 rg 0.{} 0 0.{shade} RG", 9 - shade, shade / 2));
        let paint = if number % 3 == 0 { "b" } else { "S" };
        line(format_args!("{} {} m {} {} {} {} {} {} c {paint}", a.0, a.1, b.0, b.1, c.0, c.1, d.0, d.1));
    }
    for row in 0..60 {
        let (font, size) = (row % FONTS.len(), 6 + row % 9);
        let words: Vec<String> = (0..8)
            .map(|word| format!("{:x}", (page * 7919 + row * 104_729 + word * 31) % 1_000_003))
            .collect();
        line(format_args!(
            "BT 0 g /F{font} {size} Tf 40 {} Td (page {page}: {}) Tj ET",
            820 - row * 13,
            words.join(" ")
        ));
    }
    line(format_args!("q 150 40 -40 150 380 420 cm /I Do Q"));
    text
}

fn stream(kind: &str, bytes: &[u8]) -> Vec<u8> {
    let head = format!("<< {kind}/Length {} >>\nstream\n", bytes.len());
    [head.as_bytes(), bytes, b"\nendstream"].concat()
}

/// The objects with their numbers, and the table that tells where each begins.
fn file(objects: &[Vec<u8>]) -> Vec<u8> {
    let mut file = b"%PDF-1.4\n".to_vec();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (index, object) in objects.iter().enumerate() {
        let _ = writeln!(table, "{:010} 00000 n ", file.len());
        file.extend(format!("{} 0 obj\n", index + 1).bytes());
        file.extend(object);
        file.extend(b"\nendobj\n");
    }
    let begin = file.len();
    let _ =
        write!(table, "trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{begin}\n%%EOF\n", objects.len() + 1);
    file.extend(table.bytes());
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_always_the_same_and_its_table_tells_where_objects_begin() {
        let bytes = document(2);
        assert_eq!(bytes, document(2));
        let text = String::from_utf8_lossy(&bytes);
        let objects = SHARED + 2 * OF_PAGE;
        assert!(text.contains(&format!("xref\n0 {}\n", objects + 1)) && text.ends_with("%%EOF\n"));
        let after = |word: &[u8]| {
            let found = bytes.windows(word.len()).rposition(|window| window == word).expect("there");
            found + word.len()
        };
        let number = |begin: usize| -> usize {
            let digits: String = bytes[begin..]
                .iter()
                .map(|&byte| char::from(byte))
                .take_while(char::is_ascii_digit)
                .collect();
            digits.parse().expect("a number")
        };
        let table = number(after(b"startxref\n"));
        assert!(bytes[table..].starts_with(b"xref\n"));
        let first = table + format!("xref\n0 {}\n", objects + 1).len();
        for object in 1..=objects {
            let begin = number(first + object * 20);
            let head = format!("{object} 0 obj\n");
            assert!(bytes[begin..].starts_with(head.as_bytes()), "object {object} at {begin}");
        }
    }
}
