//! Laws 1 to 4: what is admitted, what a refusal leaves, how long to wait, what a look leaves.

use tidegate::{Check, Decision, Limiter};
use tidegate_tests::limiters::{
    ALGORITHMS, Clock, Place, Random, SECOND, START, Sure, charged_at, drain, figures, for_each_server, for_each_store,
    micros,
};
use tidegate_tests::oracle::{bucket_bound_holds, no_window_exceeds};

/// A charge that was kept: when, and how many units.
type Charge = (u64, u64);

/// The units charged from one time on and before another.
fn used(charges: &[Charge], from: u64, to: u64) -> u64 {
    charges.iter().filter(|(time, _)| (from..to).contains(time)).map(|(_, units)| units).sum()
}

/// Steps of a clock that goes forward: often none at all, often to an edge of the window, now and then over it.
fn step(random: &mut Random, window: u64) -> u64 {
    let about = random.below(window / 5);
    *random.pick(&[0, 0, 1, about, about, window / 3, window - 1, window])
}

/// Checks of mixed costs; the larger the rate's limit, the larger the costs, so that some are always refused.
fn history(
    limiter: &Limiter,
    clock: &Clock,
    window: u64,
    seed: u64,
    mut each: impl FnMut(u64, &Decision, &mut Random),
) {
    let mut random = Random::new(seed);
    let limit = u64::from(limiter.peek("r", "nobody").sure().limit());
    let key = format!("history {seed}");
    for _ in 0..120 {
        clock.forward(step(&mut random, window));
        let cost = 1 + random.below(1 + seed % 3 * limit.div_ceil(5));
        each(cost, &limiter.check("r", &key).cost(cost).sure(), &mut random);
    }
}

#[test]
fn law_01_no_window_holds_more_than_the_limit_and_nothing_that_fits_is_refused() {
    const WINDOW: u64 = 10 * SECOND;
    for_each_store(|place| {
        for limits in ["7/10s sliding_window_log", "7/10s", "2/10s", "40/10s sliding_window_log", "40/10s"] {
            let limit: u64 = limits.split_once('/').expect("a rate").0.parse().expect("a number");
            let limiter = place.limiter(&[("r", limits)]);
            let mut refusals = 0;
            for seed in 1..=6 {
                limiter.reset("r", format!("history {seed}")).wait().expect("the store works");
                let mut charges = Vec::<Charge>::new();
                history(&limiter, &place.clock, WINDOW, seed, |cost, decision, random| {
                    let now = place.clock.now();
                    let live = used(&charges, now - WINDOW + 1, now + 1);
                    assert_eq!(decision.allowed(), live + cost <= limit, "{limits}: {charges:?} and {cost} at {now}");
                    refusals += u64::from(!decision.allowed());
                    if decision.allowed() {
                        assert_eq!(charged_at(&decision.receipt()), now);
                        charges.push((now, cost));
                        // What is refunded was never there; the law holds for what was kept.
                        if random.below(5) == 0 {
                            assert!(limiter.refund(&decision.receipt()).wait().expect("the store works"));
                            charges.pop();
                        }
                    }
                });
                assert!(no_window_exceeds(&charges, WINDOW, limit), "{limits}: {charges:?}");
                assert!(charges.len() > 3, "{limits}: the history says something");
            }
            assert!(refusals > 20, "{limits}: the histories say something");
        }
    });
}

