//! Requests whose clients go away, and servers that hang.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tidegate::Document;
use tidegate::http::Policy;
use tidegate::tower::RateLimitLayer;
use tidegate_tests::limiters::timed;
use tidegate_tests::servers::{Server, eventually};
use tokio::sync::Notify;
use tower::{Layer as _, ServiceExt as _};

use crate::ours::{Body, PATIENCE, ask, counting, request};

/// Ten an hour for everybody together, and 20 seconds for the server to answer.
fn policy(server: &Server) -> Policy {
    let text = format!(
        "version = 1\nstore = {{ url = \"{}\", deadline = \"20s\" }}\nrules = {{ api = \"10/h\" }}\n[http.default]\n\
         rules = \"api\"\nkey = \"constant:all\"\nrefund_status = [\"5xx\"]\n",
        server.url()
    );
    let policy = Policy::new(&Document::from_toml(&text).expect("a good document")).expect("a policy");
    policy.ready(PATIENCE).wait().expect("the server is there");
    policy
}

fn left(policy: &Policy) -> u32 {
    let key = tidegate::Key::parts(["constant", "all"]);
    policy.limiter().peek("api", key).wait().expect("the store answers").remaining()
}

#[tokio::test]
async fn a_request_that_is_given_up_loses_no_more_than_its_own_charge() {
    let server = Server::start();
    let policy = policy(&server);
    let service = RateLimitLayer::new(policy.clone()).layer(counting(&Arc::default()));
    assert_eq!(ask(&service, request("GET", "/")).await.status, 200);
    server.pause();
    let given_up = tokio::time::timeout(Duration::from_millis(100), service.clone().oneshot(request("GET", "/"))).await;
    assert!(given_up.is_err(), "the server hangs");
    server.resume();
    let answer = ask(&service, request("GET", "/")).await;
    assert_eq!(answer.status, 200);
    // The charge came to the server or not, and may have been sent back since.
    let left: u32 = answer.field("x-ratelimit-remaining").and_then(|left| left.parse().ok()).expect("a number");
    assert!((7..=8).contains(&left), "{left}");
}

#[tokio::test]
async fn a_request_that_is_given_up_in_the_service_stays_charged() {
    let server = Server::start();
    let policy = policy(&server);
    let entered = Arc::new(Notify::new());
    let entering = Arc::clone(&entered);
    let inner = tower::service_fn(move |_: Request<Body>| {
        entering.notify_one();
        std::future::pending::<Result<Response<Body>, Infallible>>()
    });
    let call = RateLimitLayer::new(policy.clone()).layer(inner).oneshot(request("GET", "/"));
    tokio::select! {
        _ = call => panic!("the service never answers"),
        entered = tokio::time::timeout(PATIENCE, entered.notified()) => entered.expect("it is let through"),
    }
    assert_eq!(left(&policy), 9);
}

#[test]
fn a_response_does_not_wait_for_its_refund() {
    let server = Arc::new(Server::start());
    let policy = policy(&server);
    let hanging = Arc::clone(&server);
    let inner = tower::service_fn(move |_: Request<Body>| {
        hanging.pause();
        std::future::ready(Ok::<_, Infallible>(Response::builder().status(500).body(Body::default()).expect("good")))
    });
    let service = RateLimitLayer::new(policy.clone()).layer(inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    // By a clock outside of the runtime, which a wait on its thread would stop.
    let (answer, took) = timed(|| runtime.block_on(ask(&service, request("GET", "/"))));
    server.resume();
    assert_eq!(answer.status, 500);
    assert!(took < Duration::from_secs(10), "{took:?}: the refund takes 20 seconds");
    eventually(PATIENCE, || left(&policy) == 10);
}
