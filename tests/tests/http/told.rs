//! What a policy tells: what it needs beforehand, what it has counted, what it logs.

use std::sync::{Mutex, PoisonError};

use tidegate::Origin;
use tidegate::http::{Admission, Outcome};
use tidegate_tests::servers::Server;

use crate::policies::{Sure as _, policy};

const RULES: &str = r#"
[rules]
r = "1/h"
short = "1/10s"
long = "1/h"

[[routes]]
name = "open"
path = "/open"
rules = []
exempt = { keys = ["user:root"], app = ["is_staff"] }

[[routes]]
name = "user"
path = "/user"
rules = "r"
key = ["user", "header:x-api-key", "cookie:c", "app:tenant"]
without_identity = "refuse"
cost = "app:units"
exempt = { app = ["is_staff"] }

[[routes]]
name = "shadow"
path = "/shadow"
rules = "r"
key = "ip"
mode = "shadow"

[[routes]]
name = "both"
path = "/both"
rules = [{ rule = "short", key = "ip" }, { rule = "long", key = "app:who" }]
without_identity = "refuse"

[[routes]]
name = "ip"
path = "/ip"
rules = "r"
key = "ip"
"#;

#[test]
fn what_is_needed_is_told_beforehand_and_no_more() {
    let policy = policy("", RULES);
    let needs = |path: &str| {
        let request = policy.request("GET", path);
        let all = |names: &mut dyn Iterator<Item = &str>| names.collect::<Vec<_>>().join(" ");
        let headers = all(&mut request.needs_headers());
        let (values, answers) = (all(&mut request.needs_values()), all(&mut request.needs_answers()));
        (request.needs_user(), headers, values, answers)
    };
    let told = |user, headers: &str, values: &str, answers: &str| {
        (user, headers.to_owned(), values.to_owned(), answers.to_owned())
    };
    assert_eq!(needs("/user"), told(true, "cookie x-api-key accept", "tenant units", "is_staff"));
    assert_eq!(needs("/open"), told(false, "accept", "", ""), "nobody is limited there");
    assert_eq!(needs("/ip"), told(false, "accept", "", ""));
    assert_eq!(needs("/nowhere"), told(false, "accept", "", ""));
    assert_eq!(policy.needs_headers(), ["accept", "cookie", "x-api-key"]);
}

#[test]
fn requests_are_counted_by_route_mode_and_outcome() {
    let policy = policy("", RULES);
    for path in ["/ip", "/ip", "/shadow", "/shadow", "/open", "/nowhere"] {
        policy.request("GET", path).peer("203.0.113.7").sure();
    }
    policy.request("GET", "/user").value("units", "1").sure();
    assert!(
        policy.request("GET", "/user").user("u").value("tenant", "t").header("x-api-key", "k").admit().wait().is_ok()
    );
    let told = policy.metrics().prometheus();
    for line in [
        r#"tidegate_http_requests_total{route="ip",mode="enforce",outcome="allowed"} 1"#,
        r#"tidegate_http_requests_total{route="ip",mode="enforce",outcome="refused"} 1"#,
        r#"tidegate_http_requests_total{route="shadow",mode="shadow",outcome="refused"} 2"#,
        r#"tidegate_http_requests_total{route="open",mode="enforce",outcome="unlimited"} 1"#,
        r#"tidegate_http_requests_total{route="user",mode="enforce",outcome="no_identity"} 2"#,
        r#"tidegate_http_requests_total{route="",mode="enforce",outcome="unlimited"} 1"#,
        "tidegate_http_charges_returned_total 0",
        "tidegate_http_charges_lost_total 0",
        r#"tidegate_http_reloads_total{result="refused"} 0"#,
        r#"tidegate_decisions_total{rule="r",origin="store",outcome="allowed"} 1"#,
    ] {
        assert!(told.contains(line), "{line}\n{told}");
    }
}

#[test]
fn a_shadow_tells_the_client_nothing() {
    let policy = policy("", RULES);
    for outcome in [Outcome::Allowed, Outcome::Refused] {
        let admission = policy.request("GET", "/shadow").peer("203.0.113.7").sure();
        assert_eq!((admission.outcome(), admission.allowed(), admission.headers().len()), (outcome, true, 0));
    }
}

