//! Parsing. Reads what [`super::print`] writes; a mistake gives one diagnostic at its place. Parsing checks names and
//! numbers of things; whether types fit is the verifier's question.

use indexmap::IndexMap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_layout::Distribution;

use crate::attrs::Attr;
use crate::constant::Const;
use crate::diag::{Diagnostic, SourceId, Span};
use crate::dialect::{OperandKind, Results, Row};
use crate::func::{Block, Func, Global, Level, Module, Value};
use crate::mesh::{Mesh, MeshAxis, Program, Sharding, StatedSharding};
use crate::op::{AttrTexts, OpKind};
use crate::plan::Plan;
use crate::text::cursor::{Cursor, Parsed};
use crate::text::interface::interface;
use crate::text::{plan, print};
use crate::types::{
    Axis, DistributedType, Elem, Extent, Padding, RingType, SharedType, Swizzle, TensorType, TensorViewType, TileType,
    TileViewType, Type, ViewKind,
};

/// Regions nested deeper than this are refused: the parser is recursive.
const MAX_DEPTH: usize = 64;

/// Another form that functions of a module may be written in.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// The words that open such a function.
    pub words: &'static [&'static str],
    /// Reads a function behind its first word.
    pub function: fn(&mut Cursor<'_>) -> Parsed<Func>,
}

/// Reads a module and keeps the text as a source, so that spans can be shown. On failure the module holds the text too.
pub fn parse_module(name: &str, text: &str) -> Result<Module, (Module, Box<Diagnostic>)> {
    parse_with(name, text, &[])
}

/// The same where functions may be written in other forms too.
pub fn parse_with(name: &str, text: &str, forms: &[Form]) -> Result<Module, (Module, Box<Diagnostic>)> {
    let mut module = Module::default();
    let source = module.sources.add(name, text);
    let mut cursor = Cursor::new(source, text);
    while !cursor.at_end() {
        let result = item(&mut cursor, source, &mut module, forms);
        if let Err(diagnostic) = result {
            return Err((module, diagnostic));
        }
    }
    Ok(module)
}

/// Reads one type. `layouts` are those that `#0`, `#1`, ... stand for.
pub fn parse_type(cursor: &mut Cursor<'_>, layouts: &[&str]) -> Parsed<Type> {
    let start = cursor.offset();
    let word = cursor.expect_word("a type")?;
    match word {
        "tile" => {
            cursor.expect("<")?;
            let tile = tile_body(cursor)?;
            let layout = if cursor.peek(",") { Some(layout_name(cursor, &tile, layouts)?) } else { None };
            cursor.expect(">")?;
            Ok(match layout {
                Some(layout) => Type::Distributed(Box::new(DistributedType { tile, layout })),
                None => Type::Tile(tile),
            })
        }
        "inflight" => {
            cursor.expect("<")?;
            let tile = tile_body(cursor)?;
            let layout = layout_name(cursor, &tile, layouts)?;
            cursor.expect(">")?;
            Ok(Type::InFlight(Box::new(DistributedType { tile, layout })))
        }
        "shared" => shared_body(cursor).map(|shared| Type::Shared(Box::new(shared))),
        "registers" => {
            cursor.expect("<")?;
            let tile = tile_body(cursor)?;
            cursor.expect(">")?;
            Ok(Type::Registers(Box::new(tile)))
        }
        "ring" => {
            cursor.expect("<")?;
            let stages = cursor.integer()?;
            cursor.expect(",")?;
            let slots = cursor.list("[", "]", |cursor| {
                if !cursor.eat_word("shared") {
                    return Err(cursor.unexpected("`shared`"));
                }
                shared_body(cursor)
            })?;
            cursor.expect(">")?;
            Ok(Type::Ring(Box::new(RingType { stages, slots })))
        }
        "cursor" => Ok(Type::Cursor),
        "tensor_view" => tensor_view_body(cursor).map(|view| Type::TensorView(Box::new(view))),
        "partition_view" | "strided_view" | "gather_scatter_view" => {
            tile_view_body(cursor, word).map(|view| Type::TileView(Box::new(view)))
        }
        "token" => Ok(Type::Token),
        "tensor" => tensor_body(cursor).map(|tensor| Type::Tensor(Box::new(tensor))),
        "operand" => tensor_body(cursor).map(|tensor| Type::Operand(Box::new(tensor))),
        _ => Err(Box::new(Diagnostic::error("ir-type", cursor.span_from(start), format!("`{word}` is not a type")))),
    }
}

