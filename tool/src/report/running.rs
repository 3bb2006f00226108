//! What was seen of a process that runs, in words: a sentence first, then the figures, then what they mean.

use super::again::quote;
use super::columns;
use super::explained::{beside, huge_pages, huge_stacks};
use super::observed::wrapped;
use super::units::{bytes, count, percent, seconds};
use crate::observation::{Part, share};
use crate::running::{Descendant, Figures, Finding, Heaps, Kind, Memory, Running};

/// Threads that are told one by one, at most, and those with a smaller share of the time are not.
const MOST_TOLD: usize = 5;
const LEAST_SHARE: f64 = 0.01;
/// Processes that are listed one by one, at most.
const MOST_LISTED: usize = 12;
/// Parts of the memory that are told one by one, at least.
const LEAST_PART: u64 = 1 << 20;
/// Characters of a command that is repeated, at most.
const LONGEST_COMMAND: usize = 300;

/// All of it, for a terminal.
pub fn running(running: &Running) -> String {
    let mut text = format!("{}\n\n", wrapped(&sentence(running), ""));
    for (name, figures) in figures(running) {
        text.push_str(&format!(" {name:<14} {figures}\n"));
    }
    text.push_str(&descendants_told(running));
    let told: Vec<String> = running.findings.iter().map(|finding| explained(*finding, running)).collect();
    if !told.is_empty() {
        text.push_str("\nWhat that means\n");
        for explanation in told {
            text.push_str(&format!(" - {}\n", wrapped(&explanation, "   ")));
        }
    }
    let command = command(&running.command);
    text.push_str(&format!(
        "\nEvery call of malloc, when it is started anew:\n   ample observe -- {command}\nWhich allocator suits it (a server: with --server and --load):\n   ample compare -- {command}\n"
    ));
    text
}

/// A command line; a placeholder where it is not known, or no line.
fn command(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
    let command = words.join(" ");
    if command.is_empty() || command.contains('\n') || command.len() > LONGEST_COMMAND {
        "CMD".into()
    } else {
        command
    }
}

/// The first sentence: whether anything costs it speed or memory.
fn sentence(running: &Running) -> String {
    let has = |kind| running.findings.iter().any(|finding| finding.kind == kind);
    let troubles = running.findings.iter().filter(|finding| finding.kind.is_trouble()).count();
    let what = match troubles {
        0 if running.stopped => "This process is stopped: only its memory tells something.",
        0 if has(Kind::Idle) && running.descendants_work() => {
            "This process hardly ran meanwhile, but processes that it has started did: look at one of those."
        }
        0 if has(Kind::Idle) => {
            "This process hardly ran meanwhile: only its memory tells something. Look again while it has work."
        }
        0 if has(Kind::Dear) => {
            "Malloc takes much of this process's time; nothing else was seen in its memory management that costs it speed or memory."
        }
        0 => "Nothing was seen in this process's memory management that costs it much speed or memory.",
        1 => "One thing in this process's memory management costs it speed or memory: see below.",
        _ => "Some things in this process's memory management cost it speed or memory: see below.",
    };
    if running.ended { format!("The process ended meanwhile. {what}") } else { what.to_owned() }
}

