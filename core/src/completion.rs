//! Results for threads that cannot be called: the event loops of other languages.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::decision::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::fork::PerProcess;
use crate::http::Admission;
use crate::io;
use crate::limiter::{Counted, Limiter, LogEntry, conclude, ended};
use crate::plan::Call;
use crate::store::redis::{Answer, LoopSocket, Together};
use crate::trace::Span;

/// Results for a thread that must not be called, such as an event loop of another language: for bindings.
///
/// A call is submitted with a number, its ticket. What was not known at once comes to the queue later, and the queue wakes
/// the loop, which drains it: once for however many have come since.
///
/// ```
/// use std::sync::mpsc;
/// use tidegate::{Completions, Limiter, Outcome};
///
/// let (waker, woken) = mpsc::channel();
/// let completions = Completions::new(move || waker.send(()).unwrap_or(()));
/// let limiter = Limiter::builder().rule("login", "5/m").build()?;
///
/// // Memory answers at once; a check that goes to a server returns none here, and comes to the queue.
/// let decision = limiter.check("login", "alice").submit(&completions, 1)?.expect("it is memory");
///
/// limiter.refund(&decision.receipt()).submit(&completions, 2)?;
/// woken.recv().expect("the queue holds the other end");
/// let mut completed = Vec::new();
/// completions.drain(&mut completed);
/// assert_eq!(completed[0].ticket, 2);
/// assert!(matches!(completed[0].result, Ok(Outcome::Refunded(true))));
/// # Ok::<(), tidegate::Error>(())
/// ```
///
/// Every ticket comes once, in no order, by the deadline of its call, but for what `submit` answered at once. The queue
/// has no bound of its own: whoever submits bounds what is [`pending`](Completions::pending).
/// When the queue and its clones are dropped, calls
/// that are on their way have nobody left to take their answer: a charge that such a check or acquire makes is given
/// back. What has come and was not drained stands.
///
/// In a forked child the queue is empty: none of its parent's calls come to it, and it takes none, since to wake it would
/// be to wake the parent, or to wait for a lock that nobody holds any more. Make a queue in the child.
#[derive(Debug, Clone)]
pub struct Completions {
    shared: Arc<Shared>,
}

/// A call that has ended.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct Completed {
    /// The number that it was submitted with.
    pub ticket: u64,
    /// What it answers, or the error that it would have returned.
    pub result: Result<Outcome>,
}

/// What a call answers.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Of a check, a peek or an acquire.
    Decision(Decision),
    /// Of a refund: whether anything was given back.
    Refunded(bool),
    /// Of what answers nothing, such as a reset.
    Done,
    /// Of a count.
    Counted(Counted),
    /// The requests in a log.
    Log(Vec<LogEntry>),
    /// Of a request that a policy was asked to admit.
    Admission(Admission),
}

/// A call that was submitted, and can be called off. To drop it changes nothing.
#[derive(Debug)]
pub struct Submitted {
    task: PerProcess<AbortHandle>,
}

impl Submitted {
    /// Gives the call up, unless it has ended: its place in line is free, and what it charges is given back. Its ticket
    /// comes all the same: as a `store_unavailable`, or as what the call came to just before. Nothing in a forked child,
    /// where the call is the parent's.
    pub fn call_off(&self) {
        if let Some(task) = self.task.made() {
            task.abort();
        }
    }
}

struct Shared {
    wake: Box<dyn Fn() + Send + Sync>,
    /// Whether its loop watches sockets.
    reads: bool,
    state: PerProcess<State>,
}

#[derive(Debug, Default)]
struct State {
    completed: Mutex<Vec<Completed>>,
    /// Sockets that the loop has not heard of.
    sockets: Mutex<Vec<LoopSocket>>,
    /// Submitted and not drained.
    pending: AtomicUsize,
    /// Gone when the queue is.
    alive: watch::Sender<()>,
}

