//! Sockets that Node's event loop watches. Node-API has no call for that, so libuv is asked itself; its calls for it are the
//! same in all that Node 18 and later have. Another runtime is not asked: Bun has libuv's functions by name, and ends the
//! process where most of them are called. There nothing is watched, and the I/O thread reads.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::OnceLock;

use libloading::os::unix::Library;
use napi::bindgen_prelude::FunctionRef;
use napi::{Env, sys};
use tidegate::LoopSocket;

type OnReady = unsafe extern "C" fn(*mut c_void, c_int, c_int);
type OnClosed = unsafe extern "C" fn(*mut c_void);

/// `uv_handle_type` and `uv_poll_event`.
const POLL: c_int = 8;
const READABLE: c_int = 1;

/// What is called of libuv.
struct Uv {
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    poll_init: unsafe extern "C" fn(*mut sys::uv_loop_s, *mut c_void, c_int) -> c_int,
    poll_start: unsafe extern "C" fn(*mut c_void, c_int, OnReady) -> c_int,
    unref: unsafe extern "C" fn(*mut c_void),
    set_data: unsafe extern "C" fn(*mut c_void, *mut c_void),
    get_data: unsafe extern "C" fn(*const c_void) -> *mut c_void,
    close: unsafe extern "C" fn(*mut c_void, OnClosed),
}

/// libuv's functions, by their names. That they are there does not make it Node's: ask that first.
fn uv() -> Option<&'static Uv> {
    static UV: OnceLock<Option<Uv>> = OnceLock::new();
    UV.get_or_init(|| {
        let node = Library::this();
        #[allow(unsafe_code, reason = "uv.h declares them so, and has not changed them within libuv 1")]
        // SAFETY: the types are those of uv.h, and the process that they are found in stays.
        unsafe {
            Some(Uv {
                handle_size: *node.get(b"uv_handle_size").ok()?,
                poll_init: *node.get(b"uv_poll_init").ok()?,
                poll_start: *node.get(b"uv_poll_start").ok()?,
                unref: *node.get(b"uv_unref").ok()?,
                set_data: *node.get(b"uv_handle_set_data").ok()?,
                get_data: *node.get(b"uv_handle_get_data").ok()?,
                close: *node.get(b"uv_close").ok()?,
            })
        }
    })
    .as_ref()
}

pub(crate) fn can_watch() -> bool {
    uv().is_some()
}

/// A socket that is watched: what libuv's handle leads to, until the handle is closed.
struct Watch {
    uv: &'static Uv,
    env: sys::napi_env,
    socket: LoopSocket,
    /// Takes what has come.
    wake: Rc<FunctionRef<(), ()>>,
    /// With room for what libuv keeps and changes in it.
    handle: Box<[UnsafeCell<u128>]>,
    /// Has Node wait, where it ends, until the handle is closed.
    hook: Cell<sys::napi_async_cleanup_hook_handle>,
    is_closing: Cell<bool>,
}

/// Watches a socket from now on. Where that is not possible the socket is dropped.
#[allow(unsafe_code, reason = "libuv and Node-API take addresses")]
pub(crate) fn watch(env: &Env, socket: LoopSocket, wake: &Rc<FunctionRef<(), ()>>) {
    let (Some(uv), Ok(event_loop)) = (uv(), env.get_uv_event_loop()) else { return };
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: it takes a number and returns another.
    let size = unsafe { (uv.handle_size)(POLL) };
    let watch = Box::new(Watch {
        uv,
        env: env.raw(),
        socket,
        wake: Rc::clone(wake),
        handle: (0..size.div_ceil(size_of::<u128>())).map(|_| UnsafeCell::new(0)).collect(),
        hook: Cell::new(ptr::null_mut()),
        is_closing: Cell::new(false),
    });
    let handle = watch.handle();
    // SAFETY: the handle has room for a uv_poll_t, and neither moves nor goes before `closed`; this is the loop's thread.
    if unsafe { (uv.poll_init)(event_loop, handle, fd) } != 0 {
        return;
    }
    let watch = Box::into_raw(watch);
    // SAFETY: as above. The watch is there until `closed`, which is called once nobody else has its address.
    unsafe {
        (uv.set_data)(handle, watch.cast());
        (uv.unref)(handle);
        let mut hook = ptr::null_mut();
        let is_heard = sys::napi_add_async_cleanup_hook((*watch).env, Some(end), watch.cast(), &raw mut hook);
        (*watch).hook.set(hook);
        if is_heard != sys::Status::napi_ok || (uv.poll_start)(handle, READABLE, ready) != 0 {
            (*watch).close();
        }
    }
}

