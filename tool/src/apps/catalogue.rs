//! The apps, in the order of tables.

use std::io;

use anyhow::Result;

use super::needs::{Need, PYTHON};
use super::{Site, compilers, databases, documents, interpreters, servers};
use crate::error::unknown;
use crate::trial::Subject;

/// A real program with a known work.
#[derive(Debug, Clone, Copy)]
pub struct App {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// What a reader learns from it, and how its product is checked.
    pub tells: &'static str,
    /// Threads of it that allocate.
    pub threads: u32,
    /// Whether it is a server with a load; otherwise it ends by itself.
    pub is_server: bool,
    /// What must be installed; the first is the program that the allocator serves.
    pub needs: &'static [Need],
    /// Makes its input, and says how it is run.
    pub subject: fn(&Site) -> io::Result<Subject>,
}

const PYTHON_ITSELF: Need = Need::Program(PYTHON, "python3");
const SLAPD: &[Need] = &[
    Need::Program("slapd", "slapd"),
    Need::Program("slapadd", "slapd"),
    Need::Program("slapcat", "slapd"),
    Need::Program("ldapsearch", "ldap-utils"),
    Need::Program("ldapmodify", "ldap-utils"),
];

const APPS: &[App] = &[
    App {
        name: "slapd",
        tells: "OpenLDAP's server, searched and changed by several clients; its files, which it maps, do not count \
                as memory; checked: every entry that the clients see",
        threads: 4,
        is_server: true,
        needs: SLAPD,
        subject: servers::slapd,
    },
    App {
        name: "slapadd",
        tells: "OpenLDAP's import into an empty database; checked: the number of entries that slapcat finds",
        threads: 1,
        is_server: false,
        needs: &[Need::Program("slapadd", "slapd"), Need::Program("slapcat", "slapd")],
        subject: servers::slapadd,
    },
    App {
        name: "redis",
        tells: "Redis under pipelined SET, GET and DEL of values of three sizes; checked: every value that is left",
        threads: 1,
        is_server: true,
        needs: &[
            Need::Program("redis-server", "redis-server"),
            Need::Program("redis-benchmark", "redis-tools"),
            Need::Program("redis-cli", "redis-tools"),
        ],
        subject: servers::redis,
    },
    App {
        name: "rsyslog",
        tells: "rsyslogd: one thread takes messages until a burst is complete, another one writes and frees them; what \
                its heap keeps after the load; checked: every line, in order",
        threads: 2,
        is_server: true,
        needs: &[Need::Program("rsyslogd", "rsyslog"), Need::Program("logger", "bsdutils")],
        subject: servers::rsyslog,
    },
    App {
        name: "mariadb",
        tells: "MariaDB's server with four clients at a time, each of which connects four times and adds, changes, \
                searches and deletes orders; checked: every answer and what is left",
        threads: 4,
        is_server: true,
        needs: &[
            Need::Program("mariadbd", "mariadb-server-core"),
            Need::Program("mariadb-install-db", "mariadb-server-core"),
            Need::Program("mariadb", "mariadb-client-core"),
        ],
        subject: servers::mariadb,
    },
    App {
        name: "tokenizers",
        tells: "Hugging Face's tokenizers from PyPI (Rust under Python) on two threads, with millions of small blocks a \
                second; checked: every token",
        threads: 2,
        is_server: false,
        needs: &[PYTHON_ITSELF, Need::Module("tokenizers")],
        subject: interpreters::tokenizers,
    },
    App {
        name: "ghostscript",
        tells: "Ghostscript renders a PDF with text, curves, shadings and images; checked: every pixel",
        threads: 1,
        is_server: false,
        needs: &[Need::Program("gs", "ghostscript")],
        subject: documents::ghostscript,
    },
    App {
        name: "rocksdb",
        tells: "RocksDB's db_bench: two threads fill, read and overwrite; checked: how many keys are found",
        threads: 2,
        is_server: false,
        needs: &[Need::Program("db_bench", "rocksdb-tools")],
        subject: databases::rocksdb,
    },
    App {
        name: "sqlite",
        tells: "SQLite's shell: inserts, indexes, joins, deletions, VACUUM; checked: rows, integrity and the file",
        threads: 1,
        is_server: false,
        needs: &[Need::Program("sqlite3", "sqlite3")],
        subject: databases::sqlite,
    },
    App {
        name: "cppcheck",
        tells: "Cppcheck over a generated C file: C++ with many small strings and lists; checked: the planted faults",
        threads: 1,
        is_server: false,
        needs: &[Need::Program("cppcheck", "cppcheck")],
        subject: compilers::cppcheck,
    },
    App {
        name: "gcc",
        tells: "GCC compiles a generated C file with -O2; checked: the object file, byte by byte",
        threads: 1,
        is_server: false,
        needs: &[Need::Program("gcc", "gcc")],
        subject: compilers::gcc,
    },
    App {
        name: "python",
        tells: "CPython with PYTHONMALLOC=malloc, so that each of its objects comes from malloc; checked: a digest of \
                its data",
        threads: 1,
        is_server: false,
        needs: &[PYTHON_ITSELF],
        subject: interpreters::python,
    },
    App {
        name: "ruby",
        tells: "Ruby: five threads parse documents and build pages of strings, some of which they keep, as web servers \
                do; checked: a digest of all pages",
        threads: 5,
        is_server: false,
        needs: &[Need::Program("ruby", "ruby")],
        subject: interpreters::ruby,
    },
    App {
        name: "perl",
        tells: "Perl counts and keeps strings in hashes and lists; checked: its counts",
        threads: 1,
        is_server: false,
        needs: &[Need::Program("perl", "perl")],
        subject: interpreters::perl,
    },
    App {
        name: "sort",
        tells: "GNU sort on two threads, in memory: few large blocks; checked: every line, in order",
        threads: 2,
        is_server: false,
        needs: &[Need::Program("sort", "coreutils")],
        subject: documents::sort,
    },
];

/// All of them.
pub fn all() -> &'static [App] {
    APPS
}

/// Those of these names, in this order; all without any.
///
/// Fails with a usage error for an unknown name.
pub fn choose(names: &[String]) -> Result<Vec<&'static App>> {
    if names.is_empty() {
        return Ok(APPS.iter().collect());
    }
    let known: Vec<&str> = APPS.iter().map(|app| app.name).collect();
    let mut chosen: Vec<&App> = Vec::with_capacity(names.len());
    for name in names {
        let Some(app) = APPS.iter().find(|app| app.name == name) else {
            return Err(unknown("app", name, &known).into());
        };
        if !chosen.iter().any(|other| other.name == app.name) {
            chosen.push(app);
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::UsageError;

    #[test]
    fn apps_are_chosen_by_name_each_once() {
        let names = |list: &[&str]| -> Result<Vec<&'static str>> {
            let list: Vec<String> = list.iter().map(|&name| name.to_owned()).collect();
            Ok(choose(&list)?.iter().map(|app| app.name).collect())
        };
        assert_eq!(names(&["sort", "gcc", "sort"]).expect("known"), ["sort", "gcc"]);
        assert_eq!(names(&[]).expect("all").len(), APPS.len());
        let error = names(&["reddis"]).expect_err("refused");
        assert!(error.is::<UsageError>() && error.to_string().contains("did you mean 'redis'?"), "{error}");
    }
}
