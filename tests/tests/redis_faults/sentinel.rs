//! The primary that sentinels name, and how another takes its place.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidegate::{Builder, Decision, Document, Error, ErrorKind, Limiter, OnError, Origin, Rule};
use tidegate_tests::limiters::{Sure, build, drain, timed};
use tidegate_tests::servers::{Server, Watched, eventually};

use crate::proxy::{Proxy, Replies};

const SOON: Duration = Duration::from_secs(60);
const DEADLINE: Duration = Duration::from_millis(200);
/// What is promised: how soon after its promotion a replica is used.
const PROMISED: Duration = Duration::from_secs(2);

fn limiter(url: &str, deadline: Duration) -> Limiter {
    let rule = Rule::parse("r", "9/h").expect("the rule can be meant").on_error(OnError::Deny);
    let builder = Limiter::builder().url(url).deadline(deadline).rules([rule]);
    let limiter = builder.build().expect("the url can be meant");
    limiter.ready(SOON).wait().expect("the primary is found");
    limiter
}

fn url_of(sentinels: &[&Server]) -> String {
    let hosts: Vec<String> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
    format!("redis+sentinel://{}/{}", hosts.join(","), Watched::NAME)
}

/// Checks a subject of its own, and tells what was decided and whether the server has it now.
fn checked_at(limiter: &Limiter, server: &Server) -> (Decision, bool) {
    static SUBJECTS: AtomicU32 = AtomicU32::new(0);
    let subject = format!("subject-{}-", SUBJECTS.fetch_add(1, Ordering::SeqCst));
    let decision = limiter.check("r", &subject).wait().expect("a store that fails is no error");
    let there = server.call::<Vec<Vec<u8>>>(&format!("KEYS *{subject}*"));
    (decision, !there.is_empty())
}

/// Whether sentinels have made a replica of it; they end its clients' connections when they do.
fn is_replica(server: &Server) -> bool {
    server.try_call::<String>("INFO replication").is_ok_and(|info| info.contains("role:slave"))
}

#[track_caller]
fn is_used_as_promised(limiter: &Limiter, promoted: &Server) {
    let ((), took) = timed(|| eventually(SOON, || checked_at(limiter, promoted).1));
    assert!(took <= PROMISED, "it was used {took:?} after its promotion");
}

/// Checks all the time while something is done, and returns what was decided.
fn under_load<T>(limiter: &Limiter, work: impl FnOnce() -> T) -> (T, Vec<Decision>) {
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let checker = scope.spawn(move || {
            let (pause, mut decisions) = (Duration::from_millis(2), Vec::new());
            while is_done.recv_timeout(pause).is_err_and(|error| error == mpsc::RecvTimeoutError::Timeout) {
                decisions.push(limiter.check("r", "load").wait().expect("a store that fails is no error"));
            }
            decisions
        });
        let outcome = work();
        drop(done);
        (outcome, checker.join().expect("no check panics"))
    })
}

#[test]
fn a_promoted_replica_is_used_within_two_seconds_of_the_end_of_its_primary() {
    let watched = Watched::start();
    // Neither a sentinel that is dead from the start matters, nor one that dies with the primary.
    let url = watched.url().replacen("://", "://127.0.0.1:1,", 1);
    let limiter = limiter(&url, DEADLINE);
    let [primary, ..] = watched.servers() else { panic!("it has three") };
    assert!(checked_at(&limiter, primary).1);
    let ((), decisions) = under_load(&limiter, || {
        watched.sentinels()[0].kill();
        primary.kill();
        is_used_as_promised(&limiter, watched.promoted());
    });
    assert!(decisions.iter().any(|decision| decision.origin() == Origin::Closed), "on_error decides meanwhile");
    eventually(SOON, || limiter.peek("r", "k").wait().is_ok_and(|decision| decision.origin() == Origin::Store));
    assert_eq!(drain(&limiter, "r", "k", 12), 9);
}

#[test]
fn a_promoted_replica_is_used_within_two_seconds_while_the_old_primary_hangs() {
    let watched = Watched::start();
    let limiter = limiter(&watched.url(), DEADLINE);
    let [primary, ..] = watched.servers() else { panic!("it has three") };
    assert!(checked_at(&limiter, primary).1);
    primary.pause();
    let promoted = watched.promoted();
    is_used_as_promised(&limiter, promoted);
    // It comes back in the belief that it is the primary, and takes writes until the sentinels talk it out of that.
    primary.resume();
    let ((), decisions) = under_load(&limiter, || {
        eventually(SOON, || {
            let (decision, there) = checked_at(&limiter, promoted);
            assert!(there || decision.origin() == Origin::Closed, "{decision:?} was made elsewhere");
            is_replica(primary)
        });
    });
    assert!(decisions.iter().any(|decision| decision.origin() != Origin::Closed));
    assert!(checked_at(&limiter, promoted).1);
}

#[test]
fn a_failover_by_hand_is_followed_within_two_seconds_though_the_old_primary_takes_writes_on() {
    let watched = Watched::start();
    let limiter = limiter(&watched.url(), SOON);
    let primary = &watched.servers()[0];
    let ((), decisions) = under_load(&limiter, || {
        watched.sentinels()[0].call::<()>(&format!("SENTINEL FAILOVER {}", Watched::NAME));
        is_used_as_promised(&limiter, watched.promoted());
        eventually(SOON, || is_replica(primary));
    });
    for decision in decisions {
        assert_eq!(decision.failure(), None, "nobody notices");
    }
}

