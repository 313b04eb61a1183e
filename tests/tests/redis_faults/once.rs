//! Law 14 and R8: a charge whose outcome is unknown is not sent again, nothing is sent late, and a reply that comes late
//! is made good.

use std::time::Duration;

use tidegate::{Builder, Check, Decision, ErrorKind, Limiter, OnError, Origin, Rule};
use tidegate_tests::limiters::{ALGORITHMS, Place, Sure, build, timed};
use tidegate_tests::servers::{eventually, shared_server};

use super::proxy::{Proxy, Replies};

const SOON: Duration = Duration::from_secs(20);
/// For calls that are not to be answered in time.
const SHORT: Duration = Duration::from_millis(150);

/// A limiter behind a wire, and another one that talks to the same keys directly.
struct Wired {
    proxy: Proxy,
    limiter: Limiter,
    direct: Limiter,
}

impl Wired {
    fn new(limits: &str, on_error: OnError) -> Wired {
        let (place, proxy) = (Place::redis(), Proxy::to(shared_server().port(), Replies::Pass));
        let rules = |builder: Builder| {
            let rule = Rule::parse("r", limits).expect("the rule can be meant").on_error(on_error);
            builder.rules([rule]).deadline(SOON).build().expect("the rules can be meant")
        };
        let limiter = rules(Limiter::builder().url(&proxy.url()).prefix(place.prefix()));
        let wired = Wired { proxy, limiter, direct: rules(place.real_time_builder()) };
        wired.limiter.ready(SOON).wait().expect("the wire is whole");
        // Whatever was under way when it connected is over when the connection of those who wait alone is there too.
        eventually(SOON, || {
            assert!(wired.limiter.peek("r", "k").sure().allowed());
            wired.proxy.has_called_over("tidegate-lane")
        });
        wired
    }

    fn left(&self) -> Vec<u32> {
        self.direct.peek("r", "k").sure().limits().map(|limit| limit.remaining()).collect()
    }

    /// The scripts that one call has sent, and what it was answered.
    fn calls_of<T>(&self, call: impl FnOnce() -> T) -> (usize, T) {
        let before = self.proxy.calls();
        let answer = call();
        let after = self.proxy.calls();
        assert_eq!(after.1, before.1, "the script is known");
        (after.0 - before.0, answer)
    }
}

fn answer(check: Check<'_>) -> Decision {
    check.wait().expect("a store that fails is no error")
}

fn failure(decision: &Decision) -> Option<ErrorKind> {
    decision.failure().map(tidegate::Error::kind)
}

#[test]
fn law_14_a_charge_whose_connection_broke_is_not_sent_again() {
    for algorithm in ALGORITHMS {
        for (on_error, origin) in [(OnError::Allow, Origin::Open), (OnError::Deny, Origin::Closed)] {
            let wired = Wired::new(&format!("9/h {algorithm}"), on_error);
            wired.proxy.set(Replies::CutOnce);
            let (calls, decision) = wired.calls_of(|| answer(wired.limiter.check("r", "k")));
            assert_eq!((decision.origin(), decision.allowed()), (origin, on_error == OnError::Allow), "{algorithm}");
            assert_eq!(failure(&decision), Some(ErrorKind::StoreUnavailable), "{algorithm}");
            assert!(decision.receipt().is_empty());
            assert_eq!((calls, wired.left()), (1, vec![8]), "{algorithm}: it was charged once");
            // The next call has a new connection, and nothing of the first one comes with it.
            eventually(SOON, || answer(wired.limiter.peek("r", "k")).origin() == Origin::Store);
            assert_eq!(wired.limiter.check("r", "k").sure().remaining(), 7, "{algorithm}");
            assert_eq!(wired.limiter.metrics().late_refunds, 0);
        }
    }
}

#[test]
fn law_14_with_a_request_id_on_an_enforced_log_it_is_sent_again() {
    for limits in ["9/h sliding_window_log", "9/h gcra; 9/m sliding_window_log"] {
        let wired = Wired::new(limits, OnError::Deny);
        wired.proxy.set(Replies::CutOnce);
        let (calls, decision) = wired.calls_of(|| wired.limiter.check("r", "k").request_id("order 7").sure());
        assert!(decision.allowed() && decision.is_repeat(), "{limits}: the first time was charged");
        assert_eq!(calls, 2, "{limits}");
        assert!(wired.left().iter().all(|left| *left == 8), "{limits}: {:?}", wired.left());
    }
}

