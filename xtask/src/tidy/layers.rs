//! The modules of a package use only those that ARCHITECTURE.md lists before them, or beside them.

use std::path::Path;

/// Folders of source whose modules ARCHITECTURE.md lists bottom-up, and the headings below which it does: in the first table, the lowest layer first. Modules of
/// one row may use each other.
pub const LAYERED: [(&str, &str); 2] =
    [("allocator/core/src", "### Layers, bottom-up"), ("tool/src", "### The tool's layers, bottom-up")];

/// The modules of each row of the list below `heading`, the lowest row first.
pub fn rows<'a>(architecture: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let table = architecture.split_once(heading).map_or("", |(_, below)| below);
    let lines =
        table.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    lines.filter_map(|line| line.split('|').nth(1)).map(modules).filter(|row| !row.is_empty()).collect()
}

/// The modules that the first cell of a row names in code quotes; `a/b` is a part of `a`.
fn modules(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).filter_map(|name| name.split('/').next()).collect()
}

/// The module at the top of `folder` that a file in it belongs to; `None` for the file that only declares them.
pub fn module_of<'a>(file: &'a Path, folder: &str) -> Option<&'a str> {
    let first = file.strip_prefix(folder).ok()?.components().next()?.as_os_str().to_str()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    (module != "lib" && module != "main").then_some(module)
}

/// The lines of a file of `module` that use a module of a higher row, and what is wrong with them. Tests at the end of the file may use anything.
pub fn upward(rows: &[Vec<&str>], module: &str, text: &str) -> Vec<(usize, String)> {
    let row_of = |module: &str| rows.iter().position(|row| row.contains(&module));
    let Some(own) = row_of(module) else {
        return vec![(0, format!("the module `{module}` is in no row of the layers in ARCHITECTURE.md"))];
    };
    let mut found = Vec::new();
    for (index, line) in text.lines().take_while(|line| !line.ends_with("mod tests {")).enumerate() {
        for used in line.split("crate::").skip(1).map(leading_name) {
            if row_of(used).is_some_and(|row| row > own) {
                let message =
                    format!("`{module}` uses `{used}`, which is in a higher layer (ARCHITECTURE.md)");
                found.push((index + 1, message));
            }
        }
    }
    found
}

/// The name that a text begins with.
fn leading_name(text: &str) -> &str {
    let end = text.find(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric());
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = "### Layers";
    const ARCHITECTURE: &str = "\
intro
| no | table |
### Layers
Each uses those above it.

| module | holds |
|---|---|
| `sync`, `os/` | the ground; `not_a_module` |
| `span`, `span/{returns,holes}` | runs |
| `heap` | magazines |

| `later` | another table |
";

    #[test]
    fn the_list_is_the_first_table_below_its_heading() {
        assert_eq!(rows(ARCHITECTURE, HEADING), [vec!["sync", "os"], vec!["span", "span"], vec!["heap"]]);
        assert!(rows(ARCHITECTURE, "### Nothing").is_empty());
    }

    #[test]
    fn a_module_is_known_by_the_path_of_its_files() {
        for (file, module) in [
            ("core/src/heap.rs", Some("heap")),
            ("core/src/heap/idle.rs", Some("heap")),
            ("core/src/os/mod.rs", Some("os")),
            ("core/src/lib.rs", None),
            ("core/tests/loom.rs", None),
            ("tool/src/heap.rs", None),
        ] {
            assert_eq!(module_of(Path::new(file), "core/src"), module, "{file}");
        }
    }

    #[test]
    fn a_use_of_a_higher_module_is_found() {
        let text = "use crate::sync::Lock;\nuse crate::heap::Heap; // crate::heap_like\n";
        let found = upward(&rows(ARCHITECTURE, HEADING), "span", text);
        assert_eq!(found, [(2, "`span` uses `heap`, which is in a higher layer (ARCHITECTURE.md)".into())]);
    }

    #[test]
    fn downward_sideways_and_in_tests_is_fine() {
        let text = "use crate::os;\nuse crate::sync::Lock;\n#[cfg(test)]\nmod tests {\n    use crate::heap::Heap;\n}\n";
        assert!(upward(&rows(ARCHITECTURE, HEADING), "sync", text).is_empty());
        assert!(upward(&rows(ARCHITECTURE, HEADING), "heap", "use crate::span::Span;").is_empty());
    }

    #[test]
    fn a_module_that_is_not_listed_is_found() {
        assert_eq!(upward(&rows(ARCHITECTURE, HEADING), "attic", "").len(), 1);
    }
}
