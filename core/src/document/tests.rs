use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::secret::redacted;
use super::*;
use crate::rates;
use crate::rule::{Algorithm, Limit, OnError};

const EXAMPLE: &str = r#"
version = 1

[store]
url = "rediss://app:hunter2@redis.internal:6379/0"
prefix = "shop"
deadline = "50ms"
username = "app"
password = "hunter2"
max_keys = 5000
key_secret = "hunter2hunter2hunter2"

[store.tls]
ca = "ca.pem"
certificate = "client.pem"
key = "client.key"
server_name = "redis.internal"

[store.sentinel]
username = "watcher"
password = "hunter2"

[store.address_map]
"10.0.0.1:6379" = "127.0.0.1:7001"

[rules]
login = "5/m"
api = ["100/m", "1000/h"]

[rules.upload]
limits = [
    "5/s burst 20",
    { limit = 100, window = "1h", algorithm = "sliding_window", precision = "1s", name = "hourly", enforce = false },
]
on_error = "deny"

[rules.beta]
limits = "7/d; 3/h"
enforce = false
"#;

fn expected_rules() -> Vec<Rule> {
    let text = |name, limits| Rule::parse(name, limits).expect("a valid rate");
    let hourly = Limit::new(100, Duration::from_secs(3600)).precision(Duration::from_secs(1)).name("hourly");
    let upload = rates::parse("5/s burst 20").expect("a valid rate").into_iter().chain([hourly.enforce(false)]);
    vec![
        text("login", "5/m"),
        text("api", "100/m; 1000/h"),
        Rule::new("upload", upload).expect("a valid rule").on_error(OnError::Deny),
        text("beta", "7/d shadow; 3/h shadow"),
    ]
}

#[test]
fn reads_the_example_in_every_format() {
    let value: Value = toml::from_str(EXAMPLE).expect("TOML");
    let json = Document::from_json(&value.to_string()).expect("as JSON");
    let yaml = Document::from_yaml(&yaml_serde::to_string(&value).expect("YAML")).expect("as YAML");
    let toml = Document::from_toml(EXAMPLE).expect("as TOML");
    assert_eq!(toml.rules(), expected_rules());
    assert_eq!(format!("{json:?}"), format!("{yaml:?}"));
    assert_eq!(format!("{:?}", json.store()), format!("{:?}", toml.store()));
}

#[test]
fn keeps_the_order_of_rules() {
    let names = |document: Document| document.rules().iter().map(|rule| rule.name().to_owned()).collect::<Vec<_>>();
    let toml = "version = 1\n[rules]\nz = '1/s'\nb = '1/s'\na = '1/s'";
    let json = r#"{"version": 1, "rules": {"z": "1/s", "b": "1/s", "a": "1/s"}}"#;
    let yaml = "version: 1\nrules:\n  z: 1/s\n  b: 1/s\n  a: 1/s\n";
    for (text, format) in [(toml, Format::Toml), (json, Format::Json), (yaml, Format::Yaml)] {
        assert_eq!(names(Document::parse(text, format).expect("a valid document")), ["z", "b", "a"]);
    }
}

#[test]
fn fills_in_the_defaults() {
    let document = Document::from_json("\u{feff}{\"version\": 1, \"store\": {\"url\": null}}").expect("valid");
    let store = document.store();
    assert_eq!(document.url(None), None);
    assert_eq!(
        (store.prefix.as_str(), store.deadline, store.max_keys),
        ("tidegate", Duration::from_millis(100), 1_000_000)
    );
    assert!(document.rules().is_empty() && store.username.is_none() && store.tls.is_none());
    assert!(store.password().expect("none").is_none() && store.key_secret().expect("none").is_none());
}

#[test]
fn takes_a_deadline_as_text_or_milliseconds() {
    for (written, millis) in [("250", 250), ("'250ms'", 250), ("'2 seconds'", 2_000), ("60000", 60_000)] {
        let document = Document::from_toml(&format!("version = 1\nstore.deadline = {written}")).expect(written);
        assert_eq!(document.store().deadline, Duration::from_millis(millis));
    }
}

#[test]
fn lets_the_environment_win() {
    let document = Document::from_toml("version = 1\nstore.url = 'redis://a'").expect("valid");
    assert_eq!(document.url(None).as_deref(), Some("redis://a"));
    assert_eq!(document.url(Some(String::new())).as_deref(), Some("redis://a"));
    assert_eq!(document.url(Some("redis://b".to_owned())).as_deref(), Some("redis://b"));
}

