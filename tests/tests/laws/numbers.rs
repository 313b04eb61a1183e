//! Law 12: numbers are judged at the door, and within the door everything works and is exact.

use std::time::Duration;

use tidegate::{Error, ErrorKind, Limit, Limiter, Rule};
use tidegate_tests::limiters::{ALGORITHMS, Place, SECOND, START, Sure, figures, for_each_store};

const MOST: u64 = 10_000_000;
const DAY: u64 = 86_400 * SECOND;
const LONGEST: u64 = 366 * DAY;

type Figures = (bool, u32, Option<u64>, Option<u64>);

/// What a series of costs, each after a pause, is answered in one store, and what two peeks say between.
fn answers(place: &Place, limits: &str, key: &str, calls: &[(u64, u64)]) -> Vec<Figures> {
    place.clock.set(START + 123_456);
    let limiter = place.limiter(&[("r", limits)]);
    let each = calls.iter().flat_map(|&(pause, cost)| {
        place.clock.forward(pause);
        let decision = limiter.check("r", key).cost(cost).sure();
        let peeks = [1, cost].map(|cost| figures(&limiter.peek("r", key).cost(cost).sure()));
        [figures(&decision), peeks[0], peeks[1]]
    });
    each.collect()
}

/// Rates at the edges of what must work, in any combination.
fn extremes() -> Vec<(String, u64)> {
    let mut rates = Vec::new();
    for window in ["1ms", "7ms", "366d"] {
        for limit in [1, 999_983, MOST] {
            for algorithm in &ALGORITHMS[1..] {
                rates.push((format!("{limit}/{window} {algorithm}"), limit));
            }
            rates.push((format!("{limit}/{window} precision 1ms"), limit));
            rates.push((format!("{limit}/{window} precision {window}"), limit));
        }
        rates.push((format!("{MOST}/{window} burst 1"), 1));
        rates.push((format!("10000/{window} sliding_window_log"), 10_000));
        rates.push((format!("{MOST}/{window} sliding_window_log"), 10_000));
    }
    // The largest buckets that fill within 70 years, and the fastest ones.
    rates.extend([("1/366d burst 69".into(), 69), (format!("143154/366d burst {MOST}"), MOST)]);
    rates.extend([(format!("1/1ms burst {MOST}"), MOST), (format!("1/220s burst {MOST}"), MOST)]);
    rates
}

#[test]
fn law_12_extremes_are_admitted_and_exact_and_the_same_in_every_store() {
    let memory = Place::memory();
    for (index, (limits, most)) in extremes().into_iter().enumerate() {
        let calls = [
            (0, most),
            (1, 1),
            (999, most),
            (SECOND, most),
            (DAY / 3, 1),
            (LONGEST, most),
            (2 * LONGEST, most),
            (0, 1),
        ];
        let key = format!("u{index}");
        let expected = answers(&memory, &limits, &key, &calls);
        let whole = expected[0];
        assert!(whole.0, "{limits}: a key that is whole admits its whole burst: {whole:?}");
        assert!(whole.1 == 0 || limits.contains("log"), "{limits}: nothing is left of it: {whole:?}");
        assert!(limits.contains("log") || expected.iter().any(|figures| !figures.0), "{limits}: {expected:?}");
        for place in places() {
            assert_eq!(answers(place, &limits, &key, &calls), expected, "{limits}, {place:?}");
        }
    }
    places().iter().for_each(|place| place.assert_that_every_key_has_a_ttl());
}

fn places() -> &'static [Place; 2] {
    static PLACES: std::sync::LazyLock<[Place; 2]> = std::sync::LazyLock::new(|| [Place::redis(), Place::cluster()]);
    &PLACES
}

