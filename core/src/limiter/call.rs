//! Calls in the making: one record carries everything, so that a new option breaks nobody.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Inner, Limiter, MAX_DEADLINE, line};
use crate::algorithm::{Step, Tally};
use crate::blocking::{self, Errand};
use crate::clock;
use crate::completion::{Completions, Outcome, Submitted, Then};
use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::plan::{Action, Call, Plan};
use crate::request_id::RequestId;
use crate::rule::MAX_UNITS;
use crate::trace::Span;

type Running<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A call that has been made: `.await` it, or `.wait()` for it on this thread.
#[must_use = "nothing happens until it is awaited or waited for"]
pub struct Pending<T> {
    running: Running<T>,
    /// What a wait was too short for.
    errand: Option<Errand>,
}

impl<T> Pending<T> {
    pub(crate) fn new(future: impl Future<Output = Result<T>> + Send + 'static) -> Pending<T> {
        Pending { running: Box::pin(future), errand: None }
    }

    /// Blocks this thread until the answer is there, at the latest at the deadline.
    ///
    /// # Errors
    /// As the call says.
    pub fn wait(mut self) -> Result<T> {
        if let Some(errand) = self.errand.take() {
            errand();
        }
        blocking::wait(self.running)
    }

    /// Blocks this thread for so long at the most: for whoever has to look after something else in between, as an
    /// interpreter after signals. None if the answer is not there yet; then wait again, or drop it, which calls it off. After
    /// a wait of no time at all, which is for what is known at once, do so soon.
    ///
    /// # Errors
    /// As the call says.
    pub fn wait_for(&mut self, most: Duration) -> Option<Result<T>> {
        blocking::wait_for(self.running.as_mut(), most, &mut self.errand)
    }
}

impl<T: Into<Outcome> + 'static> Pending<T> {
    /// Sets out on this thread; what is known at once is returned. Only what has to be waited for is waited for elsewhere.
    pub(crate) fn submit_now(mut self, to: &Completions, ticket: u64) -> Result<Option<T>> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match self.running.as_mut().poll(&mut context) {
            std::task::Poll::Ready(done) => done.map(Some),
            std::task::Poll::Pending => self.submit(to, ticket).map(|()| None),
        }
    }

    /// Runs it on the I/O thread, in memory too; the answer comes to the queue under this ticket. For checks there is
    /// [`Check::submit`], which costs less, and for acquires [`Acquire::submit`].
    ///
    /// # Errors
    /// `invalid_request` for a queue that was made before a fork of this process, and `store_unavailable` if the I/O
    /// thread cannot be started. Nothing comes to the queue then.
    pub fn submit(self, to: &Completions, ticket: u64) -> Result<()> {
        to.run(ticket, None, self.running).map(drop)
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Lets it go on without anybody who waits for it, or learns what becomes of it. In memory it is done at once.
    pub fn detach(mut self) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if self.running.as_mut().poll(&mut context).is_pending()
            && let Ok(handle) = crate::io::handle()
        {
            handle.spawn(self.running);
        }
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
        // Whoever polls does not block: it is done elsewhere.
        drop(self.errand.take());
        self.running.as_mut().poll(context)
    }
}

/// A check that was begun.
#[derive(Debug)]
#[must_use = "a check that is pending is not decided until it is awaited or waited for"]
pub enum Begun {
    /// It needed no waiting.
    Decided(Decision),
    /// The store is to be asked: it is when this is first polled or waited for.
    Pending(Pending<Decision>),
}

/// The rules that a call names.
#[derive(Debug, Clone)]
pub(super) enum Target<'a> {
    /// Those of a plan: what nearly every call names is one that the limiter has.
    Planned(&'a Arc<Plan>),
    Named(Vec<String>),
}

impl Target<'_> {
    /// The rule, where it is one that the limiter has.
    fn rule(&self) -> Option<&str> {
        let Target::Planned(plan) = self else { return None };
        let rules = plan.rules();
        if let [rule] = rules[..] { Some(rule) } else { None }
    }

    #[inline]
    fn plan(self, inner: &Inner, limits: Option<&str>) -> Result<Arc<Plan>> {
        match (self, limits) {
            (Target::Planned(plan), None) => Ok(Arc::clone(plan)),
            (Target::Planned(plan), Some(_)) => {
                let rules: Vec<String> = plan.rules().into_iter().map(str::to_owned).collect();
                inner.plan(&rules, limits)
            }
            (Target::Named(rules), limits) => inner.plan(&rules, limits),
        }
    }
}

/// A check or peek in the making.
#[must_use = "nothing is decided until it is awaited or waited for"]
#[derive(Debug, Clone)]
pub struct Check<'a> {
    limiter: &'a Limiter,
    target: Target<'a>,
    key: Key,
    cost: u64,
    action: Action,
    /// What few calls have, apart: a check is moved a few times on its way.
    extra: Option<Box<Extra>>,
}

#[derive(Debug, Clone, Default)]
struct Extra {
    limits: Option<String>,
    id: Option<Vec<u8>>,
    deadline: Option<Duration>,
}

