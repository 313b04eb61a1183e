//! What a cluster tells of itself: addresses in all their forms, masters that are new or gone, and how often it is asked.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use redis::Value;
use tidegate::{Builder, Limiter};
use tidegate_tests::limiters::{Sure, build};
use tidegate_tests::servers::{Cluster, Server, eventually, slot};

const SOON: Duration = Duration::from_secs(60);

/// A cluster whose nodes the tests of this file let announce themselves, one test at a time.
fn cluster() -> MutexGuard<'static, Cluster> {
    static CLUSTER: LazyLock<Mutex<Cluster>> = LazyLock::new(|| Mutex::new(Cluster::start()));
    CLUSTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the nodes announce themselves in a way, by name if that is it, and waits until all have heard it of all.
fn announce(cluster: &Cluster, way: &str, names: &[&str]) {
    let name = |index: usize| names.get(index).copied().unwrap_or_default();
    for (index, node) in cluster.nodes().iter().enumerate() {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("cluster-preferred-endpoint-type").arg(way);
        set.arg("cluster-announce-hostname").arg(name(index));
        set.exec(&mut node.connection()).expect("Redis 7.0 has both");
    }
    let told = |node: &Server| -> Vec<Option<String>> {
        let ranges: Vec<Vec<Value>> = node.call("CLUSTER SLOTS");
        let endpoint = |server: &Value| {
            let Value::Array(server) = server else { panic!("{server:?} is no server") };
            redis::from_redis_value_ref(&server[0]).expect("a name, or nothing")
        };
        ranges.iter().flat_map(|range| &range[2..]).map(endpoint).collect()
    };
    let is_meant = |host: &Option<String>| match (way, host.as_deref()) {
        ("unknown-endpoint", host) => host.is_none(),
        ("hostname", Some("?")) => names.is_empty(),
        ("hostname", Some(host)) => names.contains(&host),
        _ => false,
    };
    eventually(SOON, || cluster.nodes().iter().all(|node| told(node).iter().all(is_meant)));
}

/// Checks on every node, then along a MOVED and an ASK.
fn follows(cluster: &Cluster, builder: Builder, prefix: &str) {
    let limiter = build(builder.prefix(prefix).deadline(SOON), &[("r", "9/h")]);
    for user in 0..30 {
        assert_eq!(limiter.check("r", format!("user {user}")).sure().remaining(), 8);
    }
    assert_eq!(limiter.check("r", "k").sure().remaining(), 8);
    let key = slot(format!("{prefix}:1:{{k}}").as_bytes());
    for left in [7, 5] {
        let to = elsewhere(cluster, key);
        cluster.move_slot(key, to);
        assert_eq!(limiter.check("r", "k").sure().remaining(), left, "along a MOVED");
        let back = elsewhere(cluster, key);
        cluster.begin_move(key, back);
        cluster.move_key(format!("{prefix}:1:{{k}}:r:sliding_window:3600000").as_bytes(), back);
        assert_eq!(limiter.check("r", "k").sure().remaining(), left - 1, "along an ASK");
        cluster.move_slot(key, back);
    }
}

fn elsewhere(cluster: &Cluster, slot: u16) -> &Server {
    let here = cluster.master_of(slot).port();
    cluster.masters().into_iter().find(|node| node.port() != here).expect("there are three masters")
}

#[test]
fn nodes_that_leave_their_name_out_are_where_they_were_asked() {
    let cluster = cluster();
    for (prefix, way) in [("unknown", "unknown-endpoint"), ("unnamed", "hostname")] {
        announce(&cluster, way, &[]);
        follows(&cluster, Limiter::builder().url(&cluster.url()), prefix);
    }
}

#[test]
fn host_names_are_followed() {
    let cluster = cluster();
    announce(&cluster, "hostname", &["localhost"; 6]);
    follows(&cluster, Limiter::builder().url(&cluster.url()), "named");
}

#[test]
fn announced_addresses_that_lead_nowhere_are_mapped() {
    let cluster = cluster();
    // No name below .invalid leads anywhere.
    let names: Vec<String> = (0..6).map(|index| format!("node-{index}.invalid")).collect();
    announce(&cluster, "hostname", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let builder = || Limiter::builder().url(&cluster.url());
    let by_host = names.iter().fold(builder(), |builder, name| builder.map_address(name, "127.0.0.1"));
    follows(&cluster, by_host, "by-host");
    let by_port = names.iter().zip(cluster.nodes()).fold(builder(), |builder, (name, node)| {
        let at = |host: &str| format!("{host}:{}", node.port());
        // The whole address comes before the host alone.
        builder.map_address(&at(name), &at("127.0.0.1")).map_address(name, "nowhere.invalid")
    });
    follows(&cluster, by_port, "by-port");
}

/// How many connections of limiters a server has.
fn connections(server: &Server) -> usize {
    server.call::<String>("CLIENT LIST").matches("name=tidegate").count()
}

#[test]
fn a_new_master_is_used_and_the_connection_to_one_that_is_gone_is_dropped() {
    let cluster = cluster();
    announce(&cluster, "hostname", &["localhost"; 6]);
    let limiter = build(Limiter::builder().url(&cluster.url()).prefix("new").deadline(SOON), &[("r", "9/h")]);
    assert_eq!(limiter.check("r", "k").sure().remaining(), 8);
    let key = slot(b"new:1:{k}");
    let before = cluster.master_of(key);
    let new = cluster.replica_of(before);
    cluster.detach(new);
    assert_eq!(connections(new), 0);
    cluster.move_slot(key, new);
    assert_eq!(limiter.check("r", "k").sure().remaining(), 7);
    assert!(connections(new) > 0);
    cluster.move_slot(key, before);
    assert_eq!(limiter.check("r", "k").sure().remaining(), 6);
    eventually(SOON, || connections(new) == 0);
    cluster.attach(new, before);
    assert_eq!(limiter.check("r", "k").sure().remaining(), 5);
}

#[test]
fn dead_seeds_do_not_matter() {
    let (cluster, silent) = (cluster(), Server::start());
    announce(&cluster, "hostname", &["localhost"; 6]);
    silent.pause();
    let (dead, alive) = (format!("127.0.0.1:1,127.0.0.1:{}", silent.port()), cluster.node(5).port());
    let url = format!("redis+cluster://{dead},127.0.0.1:{alive}");
    let limiter = build(Limiter::builder().url(&url).prefix("dead").deadline(SOON), &[("r", "9/h")]);
    for user in 0..30 {
        assert_eq!(limiter.check("r", format!("user {user}")).sure().remaining(), 8);
    }
}

#[test]
fn many_that_wait_for_the_map_ask_for_it_once() {
    let cluster = cluster();
    announce(&cluster, "hostname", &["localhost"; 6]);
    cluster.nodes().iter().for_each(|node| node.call::<()>("CONFIG RESETSTAT"));
    let limiter = build(Limiter::builder().url(&cluster.url()).prefix("once").deadline(SOON), &[("r", "9/h")]);
    thread::scope(|scope| {
        for user in 0..64 {
            let limiter = &limiter;
            scope.spawn(move || limiter.check("r", format!("user {user}")).sure());
        }
    });
    let asked = |node: &Server| -> u32 {
        let calls = node.info("cmdstat_cluster|slots");
        let count = calls.as_deref().and_then(|calls| calls.strip_prefix("calls=")?.split(',').next()?.parse().ok());
        count.unwrap_or(0)
    };
    let asked: u32 = cluster.nodes().iter().map(asked).sum();
    // One that looks just before the map is there may ask once more.
    assert!((1..=3).contains(&asked), "it was asked for {asked} times");
}
