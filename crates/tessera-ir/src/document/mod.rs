//! The form of the Tile IR document: functions over memrefs in memory spaces, with operations that change what a memref holds.
//!
//! ```text
//! func @product(%A: memref<64x64xbf16>, %B: memref<64x64xbf16, 3>) -> memref<64x64xf32, 5> attributes {num_warps = 4} {
//!   %a = tile.alloc_shared {swizzle = "xor"} : memref<64x64xbf16, 3>
//!   %sum = tile.alloc_register : memref<64x64xf32, 5>
//!   tile.cp_async %A, %a {bypass_l1 = true} : memref<64x64xbf16>, memref<64x64xbf16, 3>
//!   tile.cp_commit_group
//!   tile.cp_wait_group 0
//!   tile.barrier
//!   %r = tile.mma %a, %B, %sum {transpose_b = true} : memref<64x64xbf16, 3>, memref<64x64xbf16, 3>, memref<64x64xf32, 5> -> memref<64x64xf32, 5>
//!   return %r : memref<64x64xf32, 5>
//! }
//! ```
//!
//! There is no second IR: such a function is parsed into a Tile function, or, where it multiplies memrefs that are arrays of the
//! interface, into a Graph function over whole operands.
//!
//! | written | becomes |
//! |---|---|
//! | a parameter in global memory | an array of the interface, with a view |
//! | a parameter in shared memory or registers | an array that the block reads when it begins |
//! | a returned register memref | an array behind the parameters, called `result` |
//! | `index` | `i32` |
//!
//! Register memrefs begin as zeros. `docs/tile-ir-document.md` lists the operations and what the document's own examples needed.
//!
//! Invariant: whatever the text, the outcome is a function or one diagnostic with its place.

mod control;
mod emit;
mod memory;
mod memref;
mod slices;
mod syntax;
mod tiles;
mod values;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::abi::{AbiParam, IndexType, ParamKind};
use crate::attrs::GridAxis;
use crate::diag::{Diagnostic, Span};
use crate::document::emit::{Array, Bound, Emit, Shared, WithHelp};
use crate::document::memref::{Memref, Space, Ty, register};
use crate::document::slices::Slice;
use crate::document::syntax::{Attribute, Body, Function, Operand, Parameter, Statement};
use crate::func::{Func, Level, Value};
use crate::graph::GraphOp;
use crate::mesh::{Mesh, MeshAxis, Program, Sharding, StatedSharding};
use crate::schedule::ScheduleOp;
use crate::text::cursor::{Cursor, Parsed};
use crate::tile::TileOp;
use crate::types::{Elem, Extent, Shape, SharedType, TensorViewType, Type};
use tessera_types::DType;

/// The words that open a function of this form.
pub(crate) const WORDS: &[&str] = &["func", "func.func"];

/// Names that an operation has besides its own.
fn own_name(name: &str) -> &str {
    match name {
        "tile.wait_group" | "tile.async_wait" => "tile.cp_wait_group",
        "tile.commit_group" => "tile.cp_commit_group",
        "tile.copy_async" => "tile.cp_async",
        "tile.all_reduce" => "tile.allreduce",
        "tile.all_gather" => "tile.allgather",
        "func.return" => "return",
        name => name,
    }
}

/// Reads a function behind its first word.
pub(crate) fn function(cursor: &mut Cursor<'_>) -> Parsed<Func> {
    let mut written = syntax::function(cursor)?;
    rename(&mut written.body);
    let level = if multiplies_arrays(&written) { Level::Graph } else { Level::Tile };
    let mut func = Func::new(written.name.text, level, written.name.span);
    let body = func.body;
    let deep = deep_buffers(&written);
    let mut emit = Emit {
        func: &mut func,
        block: body,
        span: written.name.span,
        names: FxHashMap::default(),
        defined: Vec::new(),
        cells: Vec::new(),
        arrays: Vec::new(),
        deep,
    };
    emit.function(&written)?;
    Ok(func)
}

