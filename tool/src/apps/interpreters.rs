//! Interpreters on fixed scripts: CPython, the tokenizers under it, Ruby, Perl.

use std::ffi::OsString;
use std::io;

use super::Site;
use super::needs::PYTHON;
use super::site::{last_line, words};
use crate::trial::Subject;

/// CPython without its own pools.
pub fn python(site: &Site) -> io::Result<Subject> {
    let rounds = site.amount(150_000, 2000);
    let mut subject =
        script(site, site.program(PYTHON), "records.py", include_str!("scripts/records.py"), rounds)?;
    subject.environment.push(("PYTHONMALLOC", "malloc".into()));
    Ok(subject)
}

/// Two threads of Rust under Python.
pub fn tokenizers(site: &Site) -> io::Result<Subject> {
    let texts = site.amount(700, 50);
    let mut subject =
        script(site, site.program(PYTHON), "tokens.py", include_str!("scripts/tokens.py"), texts)?;
    subject
        .environment
        .extend([("RAYON_NUM_THREADS", "2".into()), ("TOKENIZERS_PARALLELISM", "true".into())]);
    Ok(subject)
}

/// Five threads of Ruby, as in its web servers.
pub fn ruby(site: &Site) -> io::Result<Subject> {
    let requests = site.amount(700, 20);
    script(site, site.program("ruby"), "requests.rb", include_str!("scripts/requests.rb"), requests)
}

/// Perl's strings, hashes and lists.
pub fn perl(site: &Site) -> io::Result<Subject> {
    let rounds = site.amount(1_000_000, 60_000);
    let mut subject =
        script(site, site.program("perl"), "words.pl", include_str!("scripts/words.pl"), rounds)?;
    subject.environment.push(("PERL_HASH_SEED", "0".into()));
    Ok(subject)
}

/// A script that takes the amount of work as its argument, and whose last line is its product.
fn script(site: &Site, program: OsString, name: &str, text: &str, amount: usize) -> io::Result<Subject> {
    let script = site.write(name, text)?;
    let command = words(program, &[&script, &amount.to_string()]);
    let mut subject = site.command(command, last_line);
    subject.environment.push(("PYTHONHASHSEED", "0".into()));
    Ok(subject)
}
