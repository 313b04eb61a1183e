//! W1 to W5: waiting.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate::{Decision, Limiter, Pending};
use tidegate_tests::limiters::{
    ALGORITHMS, Place, SECOND, Sure, build, drain, for_each_server, for_each_store, micros, timed,
};
use tidegate_tests::servers::eventually;

const SOON: Duration = Duration::from_secs(20);

#[test]
fn w1_a_client_that_waits_whole_seconds_is_always_admitted() {
    for_each_store(|place| {
        for limits in
            ["3/s burst 1", "7/3s", "5/700ms sliding_window_log", "5/s fixed_window", "4/s sliding_window_counter"]
        {
            let limiter = place.limiter(&[("r", limits)]);
            for round in 0..20 {
                let decision = limiter.check("r", limits).sure();
                let Some(wait) = decision.retry_after() else { continue };
                assert!(wait > Duration::ZERO, "{limits}: no wait is nothing");
                // As a Retry-After says it: rounded up, and so never 0.
                place.clock.forward(wait.as_micros().div_ceil(1_000_000) as u64 * SECOND);
                assert!(limiter.check("r", limits).sure().allowed(), "{limits}, round {round}");
            }
        }
    });
}

#[test]
fn w2_refused_hits_are_not_stored() {
    for_each_store(|place| {
        for algorithm in ALGORITHMS {
            let limiter = place.limiter(&[("r", &format!("5/10s {algorithm}"))]);
            assert_eq!(drain(&limiter, "r", algorithm, 9), 5);
            let wait = micros(limiter.check("r", algorithm).sure().retry_after().expect("it passes soon"));
            let since = place.clock.now();
            for part in 1..=50 {
                place.clock.set(since + wait * part / 51);
                assert!(!limiter.check("r", algorithm).sure().allowed(), "{algorithm}");
            }
            place.clock.set(since + wait);
            assert!(limiter.check("r", algorithm).sure().allowed(), "{algorithm}");
        }
    });
}

#[test]
fn w3_the_wait_counts_from_the_hit_whose_end_frees_enough() {
    for_each_store(|place| {
        for limits in ["3/m", "3/m sliding_window_log"] {
            let (limiter, since) = (place.limiter(&[("r", limits)]), place.clock.now());
            for second in [0, 10, 15] {
                place.clock.set(since + second * SECOND);
                assert!(limiter.check("r", limits).sure().allowed());
            }
            place.clock.set(since + 20 * SECOND);
            for (cost, wait) in [(1, 40), (2, 50), (3, 55)] {
                let decision = limiter.check("r", limits).cost(cost).sure();
                assert_eq!(decision.retry_after(), Some(Duration::from_secs(wait)), "{limits}, cost {cost}");
            }
        }
        let limiter = place.limiter(&[("r", "6/m burst 3")]);
        assert_eq!(limiter.check("r", "k").cost(3).sure().remaining(), 0);
        for (cost, wait) in [(1, 10), (2, 20), (3, 30)] {
            assert_eq!(limiter.check("r", "k").cost(cost).sure().retry_after(), Some(Duration::from_secs(wait)));
        }
    });
}

#[test]
fn w4_a_cost_that_can_never_pass_is_told_no_wait() {
    for_each_store(|place| {
        let rates = ALGORITHMS.map(|algorithm| format!("5/m {algorithm}"));
        for limits in rates.into_iter().chain(["50/m burst 5".to_owned(), "100/m; 5/h".to_owned()]) {
            let limiter = place.limiter(&[("r", &limits)]);
            let (decision, peeked) = (limiter.check("r", "k").cost(6).sure(), limiter.peek("r", "k").cost(6).sure());
            assert_eq!((decision.allowed(), decision.retry_after()), (false, None), "{limits}");
            assert_eq!((peeked.allowed(), peeked.retry_after()), (false, None), "{limits}");
            assert!(limiter.check("r", "k").cost(5).sure().allowed(), "{limits}");
            limiter.reset("r", "k").wait().expect("the store works");
        }
    });
}

#[test]
fn w4_an_acquire_that_can_never_succeed_does_not_wait() {
    for_each_store(|place| {
        let limiter = build(place.real_time_builder(), &[("r", "5/m"), ("none", "0/s")]);
        let acquire =
            |rule, cost| timed(|| limiter.acquire(rule, "k").cost(cost).timeout(Duration::from_secs(600)).wait());
        for (decision, took) in [acquire("r", 6), acquire("none", 1)] {
            assert!(!decision.expect("a refusal is no error").allowed());
            assert!(took < Duration::from_secs(60), "{took:?}");
        }
        // Nor does one whose wait is known to be longer than its patience.
        assert_eq!(drain(&limiter, "r", "k", 9), 5);
        let (decision, took) = timed(|| limiter.acquire("r", "k").timeout(Duration::from_secs(30)).wait());
        let decision = decision.expect("a refusal is no error");
        assert!(!decision.allowed() && decision.retry_after().is_some());
        assert!(took < Duration::from_secs(20), "{took:?}");
    });
}

