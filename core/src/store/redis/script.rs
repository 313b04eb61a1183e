//! What goes into the script and what comes out of it; `lua/decide.lua` documents both.

use redis::Cmd;
use sha1::Digest as _;
use smallvec::SmallVec;

use super::slot;
use crate::algorithm::{Charged, Logged, Micros, Outcome, Step, Tally};
use crate::decision::{LimitReply, Reply};
use crate::error::{Error, ErrorKind, Result};
use crate::fork::Lazy;
use crate::plan::{Action, Call};
use crate::receipt::{Charge, Receipt};
use crate::rule::{Algorithm, BoundLimit};

/// A script and the name under which servers keep it.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

/// The script of this release.
pub(super) static SCRIPT: Lazy<Script> = Lazy::new(|| Script::new(tidegate_lua::SCRIPT.into()));
/// The same, allowed to meet keys of several slots of one node.
pub(super) static ACROSS_SLOTS: Lazy<Script> = Lazy::new(|| SCRIPT.across_slots());

impl Script {
    pub(super) fn new(text: String) -> Script {
        let hash = sha1::Sha1::digest(text.as_bytes());
        Script { hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(), text }
    }

    pub(super) fn across_slots(&self) -> Script {
        Script::new(self.text.replacen("#!lua\n", "#!lua flags=allow-cross-slot-keys\n", 1))
    }

    /// EVALSHA of some keys and arguments, or EVAL where the server does not know the script.
    pub(super) fn command(&self, known: bool, request: &Request) -> Cmd {
        let mut command = self.begin(known, request.keys.len(), std::iter::once(request));
        for key in &request.keys {
            command.arg(key);
        }
        command.arg(&request.arguments[..]);
        command
    }

    /// The same for many requests in turn. In a cluster the first key of all routes them.
    pub(super) fn batch<'a>(
        &self,
        known: bool,
        cluster: bool,
        requests: impl Iterator<Item = &'a Request> + Clone,
    ) -> Cmd {
        let mut command = self.begin(known, usize::from(cluster), requests.clone());
        if let Some(first) = requests.clone().next().filter(|_| cluster) {
            command.arg(&first.keys[0]);
        }
        requests.for_each(|request| {
            if request.keys.len() != 1 {
                command.arg(request.keys.len());
            }
            for key in &request.keys {
                command.arg(key);
            }
            command.arg(&request.arguments[..]);
        });
        command
    }

    /// The script and the number of its keys, with room for what follows.
    fn begin<'a>(&self, known: bool, keys: usize, requests: impl Iterator<Item = &'a Request>) -> Cmd {
        let (name, script) = if known { ("EVALSHA", &self.hash) } else { ("EVAL", &self.text) };
        let (count, size) = requests.fold((HEAD, HEAD_SIZE + script.len()), |(count, size), request| {
            let keys: usize = request.keys.iter().map(String::len).sum();
            (count + 2 + request.keys.len(), size + DIGITS + keys + request.arguments.len())
        });
        let mut command = Cmd::with_capacity(count, size);
        command.arg(name).arg(script).arg(keys);
        command
    }

    pub(super) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }
}

/// The most arguments before those of requests.
const HEAD: usize = 5;
/// Room for these but the script: a command's name, a count, and a key that routes.
const HEAD_SIZE: usize = 256;
/// Room for a count of keys.
const DIGITS: usize = 2;

/// One call of the script: the stored keys, all in one slot, and the packed arguments.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) keys: SmallVec<[String; 1]>,
    pub(super) arguments: Vec<u8>,
}

const SHADOW: u8 = 16;
const PEEK: u8 = 32;
const REFUND: u8 = 64;
const COUNT: u8 = 80;
const TAKE_BACK: u8 = 96;
const COUNTER: u8 = 6;

impl Request {
    fn new() -> Request {
        Request { keys: SmallVec::new(), arguments: Vec::with_capacity(128) }
    }

    /// The slot of its keys.
    pub(super) fn slot(&self) -> u16 {
        slot::of(self.keys[0].as_bytes())
    }

