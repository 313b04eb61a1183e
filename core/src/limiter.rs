//! The limiter: what applications call.

mod builder;
mod call;
mod decide;
mod line;
mod log;
mod repeat;
mod rules;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use self::builder::Builder;
use self::call::Target;
pub use self::call::{Acquire, Begun, Check, Count, Counted, Pending};
pub(crate) use self::decide::conclude;
use self::line::Lines;
pub use self::log::LogEntry;
use self::rules::{AllRows, Bound};
use crate::algorithm::Step;
use crate::cache::Cache;
use crate::clock;
use crate::decision::{Decision, Origin};
use crate::error::{Error, ErrorKind, Result};
use crate::fork::PerProcess;
use crate::io;
use crate::key::{Key, Subject};
use crate::metrics::{Counters, DecisionCount, Metrics, Rows};
use crate::plan::{Action, Call, Plan};
use crate::receipt::Receipt;
use crate::rule::Rule;
use crate::spent::spent;
use crate::store::memory::MemoryStore;
use crate::store::redis::Remote;
use crate::trace::Span;

/// The longest that a call may wait for its store.
pub(crate) const MAX_DEADLINE: Duration = Duration::from_secs(60);

/// Decides whether requests may pass. Cheap to clone; clones share everything.
///
/// Every call has two ends: `.await` under any executor, and `.wait()` on a plain thread.
///
/// ```
/// use tidegate::Limiter;
///
/// let limiter = Limiter::builder().rule("login", "5/m").build()?;
/// let decision = limiter.check("login", "alice").wait()?;
/// assert!(decision.allowed());
/// assert_eq!(decision.remaining(), 4);
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rules: Vec<&str> = self.rules().collect();
        let store = match self.inner.store {
            Store::Memory(_) => "memory",
            Store::Redis(_) => "redis",
        };
        f.debug_struct("Limiter").field("store", &store).field("rules", &rules).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    store: Store,
    prefix: Arc<str>,
    secret: Option<crate::document::Secret>,
    deadline: Duration,
    /// By name. There are few, and to find one is less work than to hash its name.
    rules: Vec<Bound>,
    /// Plans of several rules, and of limits given at a call: each made once.
    plans: PerProcess<Plans>,
    /// The configured rate of each stored key's end, for refunds.
    rates: HashMap<String, u32>,
    lines: Arc<PerProcess<Lines>>,
    rows: AllRows,
    counters: Arc<Counters>,
}

type Plans = Cache<(Vec<String>, Option<String>), Arc<Plan>>;

/// How many plans of limits given at calls are kept: a few tiers per rule, not one per customer.
const PLANS: usize = 1_024;

/// Clones are the same store.
#[derive(Debug, Clone)]
enum Store {
    Memory(MemoryStore),
    Redis(Arc<Remote>),
}

