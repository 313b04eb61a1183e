//! How a request is decided over its keys, and what comes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::headers::KeptField;
use super::policy::State;
use super::refusal::{self, Cause};
use super::several::{self, Asked, all, receipts};
use super::site::{Lines, Route};
use crate::completion::{self, Completions};
use crate::decision::{Decision, Origin};
use crate::error::{Error, Result};
use crate::key::Key;
use crate::limiter::Pending;
use crate::receipt::Receipt;

/// What becomes of a request.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its rules let it pass.
    Allowed,
    /// One of its rules refuses it: 429.
    Refused,
    /// The store failed, and a rule's `on_error` refuses it: 503.
    Unavailable,
    /// It has no identity, and its route refuses that: 403.
    NoIdentity,
    /// It is exempt: it passes, and is not counted.
    Exempt,
    /// It has no rules: no route, a route without rules, or rules that do not apply to it.
    Unlimited,
    /// What the application supplied cannot be meant, such as a cost of 0: an error, but in a shadow route, where it passes.
    Invalid,
}

impl Outcome {
    /// Every outcome, in order.
    pub const ALL: &'static [Outcome] = &[
        Outcome::Allowed,
        Outcome::Refused,
        Outcome::Unavailable,
        Outcome::NoIdentity,
        Outcome::Exempt,
        Outcome::Unlimited,
        Outcome::Invalid,
    ];

    /// The outcome's name: `allowed`, `refused`, `unavailable`, `no_identity`, `exempt`, `unlimited` or `invalid`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Allowed => "allowed",
            Outcome::Refused => "refused",
            Outcome::Unavailable => "unavailable",
            Outcome::NoIdentity => "no_identity",
            Outcome::Exempt => "exempt",
            Outcome::Unlimited => "unlimited",
            Outcome::Invalid => "invalid",
        }
    }

    pub(super) const fn cause(self) -> Option<Cause> {
        match self {
            Outcome::Refused => Some(Cause::Limited),
            Outcome::Unavailable => Some(Cause::StoreFailed),
            Outcome::NoIdentity => Some(Cause::NoIdentity),
            Outcome::Allowed | Outcome::Exempt | Outcome::Unlimited | Outcome::Invalid => None,
        }
    }
}

/// Whether a request may pass, and what its response is to have. Cheap to clone.
#[derive(Clone)]
pub struct Admission {
    judged: Arc<Judged>,
}

/// What became of a request.
struct Judged {
    state: Arc<State>,
    route: Option<usize>,
    outcome: Outcome,
    status: Option<u16>,
    headers: Vec<(&'static str, String)>,
    body: Option<String>,
    decisions: Vec<Decision>,
    /// So many of the decisions are those of admissions before this one.
    before: usize,
    /// Keys and rules that were decided before, and here: for whoever decides of the same request again.
    earlier: Vec<(Key, Vec<String>)>,
    groups: Vec<Group>,
    settled: AtomicBool,
}

impl Admission {
    /// Whether the request may pass. In a shadow route it always may.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.judged.status.is_none()
    }

