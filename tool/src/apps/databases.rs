//! Databases that live in one process: RocksDB, SQLite.

use std::ffi::OsString;
use std::io;

use super::Site;
use super::site::{expect, fingerprint, words};
use crate::trial::Subject;

/// RocksDB's own benchmark, two threads.
pub fn rocksdb(site: &Site) -> io::Result<Subject> {
    let keys = site.amount(60_000, 5000);
    let folder = {
        let mut option = OsString::from("--db=");
        option.push(site.in_run("db"));
        option
    };
    let command = words(
        site.program("db_bench"),
        &[
            &folder,
            &"--benchmarks=fillrandom,readrandom,overwrite,readrandom",
            &format!("--num={keys}"),
            &"--threads=2",
            &"--seed=1",
            &"--value_size=400",
            &"--write_buffer_size=8388608",
            &"--compression_type=none",
        ],
    );
    let product = move |output: &str| {
        let found = output.lines().filter_map(|line| line.rsplit_once('(')?.1.strip_suffix(" found)"));
        let found: Vec<&str> = found.collect();
        let of_all = format!(" of {keys}");
        expect("answers about keys", found.iter().filter(|text| text.ends_with(&of_all)).count(), 2)?;
        Ok(found.join(", "))
    };
    Ok(site.command(command, product))
}

/// SQLite's shell on a script.
pub fn sqlite(site: &Site) -> io::Result<Subject> {
    let rows = site.amount(250_000, 10_000);
    let script =
        site.write("script.sql", include_str!("scripts/people.sql").replace("ROWS", &rows.to_string()))?;
    let database = site.in_run("data.db");
    let command =
        words(site.program("sqlite3"), &[&"-batch", &database, &format!(".read {}", script.display())]);
    let product = move |output: &str| {
        if output.lines().last() != Some("ok") {
            return Err("wrong output: SQLite does not say at the end that the file is sound".into());
        }
        let left = output.lines().find_map(|line| line.strip_prefix("left: ")?.parse().ok());
        expect("rows", left.unwrap_or(0), rows - rows / 3)?;
        Ok(format!("{} and file {}", super::site::digest(output.as_bytes()), fingerprint(&database)?))
    };
    Ok(site.command(command, product))
}