#[test]
fn law_14_a_request_id_that_may_be_dead_by_then_is_not_sent_again() {
    // The window does not outlast the deadline.
    let wired = Wired::new("9/10s sliding_window_log; 9/h", OnError::Deny);
    wired.proxy.set(Replies::CutOnce);
    let (calls, decision) = wired.calls_of(|| answer(wired.limiter.check("r", "k").request_id("order 7")));
    assert_eq!((calls, failure(&decision)), (1, Some(ErrorKind::StoreUnavailable)));
    assert_eq!(wired.left()[1], 8);

    let shadow = Wired::new("9/s sliding_window_log; 9/h sliding_window_log shadow named watch", OnError::Deny);
    shadow.proxy.set(Replies::CutOnce);
    let (calls, _) = shadow.calls_of(|| answer(shadow.limiter.check("r", "k").request_id("order 7")));
    assert_eq!(calls, 1, "a shadow limit's log is no reason");
}

#[test]
fn law_14_a_charge_that_nobody_answers_is_not_sent_again() {
    for (on_error, origin) in [(OnError::Allow, Origin::Open), (OnError::Deny, Origin::Closed)] {
        let wired = Wired::new("9/h", on_error);
        wired.proxy.set(Replies::Swallow);
        let ((calls, decision), took) =
            timed(|| wired.calls_of(|| answer(wired.limiter.check("r", "k").deadline(SHORT))));
        assert_eq!((decision.origin(), failure(&decision)), (origin, Some(ErrorKind::Timeout)));
        assert!(took < 10 * SHORT, "{took:?}");
        assert_eq!((calls, wired.left()), (1, vec![8]));
    }
}

#[test]
fn law_14_a_late_reply_after_a_refusal_is_refunded_once_and_counted() {
    for limits in ALGORITHMS.map(|algorithm| format!("9/h {algorithm}; 7/d {algorithm} named second; 1/d gcra shadow"))
    {
        let wired = Wired::new(&limits, OnError::Deny);
        wired.proxy.set(Replies::Hold);
        let decision = answer(wired.limiter.check("r", "k").deadline(SHORT));
        assert_eq!((decision.allowed(), failure(&decision)), (false, Some(ErrorKind::Timeout)), "{limits}");
        assert_eq!(wired.left(), [8, 6, 0], "{limits}: it was charged, as nobody here knows yet");
        assert_eq!(wired.limiter.metrics().late_refunds, 0);
        wired.proxy.set(Replies::Pass);
        eventually(SOON, || wired.left() == [9, 7, 1]);
        assert_eq!(wired.limiter.metrics().late_refunds, 1, "{limits}");
        // And it stays so: nothing else is given back.
        assert!(wired.limiter.check("r", "k").cost(1).sure().allowed());
        assert_eq!((wired.left(), wired.limiter.metrics().late_refunds), (vec![8, 6, 0], 1), "{limits}");
    }
}

#[test]
fn law_14_a_late_reply_after_an_admission_stands() {
    let wired = Wired::new("9/h", OnError::Allow);
    wired.proxy.set(Replies::Hold);
    assert_eq!(answer(wired.limiter.check("r", "k").deadline(SHORT)).origin(), Origin::Open);
    wired.proxy.set(Replies::Pass);
    // This answer comes behind the late one on the same connection.
    assert_eq!(wired.limiter.check("r", "k").sure().remaining(), 7);
    assert_eq!((wired.left(), wired.limiter.metrics().late_refunds), (vec![7], 0));
}

#[test]
fn law_14_late_refusals_and_peeks_give_nothing_back() {
    let wired = Wired::new("2/h; 9/h named other", OnError::Deny);
    assert_eq!(wired.direct.check("r", "k").cost(2).sure().remaining(), 0);
    wired.proxy.set(Replies::Hold);
    for late in [wired.limiter.check("r", "k"), wired.limiter.peek("r", "k").cost(2), wired.limiter.peek("r", "new")] {
        assert_eq!(failure(&answer(late.deadline(SHORT))), Some(ErrorKind::Timeout));
    }
    wired.proxy.set(Replies::Pass);
    assert!(!wired.limiter.check("r", "k").sure().allowed());
    assert_eq!((wired.left(), wired.limiter.metrics().late_refunds), (vec![0, 7], 0));
}

#[test]
fn r8_a_command_past_its_deadline_is_not_sent() {
    let (place, proxy) = (Place::redis(), Proxy::to(shared_server().port(), Replies::Hold));
    let builder = Limiter::builder().url(&proxy.url()).prefix(place.prefix()).deadline(SHORT);
    let limiter = build(builder, &[("r", "9/h")]);
    // The server takes the connection and says nothing: the calls wait, and give up.
    for _ in 0..3 {
        let (decision, took) = timed(|| answer(limiter.check("r", "k")));
        assert_eq!(decision.origin(), Origin::Open);
        assert!(took < 10 * SHORT, "{took:?}");
    }
    proxy.set(Replies::Pass);
    limiter.ready(SOON).wait().expect("the wire is whole");
    assert_eq!(proxy.calls(), (0, 0), "nothing that had waited was sent");
    assert_eq!(limiter.peek("r", "k").deadline(SOON).sure().remaining(), 9);
}

