//! R1 and the moves of a cluster: scripts that a node does not know, slots and masters that change while in use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tidegate::{Decision, Limiter, OnError, Origin, Rule};
use tidegate_tests::limiters::{Place, Sure, build, drain, timed};
use tidegate_tests::servers::{Cluster, Server, eventually, slot};

const SOON: Duration = Duration::from_secs(30);
/// More than any test here can use up.
const MUCH: u32 = 9_999_999;

/// A cluster whose slots and masters the tests of this file move, one test at a time.
fn moving_cluster() -> MutexGuard<'static, Cluster> {
    static CLUSTER: LazyLock<Mutex<Cluster>> =
        LazyLock::new(|| Mutex::new(Server::builder().config("cluster-node-timeout 1000").start_cluster()));
    CLUSTER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn limiter(url: &str, prefix: &str, limits: &str) -> Limiter {
    let rule = Rule::parse("r", limits).expect("the rule can be meant").on_error(OnError::Deny);
    // What is asked here is what the servers know, not what this process remembers of them.
    let builder = Limiter::builder().url(url).prefix(prefix).deadline(SOON).deny_cache_max(Duration::ZERO);
    let builder = builder.rules([rule]);
    let limiter = builder.build().expect("the rules can be meant");
    limiter.ready(SOON).wait().expect("the servers are up");
    limiter
}

/// Another of the masters than the one that has a key.
fn elsewhere<'a>(cluster: &'a Cluster, key: &str) -> &'a Server {
    let here = cluster.master_of(slot(key.as_bytes())).port();
    cluster.masters().into_iter().find(|node| node.port() != here).expect("there are three masters")
}

/// Checks without a pause while something is done, and tells how many were admitted. None may fail.
fn checked_during(limiter: &Limiter, key: &str, work: impl FnOnce()) -> u32 {
    let (done, begun) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let checker = || {
            let mut admitted = 0;
            while !done.load(Ordering::SeqCst) {
                admitted += u32::from(limiter.check("r", key).sure().allowed());
                begun.store(true, Ordering::SeqCst);
            }
            admitted
        };
        let checkers: Vec<_> = (0..3).map(|_| scope.spawn(checker)).collect();
        eventually(SOON, || begun.load(Ordering::SeqCst));
        work();
        done.store(true, Ordering::SeqCst);
        checkers.into_iter().map(|checker| checker.join().expect("no check fails")).sum()
    })
}

/// Waits until a replica has all that its master has now.
fn replicate(master: &Server, replica: &Server) {
    let offset = |server: &Server, field| server.info(field).and_then(|offset| offset.parse::<u64>().ok());
    let written = offset(master, "master_repl_offset").expect("it is a master");
    eventually(SOON, || offset(replica, "slave_repl_offset").is_some_and(|read| read >= written));
}

fn flush_scripts(server: &Server) {
    server.call::<()>("SCRIPT FLUSH");
}

#[test]
fn r1_nobody_notices_that_a_server_forgot_its_scripts() {
    let server = Server::start();
    let limiter = limiter(&server.url(), "tidegate", &format!("{MUCH}/365d"));
    let admitted = checked_during(&limiter, "k", || (0..50).for_each(|_| flush_scripts(&server)));
    assert_eq!(limiter.peek("r", "k").sure().remaining(), MUCH - admitted, "and nothing was charged twice");
}

#[test]
fn r1_nobody_notices_that_a_cluster_forgot_its_scripts() {
    let place = Place::cluster();
    let limiter = place.limiter(&[("r", "20/h; 30/d gcra")]);
    for user in 0..60 {
        let user = format!("user {user}");
        assert_eq!(limiter.check("r", &user).sure().remaining(), 19);
        place.servers().into_iter().for_each(flush_scripts);
        assert_eq!(limiter.check("r", &user).sure().remaining(), 18);
    }
}

#[test]
fn r1_a_restarted_server_is_used_again_from_scratch() {
    let server = Server::start();
    let limiter = limiter(&server.url(), "tidegate", "5/h");
    for _ in 0..3 {
        assert_eq!(drain(&limiter, "r", "k", 9), 5);
        server.restart();
        eventually(SOON, || answered(&limiter, "k").origin() == Origin::Store);
    }
    assert_eq!(drain(&limiter, "r", "k", 9), 5);
}

fn answered(limiter: &Limiter, key: &str) -> Decision {
    limiter.peek("r", key).deadline(Duration::from_secs(1)).wait().expect("a store that fails is no error")
}

#[test]
fn a_slot_that_has_moved_is_followed_to_a_node_that_never_saw_the_script() {
    let cluster = moving_cluster();
    let (limiter, key) = (limiter(&cluster.url(), "moved", "9/h; 20/d sliding_window_log"), "moved:1:{k}");
    for left in [8, 6, 4] {
        assert_eq!(limiter.check("r", "k").sure().remaining(), left);
        let to = elsewhere(&cluster, key);
        cluster.nodes().iter().for_each(flush_scripts);
        cluster.move_slot(slot(key.as_bytes()), to);
        assert_eq!(limiter.check("r", "k").sure().remaining(), left - 1);
    }
    cluster.settle();
}

