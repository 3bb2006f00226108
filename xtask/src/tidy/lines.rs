//! Rules that look at the lines of one file. Each returns line numbers (from 1; 0: the whole file) and
//! messages.

/// Most lines of one file.
const MOST_LINES: usize = 500;

/// Words that mark unfinished work, each in two halves: this very file is checked too.
const MARKS: [(&str, &str); 4] = [("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("HA", "CK")];

/// The memory orderings of `core::sync::atomic::Ordering`.
const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// How many lines of code may stand between a comment and the ordering that it explains.
const REACH: usize = 3;

/// First words of a statement or an item.
const KEYWORDS: [&str; 19] = [
    "let", "return", "use", "pub", "fn", "mod", "const", "static", "if", "for", "while", "match", "impl",
    "loop", "struct", "enum", "unsafe", "else", "}",
];

/// A file of more than [`MOST_LINES`] lines.
pub fn too_long(text: &str) -> Vec<(usize, String)> {
    match text.lines().count() {
        count if count > MOST_LINES => vec![(0, format!("{count} lines; at most {MOST_LINES}: split it"))],
        _ => Vec::new(),
    }
}

/// A mark of unfinished work.
pub fn unfinished_work(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (half, rest) in MARKS {
            let mark = format!("{half}{rest}");
            if words(line).any(|word| word == mark) {
                found.push((index + 1, format!("{mark}: finish it, or leave it to the issue's note")));
            }
        }
    }
    found
}

/// A comment that looks like code. Documentation comments may hold examples.
pub fn code_in_comments(text: &str) -> Vec<(usize, String)> {
    let looks = |line: &str| {
        let line = line.trim_start();
        let documentation = line.starts_with("///") || line.starts_with("//!");
        !documentation && line.strip_prefix("//").is_some_and(|comment| looks_like_code(comment.trim()))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| looks(line));
    lines.map(|(index, _)| (index + 1, "code in a comment: remove it".to_string())).collect()
}

/// Whether the text of a comment is a statement or the head of a block: it ends like one, and it begins with a
/// keyword, is an assignment, or is a call. Prose that ends with a semicolon is none of these.
fn looks_like_code(comment: &str) -> bool {
    let keyword = comment.split([' ', '(', ';']).next().is_some_and(|word| KEYWORDS.contains(&word));
    if let Some(statement) = comment.strip_suffix(';') {
        let is_path = |text: &str| {
            !text.is_empty() && text.chars().all(|each| each.is_alphanumeric() || "_.:*&![]<>".contains(each))
        };
        let operators = [' ', '+', '-', '*', '/', '|', '&', '^'];
        let assignment =
            statement.split_once("= ").is_some_and(|(place, _)| is_path(place.trim_end_matches(operators)));
        let call =
            statement.ends_with(')') && statement.split_once('(').is_some_and(|(path, _)| is_path(path));
        let declaration = keyword && (statement.contains(['=', '(', ':']) || statement.starts_with("return"));
        return assignment || call || declaration;
    }
    keyword && comment.ends_with('{')
}

/// A memory ordering without a comment that begins with its name (`// Release: pairs with the Acquire in …`)
/// on the same line or above it, with at most [`REACH`] lines of code between. One comment may explain two
/// orderings. A test module at the end of a file is exempt.
pub fn unexplained_orderings(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|two| two[0] == "#[cfg(test)]" && two[1].starts_with("mod "));
    let end = tests.unwrap_or(lines.len());
    let mut found = Vec::new();
    for (index, line) in lines[..end].iter().enumerate() {
        let (code, comment) = split_comment(line);
        if code.contains("Ordering::{") || code.contains("Ordering::*") {
            found.push((index + 1, "write Ordering::NAME in full, so that each use is found".to_string()));
        }
        let used = code.split("Ordering::").skip(1).filter_map(|rest| words(rest).next());
        for name in used.filter(|name| ORDERINGS.contains(name)) {
            if !explains(comment, name) && !comments_above(&lines[..index]).any(|above| explains(above, name))
            {
                let message =
                    format!("{name} without a comment that begins with its name and says why it suffices");
                found.push((index + 1, message));
            }
        }
    }
    found
}

/// The comments above a line, nearest first, until more than [`REACH`] lines of code lie between.
fn comments_above<'a>(lines: &[&'a str]) -> impl Iterator<Item = &'a str> {
    let mut code_lines = 0;
    lines
        .iter()
        .rev()
        .map(|line| split_comment(line))
        .take_while(move |(code, _)| {
            code_lines += usize::from(!code.trim().is_empty());
            code_lines <= REACH
        })
        .map(|(_, comment)| comment)
}

