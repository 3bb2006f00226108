//! Which part of a run one machine of several takes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One of several parts that are one whole run together. Of the run's blocks, counted from 0, shard i of n
/// takes i − 1, i − 1 + n, i − 1 + 2n …: complete blocks, so that ratios stay paired within one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shard {
    /// Which one, from 1.
    pub index: usize,
    /// Of how many.
    pub count: usize,
}

impl Shard {
    /// How many of so many blocks are its own.
    pub fn share_of(self, blocks: usize) -> usize {
        (blocks + self.count - self.index) / self.count
    }

    /// The number in the whole run of its own block of this number.
    pub fn block(self, own: usize) -> usize {
        own * self.count + self.index - 1
    }

    /// Whether the thing of this number, from 0, is its own, where things are dealt out one by one.
    pub fn takes(self, number: usize) -> bool {
        number % self.count == self.index - 1
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.index, self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text
            .split_once('/')
            .and_then(|(index, count)| Some(Self { index: index.parse().ok()?, count: count.parse().ok()? }));
        numbers
            .filter(|shard| (1..=shard.count).contains(&shard.index))
            .ok_or_else(|| "must be I/N, the I-th of N shards, as in 1/2".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shards_together_are_the_whole_and_none_is_twice() {
        for (count, blocks) in [(1, 5), (2, 5), (3, 10), (4, 4)] {
            let shards = (1..=count).map(|index| Shard { index, count });
            let mut all: Vec<usize> = shards
                .flat_map(|shard| (0..shard.share_of(blocks)).map(move |own| shard.block(own)))
                .collect();
            all.sort_unstable();
            assert_eq!(all, (0..blocks).collect::<Vec<_>>(), "{count} shards");
        }
        let second = Shard { index: 2, count: 3 };
        assert_eq!((0..7).filter(|&number| second.takes(number)).collect::<Vec<_>>(), [1, 4]);
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        let shard: Shard = "2/3".parse().expect("a shard");
        assert_eq!((shard, shard.to_string().as_str()), (Shard { index: 2, count: 3 }, "2/3"));
        for nonsense in ["", "1", "0/2", "3/2", "1/0", "a/b", "1/2/3", "-1/2"] {
            assert!(nonsense.parse::<Shard>().is_err(), "{nonsense}");
        }
    }
}