fn tile_body(cursor: &mut Cursor<'_>) -> Parsed<TileType> {
    let shape = dims(cursor, |c| c.integer::<u32>())?;
    Ok(TileType { shape: SmallVec::from_vec(shape), elem: elem(cursor)? })
}

/// `#0` after a tile's body: the function's layout of that number, for the tile's shape.
fn layout_name(cursor: &mut Cursor<'_>, tile: &TileType, layouts: &[&str]) -> Parsed<Distribution> {
    cursor.expect(",")?;
    let start = cursor.offset();
    cursor.expect("#")?;
    let number: usize = cursor.integer()?;
    let wrong = |message: String, cursor: &Cursor<'_>| Box::new(Diagnostic::error("ir-layout", cursor.span_from(start), message));
    let Some(text) = layouts.get(number) else {
        return Err(wrong(format!("there is no layout `#{number}` among the function's `layouts(...)`"), cursor));
    };
    let shape: SmallVec<[u64; 4]> = tile.shape.iter().map(|&extent| u64::from(extent)).collect();
    Distribution::parse(text, &shape).map_err(|error| wrong(format!("`{text}` is no layout of `{tile}`: {error}"), cursor))
}

fn shared_body(cursor: &mut Cursor<'_>) -> Parsed<SharedType> {
    cursor.expect("<")?;
    let shape = dims(cursor, |c| c.integer::<u32>())?;
    let elem = cursor.dtype()?;
    let mut shared = SharedType::new(SmallVec::from_vec(shape), elem);
    while cursor.eat(",") {
        match cursor.expect_word("`swizzle`, `order` or `pad`")? {
            "swizzle" => {
                cursor.expect("=")?;
                let parts = cursor.list("<", ">", |c| c.integer())?;
                let &[bits, base, shift] = parts.as_slice() else { return Err(cursor.unexpected("three numbers before")) };
                shared.swizzle = Swizzle { bits, base, shift };
            }
            "order" => {
                cursor.expect("=")?;
                let start = cursor.offset();
                shared.order = SmallVec::from_vec(cursor.list("[", "]", |c| c.integer())?);
                // Whoever asks how a buffer lies relies on it, before anybody verifies the function.
                let mut axes = shared.order.clone();
                axes.sort_unstable();
                if !axes.into_iter().eq(0..shared.shape.len() as u32) {
                    let wrong = Diagnostic::error("ir-shape", cursor.span_from(start), "`order` does not name each axis once");
                    return Err(Box::new(wrong));
                }
            }
            "pad" => {
                cursor.expect("=")?;
                shared.pad = cursor.integer()?;
            }
            _ => return Err(cursor.unexpected("`swizzle`, `order` or `pad` before")),
        }
    }
    cursor.expect(">")?;
    Ok(shared)
}

/// `AxBx` before an element type: as many entries as are followed by `x`.
fn dims<T>(cursor: &mut Cursor<'_>, mut entry: impl FnMut(&mut Cursor<'_>) -> Parsed<T>) -> Parsed<Vec<T>> {
    let mut items = Vec::new();
    while cursor.rest().starts_with(|c: char| c.is_ascii_digit() || matches!(c, '?' | '@' | '-')) {
        items.push(entry(cursor)?);
        cursor.expect("x")?;
    }
    Ok(items)
}

pub(super) fn extent(cursor: &mut Cursor<'_>) -> Parsed<Extent> {
    if cursor.eat("?") { Ok(Extent::Dynamic) } else { cursor.integer().map(Extent::Static) }
}

