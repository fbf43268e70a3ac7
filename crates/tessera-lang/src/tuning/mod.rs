//! Tuning spaces: `@tessera.kernel.autotune(space=dict(BLOCK_M=[64, 128], ...), key=["M"], cache="...")`.
//!
//! A space is the product of its choices, in the order written, the last one varying fastest. [`Space::prune`] keeps the
//! points that the target can run and records why the others can't; the first legal point is the default configuration.
//!
//! ```text
//! space=dict(BLOCK_M=[64, 128], num_warps=[4, 8])     (64, 4) (64, 8) (128, 4) (128, 8)
//! ```

mod legality;

use indexmap::IndexMap;
use tessera_ir::{Diagnostic, Span};
use tessera_types::{Arch, DType, Target};

pub use legality::{Facts, check, threads};

use crate::args::{ArgType, LowerOptions};
use crate::ast::{Expr, ExprKind};
use crate::diagnostics::id;
use crate::file::{Kernel, Moment, ParsedFile};
use crate::fixed::{Fixed, evaluate};
use crate::lower::Res;
use crate::style::{decorator_args, decorator_path};

/// Choices of the schedule that a kernel without a space can be given.
const CHOICES: &[&str] = &["BLOCK_M", "BLOCK_N", "BLOCK_K", "BLOCK_SIZE", "VECTOR_WIDTH", "num_warps", "num_stages"];
/// Points that a space can have.
const MAX_POINTS: usize = 100_000;

/// One value for each choice; truth values are 0 and 1.
pub type Point = IndexMap<String, i64>;

/// What `@tessera.kernel.autotune` declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The values of each choice, as written.
    pub choices: IndexMap<String, Vec<i64>>,
    /// What a tuned configuration is remembered by.
    pub key: Vec<String>,
    /// Where it is remembered, if the source says.
    pub cache: Option<String>,
}

/// A point that the target can't run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pruned {
    /// The point.
    pub point: Point,
    /// Why.
    pub reason: String,
}

/// A space divided by legality.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruning {
    /// Points that can run, in the space's order.
    pub legal: Vec<Point>,
    /// The others.
    pub pruned: Vec<Pruned>,
}

impl Space {
    /// How many points there are.
    pub fn len(&self) -> usize {
        self.choices.values().map(Vec::len).product()
    }

    /// True when a choice has no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every point.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        (0..self.len()).map(|mut rank| {
            let mut point: Point = self.choices.keys().map(|name| (name.clone(), 0)).collect();
            for (at, values) in self.choices.values().enumerate().rev() {
                point[at] = values[rank % values.len()];
                rank /= values.len();
            }
            point
        })
    }

    /// Divides the points into those that can run and those that can't.
    pub fn prune(&self, facts: &Facts) -> Pruning {
        let mut pruning = Pruning::default();
        for point in self.points() {
            match check(&point, facts) {
                Ok(()) => pruning.legal.push(point),
                Err(reason) => pruning.pruned.push(Pruned { point, reason }),
            }
        }
        pruning
    }
}

impl Kernel {
    /// The tuning space that the kernel's decorator declares.
    ///
    /// # Errors
    /// Where the decorator is not understood.
    pub fn space(&self, file: &ParsedFile) -> Result<Option<Space>, Box<Diagnostic>> {
        for decorator in &self.function.decorators {
            if decorator_path(file, decorator, self.at).as_deref() == Some("tessera.kernel.autotune") {
                return read(file, decorator, self.at).map(Some);
            }
        }
        Ok(None)
    }
}

/// Divides a kernel's space for arguments of these types into the points that a target can run and those that it cannot.
pub fn legal_points(kernel: &Kernel, space: &Space, args: &[(String, ArgType)], target: Option<&str>) -> Pruning {
    let array = |name: &String| match args.iter().find(|(own, _)| own == name)? {
        (_, ArgType::Array { dtype, .. }) => Some(*dtype),
        _ => None,
    };
    let operand = kernel.params.iter().find_map(|param| array(&param.name)).unwrap_or(DType::F32);
    let options = LowerOptions { target: target.map(str::to_string), ..LowerOptions::default() };
    space.prune(&Facts::new(operand, arch(&options)))
}

/// The architecture that options name; `sm_90a` where they name none that is known.
pub(crate) fn arch(options: &LowerOptions) -> Arch {
    let wanted = options.target.as_deref().unwrap_or("sm_90a");
    let without_suffix = |name: &str| name.trim_end_matches('a').to_string();
    Target::parse(wanted)
        .map(|target| target.arch)
        .ok()
        .or_else(|| Arch::ALL.iter().copied().find(|arch| without_suffix(arch.name()) == wanted))
        .unwrap_or(Arch::Sm90a)
}

fn wrong(span: Span, message: impl Into<String>) -> Box<Diagnostic> {
    Box::new(
        Diagnostic::error(id::TUNING, span, message)
            .help("write `@tessera.kernel.autotune(space=dict(BLOCK_M=[64, 128]), key=[\"M\"])`"),
    )
}

