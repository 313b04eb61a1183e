//! The blocking face: `wait` parks the calling thread until a future is done, unless the future leaves it something to do.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::clock;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What a thread does before it parks: it brings about what it would wait for. One that is dropped has it done elsewhere.
pub(crate) type Errand = Box<dyn FnOnce() + Send>;

/// The longest that an errand takes.
pub(crate) const LONGEST_ERRAND: Duration = Duration::from_millis(16);

/// Whether a future that is polled may leave an errand.
enum Errands {
    /// It may not: whoever polls it does not park, or has one.
    Closed,
    Open,
    Left(Errand),
}

thread_local! {
    static ERRANDS: RefCell<Errands> = const { RefCell::new(Errands::Closed) };
}

/// Puts something into the slot, and returns what was there. There is none any more where the thread ends.
fn replace(errands: Errands) -> Errands {
    ERRANDS.try_with(|slot| slot.replace(errands)).unwrap_or(Errands::Closed)
}

/// Whether this thread is about to park, and takes an errand.
pub(crate) fn takes_errand() -> bool {
    ERRANDS.try_with(|slot| matches!(*slot.borrow(), Errands::Open)).unwrap_or(false)
}

/// Leaves an errand with a thread that takes one.
pub(crate) fn leave(errand: Errand) {
    replace(Errands::Left(errand));
}

/// Polls, and returns what was left to do.
fn poll<F: Future + ?Sized>(future: Pin<&mut F>, context: &mut Context<'_>) -> (Poll<F::Output>, Option<Errand>) {
    /// What was before comes back, even if the future panics.
    struct Opened(Option<Errands>);

    impl Opened {
        fn close(&mut self) -> Errands {
            self.0.take().map_or(Errands::Closed, replace)
        }
    }

    impl Drop for Opened {
        fn drop(&mut self) {
            drop(self.close());
        }
    }

    let mut opened = Opened(Some(replace(Errands::Open)));
    let polled = future.poll(context);
    match opened.close() {
        Errands::Left(errand) => (polled, Some(errand)),
        Errands::Open | Errands::Closed => (polled, None),
    }
}

/// Runs a future to its end on this thread. Every future of this crate ends by its deadline, once its errand is run or
/// dropped.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut waker = None;
    loop {
        // Nobody needs waking who has not parked yet.
        let known = waker.as_ref().unwrap_or(Waker::noop());
        match poll(future.as_mut(), &mut Context::from_waker(known)) {
            (Poll::Ready(output), _) => return output,
            (Poll::Pending, Some(errand)) => errand(),
            (Poll::Pending, None) if waker.is_some() => thread::park(),
            (Poll::Pending, None) => waker = Some(Waker::from(Arc::new(Unpark(thread::current())))),
        }
    }
}

/// Runs a future on this thread for so long at the most; none if it has not ended by then. No time at all is for what is
/// known at once: what was left to do then is kept for the wait that follows.
pub(crate) fn wait_for<F: Future + ?Sized>(
    mut future: Pin<&mut F>,
    most: Duration,
    kept: &mut Option<Errand>,
) -> Option<F::Output> {
    let until = clock::after(most);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut left = most;
    let mut errand = kept.take();
    loop {
        let has_time = left >= LONGEST_ERRAND;
        if let Some(errand) = errand.take().filter(|_| has_time) {
            errand();
        }
        let polled = if has_time || most.is_zero() {
            let (polled, new) = poll(future.as_mut(), &mut context);
            errand = new;
            polled
        } else {
            future.as_mut().poll(&mut context)
        };
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        left = until.saturating_duration_since(clock::instant());
        if left.is_zero() {
            *kept = errand.filter(|_| most.is_zero());
            return None;
        }
        if errand.is_none() {
            thread::park_timeout(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};

    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn a_wait_ends_with_the_answer_or_with_its_time() {
        assert_eq!(wait_for(pin!(async { 1 }), SHORT, &mut None), Some(1));
        assert_eq!(wait_for(pin!(pending::<()>()), SHORT, &mut None), None);
    }

    #[test]
    fn a_wait_that_ended_without_an_answer_goes_on() {
        let mut asked = 0;
        let mut third = pin!(poll_fn(|_| {
            asked += 1;
            if asked >= 3 { Poll::Ready(asked) } else { Poll::Pending }
        }));
        assert_eq!(wait_for(third.as_mut(), Duration::ZERO, &mut None), None);
        assert_eq!(wait_for(third.as_mut(), Duration::ZERO, &mut None), None);
        assert_eq!(wait_for(third.as_mut(), Duration::ZERO, &mut None), Some(3));
    }

    #[test]
    fn another_thread_ends_a_wait() {
        let (tell, told) = tokio::sync::oneshot::channel();
        let teller = thread::spawn(move || tell.send(7));
        assert_eq!(wait_for(pin!(told), Duration::from_secs(60), &mut None), Some(Ok(7)));
        assert_eq!(teller.join().ok(), Some(Ok(())));
    }
}
