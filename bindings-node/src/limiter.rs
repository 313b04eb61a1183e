//! The limiter: what it is made of, and its calls, which are answered through a queue.

use std::cell::RefCell;
use std::rc::Rc;

use napi::bindgen_prelude::Uint8ArraySlice;
use napi_derive::napi;
use tidegate::{Check, Document, Format, Limiter};

use crate::args::{Numbers, duration, index, key, whole};
use crate::clock::Clock;
use crate::error::{Result, invalid, thrown};
use crate::queue::{Acquiring, Queue};

/// What `Limiter` is made of.
#[napi]
pub struct Core {
    shared: Rc<RefCell<Shared>>,
}

/// What a core and its functions share.
pub(crate) struct Shared {
    /// None once closed.
    limiter: Option<Limiter>,
    /// The rules that checks name, each list once.
    targets: Vec<Vec<String>>,
}

#[napi]
impl Core {
    #[napi(constructor)]
    pub fn new(document: String, format: String, clock: Option<&Clock>) -> Result<Core> {
        let document = read(&document, &format).map_err(thrown)?;
        let mut builder = Limiter::builder().document(&document);
        if let Some(clock) = clock {
            builder = clock.given_to(builder);
        }
        builder.build().map(Core::of).map_err(thrown)
    }

    /// The number under which checks name these rules.
    #[napi]
    pub fn target(&self, rules: Vec<String>) -> u32 {
        let targets = &mut self.shared.borrow_mut().targets;
        targets.push(rules);
        u32::try_from(targets.len() - 1).unwrap_or(u32::MAX)
    }

    /// Forgets all of them.
    #[napi]
    pub fn forget_targets(&self) {
        self.shared.borrow_mut().targets.clear();
    }

    #[napi]
    #[allow(clippy::too_many_arguments, reason = "JavaScript's options")]
    pub fn acquire(
        &self,
        queue: &Queue,
        ticket: f64,
        rule: String,
        subject: Uint8ArraySlice<'_>,
        parts: u32,
        cost: f64,
        limits: Option<String>,
        deadline: Option<f64>,
        timeout: f64,
    ) -> Result<Acquiring> {
        let (limiter, subject) = (self.open()?, key(&subject, parts as usize)?);
        let mut acquire = limiter.acquire(&rule, subject).timeout(duration(timeout)?).cost(whole(cost, "cost")?);
        if let Some(limits) = limits {
            acquire = acquire.limits(limits);
        }
        if let Some(deadline) = deadline {
            acquire = acquire.deadline(duration(deadline)?);
        }
        acquire.submit(&queue.completions, whole(ticket, "ticket")?).map(Acquiring).map_err(thrown)
    }

    #[napi]
    pub fn refund(&self, queue: &Queue, ticket: f64, receipt: String) -> Result<()> {
        let receipt = receipt.parse().map_err(thrown)?;
        self.open()?.refund(&receipt).submit(&queue.completions, whole(ticket, "ticket")?).map_err(thrown)
    }

    #[napi]
    pub fn reset(
        &self,
        queue: &Queue,
        ticket: f64,
        rule: String,
        subject: Uint8ArraySlice<'_>,
        parts: u32,
        limits: Option<String>,
    ) -> Result<()> {
        let (limiter, subject) = (self.open()?, key(&subject, parts as usize)?);
        let reset = match limits {
            None => limiter.reset(&rule, subject),
            Some(limits) => limiter.reset_with_limits(&rule, subject, &limits),
        };
        reset.submit(&queue.completions, whole(ticket, "ticket")?).map_err(thrown)
    }

    /// Adds to a plain counter; with a start, takes back from the window that began then.
    #[napi]
    #[allow(clippy::too_many_arguments, reason = "JavaScript's options")]
    pub fn count(
        &self,
        queue: &Queue,
        ticket: f64,
        rule: String,
        subject: Uint8ArraySlice<'_>,
        parts: u32,
        window: f64,
        units: f64,
        start: Option<f64>,
    ) -> Result<()> {
        let count = self.open()?.count(&rule, key(&subject, parts as usize)?, duration(window)?);
        let units = whole(units, "count")?;
        let counted = match start {
            None => count.add(units),
            Some(start) => count.take_back(units, whole(start, "start of the window")?),
        };
        counted.submit(&queue.completions, whole(ticket, "ticket")?).map_err(thrown)
    }