#[test]
fn says_what_to_write_instead() {
    for (json, message) in [
        (json!({}), "the field `version` is missing; write version = 1"),
        (json!({"version": 2}), "version: this release does not know version 2 of the document; write version = 1"),
        (json!({"version": "1"}), "version: write a whole number; this is text"),
        (json!([1]), "write a table that begins with version = 1; this is a list"),
        (json!({"version": 1, "rule": {}}), "there is no field `rule`; write one of `version`, `store`, `rules`"),
        (
            json!({"version": 1, "store": "redis://:hunter2@a"}),
            "store: write a table with fields such as url; this is text",
        ),
        (
            json!({"version": 1, "store": {"tls": {"cert": 1}}}),
            "store.tls: there is no field `cert`; write one of `ca`, ",
        ),
        (json!({"version": 1, "store": {"tls": {"key": "a"}}}), "store.tls: certificate and key belong together"),
        (json!({"version": 1, "store": {"tls": {"ca": 1}}}), "store.tls.ca: write a path; this is a number"),
        (
            json!({"version": 1, "store": {"sentinel": {"name": "main"}}}),
            "store.sentinel: there is no field `name`; write one of `username`, ",
        ),
        (
            json!({"version": 1, "store": {"sentinel": {"password": ""}}}),
            "store.sentinel: password has 0 bytes; write at least 1",
        ),
        (
            json!({"version": 1, "store": {"sentinel": {"password": "hunter2", "password_file": "b"}}}),
            "store.sentinel: password and password_file are both there",
        ),
        (
            json!({"version": 1, "store": {"address_map": {"a:1": "b"}}}),
            "store.address_map: only one of a:1 and where it is reached has a port; write host:port for host:port, ",
        ),
        (
            json!({"version": 1, "store": {"address_map": {"redis://:hunter2@a": "b"}}}),
            "store.address_map: an announced address cannot be read",
        ),
        (
            json!({"version": 1, "store": {"address_map": {"a": "redis://:hunter2@b"}}}),
            "store.address_map: where a is reached cannot be read",
        ),
        (
            json!({"version": 1, "store": {"address_map": {"a": 1}}}),
            "store.address_map.a: write text; this is a number",
        ),
        (json!({"version": 1, "store": {"prefix": "a{b"}}), "store: prefix \"a{b\" cannot be used"),
        (json!({"version": 1, "store": {"url": ""}}), "store: url is empty"),
        (json!({"version": 1, "store": {"max_keys": 0}}), "store: max_keys is out of range; write 1 to 1000000000"),
        (
            json!({"version": 1, "store": {"max_keys": 1.5}}),
            "store.max_keys: write a whole number; this is a number with",
        ),
        (
            json!({"version": 1, "store": {"deadline": 0}}),
            "store.deadline: the deadline is out of range; write 1 ms to 1 minute",
        ),
        (json!({"version": 1, "store": {"deadline": "2m"}}), "store.deadline: the deadline is out of range"),
        (json!({"version": 1, "store": {"deadline": "100"}}), "store.deadline: duration \"100\": 100 has no unit"),
        (
            json!({"version": 1, "store": {"deadline": -1}}),
            "store.deadline: write a duration such as \"100ms\", or a whole",
        ),
        (json!({"version": 1, "store": {"password": ""}}), "store: password has 0 bytes; write at least 1"),
        (json!({"version": 1, "store": {"password": 12345}}), "store.password: write text; this is a number"),
        (
            json!({"version": 1, "store": {"password": "a", "password_file": "b"}}),
            "password and password_file are both there",
        ),
        (json!({"version": 1, "store": {"key_secret": "hunter2"}}), "store: key_secret has 7 bytes; write at least 16"),
        (
            json!({"version": 1, "rules": ["5/m"]}),
            "rules: write a table of rules, such as login = \"5/m\"; this is a list",
        ),
    ] {
        let error = Document::from_json(&json.to_string()).expect_err(&json.to_string());
        assert_eq!(error.kind(), ErrorKind::InvalidDocument, "{error}");
        assert!(error.message().contains(message), "{error}\n  should say: {message}");
        assert!(!error.message().contains("hunter2") && !error.message().contains("12345"), "{error}");
    }
}

