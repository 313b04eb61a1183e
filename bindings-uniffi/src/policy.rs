//! The policy: a request goes in by its parts, an admission comes out.

use std::sync::{Arc, PoisonError, RwLock};

use tidegate::http;

use crate::args::{Source, duration};
use crate::asynchronous::AsyncPolicy;
use crate::call::{Call, Completed};
use crate::clock::Clock;
use crate::decision::{Decision, mirrored};
use crate::error::invalid;
use crate::limiter::{Limiter, Result};
use crate::queue::Queue;

/// Decides requests by a document's routes. Its calls block the thread that makes them.
#[derive(Debug, uniffi::Object)]
pub struct Policy(OpenPolicy);

/// A policy that can be closed.
#[derive(Debug, Clone)]
pub(crate) struct OpenPolicy(Arc<RwLock<Option<http::Policy>>>);

impl OpenPolicy {
    pub(crate) fn get(&self) -> Result<http::Policy> {
        let policy = self.0.read().unwrap_or_else(PoisonError::into_inner);
        policy.clone().ok_or_else(|| invalid("the policy is closed; make another"))
    }
}

/// What a request's route needs to be told of it.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Needs {
    /// The name of its route; none if it has none.
    pub route: Option<String>,
    /// Whether its rules need the user.
    pub user: bool,
    /// The request headers that its rules need, in lower case.
    pub headers: Vec<String>,
    /// The names of what the application must supply for its keys and costs.
    pub values: Vec<String>,
    /// The questions that may exempt it.
    pub answers: Vec<String>,
}

/// A header's line of a request: its bytes as they came.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct HeaderLine {
    /// In any letters.
    pub name: String,
    /// As it came; a header of several lines stays several.
    pub value: Vec<u8>,
}

/// What the application supplies by name.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Value {
    /// The NAME of the document's `app:NAME`.
    pub name: String,
    /// Its bytes; of a text its UTF-8, of a cost its digits.
    pub value: Vec<u8>,
}

/// What is told of a request beside its method and path.
#[derive(Debug, Clone, Default, uniffi::Record)]
pub struct Told {
    /// The address of whoever is connected, or `unix`; none if it is not known.
    #[uniffi(default = None)]
    pub peer: Option<String>,
    /// The lines of the headers that its route needs.
    #[uniffi(default = [])]
    pub headers: Vec<HeaderLine>,
    /// Who the user is; none for nobody.
    #[uniffi(default = None)]
    pub user: Option<Vec<u8>>,
    /// What its keys and costs need.
    #[uniffi(default = [])]
    pub values: Vec<Value>,
    /// The questions that the application answers with yes.
    #[uniffi(default = [])]
    pub answers: Vec<String>,
    /// The name of its route, where the path does not choose it.
    #[uniffi(default = None)]
    pub route: Option<String>,
    /// What an admission before this one charged: what both name is charged once.
    #[uniffi(default = None)]
    pub after: Option<Arc<Charge>>,
}

mirrored! {
    /// What became of a request; in a shadow route what would have become of it.
    AdmissionOutcome of http::Outcome: Allowed, Refused, Unavailable, NoIdentity, Exempt, Unlimited, Invalid
}

/// Whether a request may pass, and what its response is to have.
#[derive(Debug, Clone, uniffi::Record)]
pub struct Admission {
    /// Whether the request may pass.
    pub allowed: bool,
    /// What became of it.
    pub outcome: AdmissionOutcome,
    /// Whether its route only reports.
    pub is_shadow: bool,
    /// The name of its route; none if it has none.
    pub route: Option<String>,
    /// The status to answer with: 429, 503 or 403; none where the request may pass.
    pub status: Option<i32>,
    /// The fields that the response is to have, of a refusal or of what the application answers.
    pub headers: Vec<Header>,
    /// The body of a refusal, whose type is among the headers.
    pub body: Option<String>,
    /// Whether a response of some status gives the charge back: where not, nothing comes of `settle`.
    pub may_refund: bool,
    /// What was charged.
    pub charge: Arc<Charge>,
}

