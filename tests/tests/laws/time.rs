//! Laws 7 and 8: the store's clock decides, and every key has a TTL.

use std::time::Duration;

use tidegate::Limiter;
use tidegate_tests::limiters::{
    ALGORITHMS, Place, SECOND, START, Sure, build, charged_at, drain, figures, for_each_server, for_each_store, micros,
};

const LIMIT: usize = 6;

fn rates() -> impl Iterator<Item = String> {
    let more = ["6/10s precision 700ms", "3/10s burst 6"].map(str::to_owned);
    ALGORITHMS.into_iter().map(|algorithm| format!("6/10s {algorithm}")).chain(more)
}

/// A limiter for each rate, with a key of its own that is used up at the clock's start.
fn each_full(place: &Place, test: impl Fn(&Limiter, &str, &str)) {
    for (index, limits) in rates().enumerate() {
        let (limiter, key) = (place.limiter(&[("r", &limits)]), format!("u{index}"));
        place.clock.set(START);
        assert_eq!(drain(&limiter, "r", &key, 20), LIMIT, "{limits}");
        test(&limiter, &key, &limits);
    }
}

#[test]
fn law_07_a_clock_that_steps_back_refills_nothing() {
    for_each_store(|place| {
        each_full(place, |limiter, key, limits| {
            for back in [1, SECOND, 5 * SECOND, 10 * SECOND, 100 * SECOND, 86_400 * SECOND] {
                place.clock.set(START - back);
                let decision = limiter.check("r", key).sure();
                assert!(!decision.allowed(), "{limits}, {back} us back");
                let wait = micros(decision.retry_after().expect("it passes in the end"));
                assert!(wait > back, "{limits}, {back} us back: what was charged then is still ahead, not {wait}");
                // The wait counts from the clock as it is, and it is exact.
                place.clock.forward(wait - 1);
                assert!(!limiter.check("r", key).sure().allowed(), "{limits}, {back} us back");
                place.clock.forward(1);
                assert!(limiter.peek("r", key).sure().allowed(), "{limits}, {back} us back");
            }
        });
    });
}

#[test]
fn law_07_what_was_dropped_stays_dropped_when_the_clock_steps_back() {
    for_each_store(|place| {
        each_full(place, |limiter, key, limits| {
            place.clock.set(START + 25 * SECOND);
            assert!(limiter.check("r", key).sure().allowed(), "{limits}");
            place.clock.set(START + SECOND);
            let left = limiter.peek("r", key).sure().remaining();
            assert_eq!(drain(limiter, "r", key, 20), usize::try_from(left).expect("it is small"), "{limits}");
            assert!(usize::try_from(left).expect("it is small") < LIMIT, "{limits}");
            assert!(!limiter.check("r", key).sure().allowed(), "{limits}");
        });
    });
}

#[test]
fn law_07_a_wrong_jump_ahead_admits_one_quota_and_then_nothing_until_the_clock_catches_up() {
    const AHEAD: u64 = START + 1_000_000 * SECOND;
    for_each_store(|place| {
        each_full(place, |limiter, key, limits| {
            place.clock.set(AHEAD);
            assert_eq!(drain(limiter, "r", key, 20), LIMIT, "{limits}");
            for now in [START + 1, START + 10 * SECOND, START + 40 * SECOND, START + 500_000 * SECOND, AHEAD - 1] {
                place.clock.set(now);
                assert!(!limiter.check("r", key).sure().allowed(), "{limits} at {now}");
            }
            // A second jump, as far, gives nothing more.
            place.clock.set(AHEAD);
            assert!(!limiter.check("r", key).sure().allowed(), "{limits}");
            place.clock.set(START + 2);
            limiter.reset("r", key).wait().expect("reset cures");
            assert_eq!(drain(limiter, "r", key, 20), LIMIT, "{limits}");
        });
    });
}

#[test]
fn law_07_after_the_clock_has_caught_up_all_is_as_ever() {
    for_each_store(|place| {
        each_full(place, |limiter, key, limits| {
            place.clock.set(START + 1_000 * SECOND);
            assert_eq!(drain(limiter, "r", key, 20), LIMIT, "{limits}");
            place.clock.set(START + SECOND);
            assert!(!limiter.check("r", key).sure().allowed(), "{limits}");
            place.clock.set(START + 1_020 * SECOND);
            assert_eq!(drain(limiter, "r", key, 20), LIMIT, "{limits}");
        });
    });
}

