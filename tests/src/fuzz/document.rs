//! Documents: any text is read or refused, and what is read can be used.

use tidegate::http::Policy;
use tidegate::{Document, Error, ErrorKind, Format, Limiter};

/// The same text in all three formats.
pub fn document(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for format in [Format::Toml, Format::Json, Format::Yaml] {
        match Document::parse(text, format) {
            Ok(document) => use_it(&document),
            Err(error) => {
                let bad = matches!(error.kind(), ErrorKind::InvalidDocument | ErrorKind::InvalidRule);
                assert!(bad && !error.message().is_empty(), "{format:?}: {error:?}");
            }
        }
    }
}

/// A document may have no rules, since an application may have its own.
const OWN: &str = "the target's own";

/// Its rules decide, unless it speaks of servers or of files that are read when a limiter is made.
fn use_it(document: &Document) {
    let shown = format!("{document:?}");
    if shown.contains("url: Some(") || shown.contains("_file: Some(") {
        return;
    }
    let limiter = match Limiter::builder().document(document).rule(OWN, "1/d").build() {
        Ok(limiter) => limiter,
        Err(error) => panic!("what was read cannot be used: {error}"),
    };
    for rule in limiter.rules() {
        let decision = limiter.check(rule, "somebody").wait().unwrap_or_else(|error| panic!("{rule:?}: {error}"));
        assert!(decision.failure().is_none(), "memory does not fail: {decision:?}");
        let again = limiter.check(rule, "somebody").wait().unwrap_or_else(|error| panic!("{rule:?}: {error}"));
        assert!(decision.allowed() || !again.allowed() || decision.retry_after().is_some(), "{decision:?}, {again:?}");
    }
    match Policy::new(document) {
        Ok(policy) => ask(&policy),
        Err(error) => assert!(unused(&error), "what was read cannot be used: {error}"),
    }
}

/// The two things that a document may lack: the one is for [`Limiter`], the other for [`Policy`].
fn unused(error: &Error) -> bool {
    error.message().contains("has no rule") || error.message().contains("has no routes")
}

/// Its routes decide.
fn ask(policy: &Policy) {
    for (method, path) in [("GET", "/"), ("POST", "/login/7")] {
        let mut request =
            policy.request(method, path).peer("203.0.113.7").user("alice").header("cookie", "session=4711");
        for name in request.needs_values().map(str::to_owned).collect::<Vec<_>>() {
            request = request.value(&name, "3");
        }
        let admission = request.admit().wait().unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        assert_eq!(admission.allowed(), admission.body().is_none(), "{admission:?}");
    }
}
