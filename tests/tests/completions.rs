//! The completion queue, for event loops of other languages: every ticket comes once with the right answer, and what
//! nobody is left to take is given back (law 14).

use std::collections::BTreeMap;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::mpsc::{self, Receiver};
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate::{Begun, Completed, Completions, Decision, Limiter, Origin, Outcome};
use tidegate_tests::limiters::{Sure, build, for_each_server, for_each_store, timed};
use tidegate_tests::servers::{Server, eventually};

const PATIENCE: Duration = Duration::from_secs(20);
const CALLS: u64 = 10_000;

fn queue() -> (Completions, Receiver<()>) {
    let (waker, woken) = mpsc::channel();
    let wake = move || {
        let _ = waker.send(());
    };
    (Completions::new(wake), woken)
}

/// Everything that is under way, each ticket once.
fn all(queue: &Completions, woken: &Receiver<()>) -> BTreeMap<u64, tidegate::Result<Outcome>> {
    let (mut all, mut completed) = (BTreeMap::new(), Vec::new());
    while queue.pending() > 0 {
        woken.recv_timeout(PATIENCE).expect("it wakes");
        queue.drain(&mut completed);
        for Completed { ticket, result, .. } in completed.drain(..) {
            assert!(all.insert(ticket, result).is_none(), "ticket {ticket} comes twice");
        }
    }
    all
}

fn decided(result: &tidegate::Result<Outcome>) -> &Decision {
    match result {
        Ok(Outcome::Decision(decision)) => {
            assert!(matches!(decision.origin(), Origin::Store | Origin::DenyCache), "{:?}", decision.failure());
            decision
        }
        other => panic!("it was a check: {other:?}"),
    }
}

#[test]
fn ten_thousand_checks_come_back_once_each_and_exactly_the_limit_is_admitted() {
    for_each_store(|place| {
        let limiter = build(place.real_time_builder(), &[("r", "77/365d"), ("other", "10000/365d")]);
        limiter.ready(PATIENCE).wait().expect("the servers are up");
        let (queue, woken) = queue();
        let (mut at_once, mut later) = (BTreeMap::new(), 0);
        for ticket in 0..CALLS {
            // Half of them on one key, half on many.
            let (rule, key) = if ticket % 2 == 0 { ("r", "k".into()) } else { ("other", format!("user {ticket}")) };
            match limiter.check(rule, key).submit(&queue, ticket).expect("the call can be meant") {
                Some(decision) => drop(at_once.insert(ticket, Ok(Outcome::Decision(decision)))),
                None => later += 1,
            }
        }
        let mut came = all(&queue, &woken);
        assert_eq!(came.len(), later, "what was answered at once does not come again");
        assert!(!place.is_memory() || later == 0, "memory answers at once");
        came.append(&mut at_once);
        assert!(came.keys().copied().eq(0..CALLS), "each once");
        let (hot, many): (Vec<_>, Vec<_>) = came.iter().partition(|(ticket, _)| *ticket % 2 == 0);
        assert_eq!(hot.iter().filter(|(_, result)| decided(result).allowed()).count(), 77);
        for (ticket, result) in many {
            assert_eq!((decided(result).allowed(), decided(result).remaining()), (true, 9_999), "{ticket}");
        }
        let counted: u64 = limiter.metrics().decisions.iter().map(|row| row.count).sum();
        assert_eq!(counted, CALLS, "and counted once each");
    });
}

#[test]
fn the_other_calls_come_too() {
    for_each_store(|place| {
        let limiter = build(place.real_time_builder(), &[("r", "5/365d sliding_window_log")]);
        let (queue, woken) = queue();
        let receipt = limiter.check("r", "k").sure().receipt();
        limiter.refund(&receipt).submit(&queue, 1).expect("the I/O thread runs");
        limiter.refund(&receipt).submit(&queue, 2).expect("the I/O thread runs");
        limiter.acquire("r", "k").cost(2).submit(&queue, 3).expect("the call can be meant");
        limiter.count("r", "k", Duration::from_secs(3_600)).add(7).submit(&queue, 4).expect("the I/O thread runs");
        let came = all(&queue, &woken);
        let refunds = [&came[&1], &came[&2]].map(|result| match result {
            Ok(Outcome::Refunded(refunded)) => Ok(*refunded),
            Err(error) => Err(error.code()),
            other => panic!("it was a refund: {other:?}"),
        });
        assert!(refunds.contains(&Ok(true)) && refunds.contains(&Err("invalid_receipt")), "{refunds:?}");
        assert!(decided(&came[&3]).allowed() && decided(&came[&3]).remaining() <= 3);
        assert!(matches!(&came[&4], Ok(Outcome::Counted(counted)) if counted.total == 7));

        limiter.log("r", "k").submit(&queue, 5).expect("the I/O thread runs");
        let came = all(&queue, &woken);
        assert!(
            matches!(&came[&5], Ok(Outcome::Log(entries)) if entries.iter().map(|one| one.units).sum::<u32>() == 2)
        );
        limiter.reset("r", "k").submit(&queue, 6).expect("the I/O thread runs");
        assert!(matches!(all(&queue, &woken)[&6], Ok(Outcome::Done)));
        assert_eq!(limiter.peek("r", "k").sure().remaining(), 5);
    });
}

#[test]
fn a_call_that_cannot_be_meant_is_an_error_at_once_and_takes_no_ticket() {
    let limiter = build(Limiter::builder(), &[("r", "5/m")]);
    let (queue, _woken) = queue();
    assert!(limiter.check("r", "k").cost(0).submit(&queue, 1).is_err());
    assert!(limiter.acquire("unknown", "k").submit(&queue, 2).is_err());
    assert_eq!(queue.pending(), 0);
}

