//! Runs as they belong together: the shards of one run become that run, and no other runs are mixed.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::record::{BlockLog, Judgement, Noise, Part, Run, Sample, Shard, Stored};
use crate::run::{complete_blocks, lost};

/// A run that was measured in one, or put together from its shards.
#[derive(Debug)]
pub struct Merged {
    /// Its record.
    pub run: Run,
    /// All its samples; blocks are numbered through.
    pub samples: Vec<Sample>,
    /// Where it lies.
    pub folders: Vec<PathBuf>,
    /// What a reader should know of how it came about; none where there is nothing to say.
    pub note: Option<String>,
}

/// Puts the runs together. Shards of one run that ran on machines of different kinds stay apart.
///
/// Fails for shards that cannot all be parts of whole runs: one of them twice, or shards of different plans or
/// files where some are missing.
pub fn merge(runs: Vec<Stored>) -> Result<Vec<Merged>> {
    let mut places: Vec<Vec<Stored>> = Vec::new();
    for stored in runs {
        let mate = places.iter_mut().find(|place| {
            let first = &place[0].run;
            stored.run.shard.is_some()
                && differences(first, &stored.run).is_empty()
                && first.machine.differences(&stored.run.machine).is_empty()
        });
        match mate {
            Some(place) => place.push(stored),
            None => places.push(vec![stored]),
        }
    }
    refuse_strangers(&places)?;
    places.into_iter().map(put_together).collect()
}

/// Why two shards are not of one run; nothing where they may be.
fn differences(one: &Run, other: &Run) -> Vec<String> {
    let count = |run: &Run| run.shard.map(|shard| shard.count);
    let mut found = Vec::new();
    if count(one) != count(other) {
        let number = |run: &Run| count(run).map_or("no shards".to_owned(), |count| format!("{count} shards"));
        found.push(format!("{}, and {}", number(one), number(other)));
    }
    found.extend(one.plan_differences(other));
    found.extend(one.binary_differences(other));
    found
}

/// Shards of different runs are fine if every run is whole; otherwise somebody took the wrong folder.
fn refuse_strangers(places: &[Vec<Stored>]) -> Result<()> {
    let sharded = || places.iter().filter(|place| place[0].run.shard.is_some());
    for incomplete in sharded().filter(|place| !missing(place).is_empty()) {
        let first = &incomplete[0];
        let stranger =
            sharded().map(|place| &place[0]).find(|other| !differences(&first.run, &other.run).is_empty());
        if let Some(other) = stranger {
            bail!(
                "{} and {} are not of one run: {}; report them one at a time",
                name(first),
                name(other),
                differences(&first.run, &other.run).join("; ")
            );
        }
    }
    Ok(())
}

fn name(stored: &Stored) -> String {
    let path = stored.path.display();
    stored.run.shard.map_or_else(|| path.to_string(), |shard| format!("{path} (shard {shard})"))
}

/// Shards of this run that are not there.
fn missing(place: &[Stored]) -> Vec<Shard> {
    let present: Vec<Shard> = place.iter().filter_map(|stored| stored.run.shard).collect();
    let count = present.first().map_or(0, |shard| shard.count);
    (1..=count).map(|index| Shard { index, count }).filter(|shard| !present.contains(shard)).collect()
}

fn put_together(mut place: Vec<Stored>) -> Result<Merged> {
    if place[0].run.shard.is_none() {
        let Stored { path, mut run, samples } = place.remove(0);
        if let Some(lost) = lost(&run, &samples) {
            run.blocks = complete_blocks(&run, &samples);
            run.damage = Some(lost);
        }
        let note = joined(note(&run.merged).into_iter().chain(run.damage.clone()));
        return Ok(Merged { run, samples, folders: vec![path], note });
    }
    place.sort_by_key(|stored| stored.run.shard);
    for pair in place.windows(2) {
        if pair[0].run.shard == pair[1].run.shard {
            bail!("{} and {} are the same shard; leave one of them out", name(&pair[0]), name(&pair[1]));
        }
    }
    let numbers = Numbers::of(&place);
    let mut samples = Vec::new();
    for (stored, shard) in shards(&place) {
        samples.extend(stored.samples.iter().filter_map(|sample| numbers.renumbered(sample, shard)));
    }
    samples.sort_by_key(|sample| (sample.block.is_some(), sample.block));
    let run = record(&place, &numbers);
    let note = joined(note(&run.merged).into_iter().chain(run.damage.clone()));
    Ok(Merged { run, samples, folders: place.into_iter().map(|stored| stored.path).collect(), note })
}

