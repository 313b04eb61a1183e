//! The layer in a server of tonic's, and what gRPC is answered.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use tidegate::Document;
use tidegate::http::Policy;
use tidegate::tower::RateLimitLayer;
use tidegate_tests::servers::Server;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::server::TcpConnectInfo;
use tonic::transport::{Endpoint, Server as GrpcServer};
use tonic::{Code, Status};
use tower::{Layer as _, Service as _, ServiceExt as _};

use crate::ours::{Body, PATIENCE, ask, counting, policy, request};

fn grpc_request(kind: &str) -> Request<Body> {
    let mut request = request("POST", "/shop.Search/Find");
    request.headers_mut().insert("content-type", kind.parse().expect("a value"));
    request
}

#[tokio::test]
async fn a_refusal_is_a_status_of_grpcs_own() {
    let rest = "rules = { api = '1/h' }\nhttp = { default = { rules = 'api', key = 'constant:all' } }";
    let calls: Arc<AtomicUsize> = Arc::default();
    let service = RateLimitLayer::new(policy(rest)).layer(counting(&calls));
    assert_eq!(&*ask(&service, grpc_request("application/grpc")).await.body, "allowed");
    for kind in ["application/grpc", "application/grpc+proto", "Application/gRPC; x=y", "application/grpc-web+proto"] {
        let refused = ask(&service, grpc_request(kind)).await;
        assert_eq!((refused.status, refused.field("content-type")), (200, Some("application/grpc")), "{kind}");
        assert_eq!(
            (refused.field("grpc-status"), refused.field("grpc-message")),
            (Some("8"), Some("too many requests"))
        );
        assert_eq!((&*refused.body, refused.field("x-ratelimit-remaining")), ("", Some("0")));
        assert!(refused.headers.contains_key("retry-after"));
    }
    for kind in ["application/grpcx", "application/grp", "application/json", "text/application/grpc"] {
        assert_eq!(ask(&service, grpc_request(kind)).await.status, 429, "{kind}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn each_cause_has_its_status() {
    let code = async |policy: Policy| {
        let service = RateLimitLayer::new(policy).layer(counting(&Arc::default()));
        let answer = ask(&service, grpc_request("application/grpc")).await;
        (answer.status, answer.field("grpc-status").map(str::to_owned))
    };
    let rest =
        "rules = { api = '1/h' }\nhttp = { default = { rules = 'api', key = 'user', without_identity = 'refuse' } }";
    assert_eq!(code(policy(rest)).await, (200, Some("7".to_owned())));
    let rest =
        "rules = { api = '1/h' }\nhttp = { default = { rules = 'api', key = 'constant:all', cost = 'app:points' } }";
    assert_eq!(code(policy(rest)).await, (200, Some("13".to_owned())));

    let server = Server::start();
    let text = format!(
        "version = 1\nstore = {{ url = \"{}\" }}\nrules = {{ api = {{ limits = \"1/h\", on_error = \"deny\" }} }}\n\
         http = {{ default = {{ rules = \"api\", key = \"constant:all\" }} }}",
        server.url()
    );
    let policy = Policy::new(&Document::from_toml(&text).expect("a good document")).expect("a policy");
    policy.ready(PATIENCE).wait().expect("the server is there");
    server.kill();
    assert_eq!(code(policy).await, (200, Some("14".to_owned())));
}

#[tokio::test]
async fn tonic() {
    let policy = policy("rules = { api = '1/h' }\nhttp = { default = { rules = 'api', key = 'ip' } }");
    let layer = RateLimitLayer::new(policy)
        .peer(|parts| parts.extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    // A service without methods: it says so to whoever gets through.
    let inner = tower::service_fn(|_: Request<tonic::body::Body>| async {
        Ok::<Response<tonic::body::Body>, Infallible>(Status::unimplemented("no methods").into_http())
    });
    let server = GrpcServer::builder().layer(layer).serve_with_incoming(inner, TcpListenerStream::new(listener));
    let server = tokio::spawn(server);

    let work = async {
        let mut channel = Endpoint::from_shared(url).expect("a URL").connect().await.expect("it listens");
        let mut call = async || -> (u16, HeaderMap, usize) {
            let request = Request::post("/shop.Search/Find").header("content-type", "application/grpc");
            let request = request.body(tonic::body::Body::empty()).expect("a request");
            let response = channel.ready().await.expect("connected").call(request).await.expect("an answer");
            let (parts, body) = response.into_parts();
            let length = body.collect().await.expect("its end").to_bytes().len();
            (parts.status.as_u16(), parts.headers, length)
        };
        let code = |headers: &HeaderMap| Status::from_header_map(headers).map(|status| status.code());
        let (_, headers, _) = call().await;
        assert_eq!(code(&headers), Some(Code::Unimplemented));
        assert_eq!(headers.get("x-ratelimit-remaining").expect("the layer's"), "0");
        let (status, headers, length) = call().await;
        assert_eq!((status, code(&headers), length), (200, Some(Code::ResourceExhausted), 0));
    };
    tokio::time::timeout(PATIENCE, work).await.expect("answers in time");
    server.abort();
}
