//! The policy: a request goes in by its parts, an admission comes out.

use napi::bindgen_prelude::{BufferSlice, Either, Uint8ArraySlice};
use napi_derive::napi;
use tidegate::http;

use crate::args::{duration, whole};
use crate::clock::Clock;
use crate::error::{Result, invalid, thrown};
use crate::limiter::{Core, read};
use crate::queue::Queue;
use crate::record::Record;

/// What `Policy` is made of.
#[napi]
pub struct PolicyCore {
    /// None once closed.
    policy: Option<http::Policy>,
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

    /// Decides whether a request may pass, and charges it. Headers and values are flat: a name, its value, and so on. What is known at once is returned; otherwise none is, and the
    /// admission comes to the queue.
    #[napi]
    #[allow(clippy::too_many_arguments, reason = "what can be told of a request")]
    pub fn admit(
        &self,
        queue: &Queue,
        ticket: f64,
        request: &Request,
        peer: Option<String>,
        headers: Option<Vec<String>>,
        user: Option<Either<String, Uint8ArraySlice<'_>>>,
        values: Option<Vec<Either<String, Uint8ArraySlice<'_>>>>,
        answers: Option<Vec<String>>,
        after: Option<&Admission>,
    ) -> Result<Option<Admission>> {
        self.open()?;
        let mut request = request.sent(peer, headers);
        if let Some(user) = user {
            request = request.user(bytes(&user));
        }
        for pair in values.unwrap_or_default().chunks_exact(2) {
            request = request.value(&String::from_utf8_lossy(bytes(&pair[0])), bytes(&pair[1]));
        }
        for question in answers.unwrap_or_default() {
            request = request.answer_yes(&question);
        }
        if let Some(before) = after {
            request = request.after(&before.0);
        }
        let done = request.submit(&queue.completions, whole(ticket, "ticket")?);
        done.map(|done| done.map(Admission)).map_err(thrown)
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
    pub fn close(&mut self) {
        self.policy = None;
    }
}

impl PolicyCore {
    fn of(policy: http::Policy) -> PolicyCore {
        PolicyCore { policy: Some(policy) }
    }

    fn open(&self) -> Result<&http::Policy> {
        self.policy.as_ref().ok_or_else(|| invalid("the policy is closed; make another"))
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

fn bytes<'a>(supplied: &'a Either<String, Uint8ArraySlice<'_>>) -> &'a [u8] {
    match supplied {
        Either::A(text) => text.as_bytes(),
        Either::B(bytes) => bytes,
    }
}

/// A header's value as it was on the wire: Node makes a character of each of its bytes.
fn wire(value: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = value.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect();
    bytes.unwrap_or_else(|| value.as_bytes().to_vec())
}

/// Whether a request may pass, and what its response is to have.
#[napi]
pub struct Admission(pub(crate) http::Admission);

#[napi]
impl Admission {
    #[napi(getter)]
    pub fn allowed(&self) -> bool {
        self.0.allowed()
    }

    #[napi(getter)]
    pub fn outcome(&self) -> &'static str {
        self.0.outcome().name()
    }

    #[napi(getter)]
    pub fn is_shadow(&self) -> bool {
        self.0.is_shadow()
    }

    #[napi(getter)]
    pub fn route(&self) -> Option<&str> {
        self.0.route()
    }

    #[napi(getter)]
    pub fn status(&self) -> Option<u16> {
        self.0.status()
    }

    /// Flat: a name, its value, a name, its value.
    #[napi(getter)]
    pub fn headers(&self) -> Vec<&str> {
        self.0.headers().iter().flat_map(|(name, value)| [*name, value.as_str()]).collect()
    }

    #[napi(getter)]
    pub fn body(&self) -> Option<&str> {
        self.0.body()
    }

    /// Writes its decisions into a chunk as the queue writes those of checks, their places for tickets. Tells where that
    /// ends; none if they do not fit.
    #[napi]
    pub fn decisions(&self, mut chunk: BufferSlice<'_>) -> Option<u32> {
        let (mut record, mut at) = (Record::default(), 0);
        for (place, decision) in (0..).zip(self.0.decisions()) {
            record.decision(place, decision);
            at = record.write(&mut chunk, at)?;
        }
        u32::try_from(at).ok()
    }

    #[napi]
    pub fn settle(&self, queue: &Queue, ticket: f64, status: u16) -> Result<()> {
        self.0.settle(status).submit(&queue.completions, whole(ticket, "ticket")?).map_err(thrown)
    }

    #[napi]
    pub fn undo(&self, queue: &Queue, ticket: f64) -> Result<()> {
        self.0.undo().submit(&queue.completions, whole(ticket, "ticket")?).map_err(thrown)
    }
}