impl Completions {
    /// A queue. `wake` is called when something comes to the empty queue, on any thread, by one thread at a time or by
    /// several: at most once for each [`drain`](Completions::drain), and once more. It must neither block nor panic:
    /// let it write to an eventfd or a pipe, or call a thread-safe function.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Completions {
        Completions::of(Box::new(wake), false)
    }

    /// The queue of a loop that also watches sockets. Checks that are submitted to it are sent at once by the thread that
    /// submits them, on sockets of the loop's own: one for each server. Where the loop reads their answers too, no other
    /// thread is woken for them; the I/O thread looks after deadlines, forty times a second. What is more than eight runs of the
    /// script under way goes the way of other queues, and so does all of it over TLS.
    ///
    /// `wake` is also called for each socket: there are [`sockets`](Completions::sockets) to be watched from then on. To read
    /// late is no failure of the store: at a check's deadline the I/O thread looks first whether its answer has come.
    pub fn reading(wake: impl Fn() + Send + Sync + 'static) -> Completions {
        Completions::of(Box::new(wake), true)
    }

    fn of(wake: Box<dyn Fn() + Send + Sync>, reads: bool) -> Completions {
        Completions { shared: Arc::new(Shared { wake, reads, state: PerProcess::new(State::default()) }) }
    }

    /// The sockets that the loop is to watch from now on, each told once: when one is readable, its
    /// [`read`](LoopSocket::read) is to be called. None but for a queue that is [`reading`](Completions::reading).
    #[must_use]
    pub fn sockets(&self) -> Vec<LoopSocket> {
        std::mem::take(&mut *self.shared.state().sockets())
    }

    /// Does what submits many calls, so that they leave together: checks that are submitted within are sent when it ends.
    ///
    /// ```
    /// # use tidegate::{Completions, Limiter};
    /// # let completions = Completions::new(|| ());
    /// # let limiter = Limiter::builder().rule("login", "5/m").build()?;
    /// let decisions = Completions::together(|| {
    ///     let submit = |(ticket, user)| limiter.check("login", user).submit(&completions, ticket);
    ///     (0..).zip(["alice", "bob"]).map(submit).collect::<tidegate::Result<Vec<_>>>()
    /// })?;
    /// assert!(decisions.iter().all(Option::is_some), "memory answers at once");
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn together<T>(submit: impl FnOnce() -> T) -> T {
        let _until_it_ends = Together::begin();
        submit()
    }

    /// Takes what has come, the oldest first, and puts it at the end of `into`. What comes from now on wakes again.
    pub fn drain(&self, into: &mut Vec<Completed>) {
        let state = self.shared.state();
        let mut completed = state.completed();
        state.pending.fetch_sub(completed.len(), Ordering::Relaxed);
        if into.is_empty() {
            // No copy, and both lists keep their room.
            std::mem::swap(&mut *completed, into);
        } else {
            into.append(&mut completed);
        }
    }

    /// How many calls were submitted and have not been drained: whether the loop has anything to wait for.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.shared.state().pending.load(Ordering::Relaxed)
    }

    /// # Errors
    /// `invalid_request` in a forked child, where the queue is the parent's.
    pub(crate) fn takes_calls(&self) -> Result<()> {
        if self.shared.state.is_of_this_process() {
            return Ok(());
        }
        let message = "the completion queue was made before this process was forked; make one in the child";
        Err(Error::new(ErrorKind::InvalidRequest, message))
    }

    /// The place of a call that is about to set out; of a check with what is decided.
    pub(crate) fn ticket(&self, number: u64, check: Option<Submission>) -> Ticket {
        self.shared.state().pending.fetch_add(1, Ordering::Relaxed);
        Ticket { to: Arc::downgrade(&self.shared), number, check, is_open: true }
    }

    /// Runs a call on the I/O thread, until it ends or nobody waits for it any more. What a limiter has charged then is
    /// given back.
    pub(crate) fn run<T: Into<Outcome>>(
        &self,
        number: u64,
        limiter: Option<Limiter>,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<Submitted> {
        self.takes_calls()?;
        let handle = io::handle()?;
        let mut alive = self.shared.state().alive.subscribe();
        let ticket = self.ticket(number, None);
        let task = handle.spawn(async move {
            let unclaimed = tokio::select! {
                biased;
                result = work => ticket.push(result.map(Into::into)),
                _ = alive.changed() => None,
            };
            match (unclaimed, limiter) {
                (Some(Ok(Outcome::Decision(decision))), Some(limiter)) => {
                    let _ = limiter.refund(&decision.receipt()).await;
                }
                (Some(Ok(Outcome::Admission(admission))), _) => drop(admission.undo().await),
                _ => {}
            }
        });
        Ok(Submitted { task: PerProcess::new(task.abort_handle()) })
    }
}