fn rename(statements: &mut [Statement<'_>]) {
    for statement in statements {
        statement.name.text = own_name(statement.name.text);
        match &mut *statement.body {
            Body::None => {}
            Body::For { body, .. } => rename(body),
            Body::If { then, orelse } => {
                rename(then);
                rename(orelse);
            }
        }
    }
}

/// Calls with every statement, those of regions included.
fn each<'s, 'a>(statements: &'s [Statement<'a>], visit: &mut impl FnMut(&'s Statement<'a>)) {
    for statement in statements {
        visit(statement);
        match &*statement.body {
            Body::None => {}
            Body::For { body, .. } => each(body, visit),
            Body::If { then, orelse } => {
                each(then, visit);
                each(orelse, visit);
            }
        }
    }
}

/// A product takes a parameter in global memory, whole.
fn multiplies_arrays(function: &Function<'_>) -> bool {
    let global = |name: &str| {
        function.parameters.iter().any(|parameter| {
            parameter.name.text == name && matches!(&parameter.ty, Ty::Memref(Memref { space: Space::Open | Space::Global, .. }))
        })
    };
    let mut found = false;
    each(&function.body, &mut |statement| {
        let takes =
            |operand: &Operand<'_>| matches!(operand, Operand::Value { name, lists } if lists.is_empty() && global(name.text));
        found |= statement.name.text == "tile.mma" && statement.operands.iter().take(2).any(takes);
    });
    found
}

/// Buffers that tiles of arrays with more axes are copied into, by name: how many axes more, and the tile's axes. A copy then names
/// the array itself, which the copy engine needs. Buffers that are used in two ways, or entries of which are chosen by something
/// other than `memref.subview`, are left alone.
fn deep_buffers<'a>(function: &Function<'a>) -> FxHashMap<&'a str, (usize, usize)> {
    let mut ranks: FxHashMap<&str, usize> = FxHashMap::default();
    for parameter in &function.parameters {
        if let Ty::Memref(memref) = &parameter.ty {
            ranks.insert(parameter.name.text, memref.shape.len());
        }
    }
    let (mut roots, mut buffers): (FxHashMap<&str, &'a str>, FxHashMap<&str, usize>) = Default::default();
    let mut found: FxHashMap<&'a str, Option<(usize, usize)>> = FxHashMap::default();
    each(&function.body, &mut |statement| {
        let result = statement.results.first().map(|name| name.text);
        let named = |position: usize| match statement.operands.get(position) {
            Some(Operand::Value { name, .. }) => Some(name.text),
            _ => None,
        };
        let stated = |types: &[(Ty, crate::diag::Span)]| match types.first() {
            Some((Ty::Memref(memref), _)) => Some(memref.shape.len()),
            _ => None,
        };
        match (statement.name.text, result) {
            ("tile.alloc_shared", Some(result)) => {
                roots.insert(result, result);
                buffers.insert(result, stated(&statement.types).unwrap_or(0));
            }
            ("memref.subview", Some(result)) => {
                let Some(source) = named(0) else { return };
                if let Some(&rank) = ranks.get(source) {
                    ranks.insert(result, rank);
                }
                if let Some(&root) = roots.get(source) {
                    roots.insert(result, root);
                    buffers.insert(result, stated(&statement.result_types).unwrap_or(0));
                }
            }
            ("tile.cp_async", _) => {
                let (Some(from), Some(to)) = (named(0), named(1)) else { return };
                let (Some(&rank), Some(&root), Some(&axes)) = (ranks.get(from), roots.get(to), buffers.get(to)) else { return };
                let wanted = (rank > axes && axes > 0).then(|| (rank - axes, axes));
                let entry = found.entry(root).or_insert(wanted);
                if *entry != wanted {
                    *entry = None;
                }
            }
            _ => {
                // An entry of leading axes is taken by a subview only.
                for operand in &statement.operands {
                    if let Operand::Value { name, .. } = operand
                        && let (Some(&root), Some(&axes)) = (roots.get(name.text), buffers.get(name.text))
                        && root == name.text
                        && found.get(root).is_none_or(|wanted| wanted.is_none_or(|(_, tile)| tile != axes))
                        && axes > 2
                    {
                        found.insert(root, None);
                    }
                }
            }
        }
    });
    let mut deep = FxHashMap::default();
    for name in function_names(function) {
        if let Some(Some(wanted)) = found.get(name) {
            deep.insert(name, *wanted);
        }
    }
    deep
}

