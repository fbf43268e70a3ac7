//! Modules of a project: what an import statement stands for.
//!
//! Modules are found by whoever reads files ([`Modules`]), parsed, and never executed. A name that is imported means what its module has
//! under it when the module is complete; an import of an import is followed.
//!
//! ```text
//! from .gelu import gelu_forward     a name of the module `.gelu`, or its submodule
//! import ops.norm as norm            a module
//! import cuda.tile as ct             a known module, a path
//! from torch import nn               nobody finds `torch`: a path, which only host code can use
//! ```

use indexmap::IndexMap;
use tessera_ir::{Diagnostic, SourceId, Span, bug};

use crate::ast::{Expr, ExprKind, Import};
use crate::diagnostics::id;
use crate::file::{Definition, Global, Moment, ParsedFile};
use crate::python;

/// Modules that a project's own are never taken for.
const KNOWN: &[&str] = &[
    "cuda.tile",
    "tessera",
    "math",
    "numpy",
    "torch",
    "jax",
    "ml_dtypes",
    "operator",
    "functools",
    "typing",
    "dataclasses",
    "enum",
    "abc",
    "contextlib",
];

/// A project of more modules is stopped at; it is an import of the whole world.
const MAX_MODULES: usize = 1000;

/// Imports that name imports are followed this far.
const MAX_IMPORTS: usize = 64;

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The name of the text that imports.
    pub from: &'a str,
    /// Dots before the module's name: 0 for an absolute import.
    pub level: u32,
    /// The module's name with dots; empty for the package itself.
    pub path: &'a str,
}

/// A module's text.
#[derive(Clone, Debug)]
pub struct ModuleText {
    /// What no other module is called: of a file, its name.
    pub name: String,
    /// The file, as messages show it.
    pub file: String,
    /// What it holds; nothing for a package without an `__init__.py`.
    pub text: String,
    /// What messages show in the text's place, of the same length; the text itself where it is `None`.
    pub shown: Option<String>,
    /// The module whose names it has before its own, where a running program has given it some.
    pub before: Option<String>,
}

impl ModuleText {
    /// The text of a file.
    pub fn of_file(name: impl Into<String>, text: impl Into<String>) -> ModuleText {
        let name = name.into();
        ModuleText { file: name.clone(), name, text: text.into(), shown: None, before: None }
    }
}

/// Who finds modules.
pub trait Modules {
    /// The text of a module.
    ///
    /// # Errors
    /// Where it was looked for in vain, or why it can't be read.
    fn find(&self, wanted: Wanted<'_>) -> Result<ModuleText, Vec<String>>;
}

/// Nothing but the file.
pub(crate) struct Alone;

impl Modules for Alone {
    fn find(&self, _: Wanted<'_>) -> Result<ModuleText, Vec<String>> {
        Err(Vec::new())
    }
}

/// What an imported name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A known module, or one that nobody found: a dotted path.
    Path(String),
    /// A module of the project.
    Module(SourceId),
    /// A name of a module of the project, or its submodule.
    Member(SourceId, String),
    /// A module of the project that is not there: its name with its dots, and where it was looked for.
    Missing(String, Vec<String>),
}

/// A module that is not there.
struct Lost {
    looked: Vec<String>,
    /// Whether a package around it is there.
    is_ours: bool,
}

/// A module of the project.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// What no other one is called.
    pub(crate) name: String,
    /// What module level binds to each name, in the order of its statements.
    pub(crate) globals: IndexMap<String, Vec<Definition>>,
    /// Modules inside this package that were imported.
    submodules: IndexMap<String, Definition>,
    /// Why it can't be read.
    pub(crate) error: Option<Box<Diagnostic>>,
}

impl Scope {
    pub(crate) fn of(name: String) -> Scope {
        Scope { name, ..Scope::default() }
    }
}

/// What a dotted expression names.
pub(crate) enum Reference<'a> {
    /// A member of a known module, with imports resolved.
    Path(String),
    /// A module of the project.
    Module(SourceId),
    /// What a module of the project has under a name.
    Definition(&'a Definition),
}