#[test]
fn law_01_under_precision_no_window_holds_more_and_less_than_the_precision_is_lost() {
    const WINDOW: u64 = 10 * SECOND;
    for_each_store(|place| {
        for (limits, limit, precision) in [("7/10s precision 1s", 7, SECOND), ("40/10s precision 3s", 40, 3 * SECOND)] {
            let limiter = place.limiter(&[("r", limits)]);
            let mut refusals = 0;
            for seed in 1..=6 {
                limiter.reset("r", format!("history {seed}")).wait().expect("the store works");
                let (mut calls, mut stamps) = (Vec::<Charge>::new(), Vec::<Charge>::new());
                history(&limiter, &place.clock, WINDOW, seed, |cost, decision, _| {
                    let now = place.clock.now();
                    let exact = used(&calls, now - WINDOW + 1, now + 1);
                    let latest = used(&calls, (now + 1).saturating_sub(WINDOW + precision), now + 1);
                    let (may, must) = (exact + cost <= limit, latest + cost <= limit);
                    assert!(decision.allowed() || !must, "{limits}: {calls:?} and {cost} at {now} was to be admitted");
                    assert!(!decision.allowed() || may, "{limits}: {calls:?} and {cost} at {now} was to be refused");
                    refusals += u64::from(!decision.allowed());
                    if decision.allowed() {
                        calls.push((now, cost));
                        stamps.push((charged_at(&decision.receipt()), cost));
                    }
                });
                assert!(no_window_exceeds(&calls, WINDOW, limit), "{limits}: {calls:?}");
                assert!(no_window_exceeds(&stamps, WINDOW, limit), "{limits}: {stamps:?}");
                assert!(stamps.iter().all(|(stamp, _)| stamp % precision == 0), "{limits}: {stamps:?}");
            }
            assert!(refusals > 20, "{limits}: the histories say something");
        }
    });
}

#[test]
fn law_01_a_bucket_admits_at_most_its_burst_and_the_refill_of_any_interval() {
    const WINDOW: u64 = 10 * SECOND;
    for_each_store(|place| {
        for (limits, limit, burst) in [("7/10s burst 7", 7, 7), ("3/10s burst 20", 3, 20), ("40/10s burst 4", 40, 4)] {
            let limiter = place.limiter(&[("r", limits)]);
            let mut refusals = 0;
            for seed in 1..=6 {
                limiter.reset("r", format!("history {seed}")).wait().expect("the store works");
                let mut charges = Vec::<Charge>::new();
                // The deficit in window-ths of a unit, added up the long way.
                let (mut deficit, mut last) = (0, 0);
                history(&limiter, &place.clock, WINDOW, seed, |cost, decision, _| {
                    let now = place.clock.now();
                    deficit = u64::saturating_sub(deficit, (now - last) * limit);
                    last = now;
                    let fits = deficit + cost * WINDOW <= burst * WINDOW;
                    assert_eq!(decision.allowed(), fits, "{limits}: {charges:?} and {cost} at {now}");
                    refusals += u64::from(!decision.allowed());
                    if decision.allowed() {
                        deficit += cost * WINDOW;
                        charges.push((charged_at(&decision.receipt()), cost));
                    }
                });
                assert!(bucket_bound_holds(&charges, burst, limit, WINDOW), "{limits}: {charges:?}");
                assert!(charges.len() > 3, "{limits}: the history says something");
            }
            assert!(refusals > 20, "{limits}: the histories say something");
        }
    });
}

#[test]
fn law_01_the_coarse_windows_keep_their_documented_bounds() {
    const WINDOW: u64 = 10 * SECOND;
    for_each_store(|place| {
        for (algorithm, most) in [("fixed_window", 14), ("sliding_window_counter", 13)] {
            let limits = format!("7/10s {algorithm}");
            let limiter = place.limiter(&[("r", &limits)]);
            for seed in 1..=6 {
                let mut charges = Vec::<Charge>::new();
                history(&limiter, &place.clock, WINDOW, seed, |cost, decision, _| {
                    if decision.allowed() {
                        charges.push((charged_at(&decision.receipt()), cost));
                    }
                });
                assert!(no_window_exceeds(&charges, WINDOW, most), "{limits}: {charges:?}");
                let aligned = charges.iter().all(|(time, _)| {
                    let start = time - time % WINDOW;
                    used(&charges, start, start + WINDOW) <= 7
                });
                assert!(aligned && charges.len() > 3, "{limits}: {charges:?}");
            }
        }
    });
}

