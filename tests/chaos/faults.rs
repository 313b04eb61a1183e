//! What is done to the servers, and when it was over.

use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_tests::servers::{Server, slot};

use crate::checker::Fault;
use crate::record::{micros, now, pause};
use crate::stage::Stage;

/// Something that happens to a cluster under load.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Whether it needs a network of its own.
    pub(crate) network: bool,
    /// Whether clients log in with a password.
    pub(crate) password: bool,
    /// Whether another node becomes primary, and whether the short form has it.
    pub(crate) failover: bool,
    pub(crate) quick: bool,
    pub(crate) inject: fn(&Stage) -> Vec<Fault>,
}

const PLAIN: Scenario = Scenario {
    name: "none",
    about: "nothing happens",
    network: false,
    password: false,
    failover: false,
    quick: false,
    inject: none,
};

pub(crate) const SCENARIOS: [Scenario; 14] = [
    Scenario { quick: true, ..PLAIN },
    Scenario { name: "kill", about: "kill -9 of a primary", failover: true, quick: true, inject: kill, ..PLAIN },
    Scenario { name: "failover", about: "CLUSTER FAILOVER", failover: true, inject: hand_over, ..PLAIN },
    Scenario { name: "freeze", about: "SIGSTOP of a primary for 5 s", failover: true, inject: freeze, ..PLAIN },
    Scenario {
        name: "cut-off",
        about: "a primary cut off from all",
        failover: true,
        network: true,
        inject: cut_off,
        ..PLAIN
    },
    Scenario {
        name: "cut-from-nodes",
        about: "a primary cut off from the other nodes; clients still reach it",
        failover: true,
        network: true,
        inject: cut_from_nodes,
        ..PLAIN
    },
    Scenario {
        name: "blip",
        about: "a primary cut off from all, for less than the node timeout",
        network: true,
        inject: blip,
        ..PLAIN
    },
    Scenario { name: "move", about: "slots moved under load", quick: true, inject: move_slots, ..PLAIN },
    Scenario {
        name: "script-flush",
        about: "SCRIPT FLUSH on all nodes, again and again",
        inject: forget_scripts,
        ..PLAIN
    },
    Scenario { name: "replica-down", about: "a replica killed and started again", inject: lose_replica, ..PLAIN },
    Scenario { name: "client-pause", about: "CLIENT PAUSE of a primary for 2 s", inject: pause_clients, ..PLAIN },
    Scenario { name: "empty", about: "a primary restarted, empty", inject: empty, ..PLAIN },
    Scenario { name: "oom", about: "a primary out of memory for 2 s", inject: out_of_memory, ..PLAIN },
    Scenario {
        name: "password",
        about: "passwords changed on all nodes, the file a second later",
        password: true,
        quick: true,
        inject: change_password,
        ..PLAIN
    },
];

const ALL: RangeInclusive<u16> = 0..=16_383;
/// How long a fault lasts that has no length of its own.
const SPELL: Duration = Duration::from_secs(2);
/// How long the cluster may take for what it does by itself.
const PATIENCE: u64 = 30_000_000;

/// When something had come true, which the cluster brings about.
fn when(what: &str, mut holds: impl FnMut() -> bool) -> u64 {
    let start = now();
    while !holds() {
        assert!(now() < start + PATIENCE, "still not so: {what}");
        pause(Duration::from_millis(10));
    }
    now()
}

fn is_primary(node: &Server) -> bool {
    node.info("role").is_some_and(|role| role == "master")
}

fn serves(node: &Server) -> bool {
    node.try_call::<String>("CLUSTER INFO").is_ok_and(|info| info.contains("cluster_state:ok"))
}

/// A fault that loses nothing, and is over now.
fn over(start: u64, slots: Vec<RangeInclusive<u16>>) -> Vec<Fault> {
    let end = now();
    vec![Fault { start, end, served: end, slots, loses: false, overlap: 0 }]
}

/// The victim, what it owns, and who takes its place.
fn roles(stage: &Stage) -> (&Server, Vec<RangeInclusive<u16>>, &Server) {
    let victim = stage.victim();
    (victim, stage.cluster.slots_of(victim), stage.cluster.replica_of(victim))
}

fn none(_: &Stage) -> Vec<Fault> {
    pause(SPELL);
    Vec::new()
}

fn kill(stage: &Stage) -> Vec<Fault> {
    let (victim, slots, replica) = roles(stage);
    let start = now();
    victim.kill();
    let served = when("the replica is promoted", || is_primary(replica));
    pause(SPELL);
    victim.restart();
    stage.cluster.settle();
    vec![Fault { start, end: now(), served, slots, loses: true, overlap: 0 }]
}

/// Nothing is lost: the old primary lets nobody write until the new one has all.
fn hand_over(stage: &Stage) -> Vec<Fault> {
    let (_, slots, replica) = roles(stage);
    let start = now();
    replica.call::<()>("CLUSTER FAILOVER");
    let served = when("the replica is promoted", || is_primary(replica));
    stage.cluster.settle();
    vec![Fault { start, end: now(), served, slots, loses: false, overlap: 0 }]
}

