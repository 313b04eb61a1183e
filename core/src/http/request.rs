//! A request in the making: what the framework hands over, asked for no more than its route needs.

use std::net::IpAddr;
use std::sync::Arc;

use super::admission::{Admission, Admit, Group, LOG};
use super::client::Peer;
use super::key::{Found, KeySource, Source, Value};
use super::plain;
use super::policy::State;
use super::site::{Cost, Lines, Route};
use crate::completion::Completions;
use crate::document::http::WithoutIdentity;
use crate::error::{Error, ErrorKind, Result};
use crate::limiter::Pending;
use crate::rule::MAX_UNITS;

/// A request that is to be admitted. It begins with its method and path, which choose its route; that tells what else
/// is needed, and what is not needed need not be told.
///
/// ```
/// # use tidegate::{Document, http::Policy};
/// # let document = Document::from_toml("version = 1\nrules = { api = '9/m' }\nhttp = { default = { rules = 'api', key = 'user', without_identity = 'refuse' } }")?;
/// let policy = Policy::new(&document)?;
/// let mut request = policy.request("GET", "/items/1").peer("203.0.113.7");
/// if request.needs_user() {
///     request = request.user("alice"); // only now is the session looked at
/// }
/// assert!(request.admit().wait()?.allowed());
/// # Ok::<(), tidegate::Error>(())
/// ```
#[must_use = "nothing is decided until it is admitted"]
#[derive(Clone)]
pub struct Request {
    state: Arc<State>,
    route: Option<usize>,
    /// By method; none where the application supplies it.
    cost: Option<u64>,
    peer: Peer,
    /// Those that the policy reads.
    headers: Lines,
    user: Option<Vec<u8>>,
    values: Vec<(String, Vec<u8>)>,
    yes: Vec<String>,
    /// What was decided of this request before.
    before: Option<Admission>,
}

impl Request {
    pub(super) fn new(state: Arc<State>, route: Option<usize>, method: &str) -> Request {
        let cost = match route.map(|route| &state.site.routes[route].cost) {
            None => Some(1),
            Some(Cost::Units(units)) => Some(*units),
            Some(Cost::ByMethod(table)) => {
                let of = |method: &str| table.iter().find(|(name, _)| name.eq_ignore_ascii_case(method));
                // As with the methods of routes: HEAD is answered by what answers GET.
                let found = of(method).or_else(|| of("GET").filter(|_| method.eq_ignore_ascii_case("HEAD")));
                Some(found.map_or(1, |(_, units)| *units))
            }
            Some(Cost::Supplied(_)) => None,
        };
        let (peer, headers, values, yes) = (Peer::Unknown, Vec::new(), Vec::new(), Vec::new());
        Request { state, route, cost, peer, headers, user: None, values, yes, before: None }
    }

    /// The name of its route, if it has one.
    #[must_use]
    pub fn route(&self) -> Option<&str> {
        self.matched().map(|route| &*route.name)
    }

    /// Whether its rules need the user, so that the application has to look who it is.
    #[must_use]
    pub fn needs_user(&self) -> bool {
        self.matched().is_some_and(|route| route.needs.user)
    }

    /// The request headers that its rules need, in lower case, and `accept`, which a refusal needs. Others may be told,
    /// and are left alone.
    pub fn needs_headers(&self) -> impl Iterator<Item = &str> {
        let needed = self.matched().map_or(&[][..], |route| &route.needs.headers);
        needed.iter().map(String::as_str).chain(["accept"])
    }

    /// The names of what its rules need to be supplied with: `app:NAME` of keys and costs.
    pub fn needs_values(&self) -> impl Iterator<Item = &str> {
        self.matched().into_iter().flat_map(|route| &route.needs.values).map(String::as_str)
    }

    /// The questions that the application may answer with yes: `exempt.app`.
    pub fn needs_answers(&self) -> impl Iterator<Item = &str> {
        self.matched().into_iter().flat_map(|route| &route.needs.questions).map(String::as_str)
    }