#[test]
fn a_primary_goes_on_while_its_sentinels_are_gone_and_is_not_found_without_them() {
    let primary = Server::start();
    let sentinel = Server::builder().start_sentinel_of(&primary, 1);
    let url = url_of(&[&sentinel]);
    let limiter = limiter(&url, SOON);
    sentinel.kill();
    for _ in 0..300 {
        assert!(checked_at(&limiter, &primary).1);
    }
    let error = unready(Limiter::builder().url(&url).prefix("another"));
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.message().contains(&sentinel.port().to_string()), "{error}");
}

/// Why a limiter of this does not become ready.
fn unready(builder: Builder) -> Error {
    let limiter = build(builder, &[("r", "9/h")]);
    limiter.ready(Duration::from_secs(3)).wait().expect_err("it has nothing to be ready for")
}

#[test]
fn a_sentinel_that_names_a_replica_is_not_believed() {
    let primary = Server::start();
    let replica = Server::builder().config(&format!("replicaof 127.0.0.1 {}", primary.port())).start();
    eventually(SOON, || replica.info("master_link_status").as_deref() == Some("up"));
    // Alone, the first can do nothing against what it takes for its primary.
    let stale = Server::builder().start_sentinel_of(&replica, 2);
    let right = Server::builder().start_sentinel_of(&primary, 2);
    assert!(checked_at(&limiter(&url_of(&[&stale, &right]), SOON), &primary).1);
    let error = unready(Limiter::builder().url(&url_of(&[&stale])));
    assert!(error.message().contains("which is a replica"), "{error}");
}

#[test]
fn what_the_url_of_sentinels_leads_to_in_vain_is_said() {
    let (server, node) = (Server::start(), Server::builder().config("cluster-enabled yes").start());
    let [of_server, of_node] = [&server, &node].map(|server| Server::builder().start_sentinel_of(server, 1));
    let unknown = url_of(&[&of_server]).replace("/main", "/other");
    let at_sentinel = of_server.url();
    for (url, kind, message) in [
        (unknown, ErrorKind::StoreUnavailable, "the sentinels do not know \"other\""),
        (url_of(&[&of_node]), ErrorKind::StoreRefused, "is a node of a cluster; write redis+cluster://"),
        (url_of(&[&server]), ErrorKind::StoreRefused, "is no sentinel; write redis://"),
        (at_sentinel, ErrorKind::StoreRefused, "is a sentinel; write redis+sentinel://"),
    ] {
        let error = unready(Limiter::builder().url(&url));
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(message), "{error}");
    }
}

#[test]
fn sentinels_have_a_login_of_their_own_and_speak_tls_if_the_url_does() {
    let primary = Server::builder().password("primarys").tls(&["127.0.0.1"]).start();
    // The one permission that docs/document.md names.
    let sentinel = Server::builder()
        .user("watcher on >sentinels -@all +sentinel|get-master-addr-by-name")
        .user("default off")
        .tls_of(&primary)
        .start_sentinel_of(&primary, 1);
    let url = url_of(&[&sentinel]).replace("redis+sentinel://", "rediss+sentinel://:primarys@");
    let document = |login: &str| {
        let ca = primary.tls().ca();
        let text = format!("version = 1\n[store]\nurl = \"{url}\"\n[store.tls]\nca = \"{}\"\n{login}", ca.display());
        Limiter::builder().document(&Document::from_toml(&text).expect("a document"))
    };
    let limiter = build(
        document("[store.sentinel]\nusername = \"watcher\"\npassword = \"sentinels\"\n").deadline(SOON),
        &[("r", "9/h")],
    );
    assert_eq!(limiter.check("r", "k").sure().remaining(), 8);
    for login in ["", "[store.sentinel]\nusername = \"watcher\"\npassword = \"primarys\"\n"] {
        let error = unready(document(login).prefix("another"));
        assert!(error.message().contains("go into [store.sentinel]"), "{error}");
        assert!(!error.message().contains("primarys"), "{error}");
    }
}

#[test]
fn host_names_and_addresses_that_sentinels_announce_are_reached() {
    let primary = Server::start();
    let named = Server::builder()
        .config("sentinel resolve-hostnames yes")
        .config("sentinel announce-hostnames yes")
        .config(&format!("sentinel monitor named localhost {} 1", primary.port()))
        .start_sentinel_of(&primary, 1);
    let url = url_of(&[&named]);
    let proxy = Proxy::to(primary.port(), Replies::Pass);
    let behind = proxy.url().replace("redis://", "");
    let announced = |host| format!("{host}:{}", primary.port());
    for (url, from, to) in [
        (url.replace("/main", "/named"), "localhost", None),
        (url.replace("/main", "/named"), "localhost", Some(&behind)),
        (url, "127.0.0.1", Some(&behind)),
    ] {
        let builder = Limiter::builder().url(&url).deadline(SOON);
        let builder = to.iter().fold(builder, |builder, to| builder.map_address(&announced(from), to));
        let (before, _) = proxy.calls();
        let there = checked_at(&build(builder, &[("r", "9/h")]), &primary).1;
        assert!(there, "{url}");
        assert_eq!(proxy.calls().0 > before, to.is_some(), "{url} through {to:?}");
    }
}
