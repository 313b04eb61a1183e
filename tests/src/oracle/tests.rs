//! The oracle against the contract's own examples, the cases from the field, and itself tick by tick.

use super::Algorithm::{FixedWindow, SlidingWindow, SlidingWindowCounter, SlidingWindowLog, TokenBucket};
use super::{Algorithm, Counted, Oracle, Spec, Verdict, bucket_bound_holds, no_window_exceeds};

const ALL: [Algorithm; 5] = [SlidingWindowLog, SlidingWindow, TokenBucket, SlidingWindowCounter, FixedWindow];
const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 86_400 * SECOND;
/// A window's edge for every window that divides a day.
const START: u64 = 20_454 * DAY;

fn figures(verdict: &Verdict) -> (bool, u64, Option<u64>, Option<u64>) {
    (verdict.allowed, verdict.remaining, verdict.retry_after, verdict.reset_after)
}

fn admitted(oracle: &mut Oracle, spec: &Spec, times: u64, now: u64) -> u64 {
    (0..times).map(|_| u64::from(oracle.check(std::slice::from_ref(spec), 1, None, now).allowed)).sum()
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn law_9_units_are_absolute_when_the_limit_changes() {
    for algorithm in ALL {
        let (mut oracle, limit) = (Oracle::new(), |quota| [Spec::new(algorithm, quota, MINUTE)]);
        assert!(oracle.check(&limit(10), 7, None, START).allowed);
        let lowered = oracle.peek(&limit(5), 1, START);
        assert_eq!((lowered.allowed, lowered.remaining), (false, 0), "{algorithm:?}");
        assert_eq!(oracle.peek(&limit(10), 3, START).remaining, 3, "{algorithm:?}");
    }
}

#[test]
fn limit_or_burst_0_refuses_all() {
    for algorithm in ALL {
        let verdict = Oracle::new().check(&[Spec::new(algorithm, 0, MINUTE)], 1, None, START);
        assert_eq!(figures(&verdict), (false, 0, None, None));
    }
    for (quota, burst) in [(0, 5), (5, 0)] {
        let spec = Spec { burst, ..Spec::new(TokenBucket, quota, MINUTE) };
        assert_eq!(figures(&Oracle::new().check(&[spec], 1, None, START)), (false, 0, None, None));
    }
}

#[test]
fn c1_c4_a_flood_in_one_moment_is_counted_unit_by_unit() {
    for algorithm in ALL {
        assert_eq!(admitted(&mut Oracle::new(), &Spec::new(algorithm, 5, MINUTE), 400, START), 5);
        let mut oracle = Oracle::new();
        let spec = Spec::new(algorithm, 2_000, MINUTE);
        assert_eq!(admitted(&mut oracle, &spec, 1_000, START), 1_000);
        assert_eq!(oracle.peek(&[spec], 1, START).remaining, 1_000);
    }
}

#[test]
fn c2_a_refused_cost_burns_nothing() {
    for algorithm in ALL {
        let (mut oracle, rule) = (Oracle::new(), [Spec::new(algorithm, 10, MINUTE)]);
        assert!(oracle.check(&rule, 8, None, START).allowed);
        let refused = oracle.check(&rule, 5, None, START);
        assert_eq!((refused.allowed, refused.remaining, refused.receipt.is_empty()), (false, 2, true));
        assert_eq!(oracle.check(&rule, 1, None, START).remaining, 1);
    }
}

#[test]
fn c3_the_limits_that_pass_are_not_drained_by_the_one_that_refuses() {
    for algorithm in ALL {
        let mut oracle = Oracle::new();
        let rule = [Spec::new(algorithm, 1, MINUTE), Spec::new(algorithm, 10, 60 * MINUTE)];
        let allowed = (0..10).filter(|_| oracle.check(&rule, 1, None, START).allowed).count();
        assert_eq!((allowed, oracle.peek(&rule[1..], 1, START).remaining), (1, 9));
    }
}

#[test]
fn c5_c7_a_bucket_admits_its_burst_and_its_rate_over_every_interval() {
    for quota in [3, 2_000, 1_000_000] {
        let spec = Spec { burst: 2, ..Spec::new(TokenBucket, quota, SECOND) };
        let (mut oracle, mut dice, mut now) = (Oracle::new(), Dice(quota), START);
        for _ in 0..300 {
            now += dice.below(2 * SECOND / quota + 1);
            oracle.check(std::slice::from_ref(&spec), 1, None, now);
        }
        assert!(bucket_bound_holds(&oracle.kept(&spec), 2, quota, SECOND));
    }
}

#[test]
fn c7_a_bucket_faster_than_the_clock_neither_leaks_nor_starves() {
    let (mut oracle, rule) = (Oracle::new(), [Spec { burst: 1, ..Spec::new(TokenBucket, 8_000, SECOND) }]);
    let passed = (0..1_000).filter(|tick| oracle.check(&rule, 1, None, START + tick * 125).allowed).count();
    assert_eq!(passed, 1_000);
    assert_eq!(oracle.check(&rule, 1, None, START + 124_999).retry_after, Some(1));
}

#[test]
fn c8_one_a_year_waits_a_year() {
    for algorithm in ALL {
        let (mut oracle, rule) = (Oracle::new(), [Spec::new(algorithm, 1, 365 * DAY)]);
        let start = 365 * DAY * 56;
        assert_eq!(figures(&oracle.check(&rule, 1, None, start)).3, Some(expected_year(algorithm)));
        assert!(oracle.check(&rule, 1, None, start + 1).retry_after > Some(364 * DAY));
    }
}

/// The counter remembers its window through the one after.
fn expected_year(algorithm: Algorithm) -> u64 {
    if algorithm == SlidingWindowCounter { 2 * 365 * DAY } else { 365 * DAY }
}

#[test]
fn c9_3_a_second_with_burst_1_and_a_tenth_a_second_hold() {
    let fast = Spec { burst: 1, ..Spec::new(TokenBucket, 3, SECOND) };
    let mut oracle = Oracle::new();
    assert!(oracle.check(std::slice::from_ref(&fast), 1, None, START).allowed);
    assert_eq!(oracle.check(std::slice::from_ref(&fast), 1, None, START).retry_after, Some(333_334));

    let slow = Spec::new(TokenBucket, 1, 10 * SECOND);
    let mut oracle = Oracle::new();
    let passed = (0..60).map(|second| admitted(&mut oracle, &slow, 1, START + second * SECOND)).sum::<u64>();
    assert_eq!(passed, 6);
}

#[test]
fn c10_a_large_cost_works_and_the_first_call_after_the_window_is_admitted() {
    for algorithm in ALL {
        let (mut oracle, rule) = (Oracle::new(), [Spec::new(algorithm, 10_000, MINUTE)]);
        assert!(oracle.check(&rule, 10_000, None, START).allowed);
        let wait = oracle.check(&rule, 10_000, None, START).retry_after.expect("it passes one day");
        assert!(!oracle.check(&rule, 10_000, None, START + wait - 1).allowed);
        assert!(oracle.check(&rule, 10_000, None, START + wait).allowed);
    }
}

#[test]
fn c11_a_steady_client_below_the_limit_is_never_refused() {
    for algorithm in ALL {
        let spec = Spec::new(algorithm, 10, MINUTE);
        let mut oracle = Oracle::new();
        let passed = (0..200).map(|hit| admitted(&mut oracle, &spec, 1, START + hit * 7 * SECOND)).sum::<u64>();
        assert_eq!(passed, 200, "{algorithm:?}");
    }
}

#[test]
fn w1_w3_waiting_as_told_always_admits_and_a_tick_less_never_does() {
    for algorithm in ALL {
        let (mut oracle, mut dice, rule, mut now) =
            (Oracle::new(), Dice(9), [Spec::new(algorithm, 7, 10 * MILLISECOND)], START);
        for _ in 0..300 {
            now += dice.below(4 * MILLISECOND);
            let cost = 1 + dice.below(7);
            if let Some(wait) = oracle.check(&rule, cost, None, now).retry_after {
                assert!(!oracle.peek(&rule, cost, now + wait - 1).allowed);
                assert!(oracle.peek(&rule, cost, now + wait).allowed);
            }
        }
    }
}

#[test]
fn w2_refused_hits_do_not_prolong_the_wait() {
    for algorithm in [SlidingWindowLog, SlidingWindow] {
        let (mut oracle, spec) = (Oracle::new(), Spec::new(algorithm, 2, MINUTE));
        let polls = |oracle: &mut Oracle, from| {
            (from..from + 120).map(|half| admitted(oracle, &spec, 1, START + half * SECOND / 2)).sum::<u64>()
        };
        assert_eq!(polls(&mut oracle, 0), 2);
        assert_eq!(polls(&mut oracle, 120), 2);
    }
}

#[test]
fn w3_the_wait_for_n_units_is_until_the_nth_oldest_is_gone() {
    let (mut oracle, rule) = (Oracle::new(), [Spec::new(SlidingWindow, 3, MINUTE)]);
    for second in [0, 10, 20] {
        assert!(oracle.check(&rule, 1, None, START + second * SECOND).allowed);
    }
    let wait = |cost| oracle.peek(&rule, cost, START + 20 * SECOND).retry_after;
    assert_eq!([1, 2, 3].map(wait), [40, 50, 60].map(|seconds| Some(seconds * SECOND)));
}

#[test]
fn w4_a_cost_that_can_never_pass_has_no_wait() {
    for algorithm in ALL {
        let verdict = Oracle::new().check(&[Spec::new(algorithm, 5, MINUTE)], 6, None, START);
        assert_eq!(figures(&verdict), (false, 5, None, Some(0)));
    }
}

#[test]
fn log_and_window_decide_alike_and_a_grid_admits_less_than_one_step_later() {
    let (window, precision) = (100, 7);
    let exact = [Spec::new(SlidingWindow, 9, window)];
    let grid = [Spec { precision, ..exact[0].clone() }];
    let log = [Spec::new(SlidingWindowLog, 9, window)];
    let (mut one, mut other, mut coarse, mut dice, mut now) =
        (Oracle::new(), Oracle::new(), Oracle::new(), Dice(3), START);
    for _ in 0..2_000 {
        now = now + dice.below(40) - 5;
        let cost = 1 + dice.below(4);
        let (seen, logged) = (one.check(&exact, cost, None, now), other.check(&log, cost, None, now));
        assert_eq!((figures(&seen), &seen.limits), (figures(&logged), &logged.limits));
        coarse.check(&grid, cost, None, now);
    }
    assert!(no_window_exceeds(&other.kept(&log[0]), window, 9));
    assert!(no_window_exceeds(&coarse.kept(&grid[0]), window, 9));

    for at in 0..20 {
        let (mut fine, mut coarse) = (Oracle::new(), Oracle::new());
        assert!(fine.check(&exact, 9, None, at).allowed && coarse.check(&grid, 9, None, at).allowed);
        let wait = |oracle: &Oracle, rule| oracle.peek(rule, 1, at).retry_after.expect("one dies");
        let later = wait(&coarse, &grid) - wait(&fine, &exact);
        assert!(later < precision);
    }
}

/// The search for a wait relies on it: what passes goes on passing while nobody else comes.
#[test]
fn what_passes_now_passes_at_every_later_tick() {
    for algorithm in ALL {
        let (mut oracle, mut dice, mut now) = (Oracle::new(), Dice(5), 10_000);
        for _ in 0..150 {
            let spec = Spec { burst: 1 + dice.below(6), ..Spec::new(algorithm, 1 + dice.below(6), 50) };
            let (rule, cost) = ([spec], 1 + dice.below(4));
            now = now + dice.below(30) - 7;
            let answers: Vec<bool> = (now..now + 120).map(|tick| oracle.peek(&rule, cost, tick).allowed).collect();
            assert!(answers.is_sorted(), "{algorithm:?}");
            let first = answers.iter().position(|&passes| passes).filter(|&wait| wait > 0);
            let verdict = oracle.check(&rule, cost, None, now);
            if first.is_some() {
                assert_eq!(verdict.retry_after, first.map(|wait| wait as u64));
            }
        }
    }
}

#[test]
fn law_1_holds_while_the_clock_wanders_and_receipts_are_refunded() {
    for algorithm in [SlidingWindowLog, SlidingWindow, TokenBucket] {
        for seed in 0..40 {
            let spec = Spec { burst: 4, ..Spec::new(algorithm, 6, 100) };
            let rule = std::slice::from_ref(&spec);
            let (mut oracle, mut dice, mut now, mut receipts) = (Oracle::new(), Dice(seed), START, Vec::new());
            for _ in 0..150 {
                now = now + dice.below(30) - 4;
                receipts.push(oracle.check(rule, 1 + dice.below(3), None, now).receipt);
                if dice.below(3) == 0 {
                    let any = usize::try_from(dice.below(receipts.len() as u64)).expect("few receipts");
                    oracle.refund(&receipts.swap_remove(any), rule, now);
                    if algorithm == TokenBucket {
                        // Their deficits speak of a charge that is gone now: refunded too, they could mint.
                        receipts.clear();
                    }
                }
            }
            let kept = oracle.kept(&spec);
            match algorithm {
                TokenBucket => assert!(bucket_bound_holds(&kept, 4, 6, 100)),
                _ => assert!(no_window_exceeds(&kept, 100, 6)),
            }
        }
    }
}

#[test]
fn a_refund_leaves_what_would_be_had_the_charge_never_been() {
    for algorithm in ALL {
        let rule = [Spec { burst: 8, ..Spec::new(algorithm, 5, 1_000) }];
        for (before, refunded_after) in [(0, 0), (900, 0), (900, 300), (100, 899), (100, 5_000)] {
            let (mut with, mut without) = (Oracle::new(), Oracle::new());
            for oracle in [&mut with, &mut without] {
                assert!(oracle.check(&rule, 2, None, 500_000).allowed);
            }
            let charged_at = 500_000 + before;
            let verdict = with.check(&rule, 3, None, charged_at);
            let now = charged_at + refunded_after;
            with.refund(&verdict.receipt, &rule, now);
            let later = now + 40;
            assert_eq!(with.peek(&rule, 1, later), without.peek(&rule, 1, later), "{algorithm:?}");
            assert!(!with.refund(&verdict.receipt, &rule, now), "once per receipt");
        }
    }
}

#[test]
fn a_shadow_limit_never_blocks_and_is_charged_when_it_and_the_enforced_pass() {
    let mut oracle = Oracle::new();
    let shadow = Spec { enforce: false, ..Spec::new(SlidingWindow, 1, MINUTE) };
    let rule = [Spec::new(SlidingWindow, 2, 60 * MINUTE), shadow];
    let seen: Vec<_> = (0..3).map(|_| oracle.check(&rule, 1, None, START)).collect();
    assert_eq!([0, 1, 2].map(|call: usize| seen[call].allowed), [true, true, false]);
    assert_eq!([0, 1, 2].map(|call: usize| seen[call].limits[1].allowed), [true, false, false]);
    assert_eq!(seen[1].limits[1].retry_after, Some(MINUTE));

    let alone = oracle.check(&rule[1..], 1, None, START);
    assert_eq!(figures(&alone), (true, 0, None, Some(MINUTE)));
}

#[test]
fn the_binding_limit_is_the_longest_wait_or_the_least_remaining() {
    let rule = [Spec::new(FixedWindow, 2, MINUTE), Spec::new(FixedWindow, 2, DAY), Spec::new(FixedWindow, 9, SECOND)];
    let mut oracle = Oracle::new();
    assert_eq!(oracle.check(&rule, 2, None, START + SECOND / 2).binding, 0);
    let refused = oracle.check(&rule, 1, None, START + SECOND / 2);
    assert_eq!((refused.binding, refused.retry_after), (1, Some(DAY - SECOND / 2)));
    let never = oracle.check(&[rule[1].clone(), Spec::new(FixedWindow, 0, SECOND)], 1, None, START);
    assert_eq!((never.binding, never.retry_after, never.reset_after), (1, None, None));
}

#[test]
fn a_live_id_makes_the_whole_call_a_repeat_and_a_dead_one_is_new() {
    let mut oracle = Oracle::new();
    let rule = [Spec::new(SlidingWindowLog, 3, SECOND), Spec::new(SlidingWindowLog, 3, MINUTE)];
    assert!(!oracle.check(&rule, 2, Some(b"a"), START).repeated);
    let again = oracle.check(&rule, 3, Some(b"a"), START + 2 * SECOND);
    assert_eq!((again.allowed, again.repeated, again.receipt.is_empty()), (true, true, true));
    assert_eq!([again.limits[0].remaining, again.limits[1].remaining], [3, 1]);
    assert!(!oracle.check(&rule, 2, Some(b"a"), START + MINUTE).repeated);
}

#[test]
fn law_7_a_clock_that_steps_back_mints_nothing() {
    for algorithm in ALL {
        let (mut oracle, rule) = (Oracle::new(), [Spec::new(algorithm, 2, MINUTE)]);
        let ahead = START + 365 * DAY;
        assert_eq!(admitted(&mut oracle, &rule[0], 5, START), 2);
        assert_eq!(admitted(&mut oracle, &rule[0], 5, ahead), 2);
        assert_eq!(admitted(&mut oracle, &rule[0], 5, START + 10 * MINUTE), 0);
        oracle.reset(&rule);
        assert_eq!(admitted(&mut oracle, &rule[0], 5, START), 2);
    }
}

#[test]
fn a_count_begins_with_its_first_hit_and_takes_back_only_within_its_window() {
    let mut oracle = Oracle::new();
    let mut count = |n, start, now| oracle.count("api", MINUTE, n, start, now);
    let counted = |total, left, start| Counted { total, time_left: Some(left), start: Some(start) };
    assert_eq!(count(0, None, START), Counted { total: 0, time_left: None, start: None });
    assert_eq!(count(-1, Some(START), START).total, 0);
    assert_eq!(count(3, None, START + SECOND), counted(3, MINUTE, START + SECOND));
    assert_eq!(count(-1, Some(START), START + 2 * SECOND), counted(3, 59 * SECOND, START + SECOND));
    assert_eq!(count(-5, Some(START + SECOND), START + 3 * SECOND), counted(0, 58 * SECOND, START + SECOND));
    assert_eq!(count(1, None, START + 61 * SECOND), counted(1, MINUTE, START + 61 * SECOND));
}
