//! What the layer asks, adds and answers, before plain services.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use tidegate::Document;
use tidegate::http::{Admission, Outcome, Policy};
use tidegate::tower::{RateLimitLayer, ResponseBody};
use tower::{Layer as _, Service, ServiceExt as _};

pub(crate) type Body = Full<Bytes>;

/// Longer than any machine is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A policy in memory.
pub(crate) fn policy(rest: &str) -> Policy {
    Policy::new(&Document::from_toml(&format!("version = 1\n{rest}")).expect("a good document")).expect("a policy")
}

pub(crate) fn request(method: &str, path: &str) -> Request<Body> {
    Request::builder().method(method).uri(path).body(Body::default()).expect("a request")
}

/// What a service answers, read to its end.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("printable ASCII"))
    }
}

/// Asks a service, within bounds.
pub(crate) async fn ask<S, B>(service: &S, request: Request<Body>) -> Answer
where
    S: Service<Request<Body>, Response = Response<ResponseBody<B>>, Error = Infallible> + Clone,
    B: http_body::Body<Data = Bytes, Error = Infallible>,
{
    let work = async {
        let Ok(response) = service.clone().oneshot(request).await;
        let (parts, body) = response.into_parts();
        let Ok(body) = body.collect().await;
        let body = String::from_utf8(body.to_bytes().to_vec()).expect("text");
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    };
    tokio::time::timeout(PATIENCE, work).await.expect("it is answered in time")
}

/// A service that counts its calls, and answers with the outcome that the layer told it.
pub(crate) fn counting(
    calls: &Arc<AtomicUsize>,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static {
    let calls = Arc::clone(calls);
    tower::service_fn(move |request: Request<Body>| {
        calls.fetch_add(1, Ordering::SeqCst);
        let outcome = request.extensions().get::<Admission>().map_or("unknown", |admission| admission.outcome().name());
        std::future::ready(Ok(Response::new(Body::from(outcome))))
    })
}

#[tokio::test]
async fn what_is_refused_never_reaches_the_service() {
    let policy = policy("rules = { api = '2/h' }\nhttp = { default = { rules = 'api', key = 'ip' } }");
    let calls = Arc::default();
    let service = RateLimitLayer::new(policy).layer(counting(&calls));
    let from = |address: &str| {
        let mut request = request("GET", "/");
        request.extensions_mut().insert(std::net::SocketAddr::new(address.parse().expect("an address"), 4711));
        request
    };
    for left in [1, 0] {
        let answer = ask(&service, from("203.0.113.7")).await;
        assert_eq!((answer.status, &*answer.body), (200, "allowed"));
        assert_eq!(answer.field("x-ratelimit-remaining"), Some(&*left.to_string()));
    }
    let refused = ask(&service, from("203.0.113.7")).await;
    assert_eq!((refused.status, refused.field("content-type")), (429, Some("application/problem+json")));
    assert!(refused.body.contains("#quota-exceeded") && refused.headers.contains_key("retry-after"));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    assert_eq!(ask(&service, from("203.0.113.8")).await.status, 200);
}

#[tokio::test]
async fn without_an_identity_is_403() {
    let rest =
        "rules = { api = '2/h' }\nhttp = { default = { rules = 'api', key = 'user', without_identity = 'refuse' } }";
    let service = RateLimitLayer::new(policy(rest)).layer(counting(&Arc::default()));
    assert_eq!(ask(&service, request("GET", "/")).await.status, 403);
}

#[tokio::test]
async fn the_application_is_asked_only_where_a_route_needs_it() {
    let rest = r#"
        rules = { api = "9/h" }
        [[routes]]
        path = "/free"
        rules = []
        [[routes]]
        path = "/all"
        rules = "api"
        key = "constant:all"
        [[routes]]
        path = "/user"
        rules = "api"
        key = "user"
        without_identity = "refuse"
        [[routes]]
        path = "/tenant"
        rules = "api"
        key = "app:tenant"
        without_identity = "refuse"
        [[routes]]
        path = "/cost"
        rules = "api"
        key = "constant:all"
        cost = "app:units"
        [[routes]]
        path = "/staff"
        rules = "api"
        key = "constant:all"
        exempt = { app = ["is_staff"] }
    "#;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let ask_for = |name: &'static str| {
        let asked = Arc::clone(&asked);
        move || asked.lock().unwrap_or_else(PoisonError::into_inner).push(name)
    };
    let (user, tenant, units, staff, never) =
        (ask_for("user"), ask_for("tenant"), ask_for("units"), ask_for("is_staff"), ask_for("never"));
    let layer = RateLimitLayer::new(policy(rest))
        .user(move |_| {
            user();
            Some("alice".to_owned())
        })
        .value("tenant", {
            let never = never.clone();
            move |_| {
                never();
                None
            }
        })
        .value("tenant", move |_| {
            tenant();
            Some("acme".to_owned())
        })
        .value("units", move |_| {
            units();
            Some("2".to_owned())
        })
        .answer("is_staff", move |_| {
            staff();
            true
        })
        .answer("is_friend", move |_| {
            never();
            true
        });
    let service = layer.layer(counting(&Arc::default()));
    let cases: [(&str, &[&str], &str, Option<&str>); 7] = [
        ("/free", &[], "unlimited", None),
        ("/missing", &[], "unlimited", None),
        ("/all", &[], "allowed", Some("8")),
        ("/user", &["user"], "allowed", Some("8")),
        ("/tenant", &["tenant"], "allowed", Some("8")),
        ("/cost", &["units"], "allowed", Some("6")),
        ("/staff", &["is_staff"], "exempt", None),
    ];
    for (path, needed, outcome, left) in cases {
        let answer = ask(&service, request("GET", path)).await;
        assert_eq!((&*answer.body, answer.field("x-ratelimit-remaining")), (outcome, left), "{path}");
        let asked = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
        assert_eq!(asked, needed, "{path}");
    }
}

