//! What cannot happen: [`bug!`](crate::bug!) ends a compilation as a mistake of ours.
//!
//! A pass asks for what the verifier or an earlier pass saw to. Where it is missing all the same, no value stands for it: going on would make
//! another kernel of it. `bug!` says what was found and names its own place in our source; [`caught`], around a compilation, makes a
//! [`Diagnostic`] of that and of every other panic, which the driver gives the kernel as it was before. Nothing that a user writes may lead
//! there: that is a diagnostic of its own.
//!
//! ```
//! use tessera_ir::{Severity, bug, caught};
//! let found = caught(|| -> Result<(), _> { bug!("a loop of {} blocks", 2) }).unwrap_err();
//! assert_eq!((found[0].id, found[0].severity), ("bug", Severity::Bug));
//! assert!(found[0].message.starts_with("a loop of 2 blocks ("), "{}", found[0].message);
//! ```

use std::fmt::Arguments;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use crate::diag::Diagnostic;

/// Ends the compilation with a mistake of ours; takes what `format!` takes: what was found instead of what has to be there.
#[macro_export]
macro_rules! bug {
    ($($what:tt)+) => {
        $crate::bug_found(::core::format_args!($($what)+))
    };
}

/// What [`bug!`](crate::bug!) calls.
#[doc(hidden)]
#[cold]
#[track_caller]
pub fn bug_found(what: Arguments<'_>) -> ! {
    panic!("{what} ({})", Location::caller())
}

/// Runs a compilation. A panic in it is an error of ours.
pub fn caught<T>(compilation: impl FnOnce() -> Result<T, Vec<Diagnostic>>) -> Result<T, Vec<Diagnostic>> {
    // What it was at work on is dropped; what it borrowed it only reads.
    catch_unwind(AssertUnwindSafe(compilation)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
        Err(vec![Diagnostic::bare("bug", text.unwrap_or("a panic without a message")).ours()])
    })
}