fn elem(cursor: &mut Cursor<'_>) -> Parsed<Elem> {
    if cursor.eat_word("ptr") {
        cursor.expect("<")?;
        let to = cursor.dtype()?;
        cursor.expect(">")?;
        return Ok(Elem::Ptr(to));
    }
    cursor.dtype().map(Elem::Num)
}

fn tensor_view_body(cursor: &mut Cursor<'_>) -> Parsed<TensorViewType> {
    cursor.expect("<")?;
    let shape = dims(cursor, extent)?;
    let elem = cursor.dtype()?;
    let mut strides = Vec::new();
    if cursor.eat(",") {
        key(cursor, "strides")?;
        strides = cursor.list("[", "]", extent)?;
    }
    cursor.expect(">")?;
    Ok(TensorViewType { elem, shape: SmallVec::from_vec(shape), strides: SmallVec::from_vec(strides) })
}

pub(super) fn key(cursor: &mut Cursor<'_>, name: &str) -> Parsed<()> {
    if !cursor.eat_word(name) {
        return Err(cursor.unexpected(&format!("`{name}=`")));
    }
    cursor.expect("=")
}

fn tile_view_body(cursor: &mut Cursor<'_>, word: &str) -> Parsed<TileViewType> {
    cursor.expect("<")?;
    key(cursor, "tile")?;
    cursor.expect("(")?;
    let mut tile: SmallVec<[u32; 4]> = SmallVec::new();
    while !cursor.eat(")") {
        if !tile.is_empty() {
            cursor.expect("x")?;
        }
        tile.push(cursor.integer()?);
    }
    cursor.expect(",")?;
    let kind = match word {
        "partition_view" => ViewKind::Partition,
        "strided_view" => {
            key(cursor, "steps")?;
            let steps = cursor.list("[", "]", |c| c.integer())?;
            cursor.expect(",")?;
            ViewKind::Strided(SmallVec::from_vec(steps))
        }
        _ => {
            key(cursor, "axis")?;
            let axis = cursor.integer()?;
            cursor.expect(",")?;
            ViewKind::GatherScatter { axis }
        }
    };
    let mut padding = Padding::Undetermined;
    if cursor.eat_word("padding") {
        cursor.expect("=")?;
        padding = Padding::parse(cursor)?;
        cursor.expect(",")?;
    }
    if !cursor.eat_word("tensor_view") {
        return Err(cursor.unexpected("`tensor_view`"));
    }
    let tensor = tensor_view_body(cursor)?;
    let mut dim_map: SmallVec<[u32; 4]> = (0..tile.len() as u32).collect();
    if cursor.eat(",") {
        key(cursor, "dim_map")?;
        dim_map = SmallVec::from_vec(cursor.list("[", "]", |c| c.integer())?);
    }
    cursor.expect(">")?;
    Ok(TileViewType { kind, tile, dim_map, padding, tensor })
}

fn tensor_body(cursor: &mut Cursor<'_>) -> Parsed<TensorType> {
    cursor.expect("<")?;
    let axes = dims(cursor, |cursor| {
        if !cursor.peek("@") {
            return cursor.integer().map(Axis::Fixed);
        }
        // A bare symbol ends at the `x` that separates axes; one that holds an `x` is quoted.
        cursor.expect("@")?;
        if cursor.peek("\"") {
            return cursor.string().map(Axis::Symbol);
        }
        let rest = cursor.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_') || c == 'x').unwrap_or(rest.len());
        let symbol = &rest[..end];
        if symbol.is_empty() {
            return Err(cursor.unexpected("an axis name"));
        }
        cursor.skip(end);
        Ok(Axis::Symbol(symbol.to_string()))
    })?;
    let elem = cursor.dtype()?;
    cursor.expect(">")?;
    Ok(TensorType { axes: SmallVec::from_vec(axes), elem })
}

/// The words that an item may begin with, for messages.
fn openings(forms: &[Form]) -> String {
    let words =
        ["global", "graph", "schedule", "tile"].into_iter().chain(forms.iter().filter_map(|form| form.words.first().copied()));
    let quoted: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    let (last, others) = quoted.split_last().expect("there are four words");
    format!("{} or {last}", others.join(", "))
}