/// Rates with short, long and uneven windows, in every algorithm.
fn lasting() -> impl Iterator<Item = String> {
    let windows = ["5/500ms", "5/s", "7/40s", "3/7m", "100/d", "1/365d"];
    let every = windows.into_iter().flat_map(|rate| ALGORITHMS.map(|algorithm| format!("{rate} {algorithm}")));
    let more = ["5/m precision 7s", "9/m burst 40", "3/s burst 1", "1/10s burst 1", "999_983/d burst 10_000_000"];
    every.chain(more.map(str::to_owned))
}

#[test]
fn law_08_a_ttl_lasts_as_long_as_its_meaning_and_little_longer() {
    for_each_server(|place| {
        for (index, limits) in lasting().enumerate() {
            let limiter = build(place.real_time_builder(), &[("r", &limits)]);
            let charged = limiter.check("r", format!("u{index}")).sure();
            let meaning = micros(charged.reset_after().expect("it is whole again some day"));
            let window = micros(charged.binding().window());
            let ours = place
                .stored()
                .into_iter()
                .find(|(key, _, _)| String::from_utf8_lossy(key).contains(&format!("{{u{index}}}")));
            let (_, _, end) = ours.expect("the charge is stored");
            let end = u64::try_from(end).unwrap_or_else(|_| panic!("{limits}: it has no TTL")) * 1_000;
            // From the time of the decision; under precision the charge is dated ahead, and so its meaning lasts.
            let stamp = charged_at(&charged.receipt());
            let from = if limits.contains("precision") { stamp + window - meaning } else { stamp };
            let slack = window.min(60 * SECOND) + SECOND;
            // The server reckons ends in milliseconds, from the time at which the command began; before 7.2 that is not
            // the script's time, and a busy machine may stop the server between the two.
            let ttl = end - from;
            assert!((meaning..=meaning + slack + SECOND / 2).contains(&ttl), "{limits}: {ttl} for {meaning}");
        }
    });
}

#[test]
fn law_08_a_key_robbed_of_its_ttl_gets_it_back_at_the_next_admitted_check() {
    for_each_server(|place| {
        for algorithm in ALGORITHMS {
            let (limiter, key) = (place.limiter(&[("r", &format!("3/m {algorithm}"))]), algorithm);
            let stored = place.key(key, &format!("r:{algorithm}:60000"));
            for cost in [1, 2] {
                // The first charge makes the key, the second one finds it robbed.
                assert!(limiter.check("r", key).cost(cost).sure().allowed());
                assert!(place.command::<i64>("PTTL", stored.as_bytes(), &[]) > 0, "{algorithm}");
                place.command::<()>("PERSIST", stored.as_bytes(), &[]);
                assert_eq!(place.command::<i64>("PTTL", stored.as_bytes(), &[]), -1);
            }
            assert!(!limiter.check("r", key).sure().allowed());
            place.clock.forward(120 * SECOND);
            assert!(limiter.check("r", key).sure().allowed());
            assert!(place.command::<i64>("PTTL", stored.as_bytes(), &[]) > 0, "{algorithm}");
        }
    });
}

#[test]
fn law_08_counts_have_a_ttl_that_never_moves() {
    for_each_server(|place| {
        let limiter = build(place.real_time_builder(), &[("r", "5/m")]);
        let window = Duration::from_secs(40);
        let first = limiter.count("r", "k", window).add(2).wait().expect("the store works");
        let before = place.stored();
        let (_, _, end) = before[0];
        let ttl = u64::try_from(end).expect("it has a TTL") * 1_000 - first.start;
        assert!((40 * SECOND..=81 * SECOND + 2_000).contains(&ttl), "{ttl}");
        for total in [5, 8] {
            assert_eq!(limiter.count("r", "k", window).add(3).wait().expect("the store works").total, total);
        }
        let back = limiter.count("r", "k", window).take_back(4, first.start).wait().expect("the store works");
        assert_eq!((back.total, back.start), (4, first.start));
        assert_eq!(place.stored()[0].2, end);
    });
}

#[test]
fn law_08_a_ttl_is_no_meaning() {
    // A key that outlives its meaning says what a key that is gone says.
    for_each_server(|place| {
        for (index, limits) in rates().enumerate() {
            let (limiter, key) = (place.limiter(&[("r", &limits)]), format!("u{index}"));
            let untouched = figures(&limiter.peek("r", &key).sure());
            assert!(limiter.check("r", &key).cost(4).sure().allowed());
            place.clock.forward(40 * SECOND);
            assert!(!place.stored().is_empty());
            assert_eq!(figures(&limiter.peek("r", &key).sure()), untouched, "{limits}");
        }
    });
}
