//! The completion queue of one event loop. In Node the loop reads its own sockets, and drains what has come so. What the I/O
//! thread answers wakes the loop, which drains it; in other runtimes that is all of it.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use napi::bindgen_prelude::{Buffer, BufferSlice, Function, FunctionRef};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status};
use napi_derive::napi;
use tidegate::{Begun, Completed, Completions, ErrorKind, LogEntry, Outcome, Submitted, lines};

use crate::admission::{Admissions, Asked as AskedRequests, Kept};
use crate::args::{number, whole};
use crate::error::{Result, invalid};
use crate::limiter::{Asked, Core};
use crate::policy::{PolicyCore, wire};
use crate::record::Record;
use crate::watch;

/// Said with the place where records end, which is a multiple of 8: that some did not fit, and that there are lines to log.
const LEFT: u32 = 1;
const LINES: u32 = 2;

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
    told: Rc<RefCell<Told>>,
    /// What sockets are watched with.
    wake: Rc<FunctionRef<(), ()>>,
}

/// What is on its way to JavaScript.
#[derive(Default)]
struct Told {
    came: VecDeque<(u64, Came)>,
    drained: Vec<Completed>,
    record: Record,
    /// Where records are written, and from which byte on.
    chunk: Option<Buffer>,
    at: usize,
    /// The admissions of which there are records in the chunk.
    kept: Admissions,
    /// The names of fields that records tell by their place.
    names: Vec<&'static str>,
    /// What is no record, and waits to be taken by its ticket.
    logs: HashMap<u64, Vec<LogEntry>>,
}

#[napi]
impl Queue {
    /// `wake` is called on the loop's thread when there is something to drain. By itself it keeps no loop running. In Node the
    /// loop reads; other runtimes have libuv's calls by name at most.
    #[napi(constructor)]
    pub fn new(wake: Function<'_, (), ()>, is_node: bool) -> napi::Result<Queue> {
        lines::keep();
        let called = Rc::new(wake.create_ref()?);
        let wake: Waker = wake.build_threadsafe_function::<()>().weak::<true>().callee_handled::<false>().build()?;
        let wake = move || {
            // Where the loop has ended nobody is left to be woken.
            let _ = wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        };
        let completions =
            if is_node && watch::can_watch() { Completions::reading(wake) } else { Completions::new(wake) };
        Ok(Queue { completions, told: Rc::default(), wake: called })
    }

    /// Where records are written from now on, from its beginning, and what keeps the admissions among them.
    #[napi]
    pub fn write_into(&self, chunk: Buffer, kept: &Kept) {
        let mut told = self.told.borrow_mut();
        (told.chunk, told.at, told.kept) = (Some(chunk), 0, kept.all());
    }

    /// The name of a field that records tell by this place.
    #[napi]
    pub fn name(&self, place: u32) -> &'static str {
        self.told.borrow().names.get(place as usize).copied().unwrap_or_default()
    }

    /// A function that writes what has come behind the records before. It says where they end.
    ///
    /// This and `submitter` are functions and no methods: what they work on is not looked up at each call.
    #[napi]
    pub fn drainer<'env>(&self, env: &'env Env) -> napi::Result<Function<'env, (), u32>> {
        let (completions, told, wake) = (self.completions.clone(), Rc::clone(&self.told), Rc::clone(&self.wake));
        env.create_function_from_closure("drain", move |call| {
            completions.sockets().into_iter().for_each(|socket| watch::watch(call.env, socket, &wake));
            let told = &mut *told.borrow_mut();
            completions.drain(&mut told.drained);
            let drained = told.drained.drain(..).map(|completed| (completed.ticket, Came::Ended(completed.result)));
            told.came.extend(drained);
            Ok(told.tell())
        })
    }

    /// A function that submits the checks which stand in `asked`, and writes what is known at once as `drain` does.
    #[napi]
    pub fn submitter<'env>(&self, env: &'env Env, core: &Core, asked: Buffer) -> napi::Result<Function<'env, (), u32>> {
        let (completions, told) = (self.completions.clone(), Rc::clone(&self.told));
        let shared = core.shared();
        env.create_function_from_closure("submit", move |_| {
            let (shared, told) = (shared.borrow(), &mut *told.borrow_mut());
            let mut checks = Asked::new(&asked);
            let is_here = checks.is_here();
            Completions::together(|| {
                while let Some(check) = checks.next(&shared) {
                    match check {
                        (ticket, Err(error)) => told.failed(ticket, error),
                        (ticket, Ok(check)) if is_here => told.decide(ticket, check),
                        (ticket, Ok(check)) => {
                            if let Some(done) = check.submit(&completions, ticket).transpose() {
                                told.ended(ticket, done.map(Outcome::Decision));
                            }
                        }
                    }
                }
            });
            Ok(told.tell())
        })
    }

    /// A function that submits the requests which stand in `asked`, and writes what is known at once as `drain` does.
    #[napi]
    pub fn admitter<'env>(
        &self,
        env: &'env Env,
        policy: &PolicyCore,
        asked: Buffer,
    ) -> napi::Result<Function<'env, (), u32>> {
        let (completions, told) = (self.completions.clone(), Rc::clone(&self.told));
        let shared = policy.shared();
        env.create_function_from_closure("admit", move |_| {
            let (shared, told) = (&mut *shared.borrow_mut(), &mut *told.borrow_mut());
            let mut requests = AskedRequests::new(&asked);
            Completions::together(|| {
                while let Some((ticket, request)) = requests.next(shared) {
                    match request {
                        Err(error) => told.failed(ticket, error),
                        Ok(request) => {
                            if let Some(done) = request.submit(&completions, ticket).transpose() {
                                told.ended(ticket, done.map(Outcome::Admission));
                            }
                        }
                    }
                }
            });
            Ok(told.tell())
        })
    }

    /// Writes the admission at a place once more, into another chunk and to be kept there, its refusal as this `Accept` likes
    /// it best. Tells where that ends; none if it does not fit.
    #[napi]
    pub fn accepting(
        &self,
        kept: &Kept,
        place: u32,
        accept: String,
        mut chunk: BufferSlice<'_>,
        into: &Kept,
    ) -> Result<Option<u32>> {
        let told = &mut *self.told.borrow_mut();
        let admission = kept.admission(place)?.accepting(wire(&accept));
        // Both are one from now on: what there is to give back is given once, whichever is asked.
        kept.all().borrow_mut()[place as usize] = admission.clone();
        told.record.admission(0, 0, &admission, &mut told.names);
        let end = told.record.write(&mut chunk, 0);
        if end.is_some() {
            into.all().borrow_mut().push(admission);
        }
        Ok(end.and_then(|end| u32::try_from(end).ok()))
    }

    /// Takes the log of a ticket: a time in microseconds since 1970, units, and so on.
    #[napi]
    pub fn take_log(&self, ticket: f64) -> Result<Vec<f64>> {
        let taken = self.told.borrow_mut().logs.remove(&whole(ticket, "ticket")?);
        let entries = taken.ok_or_else(|| invalid("no log has come under this ticket"))?;
        Ok(entries.iter().flat_map(|entry| [number(entry.at), f64::from(entry.units)]).collect())
    }
}

