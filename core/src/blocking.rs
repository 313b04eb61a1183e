//! The blocking face: `wait` parks the calling thread until a future is done.

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

/// Runs a future to its end on this thread. Every future of this crate ends by its deadline.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return output;
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Runs a future on this thread for so long at the most; none if it has not ended by then.
pub(crate) fn wait_for<F: Future + ?Sized>(mut future: Pin<&mut F>, most: Duration) -> Option<F::Output> {
    let until = clock::after(most);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = until.saturating_duration_since(clock::instant());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};

    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn a_wait_ends_with_the_answer_or_with_its_time() {
        assert_eq!(wait_for(pin!(async { 1 }), SHORT), Some(1));
        assert_eq!(wait_for(pin!(pending::<()>()), SHORT), None);
    }

    #[test]
    fn a_wait_that_ended_without_an_answer_goes_on() {
        let mut asked = 0;
        let mut third = pin!(poll_fn(|_| {
            asked += 1;
            if asked >= 3 { Poll::Ready(asked) } else { Poll::Pending }
        }));
        assert_eq!(wait_for(third.as_mut(), Duration::ZERO), None);
        assert_eq!(wait_for(third.as_mut(), Duration::ZERO), None);
        assert_eq!(wait_for(third.as_mut(), Duration::ZERO), Some(3));
    }

    #[test]
    fn another_thread_ends_a_wait() {
        let (tell, told) = tokio::sync::oneshot::channel();
        let teller = thread::spawn(move || tell.send(7));
        assert_eq!(wait_for(pin!(told), Duration::from_secs(60)), Some(Ok(7)));
        assert_eq!(teller.join().ok(), Some(Ok(())));
    }
}
