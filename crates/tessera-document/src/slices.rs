//! Arrays of the interface and parts of them: `memref.dim`, `memref.subview`, and the views that copies, loads and stores need.
//!
//! A part has an offset and a size for each axis of its array; axes of size 1 may be missing from its type. What lies beyond the
//! array, or beyond a size that is known at run time only, is read as zero and not written.

use smallvec::SmallVec;
use tessera_ir::attrs::{Overflow, Signedness};
use tessera_ir::text::cursor::Parsed;
use tessera_ir::{
    Diagnostic, Extent, Padding, ScheduleOp, Shape, SharedType, Span, TensorViewType, TileOp, TileType, TileViewType, Type,
    Value, ViewKind,
};
use tessera_types::DType;

use crate::emit::{Bound, Emit, Shared, WithHelp};
use crate::memref::{Memref, Space, Ty};
use crate::syntax::{Index, Operand, Statement};

/// How far a part goes along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// To the array's end.
    Rest,
    /// So many elements.
    Known(u32),
    /// A number known at run time.
    Given(Value),
}

/// Part of an array.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) array: usize,
    /// Where it begins along each of the array's axes; `None` is zero.
    pub(super) offsets: SmallVec<[Option<Value>; 4]>,
    pub(super) sizes: SmallVec<[Size; 4]>,
    /// The axes that its type has.
    pub(super) kept: SmallVec<[usize; 4]>,
}

impl Slice {
    /// All of an array of so many axes.
    pub(super) fn whole(array: usize, rank: usize) -> Slice {
        Slice {
            array,
            offsets: SmallVec::from_elem(None, rank),
            sizes: SmallVec::from_elem(Size::Rest, rank),
            kept: (0..rank).collect(),
        }
    }
}

