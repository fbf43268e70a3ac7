//! Choices of the caller that change nothing: whoever makes one expects it to do something.
//!
//! What a choice does is found by making it otherwise: a kernel that comes out the same for every other value does not know it.

use indexmap::IndexMap;
use tessera_ir::{Diagnostic, Span, text};
use tessera_lang::{ArgType, ParsedFile, Style, kernel_options};

use crate::driver::{CompileOptions, Compiled, compile_as_asked};

/// An error for the first choice without effect; `compiled` is the kernel as it was asked for.
pub(crate) fn refuse_without_effect(
    file: &ParsedFile,
    kernel: &str,
    args: &[(String, ArgType)],
    options: &CompileOptions,
    compiled: &Compiled,
) -> Result<(), Vec<Diagnostic>> {
    let Some(source) = file.kernels.get(kernel).filter(|_| !options.config.is_empty() || options.block.is_some()) else {
        return Ok(());
    };
    let span = source.function.name.span;
    if let Style::Block { .. } = source.style {
        return block_program(kernel, options, span).map_err(|error| vec![error]);
    }
    let own = shown(compiled);
    let is_same =
        |options: &CompileOptions| compile_as_asked(file, kernel, args, options).is_ok_and(|other| shown(&other) == own);
    let space = source.space(file).map_err(|error| vec![*error])?.map(|space| space.choices).unwrap_or_default();
    for (name, &value) in &options.config {
        let others = others(&space, name, value);
        let with = |other: i64| {
            let mut options = options.clone();
            options.config.insert(name.clone(), other);
            options
        };
        // A choice of one value is no choice; one whose other values are refused means something.
        if !others.is_empty() && others.iter().all(|&other| is_same(&with(other))) {
            let message = format!("`{name}` changes nothing in `{kernel}`");
            let help = format!("leave it out, or use `{name}` in the kernel");
            return Err(vec![Diagnostic::error("config-value", span, message).help(help)]);
        }
    }
    match options.block {
        Some(block)
            if source.style == Style::Declarative && is_same(&CompileOptions { block: Some(2 * block), ..options.clone() }) =>
        {
            let message = format!("`{kernel}` works on whole operands: it has no threads to count");
            Err(vec![Diagnostic::error("block-size", span, message).help("leave out `--block`")])
        }
        _ => Ok(()),
    }
}

/// A block program's choices are the options of its decorator: hints, of which nobody can say here what they change.
fn block_program(kernel: &str, options: &CompileOptions, span: Span) -> Result<(), Diagnostic> {
    let is_option = |name: &String| kernel_options().any(|option| option == name);
    if let Some(name) = options.config.keys().find(|name| !is_option(name)) {
        let message = format!("`{kernel}` is a block program: it has no choice `{name}`");
        let names: Vec<&str> = kernel_options().collect();
        let help = "its tiles are what its source says; make a size a parameter of type `ct.Constant[int]`";
        return Err(Diagnostic::error("config-value", span, message).help(help).help(format!("choices: {}", names.join(", "))));
    }
    match options.block {
        Some(_) => {
            let message = format!("`{kernel}` is a block program: it has no threads to count");
            Err(Diagnostic::error("block-size", span, message).help("leave out `--block`"))
        }
        None => Ok(()),
    }
}

/// Other values of a choice: those of the kernel's space, else a few.
fn others(space: &IndexMap<String, Vec<i64>>, name: &str, value: i64) -> Vec<i64> {
    match space.get(name) {
        Some(values) => values.iter().copied().filter(|&other| other != value).collect(),
        None => vec![2 * value, (value / 2).max(1)].into_iter().filter(|&other| other != value).collect(),
    }
}

/// The kernel's text without the list of choices that it keeps.
fn shown(compiled: &Compiled) -> String {
    let mut module = compiled.module.clone();
    module.funcs.iter_mut().for_each(|func| func.config.clear());
    text::print_module(&module)
}
