//! The short way across, for the JVM: two functions of plain numbers, over memory that the caller keeps. What JNA makes of a
//! call of UniFFI's, with its buffers and its status, costs more than a decision; here only the transport is ours, and what
//! crosses is written and read by UniFFI's own converters.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use uniffi::{Lift, Lower};

use crate::UniFfiTag;
use crate::call::{Answer, Call, Completed};
use crate::error::invalid;
use crate::limiter::Limiter;
use crate::policy::Policy;
use crate::queue::Queue;

/// What a number means. Nothing is kept alive by its number.
#[derive(Debug, Clone)]
enum Entered {
    Queue(Weak<Queue>),
    Limiter(Weak<Limiter>, Weak<Queue>),
    Policy(Weak<Policy>, Weak<Queue>),
}

static ENTERED: RwLock<BTreeMap<i64, Entered>> = RwLock::new(BTreeMap::new());
static NEXT: AtomicI64 = AtomicI64::new(1);
/// Answers that did not fit, until they are fetched.
static LEFT: Mutex<BTreeMap<i64, Vec<u8>>> = Mutex::new(BTreeMap::new());

/// Told where something of this library's own went wrong.
const BROKEN: i64 = i64::MIN;

impl Entered {
    fn is_there(&self) -> bool {
        match self {
            Entered::Queue(queue) => queue.strong_count() > 0,
            Entered::Limiter(limiter, _) => limiter.strong_count() > 0,
            Entered::Policy(policy, _) => policy.strong_count() > 0,
        }
    }
}

fn enter(one: Entered) -> i64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut entered = ENTERED.write().unwrap_or_else(PoisonError::into_inner);
    entered.retain(|_, other| other.is_there());
    entered.insert(number, one);
    number
}

fn entered(number: i64) -> Option<Entered> {
    ENTERED.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
}

#[uniffi::export]
impl Queue {
    /// The number under which `tidegate_wait` knows it.
    pub fn number(self: Arc<Self>) -> i64 {
        enter(Entered::Queue(Arc::downgrade(&self)))
    }
}

#[uniffi::export]
impl Limiter {
    /// The number under which `tidegate_cross` takes its calls, for this queue.
    pub fn number(self: Arc<Self>, queue: Arc<Queue>) -> i64 {
        enter(Entered::Limiter(Arc::downgrade(&self), Arc::downgrade(&queue)))
    }
}

#[uniffi::export]
impl Policy {
    /// The number under which `tidegate_cross` takes its calls, for this queue.
    pub fn number(self: Arc<Self>, queue: Arc<Queue>) -> i64 {
        enter(Entered::Policy(Arc::downgrade(&self), Arc::downgrade(&queue)))
    }
}

/// Submits the calls that stand in `asked`, and writes those that are answered at once into `room`: a sequence of calls, and
/// one of what is completed, as UniFFI writes them. Tells how many bytes were written; where they do not fit, the negative of
/// the number that `tidegate_left` takes.
///
/// # Safety
/// `asked` has so many bytes that may be read, `room` so many that may be written, and nobody else touches either meanwhile.
#[allow(unsafe_code, reason = "the border itself: JNA passes addresses")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_cross(
    number: i64,
    asked: *const u8,
    asked_length: i64,
    room: *mut u8,
    room_length: i64,
) -> i64 {
    // SAFETY: the caller's promise above; a length below 0 is taken for none.
    let asked = unsafe { std::slice::from_raw_parts(asked, usize::try_from(asked_length).unwrap_or(0)) };
    // SAFETY: as above; the two do not overlap.
    let room = unsafe { std::slice::from_raw_parts_mut(room, usize::try_from(room_length).unwrap_or(0)) };
    told(room, || {
        let calls = <Vec<Call> as Lift<UniFfiTag>>::try_read(&mut &*asked).ok()?;
        Some(cross(number, calls))
    })
}

/// Waits as `Queue::wait` does, and writes what has come into `room`, as `tidegate_cross` does.
///
/// # Safety
/// `room` has so many bytes that may be written, and nobody else touches it meanwhile.
#[allow(unsafe_code, reason = "the border itself: JNA passes addresses")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_wait(number: i64, most_ms: i64, room: *mut u8, room_length: i64) -> i64 {
    // SAFETY: the caller's promise above; a length below 0 is taken for none.
    let room = unsafe { std::slice::from_raw_parts_mut(room, usize::try_from(room_length).unwrap_or(0)) };
    told(room, || match entered(number)? {
        Entered::Queue(queue) => queue.upgrade()?.wait(most_ms).ok(),
        _ => None,
    })
}

/// Writes answers that did not fit into a room that is large enough, and forgets them. With a room of no bytes, tells how many
/// they are.
///
/// # Safety
/// `room` has so many bytes that may be written, and nobody else touches it meanwhile.
#[allow(unsafe_code, reason = "the border itself: JNA passes addresses")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_left(number: i64, room: *mut u8, room_length: i64) -> i64 {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(bytes) = left.get(&number) else { return BROKEN };
    let length = i64::try_from(bytes.len()).unwrap_or(BROKEN);
    if room_length >= length && length > 0 {
        // SAFETY: the caller's promise above.
        let room = unsafe { std::slice::from_raw_parts_mut(room, bytes.len()) };
        room.copy_from_slice(bytes);
        left.remove(&number);
    }
    length
}

