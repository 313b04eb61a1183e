//! Checks on real servers, ours beside redis-rs: rounds in which the two take turns, and the round in the middle counts.
//!
//! The client runs on one core and the servers on the other, so that neither waits for the other's turn. The peer sends
//! one call each of a bucket that keeps one value; ours is the whole decision.

use std::hint::black_box;
use std::io;
use std::num::NonZeroU32;
use std::process::{Command, ExitCode};
use std::rc::Rc;
use std::time::{Duration, Instant};

use governor::{Quota, RateLimiter};
use redis::aio::ConnectionLike;
use tidegate::Limiter;
use tidegate_benches::report::{Bar, Line, Report, Unit};
use tidegate_tests::servers::{Cluster, Server};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

const KEYS: usize = 10_000;
/// Odd, so that one is in the middle.
const ROUNDS: usize = 15;
const SOON: Duration = Duration::from_secs(30);
const BUCKET: &str = include_str!("../textbook/one_value_bucket.lua");
const UNITS: u32 = 1_000_000;

fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // As a test there is nothing to see without rounds.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |case: &str| {
        let mut words = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
        words.peek().is_none() || words.any(|word| case.contains(word.as_str()))
    };
    pin(std::process::id(), 0)?;
    let mut report = Report::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = Server::start();
    pin_server(&server)?;
    let node = Pair::new(&server.url(), &server, || connect(&runtime, &server.url()))?;
    for (name, flight, bar) in [("node-1024", 1_024, 1_200), ("node-64", 64, 1_050)] {
        if wanted(name) {
            report.add(node.throughput(&runtime, name, "redis-rs multiplexed", flight, bar))?;
        }
    }
    if wanted("latency-1") {
        report.add(node.latency(&runtime, "latency-1"))?;
    }
    if wanted("cluster-1024") {
        let cluster = Cluster::start();
        cluster.nodes().iter().try_for_each(pin_server)?;
        let seeds: Vec<String> = cluster.nodes().iter().map(Server::url).collect();
        let pair = Pair::new(&cluster.url(), cluster.node(0), || {
            let client = redis::cluster::ClusterClient::new(seeds.clone()).map_err(io::Error::other)?;
            runtime.block_on(client.get_async_connection()).map_err(io::Error::other)
        })?;
        report.add(pair.throughput(&runtime, "cluster-1024", "redis-rs cluster client", 1_024, 1_500))?;
    }
    if wanted("denied-hot") {
        report.add(denied_hot(&server)?)?;
    }
    report.finish()
}

fn connect(runtime: &Runtime, url: &str) -> io::Result<redis::aio::MultiplexedConnection> {
    let client = redis::Client::open(url).map_err(io::Error::other)?;
    runtime.block_on(client.get_multiplexed_async_connection()).map_err(io::Error::other)
}

/// Keeps a process, all its threads, on one core.
fn pin(process: u32, core: u32) -> io::Result<()> {
    let (core, process) = (core.to_string(), process.to_string());
    let output = Command::new("taskset").args(["--all-tasks", "--pid", "--cpu-list", &core, &process]).output()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(io::Error::other(format!("taskset: {told}"))) }
}

fn pin_server(server: &Server) -> io::Result<()> {
    let process = server.info("process_id").and_then(|id| id.parse().ok());
    pin(process.ok_or_else(|| io::Error::other("the server does not tell its process"))?, 1)
}

/// Ours and the peer on the same servers.
struct Pair<C> {
    ours: Limiter,
    peer: C,
    script: String,
}

