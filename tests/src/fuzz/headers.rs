//! Requests of any headers: each is decided, none passes a limit twice, and the answer is well-formed.

use std::sync::LazyLock;

use serde_json::Value;
use sfv::{Dictionary, List, Parser};
use tidegate::Document;
use tidegate::http::{Admission, Outcome, Policy, Request};

use super::bytes::byte;

const METHODS: [&str; 4] = ["GET", "POST", "HEAD", "gEt\r\n"];
/// What the routes below read, what they do not, and names that are none.
const NAMES: [&str; 8] = ["cookie", "X-Api-Key", "accept", "x-forwarded-for", "authorization", "Cookie", "", "a\r\nb"];

/// One policy for each revision of the draft. A rule admits once a day: whoever passes it twice has found a way past it.
static POLICIES: LazyLock<Vec<Policy>> = LazyLock::new(|| {
    let revisions = [("draft-10", "partition_key = true"), ("draft-7", ""), ("draft-6", "x_ratelimit_reset = 'delta'")];
    revisions.into_iter().map(|(draft, option)| policy(draft, option)).collect()
});

fn policy(draft: &str, option: &str) -> Policy {
    let document = format!(
        r#"
        version = 1
        store.max_keys = 10_000
        [rules]
        once = "1/d"
        "say \"hi\"\r\n\u00e9" = "1/d token_bucket; 1000/d"
        [http]
        trusted_proxies = "loopback"
        headers = ["{draft}", "x-ratelimit"]
        {option}
        [[routes]]
        path = "/key/{{id}}"
        rules = "once"
        key = "header:x-api-key"
        without_identity = "refuse"
        [[routes]]
        path = "/cookie/{{*rest}}"
        rules = ["say \"hi\"\r\n\u00e9", {{ rule = "once", key = "ip" }}]
        key = ["cookie:session", "constant:c"]
        without_identity = "share"
        [http.default]
        rules = "once"
        key = "cookie:session or header:authorization or ip"
        without_identity = "refuse"
        "#
    );
    let document = Document::from_toml(&document).expect("it is a document");
    Policy::new(&document).expect("memory is there")
}

/// A byte for policy and method, a line for the path, and lines of headers: a byte for the name, and the value.
pub fn headers(data: &[u8]) {
    let mut rest = data;
    let first = usize::from(byte(&mut rest));
    let policy = &POLICIES[first % POLICIES.len()];
    let method = METHODS[first / POLICIES.len() % METHODS.len()];
    let mut lines = rest.split(|&byte| byte == b'\n');
    let path = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let request = policy.request(method, &path).peer("127.0.0.1");
    let request = lines.fold(request, |request, mut line| {
        let name = NAMES[usize::from(byte(&mut line)) % NAMES.len()];
        request.header(name, line)
    });
    let (first, second) = (admitted(request.clone()), admitted(request.clone()));
    assert!(first.outcome() != Outcome::Unlimited, "each route has rules: {first:?}");
    assert!(second.outcome() != Outcome::Allowed, "a limit of 1 was passed twice: {first:?}, {second:?}");
    well_formed(&first);
    well_formed(&second);
    // Whoever says two things at once is in the one bucket of all who do.
    let _ = admitted(ambiguous(request.clone(), "a"));
    let third = admitted(ambiguous(request, "b"));
    assert!(third.outcome() != Outcome::Allowed, "two values are a way past a limit: {third:?}");
}

fn ambiguous(request: Request, name: &str) -> Request {
    ["1", "2"].into_iter().fold(request, |request, number| {
        let session = format!("session={name}{number}");
        request.header("x-api-key", [name, number].concat()).header("cookie", session)
    })
}

fn admitted(request: Request) -> Admission {
    request.admit().wait().unwrap_or_else(|error| panic!("headers are no errors: {error}"))
}

fn well_formed(admission: &Admission) {
    assert_eq!(admission.allowed(), admission.outcome() == Outcome::Allowed, "{admission:?}");
    for (name, value) in admission.headers() {
        assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{name}: {value:?}");
        let parsed = match *name {
            "RateLimit-Policy" => Parser::new(value).parse::<List>().is_ok(),
            "RateLimit" => {
                Parser::new(value).parse::<List>().is_ok() || Parser::new(value).parse::<Dictionary>().is_ok()
            }
            "Retry-After" => value.parse().is_ok_and(|seconds: u64| (1..=86_400).contains(&seconds)),
            "Content-Type" | "Cache-Control" | "Vary" => true,
            _ => value.parse::<u64>().is_ok(),
        };
        assert!(parsed, "{name}: {value:?}");
    }
    let field = |wanted: &str| admission.headers().iter().find(|(name, _)| *name == wanted).map(|(_, value)| &**value);
    let status = match admission.outcome() {
        Outcome::Allowed => None,
        Outcome::Refused => Some(429),
        Outcome::NoIdentity => Some(403),
        other => panic!("memory does not fail, and nobody is exempt: {other:?}"),
    };
    assert_eq!(admission.status(), status);
    assert_eq!(field("Retry-After").is_some(), status == Some(429), "{admission:?}");
    match (admission.body(), field("Content-Type")) {
        (None, None) => assert_eq!(status, None),
        (Some(text), Some("text/plain; charset=utf-8")) => assert!(text.ends_with('\n')),
        (Some(json), Some("application/json" | "application/problem+json")) => {
            assert!(serde_json::from_str::<Value>(json).is_ok_and(|value| value.is_object()), "{json}");
        }
        other => panic!("{other:?}"),
    }
}
