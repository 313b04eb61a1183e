//! Checks that are alone: on the connection which their own thread writes and reads, and on the one which it writes only.

use std::future::IntoFuture as _;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures_executor::block_on;
use tidegate::{Check, Decision, Limiter, OnError, Origin, Rule};
use tidegate_tests::limiters::timed;
use tidegate_tests::servers::{Cluster, Server, eventually, slot};

const PATIENCE: Duration = Duration::from_secs(20);
const LIMIT: u32 = 1_000_000;
/// Longer than a thread waits for itself, and shorter than any deadline here.
const SLOW: Duration = Duration::from_millis(60);

fn limiter(server: &Server, deadline: Duration) -> Limiter {
    let builder = Limiter::builder().url(&server.url()).deadline(deadline);
    let rule =
        Rule::parse("r", &format!("{LIMIT}/365d token_bucket")).expect("it can be meant").on_error(OnError::Deny);
    let limiter = builder.rules([rule]).build().expect("the rule can be meant");
    limiter.ready(PATIENCE).wait().expect("the server is up");
    limiter
}

/// Lets time pass.
fn pass(time: Duration) {
    let (_silent, never) = mpsc::channel::<()>();
    let _ = never.recv_timeout(time);
}

/// How a check is asked for, and the connection that it takes.
struct Way {
    connection: &'static str,
    ask: fn(Check<'_>) -> tidegate::Result<Decision>,
}

const WAYS: [Way; 2] = [
    Way { connection: "tidegate-lane", ask: |check| check.wait() },
    Way { connection: "tidegate-relay", ask: |check| block_on(check.into_future()) },
];

impl Way {
    fn origin(&self, limiter: &Limiter, key: &str) -> Origin {
        (self.ask)(limiter.check("r", key)).expect("the call can be meant").origin()
    }

    /// The server's line of the connection; none while there is none.
    fn line(&self, server: &Server) -> Option<String> {
        let clients: String = server.call("CLIENT LIST");
        clients.lines().find(|client| client.contains(&format!(" name={} ", self.connection))).map(str::to_owned)
    }

    fn id(&self, server: &Server) -> String {
        let line = self.line(server).expect("there is one");
        line.split([' ', '=']).nth(1).expect("it has an id").to_owned()
    }

