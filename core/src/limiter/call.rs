//! Calls in the making: one record carries everything, so that a new option breaks nobody.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Inner, Limiter};
use crate::algorithm::{Step, Tally};
use crate::blocking;
use crate::clock;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::plan::{Action, Call, Plan};
use crate::rule::MAX_UNITS;

type Running<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A call that has been made: `.await` it, or `.wait()` for it on this thread.
#[must_use = "nothing happens until it is awaited or waited for"]
pub struct Pending<T>(Running<T>);

impl<T> Pending<T> {
    pub(super) fn new(future: impl Future<Output = Result<T>> + Send + 'static) -> Pending<T> {
        Pending(Box::pin(future))
    }

    /// Blocks this thread until the answer is there, at the latest at the deadline.
    ///
    /// # Errors
    /// As the call says.
    pub fn wait(self) -> Result<T> {
        blocking::wait(self.0)
    }
}

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<T>> {
        self.0.as_mut().poll(context)
    }
}

/// The rules that a call names.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// One that the limiter has: what nearly every call names.
    One(Arc<Plan>),
    Several(Vec<String>),
    Unknown(Error),
}

impl Target {
    fn plan(self, inner: &Inner, limits: Option<&str>) -> Result<Arc<Plan>> {
        match (self, limits) {
            (Target::One(plan), None) => Ok(plan),
            (Target::One(plan), Some(_)) => inner.plan(&[plan.limits[0].rule.clone()], limits),
            (Target::Several(rules), limits) => inner.plan(&rules, limits),
            (Target::Unknown(error), _) => Err(error),
        }
    }
}

/// A check or peek in the making.
#[must_use = "nothing is decided until it is awaited or waited for"]
#[derive(Debug, Clone)]
pub struct Check {
    limiter: Limiter,
    action: Action,
    target: Target,
    key: Key,
    cost: u64,
    limits: Option<String>,
    id: Option<Vec<u8>>,
    deadline: Option<Duration>,
}

impl Check {
    pub(super) fn new(limiter: &Limiter, action: Action, target: Target, key: Key) -> Check {
        Check { limiter: limiter.clone(), action, target, key, cost: 1, limits: None, id: None, deadline: None }
    }

    /// The units that the request takes: 1 unless said, at most 10,000,000 (10,000 with a sliding_window_log).
    pub fn cost(mut self, cost: u64) -> Check {
        self.cost = cost;
        self
    }

    /// Limits instead of the rule's own, such as a customer's: `"1000/m"`. They share state with the rule's limits of
    /// the same algorithm and window.
    pub fn limits(mut self, limits: impl Into<String>) -> Check {
        self.limits = Some(limits.into());
        self
    }

    /// The request's id, 1 to 200 bytes: while it is live in a sliding_window_log of the call, the same request is
    /// allowed again and charged nothing. It must come from the application, never from a header.
    pub fn request_id(mut self, id: impl AsRef<[u8]>) -> Check {
        self.id = Some(id.as_ref().to_vec());
        self
    }

    /// How long the store may take; then the rule's `on_error` decides.
    pub fn deadline(mut self, deadline: Duration) -> Check {
        self.deadline = Some(deadline);
        self
    }

    /// Decides on this thread.
    ///
    /// # Errors
    /// `invalid_request`, `invalid_rule` or `unknown_rule`, before anything is sent. A store that fails is no error
    /// here: the rule's `on_error` decides.
    pub fn wait(self) -> Result<Decision> {
        let (limiter, call) = self.judged()?;
        match limiter.inner.decide_here(call) {
            Ok(decision) => Ok(decision),
            Err(call) => blocking::wait(limiter.inner.decide(call)),
        }
    }

    /// The limiter's own parts of the call, judged; nothing has been sent.
    pub(super) fn judged(self) -> Result<(Limiter, Call)> {
        let inner = &self.limiter.inner;
        let plan = self.target.plan(inner, self.limits.as_deref())?;
        let subject = inner.subject(self.key)?;
        let cost = plan.judged_cost(self.cost)?;
        let id = match self.action {
            Action::Peek if self.id.is_none() => crate::request_id::RequestId::new(),
            _ => plan.judged_id(self.id.as_deref())?,
        };
        let deadline = self.deadline.unwrap_or(inner.deadline);
        let call = Call { plan, subject, action: self.action, cost, id, deadline };
        Ok((self.limiter, call))
    }

