//! The completion queue of one event loop. When something comes to the empty queue, core's I/O thread wakes the loop;
//! then the loop's own thread drains it.

use std::collections::{HashMap, VecDeque};

use napi::Status;
use napi::bindgen_prelude::{BufferSlice, Float64ArraySlice, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use tidegate::{Begun, Completed, Completions, ErrorKind, LogEntry, Outcome, Submitted};

use crate::args::{number, whole};
use crate::error::{Result, invalid};
use crate::limiter::Core;
use crate::logging;
use crate::policy::Admission;
use crate::record::Record;

/// The numbers that a check is told in; `lib/batch.ts` writes them.
const HEAD: usize = 9;

type Waker = ThreadsafeFunction<(), (), (), Status, false, true>;

/// What has come, and is to be told.
enum Came {
    Ended(tidegate::Result<Outcome>),
    /// What could not be asked.
    Failed(ErrorKind, String),
}

#[napi]
pub struct Queue {
    pub(crate) completions: Completions,
    came: VecDeque<(u64, Came)>,
    drained: Vec<Completed>,
    record: Record,
    /// What is no record, and waits to be taken by its ticket.
    admissions: HashMap<u64, Admission>,
    logs: HashMap<u64, Vec<LogEntry>>,
}

#[napi]
impl Queue {
    /// `wake` is called on the loop's thread when there is something to drain. By itself it keeps no loop running.
    #[napi(constructor)]
    pub fn new(wake: Function<'_, (), ()>) -> napi::Result<Queue> {
        logging::install();
        let wake: Waker = wake.build_threadsafe_function::<()>().weak::<true>().callee_handled::<false>().build()?;
        let completions = Completions::new(move || {
            // Where the loop has ended nobody is left to be woken.
            let _ = wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        });
        Ok(Queue {
            completions,
            came: VecDeque::new(),
            drained: Vec::new(),
            record: Record::default(),
            admissions: HashMap::new(),
            logs: HashMap::new(),
        })
    }

    /// Submits so many checks, and tells what is known at once, as `drain` does.
    #[napi]
    pub fn submit(
        &mut self,
        core: &Core,
        count: u32,
        heads: Float64ArraySlice<'_>,
        bytes: BufferSlice<'_>,
        chunk: BufferSlice<'_>,
        at: u32,
    ) -> Result<u32> {
        let mut bytes = &bytes[..];
        for head in heads.chunks_exact(HEAD).take(count as usize) {
            let ticket = whole(head[0], "ticket")?;
            match core.asked(&head[1..], &mut bytes) {
                Err(error) => self.failed(ticket, error),
                Ok(check) => {
                    if let Some(done) = check.submit(&self.completions, ticket).transpose() {
                        self.came.push_back((ticket, Came::Ended(done.map(Outcome::Decision))));
                    }
                }
            }
        }
        Ok(self.tell(chunk, at))
    }

    /// Decides one check here and now, or refuses to where that is not possible; tells it as `drain` does.
    #[napi]
    pub fn decide(
        &mut self,
        core: &Core,
        head: Float64ArraySlice<'_>,
        bytes: BufferSlice<'_>,
        chunk: BufferSlice<'_>,
        at: u32,
    ) -> Result<u32> {
        let ticket = whole(head[0], "ticket")?;
        match core.asked(&head[1..HEAD], &mut &bytes[..]).map(|check| check.begin()) {
            Err(error) => self.failed(ticket, error),
            Ok(Ok(Begun::Pending(_))) => {
                let message = "a store that is asked over a network cannot answer at once; write await check(...)";
                self.failed(ticket, invalid(message));
            }
            Ok(Ok(Begun::Decided(decision))) => {
                self.came.push_back((ticket, Came::Ended(Ok(Outcome::Decision(decision)))));
            }
            Ok(Err(error)) => self.came.push_back((ticket, Came::Ended(Err(error)))),
        }
        Ok(self.tell(chunk, at))
    }

    /// Writes what has come into the chunk from this place on, as much as fits. Tells where that ends; and 1 more than that
    /// if something is left.
    #[napi]
    pub fn drain(&mut self, chunk: BufferSlice<'_>, at: u32) -> u32 {
        self.completions.drain(&mut self.drained);
        let drained = self.drained.drain(..).map(|completed| (completed.ticket, Came::Ended(completed.result)));
        self.came.extend(drained);
        self.tell(chunk, at)
    }

    /// Takes the admission of a ticket.
    #[napi]
    pub fn take_admission(&mut self, ticket: f64) -> Result<Admission> {
        let taken = self.admissions.remove(&whole(ticket, "ticket")?);
        taken.ok_or_else(|| invalid("no admission has come under this ticket"))
    }

    /// Takes the log of a ticket: a time in microseconds since 1970, units, and so on.
    #[napi]
    pub fn take_log(&mut self, ticket: f64) -> Result<Vec<f64>> {
        let taken = self.logs.remove(&whole(ticket, "ticket")?);
        let entries = taken.ok_or_else(|| invalid("no log has come under this ticket"))?;
        Ok(entries.iter().flat_map(|entry| [number(entry.at), f64::from(entry.units)]).collect())
    }

    /// Whether lines have been logged since `takeLog` was called.
    #[napi]
    pub fn has_log(&self) -> bool {
        logging::waits()
    }
}

impl Queue {
    fn failed(&mut self, ticket: u64, error: napi::Error<&'static str>) {
        let kind = ErrorKind::ALL.iter().find(|kind| kind.code() == error.status);
        self.came.push_back((ticket, Came::Failed(*kind.unwrap_or(&ErrorKind::InvalidRequest), error.reason.clone())));
    }

    fn tell(&mut self, mut chunk: BufferSlice<'_>, at: u32) -> u32 {
        let mut at = at as usize;
        while let Some((ticket, came)) = self.came.pop_front() {
            match &came {
                Came::Failed(kind, message) => self.record.failed(ticket, *kind, message),
                Came::Ended(Err(error)) => self.record.failed(ticket, error.kind(), error.message()),
                Came::Ended(Ok(Outcome::Decision(decision))) => self.record.decision(ticket, decision),
                Came::Ended(Ok(Outcome::Refunded(refunded))) => self.record.truth(ticket, *refunded),
                Came::Ended(Ok(Outcome::Counted(counted))) => self.record.counted(ticket, counted),
                Came::Ended(Ok(Outcome::Admission(_))) => self.record.admission(ticket),
                Came::Ended(Ok(Outcome::Log(_))) => self.record.log(ticket),
                Came::Ended(Ok(_)) => self.record.done(ticket),
            }
            let Some(end) = self.record.write(&mut chunk, at) else {
                self.came.push_front((ticket, came));
                return end_of(at) + 1;
            };
            at = end;
            match came {
                Came::Ended(Ok(Outcome::Admission(admission))) => {
                    self.admissions.insert(ticket, Admission(*admission));
                }
                Came::Ended(Ok(Outcome::Log(log))) => {
                    self.logs.insert(ticket, log);
                }
                _ => {}
            }
        }
        end_of(at)
    }
}

/// Chunks are small.
fn end_of(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// An acquire on its way.
#[napi]
pub struct Acquiring(pub(crate) Submitted);

#[napi]
impl Acquiring {
    /// Gives it up: its place in line is free, and what it charges is given back.
    #[napi]
    pub fn call_off(&self) {
        self.0.call_off();
    }
}