fn read(file: &ParsedFile, decorator: &Expr, at: Moment) -> Res<Space> {
    let mut space = Space::default();
    let mut declared = false;
    for arg in decorator_args(decorator) {
        let Some(name) = &arg.keyword else { return Err(wrong(arg.value.span, "tuning options are given by keyword")) };
        match name.name.as_str() {
            "space" => {
                declared = true;
                choices(file, &arg.value, at, &mut space.choices)?;
            }
            "key" => {
                let key = evaluate(file, &arg.value, at);
                let Some(items) = key.as_ref().ok().and_then(Fixed::items) else {
                    return Err(wrong(arg.value.span, "`key` is a list of names"));
                };
                for item in items.iter() {
                    let Fixed::Str(text) = item else { return Err(wrong(arg.value.span, "`key` is a list of names")) };
                    space.key.push(text.to_string());
                }
            }
            "cache" => match evaluate(file, &arg.value, at) {
                Ok(Fixed::Str(text)) => space.cache = Some(text.to_string()),
                _ => return Err(wrong(arg.value.span, "`cache` is a path in quotes")),
            },
            _ => return Err(wrong(name.span, format!("there is no tuning option `{}`", name.name))),
        }
    }
    if !declared {
        return Err(wrong(decorator.span, "the decorator declares no `space`"));
    }
    Ok(space)
}

fn choices(file: &ParsedFile, expr: &Expr, at: Moment, into: &mut IndexMap<String, Vec<i64>>) -> Res<()> {
    let mut entries: Vec<(String, Span, &Expr)> = Vec::new();
    match &expr.kind {
        ExprKind::Call(function, args) if matches!(&function.kind, ExprKind::Name(name) if name == "dict") => {
            for arg in args {
                match &arg.keyword {
                    Some(name) => entries.push((name.name.clone(), name.span, &arg.value)),
                    None => return Err(wrong(arg.value.span, "`dict` takes choices by keyword here")),
                }
            }
        }
        ExprKind::Dict(items) => {
            for (key, value) in items {
                match &key.kind {
                    ExprKind::Str(name) => entries.push((name.clone(), key.span, value)),
                    _ => return Err(wrong(key.span, "a choice is named by a string")),
                }
            }
        }
        _ => return Err(wrong(expr.span, "`space` is a dictionary of choices")),
    }
    let mut points = 1usize;
    for (name, span, value) in entries {
        let values = evaluate(file, value, at)?;
        let values = values.items().and_then(|items| items.iter().map(Fixed::as_int).collect::<Option<Vec<_>>>());
        let values: Option<Vec<i64>> = values.and_then(|values| values.into_iter().map(|v| i64::try_from(v).ok()).collect());
        let Some(values) = values.filter(|values| !values.is_empty()) else {
            return Err(wrong(value.span, format!("`{name}` needs a list of integers or truth values")));
        };
        points = points.saturating_mul(values.len());
        if points > MAX_POINTS {
            return Err(wrong(value.span, format!("the space has more than {MAX_POINTS} points")));
        }
        if into.insert(name.clone(), values).is_some() {
            return Err(wrong(span, format!("`{name}` is given twice")));
        }
    }
    Ok(())
}

/// The configuration of one compilation: the first legal point that agrees with what the caller chose.
pub(crate) fn choose(file: &ParsedFile, kernel: &Kernel, operand: DType, options: &LowerOptions) -> Res<Point> {
    let at = kernel.function.name.span;
    let facts = Facts::new(operand, arch(options));
    let config_error = |message: String| Diagnostic::error(id::CONFIG, at, message);
    let space = match kernel.space(file)? {
        Some(space) => space,
        None => {
            if let Some(name) = options.config.keys().find(|name| !CHOICES.contains(&name.as_str())) {
                return Err(Box::new(
                    config_error(format!("there is no choice `{name}`")).help(format!("choices: {}", CHOICES.join(", "))),
                ));
            }
            Space {
                choices: options.config.iter().map(|(name, value)| (name.clone(), vec![*value])).collect(),
                ..Space::default()
            }
        }
    };
    for (name, value) in &options.config {
        let Some(values) = space.choices.get(name) else {
            let names: Vec<&str> = space.choices.keys().map(String::as_str).collect();
            return Err(Box::new(
                config_error(format!("`{}` has no choice `{name}`", kernel.name)).help(format!("choices: {}", names.join(", "))),
            ));
        };
        if !values.contains(value) {
            let values: Vec<String> = values.iter().map(i64::to_string).collect();
            return Err(Box::new(
                config_error(format!("`{name}` = {value} is not in the kernel's space"))
                    .help(format!("values: {}", values.join(", "))),
            ));
        }
    }
    let mut first_reason = None;
    for point in space.points() {
        if options.config.iter().any(|(name, value)| point[name.as_str()] != *value) {
            continue;
        }
        let clash = options.block.and_then(|block| {
            let own = threads(&point)?;
            (own != i64::from(block))
                .then(|| (id::BLOCK_SIZE, format!("{block} threads a block are asked for, and the configuration has {own}")))
        });
        match clash.or_else(|| check(&point, &facts).err().map(|reason| (id::TUNING, reason))) {
            None => return Ok(point),
            Some(reason) => {
                first_reason.get_or_insert(reason);
            }
        }
    }
    let (id, reason) = first_reason.unwrap_or((id::TUNING, "the space has no points".to_string()));
    let message = if id == id::BLOCK_SIZE { reason.clone() } else { format!("no legal configuration for {}", facts.arch) };
    let diagnostic = Diagnostic::error(id, at, message);
    Err(Box::new(match id {
        id::BLOCK_SIZE => diagnostic.help("leave out the number of threads, or choose one that `BLOCK_SIZE` or `num_warps` give"),
        _ => diagnostic.note(reason),
    }))
}
