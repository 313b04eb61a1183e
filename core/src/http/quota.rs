//! Limits as clients are told of them: a name each, whole seconds, and which of them is the tightest.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use smallvec::SmallVec;

use crate::decision::{Decision, LimitDecision, Origin};
use crate::key::Subject;

/// What is written `%XX` in names. Structured strings hold neither controls nor what is not ASCII, and a percent sign
/// of a name's own must not be taken for the beginning of such.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// An enforced limit of a decision that knows its figures.
pub(super) struct Quota<'a> {
    pub(super) limit: LimitDecision<'a>,
    pub(super) subject: &'a Subject,
}

impl Quota<'_> {
    /// The window in whole seconds, at least 1: the drafts know no shorter one.
    pub(super) fn window_seconds(&self) -> u64 {
        whole_seconds(self.limit.window())
    }

    /// How long until the limit has more to give: until it lets this request pass if it refuses, else until it is
    /// whole. None if that is never.
    pub(super) fn reset(&self) -> Option<Duration> {
        if self.limit.allowed() { self.limit.reset_after() } else { self.limit.retry_after() }
    }

    /// The same in whole seconds; a limit that refuses has a wait above 0, and so at least 1.
    pub(super) fn reset_seconds(&self) -> Option<u64> {
        self.reset().map(whole_seconds)
    }
}

/// The limits that clients are told of, in the order written. Shadow limits are not theirs to know, and of a store that
/// failed nothing is known.
pub(super) fn quotas(decisions: &[Decision]) -> SmallVec<[Quota<'_>; 1]> {
    let limits = limits(decisions).filter(is_told);
    limits.map(|(decision, limit)| Quota { limit, subject: decision.subject() }).collect()
}

/// The names of these quotas: each is unique among all limits of the request, and printable ASCII.
pub(super) fn names(decisions: &[Decision]) -> impl Iterator<Item = String> {
    // Names come of all limits, so that none changes when another one is enforced, or its store fails.
    let mut named: Vec<(String, bool)> = Vec::new();
    let mut last: Option<(&Decision, &str)> = None;
    let mut place = 0;
    for (decision, limit) in limits(decisions) {
        let follows = last.is_some_and(|(other, rule)| std::ptr::eq(other, decision) && rule == limit.rule());
        place = if follows { place + 1 } else { 1 };
        last = Some((decision, limit.rule()));
        let name = unused(name(&limit, place), &named);
        let is_told = is_told(&(decision, limit));
        named.push((name, is_told));
    }
    named.into_iter().filter(|(_, is_told)| *is_told).map(|(name, _)| name)
}

fn limits(decisions: &[Decision]) -> impl Iterator<Item = (&Decision, LimitDecision<'_>)> {
    decisions.iter().flat_map(|decision| decision.limits().map(move |limit| (decision, limit)))
}

fn is_told((decision, limit): &(&Decision, LimitDecision<'_>)) -> bool {
    limit.enforced() && is_known(decision)
}

/// The limit that speaks where only one can: the refusing one with the longest wait, of which never is the longest, or
/// the one with the least remaining if none refuses. The first of equals.
pub(super) fn tightest<'q, 'a>(quotas: &'q [Quota<'a>]) -> Option<&'q Quota<'a>> {
    let refusing = quotas.iter().filter(|quota| !quota.limit.allowed());
    // min_by_key takes the first of equals, and max_by_key the last.
    let longest = refusing.min_by_key(|quota| std::cmp::Reverse(quota.limit.retry_after().unwrap_or(Duration::MAX)));
    longest.or_else(|| quotas.iter().min_by_key(|quota| quota.limit.remaining()))
}

/// Whether a decision knows its figures: the failure policy does not.
pub(super) fn is_known(decision: &Decision) -> bool {
    !matches!(decision.origin(), Origin::Open | Origin::Closed)
}

/// Rounded up; 0 is 0.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// `rule`, `rule:name` for a limit that has one, and by its place in the rule for another after the first: `rule:2`.
fn name(limit: &LimitDecision<'_>, place: u32) -> String {
    let escape = |name| Cow::from(utf8_percent_encode(name, ESCAPED));
    let rule = escape(limit.rule());
    match limit.name() {
        Some(name) => format!("{rule}:{}", escape(name)),
        None if place == 1 => rule.into_owned(),
        None => format!("{rule}:{place}"),
    }
}

/// The name, or with a number after it where another limit has it already: one rule on two keys, or a rule `api:2`
/// beside the second limit of `api`.
fn unused(name: String, named: &[(String, bool)]) -> String {
    let is_used = |name: &str| named.iter().any(|(other, _)| other == name);
    if !is_used(&name) {
        return name;
    }
    // As many names as there are limits, and one more: one of them is free.
    let numbered = (2..=named.len() + 2).map(|number| format!("{name}#{number}"));
    numbered.into_iter().find(|name| !is_used(name)).unwrap_or(name)
}
