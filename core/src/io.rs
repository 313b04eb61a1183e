//! The I/O thread: one for the process, started when it is first needed. No runtime of the caller's is used, so the
//! futures of this crate run under any executor, and `wait` under none.

use std::sync::OnceLock;
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind, Result};

/// The runtime of the I/O thread.
pub(crate) fn handle() -> Result<&'static Handle> {
    static HANDLE: OnceLock<Result<Handle>> = OnceLock::new();
    HANDLE.get_or_init(start).as_ref().map_err(Clone::clone)
}

fn start() -> Result<Handle> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::StoreUnavailable, format!("the I/O thread could not be started: {error}"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let forever = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("tidegate-io".into()).spawn(forever).map_err(failed)?;
    Ok(handle)
}

/// Returns at a point in time, under any executor.
pub(crate) async fn sleep_until(at: Instant) {
    let Ok(handle) = handle() else { return };
    // The timer is made on the I/O thread; to await its end needs no runtime here.
    let mut timer = Timer(handle.spawn(async move { tokio::time::sleep_until(at.into()).await }));
    let _ = (&mut timer.0).await;
}

/// A timer that ends when nobody waits for it any more.
struct Timer(JoinHandle<()>);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}