#[test]
fn law_12_long_waits_are_exact_to_the_microsecond() {
    for_each_store(|place| {
        // A bucket of 10,000,000 at 999,983 a year: a unit takes 31,622,937.62... us.
        let limiter = place.limiter(&[("r", "999_983/366d burst 10_000_000")]);
        assert!(limiter.check("r", "k").cost(MOST).sure().allowed());
        for cost in [1, 2, 3, 777_777, MOST] {
            let exact = (u128::from(cost) * u128::from(LONGEST)).div_ceil(999_983);
            let wait = limiter.check("r", "k").cost(cost).sure().retry_after().expect("it passes some day");
            assert_eq!(wait.as_micros(), exact, "cost {cost}");
        }
        // What is refilled is taken day by day, and the parts of a unit that are left over at night are not lost.
        let until = |day: u64| u128::from(day) * u128::from(DAY) * 999_983 / u128::from(LONGEST);
        for day in 1..=100 {
            place.clock.set(START + day * DAY);
            let left = limiter.peek("r", "k").sure().remaining();
            assert_eq!(u128::from(left), until(day) - until(day - 1), "day {day}");
            assert!(limiter.check("r", "k").cost(left.into()).sure().allowed());
        }
    });
}

#[test]
fn law_12_a_limit_or_burst_of_zero_refuses_all_and_is_meant() {
    for_each_store(|place| {
        let zeros = ALGORITHMS.map(|algorithm| format!("0/366d {algorithm}"));
        let more = ["0/1ms precision 1ms", "0/s burst 10_000_000", "5/s burst 0", "1/366d burst 0"].map(str::to_owned);
        for limits in zeros.into_iter().chain(more) {
            let limiter = place.limiter(&[("r", &limits), ("other", "3/h")]);
            for cost in [1, 10_000] {
                assert_eq!(figures(&limiter.check("r", "k").cost(cost).sure()), (false, 0, None, None), "{limits}");
                assert_eq!(figures(&limiter.peek("r", "k").cost(cost).sure()), (false, 0, None, None), "{limits}");
            }
            assert!(!limiter.check_all(["other", "r"], "k").sure().allowed(), "{limits}");
            assert_eq!(limiter.peek("other", "k").sure().remaining(), 3, "{limits}");
        }
        assert!(place.stored().is_empty());
    });
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, Error>, kind: ErrorKind, about: &str) {
    let error = outcome.expect_err(about);
    assert_eq!(error.kind(), kind, "{about}: {error}");
    assert!(
        error.message().contains("write") || error.message().contains("use") || error.message().contains("pass"),
        "it says what to do instead: {error}"
    );
}

#[test]
fn law_12_rules_beyond_the_range_are_refused() {
    for limits in [
        "10_000_001/s",
        "18446744073709551615/s",
        "1/0s",
        "1/0ms",
        "1/367d",
        "1/1000000d",
        "-1/s",
        "1.5/s",
        "NaN/s",
        "1e3/s",
        "1/s burst 10_000_001",
        "1/m precision 0ms",
        "1/m precision 61s",
        "1/366d burst 70",
        "1/222s burst 10_000_000",
        "143_153/366d burst 10_000_000",
        "",
    ] {
        assert_refused(Rule::parse("r", limits), ErrorKind::InvalidRule, limits);
    }
    for limits in ["5/s fixed_window burst 7", "5/m fixed_window precision 1s", "5/m; 6/m"] {
        let error = Rule::parse("r", limits).expect_err(limits);
        assert_eq!(error.kind(), ErrorKind::InvalidRule, "{limits}");
    }
    for (about, limit) in [
        ("a microsecond", Limit::new(1, Duration::from_micros(1))),
        ("a millisecond and a half", Limit::new(1, Duration::from_micros(1_500))),
        ("for ever", Limit::new(1, Duration::MAX)),
        (
            "a precision of half a millisecond",
            Limit::new(1, Duration::from_secs(1)).precision(Duration::from_micros(500)),
        ),
        ("more than can be said", Limit::new(u64::MAX, Duration::from_secs(1))),
    ] {
        assert_refused(Rule::new("r", [limit]), ErrorKind::InvalidRule, about);
    }
}