impl Limiter {
    /// Begins a limiter: its rules, and where its state lives (in memory unless a URL is given).
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Decides now, and charges if admitted.
    #[inline]
    pub fn check(&self, rule: &str, key: impl Into<Key>) -> Check<'_> {
        Check::new(self, Action::Check, self.target(rule), key.into())
    }

    /// Decides several rules on one key, all or nothing.
    pub fn check_all<'a>(&self, rules: impl IntoIterator<Item = &'a str>, key: impl Into<Key>) -> Check<'_> {
        let rules = rules.into_iter().map(str::to_owned).collect();
        Check::new(self, Action::Check, Target::Named(rules), key.into())
    }

    /// Tells how things stand: allowed and `retry_after` as check would say, the rest uncharged. Writes nothing.
    pub fn peek(&self, rule: &str, key: impl Into<Key>) -> Check<'_> {
        Check::new(self, Action::Peek, self.target(rule), key.into())
    }

    /// Tells how things stand for several rules on one key, as [`check_all`](Limiter::check_all) would decide.
    pub fn peek_all<'a>(&self, rules: impl IntoIterator<Item = &'a str>, key: impl Into<Key>) -> Check<'_> {
        let rules = rules.into_iter().map(str::to_owned).collect();
        Check::new(self, Action::Peek, Target::Named(rules), key.into())
    }

    /// Decides the rules of a plan, as [`check_all`](Limiter::check_all) would by their names.
    pub(crate) fn check_planned<'a>(&'a self, plan: &'a Arc<Plan>, key: Key) -> Check<'a> {
        Check::new(self, Action::Check, Target::Planned(plan), key)
    }

    /// Tells how things stand for the rules of a plan.
    pub(crate) fn peek_planned<'a>(&'a self, plan: &'a Arc<Plan>, key: Key) -> Check<'a> {
        Check::new(self, Action::Peek, Target::Planned(plan), key)
    }

    /// The plan of some rules, for whoever asks them again and again.
    ///
    /// # Errors
    /// `unknown_rule`, and `invalid_request` for no rule, one that is named twice, or too many limits together.
    pub(crate) fn plan_of(&self, rules: &[String]) -> Result<Arc<Plan>> {
        self.inner.plan(rules, None)
    }

    /// How long the store may take unless a call says otherwise.
    pub(crate) fn deadline(&self) -> Duration {
        self.inner.deadline
    }

    /// Whether state lives on servers.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.inner.store, Store::Redis(_))
    }

    /// Waits until admitted, up to a timeout. Waiters on one key and the same limits stand in line: who gives up behind
    /// others is refused, even where its own cost would fit.
    pub fn acquire(&self, rule: &str, key: impl Into<Key>) -> Acquire<'_> {
        Acquire::new(self.check(rule, key))
    }

    /// Adds to a plain counter of a rule and key, for adapters: unconditional, and so no decision.
    pub fn count(&self, rule: &str, key: impl Into<Key>, window: Duration) -> Count {
        Count::new(self, rule, key.into(), window)
    }

    /// Gives back what a receipt charged: whether anything was left of it to give back.
    ///
    /// Exact if nobody charged in between; never too much while the rate changed at most once since. A receipt is
    /// spent by its first refund in this process, whatever comes of it; across processes it is the caller's duty to
    /// refund once. An outcome that is unknown is not sent again. After a `reset`, a receipt from before it takes its units from the same moment
    /// (or window) of the new state. For limits that were given at the call, the asked rate of a bucket is unknown; then
    /// the receipt's counts, and a refund may give back less.
    ///
    /// # Errors
    /// `invalid_receipt` if it was spent here already or belongs to another prefix; else what the store says.
    pub fn refund(&self, receipt: &Receipt) -> Pending<bool> {
        let receipt = receipt.clone();
        self.begin(Span::call("refund", None), |limiter| async move { limiter.inner.refund(&receipt).await })
    }

    /// Forgets a rule's state for a key: every limit as configured, counts over the limits' windows included, corrupt
    /// state included. Other keys are not searched for: a count over another window stays.
    ///
    /// # Errors
    /// `unknown_rule`, `invalid_request` for an empty key, and what the store says.
    pub fn reset(&self, rule: &str, key: impl Into<Key>) -> Pending<()> {
        self.reset_limits(rule, key.into(), None)
    }

    /// Forgets the state of limits that are given at calls.
    ///
    /// # Errors
    /// As [`reset`](Limiter::reset), and `invalid_rule`.
    pub fn reset_with_limits(&self, rule: &str, key: impl Into<Key>, limits: &str) -> Pending<()> {
        self.reset_limits(rule, key.into(), Some(limits.to_owned()))
    }

    /// The requests that the rule's sliding_window_log limits keep for a key, the oldest first: for audits. Of each log
    /// at most the newest thousand units: the oldest request among them may be told with fewer than it took.
    ///
    /// # Errors
    /// `unknown_rule`, `invalid_request` for an empty key, and what the store says.
    pub fn log(&self, rule: &str, key: impl Into<Key>) -> Pending<Vec<LogEntry>> {
        self.log_limits(rule, key.into(), None)
    }

    /// The same of limits that are given at calls.
    ///
    /// # Errors
    /// As [`log`](Limiter::log), and `invalid_rule`.
    pub fn log_with_limits(&self, rule: &str, key: impl Into<Key>, limits: &str) -> Pending<Vec<LogEntry>> {
        self.log_limits(rule, key.into(), Some(limits.to_owned()))
    }

    /// Waits until every server is connected and has the script; at once in memory.
    ///
    /// # Errors
    /// The last error of connecting, when the timeout has passed.
    pub fn ready(&self, timeout: Duration) -> Pending<()> {
        self.begin(Span::call("ready", None), move |limiter| async move {
            match &limiter.inner.store {
                Store::Memory(_) => Ok(()),
                Store::Redis(remote) => answer(remote.store()?.ready(clock::after(timeout))?).await,
            }
        })
    }

    /// The names of its rules, in order.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        self.inner.rules.iter().map(|bound| bound.rule.name())
    }

    /// What the limiter has counted since it was made; what concerns the store's servers is counted together with the
    /// process's other limiters of the same URL and options.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let inner = &self.inner;
        let decisions = inner.rules.iter().flat_map(|bound| inner.decisions(bound)).collect();
        let deny_cache_hits = inner.counters.deny_cache_hits.load(Ordering::Relaxed);
        let counted = Metrics { decisions, errors: inner.counters.errors(), deny_cache_hits, ..Metrics::default() };
        match &inner.store {
            Store::Memory(store) => {
                let (keys, evicted) = store.usage();
                Metrics { keys: Some(keys), evicted, ..counted }
            }
            // A forked child that has not asked yet has no servers to tell of.
            Store::Redis(remote) => match remote.opened() {
                Some(store) => store.metrics(counted),
                None => counted,
            },
        }
    }

    /// The time by which the store decides, in microseconds since 1970, from now on: for tests.
    #[cfg(feature = "testing")]
    pub fn set_clock(&self, clock: &Arc<std::sync::atomic::AtomicU64>) {
        if let Store::Redis(remote) = &self.inner.store
            && let Ok(store) = remote.store()
        {
            store.set_clock(Arc::clone(clock));
        }
    }

    /// The decision of the store's servers, where they are to be asked.
    fn ask(&self, call: Call, span: Span) -> Pending<Decision> {
        let limiter = self.clone();
        Pending::new(async move {
            let decision = span.follow(limiter.inner.decide_remotely(call)).await;
            span.decided(&decision);
            Ok(decision)
        })
    }

    /// A call that has been made; an error that it ends with is counted.
    fn begin<T, F>(&self, span: Span, work: impl FnOnce(Limiter) -> F) -> Pending<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (limiter, work) = (self.clone(), work(self.clone()));
        Pending::new(async move {
            let outcome = span.follow(work).await.inspect_err(|error| limiter.inner.failed(error));
            span.ended(&outcome);
            outcome
        })
    }

    #[inline]
    fn target(&self, rule: &str) -> Target<'_> {
        match self.inner.find(rule) {
            Some(bound) => Target::Planned(&bound.plan),
            None => Target::Named(vec![rule.to_owned()]),
        }
    }

    fn reset_limits(&self, rule: &str, key: Key, limits: Option<String>) -> Pending<()> {
        let rules = vec![rule.to_owned()];
        self.begin(Span::call("reset", Some(rule)), |limiter| async move {
            let inner = &limiter.inner;
            let (plan, subject) = (inner.plan(&rules, limits.as_deref())?, inner.subject(key)?);
            match &inner.store {
                Store::Memory(store) => store.reset(&plan.limits, &subject),
                Store::Redis(remote) => {
                    let deadline = clock::instant() + inner.deadline;
                    answer(remote.store()?.reset(&plan.limits, &subject, deadline)?).await?;
                }
            }
            Ok(())
        })
    }
}

