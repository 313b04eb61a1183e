//! The axum example over a socket, on a real server.

mod service;

use tidegate::{Key, Limiter};
use tidegate_tests::servers::{Server, eventually};
use ureq::http::Response;
use ureq::{Agent, Body};

use service::{PATIENCE, Service, client};

/// What tests ask of a running example.
struct Stage {
    service: Service,
    server: Server,
    client: Agent,
}

impl Stage {
    fn start() -> Stage {
        let server = Server::start();
        Stage { service: Service::start(&server), client: client(), server }
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
        let request = self.client.get(self.service.url(path));
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).call().expect("an answer")
    }

    /// Logs in from an address, as a proxy on this machine tells it.
    fn login(&self, address: &str, accept: &str, body: &str) -> Response<Body> {
        let request = self.client.post(self.service.url("/login"));
        request.header("x-forwarded-for", address).header("accept", accept).send(body).expect("an answer")
    }

    /// What the server knows to be left of the logins of an address.
    fn logins_left(&self, address: &str) -> u32 {
        let rule = ("login", "5/m; 20/h");
        let limiter = Limiter::builder().url(&self.server.url()).prefix("shop").rule(rule.0, rule.1).deadline(PATIENCE);
        let limiter = limiter.build().expect("a limiter");
        limiter.peek("login", Key::parts(["ip", address])).wait().expect("the server answers").remaining()
    }
}

fn field<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().expect("printable ASCII"))
}

fn text(response: &mut Response<Body>) -> String {
    response.body_mut().read_to_string().expect("text")
}

