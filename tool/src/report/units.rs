//! Numbers as people read them.

use crate::stats::{Estimate, Metric};

/// A figure of this metric, with its unit.
pub fn figure(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Throughput => rate(value),
        Metric::PeakRss => bytes(value),
    }
}

/// The same without digits that say nothing, for an axis.
pub fn tick(metric: Metric, value: f64) -> String {
    let text = figure(metric, value);
    let Some((number, unit)) = text.split_once(' ') else { return text };
    format!("{} {unit}", trim(number))
}

/// Without zeros after the decimal point.
pub fn trim(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// Operations per second: `12.3 M/s`.
pub fn rate(operations_per_second: f64) -> String {
    let (value, unit) = scale(operations_per_second, 1000.0, &["", "k", "M", "G"]);
    format!("{} {unit}/s", significant(value)).replace("  ", " ")
}

/// Bytes: `12.3 MiB`.
pub fn bytes(bytes: f64) -> String {
    let (value, unit) = scale(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]);
    format!("{} {unit}", significant(value))
}

/// A number: `12.3 k`; a small whole one to the digit.
pub fn count(number: f64) -> String {
    if number < 1000.0 && number.fract() == 0.0 {
        return format!("{number:.0}");
    }
    let (value, unit) = scale(number, 1000.0, &["", "k", "M", "G", "T"]);
    format!("{} {unit}", significant(value)).trim_end().to_owned()
}

/// A time: `12.3 µs`.
pub fn nanoseconds(time: f64) -> String {
    let (value, unit) = scale(time, 1000.0, &["ns", "µs", "ms", "s"]);
    format!("{} {unit}", trim(&significant(value)))
}

/// Seconds: `1.23 s`, `12.3 ms`.
pub fn seconds(seconds: f64) -> String {
    let (value, unit) = if seconds < 1.0 { (seconds * 1000.0, "ms") } else { (seconds, "s") };
    format!("{} {unit}", significant(value))
}

/// A ratio: `1.31×`.
pub fn multiple(ratio: f64) -> String {
    if ratio >= 9.995 { format!("{}×", significant(ratio)) } else { format!("{ratio:.2}×") }
}

/// The interval of a ratio: `1.25–1.37`; `?` where it tells nothing.
pub fn interval(ratio: Estimate) -> String {
    if ratio.is_telling() { format!("{:.2}–{:.2}", ratio.low, ratio.high) } else { "?".into() }
}

/// A share: `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A noise floor: `1.2 %`; without a number where so few blocks tell none.
pub fn floor(share: f64) -> String {
    const MOST: f64 = 9.0;
    if share <= MOST { percent(share) } else { "unknown".into() }
}

/// A number of threads: `1 thread`, `2 threads`.
pub fn threads(count: u32) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// A number of blocks of a run: `1 block`, `2 blocks`.
pub fn blocks(count: usize) -> String {
    format!("{count} block{}", if count == 1 { "" } else { "s" })
}

/// A number of rows: `1 row`, `2 rows`.
pub fn rows(count: usize) -> String {
    format!("{count} row{}", if count == 1 { "" } else { "s" })
}

/// A time stamp as in `20261120T143200Z`, as people write it: `20 November 2026, 14:32 UTC`.
pub fn moment(stamp: &str) -> String {
    let parsed = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", stamp);
    parsed.map_or_else(|_| stamp.to_owned(), |time| time.strftime("%-d %B %Y, %H:%M UTC").to_string())
}

/// What is smaller counts as nothing: it would be a line of zeros.
const LEAST: f64 = 1e-9;

/// Three significant digits, without an exponent.
pub fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.0995 => 2,
        // What is small is told by its digits, not by zeros: one over a time in milliseconds, say.
        v if v >= LEAST => (2.0 - v.log10().floor()) as usize,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

fn scale<'a>(mut value: f64, step: f64, units: &[&'a str]) -> (f64, &'a str) {
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    (value, units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(rate(12_345_678.0), "12.3 M/s");
        assert_eq!(rate(5.0), "5.00 /s");
        assert_eq!((rate(0.002).as_str(), rate(0.0123).as_str()), ("0.00200 /s", "0.0123 /s"));
        assert_eq!((significant(0.25).as_str(), significant(0.0).as_str()), ("0.25", "0.00"));
        assert_eq!((seconds(0.0123).as_str(), seconds(61.2).as_str()), ("12.3 ms", "61.2 s"));
        assert_eq!((count(12.0).as_str(), count(12_345.0).as_str()), ("12", "12.3 k"));
        assert_eq!(bytes(3.5 * 1024.0 * 1024.0), "3.50 MiB");
        assert_eq!((count(999.0).as_str(), count(12_345.0).as_str()), ("999", "12.3 k"));
        assert_eq!((nanoseconds(30.0).as_str(), nanoseconds(1_234.0).as_str()), ("30 ns", "1.23 µs"));
        assert_eq!(
            (floor(0.1234).as_str(), threads(1).as_str(), threads(2).as_str()),
            ("12.3 %", "1 thread", "2 threads")
        );
        assert_eq!((rows(0).as_str(), rows(1).as_str()), ("0 rows", "1 row"));
        assert_eq!(floor(128.58), "unknown");
        assert_eq!(moment("20261120T143200Z"), "20 November 2026, 14:32 UTC");
        assert_eq!(moment("yesterday"), "yesterday");
        assert_eq!((multiple(1.3149).as_str(), multiple(123.4).as_str()), ("1.31×", "123×"));
        let ratio = |low, high| interval(Estimate { value: 1.3, low, high });
        assert_eq!([ratio(1.25, 1.37), ratio(0.01, 1.37), ratio(1.25, 1e9)], ["1.25–1.37", "?", "?"]);
    }
}