impl Inner {
    #[inline]
    fn subject(&self, key: Key) -> Result<Subject> {
        key.into_subject(self.secret.as_ref().map(|secret| secret.bytes()))
    }

    /// The limits of some rules, or of limits given at the call under one rule's name.
    fn plan(&self, rules: &[String], limits: Option<&str>) -> Result<Arc<Plan>> {
        if let ([name], None) = (rules, limits) {
            return Ok(Arc::clone(&self.bound(name)?.plan));
        }
        self.plans.get(|| Cache::new(PLANS)).get_or_make((rules.to_vec(), limits.map(str::to_owned)), || {
            match (rules, limits) {
                (_, None) => {
                    let bound = rules.iter().map(|name| self.bound(name)).collect::<Result<Vec<_>>>()?;
                    let rows = bound.iter().map(|bound| Arc::clone(&bound.row)).collect();
                    let plan = Plan::new(bound.into_iter().map(|bound| &bound.rule), &self.prefix)?;
                    Ok(Arc::new(plan.counted(rows, &self.counters)))
                }
                ([name], Some(text)) => {
                    let bound = self.bound(name)?;
                    let rule = Rule::parse(name.as_str(), text)?.on_error(bound.rule.failure_policy());
                    let rows = Rows::from_iter([Arc::clone(&bound.row)]);
                    let plan = Plan::new([&rule], &self.prefix)?.counted(rows, &self.counters);
                    Ok(Arc::new(plan.given_at_call()))
                }
                _ => Err(Error::new(ErrorKind::InvalidRequest, "limits given at the call are of one rule; name one")),
            }
        })
    }