fn item(cursor: &mut Cursor<'_>, source: SourceId, module: &mut Module, forms: &[Form]) -> Parsed<()> {
    let start = cursor.offset();
    if cursor.eat_word("global") {
        let name = cursor.sigil('@')?.to_string();
        let shape = cursor.list("[", "]", |c| c.integer())?;
        cursor.expect("=")?;
        let value = Const::parse(cursor)?;
        module.globals.push(Global { name, value, shape: SmallVec::from_vec(shape) });
        return Ok(());
    }
    let word = cursor.word();
    let level = match word {
        Some("schedule") => Level::Schedule,
        Some("staged") => Level::Staged,
        Some("graph") => Level::Graph,
        Some("tile") => Level::Tile,
        _ => {
            let form = forms.iter().find(|form| word.is_some_and(|word| form.words.contains(&word)));
            let Some(form) = form else {
                let span = Span { source, start: start as u32, end: cursor.position() as u32 };
                return Err(Box::new(Diagnostic::error("ir-syntax", span, format!("expected {}", openings(forms)))));
            };
            let func = (form.function)(cursor)?;
            if module.func(&func.name).is_some() {
                return Err(Box::new(Diagnostic::error("ir-duplicate", func.span, format!("`@{}` is defined twice", func.name))));
            }
            module.funcs.push(func);
            return Ok(());
        }
    };
    let name = cursor.sigil('@')?;
    if module.func(name).is_some() {
        return Err(Box::new(Diagnostic::error("ir-duplicate", cursor.span_from(start), format!("`@{name}` is defined twice"))));
    }
    let mut func = Func::new(name, level, cursor.span_from(start));
    let body = func.body;
    let mut parser = FuncParser { cursor, func: &mut func, names: FxHashMap::default(), layouts: Vec::new(), depth: 0 };
    parser.block_args(body)?;
    parser.header()?;
    parser.ops(body)?;
    parser.plan()?;
    module.funcs.push(func);
    Ok(())
}

/// Reads a plan for a function that stands elsewhere: `source` is the place of the text.
///
/// # Errors
/// What is no plan, one for another function, and names that the function's text does not have.
pub fn parse_plan(source: SourceId, text: &str, func: &Func) -> Parsed<Plan> {
    let names = print::names(func);
    let mut cursor = Cursor::new(source, text);
    if !cursor.eat_word("plan") {
        return Err(cursor.unexpected("`plan @function { ... }`"));
    }
    let mut ahead = cursor.clone();
    let (start, of) = (ahead.offset(), ahead.sigil('@')?);
    same_function(of, &func.name, ahead.span_from(start))?;
    let (_, plan) = plan::parse(&mut cursor, |name| names.get(name).copied())?;
    if !cursor.at_end() {
        return Err(cursor.unexpected("the end of the plan"));
    }
    Ok(plan)
}

fn same_function(plan: &str, func: &str, span: Span) -> Parsed<()> {
    if plan == func {
        return Ok(());
    }
    Err(Box::new(Diagnostic::error("plan", span, format!("this is a plan for `{plan}`, the function is `{func}`"))))
}

struct FuncParser<'c, 'a> {
    cursor: &'c mut Cursor<'a>,
    func: &'c mut Func,
    names: FxHashMap<&'a str, Value>,
    layouts: Vec<&'a str>,
    depth: usize,
}

