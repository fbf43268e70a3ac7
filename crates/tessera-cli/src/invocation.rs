//! What the process was started with: a binary by its arguments, or an interpreter in which the command is one of several things.

use std::ffi::OsString;
use std::io;
use std::sync::OnceLock;

static GIVEN: OnceLock<Invocation> = OnceLock::new();

/// A command line.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// What starts the command again in another process, where it is not this program's file: a program, and what it is given before the command's
    /// own arguments.
    pub again: Option<(OsString, Vec<OsString>)>,
    /// The command's own arguments.
    pub arguments: Vec<OsString>,
}

impl Invocation {
    /// The process's own.
    pub fn of_process() -> Invocation {
        Invocation { again: None, arguments: std::env::args_os().skip(1).collect() }
    }

    pub(crate) fn set(self) {
        // A second command of one process would be told the first one's arguments.
        assert!(GIVEN.set(self).is_ok(), "a process runs one command");
    }

    /// What starts the same program again: its file, and what it is given before the command's own arguments.
    ///
    /// # Errors
    /// Where this program's file cannot be told.
    pub(crate) fn program(&self) -> io::Result<(OsString, Vec<OsString>)> {
        match &self.again {
            None => Ok((std::env::current_exe()?.into_os_string(), Vec::new())),
            Some(again) => Ok(again.clone()),
        }
    }

    /// The arguments as text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = String> + '_ {
        self.arguments.iter().map(|argument| argument.to_string_lossy().into_owned())
    }
}

/// What the process was started with.
pub(crate) fn given() -> &'static Invocation {
    GIVEN.get_or_init(Invocation::of_process)
}