impl<C: ConnectionLike + Clone + 'static> Pair<C> {
    fn new(url: &str, server: &Server, peer: impl FnOnce() -> io::Result<C>) -> io::Result<Pair<C>> {
        let rule = format!("{UNITS}/h token_bucket");
        let ours = Limiter::builder().url(url).deadline(SOON).rule("login", &rule).build().map_err(io::Error::other)?;
        ours.ready(SOON).wait().map_err(io::Error::other)?;
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(BUCKET).query(&mut server.connection());
        let script = load.map_err(io::Error::other)?;
        Ok(Pair { ours, peer: peer()?, script })
    }

    async fn check_ours(&self) {
        let decision = self.ours.check("login", key().as_str()).await;
        assert!(black_box(&decision).as_ref().is_ok_and(|decision| decision.allowed()), "{decision:?}");
    }

    async fn check_peer(&self, connection: &mut C) {
        let key = format!("bucket:{{{}}}", key());
        let command = |known: bool| {
            let mut command = redis::cmd(if known { "EVALSHA" } else { "EVAL" });
            command.arg(if known { &self.script } else { BUCKET }).arg(1).arg(&key).arg(UNITS).arg(3_600).arg(UNITS);
            command
        };
        let mut reply: redis::RedisResult<(u32, u32, String, String)> = command(true).query_async(connection).await;
        if reply.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) {
            reply = command(false).query_async(connection).await;
        }
        assert!(black_box(&reply).as_ref().is_ok_and(|reply| reply.0 == 1), "{reply:?}");
    }

    /// Checks in a second with so many in flight.
    fn throughput(
        self: &Pair<C>,
        runtime: &Runtime,
        case: &'static str,
        peer_name: &'static str,
        flight: usize,
        bar: u64,
    ) -> Line {
        let checks = 20 * flight.max(256);
        let ours = || per_second(checks, || in_flight(runtime, flight, checks, || self.check_ours()));
        let peer = || {
            per_second(checks, || {
                in_flight(runtime, flight, checks, || {
                    let mut connection = self.peer.clone();
                    async move { self.check_peer(&mut connection).await }
                });
            })
        };
        let (ours, peer) = median(|| (ours(), peer()));
        Line { case, ours, peer, peer_name, unit: Unit::ChecksPerSecond, bar: Bar::RatioLeast(bar) }
    }

    /// How long a check takes that is alone, in the middle of many.
    fn latency(&self, runtime: &Runtime, case: &'static str) -> Line {
        const CHECKS: usize = 500;
        let mut connection = self.peer.clone();
        let (ours, peer) = median(|| {
            let ours = (0..CHECKS).map(|_| nanoseconds(|| runtime.block_on(self.check_ours()))).collect();
            let peer =
                (0..CHECKS).map(|_| nanoseconds(|| runtime.block_on(self.check_peer(&mut connection)))).collect();
            (middle(ours), middle(peer))
        });
        let (peer_name, unit) = ("redis-rs multiplexed", Unit::Nanoseconds);
        Line { case, ours, peer, peer_name, unit, bar: Bar::RatioMost(1_300) }
    }
}

/// Runs so many checks, so many of them at a time, on this thread.
fn in_flight<F: Future<Output = ()>>(runtime: &Runtime, flight: usize, checks: usize, check: impl Fn() -> F) {
    let each = checks / flight;
    let worker = async || {
        for _ in 0..each {
            check().await;
        }
    };
    // Workers borrow what they check; to be tasks they would have to own it.
    let workers = futures_util::future::join_all((0..flight).map(|_| worker()));
    let set = Rc::new(LocalSet::new());
    set.block_on(runtime, workers);
}

/// A hot key that is refused, by the whole check, beside governor's.
fn denied_hot(server: &Server) -> io::Result<Line> {
    const CHECKS: usize = 100_000;
    let limiter = Limiter::builder().url(&server.url()).deadline(SOON).rule("hot", "1/h").deny_cache_max(SOON);
    let limiter = limiter.build().map_err(io::Error::other)?;
    let governor = RateLimiter::keyed(Quota::per_hour(NonZeroU32::MIN));
    let hot = "user-0000001".to_owned();
    let check_ours = || limiter.check("hot", black_box(hot.as_str())).wait().is_ok_and(|decision| decision.allowed());
    let check_peer = || governor.check_key(black_box(&hot)).is_ok();
    // The first takes the one unit, and the second is refused by the server.
    let _ = (check_ours(), check_ours(), check_peer());
    let (ours, peer) = median(|| {
        let ours = per_second(CHECKS, || (0..CHECKS).for_each(|_| assert!(!check_ours())));
        (ours, per_second(CHECKS, || (0..CHECKS).for_each(|_| assert!(!check_peer()))))
    });
    let unit = Unit::ChecksPerSecond;
    Ok(Line { case: "denied-hot", ours, peer, peer_name: "governor", unit, bar: Bar::RatioLeast(350) })
}

fn key() -> String {
    format!("user-{:07}", fastrand::usize(..KEYS))
}

/// The round whose ratio is in the middle, after one that warms up.
fn median(mut round: impl FnMut() -> (u64, u64)) -> (u64, u64) {
    round();
    let mut rounds: Vec<(u64, u64)> = (0..ROUNDS).map(|_| round()).collect();
    rounds.sort_by_key(|(ours, peer)| u128::from(*ours) * 1_000_000 / u128::from((*peer).max(1)));
    rounds[ROUNDS / 2]
}

fn middle(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn per_second(checks: usize, work: impl FnOnce()) -> u64 {
    u64::try_from(checks as u128 * 1_000_000_000 / u128::from(nanoseconds(work).max(1))).unwrap_or(u64::MAX)
}

#[allow(clippy::disallowed_methods, reason = "the two are timed here, and nothing is decided by it")]
fn nanoseconds(work: impl FnOnce()) -> u64 {
    let start = Instant::now();
    work();
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