    /// Check or peek of all limits of a call.
    pub(super) fn decide(call: &Call, prefix: &str, lease: u64) -> Request {
        let (base, mut request) = (call.subject.base(prefix), Request::new());
        for limit in &call.plan.limits {
            let action = if call.action == Action::Peek { PEEK } else { 0 };
            let shadow = if limit.enforce { 0 } else { SHADOW };
            let extra = if limit.algorithm == Algorithm::TokenBucket { limit.burst.into() } else { limit.precision };
            // What a charge adds to the TTL: for the exact windows all of it, as they are charged now.
            let life = lease + limit.slack + if limit.algorithm.is_exact_window() { limit.window_ms } else { 0 };
            let head = Head { action: action + shadow, code: code(limit.algorithm), quota: limit.quota };
            let key = [base.as_str(), limit.suffix.text()].concat();
            request.push(&head, call.cost, limit.window, extra, key, life);
            if limit.algorithm == Algorithm::SlidingWindowLog {
                request.push_id(&call.id);
            }
        }
        request
    }

    /// Refund of all charges of a receipt, at the asked rates.
    pub(super) fn refund(receipt: &Receipt, rates: &[u32]) -> Request {
        let (base, mut request) = (receipt.subject.base(&receipt.prefix), Request::new());
        for (charge, rate) in receipt.charges.iter().zip(rates) {
            let head = Head { action: REFUND, code: code(charge.algorithm), quota: *rate };
            request.push(&head, charge.units, charge.window, charge.at, format!("{base}{}", charge.suffix), 0);
            request.push_refund(charge);
        }
        request
    }

    pub(super) fn count(key: String, window_ms: u64, step: Step, lease: u64) -> Request {
        let (action, units, start) = match step {
            Step::Add(units) => (COUNT, units, 0),
            Step::TakeBack { units, start } => (TAKE_BACK, units, start),
        };
        let mut request = Request::new();
        let head = Head { action, code: COUNTER, quota: 0 };
        request.push(&head, units, window_ms * 1000, start, key, lease + crate::key::slack(window_ms));
        request
    }

    fn push(&mut self, head: &Head, cost: u32, window: u64, extra: u64, key: String, life: u64) {
        self.arguments.push(head.action + head.code);
        self.arguments.extend_from_slice(&head.quota.to_le_bytes()[..3]);
        self.arguments.extend_from_slice(&cost.to_le_bytes()[..3]);
        self.push_number(window);
        self.push_number(extra);
        self.arguments.extend_from_slice(itoa::Buffer::new().format(life).as_bytes());
        self.arguments.push(0);
        self.keys.push(key);
    }

    fn push_id(&mut self, id: &[u8]) {
        // Ids are bounded at 201 bytes with their mark.
        self.arguments.push(u8::try_from(id.len()).unwrap_or(u8::MAX));
        self.arguments.extend_from_slice(id);
    }

    fn push_refund(&mut self, charge: &Charge) {
        if charge.algorithm == Algorithm::SlidingWindowLog {
            self.push_id(&charge.id);
        }
        self.arguments.extend_from_slice(&charge.rate.to_le_bytes()[..3]);
        self.arguments.extend_from_slice(&charge.before.to_le_bytes()[..3]);
        self.push_number(charge.before_parts);
    }

    /// Lua's numbers are doubles; everything here is a whole number below 2^53.
    fn push_number(&mut self, number: u64) {
        #[allow(clippy::cast_precision_loss, reason = "below 2^53 by the ranges of rules and clocks")]
        self.arguments.extend_from_slice(&(number as f64).to_le_bytes());
    }
}

/// What begins the arguments of a limit.
struct Head {
    action: u8,
    code: u8,
    quota: u32,
}

fn code(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::SlidingWindowLog => 1,
        Algorithm::SlidingWindow => 2,
        Algorithm::TokenBucket => 3,
        Algorithm::SlidingWindowCounter => 4,
        Algorithm::FixedWindow => 5,
    }
}

const REFUSED: u8 = 0;
const CHARGED: u8 = 2;
const CHARGED_BUCKET: u8 = 3;
const VERDICT_ALLOWED: u8 = 0;
const VERDICT_REPEATED: u8 = 2;

/// Reads the reply to a check or peek.
pub(super) fn decision(reply: &[u8], call: &Call) -> Result<Reply> {
    let mut reader = Reader::new(reply)?;
    let mut limits = SmallVec::new();
    let mut verdict = VERDICT_ALLOWED;
    for limit in &call.plan.limits {
        let head = reader.head().ok_or_else(garbled)?;
        verdict = head.verdict;
        limits.push(limit_reply(&mut reader, &head, limit).ok_or_else(garbled)?);
    }
    let repeated = verdict == VERDICT_REPEATED;
    Ok(Reply { allowed: verdict == VERDICT_ALLOWED || repeated, repeated, limits })
}