impl Shared {
    fn state(&self) -> &State {
        self.state.get(State::default)
    }

    fn push(self: &Arc<Shared>, completed: Completed) {
        let mut queue = self.state().completed();
        let wakes = queue.is_empty();
        queue.push(completed);
        drop(queue);
        if wakes && !Rings::wait_for(self) {
            (self.wake)();
        }
    }
}

thread_local! {
    /// The queues that this thread has to wake once it has answered many.
    static RINGS: RefCell<Option<Vec<Arc<Shared>>>> = const { RefCell::new(None) };
}

/// While there is one, what this thread pushes wakes nobody: a loop that is woken for the first of many answers would take
/// that alone, on a busy machine before the next one is there.
pub(crate) struct Rings {
    /// One that is not woken in the end either.
    but_for: Option<EventLoop>,
}

impl Rings {
    /// None if there is one already, which is the one that counts.
    pub(crate) fn begin() -> Option<Rings> {
        Rings::of(None)
    }

    /// The same for what a loop does itself.
    pub(crate) fn but_for(event_loop: &EventLoop) -> Option<Rings> {
        Rings::of(Some(event_loop.clone()))
    }

    fn of(but_for: Option<EventLoop>) -> Option<Rings> {
        let begin = |queues: &RefCell<Option<_>>| match &mut *queues.borrow_mut() {
            Some(_) => None,
            none => {
                *none = Some(Vec::new());
                Some(Rings { but_for })
            }
        };
        // There is none any more where the thread ends.
        RINGS.try_with(begin).unwrap_or_default()
    }

    fn wait_for(queue: &Arc<Shared>) -> bool {
        let wait_for = |queues: &RefCell<Option<Vec<_>>>| match &mut *queues.borrow_mut() {
            None => false,
            Some(queues) => {
                queues.push(Arc::clone(queue));
                true
            }
        };
        RINGS.try_with(wait_for).unwrap_or(false)
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        let queues = RINGS.try_with(RefCell::take).ok().flatten().unwrap_or_default();
        let but_for = self.but_for.as_ref().map_or(std::ptr::null(), |event_loop| event_loop.0.as_ptr());
        for queue in queues.iter().filter(|queue| Arc::as_ptr(queue) != but_for) {
            // One that panics has been rung all the same.
            drop(catch_unwind(AssertUnwindSafe(|| (queue.wake)())));
        }
    }
}

/// The loop of a queue that is [`reading`](Completions::reading). It does not keep the queue.
#[derive(Debug, Clone)]
pub(crate) struct EventLoop(Weak<Shared>);

impl EventLoop {
    /// Whether the queue is there.
    pub(crate) fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Has the loop watch a socket; one that nobody watches is dropped.
    pub(crate) fn watch(&self, socket: LoopSocket) {
        let Some(shared) = self.0.upgrade() else { return };
        shared.state().sockets().push(socket);
        // Whoever makes a socket has more to do.
        drop(catch_unwind(AssertUnwindSafe(|| (shared.wake)())));
    }
}

