//! Logins that fail, and passwords that show nowhere.

use std::time::Duration;

use tidegate::{Document, ErrorKind, Limiter, Origin};
use tidegate_tests::limiters::{Sure, build};
use tidegate_tests::servers::{Server, eventually};

const SOON: Duration = Duration::from_secs(20);
const PASSWORD: &str = "hunter2hunter2hunter2";

#[track_caller]
fn assert_hidden(text: &str) {
    assert!(!text.contains(PASSWORD), "{text}");
}

#[test]
fn a_wrong_password_follows_on_error_and_says_so_without_telling_it() {
    let server = Server::builder().password("the right one's secret".split(' ').next().expect("a word")).start();
    let url = format!("redis://:{PASSWORD}@127.0.0.1:{}", server.port());
    let limiter = build(Limiter::builder().url(&url), &[("r", "5/h")]);
    let decision = limiter.check("r", "k").deadline(SOON).wait().expect("a store that fails is no error");
    let failure = decision.failure().expect("it says why");
    assert_eq!((decision.origin(), failure.kind()), (Origin::Open, ErrorKind::StoreUnavailable));
    assert!(failure.message().contains("login"), "{failure}");
    let error = limiter.ready(Duration::from_millis(500)).wait().expect_err("the login is refused");
    assert!(error.message().contains("login") && error.message().contains(&server.port().to_string()), "{error}");
    for text in [format!("{decision:?}"), failure.to_string(), format!("{error:?}"), format!("{limiter:?}")] {
        assert_hidden(&text);
    }
    // The password is put right, and no restart is needed.
    server.call::<()>(&format!("CONFIG SET requirepass {PASSWORD}"));
    eventually(SOON, || limiter.check("r", "k").wait().is_ok_and(|decision| decision.origin() == Origin::Store));
}

#[test]
fn a_password_file_that_hangs_stops_nobody_else() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("password");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo is of coreutils");
    let text = format!("version = 1\nstore.url = {:?}\nstore.password_file = {pipe:?}", server.url());
    let document = Document::from_toml(&text).expect("it can be meant");
    let hanging = build(Limiter::builder().document(&document), &[("r", "5/h")]);
    let well = build(Limiter::builder().url(&server.url()).deadline(SOON), &[("r", "5/h")]);
    let decision = hanging.check("r", "k").wait().expect("a store that fails is no error");
    assert_eq!(decision.origin(), Origin::Open);
    assert_eq!(well.check("r", "k").sure().remaining(), 4);
    // Whoever opens the pipe lets go of the thread that reads it.
    std::fs::write(&pipe, PASSWORD).expect("somebody is reading");
}

#[test]
fn no_login_where_one_is_needed_is_told_as_such() {
    let server = Server::builder().password(PASSWORD).start();
    let limiter = build(Limiter::builder().url(&format!("redis://127.0.0.1:{}", server.port())), &[("r", "5/h")]);
    let decision = limiter.check("r", "k").deadline(SOON).wait().expect("a store that fails is no error");
    let failure = decision.failure().expect("it says why");
    assert_eq!(failure.kind(), ErrorKind::StoreUnavailable);
    assert!(failure.message().contains("login") || failure.message().contains("NOAUTH"), "{failure}");
}

#[test]
fn users_and_passwords_of_all_forms_are_understood() {
    let server = Server::builder().password(PASSWORD).user(&format!("app on >{PASSWORD} ~tidegate:* +@all")).start();
    let port = server.port();
    for login in [
        format!(":{PASSWORD}"),
        format!("default:{PASSWORD}"),
        format!("app:{PASSWORD}"),
        format!("app:%68{}", &PASSWORD[1..]),
    ] {
        let limiter = build(
            Limiter::builder().url(&format!("redis://{login}@127.0.0.1:{port}/0")).deadline(SOON),
            &[("r", "9/h")],
        );
        assert!(limiter.check("r", "k").sure().allowed());
        assert_hidden(&format!("{limiter:?}"));
    }
}

#[test]
fn no_password_shows_in_any_error_or_debug_text() {
    let mut leaks = Vec::new();
    let mut look = |text: String| {
        if text.contains(PASSWORD) {
            leaks.push(text);
        }
    };
    for url in [
        format!("redis://:{PASSWORD}@127.0.0.1:1"),
        format!("redis+cluster://user:{PASSWORD}@127.0.0.1:1"),
        format!("redis+sentinel://user:{PASSWORD}@127.0.0.1:1/main"),
        format!("redis+unix://:{PASSWORD}@/nowhere/redis.sock"),
        // And what people write wrong.
        format!("redis://:{PASSWORD}@127.0.0.1:port"),
        format!("redis://:{PASSWORD}@127.0.0.1/x"),
        format!("redis://:{PASSWORD}@"),
        format!("redis://:{PASSWORD}%FF@127.0.0.1"),
        format!("http://:{PASSWORD}@127.0.0.1"),
        format!(":{PASSWORD}@127.0.0.1"),
        format!("redis://127.0.0.1:1?password={PASSWORD}"),
        format!("redis+unix:///nowhere/redis.sock?password={PASSWORD}"),
        format!("redis://:{PASSWORD}#127.0.0.1:1"),
        format!("redis://:{PASSWORD}/127.0.0.1:1"),
        format!("redis://user:{PASSWORD}"),
    ] {
        let builder = Limiter::builder().url(&url).deadline(Duration::from_secs(1)).rule("r", "5/h");
        look(format!("{builder:?}"));
        match builder.build() {
            Err(error) => look(format!("{url:?}, {error}, {error:?}").replace(&url, "")),
            Ok(limiter) => {
                let decision = limiter.check("r", "k").wait().expect("a store that fails is no error");
                look(format!("{limiter:?}"));
                look(format!("{decision:?}"));
            }
        }
    }
    let text = format!(
        "version = 1\n[store]\nurl = \"redis://127.0.0.1:1\"\npassword = {PASSWORD:?}\nkey_secret = {PASSWORD:?}\n[rules]\nr = \"5/h\""
    );
    let document = Document::from_toml(&text).expect("the document can be read");
    look(format!("{document:?}"));
    look(format!("{:?}", Limiter::builder().document(&document)));
    let limiter = Limiter::builder().document(&document).build().expect("the rules can be meant");
    look(format!("{limiter:?}"));
    for broken in [format!("{text}\nbroken"), text.replace("key_secret", "key_secrets"), text.replace("\"5/h\"", "5")] {
        look(Document::from_toml(&broken).expect_err("it is broken").to_string());
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}
