//! Checks on real servers, ours beside redis-rs: rounds in which the two take turns, and the round in the middle counts.
//!
//! The client runs on one core and the servers on the other, so that neither waits for the other's turn. The peer sends
//! one call each of a bucket that keeps one value; ours is the whole decision. The processor's time is compared with our
//! own script, one call each.

use std::hint::black_box;
use std::io;
use std::num::NonZeroU32;
use std::process::{Command, ExitCode};
use std::rc::Rc;
use std::time::{Duration, Instant};

use governor::{Quota, RateLimiter};
use redis::aio::ConnectionLike;
use rustix::time::{ClockId, clock_gettime};
use tidegate::Limiter;
use tidegate_benches::report::{Bar, Line, Report, Unit};
use tidegate_tests::servers::{Cluster, Server, eventually};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

const KEYS: usize = 10_000;
/// Odd, so that one is in the middle.
const ROUNDS: usize = 15;
const SOON: Duration = Duration::from_secs(30);
const BUCKET: &str = include_str!("../textbook/one_value_bucket.lua");
/// Units a minute: none is refused in a run.
const UNITS: u32 = 100_000;
const WINDOW: u32 = 60;

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
        let masters = cluster.masters();
        // Replicas have machines of their own, and would share the masters' core here.
        masters.iter().for_each(|master| cluster.replica_of(master).kill());
        masters.iter().try_for_each(|master| pin_server(master))?;
        let seeds: Vec<String> = masters.iter().map(|master| master.url()).collect();
        let pair = Pair::new(&cluster.url(), masters[0], || {
            let client = redis::cluster::ClusterClient::new(seeds.clone()).map_err(io::Error::other)?;
            runtime.block_on(client.get_async_connection()).map_err(io::Error::other)
        })?;
        report.add(pair.throughput(&runtime, "cluster-1024", "redis-rs cluster client", 1_024, 1_500))?;
    }
    if wanted("server-cpu") || wanted("client-cpu") {
        processor_time(&runtime)?.into_iter().try_for_each(|line| report.add(line))?;
    }
    if wanted("denied-hot") {
        report.add(denied_hot(&server)?)?;
    }
    if wanted("open-answer") {
        report.add(open_answer()?)?;
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
        let ours = limiter(url, true)?;
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(BUCKET).query(&mut server.connection());
        let script = load.map_err(io::Error::other)?;
        Ok(Pair { ours, peer: peer()?, script })
    }

    async fn check_peer(&self, connection: &mut C) {
        let key = format!("bucket:{{{}}}", key());
        let command = |known: bool| {
            let mut command = redis::cmd(if known { "EVALSHA" } else { "EVAL" });
            command.arg(if known { &self.script } else { BUCKET }).arg(1).arg(&key).arg(UNITS).arg(WINDOW).arg(UNITS);
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
        let ours = || per_second(checks, || in_flight(runtime, flight, checks, || check(&self.ours)));
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
            let ours = (0..CHECKS).map(|_| nanoseconds(|| runtime.block_on(check(&self.ours)))).collect();
            let peer =
                (0..CHECKS).map(|_| nanoseconds(|| runtime.block_on(self.check_peer(&mut connection)))).collect();
            (middle(ours), middle(peer))
        });
        let (peer_name, unit) = ("redis-rs multiplexed", Unit::Nanoseconds);
        Line { case, ours, peer, peer_name, unit, bar: Bar::RatioMost(1_300) }
    }
}

fn limiter(url: &str, batch_across_slots: bool) -> io::Result<Limiter> {
    let rule = format!("{UNITS}/{WINDOW}s token_bucket");
    let builder = Limiter::builder().url(url).deadline(SOON).rule("login", &rule);
    let limiter = builder.batch_across_slots(batch_across_slots).build().map_err(io::Error::other)?;
    limiter.ready(SOON).wait().map_err(io::Error::other)?;
    Ok(limiter)
}

