//! Choices of the caller that change nothing: whoever makes one expects it to do something.
//!
//! What a choice does is found by making it otherwise: a kernel that comes out the same for every other value does not know it.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use tessera_ir::{Diagnostic, Span, text};
use tessera_lang::tuning::legal_points;
use tessera_lang::{ArgType, ParsedFile, Style, kernel_options};

use crate::driver::{CompileOptions, Compiled, compile_as_asked};

/// What a kernel's space offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    /// Points that the target can run, in the space's order; the first is the one that is taken without a choice. One point of nothing where
    /// there is no space.
    pub points: Vec<BTreeMap<String, i64>>,
    /// How many the target cannot run, and why the first of them cannot.
    pub pruned: (usize, Option<String>),
    /// Names of choices that change nothing in this kernel, and are in no point.
    pub idle: Vec<String>,
}

/// What a kernel can choose among for arguments of these types.
///
/// # Errors
/// Where the space is not understood, or the kernel does not take the arguments.
pub fn choices(
    file: &ParsedFile,
    kernel: &str,
    args: &[(String, ArgType)],
    options: &CompileOptions,
) -> Result<Choices, Vec<Diagnostic>> {
    let Some(source) = file.kernels.get(kernel) else { return Ok(Choices::default()) };
    let Some(space) = source.space(file).map_err(|error| vec![*error])? else {
        return Ok(Choices { points: vec![BTreeMap::new()], ..Choices::default() });
    };
    let own = shown(&compile_as_asked(file, kernel, args, options)?);
    let pruning = legal_points(source, &space, args, options.target.as_deref());
    let legal = |name: &str, value: i64| pruning.legal.iter().any(|point| point[name] == value);
    let changes = |name: &str, value: i64| {
        let mut options = options.clone();
        options.config.insert(name.to_string(), value);
        compile_as_asked(file, kernel, args, &options).is_ok_and(|other| shown(&other) != own)
    };
    let is_idle =
        |name: &str, values: &[i64]| values.len() > 1 && !values.iter().any(|&value| legal(name, value) && changes(name, value));
    let idle: Vec<String> =
        space.choices.iter().filter(|(name, values)| is_idle(name, values)).map(|(name, _)| name.clone()).collect();
    let mut points: Vec<BTreeMap<String, i64>> = Vec::new();
    for point in &pruning.legal {
        let point: BTreeMap<String, i64> =
            point.iter().filter(|(name, _)| !idle.contains(name)).map(|(name, &value)| (name.clone(), value)).collect();
        if !points.contains(&point) {
            points.push(point);
        }
    }
    let pruned = (pruning.pruned.len(), pruning.pruned.into_iter().next().map(|pruned| pruned.reason));
    Ok(Choices { points, pruned, idle })
}

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
        // A choice of one value is no choice; one whose other values are all refused means something.
        let compiled = |&other: &i64| compile_as_asked(file, kernel, args, &with(other)).ok();
        let mut made = others.iter().filter_map(compiled).peekable();
        if made.peek().is_some() && made.all(|other| shown(&other) == own) {
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

/// A block program's choices are the options of its decorator: hints, of which a target's compiler says what they change.
fn block_program(kernel: &str, options: &CompileOptions, span: Span) -> Result<(), Diagnostic> {
    let is_option = |name: &String| kernel_options().any(|option| option == name);
    if let Some(name) = options.config.keys().find(|name| !is_option(name)) {
        let message = format!("`{kernel}` is a block program: it has no choice `{name}`");
        let names: Vec<&str> = kernel_options().collect();
        let help = "its tiles are what its source says; make a size a parameter of type `ct.Constant[int]`";
        return Err(Diagnostic::error("config-value", span, message).help(help).help(format!("choices: {}", names.join(", "))));
    }
    if options.fixed_level && options.config.contains_key("opt_level") {
        let message = format!("`opt_level` changes nothing in `{kernel}`: the level is `-{}`", options.level);
        return Err(Diagnostic::error("config-value", span, message).help("leave out one of them"));
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