impl PartialEq for EventLoop {
    fn eq(&self, other: &EventLoop) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl State {
    fn completed(&self) -> MutexGuard<'_, Vec<Completed>> {
        self.completed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<LoopSocket>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

/// A call's place in a queue, taken once. It does not keep the queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    to: Weak<Shared>,
    number: u64,
    check: Option<Submission>,
    is_open: bool,
}

/// A check on its way to a queue.
pub(crate) struct Submission {
    pub(crate) call: Call,
    pub(crate) span: Span,
    /// What becomes of its decision.
    pub(crate) then: Then,
}

pub(crate) type Then = Box<dyn FnOnce(Decision) -> Outcome + Send>;

impl Submission {
    fn conclude(self, answer: Answer) -> Outcome {
        let decision = conclude(self.call, answer);
        self.span.decided(&decision);
        (self.then)(decision)
    }
}

impl std::fmt::Debug for Submission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submission").field("call", &self.call).finish_non_exhaustive()
    }
}

impl Ticket {
    /// Tells what the call has come to; returns it where nobody is there to take it.
    fn push(mut self, result: Result<Outcome>) -> Option<Result<Outcome>> {
        self.is_open = false;
        let Some(shared) = self.to.upgrade() else { return Some(result) };
        shared.push(Completed { ticket: self.number, result });
        None
    }

    fn answer(mut self, answer: Answer) -> std::result::Result<(), Answer> {
        if self.to.strong_count() == 0 {
            self.is_open = false;
            return Err(answer);
        }
        let outcome = self.check.take().map(|check| check.conclude(answer));
        // Should the queue be dropped in this very moment, then as if it had been a moment later.
        let _ = self.push(outcome.ok_or_else(ended));
        Ok(())
    }
}

impl Drop for Ticket {
    /// Whoever was to answer is gone; the loop must not wait for ever.
    fn drop(&mut self) {
        let Some(shared) = self.to.upgrade().filter(|_| self.is_open) else { return };
        let result = self.check.take().map(|check| check.conclude(Answer::Failed(ended()))).ok_or_else(ended);
        shared.push(Completed { ticket: self.number, result });
    }
}

/// Who waits for a check that is on its way.
#[derive(Debug)]
pub(crate) enum Waiter {
    Future(oneshot::Sender<Answer>),
    Queue(Ticket),
}

impl Waiter {
    /// The loop that reads the answer, if it is for one that does.
    pub(crate) fn event_loop(&self) -> Option<EventLoop> {
        let Waiter::Queue(ticket) = self else { return None };
        ticket.to.upgrade().filter(|shared| shared.reads).map(|_| EventLoop(Weak::clone(&ticket.to)))
    }

    pub(crate) fn is_of(&self, event_loop: &EventLoop) -> bool {
        matches!(self, Waiter::Queue(ticket) if ticket.to.ptr_eq(&event_loop.0))
    }

    /// Tells the answer, or gives it back where nobody waits any more.
    pub(crate) fn send(self, answer: Answer) -> std::result::Result<(), Answer> {
        let send = || match self {
            Waiter::Future(sender) => sender.send(answer),
            Waiter::Queue(ticket) => ticket.answer(answer),
        };
        // A waker or `wake` that panics has been told all the same, and others wait to be told here.
        catch_unwind(AssertUnwindSafe(send)).unwrap_or(Ok(()))
    }
}

impl From<Decision> for Outcome {
    fn from(decision: Decision) -> Outcome {
        Outcome::Decision(decision)
    }
}

impl From<Admission> for Outcome {
    fn from(admission: Admission) -> Outcome {
        Outcome::Admission(admission)
    }
}