impl<'a> Emit<'a, '_> {
    pub(super) fn arithmetic(&mut self, kind: ScheduleOp, operands: &[Value]) -> Value {
        self.same(kind, operands)
    }

    pub(super) fn add(&mut self, lhs: Value, rhs: Value) -> Value {
        self.arithmetic(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[lhs, rhs])
    }

    fn multiply(&mut self, lhs: Value, rhs: Value) -> Value {
        self.arithmetic(ScheduleOp::MulI { overflow: Overflow::Wraps }, &[lhs, rhs])
    }

    fn least(&mut self, lhs: Value, rhs: Value) -> Value {
        self.arithmetic(ScheduleOp::MinI { signedness: Signedness::Signed }, &[lhs, rhs])
    }

    /// An entry of a list as a number of type `index`.
    pub(super) fn entry(&mut self, index: Index<'a>) -> Parsed<Value> {
        match index {
            Index::Number(value, _) => Ok(self.index(value)),
            Index::Value(name) => match self.look_up(name)?.clone() {
                Bound::Scalar(value) => self.as_index(value, name.span),
                _ => Err(Box::new(Diagnostic::error("document-operands", name.span, format!("`%{}` is no index", name.text)))),
            },
        }
    }

    fn as_index(&mut self, value: Value, span: Span) -> Parsed<Value> {
        match self.func.ty(value).num() {
            Some(DType::I32) => Ok(value),
            Some(dtype) if dtype.is_integer() && dtype.bits() > 32 => {
                let kind = ScheduleOp::TruncI { overflow: Overflow::Wraps };
                Ok(self.value(kind, &[&[value]], Type::scalar(DType::I32)))
            }
            Some(dtype) if dtype.is_integer() && dtype.bits() >= 8 => {
                let kind = ScheduleOp::ExtI { signedness: Signedness::Signed };
                Ok(self.value(kind, &[&[value]], Type::scalar(DType::I32)))
            }
            _ => Err(Box::new(Diagnostic::error("document-operands", span, "an index is an integer"))),
        }
    }

    /// The size of an axis of a slice, as `memref.dim` yields it.
    pub(super) fn dim(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 2)?;
        let bound = self.plain(self.operand(statement, 0)?)?.cloned();
        let axis = match self.operand(statement, 1)? {
            Operand::Number(word) => word.text.parse::<usize>().ok(),
            operand => {
                let operand = operand.clone();
                let value = self.scalar_of(&operand)?;
                self.func.constant(value).and_then(tessera_ir::Const::as_int).and_then(|axis| usize::try_from(axis).ok())
            }
        };
        let Some(axis) = axis else {
            return Err(self
                .error("document-operands", "the axis must be a constant")
                .help_boxed("write `%c1 = arith.constant 1 : index` and use `%c1`"));
        };
        let none = |emit: &Self, rank: usize| {
            Err(emit.error("document-operands", format!("there is no axis {axis}: the memref has {rank}")))
        };
        let size = match bound {
            Some(Bound::Slice(slice)) => {
                let Some(&own) = slice.kept.get(axis) else { return none(self, slice.kept.len()) };
                match (slice.sizes[own], slice.offsets[own]) {
                    (Size::Known(size), _) => self.index(i64::from(size)),
                    (Size::Given(value), _) => value,
                    (Size::Rest, None) => self.arrays[slice.array].sizes[own],
                    (Size::Rest, Some(offset)) => {
                        let size = self.arrays[slice.array].sizes[own];
                        self.arithmetic(ScheduleOp::SubI { overflow: Overflow::Wraps }, &[size, offset])
                    }
                }
            }
            Some(Bound::Shared(shared)) => {
                let extents = self.func.ty(shared.value).as_shared().map(|ty| ty.shape.clone()).unwrap_or_default();
                let Some(&extent) = extents.get(axis) else { return none(self, extents.len()) };
                self.index(i64::from(extent))
            }
            Some(Bound::Cell(cell)) => {
                let extents = self.cells[cell].tile.shape.clone();
                let Some(&extent) = extents.get(axis) else { return none(self, extents.len()) };
                self.index(i64::from(extent))
            }
            _ => return Err(self.error("document-operands", "`memref.dim` asks a memref for the size of an axis")),
        };
        Ok(Bound::Scalar(size))
    }

    /// `memref.subview %m[offsets] [sizes] [strides] : type to type`.
    pub(super) fn subview(&mut self, statement: &Statement<'a>) -> Parsed<Bound> {
        self.at_most(statement, 1)?;
        let Operand::Value { name, lists } = self.operand(statement, 0)?.clone() else {
            return Err(self.error("document-operands", "`memref.subview` takes a memref with its offsets, sizes and strides"));
        };
        let [offsets, sizes, strides] = lists.as_slice() else {
            return Err(self
                .error("document-operands", "offsets, sizes and strides are needed")
                .help_boxed("write `memref.subview %m[0, %i] [16, 16] [1, 1] : memref<...> to memref<...>`"));
        };
        if offsets.len() != sizes.len() || sizes.len() != strides.len() {
            return Err(self.error("document-operands", "offsets, sizes and strides differ in number"));
        }
        for stride in strides {
            if !matches!(stride, Index::Number(1, _)) {
                return Err(self.error("document-operands", "a part is taken of neighbours: every stride must be 1"));
            }
        }
        let Some((Ty::Memref(wanted), at)) = statement.result_types.first().cloned() else {
            return Err(self
                .error("document-type", "the part's type is needed")
                .help_boxed("write `: memref<...> to memref<...>`"));
        };
        match self.look_up(name)?.clone() {
            Bound::Slice(slice) => self.slice(&slice, offsets, sizes, &wanted, at),
            Bound::Shared(shared) => self.shared_part(&shared, offsets, sizes, &wanted),
            _ => Err(self.error("document-space", "parts are taken of arrays and of buffers in shared memory")),
        }
    }

    fn slice(&mut self, of: &Slice, offsets: &[Index<'a>], sizes: &[Index<'a>], wanted: &Memref, at: Span) -> Parsed<Bound> {
        if offsets.len() != of.kept.len() {
            let message = format!("{} offsets are given for {} axes", offsets.len(), of.kept.len());
            return Err(self.error("document-operands", message));
        }
        if !matches!(wanted.space, Space::Open | Space::Global) {
            return Err(Box::new(Diagnostic::error("document-space", at, format!("part of an array is none in `{wanted}`"))));
        }
        let mut part = of.clone();
        for (position, (&offset, &size)) in offsets.iter().zip(sizes).enumerate() {
            let axis = of.kept[position];
            let moved = match offset {
                Index::Number(0, _) => None,
                offset => Some(self.entry(offset)?),
            };
            part.offsets[axis] = match (of.offsets[axis], moved) {
                (Some(before), Some(moved)) => Some(self.add(before, moved)),
                (before, moved) => before.or(moved),
            };
            part.sizes[axis] = match size {
                Index::Number(size, span) => match u32::try_from(size) {
                    Ok(size) if size > 0 => Size::Known(size),
                    _ => return Err(Box::new(Diagnostic::error("document-operands", span, "a size is positive"))),
                },
                Index::Value(_) => {
                    let value = self.entry(size)?;
                    let all = part.offsets[axis].is_none() && self.arrays[of.array].sizes[axis] == value;
                    if all { Size::Rest } else { Size::Given(value) }
                }
            };
        }
        part.kept = self.kept(&part, of, sizes, wanted, at)?;
        Ok(Bound::Slice(part))
    }

    /// The axes that a part's type has: those of size 1 that it lacks are left out.
    fn kept(&self, part: &Slice, of: &Slice, sizes: &[Index<'a>], wanted: &Memref, at: Span) -> Parsed<SmallVec<[usize; 4]>> {
        let mut kept: SmallVec<[usize; 4]> = SmallVec::new();
        for (position, &axis) in of.kept.iter().enumerate() {
            let left = of.kept.len() - position;
            let open = wanted.shape.len() - kept.len().min(wanted.shape.len());
            let fits = match (wanted.shape.get(kept.len()), sizes[position]) {
                (Some(Extent::Static(extent)), Index::Number(size, _)) => *extent == size,
                (Some(Extent::Dynamic), Index::Value(_)) => true,
                _ => false,
            };
            // An axis that may go stays where every axis that is left is needed.
            let single = part.sizes[axis] == Size::Known(1);
            if fits && (!single || left <= open) {
                kept.push(axis);
            } else if !single {
                let message = format!("axis {position} of the part does not fit `{wanted}`");
                return Err(Box::new(
                    Diagnostic::error("document-type", at, message).help("write the sizes, and `?` for those that are values"),
                ));
            }
        }
        if kept.len() != wanted.shape.len() {
            let message = format!("`{wanted}` has {} axes, the part {}", wanted.shape.len(), kept.len());
            return Err(Box::new(Diagnostic::error("document-type", at, message)));
        }
        if wanted.elem != self.arrays[part.array].ty.elem && wanted.elem.signless() != self.arrays[part.array].ty.elem {
            let message = format!("`{wanted}` has other elements than the array");
            return Err(Box::new(Diagnostic::error("document-type", at, message)));
        }
        Ok(kept)
    }

    /// Part of a buffer: one entry of leading axes, chosen at run time, then a block at constant offsets.
    fn shared_part(&mut self, of: &Shared, offsets: &[Index<'a>], sizes: &[Index<'a>], wanted: &Memref) -> Parsed<Bound> {
        let Some(shape) = wanted.static_shape().filter(|_| wanted.space == Space::Shared) else {
            return Err(self.error("document-type", format!("part of a buffer in shared memory is none in `{wanted}`")));
        };
        let mut known = Vec::new();
        for size in sizes {
            match size {
                Index::Number(size, _) if (1..=i64::from(u32::MAX)).contains(size) => known.push(*size as u32),
                _ => return Err(self.error("document-operands", "sizes of a part of a buffer are constants")),
            }
        }
        let Some(ty) = self.func.ty(of.value).as_shared().cloned() else {
            return Err(self.error("document-space", "no buffer"));
        };
        // Axes of extent 1 that the text does not have stand before the tile's.
        let hidden = of.deep.filter(|(full, _)| *full == of.value).map_or(0, |(_, units)| units);
        if offsets.len() + hidden != ty.shape.len() {
            let message = format!("{} offsets are given for {} axes", offsets.len(), ty.shape.len() - hidden);
            return Err(self.error("document-operands", message));
        }
        let dropped = known.len().saturating_sub(shape.len());
        if known[..dropped].iter().any(|&size| size != 1) || known[dropped..] != *shape {
            return Err(self.error("document-type", format!("the sizes do not give `{wanted}`")));
        }
        if dropped == 0 && hidden > 0 {
            return Err(self.error("document-operands", "an entry of the leading axes is taken first"));
        }
        let (mut value, mut deep) = (of.value, of.deep.filter(|_| hidden > 0 || dropped == 0));
        for &offset in &offsets[..dropped] {
            let index = self.entry(offset)?;
            value = self.entry_of_buffer(value, index)?;
        }
        if hidden > 0 {
            deep = Some((value, hidden));
            value = self.without_units(value, hidden)?;
        }
        let Some(ty) = self.func.ty(value).as_shared().cloned() else { return Err(self.error("document-space", "no buffer")) };
        let mut corner = Shape::new();
        for &offset in &offsets[dropped..] {
            match offset {
                Index::Number(offset, _) if u32::try_from(offset).is_ok() => corner.push(offset as u32),
                _ => {
                    return Err(self
                        .error("document-operands", "only whole entries of leading axes are chosen at run time")
                        .help_boxed("give the buffer an axis in front, and take size 1 of it: `[%slot, 0, 0] [1, 64, 64]`"));
                }
            }
        }
        if ty.shape != shape || corner.iter().any(|&offset| offset != 0) {
            let result = Type::Shared(Box::new(SharedType { shape, ..ty }));
            value = self.value(TileOp::SubviewShared { offsets: corner }, &[&[value]], result);
            deep = None;
        }
        Ok(Bound::Shared(Shared { value, deep }))
    }

    /// One entry of a buffer's first axis.
    pub(super) fn entry_of_buffer(&mut self, buffer: Value, index: Value) -> Parsed<Value> {
        let part = self.func.ty(buffer).as_shared().and_then(SharedType::slice);
        let part = part.ok_or_else(|| self.error("document-type", "the buffer has no axis to take an entry of"))?;
        Ok(self.value(TileOp::SliceShared {}, &[&[buffer], &[index]], Type::Shared(Box::new(part))))
    }

    // Views

    /// A view of a slice whose tiles have a shape, one extent a kept axis; the index of the slice's tile. With `flat` the view has the
    /// slice's axes only, else all of the array's.
    pub(super) fn view(&mut self, slice: &Slice, tile: &TileType, flat: bool) -> Parsed<(Value, Vec<Value>)> {
        let array = self.arrays[slice.array].clone();
        if tile.shape.len() != slice.kept.len() {
            let message = format!("a tile of {} axes and a part of an array of {}", tile.shape.len(), slice.kept.len());
            return Err(self.error("document-type", message));
        }
        if tile.elem.num() != Some(array.ty.elem) {
            let message = format!("elements of `{}` are copied as `{}`", array.ty.elem, tile.elem);
            return Err(self.error("document-type", message).help_boxed("convert with `tile.cast` in registers"));
        }
        for (&axis, &extent) in slice.kept.iter().zip(&tile.shape) {
            if let Size::Known(size) = slice.sizes[axis]
                && size != extent
            {
                let message = format!("the part has {size} elements along an axis, the tile {extent}");
                return Err(self.error("document-type", message));
            }
        }
        let (tensor, axes) = self.tensor(slice, &array, flat)?;
        let Type::TensorView(ty) = self.func.ty(tensor).clone() else { return Err(self.error("document-type", "no array")) };
        let shape: Shape = axes
            .iter()
            .map(|axis| slice.kept.iter().position(|kept| kept == axis).map_or(1, |position| tile.shape[position]))
            .collect();
        let view = TileViewType {
            kind: ViewKind::Strided(shape.iter().map(|_| 1).collect()),
            dim_map: (0..shape.len() as u32).collect(),
            tile: shape,
            padding: Padding::Zero,
            tensor: *ty,
        };
        let view = self.value(ScheduleOp::MakeStridedView {}, &[&[tensor]], Type::TileView(Box::new(view)));
        let mut index = Vec::new();
        for &axis in &axes {
            index.push(match slice.offsets[axis] {
                Some(offset) => offset,
                None => self.index(0),
            });
        }
        Ok((view, index))
    }

    /// The array of a slice's view, and the array's axes that it has.
    fn tensor(&mut self, slice: &Slice, array: &super::emit::Array, flat: bool) -> Parsed<(Value, SmallVec<[usize; 4]>)> {
        let rank = array.sizes.len();
        let clips = slice.sizes.iter().any(|size| matches!(size, Size::Given(_)));
        let axes: SmallVec<[usize; 4]> = if flat { slice.kept.clone() } else { (0..rank).collect() };
        if !clips && axes.len() == rank {
            return Ok((array.view, axes));
        }
        let mut base = array.base;
        for axis in (0..rank).filter(|axis| !axes.contains(axis)) {
            if let Some(offset) = slice.offsets[axis] {
                let moved = self.multiply(offset, array.strides[axis]);
                let ty = self.func.ty(base).clone();
                base = self.value(ScheduleOp::Offset {}, &[&[base], &[moved]], ty);
            }
        }
        let (mut shape, mut strides): (SmallVec<[Extent; 4]>, SmallVec<[Extent; 4]>) = Default::default();
        let (mut sizes, mut steps) = (Vec::new(), Vec::new());
        for &axis in &axes {
            let mut size = array.sizes[axis];
            let mut extent = array.ty.shape[axis];
            if let Size::Given(given) = slice.sizes[axis] {
                let end = match slice.offsets[axis] {
                    Some(offset) => self.add(offset, given),
                    None => given,
                };
                size = self.least(size, end);
                extent = Extent::Dynamic;
            }
            shape.push(extent);
            strides.push(array.ty.strides[axis]);
            if extent == Extent::Dynamic {
                sizes.push(size);
            }
            if array.ty.strides[axis] == Extent::Dynamic {
                steps.push(array.strides[axis]);
            }
        }
        let ty = Type::TensorView(Box::new(TensorViewType { elem: array.ty.elem, shape, strides }));
        Ok((self.value(ScheduleOp::MakeTensorView {}, &[&[base], &sizes, &steps], ty), axes))
    }

    /// The address of an element of a slice.
    pub(super) fn element_of(&mut self, slice: &Slice, index: &[Index<'a>]) -> Parsed<Value> {
        let array = self.arrays[slice.array].clone();
        if index.len() != slice.kept.len() {
            let message = format!("{} indices are given for {} axes", index.len(), slice.kept.len());
            return Err(self.error("document-operands", message));
        }
        let mut offset = None;
        for axis in 0..array.sizes.len() {
            let own = slice.kept.iter().position(|&kept| kept == axis).map(|position| index[position]);
            let own = own.map(|own| self.entry(own)).transpose()?;
            let at = match (slice.offsets[axis], own) {
                (Some(offset), Some(own)) => Some(self.add(offset, own)),
                (offset, own) => offset.or(own),
            };
            let Some(at) = at else { continue };
            let moved = match array.ty.strides[axis] {
                Extent::Static(1) => at,
                _ => self.multiply(at, array.strides[axis]),
            };
            offset = Some(match offset {
                Some(offset) => self.add(offset, moved),
                None => moved,
            });
        }
        let ty = self.func.ty(array.base).clone();
        Ok(match offset {
            Some(offset) => self.value(ScheduleOp::Offset {}, &[&[array.base], &[offset]], ty),
            None => array.base,
        })
    }
}