#[tokio::test]
async fn headers_of_several_lines_are_read_line_by_line() {
    let rest =
        "rules = { api = '2/h' }\nhttp = { trusted_proxies = ['loopback'], default = { rules = 'api', key = 'ip' } }";
    let layer = RateLimitLayer::new(policy(rest)).peer(|_| "127.0.0.1");
    let service = layer.layer(counting(&Arc::default()));
    for (forged, left) in [("198.51.100.1", "1"), ("198.51.100.2", "0")] {
        let mut request = request("GET", "/");
        request.headers_mut().append("x-forwarded-for", forged.parse().expect("a value"));
        request.headers_mut().append("x-forwarded-for", "203.0.113.7".parse().expect("a value"));
        assert_eq!(ask(&service, request).await.field("x-ratelimit-remaining"), Some(left));
    }
}

#[tokio::test]
async fn the_applications_own_fields_stand() {
    let rest = "rules = { api = '9/h' }\nhttp = { default = { rules = 'api', key = 'constant:all' } }";
    let inner = tower::service_fn(|_: Request<Body>| async {
        let response = Response::builder().header("X-RateLimit-Limit", "7").header("ratelimit-policy", "\"own\";q=7");
        Ok::<_, Infallible>(response.body(Body::default()).expect("a response"))
    });
    let answer = ask(&RateLimitLayer::new(policy(rest)).layer(inner), request("GET", "/")).await;
    assert_eq!(answer.headers.get_all("x-ratelimit-limit").iter().collect::<Vec<_>>(), ["7"]);
    assert_eq!(answer.headers.get_all("ratelimit-policy").iter().collect::<Vec<_>>(), ["\"own\";q=7"]);
    assert_eq!(answer.field("x-ratelimit-remaining"), Some("8"));
}

#[tokio::test]
async fn a_shadow_route_says_nothing() {
    let rest = "rules = { api = '1/h' }\nhttp = { default = { rules = 'api', key = 'constant:all', mode = 'shadow' } }";
    let service = RateLimitLayer::new(policy(rest)).layer(counting(&Arc::default()));
    for outcome in [Outcome::Allowed, Outcome::Refused] {
        let answer = ask(&service, request("GET", "/")).await;
        assert_eq!((answer.status, &*answer.body, answer.headers.len()), (200, outcome.name(), 0));
    }
}

/// Keeps what is logged of requests.
struct Log(Mutex<Vec<String>>);

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target() == "tidegate::http"
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}", record.level(), record.args());
        // Of another test.
        let is_strange = line.contains("\"points\"");
        if self.enabled(record.metadata()) && !is_strange {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    fn flush(&self) {}
}

