//! Laws 6 and 11: all or nothing, and state that is not ours.

use std::time::Duration;

use tidegate::{Decision, ErrorKind, Limiter, OnError, Origin, Rule};
use tidegate_tests::limiters::{ALGORITHMS, Place, SECOND, START, Sure, build, drain, for_each_server, for_each_store};

#[test]
fn law_06_a_refusal_by_one_limit_leaves_the_others_alone() {
    for_each_store(|place| {
        for full in ALGORITHMS {
            for open in ALGORITHMS {
                let (first, second) = (format!("2/h {full}"), format!("9/h {open} named open"));
                for limits in [format!("{first}; {second}"), format!("{second}; {first}")] {
                    let (limiter, key) = (place.limiter(&[("r", &limits)]), limits.as_str());
                    assert_eq!(drain(&limiter, "r", key, 9), 2, "{limits}");
                    let decision = limiter.peek("r", key).sure();
                    let open = decision.limits().find(|limit| limit.name() == Some("open")).expect("it has two");
                    assert_eq!(open.remaining(), 7, "{limits}");
                }
            }
        }
    });
}

#[test]
fn law_06_rules_on_one_key_are_charged_together_or_not_at_all() {
    for_each_store(|place| {
        let limiter = place.limiter(&[("a", "3/m"), ("b", "5/m burst 5"), ("c", "1/m sliding_window_log; 9/h")]);
        let left = |rule| limiter.peek(rule, "k").sure().remaining();
        assert!(limiter.check_all(["a", "b", "c"], "k").sure().allowed());
        assert_eq!([left("a"), left("b"), left("c")], [2, 4, 0]);
        for rules in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
            let refused = limiter.check_all(rules, "k").sure();
            assert_eq!((refused.allowed(), refused.binding().rule()), (false, "c"));
        }
        assert_eq!([left("a"), left("b"), left("c")], [2, 4, 0]);
        assert!(limiter.check_all(["b", "a"], "k").cost(2).sure().allowed());
        assert_eq!([left("a"), left("b"), left("c")], [0, 2, 0]);
        assert_eq!(limiter.peek("a", "other").sure().remaining(), 3);
    });
}

#[test]
fn law_06_many_limits_of_every_kind_are_one_decision() {
    let texts: Vec<String> =
        (0..32).map(|index| format!("{}/{}m {}", 10 + index, 1 + index, ALGORITHMS[index % 5])).collect();
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", &texts.join("; "))]);
        assert_eq!(drain(&limiter, "r", "k", 40), 10);
        let decision = limiter.peek("r", "k").sure();
        let left: Vec<u32> = decision.limits().map(|limit| limit.remaining()).collect();
        assert_eq!(left, (0..32).collect::<Vec<_>>());
    });
}

#[test]
fn law_06_a_shadow_limit_is_charged_exactly_when_all_that_block_pass() {
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", "3/h; 2/h shadow named watch; 9/h shadow named wide")]);
        assert_eq!(drain(&limiter, "r", "k", 9), 3);
        let refused = limiter.check("r", "k").sure();
        let left: Vec<u32> = refused.limits().map(|limit| limit.remaining()).collect();
        assert_eq!(left, [0, 0, 6]);
        let reported: Vec<bool> = refused.limits().map(|limit| limit.allowed()).collect();
        assert_eq!(reported, [false, false, true]);
    });
}