#[test]
fn logins_are_limited_by_the_address_that_the_proxy_tells() {
    let stage = Stage::start();
    for left in (0..5).rev() {
        // What the client itself wrote stands to the left, and changes nothing.
        let forged = format!("198.51.100.{left}, 203.0.113.7");
        let mut response = stage.login(&forged, "*/*", "alice");
        assert_eq!((response.status().as_u16(), text(&mut response).as_str()), (200, "welcome\n"));
        let policy = r#""login";q=5;w=60, "login:2";q=20;w=3600"#;
        assert_eq!(field(&response, "ratelimit-policy"), Some(policy));
        let remaining = left.to_string();
        assert_eq!(field(&response, "x-ratelimit-remaining"), Some(&*remaining));
        assert_eq!((field(&response, "x-ratelimit-limit"), field(&response, "retry-after")), (Some("5"), None));
    }

    let mut refused = stage.login("203.0.113.7", "application/json;q=0.5, application/problem+json", "alice");
    assert_eq!((refused.status().as_u16(), field(&refused, "content-type")), (429, Some("application/problem+json")));
    let body = text(&mut refused);
    assert!(body.contains(r##"#quota-exceeded"##) && body.contains(r#""violated-policies":["login"]"#), "{body}");
    let seconds: u64 = field(&refused, "retry-after").and_then(|wait| wait.parse().ok()).expect("whole seconds");
    assert!((1..=60).contains(&seconds), "{seconds}");
    let limits = field(&refused, "ratelimit").expect("a refusal has it too");
    assert!(limits.starts_with(&format!(r#""login";r=0;t={seconds}, "login:2";r=15;"#)), "{limits}");
    assert_eq!(field(&refused, "x-ratelimit-remaining"), Some("0"));
    assert_eq!((field(&refused, "cache-control"), field(&refused, "vary")), (Some("no-store"), Some("Accept")));

    let mut refused = stage.login("203.0.113.7", "application/json", "alice");
    assert_eq!((refused.status().as_u16(), field(&refused, "content-type")), (429, Some("application/json")));
    assert!(text(&mut refused).starts_with(r#"{"error":"Too Many Requests","retry_after_seconds":"#));
    let mut refused = stage.login("203.0.113.7", "text/html", "alice");
    assert!(text(&mut refused).starts_with("Too many requests. Try again in "));

    assert_eq!(stage.login("203.0.113.8", "*/*", "alice").status(), 200, "others have logins of their own");
    assert_eq!(stage.login("203.0.113.7", "*/*", "").status(), 429, "refused before anything fails");
}

#[test]
fn a_failure_of_the_services_own_costs_nothing() {
    let stage = Stage::start();
    for _ in 0..8 {
        assert_eq!(stage.login("203.0.113.9", "*/*", "").status(), 500, "no more than 5 would pass, were they charged");
        // The response does not wait for the refund.
        eventually(PATIENCE, || stage.logins_left("203.0.113.9") == 5);
    }
    assert_eq!(stage.login("203.0.113.9", "*/*", "alice").status(), 200);
    assert_eq!(stage.logins_left("203.0.113.9"), 4);
}

#[test]
fn handlers_read_what_was_decided() {
    let stage = Stage::start();
    let mut hello = stage.get("/", &[]);
    assert_eq!((hello.status().as_u16(), text(&mut hello).as_str()), (200, "hello, 999 left\n"));
    assert_eq!(field(&hello, "ratelimit-policy"), Some(r#""everything";q=1000;w=1"#));
    assert_eq!(field(&hello, "ratelimit"), Some(r#""everything";r=999;t=1"#));
    let charges = text(&mut stage.get("/internal/charges", &[]));
    assert!(charges.lines().count() == 1 && charges.trim().parse::<u64>().is_ok(), "{charges:?}");
}

#[test]
fn searches_are_the_users_or_else_the_addresss() {
    let stage = Stage::start();
    let drained = |headers: &[(&str, &str)]| (0..1_000).any(|_| stage.get("/search/tea", headers).status() == 429);
    assert!(drained(&[("x-user", "alice")]));
    let bob = stage.get("/search/tea", &[("x-user", "bob")]);
    assert_eq!(bob.status(), 200);
    let policy = r#""search";q=10;w=1, "everything";q=1000;w=1"#;
    assert_eq!(field(&bob, "ratelimit-policy"), Some(policy), "both keys' limits");
    assert_eq!(stage.get("/search/tea", &[("x-forwarded-for", "203.0.113.7")]).status(), 200, "no user, an address");
}

#[test]
fn what_is_not_a_get_is_limited_too() {
    let stage = Stage::start();
    let url = stage.service.url("/search/tea");
    let refused = (0..1_000).find_map(|_| {
        let response = stage.client.head(&url).call().expect("an answer");
        assert!(response.headers().contains_key("ratelimit"));
        (response.status() == 429).then_some(response)
    });
    let mut refused = refused.expect("30 at once pass, and 10 a second");
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(text(&mut refused), "", "HEAD has no body");

    // Of no use here, so it is refused by the router; but not before it was counted.
    let options = stage.client.options(stage.service.url("/")).call().expect("an answer");
    assert_eq!(options.status(), 405);
    assert!(field(&options, "ratelimit").is_some_and(|limits| limits.starts_with(r#""everything";r="#)));
    // The login's limit is for POST.
    let get = stage.get("/login", &[]);
    assert_eq!((get.status().as_u16(), field(&get, "x-ratelimit-limit")), (405, Some("1000")));
    // Neither is a path that nobody serves free.
    let missing = stage.get("/missing", &[]);
    assert_eq!((missing.status().as_u16(), field(&missing, "x-ratelimit-limit")), (404, Some("1000")));
}

#[test]
fn what_is_internal_is_not_limited() {
    let stage = Stage::start();
    assert_eq!(stage.get("/", &[]).status(), 200);
    let mut page = stage.get("/internal/metrics", &[]);
    assert_eq!(field(&page, "content-type"), Some("text/plain; version=0.0.4"));
    assert_eq!((field(&page, "ratelimit"), field(&page, "x-ratelimit-limit")), (None, None));
    let page = text(&mut page);
    let counted = r#"tidegate_decisions_total{rule="everything",origin="store",outcome="allowed"} 1"#;
    assert!(page.lines().any(|line| line == counted), "{page}");
}
