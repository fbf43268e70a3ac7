//! The function under construction: what names stand for, and how values are made at either level.
//!
//! Invariant: a register memref is a *cell* whose contents are an SSA value at every point of the text; nothing of it but these
//! values reaches the function. Every tile of one shape has one layout, a blocked one: the text says nothing of layouts.

use std::ops::{Deref, DerefMut};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::attrs::{Combine, Overflow, ReduceOrder};
use tessera_ir::text::cursor::Parsed;
use tessera_ir::{
    Axis, Block, Builder, Const, Diagnostic, Elem, GraphOp, Level, ScheduleOp, Shape, TensorType, TensorViewType, TileType, Type,
    Value,
};
use tessera_layout::Distribution;
use tessera_types::DType;

use crate::memref::{Memref, register};
use crate::slices::Slice;
use crate::syntax::{Attribute, Attributes, Operand, Statement, Word};

/// An array of the kernel's interface.
#[derive(Clone, Debug)]
pub(super) struct Array {
    pub(super) base: Value,
    pub(super) sizes: SmallVec<[Value; 4]>,
    pub(super) strides: SmallVec<[Value; 4]>,
    pub(super) ty: TensorViewType,
    /// The whole of it.
    pub(super) view: Value,
}

/// A buffer in shared memory.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) value: Value,
    /// The same memory with that many axes of extent 1 before the tile's: how copies from arrays of more axes name it.
    pub(super) deep: Option<(Value, usize)>,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    /// A number.
    Scalar(Value),
    /// A register memref.
    Cell(usize),
    /// A buffer.
    Shared(Shared),
    /// An array, or a part of one.
    Slice(Slice),
    /// A whole operand.
    Operand(Value),
}

/// A register memref: what it holds here.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) tile: TileType,
    pub(super) value: Value,
}

/// Builds one function.
pub(super) struct Emit<'a, 'f> {
    /// Where operations go.
    pub(super) at: Builder<'f>,
    pub(super) names: FxHashMap<&'a str, Bound>,
    /// Names in the order of their definition, so that a region's can be forgotten.
    pub(super) defined: Vec<&'a str>,
    pub(super) cells: Vec<Cell>,
    pub(super) arrays: Vec<Array>,
    /// Buffers that tiles of arrays with more axes are copied into: how many more, and of how many axes the tile is.
    pub(super) deep: FxHashMap<&'a str, (usize, usize)>,
}

impl<'f> Deref for Emit<'_, 'f> {
    type Target = Builder<'f>;

    fn deref(&self) -> &Builder<'f> {
        &self.at
    }
}

impl<'f> DerefMut for Emit<'_, 'f> {
    fn deref_mut(&mut self) -> &mut Builder<'f> {
        &mut self.at
    }
}