/// A field of a response.
#[derive(Debug, Clone, PartialEq, Eq, uniffi::Record)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// What a request was charged.
#[derive(Debug, uniffi::Object)]
pub struct Charge(http::Admission);

#[uniffi::export]
impl Policy {
    /// # Errors
    /// `invalid_document` or `invalid_rule` for what cannot be meant, with what to write instead.
    #[uniffi::constructor]
    pub fn new(source: Source) -> Result<Arc<Policy>> {
        Ok(Policy::of(source.policy()?))
    }

    /// A policy of a file, which is read again when it changes. What cannot be meant is logged, and the old one stays.
    #[uniffi::constructor]
    pub fn watch(path: String) -> Result<Arc<Policy>> {
        Ok(Policy::of(http::Policy::watch(path)?))
    }

    /// A policy that decides by a test's clock, in memory.
    #[uniffi::constructor]
    pub fn at(source: Source, clock: Arc<Clock>) -> Result<Arc<Policy>> {
        Ok(Policy::of(clock.policy(&source)?))
    }

    /// The same policy, for callers that await.
    pub fn asynchronous(&self) -> Arc<AsyncPolicy> {
        Arc::new(AsyncPolicy(self.0.clone()))
    }

    /// Another policy on the same store, such as of rules beside those of the document.
    pub fn beside(&self, source: Source) -> Result<Arc<Policy>> {
        Ok(Policy::of(self.0.get()?.beside(&source.document()?)?))
    }

    /// Goes on with another document; nothing changes where it cannot be meant.
    pub fn reload(&self, source: Source) -> Result<()> {
        Ok(self.0.get()?.reload(&source.document()?)?)
    }

    /// The limiter of its rules.
    pub fn limiter(&self) -> Result<Arc<Limiter>> {
        Ok(Limiter::of(self.0.get()?.limiter()))
    }

    /// What the route of a request needs to be told. Its path is as on the wire, without the query.
    pub fn request(&self, method: String, path: String) -> Result<Needs> {
        Ok(Needs::of(&self.0.get()?.request(&method, &path)))
    }

    /// What a route of this name needs to be told; `invalid_request` where there is none.
    pub fn named(&self, method: String, route: String) -> Result<Needs> {
        Ok(Needs::of(&self.0.get()?.named(&method, &route)?))
    }

    /// Decides whether a request may pass, and charges it.
    pub fn admit(&self, method: String, path: String, told: Told) -> Result<Admission> {
        Ok(Admission::of(request(&self.0.get()?, &method, &path, told)?.admit().wait()?))
    }

    /// The client's address: the peer's, or what trusted proxies say; none if it is not known.
    pub fn client_address(&self, method: String, path: String, told: Told) -> Result<Option<String>> {
        let request = request(&self.0.get()?, &method, &path, told)?;
        Ok(request.client_address().map(|address| address.to_string()))
    }

    /// The client's address as it stands in keys: IPv6 by its prefix.
    pub fn client_key(&self, method: String, path: String, told: Told) -> Result<Option<String>> {
        Ok(request(&self.0.get()?, &method, &path, told)?.client_key())
    }

    /// Waits until the store can be used.
    pub fn ready(&self, timeout_ms: i64) -> Result<()> {
        Ok(self.0.get()?.ready(duration(timeout_ms)?).wait()?)
    }

    /// What has been counted, as JSON.
    pub fn metrics(&self) -> Result<String> {
        Ok(self.0.get()?.metrics().json())
    }

    /// What has been counted, as Prometheus scrapes it.
    pub fn prometheus(&self) -> Result<String> {
        Ok(self.0.get()?.metrics().prometheus())
    }

    /// The names of its routes, in their order.
    pub fn routes(&self) -> Result<Vec<String>> {
        let mut routes: Vec<String> = self.0.get()?.metrics().requests.into_iter().map(|row| row.route).collect();
        routes.dedup();
        Ok(routes)
    }

    /// The request headers that any route needs, in lower case.
    pub fn needs_headers(&self) -> Result<Vec<String>> {
        Ok(self.0.get()?.needs_headers())
    }

