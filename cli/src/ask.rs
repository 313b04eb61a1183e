//! `tidegate check`, `peek`, `show` and `reset`: one rule and one key on a server.

mod json;
mod show;
mod text;

use std::ffi::OsString;
use std::io::Write as _;
use std::time::Duration;

use serde_json::json;
use tidegate::{Check, Decision, Key, Limiter, LogEntry, Origin};

use crate::args::{Ask, Target};
use crate::failure::{Exit, Failure};
use crate::screen::{GREEN, Screen};
use crate::words;

/// A person waits for the answer, and the connection is made first: longer than an application would allow.
const DEADLINE: Duration = Duration::from_secs(3);

pub(crate) fn check(ask: &Ask, screen: &mut Screen) -> Result<Exit, Failure> {
    let target = Opened::new(&ask.target)?;
    let decision = target.decide(target.limiter.check(&ask.target.rule, target.key()).cost(ask.cost))?;
    answer(ask, &decision, text::Mood::Charged, screen)
}

pub(crate) fn peek(ask: &Ask, screen: &mut Screen) -> Result<Exit, Failure> {
    let target = Opened::new(&ask.target)?;
    let decision = target.decide(target.limiter.peek(&ask.target.rule, target.key()).cost(ask.cost))?;
    answer(ask, &decision, text::Mood::Looked, screen)
}

pub(crate) fn show(target: &Target, screen: &mut Screen) -> Result<Exit, Failure> {
    let opened = Opened::new(target)?;
    let decision = opened.decide(opened.limiter.peek(&target.rule, opened.key()))?;
    let log = opened.log()?;
    if target.store.json {
        writeln!(screen, "{}", json::state(target, &decision, &log))?;
    } else {
        show::state(target, &decision, &log, screen)?;
    }
    Ok(Exit::Done)
}

pub(crate) fn reset(target: &Target, screen: &mut Screen) -> Result<Exit, Failure> {
    let opened = Opened::new(target)?;
    match opened.limits_at_call() {
        Some(limits) => opened.limiter.reset_with_limits(&target.rule, opened.key(), limits).wait()?,
        None => opened.limiter.reset(&target.rule, opened.key()).wait()?,
    }
    if target.store.json {
        writeln!(screen, "{}", json!({ "rule": target.rule, "key": json::key(target), "reset": true }))?;
    } else {
        let (rule, key) = (words::shown(target.rule.as_bytes(), 64), text::key(target));
        writeln!(screen, "{GREEN}Reset:{GREEN:#} rule {rule} begins anew for {key}.")?;
    }
    Ok(Exit::Done)
}

fn answer(ask: &Ask, decision: &Decision, mood: text::Mood, screen: &mut Screen) -> Result<Exit, Failure> {
    let told = if ask.target.store.json {
        writeln!(screen, "{}", json::decision(&ask.target, ask.cost, decision)).map_err(Failure::from)
    } else {
        text::decision(ask, decision, mood, screen)
    };
    match told {
        // The exit code is an answer too, and must be the right one even if nobody reads the other.
        Ok(()) | Err(Failure::Closed) => Ok(if decision.allowed() { Exit::Done } else { Exit::Refused }),
        Err(failure) => Err(failure),
    }
}

/// What was asked for, with the limiter that answers.
struct Opened<'a> {
    target: &'a Target,
    limiter: Limiter,
}

impl Opened<'_> {
    fn new(target: &Target) -> Result<Opened<'_>, Failure> {
        let mut builder = target.store.builder()?;
        match (&target.store.config, &target.limits) {
            (Some(_), _) => {}
            (None, Some(limits)) => builder = builder.rule(&target.rule, limits),
            (None, None) => {
                let rule = words::shown(target.rule.as_bytes(), 64);
                let message = format!("nothing says what the limits of rule {rule} are");
                return Err(Failure::misused(message, "add --limits 100/m, or --config FILE with the rule in it"));
            }
        }
        let limiter = builder.deadline(DEADLINE).build()?;
        if limiter.metrics().keys.is_some() {
            return Err(Failure::misused(
                "there is no server to ask, and the memory of this process has only just begun",
                "add --url redis://127.0.0.1:6379, set TIDEGATE_URL, or write a url into the document",
            ));
        }
        Ok(Opened { target, limiter })
    }

    fn key(&self) -> Key {
        Key::parts(self.target.key.iter().map(OsString::as_os_str).map(std::ffi::OsStr::as_encoded_bytes))
    }

    /// Limits that stand in for those of the document's rule. Without a document they are the rule's own.
    fn limits_at_call(&self) -> Option<&str> {
        self.target.store.config.as_ref().and(self.target.limits.as_deref())
    }

    /// What the logs of the limits keep.
    fn log(&self) -> Result<Vec<LogEntry>, Failure> {
        Ok(match self.limits_at_call() {
            Some(limits) => self.limiter.log_with_limits(&self.target.rule, self.key(), limits).wait()?,
            None => self.limiter.log(&self.target.rule, self.key()).wait()?,
        })
    }

    /// What the store decides. What a failure policy decided in its place is no answer here.
    fn decide(&self, check: Check<'_>) -> Result<Decision, Failure> {
        let check = match self.limits_at_call() {
            Some(limits) => check.limits(limits),
            None => check,
        };
        let decision = check.wait()?;
        let Some(failure) = decision.failure() else { return Ok(decision) };
        let policy = match (decision.origin(), decision.allowed()) {
            (Origin::Local, _) => "decide in its own process",
            (_, true) => "let the request pass",
            (_, false) => "refuse the request",
        };
        Err(Failure::from(failure.clone())
            .rephrased(|message| format!("{message}; an application's on_error would {policy}")))
    }
}
