//! Random histories on a store and on the oracle: the same figures of the whole and of each limit, whatever the limits,
//! costs, ids, refunds, changes and steps of the clock. `ORACLE_HISTORIES` says how many; a few on Redis, too.

mod history;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use history::{History, Op, Step};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate::{Decision, LimitDecision, Limiter, Receipt};
use tidegate_tests::oracle::{
    Algorithm, Counted, Oracle, Outcome, Receipt as Expected, Spec, Verdict, bucket_bound_holds, no_window_exceeds,
};
use tidegate_tests::servers::shared_server;

/// The rule of all histories. Their limits are given at the calls, and named.
const RULE: &str = "r";
const COUNTED: Duration = Duration::from_millis(50);

/// What came of a step. A receipt is not compared, but whether it is empty is.
#[derive(Debug, PartialEq)]
enum Answer {
    Decided {
        verdict: Verdict,
        charged: bool,
    },
    /// None for a receipt that is spent.
    Refunded(Option<bool>),
    Counted(Counted),
    Done,
}

/// The store and the oracle, side by side, in one history of one key.
struct Pair {
    limiter: Limiter,
    oracle: Oracle,
    key: String,
    receipts: Vec<Receipted>,
    /// When the last count's window began.
    counted_from: Option<u64>,
    laws: Laws,
}

struct Receipted {
    found: Receipt,
    expected: Expected,
    /// The limits as they were asked for.
    specs: Vec<Spec>,
    spent: bool,
    /// Whether a limit of its was reset since: a store cannot tell its charge from one that came after.
    stale: bool,
}

impl Pair {
    fn new(limiter: Limiter, key: String) -> Pair {
        Pair { limiter, oracle: Oracle::new(), key, receipts: Vec::new(), counted_from: None, laws: Laws::default() }
    }

    /// What the oracle answers, and what the store does.
    fn play(&mut self, op: &Op, now: u64) -> (Answer, Answer) {
        match op {
            Op::Check { limits, cost, id } => self.check(limits, *cost, id.as_deref(), now),
            Op::Peek { limits, cost } => {
                let verdict = self.oracle.peek(&specs(limits), *cost, now);
                let decision = self.limiter.peek(RULE, &self.key).limits(limits).cost(*cost).wait();
                (expected(verdict), found(&decision.expect("a legal peek")))
            }
            Op::Refund { which } => self.refund(*which, now),
            Op::Reset { limits } => {
                let specs = specs(limits);
                self.oracle.reset(&specs);
                for receipt in &mut self.receipts {
                    receipt.stale |=
                        specs.iter().any(|spec| receipt.specs.iter().any(|charged| charged.name == spec.name));
                }
                self.limiter.reset_with_limits(RULE, &self.key, limits).wait().expect("a legal reset");
                (Answer::Done, Answer::Done)
            }
            Op::Add { units } => self.count(units.cast_signed(), None, now),
            Op::TakeBack { units, stale } => {
                let start = self.counted_from.unwrap_or(0);
                let start = start.saturating_sub(u64::from(*stale));
                self.count(-units.cast_signed(), Some(start), now)
            }
        }
    }

    fn check(&mut self, limits: &str, cost: u64, id: Option<&str>, now: u64) -> (Answer, Answer) {
        let specs = specs(limits);
        // Whether a limit of 0 refuses a repeat, too, is said by no definition.
        let closed = |spec: &Spec| spec.algorithm == Algorithm::SlidingWindowLog && spec.quota == 0;
        let id = id.filter(|_| !specs.iter().any(closed));
        let verdict = self.oracle.check(&specs, cost, id.map(str::as_bytes), now);
        let mut check = self.limiter.check(RULE, &self.key).limits(limits).cost(cost);
        if let Some(id) = id {
            check = check.request_id(id);
        }
        let decision = check.wait().expect("the generator makes legal calls");
        self.laws.asked(&specs);
        let (found, expected) = (decision.receipt(), verdict.receipt.clone());
        self.receipts.push(Receipted { found, expected, specs, spent: false, stale: false });
        (self::expected(verdict), self::found(&decision))
    }

