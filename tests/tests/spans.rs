//! Spans, as an application's subscriber sees them.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::{Limiter, OnError, Rule};
use tidegate_tests::limiters::Sure as _;
use tidegate_tests::servers::{Server, eventually};
use tracing_subscriber::fmt::format::FmtSpan;

const SOON: Duration = Duration::from_secs(20);

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn calls_and_batches_have_spans_and_no_key_is_in_them() {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false);
    subscriber.with_span_events(FmtSpan::CLOSE).with_writer(move || writer.clone()).init();

    let server = Server::start();
    let rules = [
        Rule::parse("login", "1/h").expect("the rule can be meant").on_error(OnError::Deny),
        Rule::parse("api", "5/h").expect("the rule can be meant"),
    ];
    let builder = Limiter::builder().url(&server.url()).deadline(SOON).rules(rules);
    let limiter = builder.build().expect("the rules can be meant");
    let decision = limiter.check_all(["login", "api"], "secret").sure();
    limiter.refund(&decision.receipt()).wait().expect("it is of this limiter");
    futures_executor::block_on(limiter.check("login", "secret").into_future()).expect("it can be meant");
    limiter.check("login", "secret").sure();
    limiter.check("login", "secret").sure();
    limiter.peek("api", "secret").sure();
    limiter.acquire("api", "secret").cost(9).wait().expect("it can be meant");
    limiter.reset("api", "").wait().expect_err("the key is empty");
    server.kill();
    limiter.check("login", "other secret").wait().expect("a store that fails is no error");

    let seen = |parts: &[&str]| written.text().lines().any(|line| parts.iter().all(|part| line.contains(part)));
    for parts in [
        &["tidegate.check{rules=\"login,api\" cost=1 peek=false allowed=true origin=\"store\"}"][..],
        &["tidegate.check{rules=\"login\" cost=1 peek=false allowed=true origin=\"store\"}"],
        &["tidegate.check{rules=\"login\" cost=1 peek=false allowed=false origin=\"deny_cache\"}"],
        &["tidegate.check{rules=\"api\" cost=1 peek=true allowed=true origin=\"store\"}"],
        &["tidegate.call{call=\"acquire\" rule=\"api\"}:tidegate.check{rules=\"api\" cost=9", "allowed=false"],
        &["tidegate.call{call=\"refund\"}"],
        &["tidegate.call{call=\"reset\" rule=\"api\" error=\"invalid_request\"}"],
        &["tidegate.check{rules=\"login\"", "origin=\"closed\" failure=\"store_unavailable\"}"],
        &[&format!("tidegate.batch{{node=127.0.0.1:{} checks=1}}", server.port())],
    ] {
        eventually(SOON, || seen(parts));
    }
    assert!(!written.text().contains("secret"), "{}", written.text());
}