#[test]
fn names_the_rule_that_is_wrong() {
    for (rule, message) in [
        (
            json!(5),
            "rules.api: write a rate such as \"100/m\", a list of limits, or a table with limits; this is a number",
        ),
        (
            json!([5]),
            "rules.api[0]: write a rate such as \"100/m\", or a table with limit and window; this is a number",
        ),
        (json!({}), "rules.api: the field `limits` is missing; write limits = \"100/m\", or a list of limits"),
        (
            json!({"limit": 3, "window": "1s"}),
            "rules.api: there is no field `limit`; write one of `limits`, `on_error`, `share`, `enforce`",
        ),
        (
            json!({"limits": {}}),
            "rules.api.limits: write a rate such as \"100/m\", or a list of limits; this is a table",
        ),
        (
            json!({"limits": "1/s", "on_error": "open"}),
            "rules.api.on_error: write `allow` or `deny` or `local`; this is something else",
        ),
        (json!({"limits": "1/s", "enforce": 0}), "rules.api.enforce: write true or false; this is a number"),
        (
            json!(["1/s", {"limt": 3}]),
            "rules.api[1]: there is no field `limt`; write one of `limit`, `window`, `algorithm`, ",
        ),
        (json!([{"limit": 3}]), "rules.api[0]: the field `window` is missing; write window = \"1m\""),
        (json!([{"window": "1s"}]), "rules.api[0]: the field `limit` is missing; write limit = 100"),
        (json!([{"limit": "3", "window": "1s"}]), "rules.api[0].limit: write a whole number; this is text"),
        (json!([{"limit": -3, "window": "1s"}]), "rules.api[0].limit: write a whole number; this is a negative number"),
        (
            json!([{"limit": 3.0, "window": "1s"}]),
            "rules.api[0].limit: write a whole number; this is a number with a fraction",
        ),
        (json!({"limits": [{"limit": 3, "window": 60}]}), "rules.api.limits[0].window: write text; this is a number"),
    ] {
        let text = json!({"version": 1, "rules": {"api": rule}}).to_string();
        let error = Document::from_json(&text).expect_err(&text);
        assert_eq!(error.kind(), ErrorKind::InvalidDocument, "{error}");
        assert!(error.message().starts_with(message), "{error}\n  should say: {message}");
    }
    for (rule, message) in [
        (json!("10/M"), "rule \"api\": rate \"10/M\": \"M\" is no unit; write m for minutes or month"),
        (json!([]), "rule \"api\": write 1 to 32 limits"),
        (json!(["5/s", "6/s"]), "rule \"api\": two limits by sliding_window"),
        (json!([{"limit": 3, "window": "60"}]), "rule \"api\": window: duration \"60\": 60 has no unit; write 60s"),
        (json!([{"limit": 3, "window": "0s"}]), "rule \"api\": window 0ns is out of range"),
        (json!([{"limit": 3, "window": "1s", "algorithm": "leaky"}]), "rule \"api\": unknown algorithm \"leaky\""),
        (json!([{"limit": u64::MAX, "window": "1s"}]), "rule \"api\": limit 18446744073709551615 is too large"),
    ] {
        let text = json!({"version": 1, "rules": {"api": rule}}).to_string();
        let error = Document::from_json(&text).expect_err(&text);
        assert_eq!(error.kind(), ErrorKind::InvalidRule, "{error}");
        assert!(error.message().starts_with(message), "{error}\n  should say: {message}");
    }
}

#[test]
fn a_burst_makes_a_bucket() {
    let document =
        Document::from_toml("version = 1\nrules.a = [{ limit = 5, window = '1s', burst = 9 }]").expect("valid");
    assert_eq!(document.rules()[0].limits()[0].algorithm, Algorithm::TokenBucket);
}