#[test]
fn law_12_calls_that_cannot_be_meant_are_refused_before_anything_is_sent() {
    // Nobody listens there: what was sent would come back as a decision of the failure policy.
    let dead = Limiter::builder().url("redis://127.0.0.1:1").deadline(Duration::from_secs(1));
    let memory = Limiter::builder();
    for builder in [dead, memory] {
        let limiter = builder
            .rule("r", "5/m")
            .rule("log", "5/m sliding_window_log")
            .rule("watch", "5/m sliding_window_log shadow");
        let limiter = limiter.build().expect("the rules can be meant");
        let invalid = ErrorKind::InvalidRequest;
        assert_refused(limiter.check("r", "k").cost(0).wait(), invalid, "cost 0");
        assert_refused(limiter.peek("r", "k").cost(0).wait(), invalid, "a peek of cost 0");
        assert_refused(limiter.acquire("r", "k").cost(0).wait(), invalid, "an acquire of cost 0");
        assert_refused(limiter.check("r", "k").cost(MOST + 1).wait(), invalid, "cost above 10,000,000");
        assert_refused(limiter.check("r", "k").cost(u64::MAX).wait(), invalid, "the largest cost");
        assert_refused(limiter.check("log", "k").cost(10_001).wait(), invalid, "cost above 10,000 in a log");
        assert_refused(limiter.check_all(["r", "log"], "k").cost(10_001).wait(), invalid, "the same beside another");
        assert_refused(limiter.check("r", "").wait(), invalid, "an empty key");
        assert_refused(limiter.check("r", "x".repeat(65_537)).wait(), invalid, "a key above 64 KiB");
        assert_refused(limiter.reset("r", "").wait(), invalid, "an empty key");
        let id = |rule, id: &str| limiter.check(rule, "k").request_id(id).wait().expect_err("no such id").kind();
        assert_eq!([id("r", "x"), id("watch", "x"), id("log", ""), id("log", &"x".repeat(201))], [invalid; 4]);
        assert_eq!(limiter.check("none", "k").wait().expect_err("no such rule").kind(), ErrorKind::UnknownRule);
        assert_eq!(limiter.check_all([], "k").wait().expect_err("no rule").kind(), invalid);
        assert_refused(limiter.check("r", "k").limits("5").wait(), ErrorKind::InvalidRule, "no rate");
        assert_refused(limiter.check("r", "k").limits("10_000_001/s").wait(), ErrorKind::InvalidRule, "too much");
        let count = |units, millis| limiter.count("r", "k", Duration::from_micros(millis)).add(units).wait();
        assert_refused(count(MOST + 1, 1_000_000), invalid, "a count above 10,000,000");
        assert_refused(count(1, 999), invalid, "a count in less than a millisecond");
        assert_refused(count(1, LONGEST + 1_000), invalid, "a count in more than 366 days");
    }
}

#[test]
fn law_12_a_live_id_is_a_repeat_beside_a_limit_of_zero_too() {
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", "10/h sliding_window_log")]);
        assert!(limiter.check("r", "k").request_id("one").sure().allowed());
        for limits in ["0/s; 10/h sliding_window_log", "10/h sliding_window_log; 0/s"] {
            let again = limiter.check("r", "k").limits(limits).request_id("one").sure();
            assert!(again.allowed() && again.is_repeat() && again.receipt().is_empty(), "{limits}");
            let fresh = limiter.check("r", "k").limits(limits).request_id("two").sure();
            assert!(!fresh.allowed() && fresh.retry_after().is_none(), "{limits}");
        }
        assert_eq!(limiter.peek("r", "k").sure().remaining(), 9);
    });
}

#[test]
fn law_12_times_that_no_clock_reaches_do_not_panic() {
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", "5/m")]);
        let too_long = limiter.check("r", "k").deadline(Duration::MAX).wait().expect_err("longer than a minute");
        assert_eq!(too_long.kind(), ErrorKind::InvalidRequest);
        limiter.ready(Duration::MAX).wait().expect("a patient start");
        assert!(limiter.acquire("r", "k").timeout(Duration::MAX).wait().expect("and a patient wait").allowed());
    });
}