impl<'a> FuncParser<'_, 'a> {
    fn header(&mut self) -> Parsed<()> {
        if self.cursor.eat_word("abi") {
            self.func.abi = interface(self.cursor)?;
        }
        if self.cursor.eat_word("hints") {
            let hints = self.cursor.list("(", ")", |c| {
                let start = c.offset();
                let name = c.expect_word("a hint")?;
                let span = c.span_from(start);
                c.expect("=")?;
                Ok((name.to_string(), span, c.integer::<u32>()?))
            })?;
            for (name, span, value) in hints {
                if !self.func.hints.set(&name, value) {
                    return Err(Box::new(Diagnostic::error("ir-hint", span, format!("`{name}` is not a hint"))));
                }
            }
        }
        if self.cursor.eat_word("config") {
            let config = self.cursor.list("(", ")", |c| {
                let name = c.expect_word("a name")?.to_string();
                c.expect("=")?;
                Ok((name, c.integer::<i64>()?))
            })?;
            self.func.config = config.into_iter().collect();
        }
        for program in [Program::Whole, Program::Rank] {
            let start = self.cursor.offset();
            if self.cursor.eat_word(program.word()) {
                let axes = self.cursor.list("(", ")", |c| {
                    let name = c.expect_word("the name of a mesh axis")?.to_string();
                    c.expect("=")?;
                    Ok(MeshAxis { name, size: c.integer()? })
                })?;
                let span = self.cursor.span_from(start);
                self.func.mesh = Some(Mesh { axes: SmallVec::from_vec(axes), program, span });
            }
        }
        if self.cursor.eat_word("layouts") {
            let mut number = 0;
            self.layouts = self.cursor.list("(", ")", |c| {
                c.expect("#")?;
                if c.integer::<usize>()? != number {
                    return Err(c.unexpected("layouts in order: `#0`, `#1`, ... before"));
                }
                number += 1;
                c.expect("=")?;
                layout_text(c)
            })?;
        }
        Ok(())
    }

    fn define(&mut self, name: &'a str, value: Value, start: usize) -> Parsed<()> {
        if self.names.insert(name, value).is_some() {
            let span = self.cursor.span_from(start);
            return Err(Box::new(Diagnostic::error("ir-duplicate", span, format!("`%{name}` is defined twice"))));
        }
        if !name.starts_with(|c: char| c.is_ascii_digit()) {
            let base = match name.rsplit_once('.') {
                Some((base, digits)) if digits.bytes().all(|b| b.is_ascii_digit()) => base,
                _ => name,
            };
            self.func.values[value].name = Some(base.to_string());
        }
        Ok(())
    }

    fn block_args(&mut self, block: Block) -> Parsed<()> {
        self.cursor.expect("(")?;
        if self.cursor.eat(")") {
            return Ok(());
        }
        loop {
            let start = self.cursor.offset();
            let name = self.cursor.sigil('%')?;
            self.cursor.expect(":")?;
            let ty = parse_type(self.cursor, &self.layouts)?;
            let value = self.func.add_arg(block, ty, None);
            self.define(name, value, start)?;
            if block == self.func.body && self.cursor.peek("{") {
                self.sharding(value)?;
            }
            if self.cursor.eat(")") {
                return Ok(());
            }
            self.cursor.expect(",")?;
        }
    }

    /// `{sharding = "[_, tp]"}` behind an argument of the function.
    fn sharding(&mut self, arg: Value) -> Parsed<()> {
        let start = self.cursor.offset();
        self.cursor.expect("{")?;
        key(self.cursor, "sharding")?;
        let text = self.cursor.string()?;
        self.cursor.expect("}")?;
        let span = self.cursor.span_from(start);
        let rank = match self.func.ty(arg) {
            Type::Operand(tensor) => tensor.axes.len(),
            _ => 0,
        };
        let sharding = Sharding::parse(&text, rank).map_err(|message| {
            let help = "write one entry a dimension, such as `[_, tp]`";
            Box::new(Diagnostic::error("ir-sharding", span, message).help(help))
        })?;
        self.func.shardings.insert(arg, StatedSharding { sharding, span });
        Ok(())
    }

    /// The function's plan, where one stands behind it.
    fn plan(&mut self) -> Parsed<()> {
        if self.cursor.eat_word("plan") {
            let start = self.cursor.offset();
            let (of, plan) = plan::parse(self.cursor, |name| self.names.get(name).copied())?;
            same_function(of, &self.func.name, self.cursor.span_from(start))?;
            self.func.plan = Some(plan);
        }
        Ok(())
    }

    fn ops(&mut self, block: Block) -> Parsed<()> {
        self.cursor.expect("{")?;
        while !self.cursor.eat("}") {
            self.op(block)?;
        }
        Ok(())
    }

    fn used(&mut self) -> Parsed<Value> {
        let start = self.cursor.offset();
        let name = self.cursor.sigil('%')?;
        self.names.get(name).copied().ok_or_else(|| {
            Box::new(Diagnostic::error(
                "ir-unknown-value",
                self.cursor.span_from(start),
                format!("`%{name}` is not defined before"),
            ))
        })
    }

    /// One operation with its regions: `%r = mnemonic operands through %b {attributes} : types (regions)`.
    fn op(&mut self, block: Block) -> Parsed<()> {
        let start = self.cursor.offset();
        let result_names = self.result_names()?;
        let word_start = self.cursor.offset();
        let mnemonic = self.cursor.expect_word("an operation")?;
        let Some(row) = OpKind::find_row(mnemonic) else {
            let message = format!("`{mnemonic}` is not an operation");
            return Err(Box::new(Diagnostic::error("ir-unknown-op", self.cursor.span_from(word_start), message)));
        };
        let groups = self.operands(row)?;
        let through = if self.cursor.eat_word("through") { Some(self.used()?) } else { None };
        let attr_texts = self.attributes()?;
        let span = self.cursor.span_from(start);
        let kind = self.kind(mnemonic, attr_texts, span)?;
        let types = self.result_types()?;
        let wanted = match row.results {
            Results::None => Some(0),
            Results::One => Some(1),
            Results::Two => Some(2),
            Results::Many => None,
        };
        if types.len() != result_names.len() || wanted.is_some_and(|wanted| wanted != types.len()) {
            let wanted = wanted.map_or("any number of".to_string(), |n| n.to_string());
            let message = format!(
                "`{mnemonic}` has {wanted} results; {} are named and {} types are given",
                result_names.len(),
                types.len()
            );
            return Err(Box::new(Diagnostic::error("ir-results", self.cursor.span_from(start), message)));
        }
        let regions = self.regions(row, span)?;
        let group_slices: SmallVec<[&[Value]; 6]> = groups.iter().map(SmallVec::as_slice).collect();
        let op = self.func.make_op(kind, &group_slices, types, regions, span);
        self.func.ops[op].through = through;
        self.func.blocks[block].ops.push(op);
        for (position, (name, at)) in result_names.into_iter().enumerate() {
            let value = self.func.ops[op].results[position];
            self.define(name, value, at)?;
        }
        Ok(())
    }

    /// `%a, %b =`, each name with its place; nothing where an operation has no results.
    fn result_names(&mut self) -> Parsed<Vec<(&'a str, usize)>> {
        let mut names = Vec::new();
        if self.cursor.peek("%") {
            loop {
                let at = self.cursor.offset();
                names.push((self.cursor.sigil('%')?, at));
                if !self.cursor.eat(",") {
                    break;
                }
            }
            self.cursor.expect("=")?;
        }
        Ok(names)
    }

    /// Operands by the row's groups: `%one, [%of, %many], optional=%value`.
    fn operands(&mut self, row: &Row) -> Parsed<Vec<SmallVec<[Value; 4]>>> {
        let mut groups: Vec<SmallVec<[Value; 4]>> = Vec::new();
        let mut first = true;
        for spec in row.operands {
            let mut group = SmallVec::new();
            let mut ahead = self.cursor.clone();
            let separated = first || ahead.eat(",");
            match spec.kind {
                OperandKind::One | OperandKind::Many => {
                    if !first {
                        self.cursor.expect(",")?;
                    }
                    first = false;
                    if spec.kind == OperandKind::One {
                        group.push(self.used()?);
                    } else {
                        self.cursor.expect("[")?;
                        while !self.cursor.eat("]") {
                            if !group.is_empty() {
                                self.cursor.expect(",")?;
                            }
                            group.push(self.used()?);
                        }
                    }
                }
                OperandKind::Optional => {
                    if separated && ahead.eat_word(spec.name) && ahead.eat("=") {
                        *self.cursor = ahead;
                        first = false;
                        group.push(self.used()?);
                    }
                }
            }
            groups.push(group);
        }
        Ok(groups)
    }

    /// `{name = value, ..}`, values unread.
    fn attributes(&mut self) -> Parsed<IndexMap<&'a str, Cursor<'a>>> {
        let mut texts: IndexMap<&'a str, Cursor<'a>> = IndexMap::new();
        if self.cursor.eat("{") {
            while !self.cursor.eat("}") {
                if !texts.is_empty() {
                    self.cursor.expect(",")?;
                }
                let name = self.cursor.expect_word("an attribute")?;
                self.cursor.expect("=")?;
                texts.insert(name, self.cursor.clone());
                skip_attribute(self.cursor)?;
            }
        }
        Ok(texts)
    }

    /// The operation that a mnemonic and its attributes name.
    fn kind(&mut self, mnemonic: &str, texts: IndexMap<&'a str, Cursor<'a>>, span: Span) -> Parsed<OpKind> {
        let mut attrs = AttrTexts::new(texts, span);
        let kind = match OpKind::parse(mnemonic, &mut attrs) {
            Some(kind) => kind?,
            None => return Err(self.cursor.unexpected("an operation")),
        };
        if let Some(name) = attrs.left_over() {
            let message = format!("`{mnemonic}` has no attribute `{name}`");
            return Err(Box::new(Diagnostic::error("ir-attribute", span, message)));
        }
        Ok(kind)
    }

    /// `: type, type`, where there are results.
    fn result_types(&mut self) -> Parsed<Vec<Type>> {
        let mut types = Vec::new();
        if self.cursor.eat(":") {
            loop {
                types.push(parse_type(self.cursor, &self.layouts)?);
                if !self.cursor.eat(",") {
                    break;
                }
            }
        }
        Ok(types)
    }

    /// As many regions as the row has.
    fn regions(&mut self, row: &Row, span: Span) -> Parsed<SmallVec<[Block; 2]>> {
        let mut regions: SmallVec<[Block; 2]> = SmallVec::new();
        if row.regions > 0 {
            if self.depth >= MAX_DEPTH {
                return Err(Box::new(Diagnostic::error("ir-depth", span, "regions are nested too deeply")));
            }
            self.depth += 1;
            for _ in 0..row.regions {
                let region = self.func.new_block();
                self.block_args(region)?;
                self.ops(region)?;
                regions.push(region);
            }
            self.depth -= 1;
        }
        Ok(regions)
    }
}