#[tokio::test]
async fn a_cost_that_cannot_be_meant_is_an_error_of_the_applications() {
    static LOG: Log = Log(Mutex::new(Vec::new()));
    log::set_logger(&LOG).expect("no other test sets one");
    log::set_max_level(log::LevelFilter::Error);

    let rest =
        "rules = { api = '9/h' }\nhttp = { default = { rules = 'api', key = 'constant:all', cost = 'app:units' } }";
    let calls = Arc::default();
    let layer = RateLimitLayer::new(policy(rest))
        .value("units", |parts| parts.headers.get("units").map(|units| units.to_str().expect("text").to_owned()));
    let service = layer.layer(counting(&calls));
    let cost = |units: Option<&str>| {
        let mut request = request("GET", "/");
        let value = units.map(|units| units.parse().expect("a value"));
        request.headers_mut().extend(value.map(|value| (http::HeaderName::from_static("units"), value)));
        request
    };
    for units in [None, Some(""), Some("tea4711"), Some("-4711"), Some("1.4711"), Some("0"), Some("47114711")] {
        LOG.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let answer = ask(&service, cost(units)).await;
        assert_eq!((answer.status, &*answer.body, answer.headers.len()), (500, "", 0), "{units:?}");
        let lines = LOG.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let [line] = &lines[..] else { panic!("{units:?}: {lines:?}") };
        assert!(line.starts_with("ERROR a request could not be judged: invalid_request: "), "{line}");
        assert!(!["tea4711", "-4711", "1.4711"].iter().any(|value| line.contains(value)), "{line}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let answer = ask(&service, cost(Some("4"))).await;
    assert_eq!((answer.status, answer.field("x-ratelimit-remaining")), (200, Some("5")), "nothing was charged before");
}

/// A service that must be ready when it is called; a clone is not.
struct Careful {
    ready: bool,
}

impl Clone for Careful {
    fn clone(&self) -> Careful {
        Careful { ready: false }
    }
}

impl Service<Request<Body>> for Careful {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Response<Body>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being ready");
        std::future::ready(match request.uri().path() {
            "/broken" => Err("broken"),
            _ => Ok(Response::default()),
        })
    }
}

#[tokio::test]
async fn the_service_that_is_ready_is_the_one_that_is_called() {
    let rest = "rules = { api = '9/h' }\nhttp = { default = { rules = 'api', key = 'constant:all' } }";
    let mut service = RateLimitLayer::new(policy(rest)).layer(Careful { ready: false });
    for _ in 0..3 {
        let call = service.ready().await.expect("it is always ready").call(request("GET", "/"));
        assert_eq!(call.await.expect("an answer").status(), 200);
    }
    // Several calls at once, each with its own.
    let calls = [service.ready().await.expect("ready").call(request("GET", "/")), {
        let again = service.ready().await.expect("ready");
        again.call(request("GET", "/"))
    }];
    for call in calls {
        assert_eq!(call.await.expect("an answer").status(), 200);
    }
    let call = service.ready().await.expect("ready").call(request("GET", "/broken"));
    assert_eq!(call.await.err(), Some("broken"), "its errors are handed on");
}

#[tokio::test]
async fn bodies_of_the_service_pass_as_they_are() {
    let rest = "rules = { api = '1/h' }\nhttp = { default = { rules = 'api', key = 'constant:all' } }";
    let inner = tower::service_fn(|_: Request<Body>| async {
        let trailers =
            HeaderMap::from_iter([(http::HeaderName::from_static("checksum"), "4711".parse().expect("text"))]);
        Ok::<_, Infallible>(Response::new(Body::from("hello").with_trailers(async { Some(Ok(trailers)) })))
    });
    let service = RateLimitLayer::new(policy(rest)).layer(inner);
    let Ok(response) = service.clone().oneshot(request("GET", "/")).await;
    let body = response.into_body().collect().await.expect("no error");
    assert_eq!(body.trailers().and_then(|trailers| trailers.get("checksum")).expect("it is there"), "4711");
    assert_eq!(body.to_bytes(), "hello");

    let Ok(refused) = service.oneshot(request("GET", "/")).await;
    let mut body = Box::pin(refused.into_body());
    let size = body.size_hint().exact().expect("it is known");
    assert!(!body.is_end_stream());
    let frame = body.frame().await.expect("a frame").expect("no error").into_data().expect("data");
    assert_eq!(u64::try_from(frame.len()), Ok(size));
    assert!(body.is_end_stream() && body.frame().await.is_none());
}
