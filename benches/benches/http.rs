//! What HTTP adds to a check, in memory and on one thread: to find the route of a request among a hundred, and to admit a
//! request of one key, with its response's fields, beside the bare check of the same rule and key.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io;
use std::process::ExitCode;
use std::time::Instant;

use tidegate::http::Policy;
use tidegate::{Document, Key, Limiter};
use tidegate_benches::report::{Bar, Line, Report, Unit};

const ROUTES: usize = 100;
const CALLS: usize = 20_000;
/// Odd, so that one is in the middle.
const ROUNDS: usize = 21;

/// Services have paths of several segments, some of them parameters, and a prefix here and there.
fn document(routes: usize) -> String {
    let mut text = String::from(
        "version = 1\n[rules]\nr = \"10000000/20ms\"\n[http]\ntrusted_proxies = [\"10.0.0.0/8\"]\n[http.default]\nrules = \
         \"r\"\nkey = \"ip\"\n",
    );
    for number in 0..routes {
        let path = match number % 4 {
            0 => format!("path = \"/api/v1/resource{number}\""),
            1 => format!("path = \"/api/v1/resource{number}/{{id}}\""),
            2 => format!("path = \"/api/v1/resource{number}/{{id}}/items/{{item}}\""),
            _ => format!("prefix = \"/static/area{number}/\""),
        };
        let _ = write!(text, "[[routes]]\n{path}\nrules = \"r\"\nkey = \"ip\"\n");
    }
    text
}

fn paths(routes: usize) -> Vec<String> {
    let path = |number: usize| match number % 4 {
        0 => format!("/api/v1/resource{number}"),
        1 => format!("/api/v1/resource{number}/4711"),
        2 => format!("/api/v1/resource{number}/4711/items/0815"),
        _ => format!("/static/area{number}/images/logo.svg"),
    };
    (0..routes).map(path).chain(["/nowhere/at/all".to_owned()]).collect()
}

fn policy(routes: usize) -> tidegate::Result<Policy> {
    Policy::new(&Document::from_toml(&document(routes))?)
}

/// Nanoseconds of one call, in the middle of some rounds that take turns.
fn turns<const N: usize>(mut work: [&mut dyn FnMut(usize); N]) -> [u64; N] {
    let mut rounds = [(); N].map(|()| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        for (work, rounds) in work.iter_mut().zip(&mut rounds) {
            rounds.push(nanoseconds(work));
        }
    }
    rounds.map(|mut rounds| {
        rounds.sort_unstable();
        rounds[ROUNDS / 2]
    })
}

#[allow(clippy::disallowed_methods, reason = "work is timed here, and nothing is decided by it")]
fn nanoseconds(work: &mut dyn FnMut(usize)) -> u64 {
    let start = Instant::now();
    (0..CALLS).for_each(work);
    u64::try_from(start.elapsed().as_nanos() / CALLS as u128).unwrap_or(u64::MAX)
}

fn routes(report: &mut Report) -> io::Result<()> {
    let (many, one) = (policy(ROUTES).map_err(io::Error::other)?, policy(1).map_err(io::Error::other)?);
    let paths = paths(ROUTES);
    let path = |call: usize| &*paths[call % paths.len()];
    let [ours, peer] = turns([
        &mut |call| {
            let _ = black_box(many.request("GET", black_box(path(call))));
        },
        &mut |call| {
            let _ = black_box(one.request("GET", black_box(path(call))));
        },
    ]);
    let unit = Unit::Nanoseconds;
    report.add(Line { case: "http-route-100", ours, peer, peer_name: "one route", unit, bar: Bar::Most(2_000) })
}

fn admission(report: &mut Report) -> io::Result<()> {
    let policy = policy(ROUTES).map_err(io::Error::other)?;
    let limiter: Limiter = policy.limiter();
    let paths = paths(ROUTES);
    let address = |call: usize| format!("203.0.{}.{}", call / 256 % 256, call % 256);
    let addresses: Vec<String> = (0..10_000).map(address).collect();
    let address = |call: usize| &*addresses[call % addresses.len()];
    let [admit, check] = turns([
        &mut |call| {
            let request = policy.request("GET", &paths[call % paths.len()]).peer("10.0.0.1");
            let request = request.header("accept", "*/*").header("x-forwarded-for", address(call));
            let admission = request.admit().wait();
            assert!(black_box(admission).is_ok_and(|admission| admission.allowed() && admission.headers().len() == 5));
        },
        &mut |call| {
            let decision = limiter.check("r", Key::parts(["ip", address(call)])).wait();
            assert!(black_box(decision).is_ok_and(|decision| decision.allowed()));
        },
    ]);
    let (ours, unit) = (admit.saturating_sub(check), Unit::Nanoseconds);
    report.add(Line {
        case: "http-admit-adds",
        ours,
        peer: check,
        peer_name: "bare check",
        unit,
        bar: Bar::Most(15_000),
    })
}

fn main() -> io::Result<ExitCode> {
    // As a test there is nothing to see here: the tests admit the same requests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(ExitCode::SUCCESS);
    }
    let mut report = Report::new();
    routes(&mut report)?;
    admission(&mut report)?;
    report.finish()
}
