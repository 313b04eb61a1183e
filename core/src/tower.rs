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
//! A request that may not pass is answered here, and gRPC in its own way: HTTP 200 with `grpc-status` 8
//! (`RESOURCE_EXHAUSTED`), 14 (`UNAVAILABLE`) or 7 (`PERMISSION_DENIED`). What passes has its [`Admission`] among its
//! extensions; the response gets the fields that it does not have yet, and its HTTP status settles the charge
//! ([`Admission::settle`]), which the response does not wait for. Layers may be stacked: a rule is charged once on a
//! key.
//!
//! What cannot be judged, since a cost was not supplied or is not one, is answered with 500, and told to the log (target
//! `tidegate::http`, level `error`).

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::header::{CONTENT_TYPE, HeaderMap};
use ::http::request::Parts;
use ::http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

use crate::http::{Admission, Outcome, Peer, Policy};

const LOG: &str = "tidegate::http";

/// Puts a [`Policy`] before a service.
#[derive(Clone)]
pub struct RateLimitLayer {
    policy: Policy,
    asks: Arc<Asks>,
}

/// What the application is asked.
#[derive(Clone)]
struct Asks {
    peer: Ask<Peer>,
    path: Option<Ask<Option<String>>>,
    user: Option<Ask<Option<String>>>,
    values: Vec<(String, Ask<Option<String>>)>,
    answers: Vec<(String, Ask<bool>)>,
}

type Ask<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;

impl RateLimitLayer {
    /// A layer of this policy. Without [`peer`](RateLimitLayer::peer) the peer's address is taken from a [`SocketAddr`]
    /// or [`Peer`] among the request's extensions.
    #[must_use]
    pub fn new(policy: Policy) -> RateLimitLayer {
        let asks = Asks { peer: Arc::new(peer), path: None, user: None, values: Vec::new(), answers: Vec::new() };
        RateLimitLayer { policy, asks: Arc::new(asks) }
    }

    /// Where the peer's address is.
    #[must_use]
    pub fn peer<P: Into<Peer>>(self, peer: impl Fn(&Parts) -> P + Send + Sync + 'static) -> RateLimitLayer {
        self.with(|asks| asks.peer = Arc::new(move |parts| peer(parts).into()))
    }

    /// The path of the document's routes, where it is not the URI's: an axum router that is nested sees its own part of
    /// it, and has the whole as `OriginalUri` among the extensions. Where there is none the URI's is taken.
    #[must_use]
    pub fn path(self, path: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> RateLimitLayer {
        self.with(|asks| asks.path = Some(Arc::new(path)))
    }

    /// Who the user is; asked only where a route needs it.
    #[must_use]
    pub fn user(self, user: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> RateLimitLayer {
        self.with(|asks| asks.user = Some(Arc::new(user)))
    }

    /// What the application supplies under a name, for keys and costs of `app:NAME`; asked only where a route needs it.
    /// Of two under one name, the later is asked.
    #[must_use]
    pub fn value(
        self,
        name: impl Into<String>,
        value: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> RateLimitLayer {
        self.with(|asks| asks.values.push((name.into(), Arc::new(value))))
    }

    /// The answer to a question of `exempt.app`; asked only where a route needs it. Of two to one question, the later is
    /// asked.
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

    /// Says what routes need and the layer was not told where to find: their rules would not hold.
    fn warn(&self) {
        for (route, needs) in self.policy.site().needs() {
            let told = |name: &str, call: &str| {
                log::warn!(target: LOG, "route {route} needs {name}, and the layer has no {call}");
            };
            if needs.user && self.asks.user.is_none() {
                told("the user", ".user(..)");
            }
            for name in needs.values.iter().filter(|name| find(&self.asks.values, name).is_none()) {
                told(&format!("app:{name}"), &format!(".value({name:?}, ..)"));
            }
            for question in needs.questions.iter().filter(|question| find(&self.asks.answers, question).is_none()) {
                told(&format!("an answer to {question}"), &format!(".answer({question:?}, ..)"));
            }
        }
    }

    /// The request, with what its route needs of it, and no more.
    fn request(&self, parts: &Parts) -> crate::http::Request {
        let asks = &self.asks;
        let path = asks.path.as_ref().and_then(|path| path(parts));
        let path = path.as_deref().unwrap_or(parts.uri.path());
        let needs = self.policy.request(parts.method.as_str(), path);
        let mut request = needs.clone().peer((asks.peer)(parts));
        for name in needs.needs_headers() {
            for value in parts.headers.get_all(name) {
                request = request.header(name, value);
            }
        }
        if needs.needs_user()
            && let Some(user) = asks.user.as_ref().and_then(|user| user(parts))
        {
            request = request.user(user);
        }
        for name in needs.needs_values() {
            if let Some(value) = find(&asks.values, name).and_then(|value| value(parts)) {
                request = request.value(name, value);
            }
        }
        for question in needs.needs_answers() {
            if find(&asks.answers, question).is_some_and(|answer| answer(parts)) {
                request = request.answer_yes(question);
            }
        }
        match parts.extensions.get::<Admission>() {
            Some(before) => request.after(before),
            None => request,
        }
    }
}

fn peer(parts: &Parts) -> Peer {
    let address = parts.extensions.get::<SocketAddr>().map(|address| Peer::from(*address));
    address.or_else(|| parts.extensions.get::<Peer>().copied()).unwrap_or(Peer::Unknown)
}

fn find<'a, T>(asks: &'a [(String, Ask<T>)], name: &str) -> Option<&'a Ask<T>> {
    asks.iter().rev().find(|(known, _)| known == name).map(|(_, ask)| ask)
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        self.warn();
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
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        // The one that is ready is called; its clone need not be.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (mut parts, body) = request.into_parts();
        let admit = self.layer.request(&parts).admit();
        Box::pin(async move {
            let admission = match admit.await {
                Ok(admission) if admission.allowed() => admission,
                Ok(admission) => return Ok(refusal(&admission, is_grpc(&parts.headers))),
                Err(error) => {
                    log::error!(target: LOG, "a request could not be judged: {error}");
                    return Ok(failure(is_grpc(&parts.headers)));
                }
            };
            parts.extensions.insert(admission.clone());
            let mut response = inner.call(Request::from_parts(parts, body)).await?;
            tell(&admission, response.headers_mut());
            admission.settle(response.status().as_u16()).detach();
            Ok(response.map(ResponseBody::of_service))
        })
    }
}