/// The figures, each with its name.
fn figures(running: &Running) -> Vec<(&'static str, String)> {
    let Running { account, before, after, .. } = running;
    let looked_at = running.seconds.max(1e-3);
    let threads = running.times_of_threads.len();
    let mut lines = vec![
        (
            "process",
            format!(
                "{} ({}), {} thread{}, started {} before; looked at for {}",
                running.name,
                running.pid,
                threads,
                if threads == 1 { "" } else { "s" },
                age(running.age_s),
                seconds(running.seconds)
            ),
        ),
        ("malloc", allocator(running)),
        (
            "processors",
            format!(
                "{:.2} of {} used, {} of that by the kernel; {:.2} threads more waited for one",
                account.cpu_ns() as f64 / 1e9 / looked_at,
                running.processors,
                percent(share(account.kernel_ns, account.cpu_ns())),
                account.without_processor_ns as f64 / 1e9 / looked_at
            ),
        ),
        ("threads", times(running)),
        ("malloc's code", code(running)),
        ("waits", waits(running)),
        (
            "page faults",
            format!(
                "{} a second: {} a second; {} of them from disk",
                count((account.faults as f64 / looked_at).round()),
                bytes(account.fault_bytes() as f64 / looked_at),
                count(account.major_faults as f64)
            ),
        ),
        (
            "memory",
            format!(
                "{} resident{}, {} when the look began",
                size(after.resident_bytes),
                shared(after),
                size(before.resident_bytes)
            ),
        ),
        ("what it is", parts(running)),
    ];
    if !running.descendants.is_empty() {
        lines.insert(1, ("descendants", descendants(running)));
    }
    lines.extend(after.heaps.map(|heaps| ("heaps", heaps_told(&heaps))));
    lines.extend(after.figures.map(|figures| ("Ample's heap", heap_told(&figures))));
    lines
}

/// How much of the memory other processes have as well.
fn shared(memory: &Memory) -> String {
    let shared = memory.unshared_bytes.map_or(0, |unshared| memory.resident_bytes.saturating_sub(unshared));
    if shared < LEAST_PART {
        String::new()
    } else {
        format!(", {} of it shared with other processes since a fork", size(shared))
    }
}

/// The processes that it started, which are in none of its own figures.
fn descendants(running: &Running) -> String {
    let all = &running.descendants;
    let plural = if all.len() == 1 { "process" } else { "processes" };
    format!("{} {plural} that it has started: in no figure here, but listed below", all.len())
}

/// A table of them.
fn descendants_told(running: &Running) -> String {
    let all = &running.descendants;
    if all.is_empty() {
        return String::new();
    }
    let head = ["it has started", "malloc", "resident", "unshared", "in blocks", "free", "processors"]
        .map(String::from);
    let told = all.iter().take(MOST_LISTED);
    let mut rows: Vec<Vec<String>> =
        told.map(|descendant| row(std::slice::from_ref(descendant), running)).collect();
    if let Some(more) = all.get(MOST_LISTED..).filter(|more| !more.is_empty()) {
        rows.push(row(more, running));
    }
    if all.len() > 1 {
        rows.push(row(all, running));
        rows.last_mut().expect("just put there")[0] = "all".into();
    }
    format!(
        "\n{}\nOne of them by itself: ample observe --pid {}\n",
        columns::rows(&head, &rows, 2),
        all[0].pid
    )
}

/// What one of them has, or several together.
fn row(several: &[Descendant], running: &Running) -> Vec<String> {
    let name = match several {
        [one] => format!("{} ({})", one.name, one.pid),
        _ => format!("{} more", several.len()),
    };
    let allocator = match several {
        [one] => one.allocator.clone().unwrap_or_else(|| "not known".into()),
        _ => String::new(),
    };
    let resident = several.iter().map(|one| one.memory.resident_bytes).sum();
    // Nothing where one of them does not tell.
    let known = |of: fn(&Memory) -> Option<u64>| {
        several.iter().map(|one| of(&one.memory)).sum::<Option<u64>>().map_or("–".into(), size)
    };
    let busy_ns: u64 = several.iter().map(|one| one.cpu_ns).sum();
    let processors = busy_ns as f64 / 1e9 / running.seconds.max(1e-3);
    vec![
        name,
        allocator,
        size(resident),
        known(|memory| memory.unshared_bytes),
        known(Memory::live_bytes),
        known(Memory::free_bytes),
        format!("{processors:.2}"),
    ]
}

fn allocator(running: &Running) -> String {
    match (&running.allocator, &running.allocator_file) {
        (Some(name), Some(file)) => format!("{name}: {}", file.display()),
        _ => "not known: no file was found that has a malloc for others; it may be inside the program under another name".into(),
    }
}

