//! Memory against Redis on random histories: the same decisions, bit for bit, whatever the limits, costs, ids,
//! refunds, changes and steps of the clock. `HUNT_HISTORIES` says how many.

mod history;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use history::{History, Op, Step};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tidegate::{Counted, Decision, Limiter, Receipt};
use tidegate_tests::servers::{self, keys_without_ttl};

/// One store with what it has answered so far.
struct Side {
    limiter: Limiter,
    receipts: Vec<Receipt>,
    start: u64,
}

/// Everything of an answer that two stores must agree on.
#[derive(Debug, PartialEq)]
enum Answer {
    Decided { whole: String, limits: Vec<String>, charged: Vec<u64> },
    Refunded(Result<bool, &'static str>),
    Counted(Counted),
    Done,
}

impl Side {
    fn new(limiter: Limiter) -> Side {
        Side { limiter, receipts: Vec::new(), start: 0 }
    }

    fn answer(&mut self, key: &str, op: &Op) -> Answer {
        match op {
            Op::Check { limits, cost, id } => {
                let mut check = self.limiter.check("r", key).limits(limits).cost(*cost);
                if let Some(id) = id {
                    check = check.request_id(id);
                }
                let decision = check.wait().expect("the generator makes legal calls");
                self.receipts.push(decision.receipt());
                decided(&decision)
            }
            Op::Peek { limits, cost } => {
                decided(&self.limiter.peek("r", key).limits(limits).cost(*cost).wait().expect("a legal peek"))
            }
            Op::Refund { which } => {
                let Some(receipt) = self.receipts.get(*which) else { return Answer::Done };
                Answer::Refunded(self.limiter.refund(receipt).wait().map_err(|error| error.code()))
            }
            Op::Reset { limits } => {
                self.limiter.reset_with_limits("r", key, limits).wait().expect("a legal reset");
                Answer::Done
            }
            Op::Add { units } => self.counted(key, |count| count.add(*units)),
            Op::TakeBack { units, stale } => {
                let start = self.start - u64::from(*stale && self.start > 0);
                self.counted(key, |count| count.take_back(*units, start))
            }
        }
    }

    fn counted(&mut self, key: &str, step: impl FnOnce(tidegate::Count) -> tidegate::Pending<Counted>) -> Answer {
        let count = self.limiter.count("r", key, std::time::Duration::from_millis(50));
        let counted = step(count).wait().expect("a legal count");
        self.start = counted.start;
        Answer::Counted(counted)
    }
}

fn decided(decision: &Decision) -> Answer {
    assert_eq!(decision.failure(), None, "the store failed");
    let whole = format!(
        "allowed {} repeat {} remaining {} retry {:?} reset {:?} limit {} binding {:?}",
        decision.allowed(),
        decision.is_repeat(),
        decision.remaining(),
        decision.retry_after(),
        decision.reset_after(),
        decision.limit(),
        decision.binding().algorithm(),
    );
    let limits = decision.limits().map(|limit| format!("{limit:?}")).collect();
    Answer::Decided { whole, limits, charged: decision.receipt().charged_at().collect() }
}

fn limiter(prefix: &str, url: Option<&str>, clock: &Arc<AtomicU64>) -> Limiter {
    let mut builder = Limiter::builder().rule("r", "1/s").prefix(prefix).clock(clock);
    builder = builder.deadline(std::time::Duration::from_secs(20));
    if let Some(url) = url {
        builder = builder.url(url);
    }
    builder.build().expect("a limiter")
}

fn histories(default: u32) -> Config {
    let cases = std::env::var("HUNT_HISTORIES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default);
    Config { cases, failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() }
}

fn hunt(prefix: &str, url: &str, config: Config) {
    let clock = Arc::new(AtomicU64::new(0));
    let redis = limiter(prefix, Some(url), &clock);
    redis.ready(std::time::Duration::from_secs(20)).wait().expect("the server is there");
    let subjects = AtomicU64::new(0);
    let run = |History { steps, start }: History| {
        let key = format!("subject-{}", subjects.fetch_add(1, Ordering::Relaxed));
        clock.store(start, Ordering::SeqCst);
        // A memory store of its own: one that sweeps would forget what a clock that steps back calls alive again.
        let (mut memory, mut redis) = (Side::new(limiter(prefix, None, &clock)), Side::new(redis.clone()));
        for (number, Step { advance, op }) in steps.iter().enumerate() {
            clock.store(clock.load(Ordering::SeqCst).saturating_add_signed(*advance).max(start / 2), Ordering::SeqCst);
            let (expected, found) = (memory.answer(&key, op), redis.answer(&key, op));
            prop_assert_eq!(expected, found, "memory, then Redis, at step {} of {:?}", number, op);
        }
        Ok(())
    };
    TestRunner::new(config).run(&history::histories(200), run).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn memory_and_redis_decide_alike() {
    let server = servers::shared_server();
    hunt("hunt", &server.url(), histories(2_000));
    assert_eq!(keys_without_ttl(&mut server.connection()), Vec::<Vec<u8>>::new());
}

#[test]
fn memory_and_a_cluster_decide_alike() {
    let cluster = servers::shared_cluster();
    hunt("hunt", &cluster.url(), histories(200));
    assert_eq!(cluster.keys_without_ttl(), Vec::<Vec<u8>>::new());
}
