//! Bundles: opened, listed, closed.

#![allow(unsafe_code, reason = "hands out handles and takes them back")]

use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicU64, Ordering};

use tessera_bundle::Bundle;

use crate::status::{Failure, Status, give, guarded, handle, text};

/// An open bundle.
pub struct TesseraBundle {
    pub(crate) bundle: Bundle,
    /// Which opening it is: devices keep kernels loaded by it.
    pub(crate) number: u64,
    descriptions: Vec<CString>,
}

fn opened(bundle: Bundle) -> *mut TesseraBundle {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let describe = |text: String| CString::new(text.replace('\0', "?")).unwrap_or_default();
    let descriptions = bundle.variants().iter().map(|variant| describe(variant.describe())).collect();
    Box::into_raw(Box::new(TesseraBundle { bundle, number: NEXT.fetch_add(1, Ordering::Relaxed), descriptions }))
}

/// Opens a bundle's file.
///
/// # Safety
/// `path` is null or a text that ends with a zero; `bundle` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_open(path: *const c_char, bundle: *mut *mut TesseraBundle) -> Status {
    guarded(|| {
        // SAFETY: the caller's promises.
        let path = unsafe { text(path, "the path") }?;
        let read = Bundle::open(path)?;
        // SAFETY: the caller's promises.
        unsafe { give_handle(bundle, || opened(read)) }
    })
}

/// Opens a bundle that lies in memory, which is not needed any more afterwards.
///
/// # Safety
/// `bytes` is null or points at `size` bytes; `bundle` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_open_memory(bytes: *const u8, size: usize, bundle: *mut *mut TesseraBundle) -> Status {
    guarded(|| {
        if bytes.is_null() {
            return Err(Failure::call("the bundle's bytes are a null pointer"));
        }
        if isize::try_from(size).is_err() {
            return Err(Failure::call(format!("no memory has {size} bytes")));
        }
        // SAFETY: the caller's promises.
        let read = Bundle::read(unsafe { std::slice::from_raw_parts(bytes, size) })?;
        // SAFETY: the caller's promises.
        unsafe { give_handle(bundle, || opened(read)) }
    })
}

/// Makes a handle where there is a place for it.
///
/// # Safety
/// `out` is null or may be written.
pub(crate) unsafe fn give_handle<T>(out: *mut *mut T, make: impl FnOnce() -> *mut T) -> Result<(), Failure> {
    let made = if out.is_null() { std::ptr::null_mut() } else { make() };
    // SAFETY: the caller's promise.
    unsafe { give(out, made) }
}

/// Closes a bundle; null is nothing to close. Launches that are under way go on.
///
/// # Safety
/// `bundle` is null or an open handle that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_close(bundle: *mut TesseraBundle) {
    if !bundle.is_null() {
        // SAFETY: made by `opened`, and closed once.
        drop(unsafe { Box::from_raw(bundle) });
    }
}

/// How many variants a bundle has; 0 of null.
///
/// # Safety
/// `bundle` is null or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_variant_count(bundle: *const TesseraBundle) -> usize {
    // SAFETY: the caller's promise.
    unsafe { handle(bundle, "the bundle") }.map_or(0, |bundle| bundle.descriptions.len())
}

/// One variant in words, `gemm for sm_90a: A=bf16[?,?];align=16, ...`; null where there is none. The text lives as long as the bundle.
///
/// # Safety
/// `bundle` is null or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_variant_describe(bundle: *const TesseraBundle, position: usize) -> *const c_char {
    // SAFETY: the caller's promise.
    let bundle = unsafe { handle(bundle, "the bundle") };
    let description = bundle.ok().and_then(|bundle| bundle.descriptions.get(position));
    description.map_or(std::ptr::null(), |text| text.as_ptr())
}