/// Polls once, as an executor does before it is told to cancel.
fn begun(limiter: &Limiter, key: &str) -> Pin<Box<Pending<Decision>>> {
    let mut future = Box::pin(limiter.acquire("r", key).timeout(SOON).into_future());
    let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    future
}

#[test]
fn w5_a_waiter_dropped_while_the_store_is_asked_loses_one_unit_at_most() {
    for_each_server(|place| {
        let limiter = build(place.real_time_builder(), &[("r", "100/h"), ("sound", "1000/h")]);
        limiter.ready(SOON).wait().expect("the servers are up");
        // Each on a key of its own, for those on one key stand in line and only the first would ask.
        for waiter in 0..40 {
            drop(begun(&limiter, &format!("k{waiter}")));
        }
        // The connection is sound: every answer is the one to its own question.
        for hit in 1..=50 {
            assert_eq!(limiter.check("sound", "k").sure().remaining(), 1_000 - hit);
        }
        // A charge whose answer was still under way is given back; one whose answer was dropped unread is lost.
        let lost = || {
            let left = (0..40).map(|waiter| limiter.peek("r", format!("k{waiter}")).sure().remaining());
            left.inspect(|left| assert!(*left >= 99, "{left}")).filter(|left| *left == 99).count() as u64
        };
        eventually(SOON, || lost() + limiter.metrics().late_refunds == 40);
        assert!(limiter.metrics().late_refunds > 0);
    });
}

#[test]
fn w5_a_waiter_dropped_from_the_line_makes_room_for_the_next() {
    for place in [Place::memory(), Place::redis(), Place::cluster()] {
        let limiter = build(place.real_time_builder(), &[("r", "2/500ms")]);
        limiter.ready(SOON).wait().expect("the servers are up");
        assert_eq!(limiter.check("r", "k").cost(2).sure().remaining(), 0);
        drop([(); 5].map(|()| begun(&limiter, "k")));
        let next = limiter.acquire("r", "k").timeout(SOON).wait().expect("the store works");
        assert!(next.allowed(), "those who left have left no one waiting");
        assert!(next.remaining() <= 1);
        place.assert_that_every_key_has_a_ttl();
    }
}

#[test]
fn a_waiter_behind_a_larger_one_is_not_told_that_it_may_pass() {
    for_each_store(|place| {
        let limiter = build(place.real_time_builder(), &[("r", "10/h")]);
        assert_eq!(limiter.check("r", "k").cost(7).sure().remaining(), 3);
        let mut head = Box::pin(limiter.acquire("r", "k").cost(5).timeout(Duration::from_secs(7_200)).into_future());
        let mut context = Context::from_waker(Waker::noop());
        eventually(SOON, || {
            assert!(head.as_mut().poll(&mut context).is_pending());
            let behind =
                limiter.acquire("r", "k").cost(2).timeout(Duration::from_millis(20)).wait().expect("an answer");
            assert!(!behind.allowed() && behind.receipt().is_empty(), "{behind:?}");
            // As soon as the head knows its own wait, those behind it know theirs.
            behind.retry_after().is_some_and(|wait| wait > Duration::from_secs(3_000))
        });
        assert_eq!(limiter.peek("r", "k").sure().remaining(), 3);
        // The head leaves, and what it knew leaves with it.
        drop(head);
        let next = limiter.acquire("r", "k").cost(2).timeout(SOON).wait().expect("an answer");
        assert!(next.allowed() && !next.receipt().is_empty());
        assert_eq!(limiter.peek("r", "k").sure().remaining(), 1);
    });
}

#[test]
fn waiters_are_admitted_in_the_order_in_which_they_came() {
    let limiter = build(Place::memory().real_time_builder(), &[("r", "1/30ms")]);
    assert!(limiter.check("r", "k").sure().allowed());
    let mut waiters: Vec<_> = (0..12).map(|_| Some(begun(&limiter, "k"))).collect();
    let (mut context, mut order) = (Context::from_waker(Waker::noop()), Vec::new());
    eventually(SOON, || {
        // The last first, so that a place in line is the only reason to come first.
        for (number, waiter) in waiters.iter_mut().enumerate().rev() {
            if waiter.as_mut().is_some_and(|future| future.as_mut().poll(&mut context).is_ready()) {
                *waiter = None;
                order.push(number);
            }
        }
        order.len() == 12
    });
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn waiters_are_admitted_one_after_another_and_never_too_many() {
    for_each_store(|place| {
        let limiter = build(place.real_time_builder(), &[("r", "4/300ms")]);
        let charges: Vec<u64> = std::thread::scope(|scope| {
            let wait = || limiter.acquire("r", "k").timeout(SOON).wait().expect("the store works");
            let waiters: Vec<_> = (0..12).map(|_| scope.spawn(wait)).collect();
            let decisions = waiters.into_iter().map(|waiter| waiter.join().expect("no waiter panics"));
            decisions.map(|decision| decision.receipt().charged_at().next().expect("each is admitted")).collect()
        });
        for start in &charges {
            let inside = charges.iter().filter(|charge| (*start..start + 300_000).contains(*charge)).count();
            assert!(inside <= 4, "{charges:?}");
        }
    });
}
