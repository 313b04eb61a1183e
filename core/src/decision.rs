//! Decisions: what a check or a peek answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::{Charged, Micros, Outcome};
use crate::error::Error;
use crate::key::Subject;
use crate::plan::{Call, Plan};
use crate::receipt::{self, Charge, Receipt};
use crate::request_id::{self, RequestId};
use crate::rule::{Algorithm, BoundLimit, OnError};

/// Who decided.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The store.
    Store,
    /// A refusal that this process remembers.
    DenyCache,
    /// The store failed, and `on_error = "local"` decided in this process.
    Local,
    /// The store failed, and `on_error = "allow"` let the request pass.
    Open,
    /// The store failed, and `on_error = "deny"` refused the request.
    Closed,
}

impl Origin {
    /// Every origin, in order.
    pub const ALL: &'static [Origin] = &[Origin::Store, Origin::DenyCache, Origin::Local, Origin::Open, Origin::Closed];

    /// What decisions of this origin say: whether the request may pass.
    pub(crate) const fn outcomes(self) -> &'static [bool] {
        match self {
            Origin::Store | Origin::Local => &[true, false],
            Origin::Open => &[true],
            Origin::DenyCache | Origin::Closed => &[false],
        }
    }

    /// The origin's name: `store`, `deny_cache`, `local`, `open` or `closed`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Origin::Store => "store",
            Origin::DenyCache => "deny_cache",
            Origin::Local => "local",
            Origin::Open => "open",
            Origin::Closed => "closed",
        }
    }
}

/// What a store found out about one call.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) allowed: bool,
    /// An id of the call was live: nothing was charged.
    pub(crate) repeated: bool,
    pub(crate) limits: SmallVec<[LimitReply; 1]>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitReply {
    pub(crate) outcome: Outcome,
    pub(crate) charged: Option<Charged>,
}

impl Reply {
    pub(crate) fn is_charged(&self) -> bool {
        self.limits.iter().any(|limit| limit.charged.is_some())
    }

    /// The longest wait among the limits that refuse, in microseconds; none if one of them never passes.
    pub(crate) fn retry_after(&self, plan: &Plan) -> Option<u64> {
        let refusing = counted(plan, &self.limits).filter(|(_, _, limit)| !limit.outcome.allowed);
        refusing.map(|(_, _, limit)| limit.outcome.retry_after.get()).reduce(|a, b| Some(a?.max(b?)))?
    }

    /// The same some microseconds later, if nothing has happened: waits are shorter.
    pub(crate) fn age(&mut self, micros: u64) {
        for LimitReply { outcome, .. } in &mut self.limits {
            let less = |wait: Micros| Micros::from(wait.get().map(|wait| wait.saturating_sub(micros).max(1)));
            (outcome.retry_after, outcome.reset_after) = (less(outcome.retry_after), less(outcome.reset_after));
        }
    }
}

/// Whether a request may pass, and how its limits stand.
///
/// The figures of the whole are those of the enforced limits together: `remaining` the least of them, `retry_after` and
/// `reset_after` the longest. Each limit's own stand in [`limits`](Decision::limits), shadow ones too. When the failure
/// policy decided, nothing is known: `remaining` is 0 and both times are none.
#[derive(Debug, Clone)]
pub struct Decision {
    plan: Arc<Plan>,
    subject: Subject,
    cost: u32,
    allowed: bool,
    repeated: bool,
    limits: SmallVec<[LimitReply; 1]>,
    binding: u8,
    origin: Origin,
    nonce: u64,
    /// What few decisions have, apart: decisions are moved a few times on their way.
    extra: Option<Box<Extra>>,
}

#[derive(Debug, Clone, Default)]
struct Extra {
    id: RequestId,
    failure: Option<Error>,
}

