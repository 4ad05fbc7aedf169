//! Duration of a review: of 1,000 lines, and per kilobyte at four sizes.
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs it")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use woma_policy::{Profile, Python, Switches, review};

const PROGRAM: &str = include_str!("../tests/corpus/ordinary_classes.py");
const PYTHON: Python = Python::new(3, 11);

fn main() {
    // Imports from `__future__` must be at the beginning of a file.
    let unit: String = PROGRAM
        .lines()
        .filter(|line| !line.contains("__future__"))
        .fold(String::new(), |text, line| text + line + "\n");
    let tiers = Profile::named("tiers", &Switches::default()).unwrap_or_default();
    let lines = unit.lines().count();
    let thousand = unit.repeat(1_000 / lines);
    for (name, profile) in [("open", &Profile::open()), ("tiers", &tiers)] {
        let time = shortest(&thousand, profile);
        let (count, size) = (thousand.lines().count(), thousand.len());
        println!("{name}: {count} lines ({size} bytes): {} µs", time.as_micros());
        for kilobytes in [1, 10, 100, 1_000] {
            let source = unit.repeat((kilobytes * 1_000 / unit.len()).max(1));
            let time = shortest(&source, profile).as_nanos();
            let size = source.len();
            println!(
                "{name}: {size:7} bytes: {:6} µs, {} ns a byte",
                time / 1_000,
                time / size.max(1) as u128
            );
        }
    }
}

fn shortest(source: &str, profile: &Profile) -> Duration {
    let run = || {
        let begun = Instant::now();
        black_box(review(black_box(source), profile, PYTHON));
        begun.elapsed()
    };
    (0..20).map(|_| run()).min().unwrap_or_default()
}