/// Every name that a statement gives its first result.
fn function_names<'a>(function: &Function<'a>) -> Vec<&'a str> {
    let mut names = Vec::new();
    each(&function.body, &mut |statement| names.extend(statement.results.first().map(|name| name.text)));
    names
}

impl<'a> Emit<'a, '_> {
    fn function(&mut self, written: &Function<'a>) -> Parsed<()> {
        self.attributes("func", &written.attributes, if self.is_graph() { &["mesh"] } else { &["num_warps"] })?;
        if self.is_graph() {
            self.mesh(written)?;
        } else {
            let warps = match self.number(&written.attributes, "num_warps")? {
                Some(warps) => u32::try_from(warps)
                    .ok()
                    .filter(|warps| (1..=32).contains(warps))
                    .ok_or_else(|| self.error("ir-hint", format!("a block has 1 to 32 warps, not {warps}")))?,
                None => usual_warps(written),
            };
            self.func.hints.num_warps = Some(warps);
        }
        let mut resident = Vec::new();
        for parameter in &written.parameters {
            self.span = parameter.name.span;
            self.parameter(parameter, &mut resident)?;
        }
        let outputs = self.outputs(written)?;
        for &(parameter, array) in &resident {
            self.span = parameter.name.span;
            self.read_in(parameter, array)?;
        }
        if resident.iter().any(|(parameter, _)| matches!(&parameter.ty, Ty::Memref(memref) if memref.space == Space::Shared)) {
            self.op(TileOp::Barrier {}, &[], []);
        }
        let Some((last, body)) = written.body.split_last().filter(|(last, _)| last.name.text == "return") else {
            return Err(Box::new(
                Diagnostic::error("ir-terminator", written.name.span, "the function does not end with `return`")
                    .help("write `return` at its end"),
            ));
        };
        self.statements(body)?;
        self.span = last.span;
        if last.operands.len() != outputs.len() {
            let message = format!("{} values are returned, the function has {} results", last.operands.len(), outputs.len());
            return Err(self.error("ir-results", message));
        }
        for (operand, output) in last.operands.iter().zip(outputs) {
            self.hand_out(operand, &output)?;
        }
        self.op(ScheduleOp::Return {}, &[], []);
        Ok(())
    }

    // The interface

    /// The mesh that shardings name: `attributes {mesh = "data=2, tensor_parallel=4"}`. An axis that is named by shardings alone has
    /// two ranks.
    fn mesh(&mut self, written: &Function<'a>) -> Parsed<()> {
        let mut axes: SmallVec<[MeshAxis; 2]> = SmallVec::new();
        let stated = written.attributes.iter().find(|(key, _)| key.text == "mesh");
        if let Some((key, value)) = stated {
            let wrong = || {
                let message = "a mesh names its axes with their numbers of ranks";
                Box::new(Diagnostic::error("ir-mesh", key.span, message).help("write `mesh = \"tensor_parallel=4\"`"))
            };
            let Attribute::Text(text) = value else { return Err(wrong()) };
            for entry in text.split(',') {
                let (name, size) = entry.split_once('=').ok_or_else(wrong)?;
                let size = size.trim().parse::<u32>().ok().filter(|&size| size > 0).ok_or_else(wrong)?;
                axes.push(MeshAxis { name: name.trim().to_string(), size });
            }
        } else {
            for parameter in &written.parameters {
                let (Ty::Memref(memref), Some((_, text))) = (&parameter.ty, sharding(parameter)) else { continue };
                let Ok(sharding) = Sharding::parse(text, memref.shape.len()) else { continue };
                for name in sharding.dims.into_iter().flatten() {
                    if axes.iter().all(|axis| axis.name != name) {
                        axes.push(MeshAxis { name, size: 2 });
                    }
                }
            }
        }
        if !axes.is_empty() {
            let span = stated.map_or(written.name.span, |(key, _)| key.span);
            self.func.mesh = Some(Mesh { axes, program: Program::Whole, span });
        }
        Ok(())
    }

    fn parameter<'w>(&mut self, parameter: &'w Parameter<'a>, resident: &mut Vec<(&'w Parameter<'a>, usize)>) -> Parsed<()> {
        let name = parameter.name.text;
        match &parameter.ty {
            Ty::Scalar(dtype) => {
                self.attributes(name, &parameter.attributes, &[])?;
                self.func.abi.params.push(AbiParam { name: name.to_string(), kind: ParamKind::Scalar { dtype: *dtype } });
                let ty = Type::Tile(crate::types::TileType { shape: Shape::new(), elem: Elem::signless(*dtype) });
                let value = self.func.add_arg(self.func.body, ty, None);
                self.define(parameter.name, Bound::Scalar(value))
            }
            Ty::Memref(memref) if self.is_graph() => {
                self.attributes(name, &parameter.attributes, &["align", "sharding"])?;
                if !matches!(memref.space, Space::Open | Space::Global) {
                    let message = format!("`{memref}` is no operand of a program on whole operands");
                    return Err(self.error("document-level", message).help_boxed("leave the memory space out"));
                }
                let value = self.operand_parameter(name, memref)?;
                if let Some((key, text)) = sharding(parameter) {
                    let sharding = Sharding::parse(text, memref.shape.len()).map_err(|message| {
                        let help = "write one entry a dimension, such as `\"[_, tensor_parallel]\"`";
                        Box::new(Diagnostic::error("ir-sharding", key, message).help(help))
                    })?;
                    self.func.shardings.insert(value, StatedSharding { sharding, span: key });
                }
                self.define(parameter.name, Bound::Operand(value))
            }
            Ty::Memref(memref) => {
                if let Some((key, _)) = sharding(parameter) {
                    let message = format!("`%{name}` is no whole operand: it is read in parts by this function's blocks");
                    let help = "only operands that `tile.mma` multiplies whole are sharded";
                    return Err(Box::new(Diagnostic::error("ir-sharding", key, message).help(help)));
                }
                self.attributes(name, &parameter.attributes, &["align", "disjoint"])?;
                let align = self.number(&parameter.attributes, "align")?;
                let disjoint = self.flag(&parameter.attributes, "disjoint")?.unwrap_or(false);
                let array = self.array(name, memref, align, disjoint)?;
                if matches!(memref.space, Space::Open | Space::Global) {
                    return self.define(parameter.name, Bound::Slice(Slice::whole(array, memref.shape.len())));
                }
                resident.push((parameter, array));
                Ok(())
            }
        }
    }

    fn operand_parameter(&mut self, name: &str, memref: &Memref) -> Parsed<Value> {
        let Some(tile) = memref.tile().filter(|tile| !tile.shape.is_empty()) else {
            return Err(self
                .error("document-type", format!("`{memref}`: the extents of a whole operand must be known"))
                .help_boxed("write numbers instead of `?`"));
        };
        let axes = tile.shape.iter().map(u32::to_string).collect();
        let ty = self.operand_type(&tile);
        let value = self.func.add_arg(self.func.body, ty, Some(name));
        self.func.abi.params.push(AbiParam { name: name.to_string(), kind: ParamKind::Operand { dtype: memref.elem, axes } });
        Ok(value)
    }

    /// An array of the interface in row-major order: its arguments and its view.
    fn array(&mut self, name: &str, memref: &Memref, align: Option<i64>, disjoint: bool) -> Parsed<usize> {
        let Elem::Num(elem) = Elem::signless(memref.elem) else { return Err(self.error("document-type", "no array of numbers")) };
        let rank = memref.shape.len();
        if rank == 0 || rank > 12 {
            return Err(self.error("document-type", format!("`{memref}`: an array has 1 to 12 axes")));
        }
        let mut strides: SmallVec<[Extent; 4]> = SmallVec::from_elem(Extent::Static(1), rank);
        for axis in (0..rank - 1).rev() {
            strides[axis] = match (strides[axis + 1], memref.shape[axis + 1]) {
                (Extent::Static(stride), Extent::Static(size)) => {
                    Extent::Static(stride.checked_mul(size).filter(|&stride| stride <= 1 << 31).ok_or_else(|| {
                        self.error("document-type", format!("`{memref}` has more elements than an index counts"))
                    })?)
                }
                _ => Extent::Dynamic,
            };
        }
        let align = match align {
            Some(align) => u32::try_from(align)
                .ok()
                .filter(|align| align.is_power_of_two() && *align <= 128)
                .ok_or_else(|| self.error("ir-attribute", "an alignment is a power of two up to 128"))?,
            None => match memref.shape[rank - 1] {
                // What divides a line of known length divides every stride.
                Extent::Static(size) => {
                    let bits = (size as u64).saturating_mul(u64::from(memref.elem.bits()));
                    (1 << (bits / 8).trailing_zeros().min(4)).max(1)
                }
                Extent::Dynamic => (memref.elem.bits() / 8).max(1),
            },
        };
        let kind = ParamKind::Array {
            dtype: memref.elem,
            shape: memref.shape.clone(),
            strides: strides.clone(),
            index: IndexType::I32,
            align,
            disjoint,
        };
        self.func.abi.params.push(AbiParam { name: name.to_string(), kind });
        let body = self.func.body;
        let base = self.func.add_arg(body, Type::pointers(Shape::new(), elem), Some(name));
        let index = Type::scalar(DType::I32);
        let sizes: SmallVec<[Value; 4]> = (0..rank).map(|_| self.func.add_arg(body, index.clone(), None)).collect();
        let steps: SmallVec<[Value; 4]> = (0..rank).map(|_| self.func.add_arg(body, index.clone(), None)).collect();
        let open = |extents: &[Extent], values: &[Value]| -> Vec<Value> {
            extents.iter().zip(values).filter(|(extent, _)| **extent == Extent::Dynamic).map(|(_, &value)| value).collect()
        };
        let (open_sizes, open_steps) = (open(&memref.shape, &sizes), open(&strides, &steps));
        let ty = TensorViewType { elem, shape: memref.shape.clone(), strides };
        let view = self.value(
            ScheduleOp::MakeTensorView {},
            &[&[base], &open_sizes, &open_steps],
            Type::TensorView(Box::new(ty.clone())),
        );
        self.arrays.push(Array { base, sizes, strides: steps, ty, view });
        Ok(self.arrays.len() - 1)
    }

    /// The arrays that results are written to.
    fn outputs(&mut self, written: &Function<'a>) -> Parsed<Vec<Bound>> {
        let mut outputs = Vec::new();
        for (position, (ty, span)) in written.results.iter().enumerate() {
            self.span = *span;
            let Ty::Memref(memref) = ty else {
                return Err(self.error("document-type", "a kernel returns register memrefs, not numbers"));
            };
            let mut name = if written.results.len() == 1 { "result".to_string() } else { format!("result{position}") };
            while written.parameters.iter().any(|parameter| parameter.name.text == name) {
                name.push('_');
            }
            outputs.push(if self.is_graph() {
                Bound::Operand(self.operand_parameter(&name, memref)?)
            } else {
                if memref.static_shape().is_none() || memref.space == Space::Shared {
                    let message = format!("`{memref}`: a result is a tile of known extents");
                    return Err(self.error("document-type", message));
                }
                let array = self.array(&name, memref, None, false)?;
                Bound::Slice(Slice::whole(array, memref.shape.len()))
            });
        }
        Ok(outputs)
    }

    /// A parameter in shared memory or registers: the block reads it from its array.
    fn read_in(&mut self, parameter: &Parameter<'a>, array: usize) -> Parsed<()> {
        let Ty::Memref(memref) = &parameter.ty else { return Ok(()) };
        let Some(tile) = memref.tile() else {
            return Err(self.error("document-type", format!("`{memref}` must have known extents")));
        };
        let slice = Slice::whole(array, tile.shape.len());
        let value = self.load_tile(&slice, &tile)?;
        if memref.space == Space::Register {
            let cell = self.cell(tile, value);
            return self.define(parameter.name, cell);
        }
        let ty = SharedType::new(tile.shape.clone(), tile.elem.num().unwrap_or(DType::F32));
        let buffer = self.value(TileOp::AllocShared { align: 128, offset: None }, &[], Type::Shared(Box::new(ty)));
        self.op(TileOp::StoreShared {}, &[&[value], &[buffer]], []);
        self.define(parameter.name, Bound::Shared(Shared { value: buffer, deep: None }))
    }

    /// Writes a returned value to its array.
    fn hand_out(&mut self, operand: &Operand<'a>, output: &Bound) -> Parsed<()> {
        let (value, tile) = self.tile_of(operand)?;
        match output {
            Bound::Slice(slice) => {
                let wanted = self.arrays[slice.array].ty.clone();
                let same = wanted.shape.iter().eq(tile
                    .shape
                    .iter()
                    .map(|&extent| Extent::Static(i64::from(extent)))
                    .collect::<Vec<_>>()
                    .iter());
                if !same {
                    let message = format!("`{}` is returned where `{wanted}` is declared", register(&tile));
                    return Err(self.error("document-type", message));
                }
                self.store_tile(value, &tile, &slice.clone())
            }
            Bound::Operand(operand) => {
                let fits = match (self.func.ty(*operand), self.func.ty(value)) {
                    (Type::Operand(operand), Type::Tensor(tensor)) => operand == tensor,
                    _ => false,
                };
                if !fits {
                    let message = format!("`{}` is returned where another type is declared", register(&tile));
                    return Err(self.error("document-type", message));
                }
                self.op(GraphOp::Store {}, &[&[value], &[*operand]], []);
                Ok(())
            }
            _ => Err(self.error("document-type", "this cannot be returned")),
        }
    }

    // Statements

    fn statements(&mut self, statements: &[Statement<'a>]) -> Parsed<()> {
        for statement in statements {
            self.span = statement.span;
            self.statement(statement)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement<'a>) -> Parsed<()> {
        if self.control(statement)? {
            return Ok(());
        }
        match (self.call(statement)?, statement.results.as_slice()) {
            (Some(bound), [name]) => self.define(*name, bound),
            (None, []) | (Some(_), []) => Ok(()),
            (Some(_), names) => {
                Err(self.error("ir-results", format!("`{}` has one result, {} are named", statement.name.text, names.len())))
            }
            (None, _) => Err(self.error("ir-results", format!("`{}` has no result", statement.name.text))),
        }
    }

    /// Runs one operation; what it yields, if it yields anything.
    pub(crate) fn call(&mut self, statement: &Statement<'a>) -> Parsed<Option<Bound>> {
        let span = std::mem::replace(&mut self.span, statement.span);
        let result = self.operation(statement);
        self.span = span;
        result
    }

    fn operation(&mut self, statement: &Statement<'a>) -> Parsed<Option<Bound>> {
        let name = own_name(statement.name.text);
        if let Some(bound) = self.arith(statement)? {
            return Ok(Some(bound));
        }
        if self.is_graph() && !matches!(name, "tile.alloc_register" | "tile.copy" | "memref.dim") && self.memory_only(name) {
            let message = format!("`{name}` is about a block's threads, and this function multiplies whole operands");
            return Err(self
                .error("document-level", message)
                .help_boxed("copy tiles to shared memory and multiply those, or leave it out"));
        }
        if let Some(bound) = self.identity(statement)? {
            return Ok(Some(bound));
        }
        let bound = match name {
            "memref.dim" => Some(self.dim(statement)?),
            "memref.subview" => Some(self.subview(statement)?),
            "tile.alloc_shared" => Some(self.alloc_shared(statement)?),
            "tile.alloc_register" => Some(self.alloc_register(statement)?),
            "tile.load_shared" => Some(self.load_shared(statement)?),
            "tile.load_global" => Some(self.load_global(statement)?),
            "tile.store_shared" => {
                self.store_shared(statement)?;
                None
            }
            "tile.store_global" => {
                self.store_global(statement)?;
                None
            }
            "tile.copy" => {
                self.copy(statement)?;
                None
            }
            "tile.cp_async" => {
                self.cp_async(statement)?;
                None
            }
            "tile.cp_wait_group" => {
                self.wait_group(statement)?;
                None
            }
            "tile.cp_commit_group" | "tile.barrier" => {
                self.at_most(statement, 0)?;
                self.attributes(name, &statement.attributes, &[])?;
                self.op(if name == "tile.barrier" { TileOp::Barrier {} } else { TileOp::CommitGroup {} }, &[], []);
                None
            }
            _ if self.changes(statement)? => None,
            _ => match self.tiles(statement)? {
                Some(bound) => Some(bound),
                None => return Err(self.unknown(statement)),
            },
        };
        Ok(bound)
    }

    /// Operations that a program on whole operands does not have.
    fn memory_only(&self, name: &str) -> bool {
        matches!(
            name,
            "memref.subview"
                | "tile.alloc_shared"
                | "tile.load_shared"
                | "tile.store_shared"
                | "tile.load_global"
                | "tile.store_global"
                | "tile.cp_async"
                | "tile.cp_wait_group"
                | "tile.cp_commit_group"
                | "tile.barrier"
                | "tile.thread_id"
                | "tile.lane_id"
                | "tile.warp_id"
                | "tile.block_id"
                | "tile.num_blocks"
        )
    }

    /// Numbers of threads, warps and blocks.
    fn identity(&mut self, statement: &Statement<'a>) -> Parsed<Option<Bound>> {
        let name = statement.name.text;
        let kind: crate::op::OpKind = match name {
            "tile.thread_id" => TileOp::ThreadId {}.into(),
            "tile.lane_id" => TileOp::LaneId {}.into(),
            "tile.warp_id" => TileOp::WarpId {}.into(),
            "tile.block_id" | "tile.num_blocks" => {
                let axis = self.choice(&statement.attributes, "axis", &["x", "y", "z"])?.unwrap_or(0);
                let axis = GridAxis::from_index(axis).unwrap_or(GridAxis::X);
                match name {
                    "tile.block_id" => ScheduleOp::GetTileBlockId { axis }.into(),
                    _ => ScheduleOp::GetNumTileBlocks { axis }.into(),
                }
            }
            _ => return Ok(None),
        };
        self.at_most(statement, 0)?;
        self.attributes(
            name,
            &statement.attributes,
            if name.ends_with("block_id") || name.ends_with("num_blocks") { &["axis"] } else { &[] },
        )?;
        let value = self.value(kind, &[], Type::scalar(DType::I32));
        Ok(Some(Bound::Scalar(value)))
    }

    fn unknown(&self, statement: &Statement<'a>) -> Box<Diagnostic> {
        let name = statement.name.text;
        let found = Diagnostic::error("ir-unknown-op", statement.name.span, format!("`{name}` is not an operation of this form"));
        let help = match name {
            "tile.allreduce" | "tile.allgather" | "tile.reduce_scatter" | "tile.all_to_all" => {
                "collectives are inserted where sharded operands need them: shard the parameters of a product of whole operands"
            }
            "scf.yield" => "`scf.yield` ends a region",
            "return" => "`return` ends the function",
            name if name.starts_with("tile.") => {
                "operations on tiles are `tile.mma`, `tile.fill`, `tile.copy`, `tile.cp_async`, `tile.load_shared`, `tile.row_max` and others"
            }
            _ => "operations are those of `tile`, `arith`, `math`, `memref` and `scf` that the reference lists",
        };
        Box::new(found.help(help))
    }
}

/// What a parameter says of its sharding, and where.
fn sharding<'w>(parameter: &'w Parameter<'_>) -> Option<(Span, &'w str)> {
    parameter.attributes.iter().find_map(|(key, value)| match value {
        Attribute::Text(text) if key.text == "sharding" => Some((key.span, text.as_str())),
        Attribute::Word(text) if key.text == "sharding" => Some((key.span, *text)),
        _ => None,
    })
}

/// How many warps a function gets that names no number: enough for 256 elements of its largest register memref each, four at most.
fn usual_warps(function: &Function<'_>) -> u32 {
    let mut largest = 0u64;
    let mut note = |ty: &Ty| {
        if let Ty::Memref(memref) = ty
            && memref.space == Space::Register
            && let Some(shape) = memref.static_shape()
        {
            largest = largest.max(shape.iter().map(|&extent| u64::from(extent)).product());
        }
    };
    function.parameters.iter().for_each(|parameter| note(&parameter.ty));
    each(&function.body, &mut |statement| {
        statement.types.iter().chain(&statement.result_types).for_each(|(ty, _)| note(ty));
    });
    match largest {
        0 => 4,
        elements => (elements / 256).clamp(1, 4).next_power_of_two() as u32,
    }
}