#[test]
fn a_slot_halfway_is_asked_for_where_the_key_is() {
    let cluster = moving_cluster();
    let limiter = limiter(&cluster.url(), "asked", "9/h");
    // Two keys of one slot: braces in a subject do not steer it, so the slot is moved under one key and its rules.
    let (stored, key) = ("asked:1:{k}:r:sliding_window:3600000", "asked:1:{k}");
    let (moving, to) = (slot(key.as_bytes()), elsewhere(&cluster, key));
    assert_eq!(limiter.check("r", "k").cost(2).sure().remaining(), 7);
    flush_scripts(to);
    cluster.begin_move(moving, to);
    assert_eq!(limiter.check("r", "k").sure().remaining(), 6, "the old master still has it");
    assert_eq!(limiter.check("r", "k").limits("5/m gcra").sure().remaining(), 4, "a key that it lacks is made there");
    cluster.move_key(stored.as_bytes(), to);
    assert_eq!(limiter.check("r", "k").sure().remaining(), 5, "the new one has it now");
    assert_eq!(limiter.check("r", "k").limits("5/m gcra").sure().remaining(), 3);
    let receipt = limiter.check("r", "k").cost(2).sure().receipt();
    assert!(limiter.refund(&receipt).wait().expect("a refund follows too"));
    cluster.move_slot(moving, to);
    assert_eq!(limiter.check("r", "k").sure().remaining(), 4);
    assert_eq!(drain(&limiter, "r", "k", 9), 4);
    assert!(cluster.keys_without_ttl().is_empty());
}

#[test]
fn totals_stay_exact_while_a_slot_moves_to_and_fro() {
    let cluster = moving_cluster();
    let limiter = limiter(&cluster.url(), "moving", &format!("{MUCH}/365d"));
    let admitted = checked_during(&limiter, "k", || {
        for _ in 0..3 {
            let to = elsewhere(&cluster, "moving:1:{k}");
            flush_scripts(to);
            cluster.move_slot(slot(b"moving:1:{k}"), to);
        }
    });
    assert_eq!(limiter.peek("r", "k").sure().remaining(), MUCH - admitted);
    assert!(cluster.keys_without_ttl().is_empty());
}

#[test]
fn a_limit_that_is_used_up_while_its_slot_moves_admits_exactly_the_limit() {
    let cluster = moving_cluster();
    let limiter = limiter(&cluster.url(), "used", "300/365d sliding_window_log");
    let admitted = checked_during(&limiter, "k", || {
        cluster.move_slot(slot(b"used:1:{k}"), elsewhere(&cluster, "used:1:{k}"));
        eventually(SOON, || limiter.peek("r", "k").sure().remaining() == 0);
    });
    assert_eq!(admitted, 300);
}

#[test]
fn r1_a_promoted_replica_knows_the_charges_and_is_taught_the_script() {
    let cluster = moving_cluster();
    let (limiter, key) = (limiter(&cluster.url(), "promoted", "9/h; 20/d sliding_window_log"), "promoted:1:{k}");
    assert_eq!(limiter.check("r", "k").cost(3).sure().remaining(), 6);
    let master = cluster.master_of(slot(key.as_bytes()));
    let replica = cluster.replica_of(master);
    flush_scripts(replica);
    cluster.failover(replica);
    assert_eq!(limiter.check("r", "k").sure().remaining(), 5);
    assert_eq!(limiter.check("r", "k").cost(5).sure().remaining(), 0);
    assert!(!limiter.check("r", "k").sure().allowed());
}

#[test]
fn r1_a_replica_whose_master_died_takes_over() {
    let cluster = moving_cluster();
    let (limiter, key) = (limiter(&cluster.url(), "died", "9/h"), "died:1:{k}");
    assert_eq!(limiter.check("r", "k").cost(3).sure().remaining(), 6);
    let master = cluster.master_of(slot(key.as_bytes()));
    replicate(master, cluster.replica_of(master));
    let port = master.port();
    master.kill();
    eventually(SOON, || cluster.master_of(slot(key.as_bytes())).port() != port);
    eventually(SOON, || answered(&limiter, "k").origin() == Origin::Store);
    assert_eq!(limiter.check("r", "k").sure().remaining(), 5);
    let dead = cluster.nodes().iter().find(|node| node.port() == port).expect("it is one of the six");
    dead.restart();
    cluster.settle();
    assert_eq!(limiter.check("r", "k").sure().remaining(), 4);
}