    /// Lets go of its connections.
    pub fn close(&self) {
        drop(self.0.0.write().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Submits many calls at once. Those that are answered at once are returned, and the others come to the queue.
    pub fn submit(&self, queue: &Queue, calls: Vec<Call>) -> Vec<Completed> {
        queue.admit(self.0.get(), calls)
    }
}

impl Policy {
    fn of(policy: http::Policy) -> Arc<Policy> {
        Arc::new(Policy(OpenPolicy(Arc::new(RwLock::new(Some(policy))))))
    }
}

#[uniffi::export]
impl Charge {
    /// A decision for each key, those of an admission before this one first.
    pub fn decisions(&self) -> Vec<Decision> {
        self.0.decisions().iter().map(Decision::from).collect()
    }

    /// Gives the charge back where the route's `refund_status` has the response's status, in the background. Once: later calls
    /// do nothing. What cannot be given back is counted and logged.
    pub fn settle(&self, status: i32) -> Result<()> {
        self.0.settle(status_of(status)?).detach();
        Ok(())
    }

    /// The same, and blocks until it is known whether anything was given back.
    pub fn settle_and_wait(&self, status: i32) -> Result<bool> {
        Ok(self.0.settle(status_of(status)?).wait()?)
    }

    /// Gives back all that was charged, in the background: for a request that nobody answers any more. Once.
    pub fn undo(&self) {
        self.0.undo().detach();
    }
}

fn status_of(status: i32) -> Result<u16> {
    u16::try_from(status).map_err(|_| invalid(format_args!("{status} is no status; write 100 to 599")))
}

impl Needs {
    pub(crate) fn of(request: &http::Request) -> Needs {
        let owned = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect();
        Needs {
            route: request.route().map(str::to_owned),
            user: request.needs_user(),
            headers: owned(&mut request.needs_headers()),
            values: owned(&mut request.needs_values()),
            answers: owned(&mut request.needs_answers()),
        }
    }

    /// Whether the application has to be asked for anything.
    pub(crate) fn asks(&self) -> bool {
        self.user || !self.values.is_empty() || !self.answers.is_empty()
    }
}

impl Admission {
    pub(crate) fn of(admission: http::Admission) -> Admission {
        let header = |(name, value): &(&'static str, String)| Header { name: (*name).to_owned(), value: value.clone() };
        Admission {
            allowed: admission.allowed(),
            outcome: admission.outcome().into(),
            is_shadow: admission.is_shadow(),
            route: admission.route().map(str::to_owned),
            status: admission.status().map(i32::from),
            headers: admission.headers().iter().map(header).collect(),
            body: admission.body().map(str::to_owned),
            may_refund: admission.may_refund(),
            charge: Arc::new(Charge(admission)),
        }
    }
}

/// A request with all that was told of it.
pub(crate) fn request(policy: &http::Policy, method: &str, path: &str, told: Told) -> Result<http::Request> {
    let mut request = match &told.route {
        None => policy.request(method, path),
        Some(route) => policy.named(method, route)?,
    };
    if let Some(peer) = &told.peer {
        request = request.peer(peer.as_str());
    }
    for line in told.headers {
        request = request.header(&line.name, line.value);
    }
    if let Some(user) = told.user {
        request = request.user(user);
    }
    for value in told.values {
        request = request.value(&value.name, value.value);
    }
    for question in &told.answers {
        request = request.answer_yes(question);
    }
    Ok(match told.after {
        Some(before) => request.after(&before.0),
        None => request,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::tests::camel;

    #[test]
    fn outcomes_are_those_of_the_core() {
        let outcomes: Vec<String> = http::Outcome::ALL.iter().map(|one| camel(one.name())).collect();
        assert_eq!(AdmissionOutcome::NAMES, outcomes, "write core's outcomes, in their order, into mirrored! above");
        for outcome in http::Outcome::ALL {
            assert_eq!(format!("{:?}", AdmissionOutcome::from(*outcome)), format!("{outcome:?}"));
        }
    }
}
