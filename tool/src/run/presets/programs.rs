//! Programs whose traits were drawn at random: they are nobody's benchmark, and none was left out.
//!
//! Drawn evenly: 1, 2 (three times as often), 3, 4, 8 or 16 threads; least sizes of 1, 8, 16, 64, 256, 1024 or 4096 bytes, and largest ones 4 to 1024
//! times as large, 1 MiB at most; slots for 1, 4, 16 or 64 MB in all threads; and the other traits (a share by `realloc` where the order is random). Steps are chosen so that a program takes some
//! tens of milliseconds.

use super::{Item, item};

macro_rules! program {
    ($label:literal: $threads:literal threads, $min:literal to $max:literal bytes, $slots:literal slots, order $order:literal, $given:literal given,
     $resized:literal resized, touched $touched:literal, $phases:literal phases, $generations:literal generations of $steps:literal) => {
        item(
            $label,
            "synthetic",
            &[
                ("min", $min as f64),
                ("max", $max as f64),
                ("slots", $slots as f64),
                ("order", $order as f64),
                ("given", $given as f64),
                ("resized", $resized as f64),
                ("touched", $touched as f64),
                ("phases", $phases as f64),
                ("generations", $generations as f64),
            ],
        )
        .work(&[("steps", $steps as f64)])
        .threads(&[$threads])
    };
}

