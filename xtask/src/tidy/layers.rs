//! The modules of a package use only those that ARCHITECTURE.md lists before them.

use std::path::Path;

/// Folders of source whose modules ARCHITECTURE.md lists bottom-up, and the headings below which it does: in the first table, the lowest layer first, row by row and
/// from left to right.
pub const LAYERED: [(&str, &str); 2] =
    [("allocator/core/src", "### Layers, bottom-up"), ("tool/src", "### The tool's layers, bottom-up")];

/// The modules of the list below `heading`, the lowest first.
pub fn modules<'a>(architecture: &'a str, heading: &str) -> Vec<&'a str> {
    let table = architecture.split_once(heading).map_or("", |(_, below)| below);
    let lines =
        table.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    lines.filter_map(|line| line.split('|').nth(1)).flat_map(named).collect()
}

/// The modules that the first cell of a row names in code quotes; `a/b` is a part of `a`.
fn named(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter_map(|name| name.split('/').next())
}

/// The module at the top of `folder` that a file in it belongs to; `None` for the file that only declares them.
pub fn module_of<'a>(file: &'a Path, folder: &str) -> Option<&'a str> {
    let first = file.strip_prefix(folder).ok()?.components().next()?.as_os_str().to_str()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    (module != "lib" && module != "main").then_some(module)
}

/// The lines of a file of `module` that use a module which comes after it, and what is wrong with them. Tests at the end of the file may use anything.
pub fn upward(modules: &[&str], module: &str, text: &str) -> Vec<(usize, String)> {
    let place_of = |module: &str| modules.iter().position(|other| *other == module);
    let Some(own) = place_of(module) else {
        return vec![(0, format!("the module `{module}` is in no row of the layers in ARCHITECTURE.md"))];
    };
    let mut found = Vec::new();
    for (index, line) in text.lines().take_while(|line| !line.ends_with("mod tests {")).enumerate() {
        for used in line.split("crate::").skip(1).map(leading_name) {
            if place_of(used).is_some_and(|place| place > own) {
                let message =
                    format!("`{module}` uses `{used}`, which comes after it in the layers (ARCHITECTURE.md)");
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
        assert_eq!(modules(ARCHITECTURE, HEADING), ["sync", "os", "span", "span", "heap"]);
        assert!(modules(ARCHITECTURE, "### Nothing").is_empty());
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
        let modules = modules(ARCHITECTURE, HEADING);
        let message = "`span` uses `heap`, which comes after it in the layers (ARCHITECTURE.md)";
        assert_eq!(upward(&modules, "span", text), [(2, message.into())]);
        assert_eq!(upward(&modules, "sync", "use crate::os;\n").len(), 1, "to the right in its row");
    }

    #[test]
    fn downward_within_and_in_tests_is_fine() {
        let modules = modules(ARCHITECTURE, HEADING);
        let text = "use crate::os::File;\nuse crate::sync::Lock;\n#[cfg(test)]\nmod tests {\n    use crate::heap::Heap;\n}\n";
        assert!(upward(&modules, "os", text).is_empty());
        assert!(upward(&modules, "heap", "use crate::span::Span;").is_empty());
    }

    #[test]
    fn a_module_that_is_not_listed_is_found() {
        assert_eq!(upward(&modules(ARCHITECTURE, HEADING), "attic", "").len(), 1);
    }
}
