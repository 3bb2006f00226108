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
        let number: Option<f64> = text.trim().replace([',', '_'], "").parse().ok();
        number
            .filter(|number| number.is_finite() && *number > 0.0)
            .ok_or_else(|| format!("'{}' is '{text}' in the output: no number above 0", self.name))
    }
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