impl ParsedFile {
    /// What module level of the source binds by an import.
    pub(crate) fn import(&mut self, modules: &dyn Modules, source: SourceId, import: &Import, at: Moment) {
        if import.member.as_deref() == Some("*") {
            let Target::Module(from) = self.target(modules, source, import) else { return };
            for name in self.exported(from) {
                let target = Target::Member(from, name.clone());
                self.bind(&name, at, Global::Import(target, import.span));
            }
            return;
        }
        let target = self.target(modules, source, import);
        self.bind(&import.name, at, Global::Import(target, import.span));
    }

    /// What an import of the source stands for; its module is read.
    pub(crate) fn target(&mut self, modules: &dyn Modules, source: SourceId, import: &Import) -> Target {
        let Import { module, level, member, binds_top, .. } = import;
        let top = module.split('.').next().unwrap_or_default();
        let path = match member {
            Some(member) => format!("{module}.{member}"),
            None if *binds_top => top.to_string(),
            None => module.clone(),
        };
        let is_known = |known: &&str| path.strip_prefix(*known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if *level == 0 && (path == "cuda" || KNOWN.iter().any(is_known)) {
            return Target::Path(public(path));
        }
        match self.load(modules, source, *level, module) {
            Ok((first, last)) => match member.as_deref() {
                None if *binds_top => Target::Module(first),
                None | Some("*") => Target::Module(last),
                Some(member) => {
                    // It may be a submodule, which is imported by that; whether it is not, the module's names say.
                    if !self.scopes[&last].globals.contains_key(member) {
                        let inner = if module.is_empty() { member.to_string() } else { format!("{module}.{member}") };
                        let _ = self.load(modules, source, *level, &inner);
                    }
                    Target::Member(last, member.to_string())
                }
            },
            // Of a package that is there, or beside the file, it is the project's; others are the host's.
            Err(Lost { looked, is_ours }) if is_ours || *level > 0 => {
                Target::Missing(format!("{}{module}", ".".repeat(*level as usize)), looked)
            }
            Err(_) => Target::Path(path),
        }
    }

    /// Loads a module and the packages that it lies in; the outermost and the innermost of them.
    fn load(&mut self, modules: &dyn Modules, source: SourceId, level: u32, path: &str) -> Result<(SourceId, SourceId), Lost> {
        let from = self.scopes[&source].name.clone();
        let mut chain: Vec<SourceId> = Vec::new();
        let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
        for end in ends {
            let part = &path[..end];
            let wanted = Wanted { from: &from, level, path: part };
            let found = modules.find(wanted).map_err(|looked| Lost { looked, is_ours: !chain.is_empty() })?;
            let id = self.loaded(modules, found);
            if let Some(&package) = chain.last() {
                let name = part.rsplit('.').next().unwrap_or(part);
                self.inside(package, name, id);
            }
            chain.push(id);
        }
        // `from .a import b` makes `a` a submodule of the package that it stands in.
        if level > 0
            && !path.is_empty()
            && let Ok(package) = modules.find(Wanted { from: &from, level, path: "" })
            && let Some(package) = self.known(&package.name)
        {
            self.inside(package, path.split('.').next().unwrap_or(path), chain[0]);
        }
        Ok((chain[0], chain[chain.len() - 1]))
    }

    fn inside(&mut self, package: SourceId, name: &str, module: SourceId) {
        let start = Span { source: module, start: 0, end: 0 };
        let what = Global::Import(Target::Module(module), start);
        let definition = Definition { name: name.to_string(), at: Moment::end(package), what };
        self.scopes.entry(package).or_default().submodules.entry(name.to_string()).or_insert(definition);
    }

    fn known(&self, name: &str) -> Option<SourceId> {
        self.scopes.iter().find(|(_, scope)| scope.name == name).map(|(id, _)| *id)
    }

    /// Reads a module's text, unless it was read.
    fn loaded(&mut self, modules: &dyn Modules, found: ModuleText) -> SourceId {
        if let Some(known) = self.known(&found.name) {
            return known;
        }
        let source = self.sources.add(found.file, found.shown.as_deref().unwrap_or(&found.text));
        self.scopes.insert(source, Scope::of(found.name));
        if self.scopes.len() > MAX_MODULES {
            let start = Span { source, start: 0, end: 0 };
            let message = format!("more than {MAX_MODULES} modules are imported, one from the other");
            self.fail(
                source,
                Diagnostic::error(id::IMPORT, start, message).help("import what kernels need from smaller modules"),
            );
            return source;
        }
        match python::parse(source, &found.text) {
            Ok(module) => {
                let first = self.given(modules, source, found.before.as_deref());
                self.collect(modules, source, &module, first);
            }
            Err(error) => self.fail(source, *error),
        }
        source
    }

    /// Binds the names that a module is given before its own; the moment of its first statement.
    pub(crate) fn given(&mut self, modules: &dyn Modules, source: SourceId, before: Option<&str>) -> usize {
        let Some(before) = before else { return 0 };
        let from = self.scopes[&source].name.clone();
        let Ok(found) = modules.find(Wanted { from: &from, level: 0, path: before }) else {
            bug!("`{before}` was named by whoever finds modules")
        };
        let before = self.loaded(modules, found);
        let names: Vec<String> = self.scopes[&before].globals.keys().cloned().collect();
        let start = Span { source, start: 0, end: 0 };
        for name in names {
            let what = Global::Import(Target::Member(before, name.clone()), start);
            self.bind(&name, Moment::first(source), what);
        }
        1
    }

    fn fail(&mut self, source: SourceId, error: Diagnostic) {
        self.scopes.entry(source).or_default().error = Some(Box::new(error));
    }

    /// The names that `from module import *` takes.
    fn exported(&self, module: SourceId) -> Vec<String> {
        let Some(scope) = self.scopes.get(&module) else { return Vec::new() };
        if let Some(Definition { what: Global::Value(value, _), .. }) = scope.globals.get("__all__").and_then(|all| all.last())
            && let Some(names) = strings(value)
        {
            return names;
        }
        scope.globals.keys().filter(|name| !name.starts_with('_')).cloned().collect()
    }

    /// What a name of module level means at a moment, through imports from other modules. Where an import leads nowhere, the import itself.
    pub(crate) fn global(&self, name: &str, moment: Moment) -> Option<&Definition> {
        self.follow(self.own(name, moment)?)
    }

    fn follow<'a>(&'a self, first: &'a Definition) -> Option<&'a Definition> {
        let mut found = first;
        for _ in 0..MAX_IMPORTS {
            let Global::Import(Target::Member(module, name), _) = &found.what else { return Some(found) };
            match self.member(*module, name) {
                Some(next) => found = next,
                None => return Some(found),
            }
        }
        Some(first)
    }

    /// What module level of the moment's source binds to a name.
    fn own(&self, name: &str, moment: Moment) -> Option<&Definition> {
        let scope = self.scopes.get(&moment.source())?;
        scope.globals.get(name)?.iter().rev().find(|definition| definition.at < moment)
    }

    /// What a module has under a name when it is complete, or its submodule of that name.
    fn member(&self, module: SourceId, name: &str) -> Option<&Definition> {
        // `from . import a` in a package's own file means the submodule.
        let is_itself = |definition: &&Definition| matches!(&definition.what, Global::Import(Target::Member(from, own), _) if *from == module && own == name);
        let own = self.own(name, Moment::end(module)).filter(|definition| !is_itself(definition));
        own.or_else(|| self.scopes.get(&module)?.submodules.get(name))
    }

    /// The same, through imports from other modules.
    pub(crate) fn member_of(&self, module: SourceId, name: &str) -> Option<&Definition> {
        self.follow(self.member(module, name)?)
    }

    /// Why a module's text can't be read.
    pub(crate) fn broken(&self, module: SourceId) -> Option<&Diagnostic> {
        self.scopes.get(&module)?.error.as_deref()
    }

    /// What is wrong with an import that leads nowhere; `used` is where its name is needed.
    pub(crate) fn lost(&self, target: &Target, import: Span, used: Span) -> Box<Diagnostic> {
        let told = |error: Diagnostic| Box::new(if used == import { error } else { error.also(import, "imported here") });
        match target {
            Target::Missing(module, looked) => {
                let error = Diagnostic::error(id::IMPORT, used, format!("there is no module `{module}`")).label("needed here");
                let error = if looked.is_empty() { error } else { error.note(format!("looked for {}", looked.join(", "))) };
                told(error.help("modules are looked for beside the file and along `--path` and `TESSERA_PATH`"))
            }
            Target::Member(module, name) => {
                if let Some(broken) = self.broken(*module) {
                    return told(broken.clone());
                }
                let file = &self.sources.get(*module).name;
                let start = Span { source: *module, start: 0, end: 0 };
                if self.member(*module, name).is_some() {
                    let error = Diagnostic::error(id::IMPORT, used, format!("the imports of `{name}` go round"));
                    return told(
                        error.label("needed here").also(start, "this module imports it, too").help("define it in one module"),
                    );
                }
                let error = Diagnostic::error(id::IMPORT, used, format!("`{file}` has no `{name}`")).label("needed here");
                let names = self.scopes.get(module).into_iter().flat_map(|scope| scope.globals.keys().map(String::as_str));
                told(match crate::lower::names::closest(name, names) {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error.also(start, "the module"),
                })
            }
            Target::Path(path) => told(Diagnostic::error(id::IMPORT, used, format!("`{path}` means nothing in a kernel"))),
            Target::Module(module) => {
                let file = &self.sources.get(*module).name;
                told(Diagnostic::error(id::IMPORT, used, format!("the module `{file}` is no value")).label("needed here"))
            }
        }
    }

    /// The dotted path that an expression names when its module is complete, with imports resolved: `ct.kernel` is
    /// `cuda.tile.kernel`.
    pub(crate) fn path_of(&self, expr: &Expr) -> Option<String> {
        self.path_at(expr, Moment::end(expr.span.source))
    }

    /// The same at a moment.
    pub(crate) fn path_at(&self, expr: &Expr, moment: Moment) -> Option<String> {
        match self.reference(expr, moment, MAX_IMPORTS)? {
            Reference::Path(path) => Some(public(path)),
            Reference::Module(_) | Reference::Definition(_) => None,
        }
    }

    /// What `module.name` stands for in another module of the project.
    pub(crate) fn elsewhere(&self, expr: &Expr) -> Option<&Definition> {
        match self.reference(expr, Moment::end(expr.span.source), MAX_IMPORTS)? {
            Reference::Definition(definition) => Some(definition),
            Reference::Path(_) | Reference::Module(_) => None,
        }
    }

    /// What a name, or a member of a module, stands for, through at most `aliases` names that stand for others.
    fn reference(&self, expr: &Expr, moment: Moment, aliases: usize) -> Option<Reference<'_>> {
        match &expr.kind {
            ExprKind::Name(name) => match self.global(name, moment) {
                Some(definition) => self.through(definition, aliases),
                None => Some(Reference::Path(match name.as_str() {
                    "tile" => "tessera.tile".to_string(),
                    _ => name.clone(),
                })),
            },
            ExprKind::Attribute(base, member) => match self.reference(base, moment, aliases)? {
                Reference::Path(path) => Some(Reference::Path(format!("{path}.{}", member.name))),
                Reference::Module(module) => self.through(self.member_of(module, &member.name)?, aliases),
                Reference::Definition(_) => None,
            },
            _ => None,
        }
    }