fn joined(notes: impl Iterator<Item = String>) -> Option<String> {
    Some(notes.collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty())
}

fn shards(place: &[Stored]) -> impl Iterator<Item = (&Stored, Shard)> {
    place.iter().filter_map(|stored| Some((stored, stored.run.shard?)))
}

/// Which parts there are, and which are missing. None without parts.
fn note(parts: &[Part]) -> Option<String> {
    let count = parts.first()?.shard.count;
    let told = |part: &Part| {
        let blocks = if part.blocks == 1 { "block" } else { "blocks" };
        format!("{} ({}, {} {blocks})", part.shard, part.host, part.blocks)
    };
    let told: Vec<String> = parts.iter().map(told).collect();
    let mut note = format!("Merged from the shards {}.", told.join(", "));
    let is_missing = |shard: &Shard| parts.iter().all(|part| part.shard != *shard);
    let shards = (1..=count).map(|index| Shard { index, count });
    let missing: Vec<String> = shards.filter(is_missing).map(|shard| shard.to_string()).collect();
    if !missing.is_empty() {
        note += &format!(" Missing: {}.", missing.join(", "));
    }
    Some(note)
}

/// Complete blocks of a shard.
fn complete(stored: &Stored) -> usize {
    complete_blocks(&stored.run, &stored.samples)
}

/// The numbers of all complete blocks in the whole run, in order: without gaps where a shard is missing or was
/// interrupted.
struct Numbers(Vec<usize>);

impl Numbers {
    fn of(place: &[Stored]) -> Self {
        let own = |(stored, shard): (&Stored, Shard)| {
            (0..complete(stored)).map(|own| shard.block(own)).collect::<Vec<_>>()
        };
        let mut blocks: Vec<usize> = shards(place).flat_map(own).collect();
        blocks.sort_unstable();
        Self(blocks)
    }

    fn number(&self, shard: Shard, own: usize) -> Option<usize> {
        self.0.binary_search(&shard.block(own)).ok()
    }

    /// The sample with the number of its block. None for one of a block that does not count; what failed in
    /// such a block counts with the next one.
    fn renumbered(&self, sample: &Sample, shard: Shard) -> Option<Sample> {
        let Some(own) = sample.block else { return Some(sample.clone()) };
        let number = self.number(shard, own);
        let failed = !matches!(sample.result, Judgement::Measured(_));
        let block = number.or_else(|| failed.then_some(self.0.len()))?;
        Some(Sample { block: Some(block), ..sample.clone() })
    }
}

