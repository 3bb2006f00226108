//! Finishes a drawing of plotters': colours by CSS variable, a name for screen readers.

use super::palette::{COLOURS, stand_in, style_sheet};

/// Replaces the stand-in colours by CSS variables, and names the picture.
pub fn finish(drawing: &str, name: &str) -> String {
    let mut text = drawing.to_owned();
    for (index, colour) in COLOURS.iter().enumerate() {
        let stand_in = stand_in(index);
        let hexadecimal = format!("#{:02X}{:02X}{:02X}", stand_in.0, stand_in.1, stand_in.2);
        text = text.replace(&hexadecimal, &format!("var({})", colour.name));
    }
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
