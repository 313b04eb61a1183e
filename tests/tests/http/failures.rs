//! What requests are answered while the store fails (R7).

use std::time::Duration;

use tidegate::Origin;
use tidegate::http::Outcome;
use tidegate_tests::limiters::timed;
use tidegate_tests::servers::{Server, eventually};

use crate::policies::{Sure as _, document, text};

fn rules(on_error: &str, more: &str) -> String {
    format!(
        "[rules]\nr = {{ limits = \"5/h\", on_error = \"{on_error}\" }}\nother = \"5/h\"\n[[routes]]\nprefix = \"/\"\n\
         rules = \"r\"\nkey = \"ip\"\n{more}"
    )
}

fn policy(server: &Server, rest: &str) -> tidegate::http::Policy {
    let text = text(&server.url(), rest).replace("deadline = \"20s\"", "deadline = \"200ms\"");
    tidegate::http::Policy::new(&document(&text)).expect("a policy")
}

#[test]
fn deny_is_503_and_allow_passes_without_a_word() {
    let server = Server::start();
    let (deny, allow) = (policy(&server, &rules("deny", "")), policy(&server, &rules("allow", "")));
    let (local, shadow) =
        (policy(&server, &rules("local", "")), policy(&server, &rules("deny", "mode = \"shadow\"\n")));
    for policy in [&deny, &allow, &local, &shadow] {
        assert!(policy.request("GET", "/").peer("203.0.113.7").sure().allowed());
    }
    server.kill();
    for _ in 0..50 {
        let admission = deny.request("GET", "/").peer("203.0.113.7").sure();
        assert_eq!((admission.outcome(), admission.status()), (Outcome::Unavailable, Some(503)));
        assert!(admission.body().is_some_and(|body| body.contains("#temporary-reduced-capacity")), "{admission:?}");
        assert!(!admission.headers().iter().any(|(name, _)| name.contains("RateLimit")), "{admission:?}");

        let admission = allow.request("GET", "/").peer("203.0.113.7").sure();
        assert_eq!((admission.outcome(), admission.headers().len()), (Outcome::Allowed, 0));
        assert_eq!(admission.decisions()[0].origin(), Origin::Open);

        let admission = shadow.request("GET", "/").peer("203.0.113.7").sure();
        assert_eq!((admission.outcome(), admission.status()), (Outcome::Unavailable, None));
    }
    let outcomes = [(); 6].map(|()| local.request("GET", "/").peer("203.0.113.7").outcome());
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Allowed).count(), 5, "{outcomes:?}");
    assert_eq!(outcomes[5], Outcome::Refused, "a refusal of its own is 429");
}

#[test]
fn a_route_of_several_keys_answers_within_one_deadline() {
    let server = Server::start();
    let rest = "[rules]\na = { limits = \"5/h\", on_error = \"deny\" }\nb = \"5/h\"\n[http.default]\nrules = [{ rule = \
                \"a\", key = \"ip\" }, { rule = \"b\", key = \"constant:all\" }]\n";
    let policy = policy(&server, rest);
    assert!(policy.request("GET", "/").peer("203.0.113.7").sure().allowed());
    server.pause();
    let (outcome, took) = timed(|| policy.request("GET", "/").peer("203.0.113.8").outcome());
    server.resume();
    assert_eq!(outcome, Outcome::Unavailable, "one that denies is enough");
    // Both steps have 200 ms together; the rest is for a machine that is slow.
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// What was told of the whole limit must not be told of a share, nor the other way round.
#[test]
fn policies_are_those_of_the_share_while_local_decides() {
    for starts_down in [false, true] {
        let server = Server::start();
        if starts_down {
            server.kill();
        }
        let policy = policy(&server, &rules("local", "").replace("\"local\"", "\"local\", share = 5"));
        let told = |origin: Origin| {
            let admission = policy.request("GET", "/").peer("203.0.113.7").sure();
            let field = admission.headers().iter().find(|(name, _)| *name == "RateLimit-Policy")?;
            (admission.decisions()[0].origin() == origin).then(|| field.1.clone())
        };
        let [whole, share] = ["\"r\";q=5;w=3600", "\"r\";q=1;w=3600"].map(str::to_owned);
        if !starts_down {
            assert_eq!(told(Origin::Store).as_ref(), Some(&whole));
            server.kill();
        }
        assert_eq!(told(Origin::Local).as_ref(), Some(&share));
        server.restart();
        eventually(Duration::from_secs(20), || told(Origin::Store).as_ref() == Some(&whole));
    }
}