/// A limiter of one rule whose key is used up, with a refused cost of one, and what was stored then.
fn used_up(place: &Place, limits: &str, key: &str) -> Limiter {
    let limiter = place.limiter(&[("r", limits), ("free", "50/h"), ("free_log", "50/h sliding_window_log")]);
    while limiter.check("r", key).sure().allowed() {
        place.clock.forward(7);
    }
    limiter
}

const REFUSED: [Tried; 4] = [
    |limiter, key| limiter.check("r", key),
    |limiter, key| limiter.check("r", key).cost(2),
    |limiter, key| limiter.check("r", key).cost(10_000),
    |limiter, key| limiter.check_all(["free", "r", "free_log"], key),
];
type Tried = for<'a> fn(&'a Limiter, &str) -> Check<'a>;

/// The rates of the tests that go through every algorithm.
fn all_rates() -> impl Iterator<Item = String> {
    let precise = ["6/10s precision 1s".to_owned(), "6/10s burst 3".to_owned()];
    ALGORITHMS.into_iter().map(|algorithm| format!("6/10s {algorithm}")).chain(precise)
}

#[test]
fn law_02_a_refusal_changes_nothing() {
    for_each_store(|place| {
        for (index, limits) in all_rates().enumerate() {
            let key = format!("u{index}");
            let limiter = used_up(place, &limits, &key);
            let before = (place.stored(), limiter.metrics().keys, figures(&limiter.peek("r", &key).sure()));
            assert!(place.is_memory() || !before.0.is_empty());
            for refused in REFUSED {
                let decision = refused(&limiter, &key).sure();
                assert!(!decision.allowed() && decision.receipt().is_empty(), "{limits}");
            }
            let after = (place.stored(), limiter.metrics().keys, figures(&limiter.peek("r", &key).sure()));
            assert_eq!(before, after, "{limits}");
            assert_eq!(limiter.peek("free", &key).sure().remaining(), 50, "{limits}");
        }
    });
}

#[test]
fn law_02_a_client_that_polls_while_limited_is_admitted_the_moment_it_should_be() {
    for_each_store(|place| {
        for (index, limits) in all_rates().enumerate() {
            let key = format!("u{index}");
            let limiter = used_up(place, &limits, &key);
            let wait = micros(limiter.check("r", &key).sure().retry_after().expect("it is refused for a while"));
            let since = place.clock.now();
            for part in 0..37 {
                place.clock.set(since + wait * part / 37);
                let decision = limiter.check("r", &key).sure();
                assert!(!decision.allowed(), "{limits}, {part} of 37");
                assert_eq!(decision.retry_after().map(micros), Some(since + wait - place.clock.now()), "{limits}");
            }
            place.clock.set(since + wait);
            assert!(limiter.check("r", &key).sure().allowed(), "{limits}");
        }
    });
}

/// Whether a refused call passes after its wait, and not a microsecond before.
fn assert_tight(clock: &Clock, call: &Check<'_>, about: &str) {
    let refused = call.clone().sure();
    assert!(!refused.allowed(), "{about}");
    let wait = micros(refused.retry_after().unwrap_or_else(|| panic!("{about}: no wait is told: {refused:?}")));
    let since = clock.now();
    clock.set(since + wait - 1);
    let early = call.clone().sure();
    assert_eq!((early.allowed(), early.retry_after().map(micros)), (false, Some(1)), "{about}: a tick before {wait}");
    clock.set(since + wait);
    assert!(call.clone().sure().allowed(), "{about}: after {wait}");
}

