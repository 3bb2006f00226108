//! Documents mention only files that exist.

/// Folders that a build or a run makes: a document may speak of them in any clone.
const MADE_LATER: [&str; 2] = ["target", "ample-out"];

/// Files that a Markdown document links to, or names in code quotes, and that do not exist. `exists` tells
/// whether a path does, `is_folder` whether a folder of that name lies in the root of the repository: `a/b` in
/// code quotes is taken for a path only if `a` is one. Fenced code is left alone.
pub fn missing_files(
    text: &str,
    exists: impl Fn(&str) -> bool,
    is_folder: impl Fn(&str) -> bool,
) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_fence = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
            continue;
        }
        if in_fence {
            continue;
        }
        let quoted = code_quotes(line).filter(|path| is_plain_path(path));
        let quoted = quoted.filter(|path| path.split_once('/').is_some_and(|(first, _)| is_folder(first)));
        for path in links(line).chain(quoted) {
            let made_later = path.split('/').next().is_some_and(|first| MADE_LATER.contains(&first));
            if !made_later && !exists(path) {
                found.push((index + 1, format!("{path} does not exist")));
            }
        }
    }
    found
}

/// Targets of `[text](target)` and of `src="…"` and `href="…"` that are files, without the part after `#`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let markdown = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let html = ["src=\"", "href=\""]
        .into_iter()
        .flat_map(|attribute| line.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()));
    let files = markdown.chain(html).map(|target| target.split('#').next().unwrap_or_default());
    files.filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
}

/// The texts between backticks of a line.
fn code_quotes(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether the text could be the path of one file or folder: no pattern, no placeholder, no command.
fn is_plain_path(text: &str) -> bool {
    text.chars().all(|each| each.is_ascii_alphanumeric() || "/._-".contains(each))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<String> {
        let exists = |path: &str| ["docs/design.md", "LICENSE", "allocator/core"].contains(&path);
        let is_folder = |name: &str| ["docs", "allocator", "target"].contains(&name);
        missing_files(text, exists, is_folder)
            .into_iter()
            .map(|(line, message)| format!("{line}: {message}"))
            .collect()
    }

    #[test]
    fn a_link_or_a_quoted_path_to_nothing_is_found() {
        assert_eq!(
            missing("ok\n[a](docs/gone.md) [b](docs/design.md#part)"),
            ["2: docs/gone.md does not exist"]
        );
        assert_eq!(missing("<img src=\"docs/a.svg\">"), ["1: docs/a.svg does not exist"]);
        assert_eq!(
            missing("in `allocator/core` and `allocator/heart`"),
            ["1: allocator/heart does not exist"]
        );
    }

    #[test]
    fn what_is_no_file_of_the_repository_is_left_alone() {
        for text in [
            "[a](https://example.org/x) [b](#part) [c](LICENSE)",
            "`/proc/self/maps`, `ns/op`, `docs/<date>/run.json`, `allocator/*`, `target/release/ample`",
            "```\ncat docs/gone.md [a](docs/gone.md)\n```",
        ] {
            assert!(missing(text).is_empty(), "{text}");
        }
    }
}