#[test]
fn r8_a_script_that_turns_out_to_be_unknown_too_late_is_not_sent_again() {
    let (place, server) = (Place::redis(), tidegate_tests::servers::Server::start());
    let proxy = Proxy::to(server.port(), Replies::Pass);
    let builder = Limiter::builder().url(&proxy.url()).prefix(place.prefix()).deadline(SOON);
    let limiter = build(builder, &[("r", "9/h")]);
    limiter.ready(SOON).wait().expect("the wire is whole");
    assert!(limiter.peek("r", "k").sure().allowed());
    server.call::<()>("SCRIPT FLUSH");
    proxy.set(Replies::Hold);
    assert_eq!(answer(limiter.check("r", "k").deadline(SHORT)).origin(), Origin::Open);
    proxy.set(Replies::Pass);
    // The late NOSCRIPT has been read when this is answered, since it came first; and this one is sent again.
    assert!(limiter.check("r", "other").sure().allowed());
    assert_eq!(limiter.peek("r", "k").sure().remaining(), 9);
    assert_eq!(proxy.calls().1, 1, "only the call that was in time was sent with the script's text");
}

#[test]
fn law_14_a_refund_is_never_sent_again() {
    for limits in ["9/h", "9/h sliding_window_log", "9/h gcra"] {
        let wired = Wired::new(limits, OnError::Allow);
        assert!(wired.limiter.check("r", "k").cost(4).sure().allowed());
        let receipt = wired.limiter.check("r", "k").cost(2).sure().receipt();
        wired.proxy.set(Replies::CutOnce);
        let (calls, outcome) = wired.calls_of(|| wired.limiter.refund(&receipt).wait());
        assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::StoreUnavailable), "{limits}");
        assert_eq!((calls, wired.left()), (1, vec![5]), "{limits}");
        assert!(wired.proxy.is(Replies::Pass));
        let again = wired.limiter.refund(&receipt).wait().map_err(|error| error.kind());
        assert_eq!((again, wired.left()), (Err(ErrorKind::InvalidReceipt), vec![5]), "{limits}: it is spent");
    }
}

#[test]
fn law_14_a_count_is_never_sent_again() {
    let wired = Wired::new("9/h", OnError::Allow);
    let minute = Duration::from_secs(3_600);
    wired.proxy.set(Replies::CutOnce);
    let (calls, outcome) = wired.calls_of(|| wired.limiter.count("r", "k", minute).add(3).wait());
    assert_eq!((calls, outcome.map_err(|error| error.kind())), (1, Err(ErrorKind::StoreUnavailable)));
    assert_eq!(wired.direct.count("r", "k", minute).add(0).wait().expect("the store works").total, 3);
}

#[test]
fn law_14_a_late_charge_under_an_id_stands_for_the_same_request_sent_again() {
    let wired = Wired::new("1/h sliding_window_log", OnError::Deny);
    wired.proxy.set(Replies::Hold);
    let decision = answer(wired.limiter.check("r", "k").request_id("one").deadline(SHORT));
    assert_eq!((decision.allowed(), failure(&decision)), (false, Some(ErrorKind::Timeout)));
    let again = wired.direct.check("r", "k").request_id("one").sure();
    assert!(again.allowed() && again.is_repeat(), "it was charged, and is the same request");
    wired.proxy.set(Replies::Pass);
    // This answer comes behind the late one on the same connection.
    assert!(!wired.limiter.check("r", "k").request_id("two").sure().allowed(), "one was admitted, of one");
    assert_eq!((wired.left(), wired.limiter.metrics().late_refunds), (vec![0], 0));
}

#[test]
fn r6_a_server_that_is_always_too_slow_is_left_alone() {
    let wired = Wired::new("9/h", OnError::Deny);
    for late in 1..=5 {
        wired.proxy.set(Replies::Hold);
        assert_eq!(failure(&answer(wired.limiter.check("r", "k").deadline(SHORT))), Some(ErrorKind::Timeout));
        wired.proxy.set(Replies::Pass);
        eventually(SOON, || wired.limiter.metrics().late_refunds == late);
    }
    assert_eq!(wired.limiter.metrics().nodes[0].opened, 1, "what came too late did not make it well");
}