fn cross(number: i64, calls: Vec<Call>) -> Vec<Completed> {
    let found = match entered(number) {
        Some(Entered::Limiter(limiter, queue)) => limiter.upgrade().zip(queue.upgrade()).map(Ok),
        Some(Entered::Policy(policy, queue)) => policy.upgrade().zip(queue.upgrade()).map(Err),
        _ => None,
    };
    match found {
        Some(Ok((limiter, queue))) => limiter.submit(&queue, calls),
        Some(Err((policy, queue))) => policy.submit(&queue, calls),
        None => {
            let gone = || Answer::failed(invalid("what was to be asked is gone; make another"));
            calls.into_iter().map(|call| Completed { ticket: call.ticket, answer: gone() }).collect()
        }
    }
}

/// Writes what was completed, or keeps it. Nothing that panics gets across.
fn told(room: &mut [u8], work: impl FnOnce() -> Option<Vec<Completed>>) -> i64 {
    let Ok(Some(completed)) = catch_unwind(AssertUnwindSafe(work)) else { return BROKEN };
    let mut bytes = Vec::new();
    <Vec<Completed> as Lower<UniFfiTag>>::write(completed, &mut bytes);
    if let Some(place) = room.get_mut(..bytes.len()) {
        place.copy_from_slice(&bytes);
        return i64::try_from(bytes.len()).unwrap_or(BROKEN);
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).insert(number, bytes);
    -number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Key, NamedRule, Options, Source};
    use crate::call::Ask;

    fn written(calls: Vec<Call>) -> Vec<u8> {
        let mut bytes = Vec::new();
        <Vec<Call> as Lower<UniFfiTag>>::write(calls, &mut bytes);
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<Completed> {
        <Vec<Completed> as Lift<UniFfiTag>>::try_read(&mut &*bytes).expect("it was written so")
    }

    #[allow(unsafe_code, reason = "what the JVM calls")]
    fn crossed(number: i64, asked: &[u8], room: &mut [u8]) -> i64 {
        let length = |bytes: &[u8]| i64::try_from(bytes.len()).expect("it is short");
        let room_length = length(room);
        // SAFETY: both are slices of their lengths.
        unsafe { tidegate_cross(number, asked.as_ptr(), length(asked), room.as_mut_ptr(), room_length) }
    }

    #[allow(unsafe_code, reason = "what the JVM calls")]
    fn left(number: i64, room: &mut [u8]) -> i64 {
        // SAFETY: a slice of its length.
        unsafe { tidegate_left(number, room.as_mut_ptr(), i64::try_from(room.len()).expect("it is short")) }
    }

    fn check(ticket: i64) -> Call {
        let options = Options { cost: 1, limits: None, request_id: None, deadline_ms: None };
        Call {
            ticket,
            ask: Ask::Check { rules: vec!["r".into()], key: Key::Whole { bytes: b"alice".to_vec() }, options },
        }
    }

    #[test]
    fn calls_cross_and_what_does_not_fit_is_fetched() {
        let rules = vec![NamedRule { name: "r".into(), limits: "3/h".into() }];
        let limiter = Limiter::new(Source::Rules { rules, url: None }).expect("it can be meant");
        let queue = Queue::new();
        let number = Arc::clone(&limiter).number(Arc::clone(&queue));
        let asked = written((0..4).map(check).collect());

        let mut room = vec![0; 65_536];
        let length = crossed(number, &asked, &mut room);
        let completed = read(&room[..usize::try_from(length).expect("they fit")]);
        let allowed = |done: &Completed| matches!(&done.answer, Answer::Decided { decision } if decision.allowed);
        assert_eq!(
            completed.iter().map(|done| (done.ticket, allowed(done))).collect::<Vec<_>>(),
            [(0, true), (1, true), (2, true), (3, false)]
        );

        let kept = crossed(number, &asked, &mut [0; 8]);
        assert!(kept < 0 && kept != BROKEN);
        let needed = left(-kept, &mut []);
        let mut room = vec![0; usize::try_from(needed).expect("a length")];
        assert_eq!(left(-kept, &mut room), needed);
        assert_eq!(read(&room).len(), 4);
        assert_eq!(left(-kept, &mut room), BROKEN, "it is fetched once");

        assert_eq!(crossed(number, &asked[..7], &mut room), BROKEN, "half a call");
        drop(limiter);
        let mut room = vec![0; 65_536];
        let length = crossed(number, &asked, &mut room);
        let gone = read(&room[..usize::try_from(length).expect("they fit")]);
        assert!(gone.len() == 4 && gone.iter().all(|done| matches!(done.answer, Answer::Failed { .. })));
    }
}
