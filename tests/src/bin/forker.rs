//! A process that forks as servers do that load first and then multiply. Each order prints lines; the test reads them
//! until the last process has ended, and every process ends by returning from `main`.
//!
//! ```text
//! forker family   URL PREFIX LIMIT CALLS DEPTH  use, fork four times, use everywhere with several threads
//! forker leave    URL PREFIX                    children drop the limiter, and the parent goes on over its connection
//! forker inflight URL PREFIX LIMIT FORKS        fork again and again while other threads make calls of every kind
//! forker halfway  URL PREFIX                    calls that were under way at the fork are awaited in the child
//! forker queue    URL PREFIX                    a completion queue before and after a fork
//! forker sockets  URL PREFIX                    an event loop that reads, forked with a check under way
//! forker memory                                 state in memory, and receipts' numbers
//! ```
#![allow(clippy::print_stdout, reason = "its output is what it is run for")]

use std::future::{Future as _, IntoFuture as _};
use std::io::{BufRead as _, Write as _};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};
use tidegate::{Completions, Decision, Limiter, LoopSocket, Origin, Outcome};

const PATIENCE: Duration = Duration::from_secs(20);
const THREADS: usize = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["family", url, prefix, limit, calls, depth] => {
            family(&limiter(url, prefix, limit), number(calls), number(depth));
        }
        ["leave", url, prefix] => leave(limiter(url, prefix, "1000")),
        ["inflight", url, prefix, limit, forks] => inflight(&limiter(url, prefix, limit), number(forks)),
        ["halfway", url, prefix] => halfway(&limiter(url, prefix, "5"), url),
        ["queue", url, prefix] => queue(&limiter(url, prefix, "5")),
        ["sockets", url, prefix] => sockets(&limiter(url, prefix, "5")),
        ["memory"] => memory(),
        _ => panic!("no such order: {arguments:?}"),
    }
}

/// Forks: none in the child, and the child's number in the parent.
fn fork() -> Option<Pid> {
    #[allow(unsafe_code, reason = "only unsafe code can fork, and that a process may is what is tested")]
    // SAFETY: the child goes on with what a fork leaves it; that this does not hang is the test.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "the system has no room for a process");
    Pid::from_raw(child)
}

/// Waits for a child, which must have ended by itself, and well.
fn end_of(child: Pid) {
    let (_, status) = waitpid(Some(child), WaitOptions::empty()).expect("it is our child").expect("it has ended");
    assert_eq!(status.exit_status(), Some(0), "a child failed: {status:?}");
}

fn limiter(url: &str, prefix: &str, limit: &str) -> Limiter {
    let builder = Limiter::builder().url(url).prefix(prefix).deadline(PATIENCE);
    let limiter = builder.rule("r", &format!("{limit}/365d")).rule("other", "1000000/365d").build();
    let limiter = limiter.expect("the test's rules can be meant");
    limiter.ready(PATIENCE).wait().expect("the servers are up");
    limiter
}

/// Whether a decision of the store, here remembered or not, lets pass.
fn sure(decision: &Decision) -> bool {
    assert!(matches!(decision.origin(), Origin::Store | Origin::DenyCache), "{:?}", decision.failure());
    decision.allowed()
}

fn check(limiter: &Limiter) -> bool {
    sure(&limiter.check("r", "k").wait().expect("the call can be meant"))
}

/// How many of some checks were admitted, from several threads that begin at once.
fn admitted(limiter: &Limiter, calls: usize) -> usize {
    let barrier = Barrier::new(THREADS);
    let one = || {
        barrier.wait();
        (0..calls).filter(|_| check(limiter)).count()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    })
}

/// In one piece, since several processes write to the same pipe.
fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    output.write_all(format!("{line}\n").as_bytes()).expect("the test reads");
    output.flush().expect("the test reads");
}

