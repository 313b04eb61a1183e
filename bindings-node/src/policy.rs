//! The policy: a request goes in by its parts, an admission comes out.

use std::cell::RefCell;
use std::rc::Rc;

use napi_derive::napi;
use tidegate::http;

use crate::admission::Kept;
use crate::args::{duration, whole};
use crate::clock::Clock;
use crate::error::{Result, invalid, thrown};
use crate::limiter::{Core, read};
use crate::queue::Queue;

/// What `Policy` is made of.
#[napi]
pub struct PolicyCore {
    shared: Rc<RefCell<Shared>>,
}

/// What a core and its functions share.
#[derive(Default)]
pub(crate) struct Shared {
    /// None once closed.
    policy: Option<http::Policy>,
    /// What requests that are admitted name by numbers: themselves, each with whether it is admitted once, and admissions
    /// before them.
    pub(crate) requests: Slots<(http::Request, bool)>,
    pub(crate) before: Slots<http::Admission>,
}

/// Places that are used again.
pub(crate) struct Slots<T> {
    all: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { all: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    fn keep(&mut self, one: T) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.all[place] = Some(one);
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    pub(crate) fn get(&self, place: usize) -> Option<&T> {
        self.all.get(place)?.as_ref()
    }

    pub(crate) fn take(&mut self, place: usize) -> Option<T> {
        let taken = self.all.get_mut(place)?.take();
        self.free.extend(taken.is_some().then_some(place));
        taken
    }
}

impl Shared {
    pub(crate) fn open(&self) -> Result<&http::Policy> {
        self.policy.as_ref().ok_or_else(|| invalid("the policy is closed; make another"))
    }
}

#[napi]
impl PolicyCore {
    #[napi(constructor)]
    pub fn new(document: String, format: String, clock: Option<&Clock>) -> Result<PolicyCore> {
        let document = read(&document, &format).map_err(thrown)?;
        let policy = match clock {
            None => http::Policy::new(&document),
            Some(clock) => clock.policy(&document),
        };
        policy.map(PolicyCore::of).map_err(thrown)
    }

    #[napi(factory)]
    pub fn watch(path: String) -> Result<PolicyCore> {
        http::Policy::watch(path).map(PolicyCore::of).map_err(thrown)
    }

    #[napi]
    pub fn beside(&self, document: String, format: String) -> Result<PolicyCore> {
        let policy = self.open()?;
        let beside = read(&document, &format).and_then(|document| policy.beside(&document));
        beside.map(PolicyCore::of).map_err(thrown)
    }

    #[napi]
    pub fn reload(&self, document: String, format: String) -> Result<()> {
        let policy = self.open()?;
        read(&document, &format).and_then(|document| policy.reload(&document)).map_err(thrown)
    }

    #[napi]
    pub fn limiter(&self) -> Result<Core> {
        Ok(Core::of(self.open()?.limiter()))
    }

    /// A request, by its method and its path on the wire: that chooses its route.
    #[napi]
    pub fn request(&self, method: String, path: String) -> Result<Request> {
        Ok(Request(self.open()?.request(&method, &path)))
    }

    /// A request whose route is named.
    #[napi]
    pub fn named(&self, method: String, route: String) -> Result<Request> {
        self.open()?.named(&method, &route).map(Request).map_err(thrown)
    }

    /// The number under which a request is admitted; once, or until it is forgotten.
    #[napi]
    pub fn keep(&self, request: &Request, once: bool) -> u32 {
        self.shared.borrow_mut().requests.keep((request.0.clone(), once))
    }

    #[napi]
    pub fn forget(&self, number: u32) {
        self.shared.borrow_mut().requests.take(number as usize);
    }

    /// The number under which an admission is told of as one before another.
    #[napi]
    pub fn keep_before(&self, kept: &Kept, place: u32) -> Result<u32> {
        Ok(self.shared.borrow_mut().before.keep(kept.admission(place)?))
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

    /// The names of its routes, in their order.
    #[napi(getter)]
    pub fn routes(&self) -> Result<Vec<String>> {
        let mut routes: Vec<String> = self.open()?.metrics().requests.into_iter().map(|row| row.route).collect();
        routes.dedup();
        Ok(routes)
    }

    /// The request headers that any route needs, in lower case.
    #[napi(getter)]
    pub fn needs_headers(&self) -> Result<Vec<String>> {
        Ok(self.open()?.needs_headers())
    }

    #[napi]
    pub fn close(&self) {
        // Requests that are kept have its connections.
        drop(self.shared.take());
    }
}

impl PolicyCore {
    fn of(policy: http::Policy) -> PolicyCore {
        PolicyCore { shared: Rc::new(RefCell::new(Shared { policy: Some(policy), ..Shared::default() })) }
    }

    pub(crate) fn shared(&self) -> Rc<RefCell<Shared>> {
        Rc::clone(&self.shared)
    }

    fn open(&self) -> Result<http::Policy> {
        self.shared.borrow().open().cloned()
    }
}

/// A request, and what its route needs to be told of it.
#[napi]
pub struct Request(http::Request);

#[napi]
impl Request {
    #[napi(getter)]
    pub fn route(&self) -> Option<&str> {
        self.0.route()
    }

    #[napi(getter)]
    pub fn needs_user(&self) -> bool {
        self.0.needs_user()
    }

    #[napi(getter)]
    pub fn needs_headers(&self) -> Vec<String> {
        self.0.needs_headers().map(str::to_owned).collect()
    }

    #[napi(getter)]
    pub fn needs_values(&self) -> Vec<String> {
        self.0.needs_values().map(str::to_owned).collect()
    }

    #[napi(getter)]
    pub fn needs_answers(&self) -> Vec<String> {
        self.0.needs_answers().map(str::to_owned).collect()
    }

    #[napi]
    pub fn client_address(&self, peer: Option<String>, headers: Option<Vec<String>>) -> Option<String> {
        self.sent(peer, headers).client_address().map(|address| address.to_string())
    }

    #[napi]
    pub fn client_key(&self, peer: Option<String>, headers: Option<Vec<String>>) -> Option<String> {
        self.sent(peer, headers).client_key()
    }
}

impl Request {
    /// The request with what came over the wire.
    fn sent(&self, peer: Option<String>, headers: Option<Vec<String>>) -> http::Request {
        let mut request = self.0.clone();
        if let Some(peer) = peer {
            request = request.peer(peer.as_str());
        }
        for line in headers.unwrap_or_default().chunks_exact(2) {
            request = request.header(&line[0], wire(&line[1]));
        }
        request
    }
}

/// A header's value as it was on the wire: Node makes a character of each of its bytes.
pub(crate) fn wire(value: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = value.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect();
    bytes.unwrap_or_else(|| value.as_bytes().to_vec())
}
