//! Moving elements between registers of different layouts: another layout for the same tile, other axes, parts of tiles.
//!
//! All of these are one thing: element `c` of the result is the source's element number `sum(c[d] * strides[d]) + offset`,
//! counted in row-major order. Where every thread already holds what it needs, and in the same registers in all threads, the
//! operation is a renaming and costs nothing; otherwise the tile goes through shared memory.

use std::cell::OnceCell;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Elem, OpKind, SharedType, Swizzle, TileOp, bug};
use tessera_layout::{Axis, Dims, Distribution};
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::{Address, Value as Reg};

use super::bound::{Buffer, Regs};
use super::lowering::{Lowered, Lowering};
use super::place::{Inside, Place};
use super::scratch::SMALL_BYTES;
use tessera_analysis::room::buffer_bytes;
use tessera_types::DType;

/// Which element of the source an element of the result is.
#[derive(Clone, Debug)]
pub(super) struct Remap {
    /// How far a step along each axis of the result moves in the source.
    pub(super) strides: SmallVec<[u64; 4]>,
    /// Where the result's first element lies in the source.
    pub(super) offset: u64,
}

/// Row-major strides of a shape.
pub(super) fn row_major(shape: &[u64]) -> SmallVec<[u64; 4]> {
    let mut strides: SmallVec<[u64; 4]> = SmallVec::from_elem(1, shape.len());
    for dim in (0..shape.len().saturating_sub(1)).rev() {
        strides[dim] = strides[dim + 1] * shape[dim + 1];
    }
    strides
}

fn number(strides: &[u64], coordinates: &[u64]) -> u64 {
    strides.iter().zip(coordinates).map(|(stride, coordinate)| stride * coordinate).sum()
}

impl Remap {
    /// The same element.
    pub(super) fn identity(shape: &[u64]) -> Remap {
        Remap { strides: row_major(shape), offset: 0 }
    }

    /// For each register of the result the register of the source that holds its element in every thread, if there is one.
    /// Registers that hold no element, or one that lies outside of the source, get any.
    pub(super) fn renaming(&self, source: &Distribution, result: &Distribution, limit: u64) -> Option<Vec<Option<usize>>> {
        let strides = row_major(source.shape());
        let mut found: Vec<Option<usize>> = vec![None; result.registers() as usize];
        for thread in witnesses(source, result) {
            let number_of = |element: &Dims| source.holds(element).then(|| number(&strides, element));
            let held: Vec<Option<u64>> = source.positions(thread).iter().map(number_of).collect();
            // Made when it is asked: behind the first thread, most have a register.
            let first_holder = OnceCell::new();
            let holder = |wanted: u64| {
                let by_number = || held.iter().enumerate().rev().filter_map(|(register, &number)| Some((number?, register)));
                first_holder.get_or_init(|| by_number().collect::<FxHashMap<u64, usize>>()).get(&wanted).copied()
            };
            for (slot, element) in found.iter_mut().zip(result.positions(thread)).filter(|(_, element)| result.holds(element)) {
                let wanted = number(&self.strides, &element) + self.offset;
                if wanted >= limit {
                    continue;
                }
                match *slot {
                    Some(register) if held[register] == Some(wanted) => {}
                    Some(_) => return None,
                    None => *slot = Some(holder(wanted)?),
                }
            }
        }
        Some(found)
    }
}

/// The threads whose registers decide about all: where everything is a power of two, thread 0 and one for each bit.
fn witnesses(a: &Distribution, b: &Distribution) -> Vec<u64> {
    let threads = a.threads();
    let is_linear = |layout: &Distribution| layout.shape().iter().all(|extent| extent.is_power_of_two()) && !layout.has_holes();
    if is_linear(a) && is_linear(b) && threads.is_power_of_two() {
        std::iter::once(0).chain((0..threads.trailing_zeros()).map(|bit| 1 << bit)).collect()
    } else {
        (0..threads).collect()
    }
}