impl Watch {
    fn handle(&self) -> *mut c_void {
        self.handle.as_ptr().cast_mut().cast()
    }

    /// Ends it, soon.
    #[allow(unsafe_code, reason = "libuv takes addresses")]
    fn close(&self) {
        if !self.is_closing.replace(true) {
            // SAFETY: the handle was made, and is closed once.
            unsafe { (self.uv.close)(self.handle(), closed) };
        }
    }

    /// Has JavaScript take what has come, as a callback of Node's own: what waits for promises runs when it returns.
    #[allow(unsafe_code, reason = "Node-API takes addresses")]
    fn tell(&self) {
        // JavaScript may run the loop, and so end the watch, before it returns.
        let (raw, wake) = (self.env, Rc::clone(&self.wake));
        let (mut scope, mut global, mut result, mut error) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: the environment is there as long as libuv calls back, and this is its thread.
        unsafe {
            if sys::napi_open_handle_scope(raw, &raw mut scope) != sys::Status::napi_ok {
                return;
            }
            let env = Env::from_raw(raw);
            if let Ok(wake) = wake.borrow_back(&env)
                && sys::napi_get_global(raw, &raw mut global) == sys::Status::napi_ok
            {
                let context = ptr::null_mut();
                let wake = napi::JsValue::raw(&wake);
                let called = sys::napi_make_callback(raw, context, global, wake, 0, ptr::null(), &raw mut result);
                // What has been thrown is of a listener to the log, or of nobody: as in any callback, nobody catches it.
                if called == sys::Status::napi_pending_exception
                    && sys::napi_get_and_clear_last_exception(raw, &raw mut error) == sys::Status::napi_ok
                {
                    sys::napi_fatal_exception(raw, error);
                }
            }
            sys::napi_close_handle_scope(raw, scope);
        }
    }
}

/// There is something to read, or the connection has ended.
#[allow(unsafe_code, reason = "libuv calls it")]
unsafe extern "C" fn ready(handle: *mut c_void, status: c_int, _events: c_int) {
    let Some(uv) = uv() else { return };
    // SAFETY: the handle's data was set to its watch, which is there until `closed`.
    let watch = unsafe { &*(uv.get_data)(handle).cast::<Watch>() };
    // Nothing panics there; if it did, libuv could not be told.
    let goes_on = catch_unwind(AssertUnwindSafe(|| watch.socket.read())).unwrap_or(false);
    if !goes_on || status != 0 {
        watch.close();
    }
    watch.tell();
}

/// The environment ends.
#[allow(unsafe_code, reason = "Node calls it")]
unsafe extern "C" fn end(_hook: sys::napi_async_cleanup_hook_handle, watch: *mut c_void) {
    // SAFETY: the hook is removed by `closed`, before which the watch is there.
    unsafe { &*watch.cast::<Watch>() }.close();
}

/// Nobody has the handle's address any more.
#[allow(unsafe_code, reason = "libuv calls it")]
unsafe extern "C" fn closed(handle: *mut c_void) {
    let Some(uv) = uv() else { return };
    // SAFETY: the data is the watch, as `watch` has left it, and this is called once.
    let watch = unsafe { Box::from_raw((uv.get_data)(handle).cast::<Watch>()) };
    let hook = watch.hook.get();
    drop(watch);
    if !hook.is_null() {
        // SAFETY: it was added, and is removed once.
        unsafe { sys::napi_remove_async_cleanup_hook(hook) };
    }
}