#[test]
fn r9_a_replica_whose_master_hangs_takes_over() {
    let cluster = moving_cluster();
    let limiter = limiter(&cluster.url(), "hung", "9/h");
    assert_eq!(limiter.check("r", "k").cost(3).sure().remaining(), 6);
    let key = slot(b"hung:1:{k}");
    let master = cluster.master_of(key);
    replicate(master, cluster.replica_of(master));
    let port = master.port();
    master.pause();
    let peek = || limiter.peek("r", "k").deadline(Duration::from_millis(100)).wait().expect("it can be meant");
    eventually(SOON, || peek().origin() == Origin::Store);
    assert_eq!(limiter.check("r", "k").sure().remaining(), 5);
    cluster.nodes().iter().find(|node| node.port() == port).expect("it is one of the six").resume();
    cluster.settle();
    assert_eq!(limiter.check("r", "k").sure().remaining(), 4);
}

#[test]
fn a_replica_is_used_within_two_seconds_of_its_promotion_however_long_circuits_stay_open() {
    let cluster = moving_cluster();
    let rule = Rule::parse("r", "9/h").expect("the rule can be meant").on_error(OnError::Deny);
    let builder = Limiter::builder().url(&cluster.url()).prefix("soon").deadline(Duration::from_millis(200));
    let builder = builder.breaker(3, Duration::from_secs(60), Duration::from_secs(60)).rules([rule]);
    let limiter = builder.build().expect("the rule can be meant");
    limiter.ready(SOON).wait().expect("the servers are up");
    let origin = || limiter.check("r", "k").wait().expect("a store that fails is no error").origin();
    let key = slot(b"soon:1:{k}");
    let master = cluster.master_of(key);
    let port = master.port();
    assert_eq!(limiter.check("r", "k").deadline(SOON).sure().remaining(), 8);
    replicate(master, cluster.replica_of(master));
    master.pause();
    (0..3).for_each(|_| assert_eq!(origin(), Origin::Closed));
    eventually(SOON, || cluster.master_of(key).port() != port);
    let ((), took) = timed(|| eventually(SOON, || origin() == Origin::Store));
    assert!(took <= Duration::from_secs(2), "it was used {took:?} after its promotion");
    cluster.nodes().iter().find(|node| node.port() == port).expect("it is one of the six").resume();
    cluster.settle();
}

#[test]
fn a_cluster_is_found_by_any_one_of_its_nodes() {
    let cluster = moving_cluster();
    for (index, node) in cluster.nodes().iter().enumerate() {
        let url = node.url().replacen("://", "+cluster://", 1);
        let limiter =
            build(Limiter::builder().url(&url).prefix(format!("seed{index}")).deadline(SOON), &[("r", "5/h")]);
        for user in 0..20 {
            assert_eq!(limiter.check("r", format!("user {user}")).sure().remaining(), 4);
        }
    }
}

#[test]
fn law_6_a_check_whose_state_is_dead_is_charged_whole_while_its_slot_moves() {
    let cluster = moving_cluster();
    for algorithm in ["sliding_window", "sliding_window_log"] {
        let prefix = format!("dead-{algorithm}");
        let limiter = limiter(&cluster.url(), &prefix, &format!("5/s {algorithm}; 100/h {algorithm}"));
        let (key, left) = (format!("{prefix}:1:{{k}}"), |decision: &Decision| {
            decision.limits().map(|limit| limit.remaining()).collect::<Vec<_>>()
        });
        assert_eq!(left(&limiter.check("r", "k").sure()), [4, 99]);
        eventually(SOON, || left(&limiter.peek("r", "k").sure()) == [5, 99]);
        cluster.begin_move(slot(key.as_bytes()), elsewhere(&cluster, &key));
        assert_eq!(left(&limiter.check("r", "k").sure()), [4, 98], "{algorithm}");
        cluster.move_slot(slot(key.as_bytes()), elsewhere(&cluster, &key));
        assert_eq!(left(&limiter.peek("r", "k").sure())[1], 98, "{algorithm}");
    }
}

#[test]
fn a_call_whose_keys_are_on_two_nodes_waits_until_they_are_on_one() {
    let cluster = moving_cluster();
    let limiter = limiter(&cluster.url(), "apart", "5/h; 5/2h");
    assert_eq!(drain(&limiter, "r", "k", 6), 5);
    let (key, stored) = ("apart:1:{k}", |window| format!("apart:1:{{k}}:r:sliding_window:{window}"));
    let to = elsewhere(&cluster, key);
    cluster.begin_move(slot(key.as_bytes()), to);
    cluster.move_key(stored(3_600_000).as_bytes(), to);
    let decision = thread::scope(|scope| {
        // Not answered from memory: it is of another cost.
        let call = scope.spawn(|| limiter.check("r", "k").cost(2).wait().expect("it can be meant"));
        cluster.move_key(stored(7_200_000).as_bytes(), to);
        call.join().expect("no thread panics")
    });
    assert_eq!((decision.allowed(), decision.origin()), (false, Origin::Store), "{:?}", decision.failure());
    cluster.move_slot(slot(key.as_bytes()), to);
}
