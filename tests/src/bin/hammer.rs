//! A client in a process of its own, for tests of several processes on one key. What it found out goes to its output.
//!
//! ```text
//! hammer check  URL PREFIX LIMITS KEY THREADS CALLS   one rule "hammer": how many checks were admitted, and its time
//! hammer refund URL PREFIX LIMITS RECEIPT             true, false, or the code of the error
//! hammer together DOCUMENT CALLS                      ready; at a line of input, how many checks were admitted
//! hammer keys   MAX_KEYS KEYS                         threads before and after, then the most keys that were kept
//! ```
#![allow(clippy::print_stdout, reason = "its output is what it is run for")]

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate::{Document, Limiter, Origin};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["check", url, prefix, limits, key, threads, calls] => {
            let admitted = check(&limiter(url, prefix, limits), key, number(threads), number(calls));
            println!("{admitted} {}", seconds());
        }
        ["refund", url, prefix, limits, receipt] => {
            let receipt = receipt.parse().expect("the parent passes a receipt");
            match limiter(url, prefix, limits).refund(&receipt).wait() {
                Ok(refunded) => println!("{refunded}"),
                Err(error) => println!("{}", error.code()),
            }
        }
        ["together", document, calls] => {
            let document = Document::read(document).expect("the parent's document can be meant");
            let limiter = Limiter::builder().document(&document).build().expect("the parent's rules can be meant");
            println!("ready");
            std::io::stdin().read_line(&mut String::new()).expect("the parent holds the input");
            println!("{}", check(&limiter, "alice", 4, number(calls) / 4));
        }
        ["keys", max_keys, keys] => println!("{}", many_keys(number(max_keys), number(keys))),
        _ => panic!("no such order: {arguments:?}"),
    }
}

fn limiter(url: &str, prefix: &str, limits: &str) -> Limiter {
    let builder = Limiter::builder().url(url).prefix(prefix).deadline(Duration::from_secs(20));
    builder.rule("hammer", limits).build().expect("the parent's rules can be meant")
}

/// All threads begin at once: to begin one after another would be too kind.
fn check(limiter: &Limiter, key: &str, threads: usize, calls: usize) -> usize {
    limiter.ready(Duration::from_secs(20)).wait().expect("the servers are up");
    let barrier = Barrier::new(threads);
    let admitted = || {
        barrier.wait();
        let decisions = (0..calls).map(|_| limiter.check("hammer", key).wait().expect("the call can be meant"));
        let admitted = |decision: &tidegate::Decision| {
            // A refusal may be remembered; nothing else but the store decides.
            let of_store = matches!(decision.origin(), Origin::Store | Origin::DenyCache);
            assert!(of_store, "{:?}", decision.failure());
            decision.allowed()
        };
        decisions.filter(admitted).count()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(admitted)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    })
}

/// Every key once, on the real clock and in a long window, so that each of them is live.
fn many_keys(max_keys: usize, keys: usize) -> String {
    let limiter = Limiter::builder().max_keys(max_keys).rule("hammer", "5/h").build().expect("the rule can be meant");
    let before = threads();
    let mut most = 0;
    for key in 0..keys {
        assert!(limiter.check("hammer", format!("user {key}")).wait().expect("the call can be meant").allowed());
        if key % 1_000 == 0 || key + 1 == keys {
            most = most.max(limiter.metrics().keys.expect("memory counts its keys"));
        }
    }
    format!("{before} {} {most} {}", threads(), limiter.metrics().evicted)
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux lists threads").count()
}

#[allow(clippy::disallowed_methods, reason = "tests tell by it whether this process has another time than theirs")]
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("no clock is before 1970").as_secs()
}

fn number(text: &str) -> usize {
    text.parse().expect("the parent passes a number")
}
