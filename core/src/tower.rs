//! A [`tower`](https://docs.rs/tower) layer for axum, hyper and tonic: feature `tower`.
//!
//! ```
//! # use tidegate::{Document, http::Policy, tower::RateLimitLayer};
//! # let document = Document::from_toml("version = 1\nrules = { api = '9/m' }\nhttp = { default = { rules = 'api', key = 'ip' } }")?;
//! let policy = Policy::new(&document)?;
//! let layer = RateLimitLayer::new(policy).peer(|parts| {
//!     parts.extensions.get::<std::net::SocketAddr>().copied() // axum: get::<ConnectInfo<SocketAddr>>(), and its .0
//! });
//! # let _ = layer;
//! # Ok::<(), tidegate::Error>(())
//! ```
//!
//! A refusal is answered here: 429 and so on, and to gRPC by its own status, `RESOURCE_EXHAUSTED`, `UNAVAILABLE` or
//! `PERMISSION_DENIED`. What passes has its [`Admission`] among its extensions. The response gets the fields that it has
//! not yet, and its status settles the charge ([`Admission::settle`]), without waiting for it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::request::Parts;
use ::http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use http_body::Body;
use http_body_util::{Either, Full};
use tower_layer::Layer;
use tower_service::Service;

use crate::http::{Admission, Outcome, Peer, Policy};

/// Puts a [`Policy`] before a service.
#[derive(Clone)]
pub struct RateLimitLayer {
    policy: Policy,
    asks: Arc<Asks>,
}

/// What the layer asks the application.
#[derive(Clone)]
struct Asks {
    peer: Ask<Peer>,
    user: Ask<Option<String>>,
    values: Vec<(String, Ask<Option<String>>)>,
    answers: Vec<(String, Ask<bool>)>,
}

type Ask<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

impl RateLimitLayer {
    /// A layer of this policy. Without [`peer`](RateLimitLayer::peer) the peer's address is taken from a
    /// [`SocketAddr`](std::net::SocketAddr) or [`Peer`] among the request's extensions.
    #[must_use]
    pub fn new(policy: Policy) -> RateLimitLayer {
        let asks = Asks { peer: Arc::new(peer), user: Arc::new(|_| None), values: Vec::new(), answers: Vec::new() };
        RateLimitLayer { policy, asks: Arc::new(asks) }
    }

    /// Where the peer's address is.
    #[must_use]
    pub fn peer<P: Into<Peer>>(self, peer: impl Fn(&Parts) -> P + Send + Sync + 'static) -> RateLimitLayer {
        self.with(|asks| asks.peer = Arc::new(move |parts| peer(parts).into()))
    }

    /// Who the user is; asked only where a route needs it.
    #[must_use]
    pub fn user(self, user: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> RateLimitLayer {
        self.with(|asks| asks.user = Arc::new(user))
    }

    /// What the application supplies under a name, for keys and costs of `app:NAME`; asked only where a route needs it.
    #[must_use]
    pub fn value(
        self,
        name: impl Into<String>,
        value: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.with(|asks| asks.values.push((name.into(), Arc::new(value))))
    }

    /// The answer to a question of `exempt.app`; asked only where a route needs it.
    #[must_use]
    pub fn answer(
        self,
        question: impl Into<String>,
        answer: impl Fn(&Parts) -> bool + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.with(|asks| asks.answers.push((question.into(), Arc::new(answer))))
    }

    fn with(mut self, change: impl FnOnce(&mut Asks)) -> RateLimitLayer {
        change(Arc::make_mut(&mut self.asks));
        self
    }
}

fn peer(parts: &Parts) -> Peer {
    let address = parts.extensions.get::<std::net::SocketAddr>().map(|address| Peer::from(*address));
    address.or_else(|| parts.extensions.get::<Peer>().copied()).unwrap_or(Peer::Unknown)
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { layer: self.clone(), inner }
    }
}

/// A service behind a [`RateLimitLayer`].
#[derive(Debug, Clone)]
pub struct RateLimit<S> {
    layer: RateLimitLayer,
    inner: S,
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send,
    ReqBody: Send + 'static,
    ResBody: Body<Data = Bytes>,
{
    type Response = Response<Either<ResBody, Full<Bytes>>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        // The one that is ready is called; its clone need not be.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let admission = match layer.request(&parts).admit().await {
                Ok(admission) => admission,
                Err(error) => {
                    log::error!(target: "tidegate::http", "a request could not be judged: {error}");
                    return Ok(failed());
                }
            };
            if !admission.allowed() {
                return Ok(refusal(&admission, is_grpc(&parts)));
            }
            parts.extensions.insert(admission.clone());
            let mut response = inner.call(Request::from_parts(parts, body)).await?;
            put(&admission, &mut response);
            admission.settle(response.status().as_u16()).detach();
            Ok(response.map(Either::Left))
        })
    }
}

impl RateLimitLayer {
    fn request(&self, parts: &Parts) -> crate::http::Request {
        let asks = &self.asks;
        let mut request = self.policy.request(parts.method.as_str(), parts.uri.path()).peer((asks.peer)(parts));
        for name in request.needs_headers().map(str::to_owned).collect::<Vec<_>>() {
            for value in parts.headers.get_all(&name) {
                request = request.header(&name, value);
            }
        }
        if request.needs_user()
            && let Some(user) = (asks.user)(parts)
        {
            request = request.user(user);
        }
        for name in request.needs_values().map(str::to_owned).collect::<Vec<_>>() {
            let asked = asks.values.iter().find(|(known, _)| *known == name);
            if let Some(value) = asked.and_then(|(_, value)| value(parts)) {
                request = request.value(&name, value);
            }
        }
        for question in request.needs_answers().map(str::to_owned).collect::<Vec<_>>() {
            let asked = asks.answers.iter().find(|(known, _)| *known == question);
            if asked.is_some_and(|(_, answer)| answer(parts)) {
                request = request.yes(&question);
            }
        }
        match parts.extensions.get::<Admission>() {
            Some(before) => request.after(before),
            None => request,
        }
    }
}

/// Puts the fields into a response that does not have them yet: what is further inside has told of all.
fn put<B>(admission: &Admission, response: &mut Response<B>) {
    for (name, value) in admission.headers() {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::try_from(value)) {
            response.headers_mut().entry(name).or_insert(value);
        }
    }
}

fn refusal<B>(admission: &Admission, is_grpc: bool) -> Response<Either<B, Full<Bytes>>> {
    let body = if is_grpc { String::new() } else { admission.body().unwrap_or_default().to_owned() };
    let mut response = Response::new(Either::Right(Full::from(body)));
    if is_grpc {
        // gRPC has statuses of its own, and an HTTP status of 200.
        let (code, message) = match admission.outcome() {
            Outcome::Unavailable => ("14", "temporarily unavailable"),
            Outcome::NoIdentity => ("7", "no identity"),
            _ => ("8", "too many requests"),
        };
        let fields = [("content-type", "application/grpc"), ("grpc-status", code), ("grpc-message", message)];
        for (name, value) in fields {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
    } else {
        let status = admission.status().and_then(|status| StatusCode::from_u16(status).ok());
        *response.status_mut() = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    }
    put(admission, &mut response);
    response
}

fn failed<B>() -> Response<Either<B, Full<Bytes>>> {
    let mut response = Response::new(Either::Right(Full::default()));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

fn is_grpc(parts: &Parts) -> bool {
    parts.headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}
