//! Checks as bytes to send: ours as core makes them, and the textbook's.

use redis::{Connection, RedisResult, Value};

use crate::capture::{Capture, Words};

/// The subject that every call is written for at first, of twelve bytes as all of them.
const TEMPLATE: &str = "user-9999999";

/// Who is limited: the one whose state others are copied from, or one of the others.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject {
    Template,
    Number(u32),
}

impl Subject {
    fn name(self) -> String {
        match self {
            Subject::Template => TEMPLATE.to_owned(),
            Subject::Number(number) => format!("user-{number:07}"),
        }
    }
}

/// A check by some script.
pub(crate) enum Script {
    /// As core sends it.
    Ours { words: Words, log: bool },
    /// A textbook's, once for each limit: it decides one at a time.
    Textbook { text: &'static str, hash: String, limits: &'static [(u64, u64)], log: bool },
}

/// Limits as capacity and window in microseconds.
pub(crate) type Limits = &'static [(u64, u64)];

/// An entry's age when it is dead in every case here, in microseconds.
const LONG_AGO: u64 = 40 * 86_400 * 1_000_000;

impl Script {
    pub(crate) fn ours(capture: &Capture, rule: &str) -> tidegate::Result<Script> {
        Ok(Script::Ours { words: capture.check(rule, TEMPLATE)?, log: rule.contains("sliding_window_log") })
    }

    pub(crate) fn textbook_log(limits: Limits) -> Script {
        let text = include_str!("../../../textbook/sliding_window_log.lua");
        Script::Textbook { text, hash: String::new(), limits, log: true }
    }

    pub(crate) fn textbook_bucket(limits: Limits) -> Script {
        let text = include_str!("../../../textbook/token_bucket.lua");
        Script::Textbook { text, hash: String::new(), limits, log: false }
    }

    /// Gives the script to a server.
    pub(crate) fn load(&mut self, connection: &mut Connection) -> RedisResult<()> {
        let load =
            |text: &str, connection: &mut Connection| redis::cmd("SCRIPT").arg("LOAD").arg(text).query(connection);
        match self {
            Script::Ours { .. } => load(tidegate_lua::SCRIPT, connection).map(|_: String| ()),
            Script::Textbook { text, hash, .. } => load(text, connection).map(|name| *hash = name),
        }
    }

    /// How many commands one check is.
    pub(crate) fn commands(&self) -> usize {
        match self {
            Script::Ours { .. } => 1,
            Script::Textbook { limits, .. } => limits.len(),
        }
    }

    /// The stored keys of a subject.
    pub(crate) fn keys(&self, subject: Subject) -> Vec<Vec<u8>> {
        match self {
            Script::Ours { words, .. } => {
                let words = rewritten(words, subject);
                let count = std::str::from_utf8(&words[2]).ok().and_then(|count| count.parse().ok()).unwrap_or(0);
                words[3..3 + count].to_vec()
            }
            Script::Textbook { limits, .. } => {
                let key =
                    |&(_, window): &(u64, u64)| format!("ratelimit:{{{}}}:login:{window}", subject.name()).into_bytes();
                limits.iter().map(key).collect()
            }
        }
    }

    /// One check, which no other of the same number is like where a check has an id.
    pub(crate) fn frame(&self, subject: Subject, number: u32) -> Vec<u8> {
        match self {
            Script::Ours { words, log } => {
                let mut words = rewritten(words, subject);
                if let (true, Some(arguments)) = (*log, words.last_mut()) {
                    // The id ends the arguments, and is as long as core made it.
                    let place = arguments.len() - 4;
                    arguments[place..].copy_from_slice(&number.to_be_bytes());
                }
                packed(&words)
            }
            Script::Textbook { hash, limits, log, .. } => {
                let calls = limits.iter().zip(self.keys(subject)).flat_map(|((limit, window), key)| {
                    let last = if *log { uuid(number) } else { "1".to_owned() };
                    let mut words: Words = vec![b"EVALSHA".to_vec(), hash.clone().into_bytes(), b"1".to_vec(), key];
                    words.extend([limit.to_string(), window.to_string(), last].map(String::into_bytes));
                    packed(&words)
                });
                calls.collect()
            }
        }
    }

    /// Whether the replies to one check admit it; none where they are not replies to a check.
    pub(crate) fn admits(&self, replies: &[Value]) -> Option<bool> {
        let mut verdicts = replies.iter().map(|reply| match (self, reply) {
            // The verdict on the whole stands above the kind, in the first byte.
            (Script::Ours { .. }, Value::BulkString(reply)) => reply.first().map(|head| head >> 2 == 0),
            (Script::Textbook { .. }, Value::Array(reply)) => reply.first().map(|first| *first == Value::Int(1)),
            _ => None,
        });
        verdicts.try_fold(true, |all, verdict| Some(all & verdict?))
    }

    /// Makes the oldest of the entries of a log or window long dead.
    pub(crate) fn age_oldest(&self, connection: &mut Connection, subject: Subject) -> RedisResult<()> {
        let key = &self.keys(subject)[0];
        match self {
            Script::Ours { log: false, .. } => {
                let mut entry: Vec<u8> = redis::cmd("LINDEX").arg(key).arg(0).query(connection)?;
                // An entry begins with its time, in six bytes.
                let time = entry[..6].iter().fold(0, |time, byte| time << 8 | u64::from(*byte));
                entry[..6].copy_from_slice(&(time - LONG_AGO).to_be_bytes()[2..]);
                redis::cmd("LSET").arg(key).arg(0).arg(entry).query(connection)
            }
            _ => {
                let oldest: Vec<String> = redis::cmd("ZRANGE").arg(key).arg(0).arg(0).query(connection)?;
                redis::cmd("ZADD").arg(key).arg(1).arg(oldest).query(connection)
            }
        }
    }
}

/// A command for another subject of the same length, in its keys and in its arguments.
fn rewritten(words: &Words, subject: Subject) -> Words {
    let (from, to) = (TEMPLATE.as_bytes(), subject.name().into_bytes());
    let rewrite = |word: &Vec<u8>| {
        let mut word = word.clone();
        while let Some(place) = word.windows(from.len()).position(|part| part == from && part != to) {
            word[place..place + from.len()].copy_from_slice(&to);
        }
        word
    };
    words.iter().map(rewrite).collect()
}

fn packed(words: &Words) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.get_packed_command()
}

/// As long as a UUID is when it is printed.
fn uuid(number: u32) -> String {
    format!("{number:08x}-4bf9-4a3e-9c37-{number:012x}")
}
