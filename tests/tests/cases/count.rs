//! C2 to C13: the count.

use tidegate::{ErrorKind, Key};
use tidegate_tests::limiters::{
    ALGORITHMS, SECOND, START, Sure, charged_at, drain, figures, for_each_server, for_each_store, micros,
};

#[test]
fn c2_a_refused_cost_burns_nothing() {
    for_each_store(|place| {
        for algorithm in ALGORITHMS {
            let limiter = place.limiter(&[("r", &format!("10/m {algorithm}"))]);
            assert_eq!(limiter.check("r", algorithm).cost(8).sure().remaining(), 2);
            for _ in 0..3 {
                assert!(!limiter.check("r", algorithm).cost(5).sure().allowed(), "{algorithm}");
            }
            let one = limiter.check("r", algorithm).sure();
            assert_eq!((one.allowed(), one.remaining()), (true, 1), "{algorithm}");
        }
    });
}

#[test]
fn c3_refusals_of_one_limit_do_not_drain_the_others() {
    for_each_store(|place| {
        for a in ALGORITHMS {
            for b in ALGORITHMS {
                let limiter = place.limiter(&[("a", &format!("1/h {a}")), ("b", &format!("2/h {b}"))]);
                let key = format!("{a} {b}");
                let allowed = (0..10).filter(|_| limiter.check_all(["b", "a"], &key).sure().allowed()).count();
                assert_eq!((allowed, limiter.peek("b", &key).sure().remaining()), (1, 1), "{a} and {b}");
            }
        }
    });
}

#[test]
fn c4_a_thousand_hits_in_one_microsecond_are_a_thousand() {
    for_each_store(|place| {
        for algorithm in ALGORITHMS {
            let limiter = place.limiter(&[("r", &format!("1500/m {algorithm}"))]);
            assert_eq!(drain(&limiter, "r", algorithm, 1_000), 1_000);
            assert_eq!(limiter.peek("r", algorithm).sure().remaining(), 500, "{algorithm}");
        }
    });
}

#[test]
fn c5_no_edge_of_a_second_and_no_idling_gives_a_bucket_more() {
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", "10/s burst 5")]);
        place.clock.set(START + 999_990);
        assert_eq!(drain(&limiter, "r", "edge", 50), 5);
        place.clock.set(START + SECOND + 1);
        assert_eq!(drain(&limiter, "r", "edge", 50), 0, "eleven microseconds later");
        for idle in [SECOND, 60 * SECOND, 86_400 * SECOND] {
            place.clock.forward(idle);
            assert_eq!(drain(&limiter, "r", "edge", 50), 5, "after {idle} us of idling");
        }
        // For every interval from the first charge on: the burst, and what the rate gave meanwhile.
        let since = place.clock.now();
        let mut admitted = 5;
        for _ in 0..300 {
            place.clock.forward(37_003);
            admitted += u64::from(limiter.check("r", "edge").sure().allowed());
            let elapsed = place.clock.now() - since;
            assert!(admitted <= 5 + 10 * elapsed / SECOND, "{admitted} within {elapsed} us");
            assert!(admitted + 1 >= 5 + 10 * elapsed / SECOND, "{admitted} within {elapsed} us");
        }
    });
}

#[test]
fn c6_units_are_whole_and_grants_are_never_partial() {
    for_each_store(|place| {
        for algorithm in ALGORITHMS {
            let limiter = place.limiter(&[("r", &format!("10/m {algorithm}"))]);
            assert_eq!(limiter.check("r", algorithm).cost(7).sure().remaining(), 3);
            assert!(!limiter.check("r", algorithm).cost(4).sure().allowed(), "{algorithm}: three are no part of four");
            assert_eq!(limiter.check("r", algorithm).cost(3).sure().remaining(), 0, "{algorithm}");
            // Costs are unsigned, so -5 cannot be written; what it would be as bits is refused.
            let error = limiter.check("r", algorithm).cost(-5_i64 as u64).wait().expect_err("it is far too much");
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert_eq!(limiter.peek("r", algorithm).sure().remaining(), 0, "{algorithm}");
        }
    });
}

#[test]
fn c7_rates_above_a_thousand_a_second_hold() {
    for_each_store(|place| {
        for rate in [2_000_u64, 8_000, 1_000_000] {
            for limits in [format!("{rate}/s burst {}", rate / 100), format!("{}/10ms", rate / 100)] {
                let (limiter, key) = (place.limiter(&[("r", &limits)]), format!("{rate} {}", limits.len()));
                // Half a second in which twice the rate is asked for, a quarter of ten milliseconds' quota at a time.
                let (quarter, mut admitted) = (rate / 400, 0);
                for _ in 0..100 {
                    for _ in 0..4 {
                        admitted += quarter * u64::from(limiter.check("r", &key).cost(quarter).sure().allowed());
                    }
                    place.clock.forward(5_000);
                }
                let (least, most) = (rate / 2, rate / 2 + rate / 100);
                let tolerance = rate / 200;
                assert!((least - tolerance..=most).contains(&admitted), "{limits}: {admitted} in half a second");
            }
        }
    });
}

