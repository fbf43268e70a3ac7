//! Where a kernel comes from: a source file in the kernel language, or IR text.
//!
//! What launches need to know is asked here, so that nothing else tells the two apart. A kernel of IR text was made for types
//! that its interface states: Schedule IR takes what the interface says, Graph IR is tiled for the arrays at hand.

use std::collections::BTreeMap;

use tessera_compile::{Choices, CompileOptions, Compiled, OptLevel, choices, compile, compile_ir};
use tessera_ir::{Diagnostic, Func, Level, Module, ParamKind, Severity, SourceMap, Span, verify};
use tessera_lang::tuning::Space;
use tessera_lang::{ArgType, LowerOptions, ParsedFile, Style, lower, simt};
use tessera_launch::Placed;

use crate::specialise::{argument_types, ir_argument_types};
use crate::value::Value;

/// What a kernel is compiled from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A file that holds the kernel, among others.
    File(Box<ParsedFile>),
    /// A module that verifies; the kernel is its first function, and its only one.
    Ir(Module),
}

/// What is wrong with a text, and the text.
pub(crate) type Refusal = (Vec<Diagnostic>, SourceMap);

impl Origin {
    /// The kernel of a name in a file of the kernel language.
    pub(crate) fn python(parsed: ParsedFile, kernel: &str) -> Result<Origin, Refusal> {
        if parsed.has_errors() {
            let errors = parsed.diagnostics.iter().filter(|d| d.severity == Severity::Error).cloned().collect();
            return Err((errors, parsed.sources));
        }
        if parsed.kernels.contains_key(kernel) {
            return Ok(Origin::File(Box::new(parsed)));
        }
        // The front end knows what to say of a kernel that is not there.
        let diagnostics = match lower(&parsed, kernel, &[], &LowerOptions::default()) {
            Err(diagnostics) => diagnostics,
            Ok(_) => vec![Diagnostic::bare("no-kernel", format!("there is no kernel `{kernel}`"))],
        };
        Err((diagnostics, parsed.sources))
    }

    /// The function of a name in IR text.
    pub(crate) fn ir(file: &str, text: &str, kernel: &str) -> Result<Origin, Refusal> {
        let mut module = tessera_document::parse_module(file, text).map_err(|(module, wrong)| (vec![*wrong], module.sources))?;
        let wrong = verify(&module);
        if !wrong.is_empty() {
            return Err((wrong, module.sources));
        }
        let Some(at) = module.funcs.iter().position(|func| func.name == kernel) else {
            let names: Vec<String> = module.funcs.iter().map(|func| format!("`{}`", func.name)).collect();
            let message = format!("`{file}` has no function `{kernel}`");
            let help = if names.is_empty() { "it has none at all".into() } else { format!("it has {}", names.join(", ")) };
            return Err((vec![Diagnostic::bare("no-kernel", message).help(help)], module.sources));
        };
        module.funcs = vec![module.funcs.swap_remove(at)];
        Ok(Origin::Ir(module))
    }

    /// The texts that diagnostics point into.
    pub(crate) fn sources(&self) -> &SourceMap {
        match self {
            Origin::File(file) => &file.sources,
            Origin::Ir(module) => &module.sources,
        }
    }

    /// Each parameter with the place to show when an argument does not fit it.
    pub(crate) fn places(&self, kernel: &str) -> Vec<(&str, Span)> {
        match self {
            Origin::File(file) => file.kernels[kernel].params.iter().map(|param| (param.name.as_str(), param.span)).collect(),
            Origin::Ir(module) => {
                let func = &module.funcs[0];
                func.abi.params.iter().map(|param| (param.name.as_str(), func.span)).collect()
            }
        }
    }

    /// The types that a launch with these arguments compiles for.
    pub(crate) fn argument_types<A: Placed>(
        &self,
        kernel: &str,
        args: &[(&str, Value<A>)],
    ) -> Result<Vec<(String, ArgType)>, Vec<Diagnostic>> {
        match self {
            Origin::File(file) => argument_types(&file.kernels[kernel], args),
            Origin::Ir(module) => ir_argument_types(&module.funcs[0], args),
        }
    }

    /// Compiles for arguments of these types.
    pub(crate) fn compile(
        &self,
        kernel: &str,
        types: &[(String, ArgType)],
        options: &CompileOptions,
    ) -> Result<Compiled, Vec<Diagnostic>> {
        match self {
            Origin::File(file) => compile(file, kernel, types, options),
            Origin::Ir(module) => compile_ir(module.clone(), types, options),
        }
    }