async fn check(limiter: &Limiter) {
    let decision = limiter.check("login", key().as_str()).await;
    assert!(black_box(&decision).as_ref().is_ok_and(|decision| decision.allowed()), "{decision:?}");
}

/// What a check costs the processors, together and one call each, on a node that has all slots of its cluster: the
/// server's time, and ours.
fn processor_time(runtime: &Runtime) -> io::Result<[Line; 2]> {
    const FLIGHT: usize = 1_024;
    const CHECKS: usize = 40 * FLIGHT;
    let server = Server::builder().config("cluster-enabled yes").start();
    server.call::<()>("CLUSTER ADDSLOTSRANGE 0 16383");
    eventually(SOON, || server.call::<String>("CLUSTER INFO").contains("cluster_state:ok"));
    pin_server(&server)?;
    let (together, alone) = (limiter(&server.url(), true)?, limiter(&server.url(), false)?);
    let cost = |limiter: &Limiter| {
        let before = (server_time(&server), own_time());
        in_flight(runtime, FLIGHT, CHECKS, || check(limiter));
        let after = (server_time(&server), own_time());
        ((after.0 - before.0) / CHECKS as u64, (after.1 - before.1) / CHECKS as u64)
    };
    let mut clients = Vec::new();
    let (ours, peer) = median(|| {
        let (ours, peer) = (cost(&together), cost(&alone));
        clients.push((ours.1, peer.1));
        (ours.0, peer.0)
    });
    let line = |case, (ours, peer), bar| {
        let (peer_name, unit) = ("our script, one call each", Unit::Nanoseconds);
        Line { case, ours, peer, peer_name, unit, bar: Bar::RatioMost(bar) }
    };
    // The first warmed up.
    let client = median_of(clients.split_off(1));
    Ok([line("server-cpu", (ours, peer), 750), line("client-cpu", client, 850)])
}

/// The processor time that a server has used, in nanoseconds.
fn server_time(server: &Server) -> u64 {
    let field = |name: &str| {
        let text = server.info(name).expect("every server tells its processor time");
        let (seconds, micros) = text.split_once('.').expect("seconds, with six digits behind the point");
        let whole = |text: &str| text.parse::<u64>().expect("digits");
        whole(seconds) * 1_000_000_000 + whole(micros) * 1_000
    };
    field("used_cpu_user") + field("used_cpu_sys")
}

/// The processor time that this process has used, in nanoseconds.
fn own_time() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

/// What a check takes while the circuit is open, beside one in memory.
fn open_answer() -> io::Result<Line> {
    const CHECKS: usize = 20_000;
    let builder = || Limiter::builder().deadline(SOON).rule("login", "100000/m");
    // Nobody listens on port 1.
    let ours = builder().url("redis://127.0.0.1:1").breaker(1, Duration::from_secs(60), Duration::from_secs(60));
    let (ours, peer) = (ours.build().map_err(io::Error::other)?, builder().build().map_err(io::Error::other)?);
    let check = |limiter: &Limiter| drop(black_box(limiter.check("login", key().as_str()).wait()));
    check(&ours);
    assert_eq!(ours.metrics().nodes[0].opened, 1, "the circuit is open");
    let each = |limiter: &Limiter| nanoseconds(|| (0..CHECKS).for_each(|_| check(limiter))) / CHECKS as u64;
    let (ours, peer) = median(|| (each(&ours), each(&peer)));
    let unit = Unit::Nanoseconds;
    Ok(Line { case: "open-answer", ours, peer, peer_name: "our memory store", unit, bar: Bar::Most(10_000) })
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
    median_of((0..ROUNDS).map(|_| round()).collect())
}

fn median_of(mut rounds: Vec<(u64, u64)>) -> (u64, u64) {
    rounds.sort_by_key(|(ours, peer)| u128::from(*ours) * 1_000_000 / u128::from((*peer).max(1)));
    rounds[rounds.len() / 2]
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
