//! Answers as numbers and bytes in an array that JavaScript reads where and when it needs to. `lib/record.ts` is the other
//! end, and says what stands where.

use tidegate::http::{Admission, Outcome};
use tidegate::{Algorithm, Counted, Decision, Error, ErrorKind, LimitDecision, Origin};

use crate::args::number;

const DECISION: f64 = 0.0;
const ERROR: f64 = 1.0;
const TRUTH: f64 = 2.0;
const DONE: f64 = 3.0;
const COUNTED: f64 = 4.0;
const ADMISSION: f64 = 5.0;
const LOG: f64 = 6.0;

/// Where a record's length stands, in numbers.
const LENGTH: usize = 2;

/// What stands for no time.
const NONE: f64 = -1.0;

/// A record in the making: numbers, then the bytes that they tell the lengths of.
#[derive(Default)]
pub(crate) struct Record {
    numbers: Vec<f64>,
    bytes: Vec<u8>,
}

impl Record {
    /// Writes it at a place, which a number could stand at; tells the place behind it, or none if it does not fit.
    pub(crate) fn write(&mut self, chunk: &mut [u8], at: usize) -> Option<usize> {
        let bytes_at = at + self.numbers.len() * 8;
        let end = (bytes_at + self.bytes.len()).next_multiple_of(8);
        self.numbers[LENGTH] = length((end - at) / 8);
        let place = chunk.get_mut(at..end)?;
        let (numbers, bytes) = place.split_at_mut(bytes_at - at);
        for (eight, number) in numbers.chunks_exact_mut(8).zip(&self.numbers) {
            eight.copy_from_slice(&number.to_ne_bytes());
        }
        bytes[..self.bytes.len()].copy_from_slice(&self.bytes);
        Some(end)
    }

    fn begin(&mut self, ticket: u64, kind: f64) {
        self.numbers.clear();
        self.bytes.clear();
        self.numbers.extend([number(ticket), kind, 0.0]);
    }

    fn text(&mut self, bytes: &[u8]) -> f64 {
        self.bytes.extend_from_slice(bytes);
        length(bytes.len())
    }

    pub(crate) fn decision(&mut self, ticket: u64, decision: &Decision) {
        self.begin(ticket, DECISION);
        let record = decision.record();
        let receipt = if record.allowed { self.receipt(decision) } else { 0.0 };
        let (code, message) = match decision.failure() {
            Some(failure) => (code(failure), self.text(failure.message().as_bytes())),
            None => (NONE, 0.0),
        };
        let limits = decision.limits();
        self.numbers.extend([
            truth(record.allowed),
            place(Origin::ALL, &record.origin),
            truth(record.repeat),
            f64::from(record.limit),
            f64::from(record.remaining),
            time(record.retry_after_ms),
            time(record.reset_after_ms),
            f64::from(record.binding),
            receipt,
            code,
            message,
            length(limits.len()),
        ]);
        limits.for_each(|limit| self.limit(&limit));
    }

    fn receipt(&mut self, decision: &Decision) -> f64 {
        let start = self.bytes.len();
        decision.write_receipt(&mut self.bytes);
        length(self.bytes.len() - start)
    }

    fn limit(&mut self, limit: &LimitDecision<'_>) {
        let rule = self.text(limit.rule().as_bytes());
        let name = limit.name().map_or(NONE, |name| self.text(name.as_bytes()));
        self.numbers.extend([
            truth(limit.allowed()),
            truth(limit.enforced()),
            place(Algorithm::ALL, &limit.algorithm()),
            f64::from(limit.limit()),
            crate::args::milliseconds(limit.window()),
            f64::from(limit.burst()),
            limit.precision().map_or(NONE, crate::args::milliseconds),
            f64::from(limit.remaining()),
            time(limit.retry_after_ms()),
            time(limit.reset_after_ms()),
            rule,
            name,
        ]);
    }

    pub(crate) fn failed(&mut self, ticket: u64, kind: ErrorKind, message: &str) {
        self.begin(ticket, ERROR);
        let message = self.text(message.as_bytes());
        self.numbers.extend([place(ErrorKind::ALL, &kind), message]);
    }

    pub(crate) fn truth(&mut self, ticket: u64, is_so: bool) {
        self.begin(ticket, TRUTH);
        self.numbers.push(truth(is_so));
    }

    pub(crate) fn done(&mut self, ticket: u64) {
        self.begin(ticket, DONE);
    }

    pub(crate) fn counted(&mut self, ticket: u64, counted: &Counted) {
        self.begin(ticket, COUNTED);
        let left = u64::try_from(counted.left.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
        self.numbers.extend([number(counted.total), number(left), number(counted.start)]);
    }

    /// An admission that is kept at a place. Its fields' names are told by their places in a list, which grows.
    pub(crate) fn admission(
        &mut self,
        ticket: u64,
        place: usize,
        admission: &Admission,
        names: &mut Vec<&'static str>,
    ) {
        self.begin(ticket, ADMISSION);
        let fields = admission.headers();
        self.numbers.extend([
            length(place),
            truth(admission.allowed()),
            self::place(Outcome::ALL, &admission.outcome()),
            truth(admission.is_shadow()),
            truth(admission.may_refund()),
            admission.status().map_or(NONE, f64::from),
            length(fields.len()),
        ]);
        for (name, value) in fields {
            let place = names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            let value = self.text(value.as_bytes());
            self.numbers.extend([length(place), value]);
        }
        for text in [admission.body(), admission.route()] {
            let text = text.map_or(NONE, |text| self.text(text.as_bytes()));
            self.numbers.push(text);
        }
    }

    /// It waits to be taken.
    pub(crate) fn log(&mut self, ticket: u64) {
        self.begin(ticket, LOG);
    }
}

fn truth(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

fn time(milliseconds: Option<u64>) -> f64 {
    milliseconds.map_or(NONE, number)
}

fn length(length: usize) -> f64 {
    number(length as u64)
}

fn code(error: &Error) -> f64 {
    place(ErrorKind::ALL, &error.kind())
}

fn place<T: PartialEq>(all: &[T], one: &T) -> f64 {
    all.iter().position(|other| other == one).map_or(NONE, length)
}