impl Decision {
    #[inline(always)]
    pub(crate) fn from_store(call: Call, mut reply: Reply) -> Decision {
        if reply.repeated {
            for limit in &mut reply.limits {
                limit.outcome.allowed = true;
                limit.outcome.retry_after = Micros::NONE;
            }
        }
        let (binding, allowed) = (binding(&call.plan, &reply), reply.allowed || !call.plan.enforces);
        Decision {
            plan: call.plan,
            subject: call.subject,
            cost: call.cost,
            allowed,
            repeated: reply.repeated,
            limits: reply.limits,
            binding,
            origin: Origin::Store,
            // Only a receipt that has something in it is ever spent.
            nonce: if reply.allowed { fastrand::u64(..) } else { 0 },
            extra: (!call.id.is_empty()).then(|| Box::new(Extra { id: call.id, failure: None })),
        }
    }

    /// What the failure policy says. A call that enforces nothing is let through whatever it says.
    #[inline(never)]
    pub(crate) fn from_policy(call: Call, failure: Error) -> Decision {
        let allowed = call.plan.on_error == OnError::Allow || !call.plan.enforces;
        let unknown = Outcome { allowed, ..Outcome::NEVER };
        let limits = call.plan.limits.iter().map(|_| LimitReply { outcome: unknown, charged: None }).collect();
        let reply = Reply { allowed, repeated: false, limits };
        let origin = if allowed { Origin::Open } else { Origin::Closed };
        let extra = Extra { failure: Some(failure), ..Extra::default() };
        Decision { origin, extra: Some(Box::new(extra)), ..Decision::from_store(call, reply) }
    }

    /// A refusal that this process remembers.
    #[inline(never)]
    pub(crate) fn from_cache(call: Call, reply: Reply) -> Decision {
        Decision { origin: Origin::DenyCache, ..Decision::from_store(call, reply) }
    }

    /// What this process decided by itself, since the store failed. Its receipt is empty: the store was not charged.
    #[inline(never)]
    pub(crate) fn from_local(call: Call, reply: Reply, failure: Error) -> Decision {
        let call = call.local();
        let extra = Extra { failure: Some(failure), ..Extra::default() };
        Decision { origin: Origin::Local, extra: Some(Box::new(extra)), ..Decision::from_store(call, reply) }
    }

