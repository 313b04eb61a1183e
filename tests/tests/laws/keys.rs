//! Law 10: stored keys are an interface. The vectors freeze their forms; here is what follows from them.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate::{Document, ErrorKind, Key, Limiter, Origin};
use tidegate_tests::limiters::{ALGORITHMS, Sure, build, drain, for_each_server, for_each_store};
use tidegate_tests::servers::{Server, slot};

/// Subjects that somebody chooses in order to be somebody else, or to break something.
fn odd_subjects() -> Vec<Vec<u8>> {
    let mut subjects: Vec<Vec<u8>> = [
        "a",
        "a,b",
        "a:b",
        "a/b",
        "{a}",
        "}a{",
        "{}",
        "a}:r:sliding_window:60000",
        "%61",
        "a b",
        "a\0",
        "A",
        "*",
        "[a]",
        "?",
        "zoë",
        "zoe\u{308}",
        "~a",
        "$a",
        "a\r\nb",
        "-",
        "\"",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    subjects.extend([vec![0xff], vec![0xff, 0], vec![0], vec![b'x'; 64], vec![b'x'; 65], vec![b'x'; 60_000]]);
    subjects
}

#[test]
fn law_10_odd_subjects_are_legal_and_nobody_is_somebody_else() {
    for_each_store(|place| {
        for limits in ["2/m", "2/m sliding_window_log"] {
            let limiter = place.limiter(&[("r", limits)]);
            let parts = [["a", "b"], ["a,", "b"], ["a", ",b"], ["a/b", "c"], ["a", "b/c"]].map(Key::parts);
            let subjects = odd_subjects();
            let keys: Vec<Key> = subjects.iter().map(Key::from).chain(parts).collect();
            for key in &keys {
                assert_eq!(limiter.check("r", key).sure().remaining(), 1, "{key:?}");
            }
            for key in &keys {
                assert_eq!(limiter.check("r", key).sure().remaining(), 0, "{key:?}");
                assert!(!limiter.check("r", key).sure().allowed(), "{key:?}");
            }
        }
    });
}

#[test]
fn law_10_stored_keys_are_printable_and_their_slot_is_their_subjects() {
    for_each_server(|place| {
        let limiter = place.limiter(&[("odd {name}:", "5/m; 5/h named {x}; 9/s fixed_window")]);
        for subject in odd_subjects() {
            let before: BTreeSet<String> = place.stored_keys().into_iter().collect();
            assert!(limiter.check("odd {name}:", &subject).sure().allowed());
            let keys: Vec<String> = place.stored_keys().into_iter().filter(|key| !before.contains(key)).collect();
            assert_eq!(keys.len(), 3, "{keys:?}");
            for key in keys {
                assert!(key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
                let form = key.strip_prefix(&format!("{}:1:{{", place.prefix())).expect("the prefix comes first");
                let (subject, rest) = form.split_once('}').expect("the subject is in braces");
                assert!(!subject.contains(['{', ':']) && !rest.contains(['{', '}']), "{key}");
                assert_eq!(slot(key.as_bytes()), slot(subject.as_bytes()), "{key}");
                assert!(rest.starts_with(":odd%20%7Bname%7D%3A:"), "{key}");
            }
        }
    });
}

#[test]
fn law_10_every_algorithm_has_a_key_of_the_form_that_is_documented() {
    for_each_server(|place| {
        let mut limits = ALGORITHMS.map(|algorithm| format!("5/90s {algorithm}")).to_vec();
        limits.push("7/90s named second".into());
        let limiter = place.limiter(&[("api", &limits.join("; "))]);
        assert!(limiter.check("api", "alice").sure().allowed());
        assert_eq!(
            limiter.count("api", "alice", Duration::from_secs(5)).add(1).wait().expect("the store works").total,
            1
        );
        let mut expected = ALGORITHMS.map(|algorithm| place.key("alice", &format!("api:{algorithm}:90000"))).to_vec();
        expected.push(place.key("alice", "api:sliding_window:90000:second"));
        expected.push(place.key("alice", "api:count:5000"));
        expected.sort();
        assert_eq!(place.stored_keys(), expected);
    });
}

#[test]
fn law_10_prefixes_keep_tenants_apart() {
    for_each_server(|place| {
        let url = place.url().expect("it has servers");
        let tenant = |name: &str| {
            let builder = Limiter::builder().url(&url).prefix(format!("{}{name}", place.prefix()));
            build(builder.deadline(Duration::from_secs(20)), &[("r", "3/h")])
        };
        let (a, b) = (tenant("-a"), tenant("-b"));
        assert_eq!(drain(&a, "r", "k", 9), 3);
        assert_eq!(b.peek("r", "k").sure().remaining(), 3);
        b.reset("r", "k").wait().expect("the store works");
        assert_eq!(a.peek("r", "k").sure().remaining(), 0);
    });
}

#[test]
fn law_10_with_a_secret_no_subject_shows() {
    for_each_server(|place| {
        let url = place.url().expect("it has servers");
        let text = format!(
            "version = 1\n[store]\nurl = {url:?}\nprefix = {:?}\nkey_secret = \"0123456789abcdef\"\n[rules]\nr = \"2/h\"",
            place.prefix()
        );
        let document = Document::from_toml(&text).expect("the document can be read");
        let secret = Limiter::builder().document(&document).deadline(Duration::from_secs(20));
        let (secret, plain) = (secret.build().expect("the rules can be meant"), place.real_time_builder());
        assert_eq!(drain(&secret, "r", "alice", 9), 2);
        assert!(place.stored_keys().iter().all(|key| !key.contains("alice")), "{:?}", place.stored_keys());
        let receipt = secret.check("r", "bob").sure().receipt().to_string();
        assert!(
            secret.refund(&receipt.parse().expect("a receipt reads what it wrote")).wait().expect("the store works")
        );
        assert_eq!(build(plain, &[("r", "2/h")]).peek("r", "alice").sure().remaining(), 2, "other keys without it");
    });
}

/// The login of the README: keys of the prefix alone, and none of the commands that hurt.
const USER: &str = "app on >pass ~tidegate:* +@all -@dangerous -@admin";

#[test]
fn law_10_a_user_who_may_touch_the_prefix_alone_can_do_everything() {
    let server = Server::builder().user(USER).start();
    let rules = ALGORITHMS.map(|algorithm| format!("5/h {algorithm}")).join("; ");
    let builder = || Limiter::builder().url(&server.url_as("app", "pass")).deadline(Duration::from_secs(20));
    let limiter = build(builder(), &[("r", &rules)]);
    limiter.ready(Duration::from_secs(20)).wait().expect("the login is good");
    assert_eq!(drain(&limiter, "r", "k", 9), 5);
    limiter.reset("r", "k").wait().expect("it may delete its own keys");
    let receipt = limiter.check("r", "k").cost(2).sure().receipt();
    assert!(limiter.refund(&receipt).wait().expect("it may refund"));
    assert_eq!(limiter.count("r", "k", Duration::from_secs(9)).add(2).wait().expect("it may count").total, 2);

    let stranger = build(builder().prefix("elsewhere"), &[("r", &rules)]);
    let decision = stranger.check("r", "k").wait().expect("no error");
    assert_eq!(decision.origin(), Origin::Open);
    assert_eq!(decision.failure().map(tidegate::Error::kind), Some(ErrorKind::StoreRefused));
    assert!(server.call::<Vec<String>>("KEYS elsewhere*").is_empty());
}

#[test]
fn law_10_loading_the_script_and_naming_the_connection_need_no_permission() {
    let user = "app on >pass ~tidegate:* -@all +hello +evalsha +eval +time +@read +@write";
    let server = Server::builder().user(user).start();
    let builder = Limiter::builder().url(&server.url_as("app", "pass")).deadline(Duration::from_secs(20));
    let limiter = build(builder, &[("r", "5/h; 5/m gcra")]);
    limiter.ready(Duration::from_secs(20)).wait().expect("neither is needed");
    assert_eq!(drain(&limiter, "r", "k", 9), 5);
}
