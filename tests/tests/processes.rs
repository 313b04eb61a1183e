//! Several threads and several processes on one key (law 1, C1, P5), clients whose clocks are wrong (R5), a million
//! keys (P3), and receipts that cross from one process to another (law 5).

use std::process::{Child, Command, Output, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use tidegate::Limiter;
use tidegate_tests::limiters::{ALGORITHMS, Place, Sure, build, for_each_server};

/// The windows here last a year, so that no test sees a second one.
const HAMMER: &str = env!("CARGO_BIN_EXE_hammer");
const THREADS: usize = 4;

fn start(command: &mut Command, order: &str, arguments: &[&str]) -> Child {
    command.arg(order).args(arguments).stdout(Stdio::piped()).spawn().expect("the hammer can be run")
}

fn said(process: Child) -> String {
    let Output { status, stdout, .. } = process.wait_with_output().expect("it is our child");
    assert!(status.success(), "the hammer failed: {status}");
    String::from_utf8(stdout).expect("it writes text").trim().to_owned()
}

/// What a hammer that checks has said: how many were admitted, and what time it had.
fn admitted(process: Child) -> (usize, u64) {
    let said = said(process);
    let (admitted, seconds) = said.split_once(' ').expect("it says two numbers");
    (admitted.parse().expect("a number"), seconds.parse().expect("a number"))
}

/// Several processes of several threads each, all at one key.
fn hammered(place: &Place, limits: &str, key: &str, processes: usize, calls: usize) -> usize {
    let (url, threads, calls) = (place.url().expect("it has servers"), THREADS.to_string(), calls.to_string());
    let arguments = [url.as_str(), place.prefix(), limits, key, &threads, &calls];
    let hammers: Vec<Child> = (0..processes).map(|_| start(&mut Command::new(HAMMER), "check", &arguments)).collect();
    hammers.into_iter().map(|hammer| admitted(hammer).0).sum()
}

#[test]
fn law_01_threads_and_processes_on_one_key_admit_exactly_the_limit() {
    for_each_server(|place| {
        for algorithm in ALGORITHMS {
            let limits = format!("83/365d {algorithm}");
            assert_eq!(hammered(place, &limits, algorithm, 3, 60), 83, "{algorithm}");
        }
    });
}

#[test]
fn law_01_processes_that_cannot_use_it_up_are_all_admitted() {
    for_each_server(|place| {
        assert_eq!(hammered(place, "10000/365d", "k", 2, 50), 2 * THREADS * 50);
        let limiter = build(place.real_time_builder(), &[("hammer", "10000/365d")]);
        assert_eq!(limiter.peek("hammer", "k").sure().remaining(), 10_000 - 2 * 4 * 50);
    });
}

#[test]
fn c1_a_flood_of_a_thousand_lets_five_through() {
    for_each_server(|place| assert_eq!(hammered(place, "5/365d", "flood", 2, 125), 5));
}

fn admitted_by_threads(limiter: &Limiter, threads: usize, calls: usize) -> usize {
    let barrier = Barrier::new(threads);
    let one = || {
        barrier.wait();
        (0..calls).filter(|_| limiter.check("r", "k").sure().allowed()).count()
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        running.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    })
}

#[test]
fn p5_the_memory_store_is_exact_under_32_threads() {
    for algorithm in ALGORITHMS {
        let limiter = build(Limiter::builder(), &[("r", &format!("9999/365d {algorithm}"))]);
        assert_eq!(admitted_by_threads(&limiter, 32, 1_000), 9_999, "{algorithm}");
        assert_eq!(limiter.peek("r", "k").sure().remaining(), 0, "{algorithm}");
    }
}

#[test]
fn p5_charges_and_refunds_of_32_threads_leave_what_was_kept() {
    for algorithm in ALGORITHMS {
        let limiter =
            build(Limiter::builder(), &[("r", &format!("9999/365d {algorithm}; 9998/365d {algorithm} named b"))]);
        let one = || {
            for call in 0..100 {
                let decision = limiter.check("r", "k").sure();
                assert!(decision.allowed());
                if call % 2 == 0 {
                    assert!(limiter.refund(&decision.receipt()).wait().expect("each receipt once"));
                }
            }
        };
        thread::scope(|scope| (0..32).for_each(|_| drop(scope.spawn(one))));
        let kept = limiter.peek("r", "k").sure();
        let left: Vec<u32> = kept.limits().map(|limit| limit.remaining()).collect();
        // A bucket refills a little meanwhile: 9,999 in a year is one unit in 53 minutes, so not by a whole unit.
        assert_eq!(left, [9_999 - 1_600, 9_998 - 1_600], "{algorithm}");
    }
}

