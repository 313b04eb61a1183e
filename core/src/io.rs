//! The I/O thread: one for the process, started when it is first needed, and anew in a forked child. No runtime of the
//! caller's is used, so the futures of this crate run under any executor, and `wait` under none.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::fork::{self, PerProcess};

/// The runtime of this process's I/O thread.
pub(crate) fn handle() -> Result<&'static Handle> {
    static HANDLE: PerProcess<OnceLock<Result<Handle>>> = PerProcess::first(OnceLock::new());
    HANDLE.get(OnceLock::new).get_or_init(start).as_ref().map_err(Clone::clone)
}

fn start() -> Result<Handle> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::StoreUnavailable, format!("the I/O thread could not be started: {error}"))
    };
    fork::watch().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let forever = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("tidegate-io".into()).spawn(forever).map_err(failed)?;
    Ok(handle)
}

/// How far beats are apart.
pub(crate) const BEAT: Duration = Duration::from_millis(5);
/// So many beats go on when nobody listens any more: one second's.
const UNHEARD: u32 = 200;

/// Beats for work that has to look up now and then while it waits for something else. A timer of its own would cost each
/// call a wake-up of the I/O thread: tokio wakes itself for a timer that is the next to end. To be used on the I/O thread.
#[derive(Debug, Default)]
pub(crate) struct Beats {
    beat: Notify,
    beats: AtomicBool,
    /// Since somebody has listened.
    unheard: AtomicU32,
}

impl Beats {
    /// Returns at the next beat, within [`BEAT`].
    pub(crate) async fn next(self: &Arc<Self>) {
        self.unheard.store(0, Ordering::Relaxed);
        if !self.beats.swap(true, Ordering::Relaxed) {
            tokio::spawn(Arc::clone(self).go_on());
        }
        self.beat.notified().await;
    }

    async fn go_on(self: Arc<Self>) {
        while self.unheard.fetch_add(1, Ordering::Relaxed) < UNHEARD {
            tokio::time::sleep(BEAT).await;
            self.beat.notify_waiters();
        }
        self.beats.store(false, Ordering::Relaxed);
    }
}

/// What the I/O thread owes; none if it is gone, or if this is a child that was forked meanwhile: there nobody answers.
pub(crate) async fn owed<T>(receiver: &mut oneshot::Receiver<T>) -> Option<T> {
    in_this_process(receiver).await.and_then(std::result::Result::ok)
}

/// Returns at a point in time, under any executor; at once in a child that was forked meanwhile.
pub(crate) async fn sleep_until(at: Instant) {
    let Ok(handle) = handle() else { return };
    // The timer is made on the I/O thread; to await its end needs no runtime here.
    let sleep = handle.spawn(async move { tokio::time::sleep_until(at.into()).await });
    let mut timer = Timer { generation: fork::generation(), sleep: Some(sleep) };
    if let Some(sleep) = &mut timer.sleep {
        let _ = in_this_process(sleep).await;
    }
}

/// Awaits something of the I/O thread; none in a child that was forked meanwhile.
async fn in_this_process<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    let generation = fork::generation();
    let poll = |context: &mut Context<'_>| {
        if generation != fork::generation() {
            return Poll::Ready(None);
        }
        Pin::new(&mut future).poll(context).map(Some)
    };
    poll_fn(poll).await
}

/// A timer that ends when nobody waits for it any more.
struct Timer {
    generation: u64,
    sleep: Option<JoinHandle<()>>,
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Some(sleep) = self.sleep.take() else { return };
        if self.generation == fork::generation() {
            sleep.abort();
        } else {
            // The parent's runtime, which a child must not touch.
            std::mem::forget(sleep);
        }
    }
}
