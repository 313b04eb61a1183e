//! Many calls in one run of the script: each sees what those before it wrote, and none spoils another's answer.

use std::future::{Future as _, IntoFuture as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use futures_executor::block_on;
use futures_util::future::join_all;
use tidegate::{Decision, Limiter, OnError, Origin, Rule};
use tidegate_tests::servers::{Cluster, Server, eventually, slot};

const SOON: Duration = Duration::from_secs(30);

/// The packed arguments of one limit, as `lua/decide.lua` documents them.
fn limit(code: u8, quota: u32, cost: u32) -> Vec<u8> {
    let (window, extra) = (60_000_000.0_f64, if code == 3 { f64::from(quota) } else { 0.0 });
    let mut packed = vec![code];
    packed.extend_from_slice(&quota.to_le_bytes()[..3]);
    packed.extend_from_slice(&cost.to_le_bytes()[..3]);
    packed.extend_from_slice(&window.to_le_bytes());
    packed.extend_from_slice(&extra.to_le_bytes());
    packed.extend_from_slice(if code == 2 { b"121000\0" } else { b"61000\0" });
    packed
}

/// What the first limit's head says: the verdict on the whole, the kind, the room.
fn head(reply: &[u8]) -> (u8, u8, u32) {
    let room = u32::from_be_bytes([0, reply[1], reply[2], reply[3]]);
    (reply[0] >> 2, reply[0] & 3, room)
}

#[test]
fn calls_in_one_script_see_each_other_and_fail_alone() {
    let server = Server::start();
    let mut connection = server.connection();
    redis::cmd("SET").arg("foul").arg("not ours").exec(&mut connection).expect("planted");
    let both = [limit(2, 2, 1), limit(3, 5, 1)].concat();
    let calls: [(&[&str], Vec<u8>); 6] = [
        (&["window"], limit(2, 2, 1)),
        (&["window", "bucket"], both.clone()),
        (&["foul"], limit(3, 9, 1)),
        (&["window", "bucket"], both),
        (&["bucket"], limit(3, 5, 4)),
        (&["bucket"], limit(3, 5, 1)),
    ];
    let mut script = redis::cmd("EVAL");
    script.arg(tidegate_lua::SCRIPT).arg(1).arg("window");
    for (keys, arguments) in &calls {
        if keys.len() > 1 {
            script.arg(keys.len());
        }
        script.arg(*keys).arg(&arguments[..]);
    }
    let replies: Vec<Vec<u8>> = script.query(&mut connection).expect("one reply a call");

    assert_eq!(replies.len(), calls.len());
    assert_eq!(head(&replies[0]), (0, 2, 1), "the first of two");
    assert_eq!(head(&replies[1]), (0, 2, 0), "the second, and the bucket's first of five");
    assert_eq!(replies[2], b"Xfoul", "another's bytes spoil this answer alone");
    assert_eq!(head(&replies[3]), (1, 0, 0), "the window refuses, so the bucket is not charged");
    assert_eq!(head(&replies[4]), (0, 3, 0), "four were left of five");
    assert_eq!(head(&replies[5]), (1, 0, 0));
}

fn limiter(url: &str, limits: &str) -> Limiter {
    let rule = Rule::parse("r", limits).expect("the rule can be meant").on_error(OnError::Deny);
    let limiter = Limiter::builder().url(url).deadline(SOON).rules([rule]).build().expect("it can be meant");
    limiter.ready(SOON).wait().expect("the servers are up");
    limiter
}

/// Checks of so many users, each so often, all at once.
fn at_once(limiter: &Limiter, users: usize, times: usize) -> Vec<Decision> {
    let calls = (0..users * times).map(|call| limiter.check("r", format!("user {}", call % users)).into_future());
    let decisions = block_on(join_all(calls.collect::<Vec<_>>()));
    decisions.into_iter().map(|decision| decision.expect("the call can be meant")).collect()
}

/// How many scripts a server has run.
fn runs(server: &Server) -> u64 {
    let stats: String = server.call("INFO commandstats");
    let calls = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
    calls.filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok()).sum()
}

fn admitted(decisions: &[Decision]) -> usize {
    let of_store = |decision: &Decision| matches!(decision.origin(), Origin::Store | Origin::DenyCache);
    assert!(decisions.iter().all(of_store), "the store decides each");
    decisions.iter().filter(|decision| decision.allowed()).count()
}

#[test]
fn checks_that_queue_leave_together_and_count_exactly() {
    let server = Server::start();
    let limiter = limiter(&server.url(), "7/h; 9/d gcra; 20/d sliding_window_log");
    let before = runs(&server);
    assert_eq!(admitted(&at_once(&limiter, 100, 10)), 700);
    let runs = runs(&server) - before;
    // Far fewer as a rule; how many depends on who is faster, the caller or the server.
    assert!(runs <= 500, "{runs} runs of the script for 1,000 checks");
}

#[test]
fn checks_of_many_slots_leave_together_for_each_node() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster.url(), "7/h; 9/d gcra");
    let total = || cluster.nodes().iter().map(runs).sum::<u64>();
    let before = total();
    assert_eq!(admitted(&at_once(&limiter, 300, 10)), 2_100);
    let runs = total() - before;
    assert!(runs <= 1_500, "{runs} runs of the script for 3,000 checks");
    assert!(cluster.keys_without_ttl().is_empty());
}