/// Adds the fields that are not there yet: the application's own words stand, and those of a layer further inside, which
/// tell of this one's limits too.
fn tell(admission: &Admission, headers: &mut HeaderMap) {
    for (name, value) in admission.headers() {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::try_from(value)) {
            headers.entry(name).or_insert(value);
        }
    }
}

fn refusal<B>(admission: &Admission, is_grpc: bool) -> Response<ResponseBody<B>> {
    let mut response = if is_grpc {
        grpc(match admission.outcome() {
            Outcome::Unavailable => (14, "temporarily unavailable"),
            Outcome::NoIdentity => (7, "no identity"),
            _ => (8, "too many requests"),
        })
    } else {
        let body = admission.body().unwrap_or_default().to_owned();
        let status = admission.status().and_then(|status| StatusCode::from_u16(status).ok());
        plain(status.unwrap_or(StatusCode::TOO_MANY_REQUESTS), Bytes::from(body))
    };
    tell(admission, response.headers_mut());
    response
}

fn failure<B>(is_grpc: bool) -> Response<ResponseBody<B>> {
    if is_grpc { grpc((13, "internal error")) } else { plain(StatusCode::INTERNAL_SERVER_ERROR, Bytes::new()) }
}

fn plain<B>(status: StatusCode, body: Bytes) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::of_ours(body));
    *response.status_mut() = status;
    response
}

/// A gRPC response of trailers only: a status of its own, in headers, under HTTP's 200.
fn grpc<B>((code, message): (u16, &'static str)) -> Response<ResponseBody<B>> {
    let mut response = Response::new(ResponseBody::of_ours(Bytes::new()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(code));
    headers.insert("grpc-message", HeaderValue::from_static(message));
    response
}

/// `application/grpc`, with a format perhaps, or gRPC-Web's.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let (kind, rest) = kind.split_at(kind.len().min(b"application/grpc".len()));
    kind.eq_ignore_ascii_case(b"application/grpc") && matches!(rest.first(), None | Some(b'+' | b';' | b'-' | b' '))
}

pin_project_lite::pin_project! {
    /// The body of a response: the service's, or that of a refusal.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        service: Option<B>,
        ours: Bytes,
    }
}

impl<B> ResponseBody<B> {
    fn of_service(body: B) -> ResponseBody<B> {
        ResponseBody { service: Some(body), ours: Bytes::new() }
    }

    fn of_ours(ours: Bytes) -> ResponseBody<B> {
        ResponseBody { service: None, ours }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let body = self.project();
        match body.service.as_pin_mut() {
            Some(service) => service.poll_frame(context),
            None if body.ours.is_empty() => Poll::Ready(None),
            None => Poll::Ready(Some(Ok(Frame::data(std::mem::take(body.ours))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.service.as_ref().map_or(self.ours.is_empty(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.service.as_ref().map_or_else(|| SizeHint::with_exact(self.ours.len() as u64), Body::size_hint)
    }
}
