//! Policies for the tests.

use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate::http::{Admission, Outcome, Policy, Request};
use tidegate::{Document, Limiter};

/// A document's text on a store, under a prefix of its own.
pub(crate) fn text(url: &str, rest: &str) -> String {
    static PREFIXES: AtomicUsize = AtomicUsize::new(0);
    let number = PREFIXES.fetch_add(1, Ordering::Relaxed);
    let prefix = format!("policy{}-{number}", std::process::id());
    let url = if url.is_empty() { String::new() } else { format!("url = \"{url}\"\n") };
    format!("version = 1\n[store]\n{url}prefix = \"{prefix}\"\ndeadline = \"20s\"\n{rest}")
}

pub(crate) fn document(text: &str) -> Document {
    Document::from_toml(text).expect("a good document")
}

/// A policy on a store; an empty URL is memory.
pub(crate) fn policy(url: &str, rest: &str) -> Policy {
    Policy::new(&document(&text(url, rest))).expect("a policy")
}

pub(crate) trait Sure {
    fn sure(self) -> Admission;
    fn outcome(self) -> Outcome;
}

impl Sure for Request {
    fn sure(self) -> Admission {
        self.admit().wait().expect("it can be judged")
    }

    fn outcome(self) -> Outcome {
        self.sure().outcome()
    }
}

/// What is left of a rule for a key of several parts.
pub(crate) fn left(limiter: &Limiter, rule: &str, parts: &[&str]) -> u32 {
    limiter.peek(rule, tidegate::Key::parts(parts)).wait().expect("the store answers").remaining()
}
