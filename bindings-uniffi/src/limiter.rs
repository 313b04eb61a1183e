//! The limiter whose calls block the thread that makes them.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tidegate::{Check, Limiter as Core, Pending};

use crate::args::{Key, Options, Source, duration, milliseconds, signed, whole};
use crate::asynchronous::AsyncLimiter;
use crate::call::{Call, Completed};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::{TidegateError, invalid};
use crate::queue::Queue;

pub(crate) type Result<T, E = TidegateError> = std::result::Result<T, E>;

/// Decides whether somebody may pass a rule. Its calls block the thread that makes them, by their deadline at the latest.
///
/// A refusal is no error, and a store that fails is none either: then `check`, `peek` and `acquire` answer by the deadline, as
/// the rule's `on_error` says.
#[derive(Debug, uniffi::Object)]
pub struct Limiter {
    open: Open,
    /// What `refusals_ended` is the place of: it stays while this does.
    ended: Option<Arc<std::sync::atomic::AtomicU64>>,
}

/// A limiter that can be closed.
#[derive(Debug, Clone)]
pub(crate) struct Open(Arc<RwLock<Option<Core>>>);

impl Open {
    pub(crate) fn get(&self) -> Result<Core> {
        let limiter = self.0.read().unwrap_or_else(PoisonError::into_inner);
        limiter.clone().ok_or_else(|| invalid("the limiter is closed; make another"))
    }

    pub(crate) fn close(&self) {
        drop(self.0.write().unwrap_or_else(PoisonError::into_inner).take());
    }
}

#[uniffi::export]
impl Limiter {
    /// # Errors
    /// `invalid_document`, `invalid_rule` or `invalid_request` for what cannot be meant, with what to write instead. No server
    /// is asked yet.
    #[uniffi::constructor]
    pub fn new(source: Source) -> Result<Arc<Limiter>> {
        Ok(Limiter::of(source.builder()?.build()?))
    }

    /// A limiter that decides by a test's clock, in memory.
    #[uniffi::constructor]
    pub fn at(source: Source, clock: Arc<Clock>) -> Result<Arc<Limiter>> {
        Ok(Limiter::of(clock.limiter(&source)?))
    }

    /// The same limiter, for callers that await.
    pub fn asynchronous(&self) -> Arc<AsyncLimiter> {
        Arc::new(AsyncLimiter(self.open.clone()))
    }

    /// Decides whether a request may pass, and charges it. Several rules are decided together: all are charged, or none.
    pub fn check(&self, rules: Vec<String>, key: Key, options: Options) -> Result<Decision> {
        let decision = check(&self.open.get()?, false, &rules, key, options)?.wait()?;
        Ok(Decision::from(&decision))
    }

    /// What `check` would decide, without charging.
    pub fn peek(&self, rules: Vec<String>, key: Key, options: Options) -> Result<Decision> {
        let decision = check(&self.open.get()?, true, &rules, key, options)?.wait()?;
        Ok(Decision::from(&decision))
    }

    /// Begins to wait in line until the request may pass, at most so long: then the decision is a refusal. Those who wait in
    /// this process for one rule and key are served in their order.
    pub fn acquire(&self, rule: String, key: Key, options: Options, timeout_ms: i64) -> Result<Arc<Acquiring>> {
        let pending = acquire(&self.open.get()?, &rule, key, options, timeout_ms)?;
        Ok(Arc::new(Acquiring(Mutex::new(Place::InLine(pending)))))
    }

    /// Gives back what a decision charged, by its receipt, and tells whether anything was. Once: later calls give nothing
    /// back.
    pub fn refund(&self, receipt: String) -> Result<bool> {
        match refund(&self.open.get()?, &receipt)? {
            None => Ok(false),
            Some(pending) => Ok(pending.wait()?),
        }
    }

