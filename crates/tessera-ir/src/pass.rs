//! Passes and how they are run.
//!
//! A [`Pass`] is plain data: a name, a sentence and a function. A pipeline is a list of passes in the order in which they run.
//! The [`PassManager`] runs a pipeline over every function of a module, measures each pass, and on request verifies after
//! each one, keeps the text after some or all of them, and shows each change to an observer.
//!
//! ```
//! use tessera_ir::{Changed, Module, Pass, PassManager};
//! const NOTHING: Pass = Pass { name: "nothing", doc: "Leaves everything as it is.", run: |_, _| Changed(false) };
//! let times = PassManager::default().run(&mut Module::default(), &[&NOTHING]).unwrap();
//! assert_eq!(times[0].pass, "nothing");
//! ```

use std::borrow::Cow;
use std::time::{Duration, Instant};

use tessera_types::Arch;

use crate::diag::{Diagnostic, Span};
use crate::func::{Func, Global, Module};
use crate::text::print_func;
use crate::verify::verify;

/// Whether a pass changed the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed(pub bool);

/// What a pass sees besides its function.
#[derive(Debug, Default)]
pub struct PassCx<'m> {
    /// The module's constants.
    pub globals: &'m [Global],
    /// What the kernel is compiled for, where that has been said.
    pub target: Option<Arch>,
    /// Errors for the user; any ends the pipeline.
    pub diagnostics: Vec<Diagnostic>,
    /// Ways out that the pass took where the function asks for more than the target has.
    pub fallbacks: Vec<Fallback>,
    /// Why the pass left a function as it is, where that is worth telling.
    pub refusals: Vec<Reason>,
}

/// Why a pass does not take a function, in words of the kernel's source, so that its writer can change that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What is missing or in the way.
    pub text: Cow<'static, str>,
    /// The operation that it is about.
    pub span: Option<Span>,
}

impl Reason {
    /// A reason with its place.
    pub fn at(text: impl Into<Cow<'static, str>>, span: impl Into<Option<Span>>) -> Reason {
        Reason { text: text.into(), span: span.into() }
    }
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Reason {
        Reason::at(text, None)
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason::at(text, None)
    }
}

/// A way out of asking for more than the target has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// What was done and where, what it costs, and which change would do without.
    pub note: Diagnostic,
    /// Instructions that a thread runs more, those of a loop once a round; 0 where no other way can cost less.
    pub cost: u64,
}

impl PassCx<'_> {
    /// What the kernel is compiled for; where nothing has been said, an error for the user stands in the diagnostics.
    pub fn needs_target(&mut self, pass: &str, func: &Func) -> Option<Arch> {
        if self.target.is_none() {
            let message = format!("`{pass}` depends on what the kernel is compiled for");
            let error = Diagnostic::error("no-target", func.span, message).help("name a target: `--target sm_90a`");
            self.diagnostics.push(error);
        }
        self.target
    }
}

/// A transformation of one function.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Its name on the command line, kebab case.
    pub name: &'static str,
    /// One sentence for the reference page.
    pub doc: &'static str,
    /// What it does.
    pub run: fn(&mut Func, &mut PassCx<'_>) -> Changed,
}

/// After which passes the text is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PrintAfter {
    /// After none.
    #[default]
    Never,
    /// After every pass that changed something.
    All,
    /// After the passes of these names.
    Named(Vec<String>),
}

/// Sees each change: the pass, the text before and the text after.
pub type Observer<'o> = dyn FnMut(&Pass, &str, &str) + 'o;

/// Runs pipelines.
#[derive(Default)]
pub struct PassManager<'o> {
    /// Verify after each pass that changed something; a failure names the pass.
    pub verify_each: bool,
    /// After which passes the text is kept.
    pub print_after: PrintAfter,
    /// What the functions are compiled for.
    pub target: Option<Arch>,
    /// Called for each change.
    pub observer: Option<&'o mut Observer<'o>>,
}

/// One run of a pass.
#[derive(Clone, Debug)]
pub struct PassTime {
    /// The pass.
    pub pass: &'static str,
    /// How long it ran, over all functions.
    pub time: Duration,
    /// Whether it changed anything.
    pub changed: bool,
    /// The functions after it, where [`PassManager::print_after`] asks for them.
    pub text: Option<String>,
    /// The ways out that it took.
    pub fallbacks: Vec<Fallback>,
    /// Why it left functions as they are.
    pub refusals: Vec<Reason>,
}

/// Why a pipeline stopped.
#[derive(Clone, Debug)]
pub struct PassFailure {
    /// The pass.
    pub pass: &'static str,
    /// True when the pass left a module that does not verify: a bug of ours.
    pub broke_module: bool,
    /// What is wrong.
    pub diagnostics: Vec<Diagnostic>,
}

impl PassFailure {
    /// What the user is told. A pass that breaks a module is our mistake, and the messages say so.
    pub fn told(self) -> Vec<Diagnostic> {
        let ours = |found: Diagnostic| found.note(format!("`{}` broke the kernel", self.pass)).ours();
        if self.broke_module { self.diagnostics.into_iter().map(ours).collect() } else { self.diagnostics }
    }
}

impl PassManager<'_> {
    /// Runs the passes in order over every function. The module must verify.
    pub fn run(&mut self, module: &mut Module, pipeline: &[&Pass]) -> Result<Vec<PassTime>, PassFailure> {
        let mut times = Vec::with_capacity(pipeline.len());
        for pass in pipeline {
            let before = self.observer.is_some().then(|| text(module));
            let start = Instant::now();
            let mut changed = false;
            let mut cx = PassCx { globals: &module.globals, target: self.target, ..PassCx::default() };
            for func in &mut module.funcs {
                changed |= (pass.run)(func, &mut cx).0;
            }
            let PassCx { diagnostics, fallbacks, refusals, .. } = cx;
            let time = start.elapsed();
            if !diagnostics.is_empty() {
                return Err(PassFailure { pass: pass.name, broke_module: false, diagnostics });
            }
            if self.verify_each && changed {
                let diagnostics = verify(module);
                if !diagnostics.is_empty() {
                    return Err(PassFailure { pass: pass.name, broke_module: true, diagnostics });
                }
            }
            let wanted = match &self.print_after {
                PrintAfter::Never => false,
                PrintAfter::All => changed,
                PrintAfter::Named(names) => names.iter().any(|name| name == pass.name),
            };
            if let (Some(observer), Some(before), true) = (&mut self.observer, before, changed) {
                observer(pass, &before, &text(module));
            }
            times.push(PassTime { pass: pass.name, time, changed, text: wanted.then(|| text(module)), fallbacks, refusals });
        }
        Ok(times)
    }
}

fn text(module: &Module) -> String {
    module.funcs.iter().map(print_func).collect::<Vec<_>>().join("\n")
}
