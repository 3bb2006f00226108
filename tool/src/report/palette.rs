//! One colour and one marker an allocator, the same in all plots, in light and dark.
//!
//! Plots are drawn in stand-in colours; [`super::svg`] replaces each by a CSS variable, so that one
//! drawing serves both colour schemes. Hues after Okabe & Ito (2008), darkened or lightened where
//! the contrast with the page demands it. Relatives share a hue and differ in the marker.

use plotters::style::RGBColor;

use crate::allocators::{BASELINE, OURS};

/// A colour of the page.
#[derive(Debug, Clone, Copy)]
pub struct Colour {
    /// Name of the CSS variable.
    pub name: &'static str,
    /// Value on a light page.
    pub light: &'static str,
    /// Value on a dark page.
    pub dark: &'static str,
}

/// The colour of limits.
const LIMITS: &str = "--s-limit";

const fn colour(name: &'static str, light: &'static str, dark: &'static str) -> Colour {
    Colour { name, light, dark }
}

/// All colours of the page and its plots.
pub const COLOURS: &[Colour] = &[
    colour("--ink", "#1f2328", "#e6edf3"),
    colour("--faint", "#59636e", "#9198a1"),
    colour("--grid", "#d8dee4", "#30363d"),
    colour("--page", "#ffffff", "#0d1117"),
    colour("--card", "#f6f8fa", "#161b22"),
    colour("--link", "#0758b8", "#6cb1ff"),
    colour("--good", "#00704f", "#2fc79a"),
    colour("--bad", "#b34700", "#ff8a3c"),
    colour("--s-ample", "#b85000", "#ff8a3c"),
    colour("--s-glibc", "#1f2328", "#e6edf3"),
    colour("--s-jemalloc", "#0072b2", "#4aa8e8"),
    colour("--s-mimalloc", "#00805c", "#2fc79a"),
    colour("--s-snmalloc", "#a8497f", "#e59ac3"),
    colour("--s-rpmalloc", "#1c739f", "#7cc8f2"),
    colour("--s-tcmalloc", "#8f6200", "#e9b03a"),
    colour("--s-tbbmalloc", "#6f6f00", "#d8d34a"),
    colour("--s-scudo", "#7a5230", "#c9a07a"),
    colour("--s-other", "#6e5bb8", "#a99bf0"),
    colour(LIMITS, "#59636e", "#9198a1"),
];

/// Index of the colour of text and axes.
pub const INK: usize = 0;
/// Index of the colour of minor text.
pub const FAINT: usize = 1;
/// Index of the colour of grid lines.
pub const GRID: usize = 2;

/// The stand-in for a colour of [`COLOURS`].
pub const fn stand_in(index: usize) -> RGBColor {
    RGBColor(1, 2, index as u8)
}

/// How a point is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// A filled circle.
    Disc,
    /// An empty circle.
    Ring,
    /// A filled triangle.
    Triangle,
    /// Nothing: the line alone.
    None,
}

impl Marker {
    /// The character that looks like it in a line of text.
    pub fn character(self) -> char {
        match self {
            Self::Disc => '●',
            Self::Ring => '○',
            Self::Triangle => '▲',
            Self::None => ' ',
        }
    }
}

/// Looks of an allocator.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Index of its colour.
    pub colour: usize,
    /// Its marker.
    pub marker: Marker,
    /// Width of its lines, in pixels.
    pub width: u32,
    /// Whether its lines are dashed: those of limits.
    pub dashed: bool,
}

impl Look {
    /// Whether its name is bold.
    pub fn is_bold(self) -> bool {
        self.width > 2
    }
}