    /// Who speaks to the server: an address, or text as frameworks have it. Unknown unless said.
    pub fn peer(mut self, peer: impl Into<Peer>) -> Request {
        self.peer = peer.into();
        self
    }

    /// A line of a request header; a header of several lines line by line, in order.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Request {
        if let Some(place) = self.state.site.headers.iter().position(|known| known.eq_ignore_ascii_case(name)) {
            self.headers.push((place, value.as_ref().to_vec()));
        }
        self
    }

    /// Who the user is. Without it, or with an empty one, there is no user.
    pub fn user(mut self, user: impl AsRef<[u8]>) -> Request {
        self.user = Some(user.as_ref().to_vec());
        self
    }

    /// What the application supplies under a name, for keys and costs of `app:NAME`: a cost in digits.
    pub fn value(mut self, name: &str, value: impl AsRef<[u8]>) -> Request {
        self.values.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Answers a question of `exempt.app` with yes.
    pub fn answer_yes(mut self, question: &str) -> Request {
        self.yes.push(question.to_owned());
        self
    }

    /// What was decided of this request before, as by a middleware outside of this one. Rules that were decided then on
    /// the same key are not charged again, and the response's fields tell of all. A refusal, as of a shadow route, has
    /// charged nothing, so after it everything is decided anew.
    pub fn after(mut self, admission: &Admission) -> Request {
        self.before = admission.outcome().cause().is_none().then(|| admission.clone());
        self
    }

    /// The client's address: the peer's, or what trusted proxies say. None where it is not known.
    #[must_use]
    pub fn client_address(&self) -> Option<IpAddr> {
        self.client().0
    }

    /// The client's address, and whether it is its own and not a proxy's.
    fn client(&self) -> (Option<IpAddr>, bool) {
        let client = &self.state.site.client;
        let lines: Vec<&[u8]> = client.header().map(|name| self.lines(name).collect()).unwrap_or_default();
        client.find(self.peer, &lines)
    }

    /// The client's address as it stands in keys: IPv6 by its prefix.
    #[must_use]
    pub fn client_key(&self) -> Option<String> {
        self.client_address().map(|address| self.state.site.client.bucket(address))
    }

    /// Decides whether it may pass, and charges it.
    ///
    /// # Errors
    /// (Of the call that is returned.) `invalid_request` for a cost that the application did not supply, or not from 1 to
    /// 10,000,000 (10,000 with a sliding_window_log), but for shadow routes, which let it pass. A store that fails is no error: each rule's `on_error` decides, by the deadline.
    pub fn admit(self) -> Pending<Admission> {
        let (state, route) = (Arc::clone(&self.state), self.route);
        Pending::new(async move {
            let decided = async { self.judged()?.decide().await };
            decided.await.or_else(|error| Admission::invalid(state, route, error))
        })
    }

    /// Decides for an event loop, without waiting. What is known at once is returned; otherwise none is, and the admission
    /// comes to the queue under this ticket.
    ///
    /// # Errors
    /// As [`admit`](Request::admit), and `invalid_request` for a queue that was made before a fork of this process; nothing
    /// comes to the queue then.
    pub fn submit(self, to: &Completions, ticket: u64) -> Result<Option<Admission>> {
        to.takes_calls()?;
        let (state, route) = (Arc::clone(&self.state), self.route);
        let submitted = self.judged().and_then(|admit| admit.submit(to, ticket));
        submitted.or_else(|error| Admission::invalid(state, route, error).map(Some))
    }

    fn matched(&self) -> Option<&Route> {
        self.route.map(|route| &self.state.site.routes[route])
    }

    /// What is to be decided.
    fn judged(mut self) -> Result<Admit> {
        let admit = Admit::new(Arc::clone(&self.state), self.route, self.before.take());
        let admit = self.keyed(admit)?;
        Ok(admit.of(self.headers))
    }

    /// The keys that are to be decided on.
    fn keyed(&self, admit: Admit) -> Result<Admit> {
        let Some(route) = self.matched().filter(|route| !route.groups.is_empty()) else { return Ok(admit) };
        let (address, is_own) = if route.needs.address { self.client() } else { (None, true) };
        if route.needs.address && address.is_none() && self.state.totals.tells() {
            log::warn!(
                target: LOG,
                "the client's address is not known, so rules by ip have nobody to limit: hand the peer's address over with \
                 each request (axum: serve with into_make_service_with_connect_info, and tell the layer .peer(..)); for a \
                 proxy on a Unix socket write trusted_proxies = [\"unix\"]"
            );
        }
        let value = |source: &Source| self.found(source, address);
        let is_exempt = |exempt: &Arc<super::key::Exempt>| {
            exempt.holds(address.filter(|_| is_own), value, |question| {
                self.yes.iter().any(|answered| answered == question)
            })
        };
        if route.exempt.iter().any(is_exempt) {
            return Ok(admit.exempt());
        }
        let mut groups: Vec<Group> = Vec::with_capacity(route.groups.len());
        for (place, group) in route.groups.iter().enumerate() {
            let key = match (group.key.key(value), group.without) {
                (Found::Key(key), _) => key,
                (Found::Missing, WithoutIdentity::Skip) => continue,
                (Found::Missing | Found::Shared, WithoutIdentity::Refuse) => {
                    let (route, rules, key) = (&route.name, group.rules.join(","), group.key.text());
                    log::info!(target: LOG, "no_identity: route={route} rules={rules} missing={key}");
                    return Ok(admit.without_identity());
                }
                // What is ambiguous must not be a way past the limit.
                (Found::Missing, WithoutIdentity::Share) | (Found::Shared, _) => KeySource::shared(),
            };
            groups.push(Group::new(key, place));
        }
        let cost = self.cost(route)?;
        Ok(admit.groups(groups, cost))
    }

    fn cost(&self, route: &Route) -> Result<u64> {
        let (None, Cost::Supplied(name)) = (self.cost, &route.cost) else { return Ok(self.cost.unwrap_or(1)) };
        let supplied = self.values.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value);
        let cost = supplied.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        cost.filter(|cost| (1..=MAX_UNITS).contains(cost)).ok_or_else(|| {
            let message = match supplied {
                None => format!(
                    "the cost {name:?} was not supplied; supply a whole number from 1 before the request is admitted"
                ),
                Some(_) => format!("the cost {name:?} is no whole number from 1 to {MAX_UNITS}; supply one"),
            };
            Error::new(ErrorKind::InvalidRequest, message)
        })
    }

    /// What the request has of a source.
    fn found(&self, source: &Source, address: Option<IpAddr>) -> Value {
        let bytes = |bytes: Option<&[u8]>| match bytes {
            Some(bytes) if !bytes.is_empty() => Value::Bytes(bytes.to_vec()),
            _ => Value::Missing,
        };
        match source {
            Source::Address => match address {
                Some(address) => Value::Bytes(self.state.site.client.bucket(address).into_bytes()),
                None => Value::Missing,
            },
            Source::User => bytes(self.user.as_deref()),
            Source::Header(name) => one_of(self.lines(name).map(|line| plain::header(name, line))),
            Source::Cookie(name) => one_of(self.lines("cookie").flat_map(|line| plain::cookies(line, name))),
            Source::App(name) => {
                bytes(self.values.iter().rev().find(|(known, _)| known == name).map(|(_, value)| &value[..]))
            }
            Source::Constant(text) => bytes(Some(text.as_bytes())),
        }
    }

    /// The lines of a header, by its name in lower case.
    fn lines(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.state.site.lines(&self.headers, name)
    }
}

/// Without what it holds: keys, cookies and users are nobody's business.
impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("route", &self.route()).finish_non_exhaustive()
    }
}

/// The one value that is there. Where there are several, frameworks differ in which they take.
fn one_of(values: impl Iterator<Item = Vec<u8>>) -> Value {
    values.filter(|value| !value.is_empty()).fold(Value::Missing, |found, value| match found {
        Value::Missing => Value::Bytes(value),
        Value::Bytes(other) if other == value => Value::Bytes(other),
        _ => Value::Ambiguous,
    })
}
