//! R2, R3, R4 and R10: where keys live, and for how long.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::Limiter;
use tidegate_tests::limiters::{ALGORITHMS, Place, Random, Sure, build, drain, for_each_server};
use tidegate_tests::servers::{Server, eventually, slot};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn r2_a_thousand_keys_on_all_masters_each_rule_set_in_one_slot() {
    let place = Place::cluster();
    let rules =
        [("a", "7/h; 9/m gcra; 9/h sliding_window_log"), ("b", "8/h fixed_window; 20/d sliding_window_counter")];
    let limiter = place.limiter(&rules);
    let mut random = Random::new(2);
    let subjects: Vec<String> = (0..1_000).map(|_| format!("{{user}}:{:x}", random.below(1 << 60))).collect();
    for subject in &subjects {
        let decision = limiter.check_all(["a", "b"], subject).sure();
        assert_eq!((decision.allowed(), decision.remaining()), (true, 6));
    }
    for subject in &subjects {
        assert_eq!(limiter.peek("b", subject).sure().remaining(), 7);
    }
    let mut slots: BTreeMap<String, Vec<u16>> = BTreeMap::new();
    for key in place.stored_keys() {
        let subject = key.split_once('}').expect("the subject is in braces").0.to_owned();
        slots.entry(subject).or_default().push(slot(key.as_bytes()));
    }
    assert_eq!(slots.len(), 1_000);
    assert!(slots.values().all(|slots| slots.len() == 5 && slots.iter().all(|slot| *slot == slots[0])));
    place.assert_that_every_key_has_a_ttl();
}

#[test]
fn r3_keys_spread_over_the_shards() {
    let place = Place::cluster();
    let limiter = place.limiter(&[("r", "5/h")]);
    for user in 0..600 {
        assert!(limiter.check("r", format!("user-{user}")).sure().allowed());
    }
    for master in place.servers() {
        let keys: Vec<String> = master.call(&format!("KEYS {}:*", place.prefix()));
        assert!((100..=300).contains(&keys.len()), "{} of 600 are on one of three masters", keys.len());
    }
}

#[test]
fn r4_windows_of_half_a_second_have_a_ttl_and_nobody_is_banned_for_ever() {
    for_each_server(|place| {
        for algorithm in ALGORITHMS {
            let limiter = build(place.real_time_builder(), &[("r", &format!("3/500ms {algorithm}"))]);
            assert!(drain(&limiter, "r", algorithm, 30) >= 3);
            let stored = place.stored();
            assert!(stored.iter().all(|(_, _, end)| *end > 0), "{algorithm}: {stored:?}");
            eventually(SOON, || limiter.check("r", algorithm).sure().allowed());
        }
    });
}

#[test]
fn r10_the_database_is_empty_again_when_all_windows_are_over() {
    let server = Server::start();
    let rules = ALGORITHMS.map(|algorithm| format!("5/300ms {algorithm}")).join("; ");
    let builder = Limiter::builder().url(&server.url()).deadline(SOON);
    let limiter = build(builder, &[("r", &rules), ("bucket", "20/s burst 10"), ("precise", "5/300ms precision 50ms")]);
    for user in 0..100 {
        let user = format!("user {user}");
        assert!(limiter.check_all(["r", "bucket", "precise"], &user).sure().allowed());
        assert_eq!(limiter.count("r", &user, Duration::from_millis(300)).add(1).wait().expect("it counts").total, 1);
    }
    assert!(server.call::<u64>("DBSIZE") > 0);
    eventually(SOON, || server.call::<u64>("DBSIZE") == 0);
}