#[test]
fn refuses_a_name_written_twice() {
    for (text, format) in [
        ("version = 1\n[rules]\na = '1/s'\na = '2/s'", Format::Toml),
        (r#"{"version": 1, "rules": {"a": "1/s", "a": "2/s"}}"#, Format::Json),
        ("version: 1\nrules:\n  a: 1/s\n  a: 2/s\n", Format::Yaml),
    ] {
        let error = Document::parse(text, format).expect_err(text);
        assert_eq!(error.kind(), ErrorKind::InvalidDocument);
        assert!(error.message().contains("line "), "{error}");
    }
}

#[test]
fn places_syntax_errors_without_quoting_the_line() {
    let error = Document::from_toml("version = 1\n[store]\npassword = \"hunter2").expect_err("no closing quote");
    assert!(error.message().ends_with(" at line 3 column 20"), "{error}");
}

/// Whatever a slip of the finger makes of a document, its error shows nothing of the secrets in it.
#[test]
fn no_slip_shows_a_secret() {
    let (store, _) = EXAMPLE.split_once("[rules]").expect("a store, then rules");
    let value: Value = toml::from_str(store).expect("TOML");
    let texts = [
        (store.to_owned(), Format::Toml),
        (value.to_string(), Format::Json),
        (yaml_serde::to_string(&value).expect("YAML"), Format::Yaml),
    ];
    for (text, format) in texts {
        for at in 0..text.len() {
            for slip in ["", "\"", "'", "{", "]", ":", "=", "\n", "\\", "&", "*", "!", "#", "\u{0}"] {
                for end in [at, at + 1] {
                    let slipped = format!("{}{slip}{}", &text[..at], &text[end..]);
                    let said = match Document::parse(&slipped, format) {
                        Ok(document) => format!("{document:?}"),
                        Err(error) => format!("{error} {error:?}"),
                    };
                    assert!(!said.contains("unter2") && !said.contains("hunter"), "{said}\n{slipped}");
                }
            }
        }
    }
}

#[test]
fn refuses_bombs_and_wells() {
    let mut bomb = "a: &a [x, x]\n".to_owned();
    for (name, last) in ('b'..='z').zip('a'..) {
        bomb += &format!("{name}: &{name} [*{last}, *{last}, *{last}]\n");
    }
    let well = |open: &str| open.repeat(100_000);
    for (text, format) in [
        (bomb, Format::Yaml),
        (well("["), Format::Json),
        (well("- "), Format::Yaml),
        (format!("a = {}", well("[")), Format::Toml),
    ] {
        assert!(Document::parse(&text, format).is_err());
    }
}

#[test]
fn understands_numbers_of_arbitrary_precision() {
    let number = |digits: &str| json!({"version": {"$serde_json::private::Number": digits}}).to_string();
    assert!(Document::from_json(&number("1")).is_ok());
    assert!(Document::from_json(&number("1.0")).is_err());
}

#[test]
fn reads_files_and_names_them() {
    let folder = std::env::temp_dir().join(format!("tidegate-document-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    let file = |name: &str, text: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file for the test");
        path
    };

    assert_eq!(Document::read(file("a.toml", EXAMPLE.as_bytes())).expect("valid").rules(), expected_rules());
    assert!(Document::read(file("a.yml", b"version: 1")).is_ok());
    for (path, fragment) in [
        (file("a.conf", b"version = 1"), "name the file .toml, .json, .yaml or .yml"),
        (file("b.toml", b"version = 3"), "version 3"),
        (file("c.json", b"\xff"), "cannot be read"),
        (folder.join("none.toml"), "cannot be read"),
    ] {
        let error = Document::read(&path).expect_err(fragment);
        assert_eq!(error.kind(), ErrorKind::InvalidDocument);
        assert!(error.message().starts_with(&path.display().to_string()), "{error}");
        assert!(error.message().contains(fragment), "{error}");
    }

    let secrets = |path: &Path| {
        let text = json!({"version": 1, "store": {"password_file": path, "key_secret_file": path}}).to_string();
        Document::from_json(&text).expect("valid").store
    };
    let store = secrets(&file("secret", b"hunter2 hunter2 hunter2\r\n"));
    for secret in [store.password(), store.key_secret()] {
        assert_eq!(secret.expect("readable").expect("set").expose(), "hunter2 hunter2 hunter2");
    }
    let store = secrets(&file("short", b"hunter2\n"));
    assert_eq!(store.password().expect("readable").expect("set").expose(), "hunter2");
    let error = store.key_secret().expect_err("too short");
    assert!(error.message().contains("key_secret has 7 bytes; write at least 16"), "{error}");
    assert!(secrets(&folder.join("none")).password().is_err());

    std::fs::remove_dir_all(&folder).expect("the test's folder");
}

#[test]
fn tells_whether_two_documents_write_the_same_store() {
    let document = |text: &str| Document::from_toml(&format!("version = 1\n{text}\n[rules]\na = \"1/m\"")).expect(text);
    let bare = document("");
    assert!(bare.same_store(&document("[store]")) && bare.same_store(&document("[store]\nprefix = \"tidegate\"")));
    assert!(bare.same_store(&Document::from_toml("version = 1\n[rules]\nb = \"9/h\"").expect("legal")));
    for field in [
        "url = \"redis://host\"",
        "password = \"hunter2\"",
        "key_secret = \"sixteen bytes or more\"",
        "key_secret_file = \"/run/key\"",
        "deadline = \"90ms\"",
        "breaker = { failures = 6 }",
        "sentinel = { password = \"hunter2\" }",
        "tls = { ca = \"ca.pem\" }",
        "address_map = { a = \"b\" }",
    ] {
        let text = format!("[store]\n{field}");
        assert!(document(&text).same_store(&document(&text)), "{field}");
        assert!(!document(&text).same_store(&bare) && !bare.same_store(&document(&text)), "{field}");
    }
    let with = |secret: &str| document(&format!("[store]\nkey_secret = \"{secret}\""));
    assert!(!with("sixteen bytes or more").same_store(&with("sixteen bytes or so")));
}

#[test]
fn hides_the_passwords_of_urls() {
    for (url, shown) in [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://app:hunter2@host:6379/0", "redis://app:***@host:6379/0"),
        ("rediss://:hunter2@host", "rediss://:***@host"),
        ("redis://hunter2@host", "redis://***@host"),
        ("redis://:a@b/c:hunter2@host", "redis://:***@host"),
        ("redis://:hunter2?x@host", "redis://***"),
        ("redis+unix:///run/redis.sock?db=1&pass=hunter2", "redis+unix:///run/redis.sock?***"),
        ("redis://host?pass=hunter@2", "redis://***"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("redis+cluster://a:7000,[::1]:7001,c", "redis+cluster://a:7000,[::1]:7001,c"),
        ("redis+sentinel://a:26379,b/main/0", "redis+sentinel://a:26379,b/main/0"),
        ("redis+sentinel://app:hunter2@a:26379,b/main", "redis+sentinel://app:***@a:26379,b/main"),
        ("redis+cluster://:hunter2@a:7000,b:7000", "redis+cluster://:***@a:7000,b:7000"),
        ("redis://app:hunter2/0", "redis://***"),
        (":hunter2@host", ":***@host"),
        ("redis:/:hunter2@host", "redis:***@host"),
        ("redis:/app:hunter2", "***"),
        ("", ""),
    ] {
        assert_eq!(redacted(url), shown);
    }
}

/// The tables of the schema have the fields that reading has, and each field that must be there has an example.
#[test]
fn the_schema_has_the_fields_that_are_read() {
    let schema = Document::schema();
    for (table, place) in [
        ("", json!({"version": 1, "nope": 0})),
        ("/$defs/Store", json!({"version": 1, "store": {"nope": 0}})),
        ("/$defs/Tls", json!({"version": 1, "store": {"tls": {"nope": 0}}})),
        ("/$defs/Sentinel", json!({"version": 1, "store": {"sentinel": {"nope": 0}}})),
        ("/$defs/RuleTable", json!({"version": 1, "rules": {"a": {"nope": 0}}})),
        ("/$defs/LimitTable", json!({"version": 1, "rules": {"a": [{"nope": 0}]}})),
    ] {
        let table = schema.pointer(table).expect(table);
        let fields: BTreeSet<&str> =
            table["properties"].as_object().expect("a table").keys().map(String::as_str).collect();
        let error = Document::from_json(&place.to_string()).expect_err("an unknown field");
        let read: BTreeSet<&str> = error.message().split('`').skip(3).step_by(2).collect();
        assert_eq!(fields, read, "{error}");
        assert_eq!(table["additionalProperties"], json!(false));
        for required in table["required"].as_array().into_iter().flatten() {
            assert_ne!(shape::example(required.as_str().expect("a name")), "it");
        }
    }
}

#[test]
fn a_lone_table_is_neither_read_nor_in_the_schema_as_the_rules_of_a_route() {
    let document =
        |rules| json!({"version": 1, "rules": {"a": "5/m"}, "routes": [{"path": "/", "key": "ip", "rules": rules}]});
    let table = json!({"rule": "a", "key": "ip"});
    Document::from_json(&document(json!([table])).to_string()).expect("a list of tables");
    Document::from_json(&document(table).to_string()).expect_err("a table");
    let rules = Document::schema().pointer("/$defs/Route/properties/rules/anyOf").cloned().expect("forms");
    assert_eq!(rules[0], json!({"type": "string"}));
    assert_eq!(rules[1]["items"]["anyOf"][1], json!({"$ref": "#/$defs/RouteRule"}));
    assert!(rules.get(2).is_none());
}