impl<'a> Emit<'a, '_> {
    pub(super) fn error(&self, id: &'static str, message: impl Into<String>) -> Box<Diagnostic> {
        Box::new(Diagnostic::error(id, self.span, message))
    }

    pub(super) fn is_graph(&self) -> bool {
        self.func.level == Level::Graph
    }

    // Names

    pub(super) fn define(&mut self, name: Word<'a>, bound: Bound) -> Parsed<()> {
        let value = match &bound {
            Bound::Scalar(value) => Some(*value),
            Bound::Cell(cell) => Some(self.cells[*cell].value),
            Bound::Shared(shared) => Some(shared.value),
            Bound::Slice(_) | Bound::Operand(_) => None,
        };
        if let Some(data) = value.map(|value| &mut self.func.values[value])
            && data.name.is_none()
            && name.text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        {
            data.name = Some(name.text.to_string());
        }
        if self.names.insert(name.text, bound).is_some() {
            let help = "a name is defined once: write `tile.copy` to change what a register memref holds";
            let message = format!("`%{}` is defined twice", name.text);
            return Err(Box::new(Diagnostic::error("ir-duplicate", name.span, message).help(help)));
        }
        self.defined.push(name.text);
        Ok(())
    }

    /// Forgets what was defined since there were `count` names.
    pub(super) fn forget(&mut self, count: usize) {
        for name in self.defined.drain(count..) {
            self.names.remove(name);
        }
    }

    pub(super) fn look_up(&self, name: Word<'a>) -> Parsed<&Bound> {
        self.names.get(name.text).ok_or_else(|| {
            let found = Diagnostic::error("ir-unknown-value", name.span, format!("`%{}` is not defined before", name.text));
            let constant = name.text.strip_prefix('c').filter(|digits| digits.parse::<i64>().is_ok());
            let way_out = match (constant, name.text) {
                (Some(digits), _) => format!("write `%c{digits} = arith.constant {digits} : index` before"),
                (None, "thread_id" | "warp_id" | "block_id" | "lane_id") => {
                    format!("write `%{} = tile.{} : index` before", name.text, name.text)
                }
                _ => "every name stands for a parameter or the result of an operation before".to_string(),
            };
            Box::new(found.help(way_out))
        })
    }

    /// A new cell.
    pub(super) fn cell(&mut self, tile: TileType, value: Value) -> Bound {
        self.cells.push(Cell { tile, value });
        Bound::Cell(self.cells.len() - 1)
    }

    // Operations

    /// Works in another block.
    pub(super) fn inside<T>(&mut self, block: Block, work: impl FnOnce(&mut Self) -> T) -> T {
        let outside = std::mem::replace(&mut self.block, block);
        let result = work(self);
        self.block = outside;
        result
    }

    // Tiles

    /// The type of a tile at this level. A tile of one axis is a column among whole operands, since reductions keep their axis.
    pub(super) fn tile_type(&self, tile: &TileType) -> Parsed<Type> {
        if tile.shape.is_empty() {
            return Ok(Type::Tile(tile.clone()));
        }
        if self.is_graph() {
            let mut axes: SmallVec<[Axis; 4]> = tile.shape.iter().map(|&extent| Axis::Fixed(extent)).collect();
            if axes.len() == 1 {
                axes.push(Axis::Fixed(1));
            }
            let elem = tile.elem.num().unwrap_or(DType::I32);
            return Ok(Type::Tensor(Box::new(TensorType { axes, elem })));
        }
        Ok(Type::distributed(tile.clone(), &self.layout(&tile.shape)?))
    }

    /// The layout of every tile of a shape: rows after each other, four neighbours a thread.
    pub(super) fn layout(&self, shape: &[u32]) -> Parsed<Distribution> {
        let extents: Vec<u64> = shape.iter().map(|&extent| u64::from(extent)).collect();
        let elements = extents.iter().try_fold(1u64, |count, &extent| count.checked_mul(extent)).unwrap_or(u64::MAX);
        if elements > 1 << 26 {
            let message = format!("a tile of {shape:?} has more elements than a block can hold");
            return Err(self.error("document-type", message));
        }
        let order: Vec<usize> = (0..extents.len()).rev().collect();
        let threads = 32 * u64::from(self.func.hints.num_warps.unwrap_or(4));
        Distribution::blocked(&extents, &order, (elements / threads).clamp(1, 4), threads)
            .map_err(|error| self.error("document-type", format!("no layout over the block's threads: {error}")))
    }

    pub(super) fn constant(&mut self, value: Const, shape: &[u32]) -> Parsed<Value> {
        if self.is_graph() && !shape.is_empty() {
            let scalar = self.constant(value, &[])?;
            return self.splat(scalar, shape);
        }
        let tile = TileType { shape: shape.into(), elem: Elem::Num(value.dtype) };
        let ty = self.tile_type(&tile)?;
        Ok(self.value(ScheduleOp::Constant { value }, &[], ty))
    }

    pub(super) fn index(&mut self, value: i64) -> Value {
        let ty = Type::scalar(DType::I32);
        self.value(ScheduleOp::Constant { value: Const::int(DType::I32, value) }, &[], ty)
    }

    /// A number in every element of a tile.
    pub(super) fn splat(&mut self, scalar: Value, shape: &[u32]) -> Parsed<Value> {
        let elem = self.func.ty(scalar).as_tile().map_or(Elem::Num(DType::I32), |tile| tile.elem);
        let ty = self.tile_type(&TileType { shape: shape.into(), elem })?;
        if shape.is_empty() {
            return Ok(scalar);
        }
        if self.is_graph() {
            return Ok(self.value(GraphOp::Broadcast {}, &[&[scalar]], ty));
        }
        if let Some(value) = self.func.constant(scalar).cloned() {
            return Ok(self.value(ScheduleOp::Constant { value }, &[], ty));
        }
        let ones: Shape = shape.iter().map(|_| 1).collect();
        let one = self.tile_type(&TileType { shape: ones, elem })?;
        let one = self.value(ScheduleOp::Reshape {}, &[&[scalar]], one);
        Ok(self.value(ScheduleOp::Broadcast {}, &[&[one]], ty))
    }

    /// A tile of one axis less, repeated along the axis that it lacks.
    pub(super) fn spread(&mut self, value: Value, from: &TileType, to: &[u32], axis: usize) -> Parsed<Value> {
        let mut ones = from.shape.clone();
        ones.insert(axis.min(ones.len()), 1);
        let ty = self.tile_type(&TileType { shape: to.into(), elem: from.elem })?;
        if self.is_graph() {
            return Ok(self.value(GraphOp::Broadcast {}, &[&[value]], ty));
        }
        let one = self.tile_type(&TileType { shape: ones, elem: from.elem })?;
        let one = self.value(ScheduleOp::Reshape {}, &[&[value]], one);
        Ok(self.value(ScheduleOp::Broadcast {}, &[&[one]], ty))
    }

    /// Combines along an axis, which goes.
    pub(super) fn reduce(&mut self, value: Value, tile: &TileType, axis: usize, combine: Combine) -> Parsed<(Value, TileType)> {
        let mut reduced = tile.clone();
        reduced.shape.remove(axis);
        let ty = self.tile_type(&reduced)?;
        let dtype = tile.elem.num().unwrap_or(DType::F32);
        if self.is_graph() {
            if tile.shape.len() != 2 || axis != 1 {
                return Err(self.error("document-level", "whole operands are reduced along their last axis of two here"));
            }
            return Ok((self.value(GraphOp::Reduce { axis: axis as u32, combine }, &[&[value]], ty), reduced));
        }
        let identity = Const::neutral(combine, dtype);
        let region = self.func.new_block();
        let scalar = Type::scalar(dtype);
        let element = self.func.add_arg(region, scalar.clone(), None);
        let running = self.func.add_arg(region, scalar.clone(), None);
        self.inside(region, |emit| {
            let kind = combination(combine, dtype);
            let combined = emit.same(kind, &[running, element]);
            emit.op(ScheduleOp::Yield {}, &[&[combined]], []);
        });
        let kind = ScheduleOp::Reduce { dim: axis as u32, identities: vec![identity], order: ReduceOrder::Free };
        let op = self.op_with_regions(kind, &[&[value]], [ty], [region]);
        Ok((self.func.ops[op].result(), reduced))
    }

    // Operands

    /// The operand at a position.
    pub(super) fn operand<'s>(&self, statement: &'s Statement<'a>, position: usize) -> Parsed<&'s Operand<'a>> {
        statement.operands.get(position).ok_or_else(|| {
            let message = format!("`{}` has {} operands, one more is needed", statement.name.text, statement.operands.len());
            Box::new(Diagnostic::error("document-operands", statement.span, message))
        })
    }

    /// Refuses operands beyond `most`, and indices where none belong.
    pub(super) fn at_most(&self, statement: &Statement<'a>, most: usize) -> Parsed<()> {
        if statement.operands.len() > most {
            let message = format!("`{}` takes {most} operands, not {}", statement.name.text, statement.operands.len());
            return Err(Box::new(Diagnostic::error("document-operands", statement.span, message)));
        }
        Ok(())
    }

    /// A name without indices.
    pub(super) fn plain(&self, operand: &Operand<'a>) -> Parsed<Option<&Bound>> {
        match operand {
            Operand::Value { name, lists } if lists.is_empty() => self.look_up(*name).map(Some),
            Operand::Value { name, .. } => {
                let message = format!("`%{}` takes no indices here", name.text);
                Err(Box::new(Diagnostic::error("document-operands", name.span, message)))
            }
            Operand::Number(_) | Operand::Word(_) | Operand::Call(_) => Ok(None),
        }
    }

    /// An operand as a value with its tile: a number, or what a register memref holds.
    pub(super) fn tile_of(&mut self, operand: &Operand<'a>) -> Parsed<(Value, TileType)> {
        let found = self.plain(operand)?.cloned();
        match found {
            Some(Bound::Scalar(value)) => {
                let tile = self.func.ty(value).as_tile().cloned();
                tile.map(|tile| (value, tile)).ok_or_else(|| self.error("document-operands", "a number is needed"))
            }
            Some(Bound::Cell(cell)) => Ok((self.cells[cell].value, self.cells[cell].tile.clone())),
            Some(Bound::Operand(operand)) => self.whole(operand),
            Some(Bound::Shared(_)) => Err(self
                .error("document-space", "a register memref is needed, not one in shared memory")
                .help_boxed("write `tile.load_shared %buffer : memref<...> -> memref<..., 5>` first")),
            Some(Bound::Slice(_)) => Err(self
                .error("document-space", "a register memref is needed, not an array")
                .help_boxed("write `tile.load_global %array : memref<...> -> memref<..., 5>` first")),
            None => match operand {
                Operand::Call(call) => {
                    let results = self.call(call)?;
                    match results {
                        Some(Bound::Scalar(_) | Bound::Cell(_)) => self.bound_tile(results.as_ref()),
                        _ => Err(Box::new(Diagnostic::error("document-operands", call.span, "this yields no value"))),
                    }
                }
                Operand::Number(word) => Err(Box::new(
                    Diagnostic::error("document-operands", word.span, format!("`{}` has no type here", word.text))
                        .help("write `%x = arith.constant ... : type` and use `%x`"),
                )),
                Operand::Word(word) | Operand::Value { name: word, .. } => {
                    Err(Box::new(Diagnostic::error("document-operands", word.span, format!("`{}` is no value", word.text))))
                }
            },
        }
    }

    fn bound_tile(&self, bound: Option<&Bound>) -> Parsed<(Value, TileType)> {
        match bound {
            Some(Bound::Cell(cell)) => Ok((self.cells[*cell].value, self.cells[*cell].tile.clone())),
            Some(Bound::Scalar(value)) if self.func.ty(*value).as_tile().is_some() => Ok((
                *value,
                self.func.ty(*value).as_tile().cloned().unwrap_or(TileType { shape: Shape::new(), elem: Elem::Num(DType::I32) }),
            )),
            _ => Err(self.error("document-operands", "this yields no value")),
        }
    }

    /// A whole operand's value.
    pub(super) fn whole(&mut self, operand: Value) -> Parsed<(Value, TileType)> {
        let Type::Operand(ty) = self.func.ty(operand).clone() else {
            return Err(self.error("document-operands", "a whole operand is needed"));
        };
        let shape: Shape = ty.axes.iter().map(|axis| if let Axis::Fixed(extent) = axis { *extent } else { 1 }).collect();
        let tile = TileType { shape, elem: Elem::Num(ty.elem) };
        let value = self.value(GraphOp::Load { transpose: false }, &[&[operand]], Type::Tensor(ty));
        Ok((value, tile))
    }

    /// A number.
    pub(super) fn scalar_of(&mut self, operand: &Operand<'a>) -> Parsed<Value> {
        let (value, tile) = self.tile_of(operand)?;
        if tile.shape.is_empty() {
            Ok(value)
        } else {
            Err(self.error("document-operands", format!("a number is needed, not `{}`", register(&tile))))
        }
    }

    /// The register memref that an operation changes.
    pub(super) fn target(&self, operand: &Operand<'a>) -> Parsed<usize> {
        match self.plain(operand)? {
            Some(Bound::Cell(cell)) => Ok(*cell),
            _ => Err(self.error("document-space", "this operation changes its first operand, which must be a register memref")),
        }
    }

    /// Puts a value into a register memref.
    pub(super) fn assign(&mut self, cell: usize, value: Value, tile: &TileType) -> Parsed<()> {
        if self.cells[cell].tile != *tile {
            let message = format!("`{}` is put where `{}` is held", register(tile), register(&self.cells[cell].tile));
            return Err(self.error("document-type", message));
        }
        self.cells[cell].value = value;
        Ok(())
    }

    // Attributes

    /// Refuses attributes that are not in the list.
    pub(super) fn attributes(&self, of: &str, attributes: &Attributes<'a>, known: &[&str]) -> Parsed<()> {
        match attributes.iter().find(|(key, _)| !known.contains(&key.text)) {
            None => Ok(()),
            Some((key, _)) => {
                let found = Diagnostic::error("ir-attribute", key.span, format!("`{of}` has no attribute `{}`", key.text));
                Err(Box::new(match known {
                    [] => found.help("leave it out"),
                    known => {
                        found.help(format!("it has {}", known.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ")))
                    }
                }))
            }
        }
    }

    /// A truth value among attributes.
    pub(super) fn flag(&self, attributes: &Attributes<'a>, name: &str) -> Parsed<Option<bool>> {
        match attributes.iter().find(|(key, _)| key.text == name) {
            None => Ok(None),
            Some((_, Attribute::Flag | Attribute::Word("true"))) => Ok(Some(true)),
            Some((_, Attribute::Word("false"))) => Ok(Some(false)),
            Some((key, _)) => {
                Err(Box::new(Diagnostic::error("ir-attribute", key.span, format!("`{name}` is `true` or `false`"))))
            }
        }
    }

    /// A number among attributes.
    pub(super) fn number(&self, attributes: &Attributes<'a>, name: &str) -> Parsed<Option<i64>> {
        match attributes.iter().find(|(key, _)| key.text == name) {
            None => Ok(None),
            Some((_, Attribute::Number(value))) => Ok(Some(*value)),
            Some((key, _)) => Err(Box::new(Diagnostic::error("ir-attribute", key.span, format!("`{name}` is a number")))),
        }
    }

    /// A word among attributes, one of those allowed.
    pub(super) fn choice(&self, attributes: &Attributes<'a>, name: &str, allowed: &[&str]) -> Parsed<Option<usize>> {
        let Some((key, value)) = attributes.iter().find(|(key, _)| key.text == name) else { return Ok(None) };
        let found = match value {
            Attribute::Text(text) => text.as_str(),
            Attribute::Word(word) => word,
            Attribute::Flag | Attribute::Number(_) => "",
        };
        allowed.iter().position(|word| *word == found).map(Some).ok_or_else(|| {
            let list: Vec<String> = allowed.iter().map(|word| format!("`\"{word}\"`")).collect();
            Box::new(Diagnostic::error("ir-attribute", key.span, format!("`{name}` is one of {}", list.join(", "))))
        })
    }

    /// The type that a statement gives its only result, where it states one.
    pub(super) fn stated(&self, statement: &Statement<'a>) -> Option<Memref> {
        match statement.result_types.first().or(statement.types.last()) {
            Some((crate::memref::Ty::Memref(memref), _)) => Some(memref.clone()),
            _ => None,
        }
    }
}

/// The operation that combines two elements.
pub(super) fn combination(combine: Combine, dtype: DType) -> ScheduleOp {
    use tessera_ir::attrs::{Rounding, Signedness};
    let (rounding, flush_to_zero) = (Rounding::NearestEven, false);
    match (combine, dtype.is_float()) {
        (Combine::Sum, true) => ScheduleOp::AddF { rounding, flush_to_zero },
        (Combine::Prod, true) => ScheduleOp::MulF { rounding, flush_to_zero },
        (Combine::Max, true) => ScheduleOp::MaxF { propagate_nan: false, flush_to_zero },
        (Combine::Min, true) => ScheduleOp::MinF { propagate_nan: false, flush_to_zero },
        (Combine::Sum, false) => ScheduleOp::AddI { overflow: Overflow::Wraps },
        (Combine::Prod, false) => ScheduleOp::MulI { overflow: Overflow::Wraps },
        (Combine::Max, false) => ScheduleOp::MaxI { signedness: Signedness::Signed },
        (Combine::Min, false) => ScheduleOp::MinI { signedness: Signedness::Signed },
    }
}

/// A way out behind a boxed diagnostic.
pub(super) trait WithHelp {
    fn help_boxed(self, text: impl Into<String>) -> Self;
}

impl WithHelp for Box<Diagnostic> {
    fn help_boxed(self, text: impl Into<String>) -> Self {
        Box::new((*self).help(text))
    }
}
