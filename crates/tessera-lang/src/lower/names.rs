//! What names stand for: variables, module-level definitions, the known modules, Python's built-ins.

use std::rc::Rc;

use indexmap::IndexMap;
use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use super::{Frame, Lowerer, Res};
use crate::builtins::{Builtin, CLASSES, ENUMS, OPERATORS, REFUSED, Space, enum_member};
use crate::diagnostics::id;
use crate::file::Global;
use crate::number::Num;
use crate::value::{Closure, Val};

impl Lowerer<'_> {
    /// The value of a name.
    pub(crate) fn name(&mut self, name: &str, span: Span) -> Res<Val> {
        if let Some(binding) = self.frame().locals.get(name) {
            return usable(binding.value.clone(), span);
        }
        let mut captured = self.frame().captured.clone();
        while let Some(scope) = captured {
            if let Some(binding) = scope.locals.get(name) {
                return usable(binding.value.clone(), span);
            }
            captured = scope.outer.clone();
        }
        if let Some(value) = self.global(name, span)? {
            return Ok(value);
        }
        if name == "reveal_type" && !self.options.reveal {
            return Err(self.unknown(name, span));
        }
        if let Some(builtin) = Builtin::find(Space::Python, name) {
            return Ok(Val::Builtin(builtin));
        }
        if matches!(
            name,
            "ValueError" | "TypeError" | "RuntimeError" | "AssertionError" | "NotImplementedError" | "Exception" | "IndexError"
        ) {
            return Ok(Val::Class("Exception"));
        }
        match name {
            "tessera" => Ok(Val::Module("tessera".into())),
            "object" => Ok(Val::Class("object")),
            _ => Err(self.unknown(name, span)),
        }
    }

    fn unknown(&mut self, name: &str, span: Span) -> Box<Diagnostic> {
        let mut known: Vec<String> = self.frame().locals.keys().cloned().collect();
        known.extend(self.file.globals.keys().cloned());
        known.extend(Builtin::ALL.iter().filter(|b| b.row().space == Space::Python).map(|b| b.row().name.to_string()));
        let error = Diagnostic::error(id::UNKNOWN_NAME, span, format!("the name `{name}` is not defined")).label("not found");
        Box::new(match closest(name, known.iter().map(String::as_str)) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None if Builtin::find(Space::Tile, name).is_some() => {
                error.help(format!("write `ct.{name}`, or import it from `cuda.tile`"))
            }
            None => error.help("kernels see their parameters, variables, and the module's functions, constants and imports"),
        })
    }

    /// The value of a module-level name.
    fn global(&mut self, name: &str, span: Span) -> Res<Option<Val>> {
        if let Some(known) = self.globals.get(name) {
            return match known {
                Some(value) => Ok(Some(value.clone())),
                None => Err(Box::new(Diagnostic::error(id::RECURSION, span, format!("`{name}` is defined by itself")))),
            };
        }
        let Some(global) = self.file.globals.get(name) else { return Ok(None) };
        let value = match global {
            Global::Import(path) => {
                let path = path.clone();
                self.path(&path, span)?
            }
            Global::Function(function) => Val::Closure(Rc::new(Closure { function: function.clone(), captured: None })),
            Global::Value(expr, position) => {
                let (expr, position) = (expr.clone(), position.clone());
                self.globals.insert(name.to_string(), None);
                self.frames.push(Frame {
                    locals: IndexMap::new(),
                    captured: None,
                    loops: Vec::new(),
                    is_kernel: false,
                    returned: None,
                    return_shape: None,
                });
                let outside = std::mem::replace(&mut self.is_static, true);
                let result = self.expr(&expr);
                self.is_static = outside;
                self.frames.pop();
                self.globals.shift_remove(name);
                let mut value = result.map_err(|error| Box::new(error.also(span, format!("`{name}` is used here"))))?;
                for index in position {
                    value = match value.items().and_then(|items| items.get(index)) {
                        Some(item) => item.clone(),
                        None => {
                            return Err(Box::new(
                                Diagnostic::error(id::UNPACK, expr.span, format!("{} has no item {index}", value.describe()))
                                    .also(span, format!("`{name}` is used here")),
                            ));
                        }
                    };
                }
                value
            }
        };
        // A tile belongs to the block that made it, so it is made anew at each use.
        if !holds_tile(&value) {
            self.globals.insert(name.to_string(), Some(value.clone()));
        }
        Ok(Some(value))
    }

    /// What a dotted path with imports resolved stands for.
    pub(crate) fn path(&mut self, path: &str, span: Span) -> Res<Val> {
        let member = path
            .strip_prefix("cuda.tile.")
            .map(|member| (member, true))
            .or_else(|| path.strip_prefix("tessera.").filter(|member| !member.starts_with("tile")).map(|member| (member, false)));
        if let Some((member, cutile)) = member {
            return self.tile_member(member, cutile, span);
        }
        let (module, last) = path.rsplit_once('.').unwrap_or(("", path));
        let number = |value: f64| Ok(Val::Num(Num::Float(value)));
        match (module, last) {
            ("math" | "numpy", "pi") => return number(std::f64::consts::PI),
            ("math" | "numpy", "e") => return number(std::f64::consts::E),
            ("math", "tau") => return number(std::f64::consts::TAU),
            ("math" | "numpy" | "torch", "inf") => return number(f64::INFINITY),
            ("math" | "numpy" | "torch", "nan") => return number(f64::NAN),
            ("numpy", "newaxis") => return Ok(Val::None),
            ("math", name) => {
                if let Some(builtin) = Builtin::find(Space::Math, name) {
                    return Ok(Val::Builtin(builtin));
                }
                return Err(missing_member(
                    "math",
                    name,
                    Builtin::ALL.iter().filter(|b| b.row().space == Space::Math).map(|b| b.row().name),
                    span,
                ));
            }
            ("operator", name) => {
                if let Some((_, builtin)) = OPERATORS.iter().find(|(operator, _)| *operator == name) {
                    return Ok(Val::Builtin(*builtin));
                }
            }
            ("torch" | "numpy" | "jax.numpy" | "ml_dtypes", name) => {
                if let Some(dtype) = spelled_out(name) {
                    return Ok(Val::DType(dtype));
                }
            }
            _ => {}
        }
        Ok(Val::Module(path.into()))
    }

    /// A member of `cuda.tile`, or of `tessera` when the flag is off.
    fn tile_member(&mut self, member: &str, cutile: bool, span: Span) -> Res<Val> {
        if let Some((kind, name)) = member.split_once('.') {
            if let Some((kind, name)) = enum_member(kind, name) {
                return Ok(Val::Enum(kind, name));
            }
            if let Some((_, members)) = ENUMS.iter().find(|(found, _)| *found == kind) {
                return Err(missing_member(kind, name, members.iter().copied(), span));
            }
            return Ok(Val::Module(format!("cuda.tile.{member}").into()));
        }
        if let Some(builtin) = Builtin::find(Space::Tile, member) {
            return Ok(Val::Builtin(builtin));
        }
        if let Some(dtype) = if cutile { spelled_out(member) } else { DType::parse(member) } {
            return Ok(Val::DType(dtype));
        }
        if let Some(class) = CLASSES.iter().find(|class| **class == member) {
            return Ok(Val::Class(class));
        }
        if let Some((name, reason)) = REFUSED.iter().find(|(name, _)| *name == member) {
            return Err(Box::new(
                Diagnostic::error(id::REFUSED, span, format!("`ct.{name}` is not available in kernels"))
                    .label("used here")
                    .note(*reason),
            ));
        }
        let annotations = [
            "Constant",
            "ConstantAnnotation",
            "ArrayAnnotation",
            "ListAnnotation",
            "ScalarAnnotation",
            "IndexedWithInt64",
            "ScalarInt64",
            "ByTarget",
            "kernel",
            "function",
        ];
        if ENUMS.iter().any(|(kind, _)| *kind == member) || annotations.contains(&member) {
            return Ok(Val::Module(format!("cuda.tile.{member}").into()));
        }
        let names = Builtin::ALL.iter().filter(|b| b.row().space == Space::Tile).map(|b| b.row().name);
        let dtypes = DType::ALL.iter().map(|dtype| crate::promote::dtype_name(*dtype));
        Err(missing_member("cuda.tile", member, names.chain(dtypes), span))
    }
}

