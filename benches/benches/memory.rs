//! The memory store beside governor: one thread, 10,000 keys.
//!
//! Criterion times each alone. What counts is the ratio, from rounds in which ours and governor's take turns, so that a
//! machine that slows down slows both. Ours answers with the full decision; governor with yes or no, and it is spared
//! the making of an owned key.

use std::hint::black_box;
use std::io;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Instant;

use criterion::Criterion;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tidegate::Limiter;
use tidegate_benches::report::{Bar, Line, Report, Unit};

const KEYS: usize = 10_000;
/// Enough that a round is longer than what disturbs it.
const CHECKS: usize = 5 * KEYS;
/// Odd, so that one is in the middle.
const ROUNDS: usize = 41;
const BAR: Bar = Bar::RatioLeast(500);

/// One comparison: our rule, and governor's quota.
struct Case {
    name: &'static str,
    rule: &'static str,
    quota: Quota,
    admitted: bool,
}

/// What is compared, with all keys in use.
struct Pair {
    keys: Vec<String>,
    ours: Limiter,
    governor: DefaultKeyedRateLimiter<String>,
    admitted: bool,
}

fn cases() -> [Case; 4] {
    let (one, most) = (NonZeroU32::MIN, NonZeroU32::new(10_000_000).unwrap_or(NonZeroU32::MAX));
    // So slow that no bucket is full again before its key's next turn: a full one is forgotten, and made anew.
    let slow = Quota::per_hour(NonZeroU32::MIN.saturating_add(9_999)).allow_burst(most);
    // A window remembers each charge for 20 ms, so a key has some ten of them at any time.
    let fast = Quota::per_second(most);
    [
        case("memory-token_bucket", "10000/h burst 10000000", slow, true),
        case("memory-sliding_window", "10000000/20ms sliding_window", fast, true),
        case("memory-refused-token_bucket", "1/h token_bucket", Quota::per_hour(one), false),
        case("memory-refused-sliding_window", "1/h sliding_window", Quota::per_hour(one), false),
    ]
}

fn case(name: &'static str, rule: &'static str, quota: Quota, admitted: bool) -> Case {
    Case { name, rule, quota, admitted }
}

impl Pair {
    fn new(case: &Case) -> tidegate::Result<Pair> {
        let pair = Pair {
            // Of twelve bytes, in an order that no cache foresees.
            keys: (0..KEYS).map(|index| format!("user-{:07}", index * 7_919 % KEYS)).collect(),
            ours: Limiter::builder().rule("login", case.rule).build()?,
            governor: RateLimiter::keyed(case.quota),
            admitted: case.admitted,
        };
        for key in &pair.keys {
            pair.ours.check("login", key.as_str()).wait()?;
            let _ = pair.governor.check_key(key);
        }
        Ok(pair)
    }

    fn check_ours(&self, key: &str) {
        let decision = self.ours.check("login", black_box(key)).wait();
        let expected = black_box(&decision).as_ref().is_ok_and(|decision| decision.allowed() == self.admitted);
        assert!(expected, "{decision:?}");
    }

    fn check_governor(&self, key: &String) {
        let decision = self.governor.check_key(black_box(key));
        assert_eq!(black_box(decision).is_ok(), self.admitted);
    }

    /// The round whose ratio is in the middle: checks in a second, ours and governor's.
    fn compare(&self) -> (u64, u64) {
        let mut rounds: Vec<(u64, u64)> = (0..ROUNDS).map(|_| self.round()).collect();
        // Ours to governor's, as fractions: a/b before c/d when ad is less than cb.
        rounds.sort_by_key(|(ours, governor)| u128::from(*ours) * 1_000_000 / u128::from((*governor).max(1)));
        rounds[ROUNDS / 2]
    }

    fn round(&self) -> (u64, u64) {
        let keys = || self.keys.iter().cycle().take(CHECKS);
        let ours = per_second(|| keys().for_each(|key| self.check_ours(key)));
        (ours, per_second(|| keys().for_each(|key| self.check_governor(key))))
    }
}

#[allow(clippy::disallowed_methods, reason = "the two are timed here, and nothing is decided by it")]
fn per_second(work: impl FnOnce()) -> u64 {
    let start = Instant::now();
    work();
    let nanoseconds = start.elapsed().as_nanos().max(1);
    u64::try_from(CHECKS as u128 * 1_000_000_000 / nanoseconds).unwrap_or(u64::MAX)
}

/// Each alone, by criterion.
fn alone(criterion: &mut Criterion) -> tidegate::Result<()> {
    for case in cases() {
        let pair = Pair::new(&case)?;
        let mut group = criterion.benchmark_group(case.name);
        let mut keys = pair.keys.iter().cycle();
        group.bench_function("tidegate", |bencher| bencher.iter(|| pair.check_ours(keys.next().map_or("", |key| key))));
        let mut keys = pair.keys.iter().cycle();
        group.bench_function("governor", |bencher| bencher.iter(|| keys.next().map(|key| pair.check_governor(key))));
        group.finish();
    }
    Ok(())
}

fn main() -> io::Result<ExitCode> {
    let json = std::env::var_os("JSON").is_some_and(|value| value == "1");
    if !json {
        // Criterion writes to standard output too, where the lines have to be alone.
        let mut criterion = Criterion::default().configure_from_args();
        alone(&mut criterion).map_err(io::Error::other)?;
        criterion.final_summary();
    }
    // As a test, each check once will do; and a profile is of what criterion was told to run.
    let told = |word: &str| std::env::args().any(|argument| argument == word);
    if !told("--bench") || told("--profile-time") {
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::new();
    for case in cases() {
        let (ours, peer) = Pair::new(&case).map_err(io::Error::other)?.compare();
        let unit = Unit::ChecksPerSecond;
        report.add(Line { case: case.name, ours, peer, peer_name: "governor", unit, bar: BAR })?;
    }
    report.finish()
}
