//! `tests/vectors/http_responses.json`, on the functions that say what responses hold.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::headers::Fields;
use super::refusal::{Cause, Form, body};
use crate::{Decision, Document, Key, Limiter, Origin};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "about")]
    _about: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    http: Http,
    store: Option<String>,
    rules: Map<String, Value>,
    #[serde(default)]
    routes: Vec<Route>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Http {
    headers: Option<Vec<String>>,
    x_ratelimit_reset: Option<String>,
    #[serde(default)]
    partition_key: bool,
    refusal: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Route {
    #[serde(rename = "path")]
    _path: String,
    rules: Value,
    key: String,
    #[serde(rename = "without_identity")]
    _without_identity: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    at_ms: u64,
    #[serde(rename = "method")]
    _method: String,
    #[serde(rename = "path")]
    _path: String,
    peer: String,
    user: Option<String>,
    headers: Vec<(String, String)>,
    cost: u64,
    expect: Value,
}

fn file() -> File {
    serde_json::from_str(include_str!("../../../tests/vectors/http_responses.json"))
        .expect("the vectors are as their README says")
}

#[test]
fn vectors() {
    let (file, mut wrong) = (file(), Vec::new());
    for case in &file.cases {
        let (clock, stage) = (Arc::new(AtomicU64::new(0)), Stage::of(case));
        let limiter = Limiter::builder().document(&stage.document).clock(&clock).build().unwrap();
        for (index, step) in case.steps.iter().enumerate() {
            clock.store(step.at_ms * 1_000, Ordering::SeqCst);
            let answer = stage.answer(&limiter, step);
            if answer != step.expect {
                wrong.push(format!("{}, step {index}:\n  got  {answer}\n  want {}", case.name, step.expect));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(file.cases.len() >= 40);
}

/// `docs/http-responses.md` shows answers that the vectors have.
#[test]
fn documented_answers() {
    let answers = file().cases.into_iter().flat_map(|case| case.steps).map(|step| step.expect).collect::<Vec<_>>();
    let page = include_str!("../../../docs/http-responses.md").replace("\r\n", "\n");
    let shown: Vec<&str> = page.split("```\n").filter(|block| block.starts_with("HTTP/1.1")).collect();
    assert_eq!(shown.len(), 2);
    for response in shown {
        let (head, body) = response.split_once("\n\n").unwrap_or((response, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line");
        let fields: Map<String, Value> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() };
        let is_shown = |answer: &Value| {
            let code = answer["status"].as_u64().unwrap_or(200).to_string();
            code == status && answer["headers"].as_object() == Some(&fields) && answer["body"] == body
        };
        assert!(answers.iter().any(is_shown), "{response}");
    }
}

/// What a case's document says, and in place of the policy just enough to put its rules on keys.
struct Stage {
    document: Document,
    fields: Fields,
    form: Form,
    /// A key's kind and its rules, in the order written.
    groups: Vec<(String, Vec<String>)>,
}

impl Stage {
    fn of(case: &Case) -> Stage {
        let mut document = json!({"version": 1, "rules": case.rules});
        if case.store.as_deref() == Some("down") {
            // Bound and let go: nobody listens there.
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            document["store"] = json!({"url": format!("redis://127.0.0.1:{port}")});
        }
        let Http { headers, x_ratelimit_reset, partition_key, refusal } = &case.http;
        let default = vec!["draft-10".to_owned(), "x-ratelimit".to_owned()];
        let names = headers.as_ref().unwrap_or(&default);
        Stage {
            document: Document::from_json(&document.to_string()).unwrap(),
            fields: Fields::new(names, x_ratelimit_reset.as_deref(), *partition_key).unwrap(),
            form: Form::parse(refusal.as_deref().unwrap_or("auto")).unwrap(),
            groups: groups(case),
        }
    }

    fn answer(&self, limiter: &Limiter, step: &Step) -> Value {
        let Some(decisions) = self.decisions(limiter, step) else {
            return self.refused("no_identity", Cause::NoIdentity, &[], step);
        };
        if decisions.iter().all(Decision::allowed) {
            let headers = self.fields.of(&decisions, step.at_ms * 1_000);
            return json!({"outcome": "allowed", "status": null, "headers": object(headers), "body": null});
        }
        if decisions.iter().any(|decision| decision.origin() == Origin::Closed) {
            return self.refused("unavailable", Cause::StoreFailed, &decisions, step);
        }
        self.refused("refused", Cause::Limited, &decisions, step)
    }

    /// One for each key; none if somebody is not named. With several keys all are peeked at before any is charged.
    fn decisions(&self, limiter: &Limiter, step: &Step) -> Option<Vec<Decision>> {
        let mut calls = Vec::new();
        for (kind, rules) in &self.groups {
            let identity = if kind == "ip" { &step.peer } else { step.user.as_ref()? };
            calls.push((rules.iter().map(String::as_str), Key::parts([kind, identity])));
        }
        if calls.len() > 1 {
            let peek =
                |(rules, key): &(_, Key)| limiter.peek_all(Clone::clone(rules), key).cost(step.cost).wait().unwrap();
            let peeked: Vec<Decision> = calls.iter().map(peek).collect();
            if !peeked.iter().all(Decision::allowed) {
                return Some(peeked);
            }
        }
        Some(
            calls
                .into_iter()
                .map(|(rules, key)| limiter.check_all(rules, key).cost(step.cost).wait().unwrap())
                .collect(),
        )
    }

    fn refused(&self, outcome: &str, cause: Cause, decisions: &[Decision], step: &Step) -> Value {
        let lines = step.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("accept"));
        let accept = lines.map(|(_, value)| value.as_str()).collect::<Vec<_>>();
        let accept = (!accept.is_empty()).then(|| accept.join(", ").into_bytes());
        let body = body(cause, self.form, accept.as_deref(), decisions);
        let told = self.fields.of(decisions, step.at_ms * 1_000).into_iter();
        let fields = told.chain(body.fields().map(|(name, value)| (name, value.to_owned())));
        let is_json = body.content_type.ends_with("json");
        let text = if is_json { serde_json::from_str(&body.text).unwrap() } else { Value::from(body.text.as_str()) };
        json!({"outcome": outcome, "status": body.status, "headers": object(fields), "body": text})
    }
}

/// The route's rules by their keys, or all rules on the address.
fn groups(case: &Case) -> Vec<(String, Vec<String>)> {
    let Some(route) = case.routes.first() else {
        return vec![("ip".to_owned(), case.rules.keys().cloned().collect())];
    };
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    let rules = if let Value::Array(rules) = &route.rules { rules.clone() } else { vec![route.rules.clone()] };
    for rule in rules {
        let text = |value: &Value| value.as_str().expect("names are text").to_owned();
        let (rule, key) = match &rule {
            Value::Object(table) => (text(&table["rule"]), text(&table["key"])),
            name => (text(name), route.key.clone()),
        };
        match groups.iter_mut().find(|(kind, _)| *kind == key) {
            Some((_, rules)) => rules.push(rule),
            None => groups.push((key, vec![rule])),
        }
    }
    groups
}

/// All fields by name; a name twice would be lost, and is a mistake.
fn object(fields: impl IntoIterator<Item = (&'static str, String)>) -> Value {
    let mut object = Map::new();
    for (name, value) in fields {
        assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{name}: {value:?}");
        assert!(object.insert(name.to_owned(), value.into()).is_none(), "{name} twice");
    }
    object.into()
}