    /// What becomes of it; in a shadow route what would.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.judged.outcome
    }

    /// Whether its route only reports.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.judged.is_shadow()
    }

    /// The name of its route, if it has one.
    #[must_use]
    pub fn route(&self) -> Option<&str> {
        self.judged.matched().map(|route| &*route.name)
    }

    /// The status to answer with; none where the request may pass.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.judged.status
    }

    /// The fields that the response is to have, of a refusal or of what the application answers.
    #[must_use]
    pub fn headers(&self) -> &[(&'static str, String)] {
        &self.judged.headers
    }

    /// The body of a refusal; its type is among the headers.
    #[must_use]
    pub fn body(&self) -> Option<&str> {
        self.judged.body.as_deref()
    }

    /// The same with the body that the client likes best: for whoever tells `Accept` only where a refusal needs it. `accept` is
    /// its lines, joined by commas. What may pass stays as it is. What there is to give back is for the new one to give.
    #[must_use]
    pub fn accepting(&self, accept: impl AsRef<[u8]>) -> Admission {
        let judged = &self.judged;
        let Some(cause) = judged.outcome.cause().filter(|_| !self.allowed()) else { return self.clone() };
        let body = refusal::body(cause, judged.state.site.form, Some(accept.as_ref()), &judged.decisions);
        let mut headers = judged.headers.clone();
        for (name, value) in body.fields() {
            headers.retain(|(other, _)| *other != name);
            headers.push((name, value.to_owned()));
        }
        Admission { judged: Arc::new(Judged { headers, body: Some(body.text), ..judged.again() }) }
    }

    /// What was decided: a decision for each key, those of an admission before this one first.
    #[must_use]
    pub fn decisions(&self) -> &[Decision] {
        &self.judged.decisions
    }

    /// Whether its route gives charges back by any status, so that [`settle`](Admission::settle) may have something to do.
    #[must_use]
    pub fn may_refund(&self) -> bool {
        self.judged.outcome == Outcome::Allowed && self.judged.matched().is_some_and(|route| !route.refund.is_empty())
    }

    /// Gives the charge back where the route's `refund_status` has the response's status: whether anything was. Once;
    /// later calls do nothing. What an admission before this one charged is for that to settle.
    ///
    /// # Errors
    /// (Of the call that is returned.) What the store says.
    pub fn settle(&self, status: u16) -> Pending<bool> {
        let judged = &self.judged;
        let gives_back = judged.outcome == Outcome::Allowed
            && judged.matched().is_some_and(|route| route.refund.holds(status))
            && !judged.settled.swap(true, Ordering::AcqRel);
        self.give_back(gives_back)
    }

    fn give_back(&self, gives_back: bool) -> Pending<bool> {
        let judged = &self.judged;
        let receipts: Vec<Receipt> = if gives_back { receipts(judged.own().iter()) } else { Vec::new() };
        let state = Arc::clone(&judged.state);
        Pending::new(async move {
            let refunds = receipts.iter().map(|receipt| state.limiter.refund(receipt)).collect();
            let refunded = all(refunds).await.into_iter().collect::<Result<Vec<_>>>()?;
            Ok(refunded.contains(&true))
        })
    }

    /// A request that could not be judged: an error, but of a route that only reports.
    pub(super) fn invalid(state: Arc<State>, route: Option<usize>, error: Error) -> Result<Admission> {
        let Some(place) = route else { return Err(error) };
        let route = &state.site.routes[place];
        if !route.is_shadow {
            state.counts[place].add(Outcome::Invalid);
            return Err(error);
        }
        log::error!(target: LOG, "a request of route {} could not be judged: {error}", route.name);
        Ok(Admit::new(state, Some(place), None).told(Outcome::Invalid, Vec::new(), 0, Vec::new()))
    }

    /// Gives back all that it charged, whatever the route says: for a request that nobody answers any more. What an
    /// admission before this one charged stays.
    ///
    /// # Errors
    /// (Of the call that is returned.) What the store says.
    pub fn undo(&self) -> Pending<bool> {
        self.give_back(!self.judged.settled.swap(true, Ordering::AcqRel))
    }

    /// What was decided on these keys before, where it counts in the same buckets.
    fn decided_in(&self, state: &State) -> impl Iterator<Item = (&Key, &[String])> {
        let judged = self.judged.state.shares_buckets(state).then_some(&*self.judged);
        judged.into_iter().flat_map(Judged::decided)
    }
}

/// Without the keys.
impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Admission");
        debug.field("route", &self.route()).field("outcome", &self.outcome()).field("status", &self.status());
        debug.field("headers", &self.headers()).field("body", &self.body()).finish_non_exhaustive()
    }
}

/// A request, judged: what is to be decided of it.
pub(super) struct Admit {
    state: Arc<State>,
    route: Option<usize>,
    /// The request's, for what a refusal is to look like.
    headers: Lines,
    groups: Vec<Group>,
    cost: u64,
    /// What is known without asking.
    known: Option<Outcome>,
    before: Option<Admission>,
}

/// A key, and the rules that are decided on it together.
#[derive(Clone)]
pub(super) struct Group {
    key: Key,
    /// Its place in the route.
    place: usize,
    /// The rules, where they are others than the route's at that place.
    rules: Option<Vec<String>>,
}

impl Group {
    pub(super) fn new(key: Key, place: usize) -> Group {
        Group { key, place, rules: None }
    }

    fn rules<'a>(&'a self, route: Option<&'a Route>) -> &'a [String] {
        let own = || route.map_or(&[][..], |route| &route.groups[self.place].rules);
        self.rules.as_deref().unwrap_or_else(own)
    }
}

impl Admit {
    pub(super) fn new(state: Arc<State>, route: Option<usize>, before: Option<Admission>) -> Admit {
        // What a shadow would have refused was not charged, and does not matter here.
        let before = before.filter(|before| !before.is_shadow() || before.outcome() == Outcome::Allowed);
        Admit { state, route, headers: Lines::new(), groups: Vec::new(), cost: 1, known: None, before }
    }

    pub(super) fn of(self, headers: Lines) -> Admit {
        Admit { headers, ..self }
    }

    pub(super) fn exempt(self) -> Admit {
        Admit { known: Some(Outcome::Exempt), ..self }
    }