/// A dtype by a name that says its kind: `float32`, not `f32`.
fn spelled_out(name: &str) -> Option<DType> {
    let long = ["float", "bfloat", "tfloat", "int", "uint", "bool", "half"].iter().any(|prefix| name.starts_with(prefix));
    if long { DType::parse(name) } else { None }
}

fn usable(value: Val, span: Span) -> Res<Val> {
    match value {
        Val::Unusable(reason) => {
            let mut error =
                Diagnostic::error(reason.id, span, reason.message.clone()).label("used here").help(reason.help.clone());
            for (place, text) in &reason.places {
                error = error.also(*place, text.clone());
            }
            Err(Box::new(error))
        }
        value => Ok(value),
    }
}

fn holds_tile(value: &Val) -> bool {
    match value {
        Val::Tile(_) => true,
        Val::Tuple(items) | Val::Sequence(items) => items.iter().any(holds_tile),
        _ => false,
    }
}

/// The diagnostic for a member that does not exist.
pub(crate) fn missing_member<'a>(of: &str, member: &str, known: impl Iterator<Item = &'a str>, span: Span) -> Box<Diagnostic> {
    let error = Diagnostic::error(id::UNKNOWN_ATTRIBUTE, span, format!("`{of}` has no member `{member}`")).label("not found");
    Box::new(match closest(member, known) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error,
    })
}

/// The known name that is at most a third of the letters away.
pub(crate) fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    if name.len() > 64 {
        return None;
    }
    known.map(|near| (distance(name, near), near)).filter(|(distance, _)| *distance <= limit).min().map(|(_, near)| near)
}

/// Edits (insertions, deletions, replacements, neighbours swapped) between two names.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // `rows[i][j]`: between the first `i` and the first `j` letters.
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(row[j - 1] + 1).min(rows[i - 1][j] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
