//! What becomes of HTTP requests: addresses, routes, admissions and responses, through a policy.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tidegate::Document;
use tidegate::http::{Admission, Peer, Policy, Request};

use crate::files::{Bytes, Failure, Named, each};
use crate::stage::Stage;

/// One case of any of the files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    http: Map<String, Value>,
    store: Option<String>,
    #[serde(default)]
    rules: Map<String, Value>,
    routes: Option<Vec<Value>>,
    #[serde(default)]
    requests: Vec<Routed>,
    error: Option<String>,
    peer: Option<String>,
    #[serde(default)]
    headers: Vec<(String, Bytes)>,
    #[serde(default)]
    steps: Vec<Step>,
    expect: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Routed {
    method: String,
    path: String,
    route: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    at_ms: u64,
    method: String,
    path: String,
    peer: Option<String>,
    #[serde(default)]
    headers: Vec<(String, Bytes)>,
    user: Option<Bytes>,
    #[serde(default)]
    values: BTreeMap<String, String>,
    #[serde(default)]
    yes: Vec<String>,
    /// Of a route whose cost is `app:cost`.
    cost: Option<u64>,
    settle: Option<u16>,
    expect: Value,
}

impl Named for Case {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Case {
    /// The case's document on a store; an empty URL is memory.
    fn document(&self, url: &str) -> Result<Document, String> {
        let mut table = json!({ "deadline": "20s" });
        match self.store.as_deref() {
            None if url.is_empty() => {}
            None => table["url"] = url.into(),
            Some("down") => {
                // A port that was free a moment ago.
                let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
                table["url"] = format!("redis://{}", free.expect("a free port")).into();
            }
            Some(other) => panic!("{}: no store is {other:?}", self.name),
        }
        let mut rules = self.rules.clone();
        if rules.is_empty() {
            rules.insert("r".into(), "100/m".into());
        }
        let all: Vec<&String> = rules.keys().collect();
        let routes = match &self.routes {
            Some(routes) => json!(routes),
            None if self.steps.iter().any(|step| step.cost.is_some_and(|cost| cost != 1)) => {
                json!([{ "prefix": "/", "rules": all, "key": "ip", "cost": "app:cost" }])
            }
            None => json!([{ "prefix": "/", "rules": all, "key": "ip" }]),
        };
        let document = json!({ "version": 1, "store": table, "rules": rules, "http": self.http, "routes": routes });
        Document::from_json(&document.to_string()).map_err(|error| error.code().to_owned())
    }
}

fn addressed(mut request: Request, peer: Option<&str>, headers: &[(String, Bytes)]) -> Request {
    request = request.peer(peer.map_or(Peer::Unknown, Peer::from));
    headers.iter().fold(request, |request, (name, value)| request.header(name, value.bytes()))
}

pub(crate) fn addresses(file: &str) -> Vec<Failure> {
    each(file, |case: &Case| {
        let expect = case.expect.as_ref().expect("what is expected");
        let policy = match case.document("") {
            Ok(document) => Policy::new(&document).expect("a policy"),
            Err(code) => return same(&json!({ "error": code }), expect),
        };
        let request = addressed(policy.request("GET", "/"), case.peer.as_deref(), &case.headers);
        let address = request.client_address().map(|address| address.to_string());
        same(&json!({ "address": address, "key": request.client_key() }), expect)
    })
}

pub(crate) fn routes(file: &str) -> Vec<Failure> {
    each(file, |case: &Case| {
        let policy = match (case.document(""), &case.error) {
            (Ok(document), None) => Policy::new(&document).expect("a policy"),
            (Ok(_), Some(code)) => return Err(format!("it is taken, and should be {code}")),
            (Err(code), expected) => return same(&json!(code), &json!(expected)),
        };
        for Routed { method, path, route } in &case.requests {
            let found = policy.request(method, path).route().map(str::to_owned);
            same(&json!(found), &json!(route)).map_err(|what| format!("{method} {path:?}: {what}"))?;
        }
        Ok(())
    })
}

/// Plays a file whose cases have steps.
pub(crate) fn play(file: &str, stage: &mut Stage) -> Vec<Failure> {
    each(file, |case: &Case| {
        stage.clear();
        let policy = stage.policy(&case.document(&stage.url())?).map_err(|error| error.to_string())?;
        for (number, step) in case.steps.iter().enumerate() {
            stage.set_clock(step.at_ms * 1_000);
            let seen = match admit(&policy, step) {
                Ok(admission) => answer(&admission, step),
                Err(error) => json!({ "error": error.code() }),
            };
            same(&seen, &step.expect).map_err(|what| format!("step {number}: {what}"))?;
        }
        let snapshot = stage.snapshot();
        match &stage.eternal(&snapshot)[..] {
            [] => Ok(()),
            eternal => Err(format!("keys without a TTL: {eternal:?}")),
        }
    })
}

fn admit(policy: &Policy, step: &Step) -> tidegate::Result<Admission> {
    let mut request = addressed(policy.request(&step.method, &step.path), step.peer.as_deref(), &step.headers);
    if let Some(user) = &step.user {
        request = request.user(user.bytes());
    }
    if let Some(cost) = step.cost {
        request = request.value("cost", cost.to_string());
    }
    request = step.values.iter().fold(request, |request, (name, value)| request.value(name, value));
    step.yes.iter().fold(request, |request, question| request.answer_yes(question)).admit().wait()
}

/// An admission in the words of the files: of what a step does not expect, nothing.
fn answer(admission: &Admission, step: &Step) -> Value {
    let mut seen = Map::new();
    for (field, _) in step.expect.as_object().expect("an object") {
        let value = match field.as_str() {
            "outcome" => json!(admission.outcome().name()),
            "status" => json!(admission.status()),
            "route" => json!(admission.route()),
            "remaining" => admission.decisions().iter().map(tidegate::Decision::remaining).collect(),
            "settled" => {
                json!(admission.settle(step.settle.unwrap_or(200)).wait().expect("the store answers"))
            }
            "headers" => admission.headers().iter().map(|(name, value)| (name.to_lowercase(), json!(value))).collect(),
            "body" => body(admission),
            other => panic!("nothing is {other:?}"),
        };
        seen.insert(field.clone(), value);
    }
    // A settled status without an expectation has happened all the same.
    if let (Some(status), None) = (step.settle, step.expect.get("settled")) {
        admission.settle(status).wait().expect("the store answers");
    }
    Value::Object(seen)
}

fn body(admission: &Admission) -> Value {
    let kind = admission.headers().iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    match (admission.body(), kind) {
        (Some(text), Some((_, kind))) if kind.ends_with("json") => serde_json::from_str(text).expect("JSON"),
        (text, _) => json!(text),
    }
}

fn same(seen: &Value, expected: &Value) -> Result<(), String> {
    let mut expected = expected.clone();
    if let Some(headers) = expected.get_mut("headers").and_then(Value::as_object_mut) {
        *headers = headers.iter().map(|(name, value)| (name.to_lowercase(), value.clone())).collect();
    }
    if *seen == expected { Ok(()) } else { Err(format!("it is {seen}, and should be {expected}")) }
}
