//! Programs that read source code: gcc, cppcheck.

use std::fmt::Write as _;
use std::io;

use super::Site;
use super::site::{digest, expect, fingerprint, read, words};
use crate::trial::Subject;

/// Every so manieth function has a fault that cppcheck must find.
const FAULTY: usize = 10;

/// GCC compiles generated C with optimisation.
pub fn gcc(site: &Site) -> io::Result<Subject> {
    let source = site.write("generated.c", source(site.amount(500, 20), false))?;
    let object = site.in_run("generated.o");
    let command = words(site.program("gcc"), &[&"-O2", &"-w", &"-c", &source, &"-o", &object]);
    Ok(site.command(command, move |_| fingerprint(&object)))
}

/// Cppcheck finds the planted faults in generated C, and no other ones.
pub fn cppcheck(site: &Site) -> io::Result<Subject> {
    let functions = site.amount(1500, 100);
    let source = site.write("generated.c", source(functions, true))?;
    let found = site.in_run("found");
    let output = format!("--output-file={}", found.display());
    let command = words(
        site.program("cppcheck"),
        &[&"--quiet", &"--template={id}", &"--error-exitcode=7", &output, &source],
    );
    let product = move |_: &str| {
        let content = read(&found)?;
        let faults = String::from_utf8_lossy(&content);
        let faults = faults.lines().filter(|line| *line == "arrayIndexOutOfBounds").count();
        expect("faults", faults, functions.div_ceil(FAULTY))?;
        Ok(digest(&content))
    };
    // The exit code says that it found something.
    let mut subject = site.command(command, product);
    subject.exit_code = 7;
    Ok(subject)
}

/// A C file with so many functions, each with a type of its own.
fn source(functions: usize, faulty: bool) -> String {
    let mut text = String::new();
    for number in 0..functions {
        let (length, room) = (number % 7 + 1, number % 9 + 2);
        let past = if faulty && number % FAULTY == 0 { room } else { room - 1 };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "struct s{number} {{ int a[{length}]; int n; }};\n\
             int f{number}(struct s{number} *s, int n) {{\n  int t = {number}; int b[{room}] = {{0}};\n  \
             for (int i = 0; i < n; i++) {{\n    switch (s->a[i % {length}] & 3) {{\n      \
             case 0: t += i; break;\n      case 1: t ^= n; break;\n      default: t = t * 31 + s->a[0];\n    }}\n    \
             if (t > {}) t -= s->n;\n  }}\n  b[{past}] = t;\n  return t + b[0];\n}}",
            number * 100
        );
    }
    text
}
