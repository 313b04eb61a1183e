//! An axum service behind a document of rules: `cargo run -p tidegate-examples --bin axum`, then
//! `curl -i localhost:3000/`. `TIDEGATE_URL` puts the rules' state on a server, `PORT` is another port.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{ConnectInfo, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use tidegate::http::{Admission, Policy};
use tidegate::tower::RateLimitLayer;

/// When requests were charged, by the store's clock in microseconds since 1970.
type Charges = Arc<Mutex<Vec<u64>>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = Policy::watch(concat!(env!("CARGO_MANIFEST_DIR"), "/service.toml"))?;
    policy.ready(Duration::from_secs(5)).await?;

    let metrics = policy.clone();
    let layer = RateLimitLayer::new(policy)
        .peer(|parts| parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0))
        // A real service looks at its session here; it is only asked where a rule needs the user.
        .user(|parts| parts.headers.get("x-user")?.to_str().ok().map(str::to_owned));

    let app = Router::new()
        .route("/", get(hello))
        .route("/login", post(login))
        .route("/search/{term}", get(search))
        .route("/internal/charges", get(charges))
        .route("/internal/metrics", get(|| async move { metrics.metrics().prometheus() }))
        .layer(layer)
        .with_state(Charges::default());

    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    writeln!(std::io::stdout(), "listening on http://{}", listener.local_addr()?)?;
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

async fn hello(State(charges): State<Charges>, Extension(admission): Extension<Admission>) -> String {
    let mut charges = charges.lock().unwrap_or_else(PoisonError::into_inner);
    for decision in admission.decisions() {
        charges.extend(decision.receipt().charged_at());
    }
    let left: Option<u32> = admission.decisions().iter().map(|decision| decision.remaining()).min();
    format!("hello; {} left\n", left.map_or("any number".to_owned(), |left| left.to_string()))
}

/// A failure of ours is not charged to the user: `refund_status` in the document says so.
async fn login(body: String) -> (StatusCode, &'static str) {
    if body.is_empty() { (StatusCode::INTERNAL_SERVER_ERROR, "failed\n") } else { (StatusCode::OK, "welcome\n") }
}

async fn search(Path(term): Path<String>) -> String {
    format!("nothing about {term}\n")
}

async fn charges(State(charges): State<Charges>) -> String {
    let charges = charges.lock().unwrap_or_else(PoisonError::into_inner);
    charges.iter().map(|at| format!("{at}\n")).collect()
}
