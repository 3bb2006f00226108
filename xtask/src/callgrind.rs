//! What valgrind's callgrind writes, as far as it is needed here: instructions by object, and by address.
//!
//! The format is described in the chapter "Callgrind Format Specification" of valgrind's manual. A file is a
//! sequence of lines. `ob=` and `fn=` say where the cost lines that follow belong. A cost line begins with one
//! or more positions, then come the costs, one per event. `cob=`, `cfn=` and `calls=` announce a call; the cost
//! line after `calls=` is what the callee took, which is written down at the callee too, and so must not be
//! counted here. A name is written once, as `(id) name`, and afterwards as `(id)`.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail, ensure};

/// Name of the event that counts executed instructions.
const INSTRUCTIONS: &str = "Ir";

/// The instructions that ran in each object, without those of the functions in other objects that it called.
/// The key is the object's path, `???` for code that belongs to none.
///
/// # Errors
/// When `profile` is not what callgrind writes: no instructions counted, a cost that belongs nowhere, or a sum
/// that differs from the total written at the end, as in a file that was cut off.
pub fn instructions_by_object(profile: &str) -> Result<BTreeMap<String, u64>> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    each_cost(profile, |object, _, instructions| {
        *counts.entry(object.to_owned()).or_default() += instructions;
        Ok(())
    })?;
    Ok(counts)
}

/// How often the instruction at each address of an object ran. The profile was written with `--dump-instr=yes
/// --compress-pos=no`.
///
/// # Errors
/// As for [`instructions_by_object`], and where the positions are no addresses.
pub fn instructions_by_address(profile: &str, object: &str) -> Result<BTreeMap<u64, u64>> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    each_cost(profile, |of, position, instructions| {
        if of == object {
            let digits = position.strip_prefix("0x").context("a position that is no address")?;
            let address = u64::from_str_radix(digits, 16).context("a position that is no address")?;
            *counts.entry(address).or_default() += instructions;
        }
        Ok(())
    })?;
    Ok(counts)
}

/// Calls `count` for each cost with its object, its first position, and its instructions.
fn each_cost(profile: &str, mut count: impl FnMut(&str, &str, u64) -> Result<()>) -> Result<()> {
    let mut layout = Layout::default();
    let mut names = HashMap::new();
    let mut sum = 0;
    let mut object = None;
    let mut total = None;
    let mut of_callee = false;
    for (index, line) in profile.lines().enumerate() {
        let context = || format!("line {} of the profile: {line}", index + 1);
        if let Some(name) = line.strip_prefix("ob=") {
            object = Some(resolve(name, &mut names).with_context(context)?);
        } else if let Some(name) = line.strip_prefix("cob=") {
            resolve(name, &mut names).with_context(context)?;
        } else if line.starts_with("calls=") {
            of_callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            if !std::mem::take(&mut of_callee) {
                let object: &String =
                    object.as_ref().context("a cost before any object").with_context(context)?;
                let instructions = layout.instructions(line).with_context(context)?;
                let position = line.split_whitespace().next().unwrap_or_default();
                count(object, position, instructions).with_context(context)?;
                sum += instructions;
            }
        } else if let Some((field, value)) = line.split_once(": ") {
            match field {
                "positions" => layout.positions = value.split_whitespace().count(),
                "events" => layout.event = value.split_whitespace().position(|event| event == INSTRUCTIONS),
                "totals" => total = Some(layout.nth_event(value.split_whitespace()).with_context(context)?),
                _ => {}
            }
        }
    }
    let total = total.context("the profile has no total: it was cut off")?;
    ensure!(sum == total, "the costs in the profile sum up to {sum}, but its total is {total}");
    Ok(())
}

/// What the columns of a cost line mean.
#[derive(Debug)]
struct Layout {
    /// How many columns of positions come first.
    positions: usize,
    /// Which of the columns after these counts instructions.
    event: Option<usize>,
}

impl Default for Layout {
    fn default() -> Self {
        Layout { positions: 1, event: None }
    }
}

impl Layout {
    fn instructions(&self, cost_line: &str) -> Result<u64> {
        self.nth_event(cost_line.split_whitespace().skip(self.positions))
    }

    /// The instructions among the costs of a line; zeros at its end may have been left out.
    fn nth_event<'a>(&self, mut costs: impl Iterator<Item = &'a str>) -> Result<u64> {
        let Some(event) = self.event else { bail!("no event {INSTRUCTIONS} was announced") };
        costs.nth(event).unwrap_or("0").parse().context("a cost that is no number")
    }
}

