//! The policy: a document at work, exchanged whole when it changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::admission::LOG;
use super::headers::KeptField;
use super::invalid;
use super::metrics::{Counts, PolicyMetrics, Totals};
use super::request::Request;
use super::site::{Route, Site};
use crate::clock::{self, Clock, Look};
use crate::document::Document;
use crate::error::{Error, ErrorKind, Result};
use crate::limiter::{Builder, Limiter, Pending};
use crate::plan::Plan;

/// Which rules requests have, from a document: for servers and their middleware. Cheap to clone; clones share everything.
///
/// ```
/// use tidegate::{Document, http::Policy};
///
/// let document = Document::from_toml(r#"
///     version = 1
///     [rules]
///     login = "1/m"
///     [[routes]]
///     path = "/login"
///     rules = "login"
///     key = "ip"
/// "#)?;
/// let policy = Policy::new(&document)?;
///
/// let admission = policy.request("POST", "/login").peer("203.0.113.7").admit().wait()?; // or .await
/// assert!(admission.allowed());
/// let admission = policy.request("POST", "/login").peer("203.0.113.7").admit().wait()?;
/// assert_eq!(admission.status(), Some(429));
/// assert!(admission.headers().contains(&("Retry-After", "60".to_owned())));
///
/// assert!(policy.request("GET", "/").admit().wait()?.allowed()); // no route, and so no limit
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone)]
pub struct Policy {
    shared: Arc<Shared>,
}

struct Shared {
    state: ArcSwap<State>,
    watched: Option<Watched>,
    clock: Clock,
    /// Of those who reload.
    turn: Mutex<()>,
}

/// What one document has made.
pub(super) struct State {
    pub(super) site: Arc<Site>,
    pub(super) limiter: Limiter,
    /// Of each route and each of its groups.
    pub(super) plans: Vec<Vec<Planned>>,
    /// Of each route.
    pub(super) counts: Vec<Arc<Counts>>,
    /// Of every route that there ever was, by name and whether it only reports: what comes again goes on.
    counted: HashMap<(Arc<str>, bool), Arc<Counts>>,
    pub(super) totals: Arc<Totals>,
    document: Document,
    clock: Clock,
}

/// The rules of a group, ready to be decided, and what responses say of them.
pub(super) struct Planned {
    pub(super) plan: Arc<Plan>,
    pub(super) policy_field: KeptField,
}

/// A file that is looked at while requests come. There is no thread for it, which a fork would end.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    began: Instant,
    /// When to look again, in milliseconds since it began; whoever moves it looks.
    next: AtomicU64,
    /// The text that was taken last, good or not; none while it cannot be read.
    text: ArcSwap<Option<String>>,
    /// The text that the last look found.
    seen: ArcSwap<Option<String>>,
}

/// How often a watched file is looked at, in milliseconds.
const LOOK_EVERY: u64 = 1_000;
/// How soon a text that has changed is looked at again.
const LOOK_AGAIN: u64 = 100;
/// The longest that a reload waits for another.
const TURN: Duration = Duration::from_secs(5);

impl Policy {
    /// A policy of a document, with `TIDEGATE_URL` before its url. Connecting goes on in the background.
    ///
    /// # Errors
    /// `invalid_document` for a document without routes; what [`Builder::build`] says.
    pub fn new(document: &Document) -> Result<Policy> {
        Policy::begin(document, Clock::Asked, None)
    }

    /// A policy of a file, which is read again when it changes: it is looked at once a second, while requests come. What
    /// is wrong with it then is logged (target `tidegate::http`) and counted, and the old document stays.
    ///
    /// # Errors
    /// As [`Document::read`] and [`Policy::new`].
    pub fn watch(path: impl AsRef<Path>) -> Result<Policy> {
        let path = path.as_ref();
        // Read before the document is: a change in between is seen later, and none is missed.
        let text = Arc::new(std::fs::read_to_string(path).ok());
        let document = Document::read(path)?;
        let (text, seen) = (ArcSwap::new(Arc::clone(&text)), ArcSwap::new(text));
        let (path, began, next) = (path.to_owned(), clock::instant(), AtomicU64::new(LOOK_EVERY));
        Policy::begin(&document, Clock::Asked, Some(Watched { path, began, next, text, seen }))
    }

    /// A policy in memory, whatever the document's url and `TIDEGATE_URL` say, whose time the caller sets, in
    /// microseconds since 1970: for tests of what uses one.
    ///
    /// # Errors
    /// As [`Policy::new`].
    pub fn in_memory_at(document: &Document, clock: &Arc<AtomicU64>) -> Result<Policy> {
        let limiter = Limiter::builder().document(document).in_memory_at(clock).build()?;
        let clock = Clock::Given(Arc::clone(clock));
        Ok(Policy::of(State::on(limiter, document, clock.clone(), None)?, clock, None))
    }