/// Whether a comment begins with the name of an ordering, and this one stands before one of its colons:
/// `Release: …`, `AcqRel, Acquire on failure: …`, `Acquire: …. Relaxed: …`.
fn explains(comment: &str, ordering: &str) -> bool {
    let begins = words(comment).next().is_some_and(|first| ORDERINGS.contains(&first));
    let Some((head, rest)) = comment.split_once(':') else { return false };
    begins && (words(head).any(|word| word == ordering) || rest.contains(&format!("{ordering}:")))
}

/// A line's code and the text of the comment at its end, both possibly empty.
fn split_comment(line: &str) -> (&str, &str) {
    match line.split_once("//") {
        Some((code, comment)) => (code, comment.trim_start_matches(['/', '!']).trim()),
        None => (line, ""),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|each: char| !each.is_alphanumeric() && each != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(found: &[(usize, String)]) -> Vec<usize> {
        found.iter().map(|(line, _)| *line).collect()
    }

    #[test]
    fn five_hundred_lines_are_fine_and_one_more_is_not() {
        assert!(too_long(&"x\n".repeat(500)).is_empty());
        assert_eq!(numbers(&too_long(&"x\n".repeat(501))), [0]);
    }

    #[test]
    fn marks_are_found_as_whole_words() {
        for (half, rest) in MARKS {
            assert_eq!(numbers(&unfinished_work(&format!("fine\n// {half}{rest}: later\n"))), [2]);
        }
        assert!(unfinished_work("mkstemp(\"/tmp/aXXXXXX\"); // HACKATHON").is_empty());
    }

    #[test]
    fn statements_in_comments_are_found() {
        for code in
            ["let x = 1;", "return;", "self.count += 1;", "use std::fmt;", "span.release(2);", "a[0] = b;"]
        {
            assert_eq!(numbers(&code_in_comments(&format!("ok\n    // {code}\n"))), [2], "{code}");
        }
        for head in ["if x > 1 {", "fn f() -> u8 {", "} else {", "unsafe {"] {
            assert_eq!(numbers(&code_in_comments(&format!("ok\n//{head}\n"))), [2], "{head}");
        }
    }

    #[test]
    fn prose_and_documentation_are_not_code() {
        for prose in [
            "The block is free (nobody else sees it);",
            "let the owner take it back;",
            "see free() in heap.rs",
            "a span is 64 KiB; its header is one page",
        ] {
            assert!(code_in_comments(&format!("// {prose}\n")).is_empty(), "{prose}");
        }
        assert!(code_in_comments("/// let x = 1;\n//! let x = 1;\nlet x = 1;\n").is_empty());
    }

    #[test]
    fn an_ordering_needs_a_comment_that_begins_with_its_name() {
        let explained = "// Release: pairs with the Acquire in pop.\nx.store(1, Ordering::Release);\n";
        assert!(unexplained_orderings(explained).is_empty());
        assert!(unexplained_orderings("x.load(Ordering::Relaxed); // Relaxed: a hint.\n").is_empty());
        assert_eq!(numbers(&unexplained_orderings("x.load(Ordering::Relaxed);\n")), [1]);
        let both = "// Acquire: pairs with the Release in b. Relaxed: a failure reads nothing.\n";
        assert!(
            unexplained_orderings(&format!("{both}f(Ordering::Acquire, Ordering::Relaxed);\n")).is_empty()
        );
        let other = "// Acquire: pairs with the Release in push.\nx.store(1, Ordering::Release);\n";
        assert_eq!(numbers(&unexplained_orderings(other)), [2]);
        let late = "// It is Relaxed: a hint.\nx.load(Ordering::Relaxed);\n";
        assert_eq!(numbers(&unexplained_orderings(late)), [2]);
        assert_eq!(numbers(&unexplained_orderings("use core::sync::atomic::Ordering::*;\n")), [1]);
        assert!(unexplained_orderings("a.cmp(&b) == Ordering::Less\n").is_empty());
    }

    #[test]
    fn one_comment_may_explain_two_orderings_and_reaches_three_lines_of_code() {
        let two = "// AcqRel, Acquire on failure: takes the list.\n// More words.\nx.compare_exchange(\n    a,\n    b,\n";
        let near = format!("{two}    Ordering::AcqRel, Ordering::Acquire,\n);\n");
        assert!(unexplained_orderings(&near).is_empty());
        let far = format!("{two}    c,\n    Ordering::AcqRel, Ordering::Acquire,\n);\n");
        assert_eq!(numbers(&unexplained_orderings(&far)), [7, 7]);
    }

    #[test]
    fn test_modules_need_no_comments_on_orderings() {
        let module = "#[cfg(test)]\nmod tests {\n    x.load(Ordering::SeqCst);\n}\n";
        assert!(unexplained_orderings(module).is_empty());
        let helper = "    #[cfg(test)]\n    fn count() {}\n    x.load(Ordering::SeqCst);\n";
        assert_eq!(numbers(&unexplained_orderings(helper)), [3]);
    }
}
