//! What kernels print. The driver writes it to the process's standard output through the C library's buffer, whenever it likes
//! to: nobody but the C library can catch it.

#![allow(unsafe_code, reason = "file descriptors and buffers of the C library")]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;

unsafe extern "C" {
    fn dup(descriptor: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn close(descriptor: c_int) -> c_int;
    fn fflush(stream: *mut c_void) -> c_int;
}

const STDOUT: c_int = 1;

fn flush() {
    let _ = io::stdout().flush();
    // SAFETY: a null stream means all of them.
    unsafe { fflush(std::ptr::null_mut()) };
}

/// Gives standard output back when dropped.
struct Away(c_int);

impl Drop for Away {
    fn drop(&mut self) {
        flush();
        // SAFETY: the descriptor is this value's own.
        unsafe {
            dup2(self.0, STDOUT);
            close(self.0);
        }
    }
}

/// Does work while all that the process prints goes to `file`, which is empty before; yields what was printed.
///
/// # Errors
/// The file cannot be written or read, or the process has no standard output.
pub fn captured<T>(file: &mut File, work: impl FnOnce() -> T) -> io::Result<(T, String)> {
    flush();
    // SAFETY: plain descriptors; failure is a negative number.
    let own = unsafe { dup(STDOUT) };
    if own < 0 {
        return Err(io::Error::last_os_error());
    }
    let away = Away(own);
    // SAFETY: both descriptors are open.
    if unsafe { dup2(file.as_raw_fd(), STDOUT) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let done = work();
    drop(away);
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((done, String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn puts(text: *const std::ffi::c_char) -> c_int;
    }

    #[test]
    fn what_c_code_prints_is_caught() {
        let path = std::env::temp_dir().join(format!("tessera-stdout-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        // SAFETY: a text that ends in 0.
        let (value, text) = captured(&mut file, || unsafe { puts(c"from a kernel".as_ptr()) }).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(value >= 0);
        // Tests beside this one may print meanwhile.
        assert!(text.contains("from a kernel\n"), "{text:?}");
    }
}