    pub(super) fn without_identity(self) -> Admit {
        Admit { known: Some(Outcome::NoIdentity), ..self }
    }

    /// The keys, each once: rules of one key are decided together, and none twice.
    pub(super) fn groups(self, found: Vec<Group>, cost: u64) -> Admit {
        // As most requests have it: there is nothing to compare it with.
        if self.before.is_none() && found.len() < 2 {
            return Admit { groups: found, cost, ..self };
        }
        let mut groups: Vec<Group> = Vec::with_capacity(found.len());
        for group in found {
            let before = self.before.iter().flat_map(|before| before.decided_in(&self.state));
            let decided = before.filter(|(key, _)| **key == group.key);
            let decided: Vec<&String> = decided.flat_map(|(_, rules)| rules).collect();
            let same = groups.iter_mut().find(|other| other.key == group.key);
            if decided.is_empty() && same.is_none() {
                groups.push(group);
                continue;
            }
            let mut rules = self.rules(&group).to_vec();
            rules.retain(|rule| !decided.contains(&rule));
            match same {
                Some(other) => {
                    let mut together = self.rules(other).to_vec();
                    rules.retain(|rule| !together.contains(rule));
                    together.append(&mut rules);
                    other.rules = Some(together);
                }
                None if rules.is_empty() => {}
                None => groups.push(Group { rules: Some(rules), ..group }),
            }
        }
        Admit { groups, cost, ..self }
    }

    fn matched(&self) -> Option<&Route> {
        self.route.map(|route| &self.state.site.routes[route])
    }

    fn rules<'a>(&'a self, group: &'a Group) -> &'a [String] {
        group.rules(self.matched())
    }

    pub(super) async fn decide(self) -> Result<Admission> {
        let own = self.decisions().await?;
        Ok(self.concluded(own))
    }

    /// Decides for an event loop. Rules on one key, as most requests have, are one check, which needs no task of its own.
    pub(super) fn submit(self, to: &Completions, ticket: u64) -> Result<Option<Admission>> {
        let (None, [group]) = (self.known, &self.groups[..]) else {
            return Pending::new(self.decide()).submit_now(to, ticket);
        };
        let (one, state, cost) = (self.asked(group)?, Arc::clone(&self.state), self.cost);
        let admitted = move |decision| completion::Outcome::from(self.concluded([decision]));
        let done = one.check(&state, cost).submit_then(to, ticket, Box::new(admitted))?;
        Ok(done.and_then(|(decision, then)| match then(decision) {
            completion::Outcome::Admission(admission) => Some(admission),
            _ => None,
        }))
    }

    /// What becomes of the request, now that what is to be decided of it is.
    fn concluded(self, own: impl IntoIterator<Item = Decision>) -> Admission {
        let before = self.before.iter();
        // Clients are not told of shadows.
        let told = before.clone().filter(|before| !before.is_shadow());
        // Most have one.
        let mut decisions = Vec::with_capacity(1);
        decisions.extend(told.flat_map(|before| before.decisions()).cloned());
        let decided = before.flat_map(|before| before.decided_in(&self.state));
        let earlier: Vec<_> = decided.map(|(key, rules)| (key.clone(), rules.to_vec())).collect();
        let before = decisions.len();
        decisions.extend(own);
        let outcome = match (self.known, outcome(&decisions)) {
            (Some(known), _) => known,
            // All its rules were decided before, by a shadow that let it pass.
            (None, Outcome::Unlimited) if !earlier.is_empty() => Outcome::Allowed,
            (None, outcome) => outcome,
        };
        self.told(outcome, decisions, before, earlier)
    }

    fn told(
        self,
        outcome: Outcome,
        decisions: Vec<Decision>,
        before: usize,
        earlier: Vec<(Key, Vec<String>)>,
    ) -> Admission {
        let Admit { state, route, groups, headers: lines, .. } = self;
        let (status, headers, body, settled) = (None, Vec::new(), None, AtomicBool::new(false));
        let judged =
            Judged { state, route, outcome, status, headers, body, decisions, before, earlier, groups, settled };
        judged.told(&lines)
    }

    /// Decides what is not known without asking.
    async fn decisions(&self) -> Result<Vec<Decision>> {
        match (self.known, &self.groups[..]) {
            (Some(_), _) | (None, []) => Ok(Vec::new()),
            (None, [group]) => Ok(vec![self.asked(group)?.check(&self.state, self.cost).await?]),
            (None, groups) => {
                let asked = groups.iter().map(|group| self.asked(group)).collect::<Result<Vec<_>>>()?;
                several::decide(&self.state, &asked, self.cost).await
            }
        }
    }