    /// A policy whose time the caller sets, in microseconds since 1970: for tests.
    ///
    /// # Errors
    /// As [`Policy::new`].
    #[cfg(feature = "testing")]
    pub fn with_clock(document: &Document, clock: &Arc<AtomicU64>) -> Result<Policy> {
        Policy::begin(document, Clock::Given(Arc::clone(clock)), None)
    }

    fn begin(document: &Document, clock: Clock, watched: Option<Watched>) -> Result<Policy> {
        Ok(Policy::of(State::new(document, clock.clone(), None)?, clock, watched))
    }

    fn of(state: State, clock: Clock, watched: Option<Watched>) -> Policy {
        let shared = Shared { state: ArcSwap::from_pointee(state), watched, clock, turn: Mutex::default() };
        Policy { shared: Arc::new(shared) }
    }

    /// A request, by its method and its path as the application's router sees it: that chooses its route. A query string
    /// does not matter.
    pub fn request(&self, method: &str, path: &str) -> Request {
        self.look();
        let state = self.shared.state.load_full();
        let route = state.site.route(method, path);
        Request::new(state, route, method)
    }

    /// A request whose route the application names, whatever its path is.
    ///
    /// # Errors
    /// `invalid_request` if no route has this name.
    pub fn named(&self, method: &str, route: &str) -> Result<Request> {
        self.look();
        let state = self.shared.state.load_full();
        let Some(place) = state.site.named(route) else {
            let names: Vec<&str> = state.site.routes.iter().map(|route| &*route.name).collect();
            let message = format!("there is no route {route:?}; the routes are: {}", names.join(", "));
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        };
        Ok(Request::new(state, Some(place), method))
    }

    /// The request headers that any route needs, in lower case, for callers who hand the same over with each request.
    #[must_use]
    pub fn needs_headers(&self) -> Vec<String> {
        self.shared.state.load().site.headers.clone()
    }

    /// What its document says, as it is now.
    #[cfg(feature = "tower")]
    pub(crate) fn site(&self) -> Arc<Site> {
        Arc::clone(&self.shared.state.load().site)
    }

    /// The limiter of its rules, as they are now.
    #[must_use]
    pub fn limiter(&self) -> Limiter {
        self.shared.state.load().limiter.clone()
    }

    /// Waits until every server is connected; at once in memory.
    ///
    /// # Errors
    /// As [`Limiter::ready`].
    pub fn ready(&self, timeout: Duration) -> Pending<()> {
        self.limiter().ready(timeout)
    }

    /// Takes another document from the next request on. Where its `[store]` is the same, state, connections and counters
    /// stay; counters of routes stay by their names.
    ///
    /// # Errors
    /// As [`Policy::new`]; the old document stays.
    pub fn reload(&self, document: &Document) -> Result<()> {
        // One after the other: each goes on from what the one before it made. A lock that a fork has left behind is waited
        // for no longer than this.
        let _turn = self.shared.turn.try_lock_for(TURN);
        let old = self.shared.state.load_full();
        let new = State::new(document, self.shared.clock.clone(), Some(&old));
        old.totals.reloaded(new.is_ok());
        self.shared.state.store(Arc::new(new?));
        Ok(())
    }

    /// A policy of other rules and routes beside this one, on the same store: it shares connections and state, so that
    /// a rule and a key are one bucket in both. It counts for itself, and no file is watched for it.
    ///
    /// # Errors
    /// `invalid_document` for another `[store]`; as [`Policy::new`].
    pub fn beside(&self, document: &Document) -> Result<Policy> {
        let state = self.shared.state.load_full();
        if !state.document.same_store(document) {
            return Err(invalid("the document has another store; write the same [store] as in the policy beside it"));
        }
        let limiter = state.limiter.with_rules(document.rules().to_vec())?;
        let state = State::on(limiter, document, self.shared.clock.clone(), None)?;
        Ok(Policy::of(state, self.shared.clock.clone(), None))
    }

    /// What was counted since it was made.
    #[must_use]
    pub fn metrics(&self) -> PolicyMetrics {
        let state = self.shared.state.load_full();
        let routes = state.site.routes.iter().map(|route| (&*route.name, route.is_shadow));
        PolicyMetrics::new(
            state.limiter.metrics(),
            routes.zip(state.counts.iter().map(|counts| &**counts)),
            &state.totals,
        )
    }