impl Told {
    fn ended(&mut self, ticket: u64, result: tidegate::Result<Outcome>) {
        self.came.push_back((ticket, Came::Ended(result)));
    }

    fn failed(&mut self, ticket: u64, error: napi::Error<&'static str>) {
        let kind = ErrorKind::ALL.iter().find(|kind| kind.code() == error.status);
        self.came.push_back((ticket, Came::Failed(*kind.unwrap_or(&ErrorKind::InvalidRequest), error.reason.clone())));
    }

    /// Decides here and now, or refuses to where that is not possible.
    fn decide(&mut self, ticket: u64, check: tidegate::Check<'_>) {
        match check.begin() {
            Ok(Begun::Pending(_)) => {
                let message = "a store that is asked over a network cannot answer at once; write await check(...)";
                self.failed(ticket, invalid(message));
            }
            Ok(Begun::Decided(decision)) => self.ended(ticket, Ok(Outcome::Decision(decision))),
            Err(error) => self.ended(ticket, Err(error)),
        }
    }

    /// Writes records of what has come, as many as fit.
    fn tell(&mut self) -> u32 {
        while let Some((ticket, came)) = self.came.pop_front() {
            match &came {
                Came::Failed(kind, message) => self.record.failed(ticket, *kind, message),
                Came::Ended(Err(error)) => self.record.failed(ticket, error.kind(), error.message()),
                Came::Ended(Ok(Outcome::Decision(decision))) => self.record.decision(ticket, decision),
                Came::Ended(Ok(Outcome::Refunded(refunded))) => self.record.truth(ticket, *refunded),
                Came::Ended(Ok(Outcome::Counted(counted))) => self.record.counted(ticket, counted),
                Came::Ended(Ok(Outcome::Admission(admission))) => {
                    let place = self.kept.borrow().len();
                    self.record.admission(ticket, place, admission, &mut self.names);
                }
                Came::Ended(Ok(Outcome::Log(_))) => self.record.log(ticket),
                Came::Ended(Ok(_)) => self.record.done(ticket),
            }
            let chunk = self.chunk.as_deref_mut().unwrap_or_default();
            let Some(end) = self.record.write(chunk, self.at) else {
                self.came.push_front((ticket, came));
                return self.end() | LEFT;
            };
            self.at = end;
            match came {
                Came::Ended(Ok(Outcome::Admission(admission))) => {
                    self.kept.borrow_mut().push(admission);
                }
                Came::Ended(Ok(Outcome::Log(log))) => {
                    self.logs.insert(ticket, log);
                }
                _ => {}
            }
        }
        self.end()
    }

    /// Where records end.
    fn end(&self) -> u32 {
        let lines = if lines::waiting() { LINES } else { 0 };
        u32::try_from(self.at).unwrap_or(u32::MAX) | lines
    }
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
