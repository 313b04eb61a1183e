//! The layer in a server of hyper's.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tidegate::http::Admission;
use tidegate::tower::RateLimitLayer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tower::Layer as _;

use crate::ours::{PATIENCE, policy};

async fn hello(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let admission = request.extensions().get::<Admission>().expect("the layer's");
    Ok(Response::new(Full::from(format!("hello, {} decided", admission.decisions().len()))))
}

/// Sends a request, and reads what comes until the server has no more.
async fn exchange(listener: &TcpListener, head: &str) -> String {
    let work = async {
        let address = listener.local_addr().expect("it listens");
        let mut stream = TcpStream::connect(address).await.expect("it is accepted");
        stream.write_all(format!("{head}\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await.expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an answer in text");
        text.to_ascii_lowercase()
    };
    tokio::time::timeout(PATIENCE, work).await.expect("an answer in time")
}

#[tokio::test]
async fn hyper() {
    let policy = policy("rules = { api = '2/h' }\nhttp = { default = { rules = 'api', key = 'ip' } }");
    let layer = RateLimitLayer::new(policy);
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.expect("a free port"));
    let accepting = Arc::clone(&listener);
    let server = tokio::spawn(async move {
        loop {
            let (stream, peer) = accepting.accept().await.expect("a connection");
            // Hyper knows nobody's address, so each connection's layer does.
            let service = layer.clone().peer(move |_| peer).layer(tower::service_fn(hello));
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            tokio::spawn(connection);
        }
    });
    let first = exchange(&listener, "GET / HTTP/1.1").await;
    assert!(first.starts_with("http/1.1 200 ok\r\n") && first.ends_with("\r\n\r\nhello, 1 decided"), "{first}");
    assert!(first.contains("\r\nx-ratelimit-remaining: 1\r\n"), "{first}");
    let head = exchange(&listener, "HEAD / HTTP/1.1").await;
    assert!(head.starts_with("http/1.1 200 ok\r\n") && head.ends_with("\r\n\r\n"), "{head}");

    let refused = exchange(&listener, "GET / HTTP/1.1\r\nAccept: text/plain").await;
    assert!(refused.starts_with("http/1.1 429 too many requests\r\n"), "{refused}");
    assert!(refused.contains("\r\nretry-after: ") && refused.contains("\r\ncontent-type: text/plain"), "{refused}");
    let (fields, body) = refused.split_once("\r\n\r\n").expect("fields and a body");
    assert!(body.starts_with("too many requests. try again in "), "{body}");
    assert!(fields.contains(&format!("\r\ncontent-length: {}", body.len())), "{fields}");
    let refused = exchange(&listener, "HEAD / HTTP/1.1").await;
    assert!(refused.starts_with("http/1.1 429 ") && refused.ends_with("\r\n\r\n"), "{refused}");
    server.abort();
}
