//! What a rule or a document means: told by a limiter whose store is away. It decides nothing and still says which
//! limits it was asked for, and whether the failure policy lets a request pass.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate::{Algorithm, Document, Format, LimitDecision, Limiter, Origin, Result};

use crate::answers::{differences, of_error};
use crate::files::{DocumentText, Failure, RuleText, each};

/// Nobody listens there.
const AWAY: &str = "redis://127.0.0.1:1";
/// An enforced rule that allows on error. Beside it a rule of nothing but shadows has a say, too: deny goes before allow.
const PROBE: &str = "the runner's own";

pub(crate) fn of_rules(file: &str) -> Vec<Failure> {
    each(file, |case: &RuleText| {
        let document = json!({"version": 1, "rules": {"r": case.rule}}).to_string();
        let found = meaning(&document, Format::Json);
        let found = found.map_or_else(|error| of_error(&error), |mut rules| rules["rules"]["r"].take());
        differences(&case.expect, &found)
    })
}

pub(crate) fn of_documents(file: &str) -> Vec<Failure> {
    each(file, |case: &DocumentText| {
        let found = meaning(&case.text, format(&case.format)).unwrap_or_else(|error| of_error(&error));
        differences(&case.expect, &found)?;
        let rules = |value: &Value| value.get("rules").and_then(Value::as_object).map(Map::len);
        if rules(&case.expect) == rules(&found) { Ok(()) } else { Err(format!("more rules than expected: {found}")) }
    })
}

fn format(name: &str) -> Format {
    match name {
        "toml" => Format::Toml,
        "json" => Format::Json,
        "yaml" => Format::Yaml,
        _ => panic!("no document is written in {name:?}"),
    }
}

fn meaning(document: &str, format: Format) -> Result<Value> {
    let document = Document::parse(document, format)?;
    let builder = Limiter::builder().document(&document).rule(PROBE, "1/s").url(AWAY);
    let limiter = builder.deadline(Duration::from_millis(1)).build()?;
    let names = limiter.rules().filter(|name| *name != PROBE);
    let rules = names.map(|name| Ok((name.to_owned(), of_rule(&limiter, name)?)));
    Ok(json!({"rules": rules.collect::<Result<Map<_, _>>>()?}))
}

fn of_rule(limiter: &Limiter, name: &str) -> Result<Value> {
    let decision = limiter.check_all([name, PROBE], "anybody").wait()?;
    let limits = decision.limits().filter(|limit| limit.rule() == name).map(|limit| of_limit(&limit));
    let on_error = match decision.origin() {
        Origin::Open => "allow",
        Origin::Closed => "deny",
        Origin::Local => "local",
        other => panic!("{other:?}: somebody listens on port 1"),
    };
    Ok(json!({"limits": limits.collect::<Vec<_>>(), "on_error": on_error}))
}

fn of_limit(limit: &LimitDecision<'_>) -> Value {
    json!({
        "algorithm": limit.algorithm().name(),
        "limit": limit.limit(),
        "burst": (limit.algorithm() == Algorithm::TokenBucket).then(|| limit.burst()),
        "window_ms": millis(limit.window()),
        "precision_ms": limit.precision().map(millis),
        "name": limit.name(),
        "enforce": limit.enforced(),
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("no window is that long")
}