    /// The same as a refusal for a while, for somebody whose cost would fit but who has others before him. What the
    /// failure policy lets pass it lets pass all the same.
    pub(crate) fn behind_others(mut self, wait: Duration) -> Decision {
        if self.allowed && self.origin != Origin::Open && self.plan.enforces {
            let wait = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX - 1).max(1);
            let outcome = &mut self.limits[usize::from(self.binding)].outcome;
            (outcome.allowed, outcome.retry_after) = (false, Some(wait).into());
            self.allowed = false;
        }
        self
    }

    /// How long it may be remembered as a refusal, at most `max`; none for what says nothing of the next check.
    pub(crate) fn holds(&self, max: Duration) -> Option<Duration> {
        let id = self.extra.as_ref().is_some_and(|extra| request_id::is_given(&extra.id));
        if self.allowed || id {
            return None;
        }
        Some(self.retry_after().map_or(max, |wait| max.min(wait)))
    }

    /// Counts it for each of its rules.
    pub(crate) fn count(&self) {
        self.plan.rows.iter().for_each(|row| row.decided(self.origin, self.allowed, 1));
    }

    /// Counts the failure that made a policy decide, if one did.
    pub(crate) fn count_failure(&self) {
        if let (Some(failure), Some(counters)) = (self.failure(), &self.plan.counters) {
            counters.failed(failure.kind());
        }
    }

    /// Whether the request may pass.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.allowed
    }

    /// The units per window of the binding limit.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.plan.limits[usize::from(self.binding)].quota
    }

    /// The largest cost admissible now, after this charge.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.counted().map(|(_, limit)| limit.outcome.remaining).min().unwrap_or(0)
    }

    /// The time until this cost passes if nobody else comes; none when allowed, and none when it never can.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.allowed {
            return None;
        }
        let waits = self.counted().filter(|(_, limit)| !limit.outcome.allowed);
        longest(waits.map(|(_, limit)| limit.outcome.retry_after.get()))
    }

    /// The time until every quota is whole; 0 when untouched, none for a limit of 0.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        longest(self.counted().map(|(_, limit)| limit.outcome.reset_after.get()))
    }

    /// The limit that binds: the refusing one with the longest wait, or when allowed the one with the least remaining.
    #[must_use]
    pub fn binding(&self) -> LimitDecision<'_> {
        self.at(self.binding.into())
    }

    pub(crate) fn binding_index(&self) -> u8 {
        self.binding
    }

    /// Every limit with its own figures, in the order written.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = LimitDecision<'_>> {
        (0..self.limits.len()).map(|index| self.at(index))
    }

    /// Whether it is of this very plan.
    pub(crate) fn is_of(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(&self.plan, plan)
    }

    /// Who was limited, as it stands in stored keys.
    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Who decided.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether the request's id had been charged before: allowed, and nothing charged again.
    #[must_use]
    pub fn is_repeat(&self) -> bool {
        self.repeated
    }

    /// Why the failure policy decided, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&Error> {
        self.extra.as_ref().and_then(|extra| extra.failure.as_ref())
    }

    /// What was charged, for [`Limiter::refund`](crate::Limiter::refund). Empty if nothing was.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        Receipt {
            nonce: self.nonce,
            prefix: self.plan.prefix.to_string(),
            subject: self.subject.clone(),
            charges: self.charges().collect(),
        }
    }

    /// Writes the bytes of the receipt, whose text is their base64url without padding; nothing if nothing was charged. For
    /// bindings, which hand over many and are asked for few.
    pub fn write_receipt(&self, into: &mut Vec<u8>) {
        let mut charges = self.charges().peekable();
        if charges.peek().is_some() {
            receipt::write_head(into, self.nonce, &self.plan.prefix, &self.subject);
            charges.for_each(|charge| charge.write(into));
        }
    }

    fn charges(&self) -> impl Iterator<Item = Charge> {
        let extra = self.extra.as_ref();
        self.plan.limits.iter().zip(&self.limits).filter_map(move |(limit, reply)| {
            let charged = reply.charged.filter(|_| self.origin == Origin::Store)?;
            let is_log = limit.algorithm == Algorithm::SlidingWindowLog;
            Some(Charge {
                algorithm: limit.algorithm,
                suffix: limit.suffix.clone(),
                window: limit.window,
                at: charged.at,
                units: self.cost,
                rate: limit.quota,
                before: charged.before + u32::try_from(charged.before_parts / limit.window).unwrap_or(u32::MAX),
                before_parts: charged.before_parts % limit.window,
                id: extra.filter(|_| is_log).map_or_else(RequestId::default, |extra| extra.id.clone()),
            })
        })
    }

    fn counted(&self) -> impl Iterator<Item = (&BoundLimit, &LimitReply)> {
        counted(&self.plan, &self.limits).map(|(_, limit, reply)| (limit, reply))
    }

    fn at(&self, index: usize) -> LimitDecision<'_> {
        let (limit, outcome) = (&self.plan.limits[index], &self.limits[index].outcome);
        LimitDecision { limit, outcome }
    }
}

/// How one limit of a decision stands.
#[derive(Clone, Copy)]
pub struct LimitDecision<'a> {
    limit: &'a BoundLimit,
    outcome: &'a Outcome,
}