/// Something that is not ours under the key of a rule's limit.
type Spoiler = (&'static str, fn(&Place, &[u8]));

const SPOILERS: [Spoiler; 8] = [
    ("a hash", |place, key| place.command("HSET", key, &[b"field", b"value"])),
    ("a short text", |place, key| place.command("SET", key, &[b"7"])),
    ("a long text", |place, key| place.command("SET", key, &[&[b'x'; 40]])),
    ("no bytes", |place, key| place.command("SET", key, &[b""])),
    ("a set", |place, key| place.command("SADD", key, &[b"member"])),
    ("a list of others", |place, key| place.command("RPUSH", key, &[b"garbage", b"garbage"])),
    ("a list that ends badly", |place, key| place.command("RPUSH", key, &[b"\x01\x02\x03\x04\x05\x06\0\0\0", b"?"])),
    ("a sorted set of no times", |place, key| place.command("ZADD", key, &[b"inf", b"member"])),
];

/// Bytes of the length of ours that no release wrote: times far beyond any clock's.
const WRONG_TIMES: [Spoiler; 4] = [
    ("10 bytes", |place, key| place.command("SET", key, &[&[0xff; 10]])),
    ("13 bytes", |place, key| place.command("SET", key, &[&[0xff; 13]])),
    ("19 bytes", |place, key| place.command("SET", key, &[&[0xff; 19]])),
    ("a list of 10 bytes", |place, key| place.command("RPUSH", key, &[&[0xff; 10]])),
];

fn is_corrupt(decision: &Decision) -> bool {
    decision.failure().is_some_and(|failure| failure.kind() == ErrorKind::CorruptState)
}

fn limiter(place: &Place, limits: &str, on_error: OnError) -> Limiter {
    let rule = Rule::parse("r", limits).expect("the rule can be meant").on_error(on_error);
    place.builder().rules([rule]).build().expect("the rules can be meant")
}

fn spoil(place: &Place, key: &str, (_, spoiler): Spoiler) {
    place.command::<()>("DEL", key.as_bytes(), &[]);
    spoiler(place, key.as_bytes());
    place.command::<()>("PEXPIRE", key.as_bytes(), &[b"600000"]);
}

/// Of each algorithm, what follows the subject in its stored key.
fn stored_key(place: &Place, algorithm: &str) -> String {
    place.key("k", &format!("r:{algorithm}:60000"))
}

#[test]
fn law_11_state_that_is_not_ours_follows_the_failure_policy() {
    for_each_server(|place| {
        for algorithm in ALGORITHMS {
            let limits = format!("5/m {algorithm}");
            let [allow, deny] = [OnError::Allow, OnError::Deny].map(|policy| limiter(place, &limits, policy));
            for spoiler in SPOILERS {
                // A set is the log's own type, and a list the window's: what is theirs by form is judged by content.
                let key = stored_key(place, algorithm);
                spoil(place, &key, spoiler);
                let before = place.stored();
                let (open, closed) = (allow.check("r", "k").wait(), deny.check("r", "k").wait());
                let (open, closed) = (open.expect("no error"), closed.expect("no error"));
                let about = format!("{} under {algorithm}: {:?}", spoiler.0, open.failure());
                assert!(is_corrupt(&open) && is_corrupt(&closed), "{about}");
                assert_eq!((open.allowed(), open.origin()), (true, Origin::Open), "{about}");
                assert_eq!((closed.allowed(), closed.origin()), (false, Origin::Closed), "{about}");
                assert_eq!((closed.remaining(), closed.retry_after(), closed.reset_after()), (0, None, None));
                assert!(is_corrupt(&deny.peek("r", "k").wait().expect("no error")), "{about}");
                assert_eq!(place.stored(), before, "{about}");
                let text = format!("{:?}", open.failure());
                assert!(text.contains(algorithm) && text.contains("reset"), "the error says what to do: {text}");

                deny.reset("r", "k").wait().expect("reset cures");
                assert_eq!(deny.check("r", "k").sure().remaining(), 4, "{about}");
            }
        }
    });
}

#[test]
fn law_11_times_that_no_clock_has_are_corrupt_too() {
    for_each_server(|place| {
        let mut missed = Vec::new();
        for (algorithm, spoiler) in [
            ("fixed_window", WRONG_TIMES[0]),
            ("sliding_window_counter", WRONG_TIMES[1]),
            ("token_bucket", WRONG_TIMES[2]),
            ("sliding_window", WRONG_TIMES[3]),
        ] {
            let limiter = limiter(place, &format!("5/m {algorithm}"), OnError::Deny);
            spoil(place, &stored_key(place, algorithm), spoiler);
            let decision = limiter.check("r", "k").wait().expect("no error");
            if !is_corrupt(&decision) {
                missed.push(format!("{algorithm}: {:?}", decision.failure()));
            }
        }
        assert!(missed.is_empty(), "{missed:#?}");
    });
}

#[test]
fn law_11_a_bucket_too_large_for_plain_numbers_judges_its_time_as_well() {
    for_each_server(|place| {
        let limiter = limiter(place, "10000000/366d token_bucket", OnError::Deny);
        let key = place.key("k", "r:token_bucket:31622400000");
        // A time beyond 2^52, and amounts that could be meant.
        let foul = *b"\xf1\xe9\x36\x97\x50\x6b\x12\x52\xad\xc9\x06\xad\x9a\x58\x04\x3a\xf5\x00\x72";
        place.command::<()>("SET", key.as_bytes(), &[&foul, b"PX", b"600000"]);
        let before = place.stored();
        assert!(is_corrupt(&limiter.check("r", "k").wait().expect("no error")));
        assert_eq!(place.stored(), before);
    });
}

#[test]
fn law_11_a_bucket_with_more_parts_than_a_unit_has_is_corrupt() {
    for_each_server(|place| {
        let limiter = limiter(place, "5/m token_bucket", OnError::Deny);
        let key = stored_key(place, "token_bucket");
        // Time, units, window-ths of a unit (one too many), rate.
        let value = |parts: u64| {
            let time = &START.to_be_bytes()[1..];
            [time, &[0; 3], &parts.to_be_bytes()[2..], &[0, 0, 5]].concat()
        };
        place.command::<()>("SET", key.as_bytes(), &[&value(60_000_000), b"PX", b"600000"]);
        assert!(is_corrupt(&limiter.check("r", "k").wait().expect("no error")));
        place.command::<()>("SET", key.as_bytes(), &[&value(59_999_999), b"PX", b"600000"]);
        assert_eq!(limiter.check("r", "k").sure().remaining(), 3);
    });
}

#[test]
fn law_11_a_count_of_no_time_is_corrupt() {
    for_each_server(|place| {
        let limiter = limiter(place, "5/m", OnError::Deny);
        let key = place.key("k", "r:count:60000");
        place.command::<()>("SET", key.as_bytes(), &[&[0xff; 14], b"PX", b"600000"]);
        let before = place.stored();
        let error = limiter.count("r", "k", Duration::from_secs(60)).add(1).wait().expect_err("it is not ours");
        assert_eq!(error.kind(), ErrorKind::CorruptState);
        assert_eq!(place.stored(), before);
    });
}

#[test]
fn law_11_a_log_with_a_broken_entry_among_good_ones_is_corrupt() {
    for_each_server(|place| {
        let limiter = limiter(place, "3/m sliding_window_log", OnError::Deny);
        let key = stored_key(place, "sliding_window_log");
        let half = b"1893456000000000.5";
        place.clock.set(START + SECOND);
        place.command::<()>("ZADD", key.as_bytes(), &[half, b"member"]);
        place.command::<()>("PEXPIRE", key.as_bytes(), &[b"600000"]);
        let decisions: Vec<Decision> = (0..3).map(|_| limiter.check("r", "k").wait().expect("no error")).collect();
        let wrong = decisions.iter().find(|decision| !decision.allowed() && !is_corrupt(decision));
        assert!(wrong.is_none(), "{:?}", wrong.and_then(Decision::failure));
        // At the latest when its time is asked for: whoever is refused is told when the oldest dies.
        assert!(is_corrupt(&decisions[2]), "{:?}", decisions[2].failure());
    });
}

#[test]
fn law_11_nothing_is_written_when_one_key_of_a_call_is_corrupt() {
    for_each_server(|place| {
        for broken in ALGORITHMS {
            let limits = ALGORITHMS.map(|algorithm| format!("5/m {algorithm}")).join("; ");
            let limiter = limiter(place, &limits, OnError::Deny);
            for (touched, key) in [(false, "fresh"), (true, "used")] {
                if touched {
                    assert!(limiter.check("r", key).sure().allowed());
                }
                spoil(place, &place.key(key, &format!("r:{broken}:60000")), SPOILERS[0]);
                let before = place.stored();
                assert!(is_corrupt(&limiter.check("r", key).wait().expect("no error")), "{broken}");
                assert_eq!(place.stored(), before, "{broken}");
                limiter.reset("r", key).wait().expect("reset cures");
                assert!(limiter.check("r", key).sure().allowed(), "{broken}");
                limiter.reset("r", key).wait().expect("the store works");
            }
        }
    });
}

#[test]
fn law_11_refund_and_count_say_that_state_is_corrupt() {
    for_each_server(|place| {
        for algorithm in ALGORITHMS {
            let limiter = limiter(place, &format!("5/m {algorithm}"), OnError::Allow);
            let receipt = limiter.check("r", "k").sure().receipt();
            spoil(place, &stored_key(place, algorithm), SPOILERS[0]);
            let error = limiter.refund(&receipt).wait().expect_err("a hash is not ours");
            assert_eq!(error.kind(), ErrorKind::CorruptState, "{algorithm}");
            limiter.reset("r", "k").wait().expect("the store works");
        }
        let limiter = limiter(place, "5/m", OnError::Allow);
        spoil(place, &stored_key(place, "count"), SPOILERS[0]);
        let count = || limiter.count("r", "k", std::time::Duration::from_secs(60)).add(1).wait();
        assert_eq!(count().expect_err("a hash is not ours").kind(), ErrorKind::CorruptState);
        limiter.reset("r", "k").wait().expect("reset cures counts too");
        assert_eq!(count().expect("the store works").total, 1);
    });
}

#[test]
fn law_11_a_call_that_would_touch_one_key_twice_is_refused_at_the_door() {
    for_each_store(|place| {
        let limiter = build(place.builder(), &[("a", "5/m"), ("b", "5/m")]);
        let error = limiter.check_all(["a", "b", "a"], "k").wait().expect_err("it names a twice");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert_eq!(limiter.check_all(["a", "b"], "k").sure().remaining(), 4);
    });
}

#[test]
fn reset_forgets_limits_and_counts_and_nothing_of_others() {
    let minute = std::time::Duration::from_secs(60);
    for_each_store(|place| {
        let limits = ALGORITHMS.map(|algorithm| format!("5/m {algorithm}")).join("; ");
        let limiter = place.limiter(&[("r", &limits), ("other", "5/m")]);
        for key in ["k", "neighbour"] {
            assert!(limiter.check_all(["r", "other"], key).cost(5).sure().allowed());
            assert_eq!(limiter.count("r", key, minute).add(3).wait().expect("the store works").total, 3);
        }
        limiter.reset("r", "k").wait().expect("the store works");
        assert_eq!(limiter.count("r", "k", minute).add(0).wait().expect("the store works").total, 0);
        assert_eq!(limiter.peek("r", "k").sure().remaining(), 5);
        assert_eq!(limiter.peek("other", "k").sure().remaining(), 0);
        assert_eq!(limiter.peek("r", "neighbour").sure().remaining(), 0);
        assert_eq!(limiter.count("r", "neighbour", minute).add(0).wait().expect("the store works").total, 3);
    });
}

#[test]
fn reset_forgets_the_counts_of_a_rule_whose_limits_have_names() {
    let minute = std::time::Duration::from_secs(60);
    for_each_store(|place| {
        let limiter = place.limiter(&[("r", "5/m named steady")]);
        let count = |units| limiter.count("r", "k", minute).add(units).wait().expect("the store works").total;
        assert_eq!(count(3), 3);
        limiter.reset("r", "k").wait().expect("the store works");
        assert_eq!(count(0), 0);
    });
}
