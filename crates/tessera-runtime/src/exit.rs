//! Leaving a process that cannot be torn down.

#![allow(unsafe_code, reason = "calls the C library")]

/// Ends the process with an exit code, and nothing else: no destructor runs, no driver is told. For a process in which a kernel runs on a
/// device that may never end ([`crate::KernelError::NeverEnds`]): whatever gives the device's memory back waits for it.
pub fn exit_at_once(code: u8) -> ! {
    #[cfg(unix)]
    {
        unsafe extern "C" {
            fn _exit(code: std::ffi::c_int) -> !;
        }
        // SAFETY: it ends the process; what other threads were doing is lost with it.
        unsafe { _exit(code.into()) }
    }
    #[cfg(not(unix))]
    std::process::exit(code.into())
}