fn wait_for_a_word() {
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

/// Four children, and of each of them one child more per depth.
fn family(limiter: &Limiter, calls: usize, depth: usize) {
    let mut admitted_here = usize::from(check(limiter));
    let (mut children, mut is_child) = (Vec::new(), false);
    for _ in 0..4 {
        match fork() {
            Some(child) => children.push(child),
            None => {
                (is_child, admitted_here) = (true, 0);
                children.clear();
                break;
            }
        }
        admitted_here += usize::from(check(limiter));
    }
    for _ in 0..depth {
        if !is_child {
            break;
        }
        admitted_here += usize::from(check(limiter));
        match fork() {
            Some(child) => {
                children.push(child);
                break;
            }
            None => (children, admitted_here) = (Vec::new(), 0),
        }
    }
    admitted_here += admitted(limiter, calls);
    say(&admitted_here.to_string());
    // Until the test has counted connections.
    wait_for_a_word();
    children.into_iter().for_each(end_of);
}

fn leave(limiter: Limiter) {
    say("ready");
    wait_for_a_word();
    for turn in 0..4 {
        let Some(child) = fork() else {
            // One that has used it has connections of its own to close.
            if turn % 2 == 0 {
                assert!(check(&limiter));
            }
            drop(limiter);
            return;
        };
        end_of(child);
        assert!(check(&limiter), "the parent goes on");
    }
    say("done");
    wait_for_a_word();
    drop(limiter);
}

/// Calls of every kind, whatever lock or line each takes; how many checks of the one key were admitted.
fn calls_of_every_kind(limiter: &Limiter) -> usize {
    let one = usize::from(check(limiter));
    let other = limiter.check("other", "k").limits("999999/365d").wait().expect("the call can be meant");
    assert!(sure(&other));
    assert!(sure(&limiter.check_all(["other"], "k").wait().expect("the call can be meant")));
    assert!(limiter.refund(&other.receipt()).wait().expect("it is fresh"));
    let turn = limiter.acquire("other", "k").wait().expect("the call can be meant");
    assert!(sure(&turn));
    limiter.peek("other", "k").wait().expect("the call can be meant");
    one
}

fn inflight(limiter: &Limiter, forks: usize) {
    let is_over = AtomicBool::new(false);
    let others = thread::scope(|scope| {
        let busy = || {
            let mut admitted = 0;
            while !is_over.load(Ordering::Relaxed) {
                admitted += calls_of_every_kind(limiter);
            }
            admitted
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(busy)).collect();
        for _ in 0..forks {
            let Some(child) = fork() else {
                // To leave the outer scope would be to wait for threads that are the parent's.
                let admitted: usize = thread::scope(|scope| {
                    let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| calls_of_every_kind(limiter))).collect();
                    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
                });
                say(&admitted.to_string());
                std::process::exit(0);
            };
            end_of(child);
        }
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum::<usize>()
    });
    say(&others.to_string());
}

fn halfway(limiter: &Limiter, url: &str) {
    while check(limiter) {}
    let mut acquire = limiter.acquire("r", "k").timeout(Duration::from_secs(366 * 86_400)).into_future();
    let behind = limiter.acquire("r", "k").timeout(Duration::from_secs(367 * 86_400)).into_future();
    let fresh = limiter.peek("r", "k").into_future();
    let mut context = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut acquire).poll(&mut context).is_pending(), "its turn comes in a year");
    // Until there is a connection for checks whose thread waits.
    for _ in 0..500 {
        sure(&limiter.peek("other", "k").wait().expect("the call can be meant"));
    }
    // The test stops the server, and lets it go on when the child has its answer.
    say("ready");
    wait_for_a_word();
    let mut waited = limiter.check("other", "k").into_future();
    assert!(waited.wait_for(Duration::ZERO).is_none(), "nobody answers");
    let mut check = limiter.check("other", "k").into_future();
    assert!(Pin::new(&mut check).poll(&mut context).is_pending(), "nobody answers");
    let mut inspection = Limiter::builder().url(url).inspect(PATIENCE);
    assert!(Pin::new(&mut inspection).poll(&mut context).is_pending(), "nor here");
    match fork() {
        Some(child) => {
            end_of(child);
            assert!(sure(&check.wait().expect("the call can be meant")), "in the parent nothing changes");
            let waited = waited.wait_for(PATIENCE).expect("it is answered").expect("the call can be meant");
            assert!(sure(&waited), "nor with what the thread reads itself");
            assert!(Pin::new(&mut acquire).poll(&mut context).is_pending());
        }
        None => {
            let decision = check.wait().expect("the call can be meant");
            assert_eq!(decision.origin(), Origin::Open, "nobody answers it here");
            assert_eq!(decision.failure().map(|error| error.code()), Some("store_unavailable"));
            let decision = waited.wait_for(PATIENCE).expect("it is answered").expect("the call can be meant");
            assert_eq!(decision.origin(), Origin::Open, "the reply is the parent's");
            let inspected = inspection.wait().map_err(|error| error.code());
            assert!(matches!(inspected, Err("store_unavailable")), "{inspected:?}");
            say("answered");
            assert!(!sure(&fresh.wait().expect("the call can be meant")), "made before the fork, begun after it");
            drop(behind);
        }
    }
    // In both, with its timer and its place in line.
    drop(acquire);
    assert!(!self::check(limiter));
    say("done");
}

fn woken() -> (Completions, mpsc::Receiver<()>) {
    let (waker, woken) = mpsc::channel();
    (
        Completions::new(move || {
            let _ = waker.send(());
        }),
        woken,
    )
}

