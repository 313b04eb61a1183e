//! Forked processes. Only the thread that forks lives on in the child: threads that hold locks, and the I/O thread, are
//! gone there, and sockets and the selector behind them belong to the parent. So a child makes its own of whatever
//! threads share, and leaves the parent's alone: it is neither used nor dropped, but leaked.
//!
//! `fork(3)` is noticed, a bare system call is not. Nothing here waits for another thread, since that may be gone.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;

/// How often this process's line was forked since it was watched.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Which process of a line of forks this is: another number in a child than in its parent.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Sees to it that forks are noticed from now on. Called before anything is made that a child must not use.
///
/// # Errors
/// What the system says.
#[cfg(unix)]
pub(crate) fn watch() -> std::io::Result<()> {
    use std::sync::atomic::AtomicBool;
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // One thread registers; whoever comes in that very moment goes on.
    if WATCHED.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    #[allow(
        unsafe_code,
        reason = "there is no safe way to hear of forks; the function that is registered is sound \
                                   to call at any time, from any thread"
    )]
    // SAFETY: `in_child` is a function of the right type, and pthread_atfork takes nothing else of ours.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if failed != 0 {
        WATCHED.store(false, Ordering::Release);
        return Err(std::io::Error::from_raw_os_error(failed));
    }
    Ok(())
}

#[cfg(not(unix))]
pub(crate) fn watch() -> std::io::Result<()> {
    Ok(())
}

/// Runs in the child before fork returns there: no locks.
#[cfg(unix)]
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    // The thread's numbers would go on as in the parent, and receipts have one each.
    let process = u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    fastrand::seed(fastrand::get_seed() ^ process);
}

/// A value of which each process of a line of forks has its own.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    generation: u64,
    /// There until it is dropped.
    value: Option<T>,
    /// That of a child, made when first needed there.
    next: OnceBox<PerProcess<T>>,
}

impl<T> PerProcess<T> {
    /// For statics: the value of a process before its first fork.
    pub(crate) const fn first(value: T) -> PerProcess<T> {
        PerProcess::of(0, value)
    }

    /// A value of this process.
    pub(crate) fn new(value: T) -> PerProcess<T> {
        PerProcess::of(generation(), value)
    }

    const fn of(generation: u64, value: T) -> PerProcess<T> {
        PerProcess { generation, value: Some(value), next: OnceBox::new() }
    }

    /// Whether it was made in this process, and not in one that this was forked from.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.generation == generation()
    }

    /// This process's value, if it was made.
    pub(crate) fn made(&self) -> Option<&T> {
        let generation = generation();
        let mut one = self;
        while one.generation != generation {
            one = one.next.get()?;
        }
        Some(one.value())
    }

    /// This process's value, made now if it is a child that has none yet. Threads that come at once may each make one:
    /// the first stays.
    ///
    /// # Errors
    /// What `make` says.
    #[inline(always)]
    pub(crate) fn get_or_try<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let generation = generation();
        if self.generation == generation { Ok(self.value()) } else { self.find(generation, make) }
    }

    /// The same for what cannot fail.
    #[inline(always)]
    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> &T {
        match self.get_or_try(|| Ok::<T, std::convert::Infallible>(make())) {
            Ok(value) => value,
        }
    }

    #[cold]
    fn find<E>(&self, generation: u64, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let mut last = self;
        while let Some(next) = last.next.get() {
            if next.generation == generation {
                return Ok(next.value());
            }
            last = next;
        }
        let made = PerProcess::of(generation, make()?);
        Ok(last.next.get_or_init(|| Box::new(made)).value())
    }

    fn value(&self) -> &T {
        self.value.as_ref().expect("only drop takes it")
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            // To drop it could wait for a lock that is held for ever, or touch the selector that the parent uses.
            std::mem::forget(self.value.take());
        }
    }
}

/// A constant made when first needed, without a lock: a child must not wait for a thread that was about to make it.
/// Threads that come at once may each make it, and the first stays.
pub(crate) struct Lazy<T> {
    value: OnceBox<T>,
    make: fn() -> T,
}

impl<T> Lazy<T> {
    pub(crate) const fn new(make: fn() -> T) -> Lazy<T> {
        Lazy { value: OnceBox::new(), make }
    }
}

impl<T> Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.get_or_init(|| Box::new((self.make)()))
    }
}