    fn refund(&mut self, which: usize, now: u64) -> (Answer, Answer) {
        let receipt = self.receipts.get_mut(which).filter(|receipt| !receipt.stale);
        let Some(receipt) = receipt else { return (Answer::Done, Answer::Done) };
        // A receipt of nothing is never spent. These limits are not configured: the asked rate is that of the charge.
        let expected = match (receipt.expected.is_empty(), receipt.spent) {
            (true, _) => Some(false),
            (false, true) => None,
            (false, false) => Some(self.oracle.refund(&receipt.expected, &receipt.specs, now)),
        };
        receipt.spent = true;
        self.laws.refunded |= expected == Some(true);
        let found = match self.limiter.refund(&receipt.found).wait() {
            Ok(refunded) => Some(refunded),
            Err(error) if error.code() == "invalid_receipt" => None,
            Err(error) => panic!("{error}"),
        };
        (Answer::Refunded(expected), Answer::Refunded(found))
    }

    fn count(&mut self, n: i64, start: Option<u64>, now: u64) -> (Answer, Answer) {
        let expected = self.oracle.count(RULE, micros(COUNTED), n, start, now);
        let count = self.limiter.count(RULE, &self.key, COUNTED);
        let counted = match start {
            Some(start) => count.take_back(n.unsigned_abs(), start).wait(),
            None => count.add(n.unsigned_abs()).wait(),
        };
        let counted = counted.expect("a legal count");
        let exists = counted.start > 0;
        self.counted_from = expected.start;
        let (time_left, start) = (exists.then(|| micros(counted.left)), exists.then_some(counted.start));
        (Answer::Counted(expected), Answer::Counted(Counted { total: counted.total, time_left, start }))
    }
}

fn expected(verdict: Verdict) -> Answer {
    let charged = !verdict.receipt.is_empty();
    Answer::Decided { charged, verdict: Verdict { receipt: Expected::default(), ..verdict } }
}

fn found(decision: &Decision) -> Answer {
    assert_eq!(decision.failure(), None, "the store works");
    let binding = decision.binding();
    let limits: Vec<LimitDecision<'_>> = decision.limits().collect();
    let verdict = Verdict {
        allowed: decision.allowed(),
        repeated: decision.is_repeat(),
        remaining: decision.remaining().into(),
        retry_after: decision.retry_after().map(micros),
        reset_after: decision.reset_after().map(micros),
        // Each limit of a history has its own name.
        binding: limits.iter().position(|limit| limit.name() == binding.name()).expect("one of the call's"),
        limits: limits.iter().map(outcome).collect(),
        receipt: Expected::default(),
    };
    Answer::Decided { verdict, charged: !decision.receipt().is_empty() }
}