/// Submits three calls and takes what comes of them.
fn submitted(limiter: &Limiter, queue: &Completions, woken: &mpsc::Receiver<()>) -> Vec<u64> {
    for ticket in 0..3 {
        let at_once = limiter.check("other", "k").submit(queue, ticket).expect("the call can be meant");
        assert!(at_once.is_none(), "it goes to the server");
    }
    let mut completed = Vec::new();
    while completed.len() < 3 {
        woken.recv_timeout(PATIENCE).expect("it wakes");
        queue.drain(&mut completed);
    }
    completed.into_iter().map(|one| one.ticket).collect()
}

fn queue(limiter: &Limiter) {
    let (queue, woken_here) = woken();
    for ticket in 0..100 {
        assert!(limiter.check("other", "k").submit(&queue, ticket).expect("the call can be meant").is_none());
    }
    woken_here.recv_timeout(PATIENCE).expect("some have come, others are under way");
    let child = fork();
    let mut completed = Vec::new();
    if let Some(child) = child {
        while completed.len() < 100 {
            queue.drain(&mut completed);
            if queue.pending() > 0 {
                let _ = woken_here.recv_timeout(PATIENCE);
            }
        }
        let mut tickets: Vec<u64> = completed.iter().map(|one| one.ticket).collect();
        tickets.sort_unstable();
        assert!(tickets.into_iter().eq(0..100), "each once");
        assert!(completed.iter().all(|one| matches!(&one.result, Ok(Outcome::Decision(it)) if sure(it))));
        end_of(child);
    } else {
        assert_eq!(queue.pending(), 0, "those are the parent's");
        queue.drain(&mut completed);
        assert!(completed.is_empty(), "those are the parent's");
        let (own, woken_own) = woken();
        let mut tickets = submitted(limiter, &own, &woken_own);
        tickets.sort_unstable();
        assert_eq!(tickets, [0, 1, 2]);
        let refused = limiter.check("other", "k").submit(&queue, 0).expect_err("the queue is the parent's");
        assert_eq!(refused.code(), "invalid_request");
        assert!(limiter.acquire("other", "k").submit(&queue, 0).is_err());
        assert!(limiter.reset("other", "nobody").submit(&queue, 0).is_err());
        assert_eq!(queue.pending(), 0);
    }
    say("done");
}

/// The child must take nothing of what is the parent's to read.
fn sockets(limiter: &Limiter) {
    let (waker, woken) = mpsc::channel();
    let completions = Completions::reading(move || waker.send(()).unwrap_or(()));
    let (mut sockets, mut completed) = (Vec::new(), Vec::new());
    while sockets.is_empty() {
        let begun = limiter.check("other", "first").submit(&completions, 0).expect("the call can be meant");
        assert!(begun.is_none(), "a server is asked");
        woken.recv_timeout(PATIENCE).expect("it is answered");
        completions.drain(&mut completed);
        sockets.extend(completions.sockets());
    }
    while completions.pending() > 0 {
        sockets.retain(LoopSocket::read);
        completions.drain(&mut completed);
    }
    say("ready");
    wait_for_a_word();
    completed.clear();
    assert!(limiter.check("r", "k").submit(&completions, 1).expect("the call can be meant").is_none());
    match fork() {
        None => {
            assert!(!sockets.iter().any(LoopSocket::read), "it is the parent's");
            assert!(completions.sockets().is_empty());
        }
        Some(child) => {
            end_of(child);
            say("left");
            wait_for_a_word();
            while completed.is_empty() {
                sockets.retain(LoopSocket::read);
                completions.drain(&mut completed);
            }
            let Ok(Outcome::Decision(decision)) = &completed[0].result else { panic!("{:?}", completed[0].result) };
            assert!(sure(decision));
            say("answered");
        }
    }
}

fn memory() {
    let limiter = Limiter::builder().rule("r", "5/h").build().expect("the rule can be meant");
    let check = || limiter.check("r", "k").wait().expect("the call can be meant");
    assert_eq!(check().remaining(), 4);
    let mut children = Vec::new();
    for _ in 0..4 {
        match fork() {
            Some(child) => children.push(child),
            None => {
                children.clear();
                break;
            }
        }
    }
    // Each has a copy of the state as it was.
    let decision = check();
    assert_eq!(decision.remaining(), 3);
    // A receipt begins with its version and its number: nine bytes, twelve letters.
    say(&decision.receipt().to_string()[..12]);
    assert!(limiter.refund(&decision.receipt()).wait().expect("it is fresh"));
    assert!(limiter.refund(&decision.receipt()).wait().is_err(), "once");
    assert_eq!((0..9).filter(|_| check().allowed()).count(), 4);
    children.into_iter().for_each(end_of);
}

fn number(text: &str) -> usize {
    text.parse().expect("the test passes a number")
}
