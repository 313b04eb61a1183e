//! The fuzz targets in short: their seeds, and some thousand mutations of these, the same each time.
//!
//! `FUZZ_ROUNDS` lengthens it. What libFuzzer finds goes into `fuzz/seeds/<target>`, and is played here from then on.

use std::fmt::Write as _;
use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;

use tidegate_tests::fuzz::TARGETS;

const ROUNDS: usize = 3_000;
/// Seeds are short; what grows beyond this is cut.
const LONGEST: usize = 8 * 1024;

fn play(name: &str) {
    let (_, target) = TARGETS.iter().find(|(target, _)| *target == name).expect("there is such a target");
    let seeds = seeds(name);
    let rounds = std::env::var("FUZZ_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("FUZZ_ROUNDS is a number"));
    let mut random = fastrand::Rng::with_seed(1);
    let mutations = (0..rounds).map(|_| mutated(&seeds, &mut random));
    for input in seeds.iter().cloned().chain(mutations) {
        if catch_unwind(|| target(&input)).is_err() {
            panic!("the target {name} does not hold for {}", literal(&input));
        }
    }
}

#[test]
fn address() {
    play("address");
}

#[test]
fn document() {
    play("document");
}

#[test]
fn headers() {
    play("headers");
}

#[test]
fn key() {
    play("key");
}

#[test]
fn every_target_has_its_file_its_seeds_and_its_test() {
    let mut files: Vec<String> = fs::read_dir(fuzz().join("fuzz_targets"))
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be read").path().file_stem().expect("files").to_string_lossy().into_owned())
        .collect();
    files.sort();
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(files, names);
    let test = include_str!("fuzz.rs");
    for name in names {
        assert!(!seeds(name).is_empty() && test.contains(&format!("play(\"{name}\")")), "{name}");
    }
}

fn fuzz() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

/// In the order of their names, so that mutations are the same everywhere.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = fs::read_dir(fuzz().join("seeds").join(name)).expect("each target has seeds");
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("it can be read")).collect()
}

/// A seed after one to eight changes.
fn mutated(seeds: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = random.choice(seeds).expect("there are seeds").clone();
    for _ in 0..random.usize(1..=8) {
        let at = random.usize(0..=input.len());
        let end = random.usize(at..=input.len().min(at + 32));
        match random.u8(0..6) {
            0 => input.insert(at, random.u8(..)),
            1 => drop(input.drain(at..end)),
            2 => input[at..end].iter_mut().take(1).for_each(|byte| *byte = random.u8(..)),
            3 => input[at..end].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random.u8(0..8)),
            4 => {
                let again = input[at..end].repeat(random.usize(1..4));
                input.splice(at..at, again);
            }
            _ => {
                let other = random.choice(seeds).expect("there are seeds");
                let from = random.usize(0..=other.len());
                input.splice(at..end, other[from..].iter().copied().take(random.usize(0..64)));
            }
        }
    }
    input.truncate(LONGEST);
    input
}

/// As `printf '%b'` would write it into a file.
fn literal(input: &[u8]) -> String {
    input.iter().fold(String::new(), |mut text, byte| {
        write!(text, "\\x{byte:02x}").expect("a text takes all");
        text
    })
}