/// The name that `text` stands for: `(id) name` defines it, `(id)` repeats it, anything else is a name itself.
fn resolve(text: &str, names: &mut HashMap<String, String>) -> Result<String> {
    let Some((id, name)) = text.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
        return Ok(text.to_string());
    };
    match name.trim_start() {
        "" => names.get(id).cloned().with_context(|| format!("the object ({id}) was never named")),
        name => {
            names.insert(id.to_string(), name.to_string());
            Ok(name.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program runs 30 instructions of its own, malloc's library 27 and 8, the C library 5: named first
    /// where it is called.
    const PROFILE: &str = "\
# callgrind format
version: 1
creator: callgrind-3.19.0
cmd:  ./loops pair 1 16
positions: line
events: Ir
summary: 70

ob=(2) /tmp/loops
fl=(1) loops.c
fn=(10) main
40 20
cob=(5) /lib/libample.so
cfi=(3) malloc.rs
cfn=(11) malloc
calls=1 7
+2 32
* 10

ob=(5)
fl=(3)
fn=(11)
7 20
+1 7
cob=(1) /lib/libc.so.6
cfn=(12) mmap
calls=1 0
-3 5

fn=(13) free
fi=(4) list.rs
9 8

ob=(1)
fl=(6) ???
fn=(12)
0 5

totals: 70
";

    fn counts(profile: &str) -> BTreeMap<String, u64> {
        instructions_by_object(profile).expect("a profile")
    }

    fn refusal(profile: &str) -> String {
        format!("{:#}", instructions_by_object(profile).expect_err("no profile"))
    }

    #[test]
    fn costs_go_to_the_object_that_ran_and_not_to_its_callers() {
        let expected = [("/lib/libample.so", 35), ("/lib/libc.so.6", 5), ("/tmp/loops", 30)];
        assert_eq!(counts(PROFILE), expected.map(|(name, count)| (name.to_string(), count)).into());
    }

    #[test]
    fn names_may_come_uncompressed() {
        let plain = "events: Ir\nob=/a.so\nfn=f\n0 3\nob=/b.so\n0 4\ntotals: 7\n";
        assert_eq!(counts(plain), [("/a.so".to_string(), 3), ("/b.so".to_string(), 4)].into());
    }

    #[test]
    fn columns_are_those_that_the_header_announces() {
        let columns = "positions: instr line\nevents: Bc Ir\nob=(1) ???\n0x10 7 1 3\n+4 +1 1\n+4 * 0 2\n";
        assert_eq!(counts(&format!("{columns}totals: 2 5\n")), [("???".to_string(), 5)].into());
    }

    #[test]
    fn addresses_are_those_of_one_object() {
        let text = "positions: instr line\nevents: Ir\nob=/a.so\n0x10 7 3\n0x14 7 3\nob=/b.so\n0x10 1 5\nob=/a.so\n0x10 9 1\n";
        let profile = format!("{text}totals: 12\n");
        assert_eq!(
            instructions_by_address(&profile, "/a.so").expect("counts"),
            [(0x10, 4), (0x14, 3)].into()
        );
        let lines = "positions: line\nevents: Ir\nob=/a.so\n7 3\ntotals: 3\n";
        assert!(instructions_by_address(lines, "/a.so").is_err());
    }

    #[test]
    fn a_profile_that_was_cut_off_is_refused() {
        let (all_but_total, _) = PROFILE.split_once("totals").expect("a total");
        assert_eq!(refusal(all_but_total), "the profile has no total: it was cut off");
        assert_eq!(refusal(""), "the profile has no total: it was cut off");
    }

    #[test]
    fn costs_that_do_not_sum_up_to_the_total_are_refused() {
        let message = refusal(&PROFILE.replace("+1 7", "+1 6"));
        assert_eq!(message, "the costs in the profile sum up to 69, but its total is 70");
    }

    #[test]
    fn what_callgrind_does_not_write_is_refused() {
        let never_named = refusal("events: Ir\nob=(3)\n");
        assert_eq!(never_named, "line 2 of the profile: ob=(3): the object (3) was never named");
        let nowhere = refusal("events: Ir\n0 1\n");
        assert_eq!(nowhere, "line 2 of the profile: 0 1: a cost before any object");
        let other_events = refusal("events: Dr\nob=a\n0 1\n");
        assert_eq!(other_events, "line 3 of the profile: 0 1: no event Ir was announced");
        let no_number = refusal("events: Ir\nob=a\n0 x\n");
        assert!(no_number.contains("a cost that is no number"), "{no_number}");
    }
}