fn limit_reply(reader: &mut Reader<'_>, head: &ReplyHead, limit: &BoundLimit) -> Option<LimitReply> {
    let reset_after = reader.time()?;
    let refused =
        Outcome { allowed: false, remaining: head.room, retry_after: Micros::NONE, reset_after: reset_after.into() };
    let (outcome, charged) = match head.kind {
        REFUSED => (Outcome { retry_after: reader.time()?.into(), ..refused }, None),
        CHARGED | CHARGED_BUCKET => {
            let mut charged = Charged { at: reader.time()??, ..Charged::default() };
            if head.kind == CHARGED_BUCKET {
                charged.before = reader.units()?;
                charged.before_parts = reader.time()??;
            }
            (Outcome { allowed: true, ..refused }, Some(charged))
        }
        _ => (Outcome { allowed: true, ..refused }, None),
    };
    let outcome = if limit.denies_all() { Outcome::NEVER } else { outcome };
    Some(LimitReply { outcome, charged })
}

/// The server's own words, where the script could not read a key.
pub(super) fn refusal(reply: &[u8]) -> Option<&str> {
    std::str::from_utf8(reply.strip_prefix(b"Y")?).ok()
}

/// Reads the reply to a refund: whether anything was given back.
pub(super) fn refunded(reply: &[u8]) -> Result<bool> {
    let (mut reader, mut any) = (Reader::new(reply)?, false);
    while !reader.0.is_empty() {
        let [units, _, _] = reader.amendment().ok_or_else(garbled)?;
        any |= units > 0;
    }
    Ok(any)
}

/// Reads the reply to a count.
pub(super) fn tally(reply: &[u8]) -> Result<Tally> {
    let [total, left, start] = Reader::new(reply)?.amendment().ok_or_else(garbled)?;
    Ok(Tally { total, left, start })
}

/// The requests of a log from its members: an id, or an id with a number before its mark for the units above one.
pub(super) fn requests(members: Vec<(Vec<u8>, u64)>) -> Vec<Logged> {
    let mut requests: Vec<Logged> = Vec::new();
    for (member, time) in members {
        let digits = member.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let id = &member[digits..];
        match requests.iter_mut().rev().take_while(|other| other.0 == time).find(|other| other.1 == id) {
            Some(request) => request.2 += 1,
            None => requests.push((time, id.to_vec(), 1)),
        }
    }
    requests
}

struct ReplyHead {
    verdict: u8,
    kind: u8,
    room: u32,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reply, unless it is an error: those begin with a letter.
    fn new(reply: &'a [u8]) -> Result<Reader<'a>> {
        match reply.split_first() {
            Some((b'X', key)) => Err(corrupt(key)),
            Some((b'Y', message)) => Err(super::failure::of_text(&String::from_utf8_lossy(message))),
            Some(_) => Ok(Reader(reply)),
            None => Err(garbled()),
        }
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    fn head(&mut self) -> Option<ReplyHead> {
        let [kind, room @ ..] = self.take::<4>()?;
        let [a, b, c] = room;
        Some(ReplyHead { verdict: kind >> 2, kind: kind & 3, room: u32::from_be_bytes([0, a, b, c]) })
    }

    fn units(&mut self) -> Option<u32> {
        let [a, b, c] = self.take::<3>()?;
        Some(u32::from_be_bytes([0, a, b, c]))
    }

    /// A time in microseconds; none where it is negative. Nothing at all where it is not a time.
    fn time(&mut self) -> Option<Option<u64>> {
        let number = f64::from_be_bytes(self.take::<8>()?);
        if number == -1.0 {
            return Some(None);
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked first")]
        ((0.0..9_007_199_254_740_992.0).contains(&number) && number.fract() == 0.0).then_some(Some(number as u64))
    }

    fn amendment(&mut self) -> Option<[u64; 3]> {
        self.head()?;
        Some([self.time()??, self.time()??, self.time()??])
    }
}

pub(super) fn corrupt(key: &[u8]) -> Error {
    // The subject is who is limited; it has no place in an error. What follows the braces names the limit.
    let key = String::from_utf8_lossy(key);
    let place = key.rsplit_once('}').map_or("", |(_, place)| place.trim_start_matches(':'));
    Error::new(
        ErrorKind::CorruptState,
        format!("the state of {place} holds something that Tidegate did not write; reset the rule for this key"),
    )
}

pub(super) fn garbled() -> Error {
    Error::new(ErrorKind::StoreRefused, "the store's reply was not understood; is its script of another release?")
}