fn freeze(stage: &Stage) -> Vec<Fault> {
    let (victim, slots, replica) = roles(stage);
    let start = now();
    victim.pause();
    let served = when("the replica is promoted", || is_primary(replica));
    pause(Duration::from_micros((start + micros(Duration::from_secs(5))).saturating_sub(now())));
    let resumed = now();
    victim.resume();
    let overlap = when("the old primary has heard of the new one", || !is_primary(victim)) - resumed;
    stage.cluster.settle();
    vec![Fault { start, end: now(), served, slots, loses: true, overlap }]
}

fn cut_off(stage: &Stage) -> Vec<Fault> {
    part(stage, |stage, node| stage.net().cut_off(node))
}

fn cut_from_nodes(stage: &Stage) -> Vec<Fault> {
    part(stage, |stage, node| stage.net().cut_from_nodes(node))
}

/// The old primary goes on until it finds itself alone; the new one begins when the others have given the old one up.
fn part(stage: &Stage, cut: fn(&Stage, usize)) -> Vec<Fault> {
    let (victim, slots, replica) = roles(stage);
    let start = now();
    cut(stage, stage.victim_index());
    let (mut stopped, mut promoted) = (None, None);
    when("one primary stops and another begins", || {
        if !serves(victim) {
            stopped.get_or_insert_with(now);
        }
        if is_primary(replica) {
            promoted.get_or_insert_with(now);
        }
        stopped.is_some() && promoted.is_some()
    });
    let (stopped, promoted) = stopped.zip(promoted).expect("both have just been seen");
    pause(SPELL);
    stage.net().heal(stage.victim_index());
    stage.cluster.settle();
    let served = stopped.max(promoted);
    vec![Fault { start, end: now(), served, slots, loses: true, overlap: stopped.saturating_sub(promoted) }]
}

/// Too short for anybody to be given up: nothing is lost.
fn blip(stage: &Stage) -> Vec<Fault> {
    let (_, slots, _) = roles(stage);
    let start = now();
    stage.net().cut_off(stage.victim_index());
    pause(Duration::from_millis(800));
    stage.net().heal(stage.victim_index());
    over(start, slots)
}

fn move_slots(stage: &Stage) -> Vec<Fault> {
    let start = now();
    let slots: Vec<u16> =
        ["hot0", "hot1", "bucket0", "bucket1", "ledger0-0", "audit0-0-0"].map(|key| slot(key.as_bytes())).into();
    for slot in &slots {
        let from = stage.cluster.master_of(*slot);
        let masters = stage.cluster.masters();
        let to = masters.into_iter().find(|node| node.port() != from.port()).expect("there are three masters");
        // For a while clients are sent from one to the other.
        stage.cluster.begin_move(*slot, to);
        pause(Duration::from_millis(100));
        stage.cluster.move_slot(*slot, to);
    }
    over(start, slots.into_iter().map(|slot| slot..=slot).collect())
}

fn forget_scripts(stage: &Stage) -> Vec<Fault> {
    let start = now();
    for _ in 0..20 {
        stage.cluster.nodes().iter().for_each(|node| node.call::<()>("SCRIPT FLUSH"));
        pause(SPELL / 20);
    }
    over(start, vec![ALL])
}

fn lose_replica(stage: &Stage) -> Vec<Fault> {
    let (_, slots, replica) = roles(stage);
    let start = now();
    replica.kill();
    pause(SPELL);
    replica.restart();
    stage.cluster.settle();
    over(start, slots)
}

fn pause_clients(stage: &Stage) -> Vec<Fault> {
    let (victim, slots, _) = roles(stage);
    let start = now();
    victim.call::<()>(&format!("CLIENT PAUSE {} ALL", SPELL.as_millis()));
    pause(SPELL);
    victim.call::<()>("PING");
    over(start, slots)
}

/// All that the node knew is lost; its replica follows it in that.
fn empty(stage: &Stage) -> Vec<Fault> {
    let (victim, slots, _) = roles(stage);
    let start = now();
    victim.restart();
    let served = when("the node serves again", || serves(victim));
    stage.cluster.settle();
    vec![Fault { start, end: now(), served, slots, loses: true, overlap: 0 }]
}

fn out_of_memory(stage: &Stage) -> Vec<Fault> {
    let (victim, slots, _) = roles(stage);
    let start = now();
    victim.call::<()>("CONFIG SET maxmemory 1");
    pause(SPELL);
    victim.call::<()>("CONFIG SET maxmemory 0");
    over(start, slots)
}

/// The rude way: nobody is told before, and everybody is thrown out.
fn change_password(stage: &Stage) -> Vec<Fault> {
    const NEXT: &str = "the-second";
    let start = now();
    for node in stage.cluster.nodes() {
        node.call::<()>(&format!("CONFIG SET requirepass {NEXT}"));
        node.call::<i64>("CLIENT KILL USER default");
    }
    pause(SPELL / 2);
    stage.write_password(NEXT);
    over(start, vec![ALL])
}