impl From<bool> for Outcome {
    fn from(refunded: bool) -> Outcome {
        Outcome::Refunded(refunded)
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Outcome {
        Outcome::Done
    }
}

impl From<Counted> for Outcome {
    fn from(counted: Counted) -> Outcome {
        Outcome::Counted(counted)
    }
}

impl From<Vec<LogEntry>> for Outcome {
    fn from(entries: Vec<LogEntry>) -> Outcome {
        Outcome::Log(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::thread;

    use super::*;

    const PUSHERS: u64 = 8;
    const EACH: u64 = 25_000;

    /// A waker that a thread can sleep on, and how often it rang.
    #[derive(Debug, Default)]
    struct Bell {
        rung: Mutex<(bool, usize)>,
        rings: Condvar,
    }

    impl Bell {
        fn ring(&self) {
            let mut rung = self.rung.lock().expect("nobody panics with it");
            *rung = (true, rung.1 + 1);
            self.rings.notify_all();
        }

        fn wait(&self) {
            let rung = self.rung.lock().expect("nobody panics with it");
            let limit = std::time::Duration::from_secs(60);
            let (mut rung, waited) =
                self.rings.wait_timeout_while(rung, limit, |rung| !rung.0).expect("nobody panics with it");
            assert!(!waited.timed_out(), "a wake-up was lost");
            rung.0 = false;
        }

        fn count(&self) -> usize {
            self.rung.lock().expect("nobody panics with it").1
        }
    }

    fn queue() -> (Completions, Arc<Bell>) {
        let bell = Arc::new(Bell::default());
        let ringer = Arc::clone(&bell);
        (Completions::new(move || ringer.ring()), bell)
    }

    fn push(queue: &Completions, number: u64) {
        assert!(queue.ticket(number, None).push(Ok(Outcome::Done)).is_none(), "the queue is there");
    }

    #[test]
    fn wakes_when_something_comes_to_the_empty_queue_and_not_again_before_it_is_drained() {
        let (queue, bell) = queue();
        (0..3).for_each(|number| push(&queue, number));
        assert_eq!((bell.count(), queue.pending()), (1, 3));
        let mut completed = Vec::new();
        queue.drain(&mut completed);
        assert_eq!((bell.count(), queue.pending()), (1, 0));
        push(&queue, 3);
        assert_eq!(bell.count(), 2);
        queue.drain(&mut completed);
        assert!(completed.iter().map(|one| one.ticket).eq(0..4), "the oldest first");
    }

    #[test]
    fn no_wake_up_is_lost_between_many_that_push_and_one_that_drains() {
        let (queue, bell) = queue();
        let (mut seen, mut drains) = (vec![0; usize::try_from(PUSHERS * EACH).expect("it is small")], 0);
        thread::scope(|scope| {
            for pusher in 0..PUSHERS {
                let queue = &queue;
                scope.spawn(move || (0..EACH).for_each(|number| push(queue, pusher * EACH + number)));
            }
            let (mut completed, mut count) = (Vec::new(), 0);
            while count < PUSHERS * EACH {
                bell.wait();
                queue.drain(&mut completed);
                drains += 1;
                count += completed.len() as u64;
                completed.drain(..).for_each(|one| seen[usize::try_from(one.ticket).expect("it is small")] += 1);
            }
        });
        assert!(seen.iter().all(|times| *times == 1), "each once");
        assert_eq!(queue.pending(), 0);
        assert!(bell.count() <= drains + 1, "{} wake-ups for {drains} drains", bell.count());
    }

    #[test]
    fn a_ticket_that_nobody_answers_comes_as_an_error() {
        let (queue, bell) = queue();
        drop(queue.ticket(7, None));
        let mut completed = Vec::new();
        queue.drain(&mut completed);
        assert_eq!((bell.count(), completed.len(), completed[0].ticket), (1, 1, 7));
        assert_eq!(completed[0].result.as_ref().map_err(|error| error.code()).err(), Some("store_unavailable"));
    }

    #[test]
    fn a_ticket_does_not_keep_the_queue() {
        let (queue, bell) = queue();
        let (taken, left) = (queue.ticket(1, None), queue.ticket(2, None));
        drop(queue);
        assert!(matches!(taken.push(Ok(Outcome::Done)), Some(Ok(Outcome::Done))), "it is given back");
        drop(left);
        assert_eq!(bell.count(), 0);
    }
}
