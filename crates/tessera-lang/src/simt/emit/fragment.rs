//! Fragments: matrices of 16 x 16 and words of places spread over a warp, some variables a lane; which elements these are, says
//! [`tessera_ir::fragment`].

use smallvec::SmallVec;
use tessera_ir::attrs::{Overflow, Signedness};
use tessera_ir::fragment::{Fragment, PER_LANE};
use tessera_ir::{Const, ScheduleOp, Shape, TileOp, Value};
use tessera_types::DType;

use super::{Emit, Home};
use crate::lower::{Res, tile_type};
use crate::simt::program::{Expression, Memory, Place, Space};
use crate::value::Tile;

impl Emit<'_> {
    /// The first of a fragment's variables, what it is in a product, and its element type.
    fn variables_of(&self, position: usize) -> Res<(usize, Fragment, DType)> {
        let own = &self.kernel.allocations[position];
        let (Home::Apart(first), Space::Fragment(role)) = (&self.homes[position], own.space) else {
            return Err(self.broken("a fragment that is none", own.span));
        };
        Ok((*first, role.fragment(), own.dtype))
    }

    fn held(&self, position: usize) -> Res<Vec<Value>> {
        let (first, fragment, _) = self.variables_of(position)?;
        let span = self.kernel.allocations[position].span;
        let all = self.locals[first..first + fragment.per_lane()].iter();
        all.map(|local| local.ok_or_else(|| self.broken("a fragment without a value", span))).collect()
    }

    pub(super) fn fragment_fill(&mut self, position: usize, value: &Expression) -> Res<()> {
        let (first, fragment, _) = self.variables_of(position)?;
        let value = self.value(value)?.value;
        self.locals[first..first + fragment.per_lane()].fill(Some(value));
        Ok(())
    }

    pub(super) fn fragment_load(&mut self, position: usize, place: &Place) -> Res<()> {
        let (first, fragment, dtype) = self.variables_of(position)?;
        for (at, index) in self.places(fragment, dtype, place)?.into_iter().enumerate() {
            let value = match place.memory {
                Memory::Param(_) | Memory::Addressed(_) => {
                    let pointer = self.pointer_at(place, &index)?;
                    self.load_from(pointer, place)
                }
                Memory::Allocation(buffer) => {
                    let (buffer, index) = self.element_at(buffer, place, &index)?;
                    self.tile_value(TileOp::LoadElement {}, &[&[buffer], &index], tile_type(dtype, &[]))
                }
            };
            self.locals[first + at] = Some(value);
        }
        Ok(())
    }

    pub(super) fn fragment_store(&mut self, place: &Place, position: usize) -> Res<()> {
        let (_, fragment, dtype) = self.variables_of(position)?;
        let values = self.held(position)?;
        for (index, value) in self.places(fragment, dtype, place)?.into_iter().zip(values) {
            match place.memory {
                Memory::Param(_) | Memory::Addressed(_) => {
                    let pointer = self.pointer_at(place, &index)?;
                    self.store_through(pointer, place, value);
                }
                Memory::Allocation(buffer) => {
                    let (buffer, index) = self.element_at(buffer, place, &index)?;
                    self.tile_op(TileOp::StoreElement { relaxed: false }, &[&[value], &[buffer], &index], []);
                }
            }
        }
        Ok(())
    }

    pub(super) fn fragment_product(&mut self, [sum, a, b]: [usize; 3]) -> Res<()> {
        let kind = TileOp::MmaFragment { lhs_signedness: self.sign(a), rhs_signedness: self.sign(b) };
        let (lhs, rhs, acc) = (self.held(a)?, self.held(b)?, self.held(sum)?);
        self.summed(sum, kind, &[&lhs, &rhs, &acc])
    }

    pub(super) fn sparse_product(&mut self, sum: usize, a: usize, places: usize, b: [usize; 2]) -> Res<()> {
        let kind = TileOp::MmaFragmentSparse { lhs_signedness: self.sign(a), rhs_signedness: self.sign(b[0]) };
        let (lhs, places, acc) = (self.held(a)?, self.held(places)?, self.held(sum)?);
        let rhs = [self.held(b[0])?, self.held(b[1])?].concat();
        self.summed(sum, kind, &[&lhs, &places, &rhs, &acc])
    }

    /// How an integer factor is read.
    fn sign(&self, position: usize) -> Signedness {
        match self.kernel.allocations[position].dtype {
            DType::U8 => Signedness::Unsigned,
            _ => Signedness::Signed,
        }
    }

    /// Makes an operation's results the elements of the sums.
    fn summed(&mut self, sum: usize, kind: TileOp, groups: &[&[Value]]) -> Res<()> {
        let (first, _, dtype) = self.variables_of(sum)?;
        let op = self.tile_op(kind, groups, vec![tile_type(dtype, &[]); PER_LANE]);
        for (at, &result) in self.walk.func.ops[op].results.clone().iter().enumerate() {
            self.locals[first + at] = Some(result);
        }
        Ok(())
    }

    /// The index of each of a lane's elements in an array, of which a place names the matrix's corner.
    fn places(&mut self, fragment: Fragment, dtype: DType, place: &Place) -> Res<Vec<Vec<Tile>>> {
        let corner = place.index.iter().map(|index| self.value(index)).collect::<Res<SmallVec<[Tile; 4]>>>()?;
        self.walk.span = place.span;
        let lane = self.tile_value(TileOp::LaneId {}, &[], tile_type(DType::I32, &[]));
        let two = self.number(2, DType::I32);
        let group = self.combined(ScheduleOp::ShrI { signedness: Signedness::Unsigned }, lane, two, DType::I32);
        let three = self.number(3, DType::I32);
        let number = self.combined(ScheduleOp::AndI {}, lane, three, DType::I32);
        let first = corner.len().saturating_sub(2);
        let mut places = Vec::new();
        for at in 0..fragment.per_lane() {
            let element = fragment.element(dtype.signless().bits(), at);
            let mut index = corner.to_vec();
            for (axis, tile) in index[first..].iter_mut().enumerate() {
                let wide = if tile.dtype.bits() > 32 { DType::I64 } else { DType::I32 };
                *tile = self.walk.convert(tile.clone(), wide, None, place.span)?;
                let (part, behind) = if axis == element.group_axis {
                    (group, element.behind_group)
                } else {
                    let scale = self.number(element.scale, DType::I32);
                    let scaled = self.combined(ScheduleOp::MulI { overflow: Overflow::Wraps }, number, scale, DType::I32);
                    (scaled, element.behind_number)
                };
                let part = Tile { value: part, dtype: DType::I32, shape: Shape::new(), known: None };
                let part = self.walk.convert(part, wide, None, place.span)?.value;
                let add = ScheduleOp::AddI { overflow: Overflow::Wraps };
                let mut value = self.combined(add.clone(), tile.value, part, wide);
                if behind > 0 {
                    let behind = self.number(behind, wide);
                    value = self.combined(add, value, behind, wide);
                }
                *tile = Tile { value, dtype: wide, shape: Shape::new(), known: None };
            }
            places.push(index);
        }
        Ok(places)
    }

    fn number(&mut self, number: u32, dtype: DType) -> Value {
        self.walk.emit_constant(Const::int(dtype, i64::from(number)), dtype, Shape::new())
    }

    fn combined(&mut self, kind: ScheduleOp, a: Value, b: Value, dtype: DType) -> Value {
        self.walk.emit_value(kind, &[&[a], &[b]], tile_type(dtype, &[]))
    }
}