    #[napi]
    pub fn log(
        &self,
        queue: &Queue,
        ticket: f64,
        rule: String,
        subject: Uint8ArraySlice<'_>,
        parts: u32,
        limits: Option<String>,
    ) -> Result<()> {
        let (limiter, subject) = (self.open()?, key(&subject, parts as usize)?);
        let log = match limits {
            None => limiter.log(&rule, subject),
            Some(limits) => limiter.log_with_limits(&rule, subject, &limits),
        };
        log.submit(&queue.completions, whole(ticket, "ticket")?).map_err(thrown)
    }

    #[napi]
    pub fn ready(&self, queue: &Queue, ticket: f64, timeout: f64) -> Result<()> {
        let ready = self.open()?.ready(duration(timeout)?);
        ready.submit(&queue.completions, whole(ticket, "ticket")?).map_err(thrown)
    }

    /// What has been counted, as JSON.
    #[napi]
    pub fn metrics(&self) -> Result<String> {
        Ok(self.open()?.metrics().json())
    }

    /// What has been counted, as Prometheus scrapes it.
    #[napi]
    pub fn prometheus(&self) -> Result<String> {
        Ok(self.open()?.metrics().prometheus())
    }

    #[napi(getter)]
    pub fn rules(&self) -> Result<Vec<String>> {
        Ok(self.open()?.rules().map(str::to_owned).collect())
    }

    #[napi]
    pub fn close(&self) {
        self.shared.borrow_mut().limiter = None;
    }
}

impl Core {
    pub(crate) fn of(limiter: Limiter) -> Core {
        Core { shared: Rc::new(RefCell::new(Shared { limiter: Some(limiter), targets: Vec::new() })) }
    }

    pub(crate) fn shared(&self) -> Rc<RefCell<Shared>> {
        Rc::clone(&self.shared)
    }

    fn open(&self) -> Result<Limiter> {
        self.shared.borrow().open().cloned()
    }
}

impl Shared {
    fn open(&self) -> Result<&Limiter> {
        self.limiter.as_ref().ok_or_else(|| invalid("the limiter is closed; make another"))
    }
}

/// Checks as JavaScript has written them, each in nine numbers: its ticket, target, cost, whether it is a peek, its
/// deadline or -1, the length of its key and of how many parts that is, and the lengths of limits and id or -1; then these.
/// `lib/batch.ts` writes them.
pub(crate) struct Asked<'a>(Numbers<'a, 9>);

impl<'a> Asked<'a> {
    pub(crate) fn new(written: &'a [u8]) -> Asked<'a> {
        Asked(Numbers::new(written))
    }

    /// Whether they are to be decided here and now.
    pub(crate) fn is_here(&self) -> bool {
        self.0.flag
    }

    /// The ticket of the next, and the check.
    pub(crate) fn next<'l>(&mut self, shared: &'l Shared) -> Option<(u64, Result<Check<'l>>)> {
        let [ticket, head @ ..] = self.0.next()?;
        Some((index(ticket).unwrap_or_default() as u64, self.check(shared, head)))
    }

    fn check<'l>(&mut self, shared: &'l Shared, head: [f64; 8]) -> Result<Check<'l>> {
        let [target, cost, action, deadline, key_length, parts, limits, id] = head;
        // First the bytes: those of the next check come behind them, whatever becomes of this one.
        let subject = self.0.take(key_length)?.unwrap_or_default();
        let (limits, id) = (self.0.take(limits)?, self.0.take(id)?);
        let limiter = shared.open()?;
        let rules = shared.targets.get(index(target)?).ok_or_else(|| invalid("no rules have this number"))?;
        let (subject, names) = (key(subject, index(parts)?)?, rules.iter().map(String::as_str));
        let mut check = match (action > 0.0, &rules[..]) {
            (false, [rule]) => limiter.check(rule, subject),
            (false, _) => limiter.check_all(names, subject),
            (true, [rule]) => limiter.peek(rule, subject),
            (true, _) => limiter.peek_all(names, subject),
        };
        check = check.cost(whole(cost, "cost")?);
        if let Some(limits) = limits {
            check = check.limits(String::from_utf8_lossy(limits));
        }
        if let Some(id) = id {
            check = check.request_id(id);
        }
        if deadline >= 0.0 {
            check = check.deadline(duration(deadline)?);
        }
        Ok(check)
    }
}

/// A document from its text, or from the file that a path names.
pub(crate) fn read(document: &str, format: &str) -> tidegate::Result<Document> {
    match format {
        "path" => Document::read(document),
        "toml" => Document::parse(document, Format::Toml),
        "yaml" => Document::parse(document, Format::Yaml),
        _ => Document::parse(document, Format::Json),
    }
}