    /// Forgets what a rule has counted for a key. With limits given at calls, write them here too.
    pub fn reset(&self, rule: String, key: Key, limits: Option<String>) -> Result<()> {
        Ok(reset(&self.open.get()?, &rule, key, limits).wait()?)
    }

    /// Adds to a plain counter of a rule and key, whose window begins with the first hit and does not move; 0 only looks.
    pub fn count(&self, rule: String, key: Key, window_ms: i64, add: i64) -> Result<Counted> {
        Ok(count(&self.open.get()?, &rule, key, window_ms, add, None)?.wait()?.into())
    }

    /// Takes units back from the window that began at `start`: never below 0, and nothing in another window.
    pub fn take_back(&self, rule: String, key: Key, window_ms: i64, units: i64, start: i64) -> Result<Counted> {
        Ok(count(&self.open.get()?, &rule, key, window_ms, units, Some(start))?.wait()?.into())
    }

    /// Waits until the store can be used.
    pub fn ready(&self, timeout_ms: i64) -> Result<()> {
        Ok(self.open.get()?.ready(duration(timeout_ms)?).wait()?)
    }

    /// What has been counted since it was made, as JSON.
    pub fn metrics(&self) -> Result<String> {
        Ok(self.open.get()?.metrics().json())
    }

    /// The same as Prometheus scrapes it.
    pub fn prometheus(&self) -> Result<String> {
        Ok(self.open.get()?.metrics().prometheus())
    }

    /// The names of its rules.
    pub fn rules(&self) -> Result<Vec<String>> {
        Ok(self.open.get()?.rules().map(str::to_owned).collect())
    }

    /// Lets go of its connections. Calls that are on their way are answered; later ones are errors.
    pub fn close(&self) {
        self.open.close();
    }

    /// Submits many calls at once. Those that are answered at once are returned, and the others come to the queue.
    pub fn submit(&self, queue: &Queue, calls: Vec<Call>) -> Vec<Completed> {
        queue.submit(self.open.get(), calls)
    }

    /// The address of a number of eight bytes that moves with all that may end a refusal, while this object is there; 0 where
    /// no refusal is remembered.
    pub fn refusals_ended(&self) -> i64 {
        self.ended.as_ref().map_or(0, |number| (number.as_ptr() as usize).cast_signed() as i64)
    }

    /// Counts refusals of a check of these rules that were repeated elsewhere.
    pub fn repeated(&self, rules: Vec<String>, times: i64) -> Result<()> {
        Ok(self.open.get()?.repeated(rules.iter().map(String::as_str), whole(times, "count")?)?)
    }
}

impl Limiter {
    pub(crate) fn of(limiter: Core) -> Arc<Limiter> {
        let ended = limiter.refusals_ended();
        Arc::new(Limiter { open: Open(Arc::new(RwLock::new(Some(limiter)))), ended })
    }
}

/// An acquire that waits in line. Nothing waits by itself: `wait` does. To let go of it gives the place up.
#[derive(Debug, uniffi::Object)]
pub struct Acquiring(Mutex<Place>);

/// Where an acquire is.
#[derive(Debug)]
enum Place {
    InLine(Pending<tidegate::Decision>),
    /// With the receipt of what it charged, which is empty if that was nothing.
    Ended(String),
}

/// The longest that one `wait` takes.
const MOST: Duration = Duration::from_secs(60);

#[uniffi::export]
impl Acquiring {
    /// Blocks for so many milliseconds at the most; none if it is not decided yet. Once it is, later calls are errors.
    pub fn wait(&self, most_ms: i64) -> Result<Option<Decision>> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Place::InLine(pending) = &mut *place else {
            return Err(invalid("the acquire has ended; begin another"));
        };
        let Some(decided) = pending.wait_for(duration(most_ms)?.min(MOST)) else { return Ok(None) };
        let decided = decided.map(|decision| Decision::from(&decision));
        *place = Place::Ended(decided.as_ref().map(|decision| decision.receipt.clone()).unwrap_or_default());
        Ok(Some(decided?))
    }

    /// Gives the place in line up; what it has charged is given back. Where it was decided, the receipt of what that charged is
    /// returned, for `refund`: a caller that was interrupted may not have come to know of it. Else it is empty.
    pub fn call_off(&self) -> String {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *place, Place::Ended(String::new())) {
            Place::InLine(_) => String::new(),
            Place::Ended(receipt) => receipt,
        }
    }
}

