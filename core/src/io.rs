//! The I/O thread: one for the process, started when it is first needed. No runtime of the caller's is used, so the
//! futures of this crate run under any executor, and `wait` under none.

use std::sync::OnceLock;
use std::time::Instant;

use tokio::runtime::Handle;

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
    // The task's handle completes on the I/O thread; awaiting it needs no runtime here.
    let _ = handle.spawn(tokio::time::sleep_until(at.into())).await;
}