fn record(place: &[Stored], numbers: &Numbers) -> Run {
    let first = &place[0].run;
    let runs = || place.iter().map(|stored| &stored.run);
    let mut hosts: Vec<&str> = runs().map(|run| run.machine.host.as_str()).collect();
    hosts.dedup();
    let mut machine = first.machine.clone();
    machine.host = hosts.join(", ");
    let mut block_log = Vec::new();
    for (stored, shard) in shards(place) {
        for log in &stored.run.block_log {
            let number = numbers.number(shard, log.block);
            block_log.extend(number.map(|block| BlockLog { block, ..log.clone() }));
        }
    }
    block_log.sort_by_key(|log| (log.block, log.attempt));
    let stolen = |noise: &dyn Fn(&Run) -> Option<Noise>| -> Option<f64> {
        runs().map(|run| noise(run)?.steal_seconds).sum()
    };
    let part = |(stored, shard): (&Stored, Shard)| Part {
        shard,
        host: stored.run.machine.host.clone(),
        started: stored.run.started.clone(),
        blocks: complete(stored),
    };
    let damage = place.iter().filter_map(|stored| {
        lost(&stored.run, &stored.samples).map(|lost| format!("{}: {lost}", name(stored)))
    });
    Run {
        shard: None,
        damage: joined(damage),
        merged: shards(place).map(part).collect(),
        resumed: runs().flat_map(|run| run.resumed.clone()).collect(),
        started: runs().map(|run| run.started.clone()).min().unwrap_or_default(),
        ended: runs()
            .map(|run| run.ended.clone())
            .collect::<Option<Vec<_>>>()
            .and_then(|ends| ends.into_iter().max()),
        interrupted: runs().any(|run| run.interrupted || run.ended.is_none()) || !missing(place).is_empty(),
        blocks: numbers.0.len(),
        block_log,
        fault_predictions: Vec::new(),
        machine,
        noise_at_start: Noise {
            steal_seconds: stolen(&|run| Some(run.noise_at_start.clone())),
            ..first.noise_at_start.clone()
        },
        noise_at_end: first
            .noise_at_end
            .clone()
            .map(|noise| Noise { steal_seconds: stolen(&|run| run.noise_at_end.clone()), ..noise }),
        ..first.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocators::Allocator;
    use crate::record::Pass;
    use crate::report::Told;
    use crate::run::testing::{conclude_from, run_of};

    /// A run of so many blocks under glibc and x, or a shard of one.
    fn stored(name: &str, shard: Option<(usize, usize)>, blocks: usize) -> Stored {
        let allocators = [Allocator::fake("glibc"), Allocator::fake("x")];
        let mut taken = 0;
        let (samples, conclusion) =
            conclude_from(Vec::new(), &[Pass::Memory], &allocators, blocks, usize::MAX, |_, measurement| {
                // A figure that tells the shards' samples apart.
                taken += 1;
                measurement.minor_faults = taken + 1000 * shard.map_or(0, |(index, _)| index as u64);
                None
            });
        let mut run = run_of(&allocators, &conclusion);
        run.shard = shard.map(|(index, count)| Shard { index, count });
        Stored { path: name.into(), run, samples }
    }

    fn refused(runs: Vec<Stored>) -> String {
        merge(runs).expect_err("refused").to_string()
    }

    /// The blocks of a merged run, each with the shard that its samples come from.
    fn origins(merged: &Merged) -> Vec<(usize, u64)> {
        let mut found: Vec<(usize, u64)> = Vec::new();
        for sample in &merged.samples {
            if let (Some(block), Judgement::Measured(measurement)) = (sample.block, &sample.result) {
                found.push((block, measurement.minor_faults / 1000));
            }
        }
        found.dedup();
        found
    }

    #[test]
    fn shards_become_the_run_that_they_are_whatever_their_order() {
        let merged = merge(vec![stored("b", Some((2, 2)), 2), stored("a", Some((1, 2)), 3)]).expect("merged");
        let [whole] = &merged[..] else { panic!("{merged:?}") };
        assert_eq!(origins(whole), [(0, 1), (1, 2), (2, 1), (3, 2), (4, 1)]);
        assert_eq!((whole.run.blocks, whole.run.shard, whole.run.interrupted), (5, None, false));
        let blocks: Vec<usize> = whole.run.block_log.iter().map(|log| log.block).collect();
        assert_eq!(blocks, [0, 1, 2, 3, 4]);
        assert_eq!(whole.run.merged.len(), 2);
        assert!(!whole.note.as_ref().expect("a note").contains("Missing"));
        let told = Told::new(merged.into_iter().next().expect("one"));
        assert_eq!((told.summary.blocks, told.summary.interrupted, told.summary.gaps.len()), (5, false, 0));
    }

    #[test]
    fn what_a_missing_or_interrupted_shard_lacks_leaves_no_gap() {
        let mut interrupted = stored("c", Some((3, 3)), 2);
        (interrupted.run.blocks, interrupted.run.interrupted) = (1, true);
        let merged = merge(vec![stored("a", Some((1, 3)), 2), interrupted]).expect("merged");
        assert_eq!(origins(&merged[0]), [(0, 1), (1, 3), (2, 1)]);
        assert_eq!((merged[0].run.blocks, merged[0].run.interrupted), (3, true));
        assert!(merged[0].note.as_ref().expect("a note").ends_with("Missing: 2/3."), "{:?}", merged[0].note);
    }

    #[test]
    fn samples_that_are_not_there_are_told_of_and_their_blocks_do_not_count() {
        let mut half = stored("a", None, 12);
        half.samples.truncate(half.samples.len() / 2);
        let merged = merge(vec![half]).expect("merged").remove(0);
        assert!((1..12).contains(&merged.run.blocks), "{}", merged.run.blocks);
        let there = format!("12 complete blocks, and {} are there", merged.run.blocks);
        assert!(merged.note.as_ref().is_some_and(|note| note.contains(&there)), "{:?}", merged.note);
        let mut empty = stored("b", Some((2, 2)), 3);
        empty.samples.clear();
        let merged = merge(vec![stored("a", Some((1, 2)), 3), empty]).expect("merged").remove(0);
        assert_eq!(merged.run.blocks, 3);
        let note = merged.note.expect("a note");
        assert!(note.contains("b (shard 2/2): The samples are damaged"), "{note}");
    }

    #[test]
    fn runs_and_shards_of_other_machines_stay_apart() {
        let mut elsewhere = stored("b", Some((2, 2)), 2);
        elsewhere.run.machine.cpu = Some("another one".into());
        let runs = vec![stored("w", None, 2), stored("v", None, 3), stored("a", Some((1, 2)), 2), elsewhere];
        let merged = merge(runs).expect("merged");
        let blocks: Vec<usize> = merged.iter().map(|merged| merged.run.blocks).collect();
        assert_eq!(blocks, [2, 3, 2, 2]);
        assert!(
            merged[0].note.is_none()
                && merged[3].note.as_ref().is_some_and(|note| note.contains("Missing: 1/2"))
        );
        // The same kind of machine under another name is no other machine.
        let mut host = stored("b", Some((2, 2)), 2);
        host.run.machine.host = "another".into();
        let merged = merge(vec![stored("a", Some((1, 2)), 2), host]).expect("merged");
        assert!(merged.len() == 1 && merged[0].run.machine.host.ends_with(", another"));
    }

    #[test]
    fn shards_that_are_not_of_one_run_are_refused_with_the_difference() {
        let twice = refused(vec![stored("a", Some((1, 2)), 2), stored("b", Some((1, 2)), 2)]);
        assert_eq!(twice, "a (shard 1/2) and b (shard 1/2) are the same shard; leave one of them out");
        let other = |change: fn(&mut Run)| {
            let mut other = stored("b", Some((2, 2)), 2);
            change(&mut other.run);
            refused(vec![stored("a", Some((1, 2)), 2), other])
        };
        let plan = other(|run| run.seed = 7);
        assert!(
            plan.starts_with("a (shard 1/2) and b (shard 2/2) are not of one run: seed: 1, and 7"),
            "{plan}"
        );
        let file = other(|run| run.allocators[1].sha256 = "ff".into());
        assert!(file.contains("allocator x: SHA-256 00"), "{file}");
        let count = other(|run| run.shard = Some(Shard { index: 3, count: 3 }));
        assert!(count.contains("2 shards, and 3 shards"), "{count}");
    }

    #[test]
    fn two_whole_runs_in_shards_are_two_runs() {
        let of_seed = |name: &str, index, seed| {
            let mut stored = stored(name, Some((index, 2)), 2);
            stored.run.seed = seed;
            stored
        };
        let runs = [("a", 1, 1), ("b", 1, 2), ("c", 2, 1), ("d", 2, 2)];
        let merged =
            merge(runs.map(|(name, index, seed)| of_seed(name, index, seed)).into()).expect("merged");
        assert_eq!(merged.iter().map(|merged| merged.run.blocks).collect::<Vec<_>>(), [4, 4]);
    }
}
