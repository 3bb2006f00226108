//! The modules of a package use each other in no circle, at whatever depth.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Violation;

/// What a module is called: the names on the way from the root of its package.
type Name = Vec<String>;

/// The modules of all packages, and what they use.
#[derive(Default)]
pub struct Packages(BTreeMap<PathBuf, BTreeMap<Name, BTreeSet<Name>>>);

impl Packages {
    /// Adds a source file below a folder `src`. Its tests at the end may use anything.
    pub fn add(&mut self, file: &Path, text: &str) {
        let Some((root, own)) = module(file) else { return };
        let used = uses(&own, text);
        self.0.entry(root).or_default().entry(own).or_default().extend(used);
    }

    /// One circle of each folder that has any.
    pub fn circles(&self) -> Vec<Violation> {
        let of_package = |(root, uses): (&PathBuf, &BTreeMap<Name, BTreeSet<Name>>)| {
            let graphs = siblings(uses);
            let found = graphs.into_iter().filter_map(|(folder, graph)| {
                let circle = circle(&graph)?;
                let message = format!("modules use each other in a circle: {}", circle.join(" → "));
                Some(Violation {
                    file: folder.iter().fold(root.clone(), |path, name| path.join(name)),
                    line: 0,
                    message,
                })
            });
            found.collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of_package).collect()
    }
}

/// The package's folder of source, and the module that a file in it is.
fn module(file: &Path) -> Option<(PathBuf, Name)> {
    let parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
    let source = parts.iter().position(|part| *part == "src")?;
    let (root, below) = parts.split_at(source + 1);
    let mut name: Name = below.iter().map(|part| part.trim_end_matches(".rs").to_owned()).collect();
    name.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    Some((root.iter().collect(), name))
}

/// The paths that a module names by `crate::` or `super::`, with what is in braces after them, from the package's root.
fn uses(own: &[String], text: &str) -> BTreeSet<Name> {
    let mut found = BTreeSet::new();
    let code = text.lines().take_while(|line| !line.ends_with("mod tests {"));
    let code: Vec<&str> = code.filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let named = |start: &str| code.match_indices(start).map(|(at, _)| at).collect::<Vec<_>>();
    for at in named("crate::") {
        found.extend(paths(Vec::new(), &code[at + "crate::".len()..]));
    }
    for at in named("super::").into_iter().filter(|at| !code[..*at].ends_with("::")) {
        let mut rest = &code[at..];
        let mut from = own.to_vec();
        while let Some(further) = rest.strip_prefix("super::") {
            from.pop();
            rest = further;
        }
        found.extend(paths(from, rest));
    }
    found
}

/// A path that goes on with `text`, or those that do, where it goes on with braces.
fn paths(from: Name, text: &str) -> Vec<Name> {
    let is_named = |letter: char| letter == '_' || letter.is_ascii_alphanumeric();
    let with = |more: &str| [from.clone(), vec![more.to_owned()]].concat();
    if let Some(list) = text.strip_prefix('{') {
        let list = list.split_once('}').map_or(list, |(list, _)| list);
        let first =
            |item: &str| item.trim().split(|letter| !is_named(letter)).next().unwrap_or_default().to_owned();
        return list.split(',').map(|item| with(&first(item))).collect();
    }
    let end = text.find(|letter| !is_named(letter)).unwrap_or(text.len());
    let path = with(&text[..end]);
    match text[end..].strip_prefix("::") {
        Some(rest) if end > 0 => paths(path, rest),
        _ => vec![path],
    }
}

/// By the folder that they lie in: which modules use which of their siblings, themselves or by what is in them.
fn siblings(uses: &BTreeMap<Name, BTreeSet<Name>>) -> BTreeMap<Name, BTreeMap<String, BTreeSet<String>>> {
    let mut graphs: BTreeMap<Name, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (own, used) in uses {
        for path in used {
            let common = own.iter().zip(path).take_while(|(own, used)| own == used).count();
            let (Some(from), Some(to)) = (own.get(common), path.get(common)) else { continue };
            if uses.keys().any(|module| module.starts_with(&path[..=common])) {
                let graph = graphs.entry(own[..common].to_vec()).or_default();
                graph.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    graphs
}

/// The modules of a circle, the first one at the end again.
fn circle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn follow(
        graph: &BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        let here = way.last()?.clone();
        for next in graph.get(&here).into_iter().flatten() {
            if let Some(first) = way.iter().position(|module| module == next) {
                return Some([&way[first..], std::slice::from_ref(next)].concat());
            }
            if !done.contains(next) {
                way.push(next.clone());
                if let Some(circle) = follow(graph, way, done) {
                    return Some(circle);
                }
                way.pop();
            }
        }
        done.insert(here);
        None
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| follow(graph, &mut vec![start.clone()], &mut done))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let mut packages = Packages::default();
        files.iter().for_each(|(file, text)| packages.add(Path::new(file), text));
        packages.circles().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_circle_is_found_at_the_root_and_in_a_folder() {
        let root = circles(&[
            ("a/src/lib.rs", "mod x;"),
            ("a/src/x.rs", "use crate::y::Y;"),
            ("a/src/y.rs", "use crate::{\n    z::Z,\n};"),
            ("a/src/z/mod.rs", ""),
            ("a/src/z/inner.rs", "fn f() { super::super::x::f() }"),
        ]);
        assert_eq!(root, ["a/src: modules use each other in a circle: x → y → z → x"]);
        let folder = circles(&[
            ("a/src/r/one.rs", "use super::two::{self, Two};"),
            ("a/src/r/two.rs", "use crate::r::one::One;"),
        ]);
        assert_eq!(folder, ["a/src/r: modules use each other in a circle: one → two → one"]);
    }

    #[test]
    fn parents_tests_comments_and_other_packages_make_none() {
        let none = circles(&[
            ("a/src/r/mod.rs", "use one::One;"),
            ("a/src/r/one.rs", "use super::Outer;\nuse crate::r;\n// super::two\n/// [`super::two`]"),
            ("a/src/r/two.rs", "use super::one;\n#[cfg(test)]\nmod tests {\n    use super::*;\n}"),
            ("a/src/x.rs", "use crate::y;"),
            ("b/src/y.rs", "use crate::x;"),
        ]);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn what_is_no_module_counts_not() {
        assert!(circles(&[("a/src/x.rs", "crate::y::f()"), ("a/src/y.rs", "super::x()")]).len() == 1);
        assert!(circles(&[("a/src/x.rs", "crate::y()"), ("a/src/z.rs", "super::x()")]).is_empty());
    }
}
