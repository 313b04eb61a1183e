//! What stands in the files, and the report on what did not come as it stands there.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<Case> {
    #[serde(rename = "about")]
    _about: String,
    cases: Vec<Case>,
}

/// What a case of any file has.
pub(crate) trait Named {
    fn name(&self) -> &str;
}

/// A history: what happens to an empty store.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct History {
    pub(crate) name: String,
    pub(crate) start: u64,
    pub(crate) rules: Map<String, Value>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) at: i64,
    pub(crate) op: Op,
    pub(crate) rule: Option<OneOrMore>,
    pub(crate) key: Option<String>,
    pub(crate) cost: Option<Value>,
    pub(crate) id: Option<Bytes>,
    pub(crate) times: Option<u64>,
    #[serde(default)]
    pub(crate) every_us: u64,
    pub(crate) limits: Option<String>,
    pub(crate) save: Option<String>,
    pub(crate) receipt: Option<String>,
    pub(crate) n: Option<i64>,
    pub(crate) window_us: Option<u64>,
    pub(crate) start_us: Option<i64>,
    pub(crate) rules: Option<Map<String, Value>>,
    pub(crate) stored: Option<String>,
    /// What to put there, all in hex: a string, a list, a set or a hash.
    pub(crate) r#type: Option<String>,
    #[serde(default)]
    pub(crate) hex: String,
    #[serde(default)]
    pub(crate) elements: Vec<String>,
    #[serde(default)]
    pub(crate) members: Vec<String>,
    #[serde(default)]
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) expect: Option<Value>,
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Op {
    Check,
    Peek,
    Refund,
    Reset,
    Count,
    Rules,
    Set,
    Persist,
    State,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            OneOrMore::One(name) => vec![name],
            OneOrMore::More(names) => names.iter().map(String::as_str).collect(),
        }
    }
}

/// Bytes that are text, most of the time.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Bytes {
    Text(String),
    Hex { hex: String },
    Repeated { text: String, times: usize },
}

impl Bytes {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Bytes::Text(text) => text.as_bytes().to_vec(),
            Bytes::Hex { hex } => unhex(hex),
            Bytes::Repeated { text, times } => text.repeat(*times).into_bytes(),
        }
    }
}

/// A key, and where it is stored.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredKey {
    pub(crate) name: String,
    pub(crate) prefix: Option<String>,
    pub(crate) key_secret: Option<String>,
    pub(crate) rule_name: String,
    pub(crate) rule: Value,
    pub(crate) key: KeyText,
    pub(crate) expect: Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum KeyText {
    Whole(Bytes),
    Parts { parts: Vec<Bytes> },
}

/// A rule as it stands in a document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleText {
    pub(crate) name: String,
    pub(crate) rule: Value,
    pub(crate) expect: Value,
}

/// A document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DocumentText {
    pub(crate) name: String,
    pub(crate) format: String,
    pub(crate) text: String,
    pub(crate) expect: Value,
}

macro_rules! named {
    ($($case:ident),+) => {
        $(impl Named for $case {
            fn name(&self) -> &str {
                &self.name
            }
        })+
    };
}

named!(History, StoredKey, RuleText, DocumentText);

/// What did not come as expected in one case.
pub(crate) struct Failure {
    pub(crate) case: String,
    pub(crate) text: String,
}

/// The cases of a file.
pub(crate) fn read<Case: Named + DeserializeOwned>(file: &str) -> Vec<Case> {
    let path = folder().join(file).with_extension("json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let File { cases, .. } =
        serde_json::from_str::<File<Case>>(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut names = HashSet::new();
    for case in &cases {
        assert!(names.insert(case.name().to_owned()), "{file}: two cases are named {:?}", case.name());
    }
    cases
}

/// Plays every case of a file, and collects what failed.
pub(crate) fn each<Case: Named + DeserializeOwned>(
    file: &str,
    mut play: impl FnMut(&Case) -> Result<(), String>,
) -> Vec<Failure> {
    let fails = |case: Case| play(&case).err().map(|text| Failure { case: case.name().to_owned(), text });
    read(file).into_iter().filter_map(fails).collect()
}

/// Fails the test with all that failed.
#[track_caller]
pub(crate) fn report(file: &str, on: &str, failures: &[Failure]) {
    let mut text = String::new();
    for Failure { case, text: what } in failures {
        let _ = write!(text, "\n\n{case:?}\n{what}");
    }
    assert!(failures.is_empty(), "{file}.json on {on}: {} cases fail{text}", failures.len());
}

pub(crate) fn names_of_all_files() -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder()).expect("the vectors lie in their folder");
    let paths = entries.map(|entry| entry.expect("a folder can be listed").path());
    let json = paths.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    json.map(|path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned()).collect()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("the vectors' hex is hex")).collect()
}