    /// The file that the kernel was read from, as messages name it.
    pub(crate) fn file_name(&self) -> &str {
        self.sources().iter().next().map_or("", |source| &source.name)
    }

    /// The space that the kernel's decorator declares.
    pub(crate) fn space(&self, kernel: &str) -> Result<Option<Space>, Vec<Diagnostic>> {
        match self {
            Origin::File(file) => file.kernels[kernel].space(file).map_err(|error| vec![*error]),
            Origin::Ir(_) => Ok(None),
        }
    }

    /// Whether it is a block program in the kernel language.
    pub(crate) fn takes_hints(&self, kernel: &str) -> bool {
        matches!(self, Origin::File(file) if matches!(file.kernels[kernel].style, Style::Block { .. }))
    }

    /// Whether it says what blocks do, and not what threads do.
    pub(crate) fn is_of_blocks(&self, kernel: &str) -> bool {
        match self {
            Origin::File(file) => file.kernels[kernel].style != Style::Simt,
            Origin::Ir(module) => matches!(module.funcs[0].level, Level::Graph | Level::Schedule),
        }
    }

    /// What the kernel can choose among.
    pub(crate) fn choices(
        &self,
        kernel: &str,
        types: &[(String, ArgType)],
        options: &CompileOptions,
    ) -> Result<Choices, Vec<Diagnostic>> {
        match self {
            Origin::File(file) => choices(file, kernel, types, options),
            Origin::Ir(_) => Ok(Choices { points: vec![BTreeMap::new()], ..Choices::default() }),
        }
    }

    /// The kernel without choices and without optimisation: what choices are made for.
    pub(crate) fn unchosen(
        &self,
        kernel: &str,
        types: &[(String, ArgType)],
        options: &CompileOptions,
    ) -> Result<Module, Vec<Diagnostic>> {
        let options = CompileOptions {
            target: options.target.clone(),
            level: OptLevel::O0,
            fixed_level: true,
            ..CompileOptions::default()
        };
        let mut module = match self.graph(kernel, types, &options)? {
            Some(module) => module,
            None => self.compile(kernel, types, &options)?.module,
        };
        module.funcs.iter_mut().for_each(|func| func.config.clear());
        Ok(module)
    }

    /// Array parameters with the names of their axes, where the kernel names them.
    pub(crate) fn operands(
        &self,
        kernel: &str,
        types: &[(String, ArgType)],
        options: &CompileOptions,
    ) -> Result<Vec<(String, Vec<String>)>, Vec<Diagnostic>> {
        match self {
            Origin::File(file) if file.kernels[kernel].style == Style::Simt => {
                simt::check(file, kernel, types, &lower_options(options)).map(|checked| checked.axes)
            }
            _ => Ok(self.graph(kernel, types, options)?.map_or_else(Vec::new, |module| operands(&module.funcs[0]))),
        }
    }

    /// The kernel as Graph IR; `None` where it has no such form.
    pub(crate) fn graph(
        &self,
        kernel: &str,
        types: &[(String, ArgType)],
        options: &CompileOptions,
    ) -> Result<Option<Module>, Vec<Diagnostic>> {
        let module = match self {
            Origin::File(file) if file.kernels[kernel].style == Style::Declarative => {
                lower(file, kernel, types, &lower_options(options))?
            }
            Origin::File(_) => return Ok(None),
            Origin::Ir(module) => module.clone(),
        };
        Ok(Some(module).filter(|module| module.funcs.iter().all(|func| func.level == Level::Graph)))
    }
}

fn lower_options(options: &CompileOptions) -> LowerOptions {
    LowerOptions {
        target: options.target.clone(),
        config: options.config.clone(),
        block: options.block,
        ..LowerOptions::default()
    }
}

/// Named axes of whole operands, in memory order: they are gone once a kernel is tiled.
fn operands(func: &Func) -> Vec<(String, Vec<String>)> {
    let axes = func.abi.params.iter().filter_map(|param| match &param.kind {
        ParamKind::Operand { axes, .. } => Some((param.name.clone(), axes.clone())),
        ParamKind::Array { .. } | ParamKind::List { .. } | ParamKind::Scalar { .. } => None,
    });
    axes.collect()
}