    /// How things stand, for somebody who waited in vain.
    pub(super) async fn peeked(mut self) -> Result<Decision> {
        self.action = Action::Peek;
        self.decide().await
    }

    pub(super) async fn decide(self) -> Result<Decision> {
        let (limiter, call) = self.judged()?;
        limiter.inner.decide(call).await
    }
}

impl IntoFuture for Check {
    type Output = Result<Decision>;
    type IntoFuture = Pending<Decision>;

    fn into_future(self) -> Pending<Decision> {
        Pending::new(self.decide())
    }
}

/// An acquire in the making.
#[must_use = "nothing is acquired until it is awaited or waited for"]
#[derive(Debug, Clone)]
pub struct Acquire {
    check: Check,
    timeout: Duration,
}

/// How long an acquire waits unless told.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

impl Acquire {
    pub(super) fn new(check: Check) -> Acquire {
        Acquire { check, timeout: DEFAULT_TIMEOUT }
    }

    /// How long to wait at the most: 10 seconds unless said. A wait known to be longer is refused at once.
    pub fn timeout(mut self, timeout: Duration) -> Acquire {
        self.timeout = timeout;
        self
    }

    /// As [`Check::cost`].
    pub fn cost(mut self, cost: u64) -> Acquire {
        self.check = self.check.cost(cost);
        self
    }

    /// As [`Check::limits`].
    pub fn limits(mut self, limits: impl Into<String>) -> Acquire {
        self.check = self.check.limits(limits);
        self
    }

    /// As [`Check::deadline`], for each time that the store is asked.
    pub fn deadline(mut self, deadline: Duration) -> Acquire {
        self.check = self.check.deadline(deadline);
        self
    }

    /// Waits on this thread.
    ///
    /// # Errors
    /// As [`Check::wait`]. A timeout is a refusal, not an error.
    pub fn wait(self) -> Result<Decision> {
        blocking::wait(self.run())
    }

    async fn run(self) -> Result<Decision> {
        let until = clock::after(self.timeout);
        self.check.limiter.inner.lines.acquire(&self.check, until).await
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Decision>;
    type IntoFuture = Pending<Decision>;

    fn into_future(self) -> Pending<Decision> {
        Pending::new(self.run())
    }
}

/// A count in the making, for adapters that serve as another limiter's store.
#[derive(Debug, Clone)]
pub struct Count {
    limiter: Limiter,
    rule: String,
    key: Key,
    window: Duration,
}

impl Count {
    pub(super) fn new(limiter: &Limiter, rule: &str, key: Key, window: Duration) -> Count {
        Count { limiter: limiter.clone(), rule: rule.to_owned(), key, window }
    }

    /// Adds units (0 only looks) and tells the total. The window begins with the first hit; its expiry never moves.
    #[allow(clippy::should_implement_trait, reason = "counts are added to, never to each other")]
    pub fn add(self, units: u64) -> Pending<Counted> {
        self.step(units, Step::Add)
    }

    /// Takes units back from the window that began at `start`: never below 0, and nothing in another window.
    pub fn take_back(self, units: u64, start: u64) -> Pending<Counted> {
        self.step(units, move |units| Step::TakeBack { units, start })
    }

    fn step(self, units: u64, step: impl FnOnce(u32) -> Step + Send + 'static) -> Pending<Counted> {
        Pending::new(async move {
            let units = u32::try_from(units).ok().filter(|units| u64::from(*units) <= MAX_UNITS).ok_or_else(|| {
                let message = format!("{units} is too much for one count; write 0 to {MAX_UNITS}");
                Error::new(ErrorKind::InvalidRequest, message)
            })?;
            self.limiter.inner.count(&self.rule, &self.key, self.window, step(units)).await
        })
    }
}

/// What a count found.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The total in the window.
    pub total: u64,
    /// The time left of the window; 0 where there is none.
    pub left: Duration,
    /// When the window began by the store's clock, in microseconds since 1970; 0 where there is none.
    pub start: u64,
}

impl Counted {
    pub(super) fn new(tally: Tally) -> Counted {
        Counted { total: tally.total, left: Duration::from_micros(tally.left), start: tally.start }
    }
}
