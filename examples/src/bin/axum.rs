//! An axum service, limited by `service.toml` or the document that is named: `cargo run -p tidegate-examples --bin axum`,
//! then `curl -i http://127.0.0.1:3000/`. `TIDEGATE_URL=redis://127.0.0.1` shares the state of the limits between
//! processes; `PORT` is another port.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{ConnectInfo, Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Router};
use tidegate::http::{Admission, Policy};
use tidegate::tower::RateLimitLayer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let document = std::env::args().nth(1);
    let document = document.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/service.toml").to_owned());
    let policy = Policy::watch(document)?; // changes of the file hold within a second
    policy.ready(Duration::from_secs(5)).await?; // leave this out to start without the store as well

    let layer = RateLimitLayer::new(policy.clone())
        .peer(|request| request.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0))
        // Only asked where a route needs the user. A real service looks at its session, and believes no header.
        .user(|request| request.headers.get("x-user")?.to_str().ok().map(str::to_owned));

    let app = Router::new()
        .route("/", get(hello))
        .route("/login", post(login))
        .route("/search/{term}", get(search))
        .route("/internal/metrics", get(metrics).with_state(policy))
        .route("/internal/charges", get(charges))
        .with_state(Charges::default())
        .layer(layer);

    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    writeln!(std::io::stdout(), "listening on http://{}", listener.local_addr()?)?;
    // With the peers' addresses: without them nobody's is known.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// A handler reads what was decided.
async fn hello(State(charges): State<Charges>, Extension(admission): Extension<Admission>) -> String {
    charges.add(&admission);
    let left = admission.decisions().iter().map(|decision| decision.remaining()).min();
    left.map_or_else(|| "hello\n".to_owned(), |left| format!("hello, {left} left\n"))
}

/// Fails without a body. Such a request is charged nothing: `refund_status`.
async fn login(body: String) -> (StatusCode, &'static str) {
    if body.is_empty() { (StatusCode::INTERNAL_SERVER_ERROR, "failed\n") } else { (StatusCode::OK, "welcome\n") }
}

async fn search(Path(term): Path<String>) -> String {
    format!("nothing about {term}\n")
}

async fn metrics(State(policy): State<Policy>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], policy.metrics().prometheus())
}

/// When the last 100,000 requests to `/` were charged, by the store's clock in microseconds since 1970: to hold the limit
/// against. A real service has no need of it.
#[derive(Clone, Default)]
struct Charges(Arc<Mutex<VecDeque<u64>>>);

impl Charges {
    const MOST: usize = 100_000;

    fn add(&self, admission: &Admission) {
        let mut charges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for decision in admission.decisions() {
            charges.extend(decision.receipt().charged_at());
        }
        let too_many = charges.len().saturating_sub(Charges::MOST);
        charges.drain(..too_many);
    }
}

async fn charges(State(charges): State<Charges>) -> String {
    let charges = charges.0.lock().unwrap_or_else(PoisonError::into_inner);
    charges.iter().map(|at| format!("{at}\n")).collect()
}
