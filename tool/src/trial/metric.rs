//! A figure that a program prints of itself.

use regex_lite::{Regex, RegexBuilder};

/// How to read a figure from a program's output.
#[derive(Debug, Clone)]
pub struct Metric {
    /// Its name in tables.
    pub name: String,
    /// Whether less of it is better.
    pub lower_is_better: bool,
    pattern: Regex,
}

impl Metric {
    /// Takes `NAME=REGEX`, or `NAME:lower=REGEX` where less is better. The first group of the expression,
    /// or all of it where there is none, is the number; `^` and `$` match at lines.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "write NAME=REGEX, or NAME:lower=REGEX where less is better";
        let (name, pattern) = text.split_once('=').ok_or(FORM)?;
        let (name, lower_is_better) = match name.split_once(':') {
            None => (name, false),
            Some((name, "lower")) => (name, true),
            Some((name, "higher")) => (name, false),
            Some((_, other)) => return Err(format!("'{other}' is no direction; {FORM}")),
        };
        if name.is_empty() || pattern.is_empty() {
            return Err(FORM.into());
        }
        let pattern =
            RegexBuilder::new(pattern).multi_line(true).build().map_err(|error| error.to_string())?;
        Ok(Self { name: name.into(), lower_is_better, pattern })
    }

    /// Its name among the further figures of a measurement.
    pub fn key(&self) -> String {
        format!("metric.{}", self.name)
    }

    /// The figure in this output: of several, the last one. Fails where there is none, or none above 0.
    pub fn read(&self, output: &str) -> Result<f64, String> {
        let found = self.pattern.captures_iter(output).last();
        let found = found.ok_or_else(|| format!("no '{}' in the output", self.name))?;
        let text = found.get(1).or(found.get(0)).map_or("", |text| text.as_str());
        let refused = |reason: &str| format!("'{}' is '{text}' in the output: {reason}", self.name);
        let plain = without_separators(text.trim()).map_err(|reason| refused(&reason))?;
        let number: Option<f64> = plain.parse().ok();
        number
            .filter(|number| number.is_finite() && *number > 0.0)
            .ok_or_else(|| refused("no number above 0"))
    }
}

/// The number as Rust reads it. Commas or underscores may part groups of three digits (`1,234,567.8`); a comma that does
/// not, and is the only mark, comes before decimals (`12,5`). Fails for what may be read in more ways than one.
fn without_separators(text: &str) -> Result<String, String> {
    const MARKS: [char; 2] = [',', '_'];
    if !text.contains(MARKS) {
        return Ok(text.into());
    }
    let exponent = text.find(['e', 'E']).unwrap_or(text.len());
    let (number, exponent) = text.split_at(exponent);
    let (whole, decimals) = number.split_at(number.find('.').unwrap_or(number.len()));
    for mark in MARKS {
        if is_grouped(whole.trim_start_matches(['+', '-']), mark) && !decimals.contains(MARKS) {
            return Ok(format!("{}{decimals}{exponent}", whole.replace(mark, "")));
        }
    }
    match number.split_once(',') {
        Some((whole, decimals)) if are_digits(whole.trim_start_matches(['+', '-'])) && are_digits(decimals) => {
            Ok(format!("{whole}.{decimals}{exponent}"))
        }
        _ => Err("commas and underscores are read between groups of three digits (1,234,567), or one comma before decimals \
                  (12,5)"
            .into()),
    }
}

/// Whether these are at most three digits, not with a 0 in front, and groups of three after this mark.
fn is_grouped(digits: &str, mark: char) -> bool {
    let mut groups = digits.split(mark);
    let first = groups.next().unwrap_or_default();
    let mut groups = groups.peekable();
    (1..=3).contains(&first.len())
        && are_digits(first)
        && !first.starts_with('0')
        && groups.peek().is_some()
        && groups.all(|group| group.len() == 3 && are_digits(group))
}

fn are_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_counts_and_separators_are_no_harm() {
        let metric = Metric::parse(r"requests=^SET: ([\d.,]+) requests").expect("valid");
        let output = "SET: 10.5 requests\rrest\nSET: 123,456.5 requests per second\n";
        assert_eq!(metric.read(output), Ok(123_456.5));
        assert!(!metric.lower_is_better);
        assert_eq!(Metric::parse(r"n=\d+").expect("valid").read("x 7 y"), Ok(7.0));
    }

    #[test]
    fn commas_part_thousands_or_decimals_and_nothing_is_guessed() {
        let metric = Metric::parse("n=is (.*)").expect("valid");
        let read = |text: &str| metric.read(&format!("it is {text}"));
        for (text, number) in [
            ("1,234,567", 1_234_567.0),
            ("1_234_567.5", 1_234_567.5),
            ("1,234", 1234.0),
            ("12,5", 12.5),
            ("0,125", 0.125),
            ("1234,567", 1234.567),
            ("+12,5e3", 12_500.0),
            ("1,234.5e-3", 1.2345),
            ("12.5", 12.5),
        ] {
            assert_eq!(read(text), Ok(number), "{text}");
        }
        for text in
            ["1,234,56", "1.234,5", "12_5", "1,234_567", "1_234,567", ",5", "5,", "12,5 ms", "1.5,000"]
        {
            let reason = read(text).expect_err(text);
            assert!(reason.starts_with(&format!("'n' is '{text}' in the output: commas and")), "{reason}");
        }
    }

    #[test]
    fn what_is_no_number_above_zero_is_a_reason() {
        let metric = Metric::parse("ms:lower=took (.*) ms").expect("valid");
        assert!(metric.lower_is_better);
        assert_eq!(metric.read("nothing"), Err("no 'ms' in the output".into()));
        assert_eq!(metric.read("took 0 ms"), Err("'ms' is '0' in the output: no number above 0".into()));
        assert!(metric.read("took x ms").is_err());
    }

    #[test]
    fn a_malformed_metric_says_how_to_write_one() {
        for text in ["plain", "=x", "x=", "x:up=y"] {
            assert!(Metric::parse(text).expect_err("refused").contains("write NAME=REGEX"), "{text}");
        }
        assert!(Metric::parse("x=(").is_err());
    }
}
