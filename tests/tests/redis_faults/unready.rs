//! Servers that answer, and are not ready, or do not take what others take; and addresses that swallow everything.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use futures_executor::block_on;
use futures_util::future::join_all;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
use tidegate::{ErrorKind, Limiter, Origin};
use tidegate_tests::limiters::{Sure as _, build, timed};
use tidegate_tests::servers::{Cluster, Server, eventually, slot};

use crate::policy::{AT_MOST, DEADLINE, SILENT, SOON, assert_policies, checked, limiter};
use crate::proxy::{Proxy, Replies};

#[test]
fn on_error_decides_where_packets_vanish() {
    // A listener whose queue is full: whoever else would connect hears nothing, not even no.
    let hole = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket can be made");
    bind(&hole, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    listen(&hole, 0).expect("it is bound");
    let hole = TcpListener::from(hole);
    let address = hole.local_addr().expect("it is bound");
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        queued.push(stream);
    }
    for scheme in ["redis", "redis+cluster"] {
        let limiter = limiter(&format!("{scheme}://{address}"), DEADLINE);
        assert_policies(&limiter, &SILENT);
        let (outcome, took) = timed(|| limiter.ready(DEADLINE).wait());
        assert!(outcome.is_err() && took < AT_MOST, "{outcome:?} {took:?}");
    }
}

#[test]
fn on_error_decides_while_a_server_loads_its_data() {
    let server = Server::builder().config("key-load-delay 5000").config("loading-process-events-interval-bytes 1024");
    let server = server.start();
    let limiter = limiter(&server.url(), SOON);
    assert_eq!(limiter.check("deny", "k").sure().remaining(), 4);
    server.call::<()>("DEBUG POPULATE 400 key 100");
    server.call::<()>("SAVE");
    thread::scope(|scope| {
        scope.spawn(|| server.restart());
        eventually(SOON, || {
            let decision = checked(&limiter, &["deny"]);
            decision.failure().is_some_and(|error| error.message().contains("LOADING"))
        });
        assert_policies(&limiter, &[ErrorKind::StoreUnavailable]);
    });
    eventually(SOON, || checked(&limiter, &["allow"]).origin() == Origin::Store);
    assert_eq!(limiter.peek("deny", "k").sure().remaining(), 4, "it came back with what it had saved");
}

#[test]
fn on_error_decides_while_a_cluster_is_down_and_the_store_does_afterwards() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster.url(), DEADLINE);
    limiter.ready(SOON).wait().expect("the cluster is up");
    // A shard is lost with its replica; the others know of it, and take no calls at all.
    let lost = cluster.masters().into_iter().find(|node| node.port() != home(&cluster)).expect("there are three");
    let replica = cluster.replica_of(lost);
    replica.kill();
    lost.kill();
    eventually(SOON, || {
        let decision = checked(&limiter, &["deny"]);
        decision.failure().is_some_and(|error| error.message().contains("CLUSTERDOWN"))
    });
    assert_policies(&limiter, &[ErrorKind::StoreUnavailable]);
    // All slots are served again with the master alone.
    lost.restart();
    eventually(SOON, || checked(&limiter, &["allow"]).origin() == Origin::Store);
}

/// The port of the node that has the tests' key.
fn home(cluster: &Cluster) -> u16 {
    cluster.master_of(slot(b"tidegate:1:{k}")).port()
}

#[test]
fn a_node_that_takes_no_batches_across_slots_is_sent_none_from_then_on() {
    let server = Server::builder().config("cluster-enabled yes").start();
    // The flag arrives as one that no server knows.
    let flags = Some(("allow-cross-slot-keys", "allow-cross-slot-kegs"));
    let proxy = Proxy::altering(server.port(), Replies::Pass, flags);
    server.call::<()>(&format!("CONFIG SET cluster-announce-port {}", proxy.port()));
    server.call::<()>("CLUSTER ADDSLOTSRANGE 0 16383");
    eventually(SOON, || server.call::<String>("CLUSTER INFO").contains("cluster_state:ok"));
    let limiter = build(Limiter::builder().url(&proxy.url()).deadline(SOON), &[("r", "2/h")]);
    limiter.ready(SOON).wait().expect("the server is up");
    let together = || {
        let calls = (0..300).map(|key| limiter.check("r", format!("key {key}")).into_future());
        let decisions = block_on(join_all(calls));
        let of_store = decisions.into_iter().map(|decision| decision.expect("the call can be meant"));
        of_store.inspect(|decision| assert_eq!(decision.origin(), Origin::Store)).filter(|d| d.allowed()).count()
    };
    assert_eq!([together(), together(), together()], [300, 300, 0], "each is charged once, by itself");
    let sizes = limiter.metrics().batch_sizes;
    let shared: u64 = sizes.counts[1..].iter().sum();
    assert!((1..=2).contains(&shared), "what was under way, and nothing more: {sizes:?}");
    assert!(limiter.metrics().errors.iter().all(|error| error.count == 0), "nobody noticed");
}
