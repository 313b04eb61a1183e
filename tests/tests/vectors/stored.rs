//! What stands in Redis, with its parts named.

use serde_json::{Value, json};

use crate::files::hex;
use crate::stage::{Snapshot, Stage};

/// Where the six bytes of an entry's time begin: 2026.
const EPOCH: u64 = 1_767_225_600_000_000;

/// All keys of the store, sorted by name.
pub(crate) fn state(stage: &mut Stage, snapshot: &Snapshot, start: u64) -> Value {
    let keys = snapshot.keys().map(|key| String::from_utf8(key.clone()).expect("every stored key is printable"));
    keys.map(|key| of_key(stage, &key, start)).collect()
}

fn of_key(stage: &mut Stage, key: &str, start: u64) -> Value {
    let kind: String = stage.command("TYPE", key, &[]);
    let algorithm = key.split(':').nth(4).unwrap_or_default().to_owned();
    let mut found = json!({"stored": key, "type": kind, "ttl_ms": stage.ttl(key)});
    match kind.as_str() {
        "string" => {
            let bytes: Vec<u8> = stage.command("GET", key, &[]);
            found["value"] = named(&algorithm, &bytes, start).into();
            found["hex"] = hex(&bytes).into();
        }
        "list" => {
            let all = ["0", "-1"].map(|place| place.as_bytes().to_vec());
            let entries: Vec<Vec<u8>> = stage.command("LRANGE", key, &all);
            found["value"] = entries.iter().map(|bytes| entry(bytes, start)).collect();
            found["elements"] = entries.iter().map(|bytes| hex(bytes)).collect();
        }
        "zset" => {
            let all = ["0", "-1", "WITHSCORES"].map(|word| word.as_bytes().to_vec());
            let members: Vec<(Vec<u8>, u64)> = stage.command("ZRANGE", key, &all);
            found["value"] = members.iter().map(|(member, time)| json!([hex(member), since(start, *time)])).collect();
        }
        _ => {}
    }
    found
}

/// A string of ours; none if it is not.
fn named(algorithm: &str, bytes: &[u8], start: u64) -> Option<Value> {
    match (algorithm, bytes.len()) {
        ("token_bucket", 19) => {
            let [at, units, parts, limit] = numbers(bytes, [7, 3, 6, 3]);
            Some(json!({"at": since(start, at), "units": units, "parts": parts, "limit": limit}))
        }
        ("sliding_window_counter", 13) => {
            let [at, units, before] = numbers(bytes, [7, 3, 3]);
            Some(json!({"at": since(start, at), "units": units, "before": before}))
        }
        ("fixed_window", 10) => {
            let [at, units] = numbers(bytes, [7, 3]);
            Some(json!({"at": since(start, at), "units": units}))
        }
        ("count", 14) => {
            let [at, total] = numbers(bytes, [7, 7]);
            Some(json!({"at": since(start, at), "total": total}))
        }
        _ => None,
    }
}

/// An entry of a sliding window: its length tells how its time is written, and whether it is of one unit.
fn entry(bytes: &[u8], start: u64) -> Option<Value> {
    let (at, before, units) = match bytes.len() {
        9 => {
            let [at, before] = numbers(bytes, [6, 3]);
            (at + EPOCH, before, 1)
        }
        10 => {
            let [at, before] = numbers(bytes, [7, 3]);
            (at, before, 1)
        }
        12 => {
            let [at, before, units] = numbers(bytes, [6, 3, 3]);
            (at + EPOCH, before, units)
        }
        13 => {
            let [at, before, units] = numbers(bytes, [7, 3, 3]);
            (at, before, units)
        }
        _ => return None,
    };
    Some(json!({"at": since(start, at), "before": before, "units": units}))
}

/// Whole numbers of so many bytes each, one after the other, the most significant byte first.
fn numbers<const N: usize>(mut bytes: &[u8], sizes: [usize; N]) -> [u64; N] {
    sizes.map(|size| {
        let (number, rest) = bytes.split_at(size);
        bytes = rest;
        number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    })
}

fn since(start: u64, time: u64) -> i64 {
    time.cast_signed() - start.cast_signed()
}