impl<'a> Check<'a> {
    #[inline]
    pub(super) fn new(limiter: &'a Limiter, action: Action, target: Target<'a>, key: Key) -> Check<'a> {
        Check { limiter, target, key, cost: 1, action, extra: None }
    }

    /// The units that the request takes: 1 unless said, at most 10,000,000 (10,000 with a sliding_window_log).
    pub fn cost(mut self, cost: u64) -> Check<'a> {
        self.cost = cost;
        self
    }

    /// Limits instead of the rule's own, such as a customer's: `"1000/m"`. They share state with the rule's limits of
    /// the same algorithm and window.
    pub fn limits(mut self, limits: impl Into<String>) -> Check<'a> {
        self.extra().limits = Some(limits.into());
        self
    }

    /// The request's id, 1 to 200 bytes: while it is live in a sliding_window_log of the call, the same request is
    /// allowed again and charged nothing. It must come from the application, never from a header.
    pub fn request_id(mut self, id: impl AsRef<[u8]>) -> Check<'a> {
        self.extra().id = Some(id.as_ref().to_vec());
        self
    }

    /// How long the store may take, at most 60 s; then the rule's `on_error` decides. The limiter's unless said.
    pub fn deadline(mut self, deadline: Duration) -> Check<'a> {
        self.extra().deadline = Some(deadline);
        self
    }

    /// Decides on this thread.
    ///
    /// # Errors
    /// `invalid_request`, `invalid_rule` or `unknown_rule`, before anything is sent. A store that fails is no error
    /// here: the rule's `on_error` decides.
    #[inline]
    pub fn wait(self) -> Result<Decision> {
        let inner = &self.limiter.inner;
        let call = match self.judged() {
            Ok(call) => call,
            Err(error) => {
                inner.failed(&error);
                return Err(error);
            }
        };
        if Span::EXISTS {
            return Ok(blocking::wait(inner.decide(call)));
        }
        // The same without a span: even one that is nothing makes the compiler copy the decision once more.
        match inner.decide_here(call) {
            Ok(decision) => Ok(decision),
            Err((remote, call)) => Ok(super::decide::ask_and_wait(remote, call)),
        }
    }

    /// Decides where that needs no waiting: in memory, and from a refusal that is remembered. Otherwise tells what is to be
    /// waited for. For bindings, which wait otherwise than they decide.
    ///
    /// # Errors
    /// As [`wait`](Check::wait).
    pub fn begin(self) -> Result<Begun> {
        let limiter = self.limiter;
        let call = self.judged().inspect_err(|error| limiter.inner.failed(error))?;
        let span = Span::check(&call);
        match span.within(|| limiter.inner.decide_here(call)) {
            Ok(decision) => {
                span.decided(&decision);
                Ok(Begun::Decided(decision))
            }
            Err((_, call)) => Ok(Begun::Pending(limiter.ask(call, span))),
        }
    }

    /// Decides for an event loop, without waiting. What is known at once is returned: in memory, from a refusal that is
    /// remembered, by the failure policy. Otherwise none is, and the decision comes to the queue under this ticket.
    ///
    /// # Errors
    /// As [`wait`](Check::wait), and `invalid_request` for a queue that was made before a fork of this process; nothing
    /// comes to the queue then.
    pub fn submit(self, to: &Completions, ticket: u64) -> Result<Option<Decision>> {
        let done = self.submit_then(to, ticket, Box::new(Outcome::Decision))?;
        Ok(done.map(|(decision, _)| decision))
    }

    /// The same for something that is made of the decision: where that is there at once, it is returned with `then`.
    pub(crate) fn submit_then(self, to: &Completions, ticket: u64, then: Then) -> Result<Option<(Decision, Then)>> {
        let inner = &self.limiter.inner;
        let call = to.takes_calls().and_then(|()| self.judged()).inspect_err(|error| inner.failed(error))?;
        let span = Span::check(&call);
        let done = span.within(|| match inner.decide_here(call) {
            Ok(decision) => Some((decision, then)),
            Err((remote, call)) => super::decide::submit(remote, call, &span, to, ticket, then),
        });
        done.iter().for_each(|(decision, _)| span.decided(decision));
        Ok(done)
    }

    /// The refusal that this process remembers of it, if any, without asking: counted as the check would be. Nothing in
    /// memory, for a peek, and for a call that cannot be meant, which says so when it is made.
    pub(crate) fn remembered(&self) -> Option<Decision> {
        self.limiter.inner.decide_from_cache(self.clone().judged().ok()?)
    }

    /// The same in public, for tests.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn remembered_refusal(&self) -> Option<Decision> {
        self.remembered()
    }

    /// The call, judged; nothing has been sent.
    #[inline(always)]
    pub(super) fn judged(self) -> Result<Call> {
        let inner = &self.limiter.inner;
        let extra = self.extra.map(|extra| *extra).unwrap_or_default();
        let plan = self.target.plan(inner, extra.limits.as_deref())?;
        let subject = inner.subject(self.key)?;
        let cost = plan.judged_cost(self.cost)?;
        let id = match self.action {
            Action::Peek if extra.id.is_none() => RequestId::default(),
            _ => plan.judged_id(extra.id.as_deref())?,
        };
        let deadline = match extra.deadline {
            Some(deadline) if deadline.is_zero() || deadline > MAX_DEADLINE => {
                let message = format!("the deadline {deadline:?} is out of range; write 1 ms to 60 s");
                return Err(Error::new(ErrorKind::InvalidRequest, message));
            }
            deadline => deadline.unwrap_or(inner.deadline),
        };
        let counts = self.action == Action::Check;
        Ok(Call { plan, subject, action: self.action, cost, id, deadline, counts })
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }
}

