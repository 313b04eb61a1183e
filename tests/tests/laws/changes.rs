//! Law 9: limits change while they are in use.

use tidegate::Limiter;
use tidegate_tests::limiters::{ALGORITHMS, SECOND, Sure, figures, for_each_store};

/// Units admitted one at a time under limits given at the call: another process with other limits, in every store.
fn drain_under(limiter: &Limiter, limits: &str, key: &str) -> u32 {
    (0..100).take_while(|_| limiter.check("r", key).limits(limits).sure().allowed()).map(|_| 1).sum()
}

#[test]
fn law_09_units_are_absolute() {
    for_each_store(|place| {
        for algorithm in ALGORITHMS {
            let limiter = place.limiter(&[("r", &format!("10/m {algorithm}"))]);
            assert_eq!(limiter.check("r", algorithm).cost(7).sure().remaining(), 3);
            let lowered = limiter.check("r", algorithm).limits(format!("5/m {algorithm}")).sure();
            assert_eq!((lowered.allowed(), lowered.remaining(), lowered.limit()), (false, 0, 5), "{algorithm}");
            assert!(lowered.retry_after().is_some(), "{algorithm}");
            assert_eq!(limiter.peek("r", algorithm).sure().remaining(), 3, "{algorithm}: nothing was trimmed");
            assert_eq!(drain_under(&limiter, &format!("20/m {algorithm}"), algorithm), 13, "{algorithm}");
            assert_eq!(limiter.peek("r", algorithm).sure().remaining(), 0, "{algorithm}");
        }
    });
}

#[test]
fn law_09_two_processes_that_differ_stay_within_the_larger_limit() {
    for_each_store(|place| {
        for algorithm in ALGORITHMS {
            let limiter = place.limiter(&[("r", "1/h")]);
            let limits = [5, 10].map(|limit| format!("{limit}/m {algorithm}"));
            let mut admitted = 0;
            for turn in 0..40 {
                let allowed = limiter.check("r", algorithm).limits(&limits[turn % 2]).sure().allowed();
                // Each process goes by its own limit, on what both have used.
                assert_eq!(allowed, admitted < [5, 10][turn % 2], "{algorithm}");
                admitted += u32::from(allowed);
            }
            assert_eq!(admitted, 10, "{algorithm}");
        }
    });
}

#[test]
fn law_09_bursts_and_rates_of_a_bucket_change_without_minting() {
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", "10/10s burst 10")]);
        assert_eq!(drain_under(&limiter, "10/10s burst 10", "k"), 10);
        assert_eq!(drain_under(&limiter, "10/10s burst 4", "k"), 0);
        assert_eq!(drain_under(&limiter, "10/10s burst 14", "k"), 4);
        // Three seconds give three units by the faster of the two rates, whoever asks.
        place.clock.forward(3 * SECOND);
        assert_eq!(drain_under(&limiter, "1/10s burst 14", "k"), 3);
        // Now the slow rate is the stored one.
        place.clock.forward(9 * SECOND);
        assert_eq!(drain_under(&limiter, "1/10s burst 14", "k"), 0);
        place.clock.forward(SECOND);
        assert_eq!(drain_under(&limiter, "1/10s burst 14", "k"), 1);
    });
}

#[test]
fn law_09_precision_changes_without_starting_anew() {
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", "6/m")]);
        for limits in ["6/m precision 10s", "6/m", "6/m precision 700ms"] {
            assert!(limiter.check("r", "k").limits(limits).cost(2).sure().allowed());
            place.clock.forward(SECOND);
        }
        for limits in ["6/m precision 10s", "6/m", "6/m precision 700ms"] {
            assert_eq!(drain_under(&limiter, limits, "k"), 0);
        }
        place.clock.forward(80 * SECOND);
        assert_eq!(drain_under(&limiter, "6/m", "k"), 6);
    });
}

#[test]
fn law_09_a_changed_window_algorithm_or_name_starts_anew() {
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", "4/m"), ("s", "4/m")]);
        assert_eq!(drain_under(&limiter, "4/m", "k"), 4);
        for limits in ["4/61s", "4/m named x", "4/m sliding_window_log", "4/m fixed_window", "4/m gcra"] {
            assert_eq!(drain_under(&limiter, limits, "k"), 4, "{limits}");
        }
        assert_eq!(limiter.check("s", "k").cost(4).sure().remaining(), 0);
        assert_eq!(drain_under(&limiter, "4/60s", "k"), 0, "the same window, written otherwise");
    });
}

#[test]
fn law_09_limits_given_at_the_call_can_be_reset() {
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", "4/m")]);
        assert_eq!(drain_under(&limiter, "9/h gcra", "k"), 9);
        assert_eq!(drain_under(&limiter, "4/m", "k"), 4);
        limiter.reset("r", "k").wait().expect("the store works");
        assert_eq!(drain_under(&limiter, "9/h gcra", "k"), 0, "it is no limit of the rule's own");
        limiter.reset_with_limits("r", "k", "9/h gcra").wait().expect("the store works");
        let fresh = limiter.peek("r", "k").limits("9/h gcra").sure();
        assert_eq!(figures(&fresh), (true, 9, None, Some(0)));
    });
}
