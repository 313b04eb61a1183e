//! A client in a process of its own: some threads that ask as fast as they are told to, until its input ends.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::{Document, Limiter};
use tidegate_tests::limiters::Random;

use crate::record::{By, Call, History, micros, now, pause};
use crate::rules::{AUDIT, AUDIT_PER_KEY, BUCKET, HOT, LEDGER, QUOTA};

/// A client ends by then even if nobody ends it.
pub(crate) const LIFE: Duration = Duration::from_secs(180);
/// What it says once it is connected.
pub(crate) const READY: &str = "ready";
const THREADS: usize = 8;
/// Between two calls of one thread, on average.
const PACE: u64 = 5_000;
/// How many keys a shared rule has, so that every node has some.
const KEYS: u64 = 12;

/// # Panics
/// If the document cannot be meant, or its servers are not there at the start: then there is nothing to be seen.
pub(crate) fn run(document: &Path, out: &Path, client: usize) {
    static STOP: AtomicBool = AtomicBool::new(false);
    thread::spawn(|| {
        pause(LIFE + Duration::from_secs(20));
        std::process::exit(3);
    });
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        STOP.store(true, Ordering::SeqCst);
    });
    let end = now() + micros(LIFE);
    let stopped = || STOP.load(Ordering::SeqCst) || now() > end;
    let document = Document::read(document).expect("the parent writes a document");
    let limiter = Limiter::builder().document(&document).build().expect("the document can be meant");
    limiter.ready(Duration::from_secs(20)).wait().expect("the servers are up");
    let limiter = &limiter;
    let mut history = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(limiter, client, thread, stopped))).collect();
        writeln!(io::stdout(), "{READY}").expect("the parent reads it");
        let mut history = watch(stopped);
        for worker in workers {
            history.calls.extend(worker.join().expect("no worker panics"));
        }
        history
    });
    history.calls.sort_by_key(|call| call.invoked);
    std::fs::write(out, history.text()).expect("the parent's folder is writable");
}

/// Counts the threads, and sleeps: how late it wakes is how busy the machine is.
fn watch(stopped: impl Fn() -> bool) -> History {
    const NAP: Duration = Duration::from_millis(50);
    let mut history = History::default();
    while !stopped() {
        let before = now();
        pause(NAP);
        history.overslept = history.overslept.max((now() - before).saturating_sub(micros(NAP)));
        history.threads.push(std::fs::read_dir("/proc/self/task").expect("Linux lists threads").count());
    }
    history
}

fn work(limiter: &Limiter, client: usize, thread: usize, stopped: impl Fn() -> bool) -> Vec<Call> {
    let mut random = Random::new((client * THREADS + thread + 1) as u64);
    let (mut calls, mut audited) = (Vec::new(), 0);
    while !stopped() {
        let (rule, key, id) = match random.below(10) {
            0..3 => (HOT, format!("hot{}", random.below(KEYS)), None),
            3..5 => (BUCKET, format!("bucket{}", random.below(KEYS)), None),
            // Its time is the same for all clients.
            5..7 => (QUOTA, format!("quota{}-{}", now() / 2_000_000, random.below(KEYS / 2)), None),
            7..9 => (LEDGER, format!("ledger{client}-{}", random.below(KEYS)), None),
            _ => {
                audited += 1;
                let key = format!("audit{client}-{thread}-{}", audited / AUDIT_PER_KEY);
                (AUDIT, key, Some(format!("{client}.{thread}.{audited}")))
            }
        };
        calls.push(ask(limiter, client, rule, key, id));
        pause(Duration::from_micros(random.below(2 * PACE)));
    }
    calls
}

fn ask(limiter: &Limiter, client: usize, rule: &str, key: String, id: Option<String>) -> Call {
    let mut check = limiter.check(rule, &key);
    if let Some(id) = &id {
        check = check.request_id(id);
    }
    let invoked = now();
    let decision = check.wait().expect("a store that fails is no error");
    let answered = now();
    Call {
        client,
        invoked,
        answered,
        rule: rule.to_owned(),
        key,
        id,
        by: By::from(decision.origin()),
        allowed: decision.allowed(),
        charged: !decision.receipt().is_empty(),
        failure: Call::failure_of(&decision),
    }
}
