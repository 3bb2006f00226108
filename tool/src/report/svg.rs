//! Finishes a drawing of plotters': colours by CSS variable, a name for screen readers.

use std::sync::LazyLock;

use regex_lite::{Captures, Regex};

use super::palette::{COLOURS, stand_in, style_sheet};

/// First character of a text that is none: from here on, what is drawn belongs to the allocator whose name follows.
pub const BEGIN: char = '\u{2}';
/// A text that is none: the end of what belongs to an allocator.
pub const END: char = '\u{3}';

/// Replaces the stand-in colours by CSS variables, turns marks into groups, and names the picture.
pub fn finish(drawing: &str, name: &str) -> String {
    let mut text = drawing.to_owned();
    for (index, colour) in COLOURS.iter().enumerate() {
        let stand_in = stand_in(index);
        let hexadecimal = format!("#{:02X}{:02X}{:02X}", stand_in.0, stand_in.1, stand_in.2);
        text = text.replace(&hexadecimal, &format!("var({})", colour.name));
    }
    static MARK: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(&format!("<text [^>]*>\\n(?:{BEGIN}(.*)|{END})\\n</text>\\n?")).expect("a pattern")
    });
    let text = MARK.replace_all(&text, |found: &Captures<'_>| match found.get(1) {
        Some(name) => format!("<g data-allocator=\"{}\">\n", name.as_str().replace('"', "&quot;")),
        None => "</g>\n".to_owned(),
    });
    let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    text.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{name}\" "), 1)
}

/// The same as a file of its own, which brings its colours along.
pub fn standalone(finished: &str) -> String {
    let style = style_sheet();
    finished.replacen(
        '>',
        &format!(
            "><style>{style}svg{{background:var(--page)}}text{{font-family:system-ui,sans-serif}}</style>"
        ),
        1,
    )
}