impl<'a> LimitDecision<'a> {
    /// The rule that the limit belongs to.
    #[must_use]
    pub fn rule(&self) -> &'a str {
        &self.limit.rule
    }

    /// The limit's name, if it was given one.
    #[must_use]
    pub fn name(&self) -> Option<&'a str> {
        self.limit.name.as_deref()
    }

    /// How it counts.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.limit.algorithm
    }

    /// Units per window.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.quota
    }

    /// The window.
    #[must_use]
    pub fn window(&self) -> Duration {
        Duration::from_micros(self.limit.window)
    }

    /// The units that a token bucket admits at once; the limit for the other algorithms.
    #[must_use]
    pub fn burst(&self) -> u32 {
        self.limit.burst
    }

    /// The grid to which a sliding window rounds its times up; none if they are exact.
    #[must_use]
    pub fn precision(&self) -> Option<Duration> {
        (self.limit.precision > 0).then(|| Duration::from_micros(self.limit.precision))
    }

    /// Whether it blocks; a shadow limit only reports.
    #[must_use]
    pub fn enforced(&self) -> bool {
        self.limit.enforce
    }

    /// Whether this limit alone would let the request pass.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.outcome.allowed
    }

    /// The largest cost admissible now.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.outcome.remaining
    }

    /// The time until this cost passes; none when it does, and none when it never can.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.outcome.retry_after.get().map(Duration::from_micros)
    }

    /// The time until the quota is whole; none if it never is.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        self.outcome.reset_after.get().map(Duration::from_micros)
    }
}

impl fmt::Debug for LimitDecision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("LimitDecision");
        debug.field("rule", &self.rule()).field("name", &self.name()).field("algorithm", &self.algorithm());
        debug.field("limit", &self.limit()).field("window", &self.window()).field("enforced", &self.enforced());
        debug.field("allowed", &self.allowed()).field("remaining", &self.remaining());
        debug.field("retry_after", &self.retry_after()).field("reset_after", &self.reset_after()).finish()
    }
}

/// The limits that count for the whole: the enforced ones, or all if none is.
fn counted<'a>(
    plan: &'a Plan,
    replies: &'a [LimitReply],
) -> impl Iterator<Item = (usize, &'a BoundLimit, &'a LimitReply)> {
    let counts = |limit: &BoundLimit| limit.enforce || !plan.enforces;
    let all = plan.limits.iter().zip(replies).enumerate().map(|(index, (limit, reply))| (index, &**limit, reply));
    all.filter(move |(_, limit, _)| counts(limit))
}

fn binding(plan: &Plan, reply: &Reply) -> u8 {
    if plan.limits.len() == 1 {
        return 0;
    }
    let refuses = plan.enforces && !reply.allowed;
    let ranked = counted(plan, &reply.limits).filter(|(_, _, limit)| !refuses || !limit.outcome.allowed);
    let rank = |limit: &LimitReply| match (refuses, limit.outcome.retry_after.get()) {
        // The longest wait binds, and none is the longest; min_by_key takes the first of equals.
        (true, None) => 0,
        (true, Some(wait)) => u64::MAX - wait,
        (false, _) => limit.outcome.remaining.into(),
    };
    let index = ranked.min_by_key(|(_, _, limit)| rank(limit)).map_or(0, |(index, _, _)| index);
    // A call has at most 64 limits.
    u8::try_from(index).unwrap_or(0)
}

/// The longest of some times, none if one of them is none.
fn longest(times: impl Iterator<Item = Option<u64>>) -> Option<Duration> {
    let longest = times.reduce(|a, b| Some(a?.max(b?)))??;
    Some(Duration::from_micros(longest))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    #[test]
    fn origins_are_listed_in_their_order() {
        assert!(Origin::ALL.iter().enumerate().all(|(place, origin)| *origin as usize == place));
    }

    #[test]
    fn the_bytes_of_a_receipt_are_those_of_its_text() {
        let limiter =
            crate::Limiter::builder().rule("a", "2/m; 3/h sliding_window_log").build().expect("the rule is good");
        let mut bytes = Vec::new();
        let decision = limiter.check("a", "alice").request_id("1").wait().expect("it can be meant");
        decision.write_receipt(&mut bytes);
        assert_eq!(URL_SAFE_NO_PAD.encode(&bytes), decision.receipt().to_string());
        bytes.clear();
        let refused = limiter.check("a", "alice").cost(2).wait().expect("it can be meant");
        refused.write_receipt(&mut bytes);
        assert!(bytes.is_empty() && refused.receipt().is_empty(), "nothing was charged");
    }
}