/// The text of one layout: up to the bracket that closes its first one. What it says depends on the tile's shape.
fn layout_text<'a>(cursor: &mut Cursor<'a>) -> Parsed<&'a str> {
    let rest = cursor.rest();
    let mut open = 0usize;
    for (i, c) in rest.char_indices() {
        match c {
            '<' | '(' | '[' => open += 1,
            '>' | ')' | ']' => open = open.saturating_sub(1),
            _ => {}
        }
        if open == 0 {
            if !matches!(c, '>' | ')' | ']') || !rest.starts_with('<') {
                break;
            }
            cursor.skip(i + 1);
            return Ok(&rest[..=i]);
        }
    }
    Err(cursor.unexpected("a layout in angle brackets"))
}

/// Moves past an attribute's value: up to the `,` or `}` outside brackets and strings.
fn skip_attribute(cursor: &mut Cursor<'_>) -> Parsed<()> {
    let mut open = 0usize;
    loop {
        if cursor.peek("\"") {
            cursor.string()?;
            continue;
        }
        match cursor.rest().chars().next() {
            None => return Err(cursor.unexpected("`}`")),
            Some(',' | '}') if open == 0 => return Ok(()),
            Some('[' | '(') => open += 1,
            Some(']' | ')') => open = open.saturating_sub(1),
            Some(_) => {}
        }
        let length = cursor.rest().chars().next().map_or(0, char::len_utf8);
        cursor.skip(length);
    }
}