fn outcome(limit: &LimitDecision<'_>) -> Outcome {
    Outcome {
        allowed: limit.allowed(),
        remaining: limit.remaining().into(),
        retry_after: limit.retry_after().map(micros),
        reset_after: limit.reset_after().map(micros),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("no time is that long")
}

/// Limits as the histories write them.
fn specs(limits: &str) -> Vec<Spec> {
    limits.split("; ").map(spec).collect()
}

/// `quota/window ms algorithm named n`, and after it `burst n`, `precision n ms`, `shadow`.
fn spec(limit: &str) -> Spec {
    let mut words = limit.split(' ');
    let mut word = || words.next().expect("the histories write whole limits");
    let (quota, window) = word().split_once('/').expect("a rate has a slash");
    let mut spec = Spec::new(algorithm(word()), number(quota), millis(window));
    let (_named, name) = (word(), word());
    spec.name = format!("{RULE}:{name}");
    while let Some(word) = words.next() {
        match (word, spec.algorithm) {
            ("shadow", _) => spec.enforce = false,
            ("burst", Algorithm::TokenBucket) => spec.burst = number(words.next().expect("a burst")),
            ("precision", Algorithm::SlidingWindow) => spec.precision = millis(words.next().expect("a precision")),
            other => panic!("the histories write no {other:?}"),
        }
    }
    spec
}

fn algorithm(name: &str) -> Algorithm {
    match name {
        "sliding_window_log" => Algorithm::SlidingWindowLog,
        "sliding_window" => Algorithm::SlidingWindow,
        "token_bucket" => Algorithm::TokenBucket,
        "sliding_window_counter" => Algorithm::SlidingWindowCounter,
        "fixed_window" => Algorithm::FixedWindow,
        _ => panic!("no algorithm is called {name}"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("the histories write whole numbers")
}

fn millis(text: &str) -> u64 {
    1_000 * number(text.strip_suffix("ms").expect("the histories write milliseconds"))
}

/// What law 1 needs to know of a history: the largest numbers that were asked for, as limits may change.
#[derive(Default)]
struct Laws {
    largest: BTreeMap<(String, u64), Spec>,
    stepped_back: bool,
    refunded: bool,
}

impl Laws {
    fn asked(&mut self, specs: &[Spec]) {
        for spec in specs {
            let largest = self.largest.entry((spec.name.clone(), spec.window)).or_insert_with(|| spec.clone());
            largest.quota = largest.quota.max(spec.quota);
            largest.burst = largest.burst.max(spec.burst);
        }
    }

    /// Law 1 by brute force, over what was kept. A clock that steps back dates charges anew, so an exact window is
    /// judged if it did not; a bucket if nothing was refunded, as rates change here more than once.
    fn hold(&self, oracle: &Oracle) -> bool {
        self.largest.values().all(|spec| {
            let kept = oracle.kept(spec);
            match spec.algorithm {
                Algorithm::SlidingWindowLog | Algorithm::SlidingWindow if !self.stepped_back => {
                    no_window_exceeds(&kept, spec.window, spec.quota)
                }
                Algorithm::TokenBucket if !self.refunded => {
                    bucket_bound_holds(&kept, spec.burst, spec.quota, spec.window)
                }
                _ => true,
            }
        })
    }
}

/// Plays histories, each on a key of its own, until one is answered differently; then the shortest that is.
fn compare(cases: u32, clock: &Arc<AtomicU64>, limiter: impl Fn() -> Limiter) {
    let keys = AtomicU64::new(0);
    let run = |History { steps, start }: History| {
        let mut pair = Pair::new(limiter(), format!("subject-{}", keys.fetch_add(1, Ordering::Relaxed)));
        let mut now = start;
        for (number, Step { advance, op }) in steps.iter().enumerate() {
            now = now.saturating_add_signed(*advance).max(start / 2);
            clock.store(now, Ordering::SeqCst);
            pair.laws.stepped_back |= *advance < 0;
            let (expected, found) = pair.play(op, now);
            prop_assert_eq!(expected, found, "oracle, then store, at step {} of {:?}", number, op);
        }
        prop_assert!(pair.laws.hold(&pair.oracle), "more was admitted than law 1 allows");
        Ok(())
    };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() };
    TestRunner::new(config).run(&history::histories(120), run).unwrap_or_else(|failure| panic!("{failure}"));
}

fn cases() -> u32 {
    std::env::var("ORACLE_HISTORIES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3_000)
}

fn limiter(url: Option<&str>, clock: &Arc<AtomicU64>) -> Limiter {
    let builder = Limiter::builder().rule(RULE, "1/s").prefix("oracle").clock(clock).deadline(Duration::from_secs(20));
    let builder = match url {
        Some(url) => builder.url(url),
        None => builder,
    };
    builder.build().expect("a limiter")
}

/// Each history in a memory of its own: one that sweeps would forget what a clock that steps back calls alive again.
#[test]
fn memory_decides_as_the_oracle_does() {
    let clock = Arc::new(AtomicU64::new(0));
    compare(cases(), &clock, || limiter(None, &clock));
}

#[test]
fn redis_decides_as_the_oracle_does() {
    let clock = Arc::new(AtomicU64::new(0));
    let redis = limiter(Some(&shared_server().url()), &clock);
    redis.ready(Duration::from_secs(20)).wait().expect("the server is there");
    compare(cases() / 10, &clock, || redis.clone());
}