impl IntoFuture for Check<'_> {
    type Output = Result<Decision>;
    type IntoFuture = Pending<Decision>;

    fn into_future(self) -> Pending<Decision> {
        let (limiter, call) = (self.limiter.clone(), self.judged());
        Pending::new(async move {
            let call = call.inspect_err(|error| limiter.inner.failed(error))?;
            Ok(limiter.inner.decide(call).await)
        })
    }
}

/// An acquire in the making.
#[must_use = "nothing is acquired until it is awaited or waited for"]
#[derive(Debug, Clone)]
pub struct Acquire<'a> {
    check: Check<'a>,
    timeout: Duration,
}

/// How long an acquire waits unless told.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

impl<'a> Acquire<'a> {
    pub(super) fn new(check: Check<'a>) -> Acquire<'a> {
        Acquire { check, timeout: DEFAULT_TIMEOUT }
    }

    /// How long to wait at the most: 10 seconds unless said. A wait known to be longer is refused at once.
    pub fn timeout(mut self, timeout: Duration) -> Acquire<'a> {
        self.timeout = timeout;
        self
    }

    /// As [`Check::cost`].
    pub fn cost(mut self, cost: u64) -> Acquire<'a> {
        self.check = self.check.cost(cost);
        self
    }

    /// As [`Check::limits`].
    pub fn limits(mut self, limits: impl Into<String>) -> Acquire<'a> {
        self.check = self.check.limits(limits);
        self
    }

    /// As [`Check::deadline`], for each time that the store is asked.
    pub fn deadline(mut self, deadline: Duration) -> Acquire<'a> {
        self.check = self.check.deadline(deadline);
        self
    }

    /// Waits on this thread.
    ///
    /// # Errors
    /// As [`Check::wait`]. A timeout is a refusal, not an error.
    pub fn wait(self) -> Result<Decision> {
        self.into_future().wait()
    }

    /// Waits for an event loop, on the I/O thread; the decision comes to the queue under this ticket.
    ///
    /// # Errors
    /// As [`wait`](Acquire::wait); `invalid_request` for a queue that was made before a fork of this process, and
    /// `store_unavailable` if the I/O thread cannot be started. Nothing comes to the queue then.
    pub fn submit(self, to: &Completions, ticket: u64) -> Result<Submitted> {
        let (limiter, until, span) = (self.check.limiter.clone(), clock::after(self.timeout), self.span());
        let call = self.check.judged().inspect_err(|error| limiter.inner.failed(error))?;
        let waiting = limiter.clone();
        let acquire = async move { Ok(line::acquire(&waiting.inner, call, until).await) };
        to.run(ticket, Some(limiter), span.follow(acquire))
    }

    fn span(&self) -> Span {
        Span::call("acquire", self.check.target.rule())
    }
}

impl IntoFuture for Acquire<'_> {
    type Output = Result<Decision>;
    type IntoFuture = Pending<Decision>;

    fn into_future(self) -> Pending<Decision> {
        let (limiter, timeout, span) = (self.check.limiter, self.timeout, self.span());
        let call = self.check.judged();
        limiter.begin(span, move |limiter| async move {
            Ok(line::acquire(&limiter.inner, call?, clock::after(timeout)).await)
        })
    }
}

/// A count in the making, for adapters that serve as another limiter's store.
#[must_use = "nothing is counted until it is told what to add"]
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
    ///
    /// # Errors
    /// `invalid_request` for more than 10,000,000 units or a window out of range, `unknown_rule`, and what the store
    /// says: there is no failure policy for counts.
    #[allow(clippy::should_implement_trait, reason = "counts are added to, never to each other")]
    pub fn add(self, units: u64) -> Pending<Counted> {
        self.step(units, Step::Add)
    }

    /// Takes units back from the window that began at `start`: never below 0, and nothing in another window.
    ///
    /// # Errors
    /// As [`add`](Count::add).
    pub fn take_back(self, units: u64, start: u64) -> Pending<Counted> {
        self.step(units, move |units| Step::TakeBack { units, start })
    }

    fn step(self, units: u64, step: impl FnOnce(u32) -> Step + Send + 'static) -> Pending<Counted> {
        let Count { limiter, rule, key, window } = self;
        limiter.begin(Span::call("count", Some(&rule)), |limiter| async move {
            let units = u32::try_from(units).ok().filter(|units| u64::from(*units) <= MAX_UNITS).ok_or_else(|| {
                let message = format!("{units} is too much for one count; write 0 to {MAX_UNITS}");
                Error::new(ErrorKind::InvalidRequest, message)
            })?;
            limiter.inner.count(&rule, &key, window, step(units)).await
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
