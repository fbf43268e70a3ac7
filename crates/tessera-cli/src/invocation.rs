//! What the process was started with: a binary by its arguments, or an interpreter in which the command is one of several things.

use std::ffi::OsString;
use std::process::Command;
use std::sync::OnceLock;

static GIVEN: OnceLock<Invocation> = OnceLock::new();

/// A command line.
#[derive(Clone, Debug, Default)]
pub struct Invocation {
    /// The program, and what it is given before the command's own arguments, to start the command again in another process.
    pub program: Vec<OsString>,
    /// The command's own arguments.
    pub arguments: Vec<OsString>,
}

impl Invocation {
    /// The process's own.
    pub fn of_process() -> Invocation {
        let mut given = std::env::args_os();
        let first = given.next();
        let program = std::env::current_exe().map(OsString::from).ok().or(first);
        Invocation { program: program.into_iter().collect(), arguments: given.collect() }
    }

    pub(crate) fn set(self) {
        // A second command of one process would be told the first one's arguments.
        assert!(GIVEN.set(self).is_ok(), "a process runs one command");
    }

    /// A command of the same program, without arguments of its own.
    pub(crate) fn again(&self) -> Command {
        let (program, before) =
            self.program.split_first().map_or((OsString::from("tessera"), &[][..]), |(one, rest)| (one.clone(), rest));
        let mut command = Command::new(program);
        command.args(before);
        command
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