#[test]
fn without_batches_across_slots_each_check_of_a_cluster_runs_alone() {
    let cluster = Cluster::start();
    let limiter = Limiter::builder().url(&cluster.url()).deadline(SOON).batch_across_slots(false);
    let limiter = limiter.rule("r", "7/h").build().expect("it can be meant");
    limiter.ready(SOON).wait().expect("the servers are up");
    let total = || cluster.nodes().iter().map(runs).sum::<u64>();
    let before = total();
    assert_eq!(admitted(&at_once(&limiter, 50, 7)), 350);
    assert_eq!(total() - before, 350);
}

#[test]
fn a_failing_check_spoils_nobody_elses_answer() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster.url(), "7/h");
    let foul = "tidegate:1:{user%205}:r:sliding_window:3600000";
    let mut connection = cluster.master_of(slot(foul.as_bytes())).connection();
    redis::cmd("SET").arg(foul).arg("not ours").exec(&mut connection).expect("planted");
    let decisions = at_once(&limiter, 100, 8);
    let (spoilt, others): (Vec<_>, Vec<_>) = decisions.into_iter().partition(|decision| decision.failure().is_some());
    assert_eq!(spoilt.len(), 8);
    assert!(
        spoilt.iter().all(|decision| decision.failure().is_some_and(|error| error.kind().code() == "corrupt_state"))
    );
    assert_eq!(admitted(&others), 99 * 7);
}

#[test]
fn checks_find_their_keys_while_a_slot_moves() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster.url(), "30/h");
    // The first users' slots move while everybody checks.
    let moving = |user: usize| slot(format!("tidegate:1:{{user%20{user}}}").as_bytes());
    let admitted = thread::scope(|scope| {
        let checks = scope.spawn(|| (0..40).map(|_| admitted(&at_once(&limiter, 200, 1))).sum::<usize>());
        for user in 0..6 {
            let from = cluster.master_of(moving(user)).port();
            let to = cluster.masters().into_iter().find(|node| node.port() != from).expect("there are three masters");
            cluster.move_slot(moving(user), to);
        }
        checks.join().expect("every check is answered")
    });
    assert_eq!(admitted, 200 * 30);
    assert!(cluster.keys_without_ttl().is_empty());
}

#[test]
fn half_a_slot_answers_for_the_keys_that_it_has() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster.url(), "5/h; 5/h gcra");
    assert_eq!(admitted(&at_once(&limiter, 50, 2)), 100);
    let key = "tidegate:1:{user%207}";
    let from = cluster.master_of(slot(key.as_bytes())).port();
    let to = cluster.masters().into_iter().find(|node| node.port() != from).expect("there are three masters");
    cluster.begin_move(slot(key.as_bytes()), to);
    assert_eq!(admitted(&at_once(&limiter, 50, 1)), 50);
    cluster.move_slot(slot(key.as_bytes()), to);
    assert_eq!(admitted(&at_once(&limiter, 50, 9)), 100);
}

#[test]
fn a_lost_server_answers_all_that_waited_and_is_used_again() {
    let server = Server::start();
    let limiter = limiter(&server.url(), "1000000/h");
    let killed = thread::scope(|scope| {
        let checks = scope.spawn(|| at_once(&limiter, 500, 20));
        server.kill();
        checks.join().expect("every check is answered")
    });
    assert!(killed.iter().any(|decision| decision.origin() == Origin::Closed));
    server.restart();
    eventually(SOON, || limiter.check("r", "k").wait().is_ok_and(|decision| decision.origin() == Origin::Store));
}

#[test]
fn a_hung_server_is_sent_little_and_each_call_ends_at_its_deadline() {
    let server = Server::start();
    let limiter = limiter(&server.url(), "100/365d");
    let before = runs(&server);
    server.pause();
    let call = || limiter.check("r", "k").deadline(Duration::from_millis(60)).into_future();
    for _ in 0..3 {
        let decisions = block_on(join_all((0..500).map(|_| call()).collect::<Vec<_>>()));
        assert!(decisions.iter().flatten().all(|decision| decision.origin() == Origin::Closed));
    }
    server.resume();
    // What had left was charged, came to light late, and is given back; the rest was never sent.
    let left = || limiter.peek("r", "k").deadline(SOON).wait().expect("it can be meant").remaining();
    eventually(SOON, || limiter.metrics().late_refunds > 0 && left() == 100);
    assert!(limiter.metrics().late_refunds <= 256, "two batches at the most");
    assert!(runs(&server) - before < 300);
}

/// Somebody's waker, which is broken.
struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        panic!("a waker that is broken on purpose");
    }
}

#[test]
fn wakers_that_panic_stop_nobody_else() {
    let server = Server::start();
    let limiter =
        Limiter::builder().url(&server.url()).deadline(SOON).rule("r", "9/h").build().expect("it can be meant");
    limiter.ready(SOON).wait().expect("the server is up");
    for round in 0..3 {
        let before = limiter.metrics().latency.count();
        server.pause();
        let broken = Waker::from(Arc::new(Broken));
        let mut calls: Vec<_> = (0..4)
            .map(|key| limiter.check("r", format!("{round} {key}")).deadline(Duration::from_millis(50)).into_future())
            .collect();
        for call in &mut calls {
            assert!(Pin::new(call).poll(&mut Context::from_waker(&broken)).is_pending());
        }
        eventually(SOON, || limiter.metrics().latency.count() > before);
        server.resume();
        let admitted = || limiter.check("r", "k").deadline(Duration::from_secs(2)).wait().expect("it can be meant");
        eventually(SOON, || admitted().origin() == Origin::Store);
    }
}
