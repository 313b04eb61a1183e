//! Layers inside of layers (H3, H6).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate::Document;
use tidegate::http::Policy;
use tidegate::tower::RateLimitLayer;
use tidegate_tests::servers::{eventually, shared_server};
use tower::Layer as _;

use crate::ours::{PATIENCE, ask, counting, policy, request};

const SITE: &str = "[rules]\nsite = \"10/h\"\n[http.default]\nrules = \"site\"\nkey = \"ip\"\n";
const LOGIN: &str =
    "[rules]\nsite = \"10/h\"\nlogin = \"3/h\"\n[http.default]\nrules = [\"site\", \"login\"]\nkey = \"ip\"\n";

fn layer(policy: &Policy) -> RateLimitLayer {
    RateLimitLayer::new(policy.clone()).peer(|_| "203.0.113.7")
}

/// A policy on the shared server. All of one prefix have the same buckets.
fn shared(prefix: &str, rest: &str) -> Policy {
    let store = format!(
        "version = 1\n[store]\nurl = \"{}\"\nprefix = \"{prefix}{}\"\ndeadline = \"20s\"\n",
        shared_server().url(),
        std::process::id()
    );
    Policy::new(&Document::from_toml(&(store + rest)).expect("a good document")).expect("a policy")
}

fn left(policy: &Policy, rule: &str) -> u32 {
    let key = tidegate::Key::parts(["ip", "203.0.113.7"]);
    policy.limiter().peek(rule, key).wait().expect("the store answers").remaining()
}

#[tokio::test]
async fn one_policy_twice_charges_once() {
    let policy = policy(SITE);
    let service = layer(&policy).layer(layer(&policy).layer(counting(&Arc::default())));
    for left in ["9", "8"] {
        let answer = ask(&service, request("GET", "/")).await;
        assert_eq!((&*answer.body, answer.field("x-ratelimit-remaining")), ("allowed", Some(left)));
        assert_eq!(answer.field("ratelimit-policy"), Some(r#""site";q=10;w=3600"#));
    }
}

#[tokio::test]
async fn two_policies_of_one_store_charge_a_rule_once_and_tell_of_all() {
    let (site, login) = (shared("stacked", SITE), shared("stacked", LOGIN));
    let calls: Arc<AtomicUsize> = Arc::default();
    let service = layer(&site).layer(layer(&login).layer(counting(&calls)));
    for used in 1..=3 {
        let answer = ask(&service, request("GET", "/")).await;
        assert_eq!(answer.field("ratelimit-policy"), Some(r#""site";q=10;w=3600, "login";q=3;w=3600"#));
        assert_eq!(answer.headers.get_all("ratelimit").iter().count(), 1);
        assert_eq!((answer.status, answer.field("x-ratelimit-limit")), (200, Some("3")));
        assert_eq!((left(&site, "site"), left(&login, "login")), (10 - used, 3 - used));
    }
    let refused = ask(&service, request("GET", "/")).await;
    assert_eq!((refused.status, refused.field("x-ratelimit-remaining")), (429, Some("0")));
    assert!(refused.body.contains(r#""violated-policies":["login"]"#), "{}", refused.body);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn rules_of_one_name_in_two_stores_are_two() {
    let (outer, inner) = (policy(SITE), policy(SITE));
    let service = layer(&outer).layer(layer(&inner).layer(counting(&Arc::default())));
    let answer = ask(&service, request("GET", "/")).await;
    assert_eq!([left(&outer, "site"), left(&inner, "site")], [9, 9]);
    assert_eq!(answer.field("ratelimit-policy"), Some(r#""site";q=10;w=3600, "site#2";q=10;w=3600"#));
}

#[tokio::test]
async fn each_layer_gives_back_what_it_charged() {
    let refunding = |rest: &str| format!("{rest}refund_status = [200]\n");
    let (outer, inner) = (policy(SITE), policy(&refunding(LOGIN)));
    let service = layer(&outer).layer(layer(&inner).layer(counting(&Arc::default())));
    ask(&service, request("GET", "/")).await;
    assert_eq!([left(&outer, "site"), left(&inner, "site"), left(&inner, "login")], [9, 10, 3]);

    let (outer, inner) = (shared("inner", SITE), shared("inner", &refunding(LOGIN)));
    let service = layer(&outer).layer(layer(&inner).layer(counting(&Arc::default())));
    ask(&service, request("GET", "/")).await;
    eventually(PATIENCE, || left(&inner, "login") == 3);
    assert_eq!(left(&outer, "site"), 9, "the outer layer's charge stands");

    let (outer, inner) = (shared("outer", &refunding(SITE)), shared("outer", LOGIN));
    let service = layer(&outer).layer(layer(&inner).layer(counting(&Arc::default())));
    ask(&service, request("GET", "/")).await;
    eventually(PATIENCE, || left(&outer, "site") == 10);
    assert_eq!(left(&inner, "login"), 2);
}

#[tokio::test]
async fn a_shadows_refusal_refuses_nothing_further_inside() {
    let outer = policy("[rules]\nsite = \"1/h\"\n[http.default]\nrules = \"site\"\nkey = \"ip\"\nmode = \"shadow\"\n");
    let inner = policy(LOGIN);
    let service = layer(&outer).layer(layer(&inner).layer(counting(&Arc::default())));
    ask(&service, request("GET", "/")).await;
    let answer = ask(&service, request("GET", "/")).await;
    assert_eq!((answer.status, &*answer.body, left(&inner, "login")), (200, "allowed", 1));
}
