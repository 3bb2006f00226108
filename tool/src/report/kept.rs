//! What servers keep of their memory, one second after their load.

use serde::Serialize;

use super::{columns, units};
use crate::allocators::Allocator;
use crate::record::{Judgement, Pass};
use crate::run::Conclusion;
use crate::stats::hodges_lehmann;

/// Memory after the load, of each server under each allocator.
#[derive(Debug, Serialize)]
pub struct Kept {
    /// The allocators: columns.
    allocators: Vec<String>,
    /// The servers: rows.
    rows: Vec<Row>,
}

/// One server.
#[derive(Debug, Serialize)]
struct Row {
    server: String,
    /// Bytes, one figure an allocator: Hodges–Lehmann estimates over blocks; none where it failed.
    bytes: Vec<Option<f64>>,
}

impl Kept {
    /// Takes the figures of these servers out of a run.
    pub fn of(conclusion: &Conclusion, allocators: &[Allocator], servers: &[&str]) -> Self {
        let bytes = |server: &str, allocator: &Allocator| {
            let samples = conclusion.samples.iter().filter(|sample| {
                sample.pass == Pass::Timed && sample.workload == server && sample.allocator == allocator.name
            });
            let figures: Vec<f64> = samples
                .filter_map(|sample| match &sample.result {
                    Judgement::Measured(measurement) => Some(measurement.final_rss_bytes as f64),
                    _ => None,
                })
                .collect();
            hodges_lehmann(&figures)
        };
        let row = |server: &&str| Row {
            server: (*server).to_owned(),
            bytes: allocators.iter().map(|allocator| bytes(server, allocator)).collect(),
        };
        Self {
            allocators: allocators.iter().map(|allocator| allocator.name.clone()).collect(),
            rows: servers.iter().map(row).filter(|row| row.bytes.iter().any(Option::is_some)).collect(),
        }
    }

    /// A table; nothing where no server has figures.
    pub fn text(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let head: Vec<String> =
            std::iter::once("server".to_owned()).chain(self.allocators.iter().cloned()).collect();
        let text = |bytes: &Option<f64>| bytes.map_or_else(|| "–".into(), units::bytes);
        let cells: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| std::iter::once(row.server.clone()).chain(row.bytes.iter().map(text)).collect())
            .collect();
        format!("\nMemory of servers one second after their load\n{}\n", columns::rows(&head, &cells, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing::conclude;

    #[test]
    fn only_servers_with_figures_have_a_row() {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let (_, conclusion) = conclude(&allocators, 3, usize::MAX, |asked, measurement| {
            measurement.final_rss_bytes = if asked.allocator == "x" { 2 << 20 } else { 1 << 20 };
            None
        });
        let server = conclusion.samples.last().expect("samples").workload.clone();
        let kept = Kept::of(&conclusion, &allocators, &[&server, "absent"]);
        assert_eq!(kept.rows.len(), 1);
        assert_eq!(kept.rows[0].bytes, [Some(1_048_576.0), Some(2_097_152.0)]);
        assert!(kept.text().contains("1.00 MiB") && kept.text().contains("2.00 MiB"), "{}", kept.text());
        assert_eq!(Kept::of(&conclusion, &allocators, &[]).text(), "");
    }
}