fn times(running: &Running) -> String {
    let all: u64 = running.times_of_threads.iter().sum();
    let shares =
        running.times_of_threads.iter().map(|time| share(*time, all)).filter(|share| *share >= LEAST_SHARE);
    let told: Vec<String> = shares.take(MOST_TOLD).map(percent).collect();
    if told.is_empty() { "none ran".into() } else { format!("{} of the processor time", told.join(", ")) }
}

fn code(running: &Running) -> String {
    let Some(looks) = running.code else {
        return "not told: the system lets nobody look (`sysctl kernel.perf_event_paranoid`; root may), or the code is not known".into();
    };
    let Some(malloc) = running.malloc_share() else {
        return format!(
            "seen at {} of {} looks: too few",
            count(looks.in_malloc as f64),
            count(looks.all as f64)
        );
    };
    format!(
        "{} of the processor time, seen at {} of {} looks at what the program executes",
        percent(malloc),
        count(looks.in_malloc as f64),
        count(looks.all as f64)
    )
}

fn waits(running: &Running) -> String {
    let often = count((running.account.waits as f64 / running.seconds.max(1e-3)).round());
    let Some(waits) = running.waits else {
        return format!(
            "{often} a second; for what is not told: only root may look (or `sysctl kernel.yama.ptrace_scope=0`)"
        );
    };
    let of = |number| percent(share(number, waits.busy()));
    let for_malloc = if running.after.heaps.is_some() {
        format!("{} for a lock of malloc's, ", of(waits.for_malloc))
    } else {
        String::new()
    };
    format!(
        "{often} a second; of the time in which threads have something to do {for_malloc}{} for the system to change or bring memory",
        of(waits.for_memory)
    )
}

fn parts(running: &Running) -> String {
    let parts = &running.after.parts;
    let others = match (running.after.heaps, running.after.figures) {
        (_, Some(_)) => "Ample's, or mapped otherwise",
        (Some(_), None) => "mapped otherwise",
        (None, None) => "malloc's, or mapped otherwise",
    };
    let named = [
        (parts.malloc, "malloc's"),
        (parts.stacks, "stacks"),
        (parts.files, "data of libraries"),
        (parts.others, others),
    ];
    let told = named.into_iter().filter(|(part, _)| part.bytes >= LEAST_PART);
    let told: Vec<String> =
        told.map(|(part, name)| format!("{}{} {name}", size(part.bytes), in_huge_pages(part))).collect();
    if told.is_empty() { "less than 1 MiB of everything".into() } else { told.join(", ") }
}

fn in_huge_pages(part: Part) -> String {
    if part.huge_bytes == 0 {
        String::new()
    } else {
        format!(" ({} of it in huge pages)", size(part.huge_bytes))
    }
}

fn heaps_told(heaps: &Heaps) -> String {
    let unknown = match heaps.unknown_bytes {
        few if few < LEAST_PART => String::new(),
        bytes => format!(", {} unknown", size(bytes)),
    };
    let mapped = match heaps.mapped_blocks {
        0 => String::new(),
        blocks => format!("; {} more in {}", size(heaps.mapped_bytes), large_ones(blocks)),
    };
    format!(
        "{} in {} blocks at most, {} free{unknown}, in {} arena{}{mapped}",
        size(heaps.used_bytes),
        count(heaps.used_blocks as f64),
        size(heaps.free_bytes),
        heaps.arenas,
        if heaps.arenas == 1 { "" } else { "s" }
    )
}

fn large_ones(blocks: u64) -> String {
    format!("{} large one{}", count(blocks as f64), if blocks == 1 { "" } else { "s" })
}

/// What Ample's heap is made of.
fn heap_told(figures: &Figures) -> String {
    let large = match figures.large_blocks {
        0 => String::new(),
        blocks => format!(" ({} of it in {})", size(figures.large_bytes), large_ones(blocks)),
    };
    format!(
        "{} in blocks at most{large}; free beside them {}, kept to be used again {}; {} of records; in {} arena{}",
        size(figures.live_bytes()),
        size(figures.room_bytes),
        size(figures.kept_bytes),
        size(figures.metadata_bytes),
        figures.arenas,
        if figures.arenas == 1 { "" } else { "s" }
    )
}