/// The first forty of a series.
#[rustfmt::skip]
pub(super) const PROGRAMS: &[Item] = &[
    program!("program-01": 2 threads, 16 to 256 bytes, 23104 slots, order 1, 0 given, 0 resized, touched 2, 1 phases, 1 generations of 3811203),
    program!("program-02": 2 threads, 8 to 32 bytes, 28881 slots, order 1, 100 given, 0 resized, touched 0, 1 phases, 1 generations of 3115125),
    program!("program-03": 2 threads, 4096 to 1048576 bytes, 16 slots, order 0, 0 given, 50 resized, touched 0, 4 phases, 20 generations of 4402),
    program!("program-04": 1 threads, 1024 to 4096 bytes, 1805 slots, order 0, 50 given, 0 resized, touched 2, 8 phases, 1 generations of 1229954),
    program!("program-05": 16 threads, 16 to 1024 bytes, 16503 slots, order 1, 0 given, 0 resized, touched 0, 1 phases, 1 generations of 374025),
    program!("program-06": 2 threads, 4096 to 16384 bytes, 902 slots, order 2, 0 given, 0 resized, touched 1, 8 phases, 100 generations of 11913),
    program!("program-07": 2 threads, 16 to 256 bytes, 92419 slots, order 0, 100 given, 50 resized, touched 0, 4 phases, 1 generations of 3076241),
    program!("program-08": 2 threads, 256 to 1024 bytes, 902 slots, order 0, 100 given, 50 resized, touched 0, 1 phases, 20 generations of 141859),
    program!("program-09": 3 threads, 1024 to 262144 bytes, 28 slots, order 4, 100 given, 0 resized, touched 1, 4 phases, 1 generations of 216509),
    program!("program-10": 2 threads, 256 to 65536 bytes, 2718 slots, order 4, 100 given, 0 resized, touched 2, 1 phases, 20 generations of 15224),
    program!("program-11": 1 threads, 64 to 4096 bytes, 16503 slots, order 2, 100 given, 0 resized, touched 1, 4 phases, 1 generations of 2653884),
    program!("program-12": 2 threads, 8 to 8192 bytes, 423 slots, order 3, 0 given, 0 resized, touched 0, 1 phases, 1 generations of 2569493),
    program!("program-13": 3 threads, 16 to 64 bytes, 9627 slots, order 4, 0 given, 0 resized, touched 2, 8 phases, 1 generations of 2677873),
    program!("program-14": 8 threads, 16 to 1024 bytes, 2062 slots, order 0, 0 given, 0 resized, touched 1, 1 phases, 20 generations of 37402),
    program!("program-15": 2 threads, 8 to 32 bytes, 28881 slots, order 0, 0 given, 0 resized, touched 1, 8 phases, 1 generations of 3115125),
    program!("program-16": 16 threads, 16 to 64 bytes, 7220 slots, order 2, 20 given, 0 resized, touched 1, 8 phases, 1 generations of 388164),
    program!("program-17": 2 threads, 8 to 8192 bytes, 27102 slots, order 1, 100 given, 0 resized, touched 2, 1 phases, 1 generations of 1833778),
    program!("program-18": 4 threads, 1024 to 262144 bytes, 16 slots, order 1, 0 given, 0 resized, touched 1, 8 phases, 20 generations of 8119),
    program!("program-19": 8 threads, 4096 to 16384 bytes, 902 slots, order 3, 50 given, 0 resized, touched 1, 4 phases, 1 generations of 297842),
    program!("program-20": 2 threads, 1 to 64 bytes, 200000 slots, order 2, 0 given, 0 resized, touched 0, 8 phases, 100 generations of 31163),
    program!("program-21": 2 threads, 1 to 4 bytes, 200000 slots, order 4, 0 given, 0 resized, touched 1, 1 phases, 1 generations of 3123762),
    program!("program-22": 3 threads, 16 to 1024 bytes, 5501 slots, order 3, 100 given, 0 resized, touched 1, 1 phases, 100 generations of 19948),
    program!("program-23": 2 threads, 256 to 1024 bytes, 14440 slots, order 1, 0 given, 0 resized, touched 0, 1 phases, 100 generations of 28371),
    program!("program-24": 2 threads, 1 to 256 bytes, 10872 slots, order 4, 100 given, 0 resized, touched 1, 1 phases, 1 generations of 3098906),
    program!("program-25": 1 threads, 16 to 4096 bytes, 86983 slots, order 0, 100 given, 50 resized, touched 1, 1 phases, 1 generations of 2753972),
    program!("program-26": 2 threads, 16 to 16384 bytes, 3387 slots, order 0, 50 given, 0 resized, touched 2, 4 phases, 1 generations of 1175579),
    program!("program-27": 1 threads, 4096 to 1048576 bytes, 21 slots, order 3, 20 given, 0 resized, touched 0, 4 phases, 20 generations of 4402),
    program!("program-28": 4 threads, 64 to 65536 bytes, 1693 slots, order 4, 100 given, 0 resized, touched 2, 8 phases, 100 generations of 1863),
    program!("program-29": 16 threads, 256 to 1024 bytes, 7220 slots, order 1, 0 given, 0 resized, touched 1, 1 phases, 1 generations of 354649),
    program!("program-30": 8 threads, 1024 to 262144 bytes, 16 slots, order 0, 0 given, 50 resized, touched 1, 1 phases, 100 generations of 811),
    program!("program-31": 4 threads, 256 to 4096 bytes, 2888 slots, order 2, 0 given, 0 resized, touched 2, 1 phases, 1 generations of 835912),
    program!("program-32": 1 threads, 16 to 4096 bytes, 21745 slots, order 4, 0 given, 0 resized, touched 1, 4 phases, 1 generations of 2753972),
    program!("program-33": 2 threads, 1 to 4 bytes, 200000 slots, order 4, 50 given, 0 resized, touched 1, 1 phases, 1 generations of 3123762),
    program!("program-34": 1 threads, 256 to 4096 bytes, 2888 slots, order 1, 100 given, 0 resized, touched 1, 1 phases, 20 generations of 124641),
    program!("program-35": 1 threads, 1024 to 1048576 bytes, 16 slots, order 4, 100 given, 0 resized, touched 2, 1 phases, 20 generations of 1271),
    program!("program-36": 1 threads, 4096 to 1048576 bytes, 21 slots, order 0, 20 given, 10 resized, touched 0, 1 phases, 100 generations of 880),
    program!("program-37": 1 threads, 4096 to 1048576 bytes, 21 slots, order 3, 20 given, 0 resized, touched 1, 8 phases, 20 generations of 4402),
    program!("program-38": 3 threads, 64 to 1024 bytes, 61613 slots, order 4, 0 given, 0 resized, touched 1, 8 phases, 100 generations of 19591),
    program!("program-39": 2 threads, 16 to 256 bytes, 5776 slots, order 0, 100 given, 0 resized, touched 0, 4 phases, 1 generations of 3076241),
    program!("program-40": 16 threads, 1 to 1024 bytes, 6775 slots, order 2, 20 given, 0 resized, touched 0, 8 phases, 1 generations of 380346),
];
