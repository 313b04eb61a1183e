//! Checks that are sent by who asks: on the connection which their own thread writes and reads, on the one which it writes only,
//! and on the one of an event loop.

use std::future::IntoFuture as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use futures_executor::block_on;
use tidegate::{
    Check, Completed, Completions, Decision, Document, Limiter, LoopSocket, OnError, Origin, Outcome, Rule,
};
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

/// An event loop that does nothing but to wait for checks.
struct EventLoop {
    completions: Completions,
    woken: Mutex<mpsc::Receiver<()>>,
    sockets: Mutex<Vec<LoopSocket>>,
    tickets: AtomicU64,
}

impl EventLoop {
    fn new() -> EventLoop {
        let (waker, woken) = mpsc::channel();
        let completions = Completions::reading(move || waker.send(()).unwrap_or(()));
        EventLoop { completions, woken: Mutex::new(woken), sockets: Mutex::default(), tickets: AtomicU64::default() }
    }

    fn decide(&self, check: Check<'_>) -> tidegate::Result<Decision> {
        let ticket = self.tickets.fetch_add(1, Ordering::SeqCst);
        if let Some(decision) = check.submit(&self.completions, ticket)? {
            return Ok(decision);
        }
        let mut completed = Vec::new();
        eventually(PATIENCE, || {
            self.turn(&mut completed);
            !completed.is_empty()
        });
        decision(completed.swap_remove(0))
    }

    /// One turn: a socket that is not readable says nothing when it is read.
    fn turn(&self, completed: &mut Vec<Completed>) {
        let _ = self.woken.lock().expect("nobody panics with it").recv_timeout(Duration::from_millis(1));
        let mut sockets = self.sockets.lock().expect("nobody panics with it");
        sockets.extend(self.completions.sockets());
        sockets.retain(LoopSocket::read);
        self.completions.drain(completed);
    }
}

fn decision(completed: Completed) -> tidegate::Result<Decision> {
    match completed.result? {
        Outcome::Decision(decision) => Ok(decision),
        other => panic!("a check is answered with {other:?}"),
    }
}