#[test]
fn c8_zero_denies_all_and_one_a_year_works() {
    for_each_store(|place| {
        for algorithm in ALGORITHMS {
            let limiter =
                place.limiter(&[("none", &format!("0/s {algorithm}")), ("year", &format!("1/year {algorithm}"))]);
            assert_eq!(figures(&limiter.check("none", "k").sure()), (false, 0, None, None), "{algorithm}");
            assert!(limiter.check("year", algorithm).sure().allowed(), "{algorithm}");
            let wait = micros(limiter.check("year", algorithm).sure().retry_after().expect("it passes next year"));
            assert!(wait <= 2 * 365 * 86_400 * SECOND, "{algorithm}: {wait}");
            place.clock.forward(wait);
            assert!(limiter.check("year", algorithm).sure().allowed(), "{algorithm}");
        }
    });
}

#[test]
fn c8_a_ttl_of_a_year_is_a_whole_number() {
    for_each_server(|place| {
        for algorithm in ALGORITHMS {
            let limits = format!("1/year {algorithm}");
            let limiter = place.real_time_builder().rule("r", &limits).build().expect("the rule can be meant");
            assert!(limiter.check("r", algorithm).sure().allowed());
            let key = place.key(algorithm, &format!("r:{algorithm}:31536000000"));
            let ttl: i64 = place.command("PTTL", key.as_bytes(), &[]);
            assert!((1..=2 * 31_536_000_000 + 61_000).contains(&ttl), "{algorithm}: {ttl}");
        }
    });
}

#[test]
fn c9_slow_and_small_buckets_limit() {
    for_each_store(|place| {
        // An obedient client comes when it was told to: how often within a minute?
        for (limits, most) in [("3/s burst 1", 180), ("1/10s burst 1", 6), ("7/s burst 1", 420)] {
            let (limiter, until) = (place.limiter(&[("r", limits)]), place.clock.now() + 60 * SECOND);
            let mut admitted = 0;
            while place.clock.now() < until {
                let decision = limiter.check("r", limits).sure();
                match decision.retry_after() {
                    Some(wait) => place.clock.wait(wait),
                    None => admitted += 1,
                }
            }
            assert_eq!(admitted, most, "{limits}");
        }
    });
}

#[test]
fn c10_a_cost_of_ten_thousand_works_in_every_algorithm() {
    for_each_store(|place| {
        for algorithm in ALGORITHMS {
            let limiter = place.limiter(&[("r", &format!("10000/m {algorithm}"))]);
            let charged = limiter.check("r", algorithm).cost(10_000).sure();
            assert_eq!((charged.allowed(), charged.remaining()), (true, 0), "{algorithm}");
            let refused = limiter.check("r", algorithm).cost(10_000).sure();
            let wait = micros(refused.retry_after().expect("it passes when the window is over"));
            // Of the counter, the window after must pass too; then the first call is allowed at once.
            place.clock.set(charged_at(&charged.receipt()) + wait);
            let again = limiter.check("r", algorithm).cost(10_000).sure();
            assert!(again.allowed(), "{algorithm}: what has expired counts no more");
            assert!(limiter.refund(&again.receipt()).wait().expect("the store works"), "{algorithm}");
            assert_eq!(limiter.peek("r", algorithm).sure().remaining(), 10_000, "{algorithm}");
        }
    });
}

#[test]
fn c10_the_first_call_after_the_window_is_allowed() {
    for_each_store(|place| {
        for algorithm in ALGORITHMS {
            let limiter = place.limiter(&[("r", &format!("4/m {algorithm}"))]);
            let last = limiter.check("r", algorithm).cost(4).sure();
            let over = if algorithm == "sliding_window_counter" { 2 } else { 1 };
            place.clock.set(charged_at(&last.receipt()) + over * 60 * SECOND);
            assert_eq!(limiter.check("r", algorithm).cost(4).sure().remaining(), 0, "{algorithm}");
        }
    });
}

#[test]
fn c11_a_steady_client_below_the_limit_is_never_refused() {
    for_each_store(|place| {
        for algorithm in ALGORITHMS {
            let limiter = place.limiter(&[("r", &format!("10/m {algorithm}"))]);
            for hit in 0..200 {
                assert!(limiter.check("r", algorithm).sure().allowed(), "{algorithm}, hit {hit}");
                place.clock.forward(7_500_000);
            }
        }
    });
}

#[test]
fn c12_a_raised_limit_admits_at_once_and_a_changed_one_frees_no_burst() {
    for_each_store(|place| {
        for algorithm in ALGORITHMS {
            let limiter = place.limiter(&[("r", &format!("10/m {algorithm}"))]);
            assert_eq!(drain(&limiter, "r", algorithm, 20), 10);
            let under = |limit: u32| {
                let limits = format!("{limit}/m {algorithm}");
                (0..100).take_while(|_| limiter.check("r", algorithm).limits(&limits).sure().allowed()).count()
            };
            assert_eq!(under(15), 5, "{algorithm}: raised");
            assert_eq!(under(12), 0, "{algorithm}: lowered");
            assert_eq!(under(15), 0, "{algorithm}: and back");
        }
    });
}

#[test]
fn c13_two_strategies_on_one_key_are_two_states() {
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", "3/m")]);
        for algorithm in ALGORITHMS {
            let limits = format!("3/m {algorithm}");
            let used = (0..9).take_while(|_| limiter.check("r", "k").limits(&limits).sure().allowed()).count();
            assert_eq!(used, 3, "{algorithm}");
        }
        let limiter = place.limiter(&[("r", "1/m")]);
        for parts in [["a/b", "c"], ["a", "b/c"], ["a,b", "c"], ["a", "b,c"]] {
            assert!(limiter.check("r", Key::parts(parts)).sure().allowed(), "{parts:?}");
        }
        assert!(limiter.check("r", "a,b,c").sure().allowed());
    });
}