#[test]
fn law_03_retry_after_is_exact_and_tight_for_any_cost() {
    for_each_store(|place| {
        let mut random = Random::new(3);
        let odd_rates =
            ["3/7s burst 11", "999_983/d burst 40", "11/10s precision 700ms", "9/7ms", "300_000/s burst 12"];
        let rates = ALGORITHMS.map(|algorithm| format!("12/10s {algorithm}"));
        for (index, limits) in rates.into_iter().chain(odd_rates.map(str::to_owned)).enumerate() {
            let limiter = place.limiter(&[("r", &limits)]);
            for round in 0..6 {
                let key = format!("{index} {round}");
                place.clock.forward(random.below(10 * SECOND));
                // Some entries with times and costs of their own, until the key is nearly used up.
                for _ in 0..40 {
                    let _ = limiter.check("r", &key).cost(1 + random.below(4)).sure();
                    place.clock.forward(random.below(9));
                }
                let capacity: u64 = limiter.peek("r", &key).sure().binding().burst().into();
                for cost in [capacity, capacity - 2, 5, 2].into_iter().filter(|cost| *cost <= capacity) {
                    let call = limiter.check("r", &key).cost(cost);
                    if !limiter.peek("r", &key).cost(cost).sure().allowed() {
                        assert_tight(&place.clock, &call, &format!("{limits}, cost {cost}"));
                    }
                }
                let never = limiter.check("r", &key).cost(capacity + 1).sure();
                assert_eq!((never.allowed(), never.retry_after()), (false, None), "{limits}");
            }
        }
    });
}

#[test]
fn law_03_retry_after_of_several_limits_is_that_of_them_all() {
    let sets = [
        "5/s; 12/10s sliding_window_log; 30/m burst 8",
        "5/s fixed_window; 12/10s sliding_window_counter; 30/m precision 1s; 2/s shadow named x",
        "9/10s fixed_window; 4/3s burst 6; 20/m sliding_window_log",
    ];
    for_each_store(|place| {
        let mut random = Random::new(33);
        for (index, limits) in sets.iter().enumerate() {
            let limiter = place.limiter(&[("r", limits), ("other", "7/9s")]);
            let mut waited = 0;
            for round in 0..30 {
                let (key, cost) = (format!("{index} {}", round / 15), 1 + random.below(3));
                place.clock.forward(random.below(SECOND / 4));
                let both = limiter.check_all(["r", "other"], &key).cost(cost);
                if !both.clone().sure().allowed() {
                    assert_tight(&place.clock, &both, limits);
                    waited += 1;
                }
            }
            assert!(waited > 3, "{limits}: only {waited} refusals");
        }
    });
}

#[test]
fn law_04_a_peek_writes_nothing_and_says_what_check_would() {
    for_each_store(|place| {
        for (index, limits) in all_rates().enumerate() {
            let key = format!("u{index}");
            let limiter = place.limiter(&[("r", &limits), ("other", "2/h")]);
            let untouched = limiter.peek("r", &key).sure();
            let whole = untouched.binding().burst();
            assert_eq!(figures(&untouched), (true, whole, None, Some(0)), "{limits}");
            for _ in 0..8 {
                let before = (place.stored(), limiter.metrics().keys);
                let peeked = limiter.peek("r", &key).sure();
                assert!(peeked.receipt().is_empty());
                assert_eq!((place.stored(), limiter.metrics().keys), before, "{limits}");
                let checked = limiter.check("r", &key).sure();
                assert_eq!(peeked.allowed(), checked.allowed(), "{limits}");
                assert_eq!(peeked.retry_after(), checked.retry_after(), "{limits}");
                // A peek's figures are uncharged.
                assert_eq!(peeked.remaining(), checked.remaining() + u32::from(checked.allowed()), "{limits}");
                place.clock.forward(SECOND / 100);
            }
            assert!(!limiter.peek("r", &key).sure().allowed(), "{limits}");
            assert_eq!(drain(&limiter, "other", &key, 5), 2);
        }
    });
}

#[test]
fn law_04_peeks_of_unknown_keys_leave_no_keys() {
    for_each_server(|place| {
        for algorithm in ALGORITHMS {
            let limiter = place.limiter(&[("r", &format!("5/m {algorithm}"))]);
            assert!(limiter.peek("r", "nobody").sure().allowed());
        }
        assert_eq!(place.stored(), []);
        assert_eq!(place.clock.now(), START);
    });
}