impl Lowering<'_> {
    /// A tile's elements in another arrangement.
    pub(super) fn remapped(
        &mut self,
        elem: Elem,
        source: (&Distribution, &Regs),
        result: &Distribution,
        map: &Remap,
    ) -> Lowered<Regs> {
        if let Some(names) = map.renaming(source.0, result, u64::MAX) {
            let spare = source.1[0];
            return Ok(names.into_iter().map(|name| name.map_or(spare, |name| source.1[name])).collect());
        }
        if let Some(regs) = self.shuffled(elem, source, result, map)? {
            return Ok(regs);
        }
        if source.0.shape() == result.shape() && map.offset == 0 && map.strides == row_major(result.shape()) {
            return self.through_buffer(elem, source, result);
        }
        self.through_shared(elem, source, result, map, None)
    }

    /// The same tile under another layout, through a buffer whose lines run along the axis of the source's vectors and are
    /// padded, so that a warp's rows start in different banks.
    fn through_buffer(&mut self, elem: Elem, source: (&Distribution, &Regs), result: &Distribution) -> Lowered<Regs> {
        let elements = result.elements() * elem.bytes();
        if self.room_below(elements).is_some() {
            return self.through_shared(elem, source, result, &Remap::identity(result.shape()), None);
        }
        let mut ty = self.between(elem, source.0, result);
        let align = if ty.swizzle == Swizzle::NONE { 16 } else { 128 };
        let bytes = buffer_bytes(&ty);
        let converts = matches!(self.data(self.op).kind, OpKind::Tile(TileOp::ConvertLayout {}));
        let base = if converts {
            // The buffer's type says how the tile lies there.
            if let Some(through) = self.data(self.op).through {
                let found = self.func.ty(through);
                ty = found.as_shared().unwrap_or_else(|| bug!("a conversion through `{found}`")).clone();
            }
            let bytes = buffer_bytes(&ty);
            self.exchanged_through((bytes, bytes.min(SMALL_BYTES)), align, Some(ty.clone()))?
        } else {
            self.whole_exchange(bytes, align)?
        };
        let buffer = Buffer::whole(base, &ty);
        if !self.store_matrices(&buffer, 0, source.0, source.1) {
            self.store_buffer(&buffer, source.0, source.1);
        }
        self.meet();
        Ok(match self.load_matrices(&buffer, result) {
            Some(regs) => regs,
            None => self.load_buffer(&buffer, result),
        })
    }

    /// How a tile lies in memory between two layouts.
    fn between(&self, elem: Elem, source: &Distribution, result: &Distribution) -> SharedType {
        let bytes = elem.bytes();
        let rank = result.rank();
        let core = source.core();
        let vector_axis =
            (0..core.bits(Axis::Register)).find_map(|bit| core.basis(Axis::Register, bit).iter().position(|&step| step == 1));
        // Where a thread holds no neighbours, lines run along the last axis as tiles in memory do.
        let fastest = vector_axis.unwrap_or(rank - 1);
        let swizzle = self.across_lines(source, result, fastest, bytes);
        let padded = swizzle == Swizzle::NONE && rank > 1 && (result.shape()[fastest] * bytes).is_multiple_of(16);
        let dtype = match elem {
            Elem::Num(dtype) => dtype,
            Elem::Ptr(_) => DType::I64,
        };
        let shape: tessera_ir::Shape = result.shape().iter().map(|&extent| extent as u32).collect();
        let mut ty = SharedType::new(shape, dtype);
        ty.order = (0..rank as u32).filter(|&dim| dim as usize != fastest).chain([fastest as u32]).collect();
        ty.pad = if padded { (16 / bytes) as u32 } else { 0 };
        ty.swizzle = swizzle;
        ty
    }

    /// The swizzle of a buffer that is written along its lines and read across them. A thread that reads vectors across takes its
    /// elements from neighbouring lines, and its neighbours take theirs from the next ones: padding brings those back to the same banks.
    /// Pieces of 16 bytes trade places within 128 bytes by the number of the vector that their line belongs to.
    fn across_lines(&self, source: &Distribution, result: &Distribution, fastest: usize, bytes: u64) -> Swizzle {
        let shape = source.shape();
        let line = shape[fastest] * bytes;
        let vector = |layout: &Distribution, axis: usize| {
            let core = layout.core();
            let has = |step: u64| {
                (0..core.bits(Axis::Register)).any(|bit| {
                    core.basis(Axis::Register, bit)
                        .iter()
                        .enumerate()
                        .all(|(dim, &value)| value == if dim == axis { step } else { 0 })
                })
            };
            (0..).take_while(|&bit| has(1 << bit)).count() as u32
        };
        let across = (0..shape.len()).find(|&axis| axis != fastest).map_or(0, |axis| vector(result, axis));
        let whole = shape.len() == 2 && line.is_power_of_two() && line >= 128;
        let wide = (1u64 << vector(source, fastest)) * bytes >= 16;
        if !whole || !wide || across < 2 || vector(result, fastest) > 0 {
            return Swizzle::NONE;
        }
        Swizzle { bits: 3, base: 4, shift: line.trailing_zeros() + across - 4 }
    }

    /// The same through shared memory; `moved` is added to the element's number, known at run time only.
    pub(super) fn through_shared(
        &mut self,
        elem: Elem,
        source: (&Distribution, &Regs),
        result: &Distribution,
        map: &Remap,
        moved: Option<Reg>,
    ) -> Lowered<Regs> {
        let bytes = elem.bytes();
        let total = source.0.elements() * bytes;
        if self.room_below(total).is_some() {
            let given = self.given(elem, source, &row_major(source.0.shape()));
            let wanted = self.spots(result, &map.strides, (map.offset, moved), bytes);
            return Ok(self.in_parts(elem, &given, &wanted, total)?.into_iter().collect());
        }
        let base = self.whole_exchange(total, 16)?;
        self.spread(elem, source, base);
        self.meet();
        let place = self.place(result);
        let base = match moved {
            None => base,
            Some(moved) => {
                let bytes = self.b.u32(bytes as u32);
                self.b.mad(Ty::U32, moved, bytes, base)
            }
        };
        let mut regs = Regs::new();
        let mut bases = FxHashMap::default();
        for register in 0..place.len() {
            let address = self.element_address(&place, register, &map.strides, map.offset, bytes, base, &mut bases);
            // A hole's address may lie outside of everything.
            regs.push(match self.inside(&place, register) {
                Inside::Always => self.take(elem, address),
                Inside::Never => self.bits(elem, 0),
                Inside::When(within) => {
                    let address = self.address_of(&address);
                    let safe = self.b.select(within, address, base);
                    self.take(elem, safe)
                }
            });
        }
        Ok(regs)
    }

    /// Writes a tile to shared memory in row-major order, each element once.
    pub(super) fn spread(&mut self, elem: Elem, source: (&Distribution, &Regs), base: Reg) {
        let (layout, regs) = source;
        let bytes = elem.bytes();
        let strides = row_major(layout.shape());
        let place = self.place(layout);
        let mine = self.stores(layout);
        let mut bases = FxHashMap::default();
        for (register, &reg) in regs.iter().enumerate() {
            if !layout.is_primary(register as u64, 0) {
                continue;
            }
            let when = match self.inside(&place, register) {
                Inside::Never => continue,
                Inside::Always => mine,
                Inside::When(within) => self.both(Some(within), mine),
            };
            let address = self.element_address(&place, register, &strides, 0, bytes, base, &mut bases);
            self.put(elem, address, reg, when);
        }
    }

    /// The address in shared memory of a register's element, by strides in elements.
    #[allow(clippy::too_many_arguments, reason = "an address has this many parts")]
    pub(super) fn element_address(
        &mut self,
        place: &Place,
        register: usize,
        strides: &[u64],
        offset: u64,
        bytes: u64,
        base: Reg,
        bases: &mut FxHashMap<SmallVec<[u64; 4]>, Reg>,
    ) -> Address {
        let mut constant = offset * bytes;
        let mut mixed: SmallVec<[u64; 4]> = SmallVec::new();
        for (dim, stride) in strides.iter().enumerate() {
            let (xor, add) = place.parts(register, dim);
            constant += add * stride * bytes;
            mixed.push(xor);
        }
        let base = match bases.get(&mixed) {
            Some(&base) => base,
            None => {
                let mut sum = base;
                for (dim, stride) in strides.iter().enumerate() {
                    let mut part = place.thread[dim];
                    if mixed[dim] != 0 {
                        let xor = self.b.u32(mixed[dim] as u32);
                        part = self.b.xor(part, xor);
                    }
                    let step = self.b.u32((stride * bytes) as u32);
                    sum = self.b.mad(Ty::U32, part, step, sum);
                }
                bases.insert(mixed, sum);
                sum
            }
        };
        self.b.at(base, constant as i64)
    }

    /// An address in shared memory as a register.
    pub(super) fn address_of(&mut self, address: &Address) -> Reg {
        let offset = self.b.u32(address.offset as u32);
        self.b.add(Ty::U32, address.base, offset)
    }
}
