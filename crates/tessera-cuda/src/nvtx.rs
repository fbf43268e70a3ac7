//! `libnvToolsExt`: ranges that NVIDIA's profilers show beside the kernels.
//!
//! The library is there where a profiler's tools are; without it the table's slots stay absent, and nobody is told anything.

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::{CString, c_char, c_int};
use std::sync::Arc;

use libloading::Library;
use tessera_driver::DriverTable;

/// The nesting level, or a negative number where no profiler listens.
type Status = c_int;

symbols! {
    push = "nvtxRangePushA": fn(*const c_char);
    pop = "nvtxRangePop": fn();
}

/// Fills the slots for ranges, where the library is there.
pub(crate) fn fill(table: &mut DriverTable) {
    // SAFETY: the library's initialisers only look for a profiler.
    let Ok(library) = (unsafe { Library::new("libnvToolsExt.so.1") }) else { return };
    let symbols = Arc::new(Symbols::find(library));
    if symbols.push.is_none() || symbols.pop.is_none() {
        return;
    }
    let kept = Arc::clone(&symbols);
    table.range_push = Some(Box::new(move |name: &str| {
        // A name with a zero byte in it is told up to there.
        let name = CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default();
        if let Some(push) = kept.push {
            // SAFETY: the text ends in a zero byte and lives through the call, and so does the library.
            unsafe { push(name.as_ptr()) };
        }
        Ok(())
    }));
    table.range_pop = Some(Box::new(move || {
        if let Some(pop) = symbols.pop {
            // SAFETY: no arguments; the library is loaded as long as this closure lives.
            unsafe { pop() };
        }
        Ok(())
    }));
}
