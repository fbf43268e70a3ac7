//! The standard streams. What cannot be written there is not, and takes nothing from what the command found: its exit code is that of its work.
//!
//! A reader that has seen enough (`tessera ... | head`) is nobody's mistake; a device that is full is told of at the end.
//!
//! The macros stand in this crate for those of the standard library, which panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use tessera::bench::Exit;

/// Why nothing more goes to the standard output.
static LOST: OnceLock<io::Error> = OnceLock::new();

macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

macro_rules! println {
    () => { $crate::output::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprint {
    ($($text:tt)*) => { $crate::output::write_error(format_args!($($text)*)) };
}

macro_rules! eprintln {
    () => { $crate::output::write_error(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write_error(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes to the standard output.
pub(crate) fn write(text: Arguments<'_>) {
    if LOST.get().is_none() {
        note(io::stdout().write_fmt(text));
    }
}

/// Writes to the standard error stream. Nobody can be told where that fails.
pub(crate) fn write_error(text: Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Keeps the first reason why something was not written to the standard output.
pub(crate) fn note(written: io::Result<()>) {
    if let Err(error) = written {
        let _ = LOST.set(error);
    }
}

/// The exit code of a command that did all that it had to, but for what is still to be written.
pub(crate) fn end(exit: u8) -> u8 {
    note(io::stdout().flush());
    match LOST.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("error: can't write to the standard output: {error}");
            if exit == 0 { Exit::Environment.code() } else { exit }
        }
        _ => exit,
    }
}