#[test]
fn p3_a_million_keys_take_no_thread_and_the_bound_holds() {
    let arguments = ["100000", "1000000"];
    let bounded = said(start(&mut Command::new(HAMMER), "keys", &arguments));
    let [before, after, most, evicted] = numbers(&bounded);
    assert_eq!(after, before, "no thread per key");
    assert!((90_000..=100_000).contains(&most), "the bound holds, and is used: {most}");
    assert_eq!(evicted, 1_000_000 - most, "every live key that had to go is told of");

    let unbounded = said(start(&mut Command::new(HAMMER), "keys", &["2000000", "1000000"]));
    assert_eq!(numbers(&unbounded), [before, before, 1_000_000, 0]);
}

fn numbers(said: &str) -> [usize; 4] {
    let numbers: Vec<usize> = said.split(' ').map(|number| number.parse().expect("a number")).collect();
    numbers.try_into().expect("it says four numbers")
}

#[test]
fn p3_keys_whose_time_is_over_make_room() {
    let place = Place::memory();
    let limiter = build(place.builder().max_keys(1_000), &[("r", "5/m")]);
    for minute in 0..20 {
        for key in 0..500 {
            assert!(limiter.check("r", format!("{minute} {key}")).sure().allowed());
        }
        place.clock.forward(60_000_000);
    }
    let usage = limiter.metrics();
    assert_eq!(usage.evicted, 0, "nothing that mattered had to go");
    assert!(usage.keys.is_some_and(|keys| keys <= 1_000), "{usage:?}");
}

#[test]
fn p3_what_a_refund_or_a_faster_rate_has_made_whole_goes_first() {
    let place = Place::memory();
    let limiter = build(place.builder().max_keys(2), &[("long", "10/h"), ("short", "10/10m"), ("slow", "1/h gcra")]);
    let full = || assert_eq!(limiter.check("short", "full").cost(10).sure().remaining(), 0);
    let still_full = || {
        assert!(limiter.check("short", "new").sure().allowed());
        assert_eq!(limiter.metrics().evicted, 0, "what was whole went first");
        assert!(!limiter.check("short", "full").sure().allowed());
        for key in ["full", "new"] {
            limiter.reset("short", key).wait().expect("it is memory");
        }
    };
    let receipt = limiter.check("long", "back").sure().receipt();
    assert!(limiter.refund(&receipt).wait().expect("it is fresh"));
    full();
    still_full();
    assert!(limiter.check("slow", "fast").limits("2/h gcra").sure().allowed());
    assert!(limiter.check("slow", "fast").limits("7200/h gcra").sure().allowed());
    full();
    place.clock.forward(2_000_000);
    still_full();
}

#[test]
fn r5_clients_whose_clocks_are_wrong_change_nothing() {
    for_each_server(|place| {
        for algorithm in ALGORITHMS {
            let url = place.url().expect("it has servers");
            let limits = format!("50/365d {algorithm}");
            let arguments = [url.as_str(), place.prefix(), &limits, algorithm, "2", "30"];
            let skews: [i64; 4] = [0, 60, 86_400 * 400, -86_400];
            let hammers = skews.map(|skew| {
                // faketime (Debian's package of that name) lies to the process about the time of day.
                let mut faketime = Command::new("faketime");
                faketime.args(["-f", &format!("{skew:+}s")]).arg(HAMMER).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
                start(&mut faketime, "check", &arguments)
            });
            let found = hammers.map(admitted);
            assert_eq!(found.iter().map(|(admitted, _)| admitted).sum::<usize>(), 50, "{algorithm}: {found:?}");
            let honest = found[0].1;
            for ((_, seconds), skew) in found.into_iter().zip(skews) {
                let seen =
                    i64::try_from(seconds).expect("no time is that far") - i64::try_from(honest).expect("nor this");
                assert!((seen - skew).abs() < 30, "the process was lied to: {seen} for {skew}");
            }
        }
    });
}

#[test]
fn law_05_the_log_itself_refuses_a_second_refund_from_another_process() {
    for_each_server(|place| {
        let limits = "9/365d sliding_window_log";
        let limiter = build(place.real_time_builder(), &[("hammer", limits)]);
        let receipts = [1, 3].map(|cost| limiter.check("hammer", "k").cost(cost).sure().receipt());
        let url = place.url().expect("it has servers");
        let elsewhere =
            |receipt: &str| said(start(&mut Command::new(HAMMER), "refund", &[&url, place.prefix(), limits, receipt]));
        let left = || limiter.peek("hammer", "k").sure().remaining();
        // Refunded here first, and there first.
        assert!(limiter.refund(&receipts[0]).wait().expect("it is fresh"));
        assert_eq!((elsewhere(&receipts[0].to_string()).as_str(), left()), ("false", 6));
        assert_eq!((elsewhere(&receipts[1].to_string()).as_str(), left()), ("true", 9));
        assert!(!limiter.refund(&receipts[1]).wait().expect("it was not spent in this process"));
        assert_eq!(left(), 9);
        assert!(limiter.check("hammer", "k").deadline(Duration::from_secs(20)).cost(9).sure().allowed());
    });
}
