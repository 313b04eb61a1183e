//! Does what calls do, for subjects that nobody else has. What it writes is deleted, and has a TTL besides.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::super::script::{self, Request};
use super::super::slot;
use super::visit::Visit;
use crate::error::Result;
use crate::key::{Key, Subject};
use crate::plan::{Action, Call, Plan};
use crate::request_id::RequestId;
use crate::rule::{Algorithm, Limit, Rule};

/// The window of the limits that are tried, and so about the TTL of what is written.
const WINDOW: Duration = Duration::from_secs(10);
/// How many subjects are tried to find some of a node's slots: enough, unless it has hardly any.
const MOST_SUBJECTS: u32 = 50_000;

/// Two subjects, of different slots of a node if it has some; one that may be of any slot where none was found.
pub(super) fn subjects(prefix: &str, owns: impl Fn(&u16) -> bool) -> Vec<Subject> {
    let random = fastrand::u32(..);
    let named = |number: u32| Key::from(&format!("doctor-{:08x}", random.wrapping_add(number))).into_subject(None);
    let slot = |subject: &Subject| slot::of(subject.base(prefix).as_bytes());
    let mut owned = (0..MOST_SUBJECTS).flat_map(named).filter(|subject| owns(&slot(subject)));
    let Some(first) = owned.next() else { return named(0).into_iter().collect() };
    let second = owned.find(|subject| slot(subject) != slot(&first));
    [Some(first), second].into_iter().flatten().collect()
}

/// A check by each algorithm, in one run of the script.
pub(super) async fn check(visit: &mut Visit, prefix: &str, subject: &Subject) -> Result<()> {
    let call = call(prefix, subject, Action::Check)?;
    let request = Request::decide(&call, prefix, 0);
    let reply = visit.run(|known| script::SCRIPT.command(known, &request)).await;
    let mut delete = redis::cmd("DEL");
    delete.arg(&request.keys[..]);
    let deleted = visit.ask(&delete).await;
    read(&reply?, &call)?;
    deleted.map(drop)
}

/// Peeks of two subjects, of different slots, in one run of the script.
pub(super) async fn batch(visit: &mut Visit, prefix: &str, subjects: [&Subject; 2]) -> Result<()> {
    let mut calls = Vec::new();
    for subject in subjects {
        let call = call(prefix, subject, Action::Peek)?;
        calls.push((Request::decide(&call, prefix, 0), call));
    }
    let requests = || calls.iter().map(|(request, _)| request);
    match visit.run(|known| script::ACROSS_SLOTS.batch(known, true, requests())).await? {
        Value::Array(replies) if replies.len() == calls.len() => {
            replies.iter().zip(&calls).try_for_each(|(reply, (_, call))| read(reply, call))
        }
        _ => Err(script::garbled()),
    }
}

fn read(reply: &Value, call: &Call) -> Result<()> {
    match reply {
        Value::BulkString(reply) => script::decision(reply, call).map(drop),
        _ => Err(script::garbled()),
    }
}

fn call(prefix: &str, subject: &Subject, action: Action) -> Result<Call> {
    let limits = Algorithm::ALL.iter().map(|algorithm| Limit::new(2, WINDOW).algorithm(*algorithm));
    let plan = Plan::new([&Rule::new("doctor", limits)?], &Arc::from(prefix))?;
    let id = if action == Action::Peek { RequestId::default() } else { plan.judged_id(None)? };
    Ok(Call { plan: Arc::new(plan), subject: subject.clone(), action, cost: 1, id, deadline: WINDOW, counts: false })
}