    fn through<'a>(&'a self, definition: &'a Definition, aliases: usize) -> Option<Reference<'a>> {
        match &definition.what {
            Global::Import(Target::Path(path), _) => Some(Reference::Path(path.clone())),
            Global::Import(Target::Module(module), _) => Some(Reference::Module(*module)),
            Global::Value(value, position) if position.is_empty() => match &value.kind {
                ExprKind::Attribute(..) | ExprKind::Name(_) => {
                    let named = self.reference(value, definition.at, aliases.checked_sub(1)?);
                    Some(named.unwrap_or(Reference::Definition(definition)))
                }
                _ => Some(Reference::Definition(definition)),
            },
            _ => Some(Reference::Definition(definition)),
        }
    }
}

/// The items of a list of string literals.
fn strings(expr: &Expr) -> Option<Vec<String>> {
    let (ExprKind::List(items) | ExprKind::Tuple(items)) = &expr.kind else { return None };
    let text = |item: &Expr| match &item.kind {
        ExprKind::Str(text) => Some(text.clone()),
        _ => None,
    };
    items.iter().map(text).collect()
}

/// The public path of a member that was reached through one of `cuda.tile`'s private modules.
pub(crate) fn public(path: String) -> String {
    match path.strip_prefix("cuda.tile._").and_then(|rest| rest.split_once('.')) {
        Some((_, member)) => public(format!("cuda.tile.{member}")),
        None => path,
    }
}
