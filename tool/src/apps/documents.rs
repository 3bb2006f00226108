//! Programs that work through a document: ghostscript, sort.

use std::ffi::OsString;
use std::io;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::Site;
use super::pdf;
use super::site::{digest, expect, fingerprint, read, words};
use crate::trial::Subject;

/// Ghostscript renders pages to pixels.
pub fn ghostscript(site: &Site) -> io::Result<Subject> {
    const DOTS_PER_INCH: usize = 36;
    let pages = site.amount(25, 2);
    let document = site.write("document.pdf", pdf::document(pages))?;
    let mut output = OsString::from("-sOutputFile=");
    output.push(site.in_run("page%d.ppm"));
    let command = words(
        site.program("gs"),
        &[
            &"-q",
            &"-dNOPAUSE",
            &"-dBATCH",
            &"-sDEVICE=ppmraw",
            &"-dTextAlphaBits=4",
            &"-dGraphicsAlphaBits=4",
            &format!("-r{DOTS_PER_INCH}"),
            &output,
            &document,
        ],
    );
    let files: Vec<_> = (1..=pages).map(|page| site.in_run(&format!("page{page}.ppm"))).collect();
    let one_more = site.in_run(&format!("page{}.ppm", pages + 1));
    let product = move |_: &str| {
        if one_more.exists() {
            return Err(format!("wrong output: more than {pages} pages"));
        }
        let prints = files.iter().map(|file| fingerprint(file)).collect::<Result<Vec<_>, _>>()?;
        Ok(format!("pixels {}", digest(prints.concat().as_bytes())))
    };
    Ok(site.command(command, product))
}

/// GNU sort, all in memory.
pub fn sort(site: &Site) -> io::Result<Subject> {
    let lines = site.amount(1_000_000, 200_000);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let text: String =
        (0..lines).map(|number| format!("{:08x} {number}\n", random.random_range(0..u32::MAX))).collect();
    let (input, output) = (site.write("lines", text)?, site.in_run("sorted"));
    let command =
        words(site.program("sort"), &[&"--parallel=2", &"--buffer-size=500M", &"-o", &output, &input]);
    let product = move |_: &str| {
        let content = read(&output)?;
        let sorted: Vec<&[u8]> =
            content.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).collect();
        expect("lines", sorted.len(), lines)?;
        if !sorted.is_sorted() {
            return Err("wrong output: the lines are not in order".into());
        }
        Ok(digest(&content))
    };
    Ok(site.command(command, product))
}