type Ask = dyn Fn(Check<'_>) -> tidegate::Result<Decision> + Sync;

/// How a check is asked for, and the connection that it takes.
struct Way {
    connection: &'static str,
    ask: Box<Ask>,
}

fn ways() -> [Way; 3] {
    [
        Way { connection: "tidegate-lane", ask: Box::new(|check| check.wait()) },
        Way { connection: "tidegate-relay", ask: Box::new(|check| block_on(check.into_future())) },
        Way::of(&Arc::new(EventLoop::new())),
    ]
}

impl Way {
    fn of(event_loop: &Arc<EventLoop>) -> Way {
        let event_loop = Arc::clone(event_loop);
        Way { connection: "tidegate-loop", ask: Box::new(move |check| event_loop.decide(check)) }
    }

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
    for way in ways() {
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
    for way in ways() {
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
    for way in ways() {
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
    for way in ways() {
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
    for way in ways() {
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
    ways()[0].begin(&server, &limiter);
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

/// So many runs of the script leave a loop at once at the most.
const RUNS: u64 = 8;
/// The most checks of one run.
const TOGETHER: u64 = 128;

fn submitted(limiter: &Limiter, event_loop: &EventLoop, key: &str, checks: u64) {
    Completions::together(|| {
        for ticket in 0..checks {
            let known = limiter.check("r", key).submit(&event_loop.completions, ticket);
            assert!(matches!(known, Ok(None)), "a server is asked");
        }
    });
}

#[test]
fn a_loop_sends_and_reads_many_by_itself() {
    let server = Server::start();
    let limiter = limiter(&server, PATIENCE);
    let event_loop = Arc::new(EventLoop::new());
    Way::of(&event_loop).begin(&server, &limiter);
    server.call::<()>("CONFIG RESETSTAT");
    let checks = TOGETHER * RUNS;
    for round in 1..=3 {
        submitted(&limiter, &event_loop, "many", checks);
        let mut completed = Vec::new();
        eventually(PATIENCE, || {
            event_loop.turn(&mut completed);
            completed.len() as u64 == checks
        });
        let decisions = completed.into_iter().map(|one| decision(one).expect("it can be meant"));
        let left: Vec<u32> = decisions.map(|decision| decision.remaining()).collect();
        let used = |checks: u64| LIMIT - u32::try_from(checks).expect("it is small");
        let expected: Vec<u32> = (1..=checks).map(|place| used(checks * (round - 1) + place)).collect();
        assert_eq!(left, expected, "each once, and in their order");
    }
    let info: String = server.call("INFO commandstats");
    let runs = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).expect("there were some");
    let runs: u64 = runs.split(',').next().and_then(|runs| runs.parse().ok()).expect("it is a number");
    // In two parts if they were few; as few runs as hold them otherwise, and all on one connection, which keeps their order.
    assert_eq!(runs, 3 * RUNS);
}

#[test]
fn a_loop_that_was_busy_past_the_deadline_learns_what_the_store_has_said() {
    let server = Server::start();
    let deadline = Duration::from_millis(100);
    let limiter = limiter(&server, deadline);
    let event_loop = Arc::new(EventLoop::new());
    let way = Way::of(&event_loop);
    way.begin(&server, &limiter);
    submitted(&limiter, &event_loop, "busy", 5);
    pass(3 * deadline);
    let mut completed = Vec::new();
    event_loop.turn(&mut completed);
    let origins: Vec<Origin> =
        completed.into_iter().map(|one| decision(one).expect("it can be meant").origin()).collect();
    assert_eq!(origins, [Origin::Store; 5]);
}

#[test]
fn a_loop_is_woken_for_what_others_answer_and_not_for_what_it_reads() {
    let server = Server::start();
    for (deadline, reads) in [(PATIENCE, true), (Duration::from_millis(100), false)] {
        let limiter = limiter(&server, deadline);
        let event_loop = Arc::new(EventLoop::new());
        Way::of(&event_loop).begin(&server, &limiter);
        let woken = event_loop.woken.lock().expect("nobody panics with it");
        while woken.try_recv().is_ok() {}
        submitted(&limiter, &event_loop, "woken", 5);
        let mut completed = Vec::new();
        eventually(PATIENCE, || {
            if reads {
                event_loop.sockets.lock().expect("nobody panics with it").retain(LoopSocket::read);
            } else if completed.is_empty() {
                woken.recv_timeout(PATIENCE).expect("the I/O thread answers at the deadline, and wakes the loop");
            }
            event_loop.completions.drain(&mut completed);
            completed.len() == 5
        });
        for one in completed {
            assert_eq!(decision(one).expect("it can be meant").origin(), Origin::Store);
        }
        assert!(!reads || woken.try_recv().is_err(), "what it reads itself wakes nobody");
    }
}

#[test]
fn a_loop_that_was_busy_for_long_finds_its_connection_as_it_was() {
    let server = Server::start();
    let limiter = limiter(&server, PATIENCE);
    let event_loop = Arc::new(EventLoop::new());
    let way = Way::of(&event_loop);
    way.begin(&server, &limiter);
    let id = way.id(&server);
    submitted(&limiter, &event_loop, "busy", 5);
    // Longer than a silent server keeps its connections.
    pass(Duration::from_millis(1_300));
    let mut completed = Vec::new();
    event_loop.turn(&mut completed);
    assert_eq!(completed.len(), 5);
    assert_eq!(way.origin(&limiter, "busy"), Origin::Store);
    assert_eq!(way.id(&server), id);
}

#[test]
fn a_cluster_that_has_forgotten_the_script_of_batches_learns_it_again() {
    let cluster = Cluster::start();
    let builder = Limiter::builder().url(&cluster.url()).prefix("taught").deadline(PATIENCE);
    let limiter = builder.rule("r", "1000000/365d token_bucket").build().expect("the rule can be meant");
    limiter.ready(PATIENCE).wait().expect("the servers are up");
    let node = cluster.master_of(slot(b"taught:1:{first}"));
    let event_loop = Arc::new(EventLoop::new());
    Way::of(&event_loop).begin(node, &limiter);
    let unknown =
        || node.call::<String>("INFO errorstats").lines().find(|line| line.contains("NOSCRIPT")).map(str::to_owned);
    let decided = || {
        submitted(&limiter, &event_loop, "first", 3);
        let mut completed = Vec::new();
        eventually(PATIENCE, || {
            event_loop.turn(&mut completed);
            completed.len() == 3
        });
        completed
            .into_iter()
            .for_each(|one| assert_eq!(decision(one).expect("it can be meant").origin(), Origin::Store));
    };
    node.call::<()>("SCRIPT FLUSH");
    decided();
    let before = unknown();
    assert!(before.is_some(), "it had forgotten it");
    decided();
    assert_eq!(unknown(), before);
}

#[test]
fn what_a_loop_leaves_behind_is_given_back_and_its_connection_closed() {
    let server = Server::start();
    let limiter = limiter(&server, PATIENCE);
    let event_loop = Arc::new(EventLoop::new());
    let way = Way::of(&event_loop);
    way.begin(&server, &limiter);
    server.pause();
    submitted(&limiter, &event_loop, "left", 5);
    drop(way);
    drop(event_loop);
    server.resume();
    eventually_whole(&limiter, "left");
    let loops = || server.call::<String>("CLIENT LIST").matches(" name=tidegate-loop ").count();
    eventually(PATIENCE, || loops() == 0);
    assert_eq!(limiter.metrics().late_refunds, 5);
}

#[test]
fn loops_beside_each_other_have_a_connection_each() {
    let server = Server::start();
    let limiter = limiter(&server, PATIENCE);
    let loops = [EventLoop::new(), EventLoop::new()];
    let connections = || server.call::<String>("CLIENT LIST").matches(" name=tidegate-loop ").count();
    eventually(PATIENCE, || {
        for event_loop in &loops {
            assert_eq!(event_loop.decide(limiter.check("r", "k")).expect("it can be meant").origin(), Origin::Store);
        }
        connections() == loops.len()
    });
    let [one, other] = loops;
    drop(one);
    eventually(PATIENCE, || connections() == 1);
    assert_eq!(other.decide(limiter.check("r", "k")).expect("it can be meant").origin(), Origin::Store);
}

#[test]
fn over_tls_checks_go_by_the_io_thread_alone() {
    let server = Server::builder().tls(&["redis.example"]).start();
    let (url, ca) = (server.url(), server.tls().ca());
    let document = Document::from_toml(&format!(
        "version = 1\n[rules]\nr = \"9/h\"\n[store]\nurl = \"{url}\"\n[store.tls]\nca = \"{}\"\nserver_name = \
         \"redis.example\"",
        ca.display()
    ));
    let builder = Limiter::builder().document(&document.expect("a document")).deadline(PATIENCE);
    let limiter = builder.build().expect("a limiter");
    for way in ways() {
        // The first asks for a connection of its own, where there may be one.
        for _ in 0..3 {
            assert_eq!(way.origin(&limiter, way.connection), Origin::Store);
            pass(SLOW);
        }
    }
    let clients: String = server.call("CLIENT LIST");
    assert!(clients.contains(" name=tidegate"), "{clients}");
    assert!(ways().iter().all(|way| way.line(&server).is_none()), "{clients}");
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