    /// Makes checks of a key until one has gone over the connection.
    fn begin(&self, server: &Server, limiter: &Limiter) {
        eventually(PATIENCE, || {
            assert_eq!(self.origin(limiter, "first"), Origin::Store);
            self.line(server).is_some_and(|line| line.contains(" cmd=evalsha "))
        });
    }
}

/// Until nothing of a key is charged.
fn eventually_whole(limiter: &Limiter, key: &str) {
    eventually(PATIENCE, || limiter.peek("r", key).wait().is_ok_and(|peeked| peeked.remaining() == LIMIT));
}

#[test]
fn a_slow_answer_is_waited_for_and_one_after_the_deadline_gives_back_what_it_charged() {
    for way in WAYS {
        let server = Server::start();
        let deadline = Duration::from_millis(500);
        let limiter = limiter(&server, deadline);
        way.begin(&server, &limiter);
        thread::scope(|scope| {
            server.pause();
            let asked = scope.spawn(|| way.origin(&limiter, "slow"));
            pass(SLOW);
            server.resume();
            assert_eq!(asked.join().expect("it does not panic"), Origin::Store);
        });
        // The lane rests after that, and the relay's reader sleeps.
        pass(Duration::from_millis(5_100));
        way.begin(&server, &limiter);
        server.pause();
        let (origin, took) = timed(|| way.origin(&limiter, "late"));
        assert_eq!(origin, Origin::Closed);
        assert!((deadline..PATIENCE).contains(&took), "{took:?}");
        server.resume();
        eventually_whole(&limiter, "late");
        assert_eq!(limiter.metrics().late_refunds, 1, "{}", way.connection);
    }
}

#[test]
fn one_that_the_server_has_closed_costs_no_check() {
    for way in WAYS {
        let server = Server::start();
        let limiter = limiter(&server, PATIENCE);
        for _ in 0..3 {
            way.begin(&server, &limiter);
            pass(Duration::from_millis(150));
            let killed: u64 = server.call(&format!("CLIENT KILL ID {}", way.id(&server)));
            assert_eq!(killed, 1);
            eventually(PATIENCE, || way.line(&server).is_none());
            assert_eq!(way.origin(&limiter, "killed"), Origin::Store, "{}", way.connection);
        }
        let peeked = limiter.peek("r", "killed").wait().expect("the call can be meant");
        assert_eq!(peeked.remaining(), LIMIT - 3, "each is charged once");
    }
}

#[test]
fn one_that_ends_with_a_check_on_it_ends_by_the_failure_policy_and_another_takes_its_place() {
    for way in WAYS {
        let server = Server::start();
        let limiter = limiter(&server, PATIENCE);
        way.begin(&server, &limiter);
        thread::scope(|scope| {
            server.pause();
            let asked = scope.spawn(|| way.origin(&limiter, "cut"));
            pass(SLOW);
            server.kill();
            assert_eq!(asked.join().expect("it does not panic"), Origin::Closed, "{}", way.connection);
        });
        server.restart();
        limiter.ready(PATIENCE).wait().expect("the server is up");
        eventually(PATIENCE, || way.origin(&limiter, "first") == Origin::Store && way.line(&server).is_some());
    }
}

#[test]
fn what_the_server_says_instead_of_deciding_is_seen_to() {
    for way in WAYS {
        let server = Server::start();
        let limiter = limiter(&server, PATIENCE);
        way.begin(&server, &limiter);
        server.call::<()>("SCRIPT FLUSH");
        assert_eq!(way.origin(&limiter, "flushed"), Origin::Store);
        let peeked = limiter.peek("r", "flushed").wait().expect("the call can be meant");
        assert_eq!(peeked.remaining(), LIMIT - 1, "{}", way.connection);
    }
}

/// A node that is told nothing by its cluster but where a slot has gone.
#[test]
fn a_check_of_a_slot_that_has_moved_is_sent_on() {
    for way in WAYS {
        let cluster = Cluster::start();
        let builder = Limiter::builder().url(&cluster.url()).prefix("moved").deadline(PATIENCE);
        let limiter = builder.rule("r", "1000000/365d token_bucket").build().expect("the rule can be meant");
        limiter.ready(PATIENCE).wait().expect("the servers are up");
        let slot = slot(b"moved:1:{first}");
        let (from, to) = (cluster.master_of(slot), cluster.masters());
        let to = to.into_iter().find(|node| node.port() != from.port()).expect("there are three");
        way.begin(from, &limiter);
        cluster.move_slot(slot, to);
        assert_eq!(way.origin(&limiter, "first"), Origin::Store, "{}", way.connection);
    }
}

#[test]
fn a_wait_that_ends_early_is_gone_on_with_or_called_off() {
    let server = Server::start();
    let limiter = limiter(&server, PATIENCE);
    WAYS[0].begin(&server, &limiter);
    let mut pending = limiter.check("r", "waited").into_future();
    assert!(pending.wait_for(Duration::ZERO).is_none());
    let decision = pending.wait_for(PATIENCE).expect("it is answered").expect("the call can be meant");
    assert_eq!(decision.origin(), Origin::Store);
    let mut pending = limiter.check("r", "polled").into_future();
    let mut answer = None;
    eventually(PATIENCE, || {
        answer = pending.wait_for(Duration::ZERO);
        answer.is_some()
    });
    assert_eq!(answer.and_then(Result::ok).map(|decision| decision.origin()), Some(Origin::Store));
    let mut pending = limiter.check("r", "waited on").into_future();
    assert!(pending.wait_for(Duration::ZERO).is_none());
    assert_eq!(pending.wait().expect("the call can be meant").origin(), Origin::Store);
    let mut pending = limiter.check("r", "awaited").into_future();
    assert!(pending.wait_for(Duration::ZERO).is_none());
    assert_eq!(block_on(pending).expect("the call can be meant").origin(), Origin::Store);
    let mut pending = limiter.check("r", "left").into_future();
    assert!(pending.wait_for(Duration::ZERO).is_none());
    drop(pending);
    eventually_whole(&limiter, "left");
    assert_eq!(limiter.metrics().late_refunds, 1);
}

#[test]
fn threads_beside_a_lane_admit_the_limit_exactly() {
    let server = Server::start();
    let limiter = Limiter::builder().url(&server.url()).deadline(PATIENCE).rule("r", "500/365d").build();
    let limiter = limiter.expect("the rule can be meant");
    limiter.ready(PATIENCE).wait().expect("the server is up");
    let passes = || limiter.check("r", "k").wait().is_ok_and(|decision| decision.allowed());
    let pass = |calls: usize| (0..calls).filter(|_| passes()).count();
    let admitted: usize = thread::scope(|scope| {
        let threads: Vec<_> = (1..=4)
            .map(|number| {
                scope.spawn({
                    let pass = &pass;
                    move || pass(100 * number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
    });
    assert_eq!(admitted, 500);
}
