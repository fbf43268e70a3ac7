//! What names stand for: variables, module-level definitions, the known modules, Python's built-ins.

use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use super::{Locals, Lowerer, Res};
use crate::ast::Import;
use crate::builtins::{Builtin, CLASSES, ENUMS, EXCEPTIONS, OPERATORS, REFUSED, Space, enum_member};
use crate::class::Attribute;
use crate::diagnostics::id;
use crate::file::{Definition, Global};
use crate::modules::{Target, public};
use crate::number::Num;
use crate::value::{ScopeId, Val};

impl Lowerer<'_> {
    /// The value of a name.
    pub(crate) fn name(&mut self, name: &str, span: Span) -> Res<Val> {
        if let Some(binding) = self.frame().locals.get(name) {
            return usable(binding.value.clone(), span);
        }
        let mut scope = Some(self.frame().scope);
        while let Some(id) = scope {
            if self.scopes[id.0].names.own.contains(name) {
                return match self.variables(id).and_then(|locals| locals.get(name)) {
                    Some(binding) => usable(binding.value.clone(), span),
                    None => Err(self.unassigned(name, span)),
                };
            }
            scope = self.scopes[id.0].outer;
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
        if let Some(class) = EXCEPTIONS.iter().find(|class| **class == name) {
            return Ok(Val::Class(class));
        }
        match name {
            "__debug__" => Ok(Val::bool(true)),
            "tessera" => Ok(Val::Module("tessera".into())),
            "object" => Ok(Val::Class("object")),
            _ => match DType::parse(name).filter(|_| self.short_dtypes) {
                Some(dtype) => Ok(Val::DType(dtype)),
                None => self.host_function(&format!("builtins.{name}")).ok_or_else(|| self.unknown(name, span)),
            },
        }
    }

    /// The variables of a scope as they are now.
    fn variables(&self, scope: ScopeId) -> Option<&Locals> {
        match &self.scopes[scope.0].left {
            Some(left) => Some(left),
            None => self.frames.iter().rev().find(|frame| frame.scope == scope).map(|frame| &frame.locals),
        }
    }

    /// True when a name is a variable of a function here or around it.
    pub(crate) fn is_variable(&mut self, name: &str) -> bool {
        let mut scope = Some(self.frame().scope);
        while let Some(id) = scope {
            if self.scopes[id.0].names.own.contains(name) {
                return true;
            }
            scope = self.scopes[id.0].outer;
        }
        false
    }

    fn unassigned(&self, name: &str, span: Span) -> Box<Diagnostic> {
        let error = Diagnostic::error(id::MAYBE_UNDEFINED, span, format!("`{name}` has no value yet"))
            .label("used here")
            .help(format!("a name that a function assigns is its own in all of it: assign `{name}` first"));
        Box::new(match self.file.global(name, self.moment) {
            Some(_) => error.note(format!("the `{name}` of module level is another variable")),
            None => error,
        })
    }

    fn unknown(&mut self, name: &str, span: Span) -> Box<Diagnostic> {
        let mut known: Vec<String> = self.frame().locals.keys().cloned().collect();
        known.extend(self.file.global_names(self.moment.source()).map(str::to_string));
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
        let file = self.file;
        match file.global(name, self.moment) {
            Some(definition) => self.definition(definition, name, span).map(Some),
            None => Ok(None),
        }
    }

    /// The value of a definition of module level, of any module, that is used under a name.
    pub(crate) fn definition(&mut self, definition: &Definition, name: &str, span: Span) -> Res<Val> {
        let key = (definition.name.clone(), definition.at);
        if let Some(value) = self.globals.get(&key) {
            return Ok(value.clone());
        }
        let used = |error: Box<Diagnostic>| Box::new(error.also(span, format!("`{name}` is used here")));
        let value = match &definition.what {
            Global::Import(target, import) => self.imported(target, *import, span)?,
            Global::Class(class) => self.at_module(definition.at, |lowerer| lowerer.class(class, definition.at)).map_err(used)?,
            Global::Function(function) => self.module_function(function, definition.at, span)?,
            Global::Value(expr, position) => {
                let mut value = self.at_module(definition.at, |lowerer| lowerer.expr(expr)).map_err(used)?;
                for &index in position {
                    value = match value.items().and_then(|items| items.get(index)) {
                        Some(item) => item.clone(),
                        None => {
                            return Err(used(Box::new(Diagnostic::error(
                                id::UNPACK,
                                expr.span,
                                format!("{} has no item {index}", value.describe()),
                            ))));
                        }
                    };
                }
                value
            }
            Global::Plain(class) => return Err(not_evaluated(name, "`class`", class.name.span, span)),
            Global::Unknown(what, place) => return Err(not_evaluated(name, what, *place, span)),
        };
        // A tile belongs to the block that made it, so it is made anew at each use.
        if !self.holds_tile(&value, &mut Vec::new()) {
            self.globals.insert(key, value.clone());
        }
        Ok(value)
    }

    /// What an import stands for that is used at a place.
    pub(crate) fn imported(&mut self, target: &Target, import: Span, span: Span) -> Res<Val> {
        let file = self.file;
        match target {
            Target::Path(path) => self.path(path, span),
            Target::Module(module) => match file.broken(*module) {
                Some(error) => Err(Box::new(error.clone().also(import, "imported here"))),
                None => Ok(Val::Project(*module, file.sources.get(*module).name.as_str().into())),
            },
            Target::Member(..) | Target::Missing(..) => {
                let used = if span.start == span.end { import } else { span };
                Err(file.lost(target, import, used))
            }
        }
    }

    /// Binds the names of an import inside a function.
    pub(crate) fn import(&mut self, imports: &[Import]) -> Res<()> {
        let file = self.file;
        for import in imports {
            let span = import.span;
            let Some(target) = file.inner_imports.get(&span) else { continue };
            let definition = match target {
                Target::Member(module, name) => file.member_of(*module, name),
                Target::Path(_) | Target::Module(_) | Target::Missing(..) => None,
            };
            let value = match definition {
                Some(definition) => self.definition(definition, &import.name, span)?,
                None => self.imported(target, span, span)?,
            };
            self.bind(&import.name, value, span);
        }
        Ok(())
    }

    /// True when a value has a part that exists at run time; `seen` are scopes that were looked through.
    fn holds_tile(&self, value: &Val, seen: &mut Vec<ScopeId>) -> bool {
        match value {
            Val::Tile(_) => true,
            Val::Tuple(items) | Val::Sequence(items) | Val::Iterator(items) => {
                items.iter().any(|item| self.holds_tile(item, seen))
            }
            Val::Instance(class, items) => {
                items.iter().any(|item| self.holds_tile(item, seen)) || self.holds_tile(&Val::SourceClass(class.clone()), seen)
            }
            Val::SourceClass(class) => {
                let defaults = class.fields.iter().filter_map(|field| field.default.as_ref());
                defaults.chain(class.attributes.values().map(Attribute::value)).any(|value| self.holds_tile(value, seen))
            }
            Val::Bound(receiver, function) => self.holds_tile(receiver, seen) || self.holds_tile(function, seen),
            Val::Closure(closure) => {
                if closure.defaults.iter().flatten().any(|default| self.holds_tile(default, seen)) {
                    return true;
                }
                let mut scope = closure.scope;
                while let Some(id) = scope.filter(|id| !seen.contains(id)) {
                    seen.push(id);
                    let left = self.scopes[id.0].left.iter().flat_map(|locals| locals.values());
                    if left.into_iter().any(|binding| self.holds_tile(&binding.value, seen)) {
                        return true;
                    }
                    scope = self.scopes[id.0].outer;
                }
                false
            }
            _ => false,
        }
    }

    /// What a dotted path with imports resolved stands for.
    pub(crate) fn path(&mut self, path: &str, span: Span) -> Res<Val> {
        let path = &public(path.to_string());
        if path.strip_prefix("cuda.tile.").is_some_and(|member| member.starts_with('_')) {
            return Ok(Val::Module(path.as_str().into()));
        }
        // To a kernel that cuTile's limits hold for, the package's module is `cuda.tile`.
        let path = &match path.strip_prefix("tessera.tile.") {
            Some(member) if self.cutile => format!("cuda.tile.{member}"),
            _ => path.clone(),
        };
        if let Some(builtin) = path.strip_prefix("tessera.tile.").and_then(|member| Builtin::find(Space::OwnTile, member)) {
            return Ok(Val::Builtin(builtin));
        }
        let member =
            path.strip_prefix("cuda.tile.").or_else(|| path.strip_prefix("tessera.tile.")).map(|member| (member, true)).or_else(
                || path.strip_prefix("tessera.").filter(|member| !member.starts_with("tile")).map(|member| (member, false)),
            );
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
                if let Some(function) = self.host_function(path) {
                    return Ok(function);
                }
                return Err(missing_member(
                    "math",
                    name,
                    Builtin::ALL.iter().filter(|b| b.row().space == Space::Math).map(|b| b.row().name),
                    span,
                ));
            }
            ("operator", name) => {
                if let Some(builtin) = Builtin::find(Space::Operator, name) {
                    return Ok(Val::Builtin(builtin));
                }
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
        Ok(Val::Module(path.as_str().into()))
    }

    /// A member of `cuda.tile`, which `tessera.tile` has too, or of `tessera` when the flag is off.
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

/// The diagnostic for a name that a statement binds which is not evaluated.
fn not_evaluated(name: &str, what: &str, place: Span, used: Span) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::NOT_CONSTANT, used, format!("what `{name}` is depends on code that is not evaluated"))
            .label("needed when the kernel is compiled")
            .also(place, format!("bound by {what} at module level"))
            .help("bind it by an assignment at module level, or pass it to the kernel"),
    )
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