    fn asked(&self, group: &Group) -> Result<Asked> {
        let plan = match (&group.rules, self.route) {
            (None, Some(route)) => Arc::clone(&self.state.plans[route][group.place].plan),
            _ => self.state.limiter.plan_of(self.rules(group))?,
        };
        Ok(Asked { key: group.key.clone(), plan })
    }
}

fn outcome(decisions: &[Decision]) -> Outcome {
    let mut refusing = decisions.iter().filter(|decision| !decision.allowed()).peekable();
    if decisions.is_empty() {
        Outcome::Unlimited
    } else if refusing.peek().is_none() {
        Outcome::Allowed
    } else if refusing.all(|decision| decision.origin() == Origin::Closed) {
        Outcome::Unavailable
    } else {
        Outcome::Refused
    }
}

impl Judged {
    /// Counts it, tells the log, and says what to answer.
    fn told(mut self, request: &Lines) -> Admission {
        match self.route {
            Some(route) => self.state.counts[route].add(self.outcome),
            None => self.state.totals.unrouted(),
        }
        self.report();
        if !self.is_shadow() {
            self.answer(request);
        }
        Admission { judged: Arc::new(self) }
    }

    fn matched(&self) -> Option<&Route> {
        self.route.map(|route| &self.state.site.routes[route])
    }

    fn is_shadow(&self) -> bool {
        self.matched().is_some_and(|route| route.is_shadow)
    }

    /// The same, which has from now on what there is to give back.
    fn again(&self) -> Judged {
        Judged {
            state: Arc::clone(&self.state),
            headers: self.headers.clone(),
            body: self.body.clone(),
            decisions: self.decisions.clone(),
            earlier: self.earlier.clone(),
            groups: self.groups.clone(),
            settled: AtomicBool::new(self.settled.swap(true, Ordering::AcqRel)),
            ..*self
        }
    }

    /// Keys, and the rules that were decided on them, here or before.
    fn decided(&self) -> impl Iterator<Item = (&Key, &[String])> {
        let route = self.matched();
        let earlier = self.earlier.iter().map(|(key, rules)| (key, &rules[..]));
        earlier.chain(self.groups.iter().map(move |group| (&group.key, group.rules(route))))
    }

    /// What was decided here, and not before.
    fn own(&self) -> &[Decision] {
        &self.decisions[self.before..]
    }

    /// What responses say of the rules in `RateLimit-Policy`, where all that was decided are those of one group.
    fn policy_field(&self) -> Option<&KeptField> {
        match (&self.groups[..], &self.decisions[..]) {
            ([Group { rules: None, place, .. }], [decision]) if self.before == 0 => {
                let planned = &self.state.plans[self.route?][*place];
                // And not what stands in for them while the store fails.
                decision.is_of(&planned.plan).then_some(&planned.policy_field)
            }
            _ => None,
        }
    }

    fn answer(&mut self, request: &Lines) {
        let site = &self.state.site;
        self.headers = site.fields.of(&self.decisions, self.state.now(), self.policy_field());
        if let Some(cause) = self.outcome.cause() {
            let accept = site.lines(request, "accept").collect::<Vec<_>>().join(&b", "[..]);
            let accept = (!accept.is_empty()).then_some(&accept[..]);
            let body = refusal::body(cause, site.form, accept, &self.decisions);
            self.headers.extend(body.fields().map(|(name, value)| (name, value.to_owned())));
            (self.status, self.body) = (Some(body.status), Some(body.text));
        }
    }

    /// What is not let through is told to the log, the key only where that is asked for.
    fn report(&self) {
        // Who has no identity was told of with what is missing.
        if self.outcome == Outcome::NoIdentity
            || self.outcome.cause().is_none()
            || !log::log_enabled!(target: LOG, log::Level::Info)
        {
            return;
        }
        let (route, outcome) = (self.matched().map_or("", |route| &*route.name), self.outcome.name());
        let mode = if self.is_shadow() { " (shadow)" } else { "" };
        let refusing = self.decisions.iter().filter(|decision| !decision.allowed());
        let rules: Vec<&str> = refusing.map(|decision| decision.binding().rule()).collect();
        let rules = rules.join(",");
        if self.state.site.log_keys {
            let keys: Vec<String> = self.decided().map(|(key, _)| key.text()).collect();
            log::info!(target: LOG, "{outcome}{mode}: route={route} rules={rules} keys={}", keys.join(" "));
        } else {
            log::info!(target: LOG, "{outcome}{mode}: route={route} rules={rules}");
        }
    }
}

/// The log's target.
pub(super) const LOG: &str = "tidegate::http";