const LOOKS: &[(&str, &str, Marker)] = &[
    (OURS, "--s-ample", Marker::Disc),
    (BASELINE, "--s-glibc", Marker::Disc),
    ("jemalloc", "--s-jemalloc", Marker::Disc),
    ("jemalloc-debian", "--s-jemalloc", Marker::Ring),
    ("mimalloc3", "--s-mimalloc", Marker::Disc),
    ("mimalloc2", "--s-mimalloc", Marker::Ring),
    ("mimalloc-debian", "--s-mimalloc", Marker::Triangle),
    ("snmalloc", "--s-snmalloc", Marker::Disc),
    ("rpmalloc", "--s-rpmalloc", Marker::Disc),
    ("tcmalloc", "--s-tcmalloc", Marker::Disc),
    ("gperftools", "--s-tcmalloc", Marker::Ring),
    ("tbbmalloc", "--s-tbbmalloc", Marker::Disc),
    ("scudo", "--s-scudo", Marker::Disc),
    ("floor", LIMITS, Marker::Disc),
    ("single-lock", LIMITS, Marker::Ring),
];

/// The looks of an allocator of this name; a variant has its kin's colour and a marker of its own.
pub fn look(name: &str) -> Look {
    let base = name.split(':').next().unwrap_or(name);
    let known = LOOKS.iter().find(|(known, ..)| *known == base);
    let (variable, marker) =
        known.map_or(("--s-other", Marker::Disc), |&(_, variable, marker)| (variable, marker));
    let colour = COLOURS.iter().position(|colour| colour.name == variable).unwrap_or(INK);
    let marker = if base == name { marker } else { Marker::Triangle };
    let width = match base {
        OURS => 4,
        BASELINE => 2,
        _ => 1,
    };
    Look { colour, marker, width, dashed: variable == LIMITS }
}

/// The style sheet that gives the variables their values in both schemes.
pub fn style_sheet() -> String {
    let values = |pick: fn(&Colour) -> &'static str| -> String {
        COLOURS.iter().map(|colour| format!("{}:{};", colour.name, pick(colour))).collect()
    };
    format!(
        ":root{{{}}}@media (prefers-color-scheme:dark){{:root{{{}}}}}",
        values(|colour| colour.light),
        values(|colour| colour.dark)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::names;

    #[test]
    fn every_known_allocator_looks_different() {
        let mut looks: Vec<(usize, String)> =
            names().map(|name| (look(name).colour, format!("{:?}", look(name).marker))).collect();
        assert!(looks.iter().all(|(colour, _)| COLOURS[*colour].name.starts_with("--s-")));
        let count = looks.len();
        looks.sort();
        looks.dedup();
        assert_eq!(looks.len(), count);
    }

    #[test]
    fn text_can_be_read_on_the_page_and_on_cards_in_both_schemes() {
        // Contrast as the Web Content Accessibility Guidelines define it: 4.5 at least for text.
        let luminance = |colour: &str| {
            let channel = |from: usize| {
                let value =
                    f64::from(u8::from_str_radix(&colour[from..from + 2], 16).expect("hexadecimal")) / 255.0;
                if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
        };
        let contrast = |a: &str, b: &str| {
            let (a, b) = (luminance(a), luminance(b));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        let of = |name: &str| COLOURS.iter().find(|colour| colour.name == name).expect("a colour");
        let backgrounds = [of("--page"), of("--card")];
        for text in COLOURS.iter().filter(|colour| !["--grid", "--page", "--card"].contains(&colour.name)) {
            for background in backgrounds {
                assert!(contrast(text.light, background.light) >= 4.5, "{}, light", text.name);
                assert!(contrast(text.dark, background.dark) >= 4.5, "{}, dark", text.name);
            }
        }
    }

    #[test]
    fn limits_and_nothing_else_are_dashed() {
        let dashed: Vec<&str> = names().filter(|name| look(name).dashed).collect();
        assert_eq!(dashed, ["floor", "single-lock"]);
    }

    #[test]
    fn a_variant_keeps_the_colour_of_its_kin() {
        assert_eq!(look("glibc:X=1").colour, look("glibc").colour);
        assert_ne!(look("glibc:X=1").marker, look("glibc").marker);
        assert_eq!(COLOURS[look("mine").colour].name, "--s-other");
    }
}