#[test]
fn a_server_that_is_silent_is_answered_for_by_the_deadline() {
    let server = Server::start();
    let builder = Limiter::builder().url(&server.url()).deadline(Duration::from_millis(200));
    let limiter = build(builder, &[("r", "5/m")]);
    limiter.ready(PATIENCE).wait().expect("the server is up");
    let (queue, woken) = queue();
    server.pause();
    assert!(limiter.check("r", "k").submit(&queue, 1).expect("the call can be meant").is_none());
    let (came, took) = timed(|| all(&queue, &woken));
    server.resume();
    assert!(matches!(&came[&1], Ok(Outcome::Decision(decision)) if decision.origin() == Origin::Open));
    assert!(took < PATIENCE / 2, "{took:?}");
}

#[test]
fn law_14_what_a_dropped_queue_would_have_been_told_is_given_back() {
    for_each_server(|place| {
        let limiter = build(place.real_time_builder(), &[("r", "500/365d")]);
        limiter.ready(PATIENCE).wait().expect("the servers are up");
        let (queue, woken) = queue();
        let clone = queue.clone();
        let pause = |server: &Server| server.call::<()>("CLIENT PAUSE 20000 WRITE");
        place.servers().into_iter().for_each(pause);
        for ticket in 0..100 {
            assert!(limiter.check("r", "k").submit(&queue, ticket).expect("the call can be meant").is_none());
        }
        limiter.acquire("r", "k").submit(&queue, 100).expect("the call can be meant");
        drop(queue);
        assert_eq!(clone.pending(), 101, "a clone keeps the queue");
        drop(clone);
        place.servers().into_iter().for_each(|server| server.call::<()>("CLIENT UNPAUSE"));
        eventually(PATIENCE, || {
            limiter.metrics().late_refunds == 101 && limiter.peek("r", "k").sure().remaining() == 500
        });
        assert!(woken.try_recv().is_err(), "nobody was woken");
    });
}

#[test]
fn an_acquire_that_is_called_off_leaves_the_line() {
    for_each_store(|place| {
        let limiter = build(place.real_time_builder(), &[("r", "1/365d")]);
        let (queue, woken) = queue();
        let receipt = limiter.check("r", "k").sure().receipt();
        let year = Duration::from_secs(366 * 86_400);
        let head = limiter.acquire("r", "k").timeout(year).submit(&queue, 1).expect("the call can be meant");
        let next = limiter.acquire("r", "k").timeout(year).submit(&queue, 2).expect("the call can be meant");
        head.call_off();
        next.call_off();
        let came = all(&queue, &woken);
        assert!(came.values().all(|result| result.as_ref().is_err_and(|error| error.code() == "store_unavailable")));
        // The line is empty: whoever comes now is its head, and nothing was charged.
        assert!(limiter.refund(&receipt).wait().expect("the store answers"));
        eventually(PATIENCE, || limiter.peek("r", "k").sure().remaining() == 1);
        assert!(limiter.acquire("r", "k").timeout(PATIENCE).wait().expect("the call can be meant").allowed());
        // What has ended cannot be called off.
        head.call_off();
    });
}

#[test]
fn a_check_that_is_begun_is_decided_at_once_or_waited_for_in_slices() {
    for_each_store(|place| {
        let limiter = build(place.real_time_builder(), &[("r", "1/365d")]);
        let decide = || match limiter.check("r", "k").begin().expect("the call can be meant") {
            Begun::Decided(decision) => (true, decision),
            Begun::Pending(mut pending) => loop {
                if let Some(decision) = pending.wait_for(Duration::from_millis(1)) {
                    break (false, decision.expect("the call can be meant"));
                }
            },
        };
        let [(first, admitted), (second, refused), (third, again)] = [decide(), decide(), decide()];
        assert_eq!([first, second, third], [place.is_memory(), place.is_memory(), true], "what is known needs no wait");
        assert_eq!([admitted.allowed(), refused.allowed(), again.allowed()], [true, false, false]);
        assert_eq!(limiter.check("nobody", "k").begin().err().map(|error| error.code()), Some("unknown_rule"));
        let counted: u64 = limiter.metrics().decisions.iter().map(|row| row.count).sum();
        assert_eq!(counted, 3, "each once");
    });
}

#[test]
fn a_check_that_nobody_waits_for_any_more_is_given_back() {
    let server = Server::start();
    let limiter = Limiter::builder().rule("r", "1/365d").url(&server.url()).deadline(PATIENCE).build().expect("it can");
    limiter.ready(PATIENCE).wait().expect("the server is up");
    server.pause();
    let begun = limiter.check("r", "k").begin().expect("the call can be meant");
    let Begun::Pending(mut pending) = begun else { panic!("a server was to be asked") };
    assert!(pending.wait_for(Duration::from_millis(20)).is_none());
    drop(pending);
    server.resume();
    eventually(PATIENCE, || limiter.metrics().late_refunds == 1);
    eventually(PATIENCE, || limiter.peek("r", "k").sure().remaining() == 1);
}

#[test]
fn an_answer_that_has_come_and_is_not_looked_at_any_more_is_given_back() {
    for_each_server(|place| {
        let limiter = build(place.real_time_builder(), &[("r", "1/365d")]);
        let begun = limiter.check("r", "k").begin().expect("the call can be meant");
        let Begun::Pending(mut pending) = begun else { panic!("a server was to be asked") };
        assert!(Pin::new(&mut pending).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        // Answers come in the order in which their calls set out.
        eventually(PATIENCE, || limiter.peek("r", "k").sure().remaining() == 0);
        drop(pending);
        eventually(PATIENCE, || limiter.peek("r", "k").sure().remaining() == 1);
    });
}