/// What a finding means, and what helps.
fn explained(finding: Finding, running: &Running) -> String {
    let share = percent(finding.share);
    let rate = format!("{} a second", bytes(finding.share));
    match finding.kind {
        Kind::Idle => format!("It used {share} of a processor: how it spends its time is not told."),
        Kind::Dear => format!(
            "Malloc's own code takes {share} of the processor time: that is what a faster allocator can save, beside what it does for the caches."
        ),
        Kind::Cheap => format!(
            "Malloc's own code takes {share} of the processor time: another allocator may save memory, but hardly time."
        ),
        Kind::WaitsForMalloc => format!(
            "In {share} of the time in which they had something to do, threads waited for a lock of malloc's, which another thread had. Allocators with a heap for each \
             thread have none to wait for; glibc has more arenas if MALLOC_ARENA_MAX is not set, or set higher."
        ),
        Kind::WaitsForMemory => format!(
            "In {share} of the time in which they had something to do, threads waited for the system, which changes a process's memory for one thread at a time, or brought \
             pages in. An allocator that keeps what was freed calls it seldom."
        ),
        Kind::Fresh => format!(
            "Page faults bring {rate}, and the memory hardly grows: what was freed goes back to the system, and comes fresh again. An allocator that keeps it for a while \
             spares that; so does `GLIBC_TUNABLES=glibc.malloc.trim_threshold=…:glibc.malloc.mmap_threshold=…` under glibc, as far as the process does not call malloc_trim itself, which \
             a new start under `ample observe` counts."
        ),
        Kind::Kept if running.after.figures.is_some() => format!(
            "Malloc may have {:.1} times as much in memory as its blocks take: the rest lies free beside blocks that live, from which only whole pages go back, or is kept to be used \
             again. Where several threads run, what can go back does within seconds; in a program of one thread with `AMPLE_BACKGROUND_THREAD=2`. `AMPLE_SOFT_LIMIT` bounds what is kept.",
            finding.share
        ),
        Kind::Kept => format!(
            "{:.1} times as much of malloc's memory is resident as its blocks take: the rest is free, between blocks that live, or in arenas of other threads. A lower \
             MALLOC_ARENA_MAX (at the price of waits), a call of malloc_trim(0), or an allocator that gives memory back helps: `ample bench idle-return fragmentation` shows which do.",
            finding.share
        ),
        Kind::HugePages => huge_pages(&share),
        Kind::Held => format!(
            "Malloc's memory is {:.2} times what its blocks take: the program holds most of it, which no allocator can give back. Who asked for it, and where, tells a heap profiler \
             (heaptrack, for one) when the program is started anew.",
            finding.share
        ),
        Kind::HoldsMore => format!(
            "The memory grew by {rate}, and what blocks take grew with it: the program builds something up, or forgets to free. No allocator changes that; a heap profiler \
             (heaptrack, for one) tells where."
        ),
        Kind::KeepsMore => format!(
            "The memory grew by {rate}, and what blocks take did not: what was freed is not used again. Compare allocators: this is what differs."
        ),
        Kind::Grew => format!(
            "The memory grew by {rate}; {}.",
            if running.after.heaps.is_some() || running.after.figures.is_some() {
                "that is not malloc's, or not known to be"
            } else {
                "whether the program holds it or the allocator keeps it is known of glibc's malloc and of Ample only"
            }
        ),
        Kind::Beside => beside(&share),
        Kind::HugeStacks => huge_stacks(&share),
    }
}

fn size(number: u64) -> String {
    bytes(number as f64)
}

/// How long ago: days and hours, hours and minutes, or less.
fn age(age_s: f64) -> String {
    let minutes = (age_s / 60.0) as u64;
    match minutes {
        0 => seconds(age_s),
        1..60 => format!("{minutes} min"),
        60..1440 => format!("{} h {} min", minutes / 60, minutes % 60),
        _ => format!("{} d {} h", minutes / 1440, minutes % 1440 / 60),
    }
}