    /// Looks whether the watched file has changed, if it is time to. What has changed is read on a thread of its own: no
    /// request waits for it.
    fn look(&self) {
        let Some(watched) = &self.shared.watched else { return };
        let Some(text) = watched.changed() else { return };
        let policy = self.clone();
        let work = move || policy.take(text);
        if let Err(error) = std::thread::Builder::new().name("tidegate-reload".into()).spawn(work) {
            watched.forget();
            log::error!(target: LOG, "the document has changed, and no thread could be started to read it: {error}");
        }
    }

    /// Takes the text of the watched file, if it is a document.
    fn take(&self, text: Result<String>) {
        let Some(Watched { path, .. }) = &self.shared.watched else { return };
        let document = text.and_then(|text| Document::of_file(path, &text));
        if document.is_err() {
            self.shared.state.load().totals.reloaded(false);
        }
        match document.and_then(|document| self.reload(&document)) {
            Ok(()) => log::info!(target: LOG, "{} was read again", path.display()),
            Err(error) => {
                log::error!(target: LOG, "the document has changed and is refused, so the old one stays: {error}");
            }
        }
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.state.load();
        let routes: Vec<&str> = state.site.routes.iter().map(|route| &*route.name).collect();
        let watched = self.shared.watched.as_ref().map(|watched| &watched.path);
        let mut debug = f.debug_struct("Policy");
        debug
            .field("routes", &routes)
            .field("limiter", &state.limiter)
            .field("watched", &watched)
            .finish_non_exhaustive()
    }
}

impl Watched {
    /// Its text, if it is another than before, or that it cannot be read any more; each told once. Two looks must find the
    /// same: a file that is being written is not what somebody meant.
    fn changed(&self) -> Option<Result<String>> {
        let now = u64::try_from(clock::instant().saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX);
        let next = self.next.load(Ordering::Relaxed);
        let taken = |next| self.next.compare_exchange(next, now + LOOK_EVERY, Ordering::Relaxed, Ordering::Relaxed);
        if now < next || taken(next).is_err() {
            return None;
        }
        let read = std::fs::read_to_string(&self.path);
        let text = Arc::new(read.as_ref().ok().cloned());
        let seen = self.seen.swap(Arc::clone(&text));
        if *self.text.load_full() == *text {
            return None;
        }
        if *seen != *text {
            self.next.store(now + LOOK_AGAIN, Ordering::Relaxed);
            return None;
        }
        self.text.store(text);
        Some(read.map_err(|error| invalid(format!("{}: cannot be read: {error}", self.path.display()))))
    }

    /// Lets the next look find it changed.
    fn forget(&self) {
        self.text.store(Arc::new(Some(String::new())));
    }
}

impl State {
    fn new(document: &Document, clock: Clock, before: Option<&State>) -> Result<State> {
        let limiter = match before.filter(|before| before.document.same_store(document)) {
            Some(before) => before.limiter.with_rules(document.rules().to_vec())?,
            None => limiter(document, &clock)?,
        };
        State::on(limiter, document, clock, before)
    }

    fn on(limiter: Limiter, document: &Document, clock: Clock, before: Option<&State>) -> Result<State> {
        let site = Arc::clone(document.site());
        if site.is_empty() {
            return Err(invalid("the document has no routes; write [[routes]] with path and rules, or [http.default]"));
        }
        let planned =
            |rules: &Vec<String>| Ok(Planned { plan: limiter.plan_of(rules)?, policy_field: KeptField::default() });
        let plans = |route: &Route| route.groups.iter().map(|group| planned(&group.rules)).collect();
        let plans = site.routes.iter().map(plans).collect::<Result<_>>()?;
        let mut counted = before.map(|before| before.counted.clone()).unwrap_or_default();
        let mut counts =
            |route: &Route| Arc::clone(counted.entry((Arc::clone(&route.name), route.is_shadow)).or_default());
        let counts = site.routes.iter().map(&mut counts).collect();
        let totals = before.map_or_else(Arc::default, |before| Arc::clone(&before.totals));
        Ok(State { site, limiter, plans, counts, counted, totals, document: document.clone(), clock })
    }

    /// Whether a rule and a key are the same bucket in both.
    pub(super) fn shares_buckets(&self, other: &State) -> bool {
        let is_shared = self.limiter.is_remote() && self.document.same_store(&other.document);
        is_shared || self.limiter.shares_state(&other.limiter)
    }

    /// This process's time, in microseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.clock.now(&mut Look::default())
    }
}

#[cfg_attr(not(feature = "testing"), allow(unused_variables, reason = "only a test's clock is handed on"))]
fn limiter(document: &Document, clock: &Clock) -> Result<Limiter> {
    let builder: Builder = Limiter::builder().document(document);
    #[cfg(feature = "testing")]
    if let Clock::Given(clock) = clock {
        return builder.clock(clock).build();
    }
    builder.build()
}