/// Of refusals that are remembered the longest wait is told (W1), and the peek that refuses is counted.
#[test]
fn the_longest_of_remembered_waits_is_told() {
    let server = Server::start();
    let policy = policy(&server.url(), RULES);
    let admit = || policy.request("GET", "/both").peer("203.0.113.7").value("who", "w").sure();
    assert!(admit().allowed());
    let refused = |rule: &str, origin: Origin| -> u64 {
        let decisions = policy.metrics().limiter.decisions;
        let rows = decisions.iter().filter(|row| row.rule == rule && row.origin == origin && !row.allowed);
        rows.map(|row| row.count).sum()
    };
    for (asked, origin) in [(1, Origin::Store), (1, Origin::DenyCache), (2, Origin::DenyCache)] {
        let admission = admit();
        let wait = admission.headers().iter().find(|(name, _)| *name == "Retry-After").map(|(_, wait)| wait.clone());
        assert!(
            wait.as_deref().is_some_and(|wait| wait.parse::<u64>().is_ok_and(|wait| wait > 3_000)),
            "{admission:?}"
        );
        assert_eq!([refused("short", origin), refused("long", origin)], [asked, asked]);
    }
}

/// What was logged, with its target.
struct Lines(Mutex<Vec<String>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.target() == "tidegate::http" {
            let line = format!("{} {}", record.level(), record.args());
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    fn flush(&self) {}
}

#[test]
fn no_key_is_logged_unless_that_is_asked_for() {
    log::set_logger(&LINES).expect("nobody else logs here");
    log::set_max_level(log::LevelFilter::Trace);
    let seen =
        |part: &str| LINES.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|line| line.contains(part));
    let (quiet, open) =
        (policy("", RULES), policy("", &RULES.replacen("[rules]", "[http]\nlog_keys = true\n[rules]", 1)));
    for policy in [&quiet, &open] {
        let peer = if std::ptr::eq(policy, &quiet) { "203.0.113.91" } else { "203.0.113.92" };
        assert_eq!(policy.request("GET", "/ip").peer(peer).outcome(), Outcome::Allowed);
        assert_eq!(policy.request("GET", "/ip").peer(peer).outcome(), Outcome::Refused);
    }
    assert!(seen("INFO refused: route=ip rules=r"), "refusals are told");
    assert!(seen("keys=ip,203.0.113.92") && !seen("203.0.113.91"));
    quiet.request("GET", "/ip").sure();
    assert!(seen("no_identity: route=ip rules=r missing=ip") && seen("WARN the client's address is not known"));
}

#[test]
fn a_refusal_is_told_as_accept_likes_it_though_that_comes_late() {
    let policy = policy("", RULES);
    let admit = || policy.request("GET", "/ip").peer("203.0.113.7").sure();
    let passed = admit();
    assert_eq!(
        (passed.accepting("text/plain").body(), passed.accepting("text/plain").headers()),
        (None, passed.headers())
    );
    let told = policy.request("GET", "/ip").peer("203.0.113.7").header("accept", "text/plain").sure();
    let unasked = admit();
    assert_ne!(unasked.body(), told.body());
    let late = unasked.accepting("text/plain");
    assert_eq!((late.body(), late.status(), late.outcome()), (told.body(), told.status(), told.outcome()));
    let names = |admission: &Admission| {
        let mut names: Vec<&str> = admission.headers().iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.join(" ")
    };
    assert_eq!(names(&late), names(&told), "each once");
    let kind = late.headers().iter().find(|(name, _)| *name == "Content-Type").map(|(_, value)| &**value);
    assert_eq!(kind, Some("text/plain; charset=utf-8"));
    let shadow = || policy.request("GET", "/shadow").peer("203.0.113.7").sure();
    shadow();
    assert_eq!((shadow().outcome(), shadow().accepting("text/plain").body()), (Outcome::Refused, None));
}
