//! One request that is decided at several places (H3, H6).

use tidegate::http::Outcome;
use tidegate_tests::servers::shared_server;

use crate::policies::{Sure as _, left, policy};

const RULES: &str = r#"
[rules]
site = "10/h"
login = "3/h"

[[routes]]
name = "view"
rules = ["site", "login"]
key = "ip"

[http.default]
rules = "site"
key = "ip"
"#;

#[test]
fn a_rule_is_charged_once_whatever_is_stacked() {
    for url in [String::new(), shared_server().url()] {
        let policy = policy(&url, RULES);
        for used in 1..=3 {
            let outer = policy.request("POST", "/login").peer("203.0.113.7").sure();
            let inner =
                policy.named("POST", "view").expect("the route is there").peer("203.0.113.7").after(&outer).sure();
            let again =
                policy.named("POST", "view").expect("the route is there").peer("203.0.113.7").after(&inner).sure();
            assert_eq!([outer.outcome(), inner.outcome(), again.outcome()], [Outcome::Allowed; 3]);
            assert_eq!(left(&policy.limiter(), "site", &["ip", "203.0.113.7"]), 10 - used);
            assert_eq!(left(&policy.limiter(), "login", &["ip", "203.0.113.7"]), 3 - used);
            // All of them in the lists, the tightest in the others.
            let field = |name| inner.headers().iter().find(|(known, _)| *known == name).map(|(_, value)| &**value);
            assert_eq!(field("RateLimit-Policy"), Some(r#""site";q=10;w=3600, "login";q=3;w=3600"#));
            assert_eq!(field("X-RateLimit-Limit"), Some("3"));
            assert_eq!(again.decisions().len(), 2);
        }
        let outer = policy.request("POST", "/login").peer("203.0.113.7").sure();
        let inner = policy.named("POST", "view").expect("the route is there").peer("203.0.113.7").after(&outer).sure();
        assert_eq!((outer.outcome(), inner.outcome()), (Outcome::Allowed, Outcome::Refused), "{url}");
    }
}

#[test]
fn another_key_is_another_bucket() {
    let policy = policy("", RULES);
    let outer = policy.request("POST", "/login").peer("203.0.113.7").sure();
    policy.named("POST", "view").expect("the route is there").peer("203.0.113.8").after(&outer).sure();
    assert_eq!(left(&policy.limiter(), "site", &["ip", "203.0.113.7"]), 9);
    assert_eq!(left(&policy.limiter(), "site", &["ip", "203.0.113.8"]), 9);
}

#[test]
fn a_route_that_is_not_there_is_told() {
    let error = policy("", RULES).named("GET", "vew").expect_err("a misspelt name");
    assert_eq!(error.to_string(), "invalid_request: there is no route \"vew\"; the routes are: view, default");
}