/// What a count found.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Counted {
    /// The total in the window.
    pub total: i64,
    /// Milliseconds left of the window, rounded up; 0 where there is none.
    pub left_ms: i64,
    /// When the window began by the store's clock, in microseconds since 1970; 0 where there is none.
    pub start: i64,
}

impl From<tidegate::Counted> for Counted {
    fn from(counted: tidegate::Counted) -> Counted {
        Counted { total: signed(counted.total), left_ms: milliseconds(counted.left), start: signed(counted.start) }
    }
}

pub(crate) fn check<'l>(
    limiter: &'l Core,
    is_peek: bool,
    rules: &[String],
    key: Key,
    options: Options,
) -> Result<Check<'l>> {
    let (key, names) = (key.key(), rules.iter().map(String::as_str));
    let mut check = match (is_peek, rules) {
        (false, [rule]) => limiter.check(rule, key),
        (false, _) => limiter.check_all(names, key),
        (true, [rule]) => limiter.peek(rule, key),
        (true, _) => limiter.peek_all(names, key),
    };
    check = check.cost(whole(options.cost, "cost")?);
    if let Some(limits) = options.limits {
        check = check.limits(limits);
    }
    if let Some(id) = options.request_id {
        check = check.request_id(id);
    }
    if let Some(deadline) = options.deadline_ms {
        check = check.deadline(duration(deadline)?);
    }
    Ok(check)
}

pub(crate) fn acquire(
    limiter: &Core,
    rule: &str,
    key: Key,
    options: Options,
    timeout_ms: i64,
) -> Result<Pending<tidegate::Decision>> {
    Ok(acquiring(limiter, rule, key, options, timeout_ms)?.into_future())
}

pub(crate) fn acquiring<'l>(
    limiter: &'l Core,
    rule: &str,
    key: Key,
    options: Options,
    timeout_ms: i64,
) -> Result<tidegate::Acquire<'l>> {
    if options.request_id.is_some() {
        return Err(invalid("an acquire takes no request id; leave it out"));
    }
    let mut acquire = limiter.acquire(rule, key.key()).timeout(duration(timeout_ms)?);
    acquire = acquire.cost(whole(options.cost, "cost")?);
    if let Some(limits) = options.limits {
        acquire = acquire.limits(limits);
    }
    if let Some(deadline) = options.deadline_ms {
        acquire = acquire.deadline(duration(deadline)?);
    }
    Ok(acquire)
}

/// None for the empty receipt of what charged nothing.
pub(crate) fn refund(limiter: &Core, receipt: &str) -> Result<Option<Pending<bool>>> {
    if receipt.is_empty() {
        return Ok(None);
    }
    Ok(Some(limiter.refund(&receipt.parse()?)))
}

pub(crate) fn reset(limiter: &Core, rule: &str, key: Key, limits: Option<String>) -> Pending<()> {
    match limits {
        None => limiter.reset(rule, key.key()),
        Some(limits) => limiter.reset_with_limits(rule, key.key(), &limits),
    }
}

pub(crate) fn count(
    limiter: &Core,
    rule: &str,
    key: Key,
    window_ms: i64,
    units: i64,
    start: Option<i64>,
) -> Result<Pending<tidegate::Counted>> {
    let count = limiter.count(rule, key.key(), duration(window_ms)?);
    let units = whole(units, "count")?;
    Ok(match start {
        None => count.add(units),
        Some(start) => count.take_back(units, whole(start, "start of the window")?),
    })
}