    #[inline(always)]
    fn find(&self, name: &str) -> Option<&Bound> {
        self.rules.binary_search_by(|bound| bound.rule.name().cmp(name)).ok().map(|place| &self.rules[place])
    }

    fn bound(&self, name: &str) -> Result<&Bound> {
        self.find(name).ok_or_else(|| {
            let names: Vec<&str> = self.rules.iter().map(|bound| bound.rule.name()).collect();
            let message = format!("there is no rule {name:?}; the rules are: {}", names.join(", "));
            Error::new(ErrorKind::UnknownRule, message)
        })
    }

    /// What was counted of a rule, here and by the memory store.
    fn decisions(&self, bound: &Bound) -> Vec<DecisionCount> {
        let in_memory = match &self.store {
            Store::Memory(store) => store.decided(bound.row.number as usize),
            Store::Redis(_) => [0, 0],
        };
        let is_memory = matches!(self.store, Store::Memory(_));
        let counted = bound.row.counts().map(|(origin, allowed, count)| {
            let more = if origin == Origin::Store { in_memory[usize::from(allowed)] } else { 0 };
            DecisionCount { rule: bound.rule.name().to_owned(), origin, allowed, count: count + more }
        });
        counted.filter(|row| !is_memory || row.origin == Origin::Store).collect()
    }

    /// Counts an error that a call returns.
    #[cold]
    fn failed(&self, error: &Error) {
        self.counters.failed(error.kind());
    }

    async fn refund(&self, receipt: &Receipt) -> Result<bool> {
        if receipt.prefix != *self.prefix {
            let message =
                format!("the receipt is of prefix {:?}, and this limiter's is {:?}", receipt.prefix, self.prefix);
            return Err(Error::new(ErrorKind::InvalidReceipt, message));
        }
        if receipt.is_empty() {
            return Ok(false);
        }
        spent().spend(receipt)?;
        let asked = |suffix: &str, charged: u32| self.rates.get(suffix).copied().unwrap_or(charged);
        let rates: Vec<u32> = receipt.charges.iter().map(|charge| asked(charge.suffix.text(), charge.rate)).collect();
        match &self.store {
            Store::Memory(store) => Ok(store.refund(receipt, &rates)),
            Store::Redis(remote) => {
                let deadline = clock::instant() + self.deadline;
                answer(remote.store()?.refund(receipt, &rates, deadline)?).await
            }
        }
    }

    async fn count(&self, rule: &str, key: &Key, window: Duration, step: Step) -> Result<Counted> {
        self.bound(rule)?;
        let window_ms = crate::rule::judged_window(window)
            .map_err(|error| Error::new(ErrorKind::InvalidRequest, error.message()))?;
        let (suffix, subject) = (crate::key::Suffix::new(rule, "count", window_ms, None), self.subject(key.clone())?);
        let tally = match &self.store {
            Store::Memory(store) => store.count(&suffix, window_ms * 1000, &subject, step),
            Store::Redis(remote) => {
                let deadline = clock::instant() + self.deadline;
                answer(remote.store()?.count(&suffix, window_ms, &subject, step, deadline)?).await?
            }
        };
        Ok(Counted::new(tally))
    }
}

/// The I/O thread answers every call by its deadline, unless it is gone.
async fn answer<T>(mut owed: crate::store::redis::Owed<T>) -> Result<T> {
    io::owed(&mut owed).await.unwrap_or_else(|| Err(ended()))
}

pub(crate) fn ended() -> Error {
    Error::new(ErrorKind::StoreUnavailable, "the I/O thread has ended")
}
