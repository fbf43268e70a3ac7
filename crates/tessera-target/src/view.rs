//! Views of arrays and the addresses of the elements that a thread holds of a tile.
//!
//! An element's address is the sum of the array's base, a part that all threads share (the tile's corner), the thread's part
//! and the register's. Offsets are 32-bit numbers of elements, 64-bit where the array's sizes or strides are. Where a stride
//! is known, the register's part is a constant and ends up in the instruction.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tessera_ir::{Extent, OpData, Padding, ScheduleOp, Type, Value};
use tessera_layout::{Axis, Distribution};
use tessera_ptx::ssa::{Address, Arg, Class, Code, Value as Reg};
use tessera_ptx::{Type as Ty, Word};
use tessera_types::DType;

use super::bound::{Bound, Tensor, states_wide};
use super::lowering::{Lowered, Lowering};
use super::operation::astray;
use super::packed::fills_words;
use super::place::{Inside, Place};
use tessera_analysis::facts::{gcd, power};
use tessera_analysis::views::{ViewFacts, step_of};

/// Everything about one tile of a view.
#[derive(Clone)]
pub(super) struct Window {
    pub(super) layout: Distribution,
    pub(super) dtype: DType,
    pub(super) padding: Padding,
    pub(super) place: Place,
    pub(super) axes: SmallVec<[Side; 4]>,
    /// Whether offsets are 64 bits wide.
    pub(super) wide: bool,
    /// Address of the tile's corner, but for the bytes that constants of its index add: tiles of neighbours share it.
    pub(super) corner: Reg,
    pub(super) shift: i64,
    /// Address of the thread's elements, by the parts that are combined by exclusive or and those of open strides.
    bases: BTreeMap<SmallVec<[(u64, u64); 4]>, Reg>,
    /// Alignment of the corner in bytes.
    align: u64,
    /// The array's address.
    pub(super) base: Reg,
    /// Every axis of the array is one of the tile.
    pub(super) has_all_axes: bool,
    /// Alignment of the array's base in bytes.
    pub(super) base_align: u64,
    /// Elements between the last 16 bytes and the tile, where they are one number.
    pub(super) behind: Option<u64>,
    /// Bytes of an element; 1 where elements share bytes and addresses are element numbers.
    pub(super) unit: u64,
    /// The array's address, where elements share bytes.
    pub(super) packed: Option<Reg>,
}

/// One axis of a tile in an array.
#[derive(Clone)]
pub(super) struct Side {
    /// Distance of neighbours in elements, where it is known.
    pub(super) known: Option<i64>,
    pub(super) stride: Reg,
    /// The axis of the array, and how long that is.
    pub(super) dim: usize,
    pub(super) size: Reg,
    /// What each element's coordinate is compared with, where it may lie outside: the tile's start and the array's size.
    bound: Option<(Reg, Reg)>,
    /// Predicates that are computed already, by the register's part of the coordinate.
    inside: BTreeMap<(u64, u64), Reg>,
    /// Coordinates in the array, by register, where a tile gives them.
    pub(super) gathered: Option<Vec<Reg>>,
    /// The array ends at a multiple of this many elements.
    size_divisor: u64,
    /// The tile starts at a multiple of this many elements.
    start_divisor: u64,
    /// The least and the greatest start, and the least size of the array.
    pub(super) starts: (i64, i64),
    pub(super) least_size: i64,
    pub(super) stride_divisor: u64,
    pub(super) extent: u64,
}

/// Elements of a thread that lie next to each other in memory.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Their registers, in the order of memory.
    pub(super) registers: Vec<usize>,
    pub(super) address: Address,
    /// Whether all of them exist; otherwise none does, unless the array may end among them.
    pub(super) when: Option<Reg>,
    /// Where it may: whether it does.
    pub(super) cut: Option<Reg>,
}

/// What may be grouped into one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// Elements that exist together or not at all.
    Apart,
    /// An array may end among the elements, too: those that exist are then found one by one.
    Among,
}

/// Where runs may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// Where an access of their length may.
    Known,
    /// At any element.
    Anywhere,
}

impl Window {
    /// The same of a tile that is known to lie in its array.
    pub(super) fn unbounded(&self) -> Window {
        let mut window = self.clone();
        window.axes.iter_mut().for_each(|side| side.bound = None);
        window
    }

    /// Whether lines that follow each other along an axis begin as many elements behind a whole vector.
    pub(super) fn whole_lines_along(&self, side: &Side) -> bool {
        (side.stride_divisor * self.unit).is_multiple_of(16)
    }
}

impl Lowering<'_> {
    /// Lowers an operation on views that touches no memory.
    pub(super) fn views(&mut self, data: &OpData, kind: &ScheduleOp) -> Lowered<()> {
        match kind {
            ScheduleOp::MakeTensorView {} => {
                let Type::TensorView(ty) = self.func.ty(data.result()) else {
                    return Err(self.broken("something else where a view is needed"));
                };
                let base = self.reg(data.one(0))?;
                let sizes = self.extents(&ty.shape, data.group(1))?;
                let strides = self.extents(&ty.strides, data.group(2))?;
                self.bind(data.result(), Bound::Tensor(Tensor { base, sizes, strides }));
            }
            ScheduleOp::MakePartitionView {} | ScheduleOp::MakeStridedView {} | ScheduleOp::MakeGatherScatterView {} => {
                let tensor = self.tensor(data.one(0))?;
                self.bind(data.result(), Bound::Tensor(tensor));
            }
            ScheduleOp::GetTensorShape {} => {
                let tensor = self.tensor(data.one(0))?;
                for (&result, &size) in data.results.iter().zip(&tensor.sizes) {
                    let size = self.as_index(result, size)?;
                    self.bind_regs(result, [size]);
                }
            }
            ScheduleOp::GetIndexSpaceShape {} => {
                let tensor = self.tensor(data.one(0))?;
                let Type::TileView(view) = self.func.ty(data.one(0)) else {
                    return Err(self.broken("something else where a view is needed"));
                };
                for (position, &result) in data.results.iter().enumerate() {
                    let size = tensor.sizes[view.dim_map[position] as usize];
                    let (ty, class) = self.index_type(size);
                    let step = step_of(view, position);
                    let (step, rest) = (self.b.constant(class, step), self.b.constant(class, step - 1));
                    let sum = self.b.add(ty, size, rest);
                    let count = self.b.div(ty, sum, step);
                    let count = self.as_index(result, count)?;
                    self.bind_regs(result, [count]);
                }
            }
            _ => astray(kind),
        }
        Ok(())
    }

    fn index_type(&self, reg: Reg) -> (Ty, Class) {
        match self.class(reg) {
            Class::B64 => (Ty::U64, Class::B64),
            class => (Ty::U32, class),
        }
    }

    fn extents(&mut self, stated: &[Extent], given: &[Value]) -> Lowered<SmallVec<[Reg; 4]>> {
        let mut given = given.iter();
        let mut regs = SmallVec::new();
        for &extent in stated {
            regs.push(match extent {
                Extent::Static(value) => match i32::try_from(value) {
                    Ok(value) => self.b.s32(value),
                    Err(_) => self.b.s64(value),
                },
                Extent::Dynamic => {
                    let &value = given.next().ok_or_else(|| self.broken("a view whose extents are not given"))?;
                    match self.facts.fact(value).value().map(i32::try_from) {
                        Some(Ok(value)) => self.b.s32(value),
                        _ => match self.index32(value)? {
                            Some(reg) => reg,
                            None => self.reg(value)?,
                        },
                    }
                }
            });
        }
        Ok(regs)
    }

    /// A size in the register of an integer value.
    fn as_index(&mut self, value: Value, size: Reg) -> Lowered<Reg> {
        let dtype = self.dtype(value)?;
        Ok(self.resized(dtype, true, size))
    }

    /// The tile of a view at an index, as it lies in memory and over the threads.
    pub(super) fn window(&mut self, view: Value, index: &[Value], layout: &Distribution) -> Lowered<Window> {
        self.window_of_part(view, index, layout, &[])
    }

    /// A part of such a tile, of the layout's shape: where it begins in the tile, and what that is a multiple of, along each axis (0 where it
    /// begins as the tile does).
    pub(super) fn window_of_part(
        &mut self,
        view: Value,
        index: &[Value],
        layout: &Distribution,
        begins: &[(Reg, u64)],
    ) -> Lowered<Window> {
        let tensor = self.tensor(view)?;
        let Type::TileView(ty) = self.func.ty(view) else {
            return Err(self.broken("something else where a view is needed"));
        };
        let ty = ty.clone();
        let dtype = ty.tensor.elem;
        let is_packed = dtype.bits() < 8 && !dtype.is_byte_bool();
        let bytes = if is_packed { 1 } else { dtype.unpacked_bytes() as u64 };
        let wide =
            states_wide(&ty.tensor) || tensor.sizes.iter().chain(&tensor.strides).any(|&reg| self.class(reg) == Class::B64);
        let place = self.place(layout);
        let facts = ViewFacts::of(self.func, &self.facts, view, &ty);
        let mut axes: SmallVec<[Side; 4]> = SmallVec::new();
        let mut corner = if is_packed { self.b.u64(0) } else { tensor.base };
        let (mut align, mut shift) = (facts.align, 0);
        for (position, &value) in index.iter().enumerate() {
            let dim = ty.dim_map[position] as usize;
            let (size, stride) = (tensor.sizes[dim], tensor.strides[dim]);
            let known = self.integer_in(stride);
            let (size_divisor, stride_divisor) = (facts.sizes[dim], known.map_or(facts.strides[dim], i64::unsigned_abs));
            let extent = u64::from(ty.tile[position]);
            if !self.func.ty(value).is_scalar() {
                let gathered = self.gathered(value, layout, position)?;
                let zero = self.b.constant(self.class(size), 0);
                axes.push(Side {
                    known,
                    stride,
                    dim,
                    size,
                    bound: Some((zero, size)),
                    inside: BTreeMap::new(),
                    gathered: Some(gathered),
                    size_divisor: 1,
                    start_divisor: 1,
                    starts: (0, 0),
                    least_size: 0,
                    stride_divisor,
                    extent,
                });
                align = align.min(power(stride_divisor * bytes));
                continue;
            }
            let step = step_of(&ty, position);
            let fact = self.facts.fact(value);
            let begins = begins.get(position);
            let start_divisor = begins.iter().fold(fact.divisor.saturating_mul(step), |all, (_, part)| gcd(all, *part));
            let index = self.scalar_index(value, wide)?;
            let class = self.class(index);
            let flat = if class == Class::B64 { Ty::S64 } else { Ty::S32 };
            let step = self.b.constant(class, step);
            let mut start = self.b.mul(flat, index, step);
            if let Some(&(part, _)) = begins {
                let part = if class == Class::B64 { self.widen(part) } else { part };
                start = self.b.add(flat, start, part);
            }
            let (moved, more) = self.corner_along(corner, (start, stride, known), bytes, wide);
            corner = moved;
            shift += more;
            align = align.min(power(start_divisor.saturating_mul(stride_divisor).saturating_mul(bytes)));
            // The tile stays inside where its index cannot be negative and the array's size is a multiple of its extent...
            let most = fact.greatest.saturating_mul(step_of(&ty, position) as i64).saturating_add(extent as i64);
            let least_size = self.least_size(size, facts.least_sizes[dim]);
            let covered = fact.least >= 0 && most <= least_size;
            let starts = match begins {
                Some(_) => (i64::MIN, i64::MAX),
                None => [fact.least, fact.greatest].map(|index| index.saturating_mul(step_of(&ty, position) as i64)).into(),
            };
            let padded = begins.is_none() && layout.shape()[position] != extent;
            // Of lines that begin between vectors more is read than the tile has: it is asked for, wherever the tile lies.
            let whole = facts.aligned(dim, bytes) * bytes == 16 && (start_divisor.saturating_mul(bytes)).is_multiple_of(16);
            let asked = !covered || padded || known == Some(1) && !whole;
            let size = if wide { self.widen(size) } else { size };
            axes.push(Side {
                known,
                stride,
                dim,
                size,
                bound: asked.then_some((start, size)),
                inside: BTreeMap::new(),
                gathered: None,
                size_divisor,
                start_divisor,
                starts,
                least_size,
                stride_divisor,
                extent: begins.map_or(extent, |_| layout.shape()[position]),
            });
        }
        if begins.is_empty() && !is_packed {
            align = align.max(facts.alignment(self.func, &self.facts, &ty, index));
        }
        Ok(Window {
            layout: layout.clone(),
            dtype,
            padding: ty.padding,
            place,
            axes,
            wide,
            corner,
            shift,
            bases: BTreeMap::new(),
            align,
            base: tensor.base,
            has_all_axes: index.len() == tensor.sizes.len(),
            base_align: facts.align,
            behind: (begins.is_empty() && bytes <= 16)
                .then(|| facts.behind(self.func, &self.facts, &ty, index, 16 / bytes))
                .flatten()
                .filter(|_| facts.align.is_multiple_of(16)),
            unit: bytes,
            packed: is_packed.then_some(tensor.base),
        })
    }

    /// A corner moved to where a tile starts along an axis, and the bytes that it is still to be moved by.
    fn corner_along(
        &mut self,
        corner: Reg,
        (start, stride, known): (Reg, Reg, Option<i64>),
        bytes: u64,
        wide: bool,
    ) -> (Reg, i64) {
        if wide {
            let stride = self.widen(stride);
            let offset = self.b.mul(Ty::S64, start, stride);
            let size = self.b.u64(bytes);
            return (self.b.mad(Ty::S64, offset, size, corner), 0);
        }
        let (place, more) = if known == Some(1) { self.less_constant(start) } else { (start, 0) };
        let offset = self.b.mul(Ty::S32, place, stride);
        let size = self.b.u32(bytes as u32);
        (self.b.mad_wide(Ty::S32, offset, size, corner), more * bytes as i64)
    }

    /// The integer that a register is known to hold.
    fn integer_in(&self, number: Reg) -> Option<i64> {
        self.b.kernel().constant(number).map(|bits| match self.class(number) {
            Class::B64 => bits as i64,
            _ => i64::from(bits as u32 as i32),
        })
    }

    /// A number as one that others may be computed from, too, and a constant.
    fn less_constant(&self, number: Reg) -> (Reg, i64) {
        let kernel = self.b.kernel();
        let is_sum = |inst| matches!(kernel.code(inst), Some(Code::Add(Ty::S32 | Ty::U32)));
        let sum = kernel.definition(number).filter(|&inst| is_sum(inst)).map(|inst| kernel.inst(inst).args.as_slice());
        match sum {
            Some(&[_, Arg::Use(place), Arg::Use(step)]) => self.integer_in(step).map_or((number, 0), |step| (place, step)),
            _ => (number, 0),
        }
    }

    /// A tile's index in as many bits as offsets have.
    fn scalar_index(&mut self, value: Value, wide: bool) -> Lowered<Reg> {
        let narrow = if wide { None } else { self.index32(value)? };
        match narrow {
            Some(index) => Ok(index),
            None => {
                let index = self.index64(value)?;
                Ok(if wide { index } else { self.b.cvt(Ty::U32, Ty::U64, index) })
            }
        }
    }

    fn least_size(&self, size: Reg, known: i64) -> i64 {
        match self.b.kernel().constant(size) {
            Some(bits) if self.class(size) == Class::B64 => bits as i64,
            Some(bits) => i64::from(bits as u32 as i32),
            None => known,
        }
    }

    /// The indices of a gathered axis for each register: the index tile's own elements in the layout of the tile.
    fn gathered(&mut self, value: Value, layout: &Distribution, dim: usize) -> Lowered<Vec<Reg>> {
        let from = self.layout(value)?;
        let (regs, elem, dtype) = (self.regs(value)?, self.elem(value)?, self.dtype(value)?);
        let mut strides: SmallVec<[u64; 4]> = SmallVec::from_elem(0, layout.rank());
        strides[dim] = 1;
        let map = super::remap::Remap { strides, offset: 0 };
        let regs = self.remapped(elem, (&from, &regs), layout, &map)?;
        Ok(regs.into_iter().map(|reg| self.signed(dtype, reg)).collect())
    }

    /// Whether an element lies in the array; `None` where it always does.
    pub(super) fn in_array(&mut self, window: &mut Window, register: usize) -> Option<Reg> {
        self.in_array_but(window, register, None)
    }

    /// The same, whatever its place along one axis.
    fn in_array_but(&mut self, window: &mut Window, register: usize, but: Option<usize>) -> Option<Reg> {
        let axes = (0..window.axes.len()).filter(|&dim| Some(dim) != but);
        axes.fold(None, |all, dim| {
            let along = self.in_array_along(window, register, dim, 0);
            self.both(all, along)
        })
    }

    /// Whether an element, or the one so many behind it, lies in the array along one axis.
    pub(super) fn in_array_along(&mut self, window: &mut Window, register: usize, dim: usize, more: u64) -> Option<Reg> {
        let side = &window.axes[dim];
        let (start, size) = side.bound?;
        if let Some(gathered) = &side.gathered {
            let index = gathered[register];
            let wide = self.class(index) == Class::B64 || self.class(size) == Class::B64;
            let (index, size) = if wide { (self.widen(index), self.widen(size)) } else { (index, size) };
            return Some(self.b.setp(Word::Lt, if wide { Ty::U64 } else { Ty::U32 }, index, size));
        }
        // A tile that divides the array is inside or outside as a whole.
        let whole = side.size_divisor.is_multiple_of(side.extent) && side.start_divisor.is_multiple_of(side.extent);
        let (least, most) = if whole { (0, 0) } else { window.place.range(register, dim) };
        let (least, most) = (least + more, most + more);
        if side.starts.0.saturating_add(least as i64) >= 0 && side.starts.1.saturating_add(most as i64) < side.least_size {
            return None;
        }
        let parts = if whole { (0, 0) } else { window.place.parts(register, dim) };
        let parts = (parts.0, parts.1 + more);
        if let Some(&within) = side.inside.get(&parts) {
            return Some(within);
        }
        let mut coordinate = if whole { self.b.u32(0) } else { self.coordinate(&window.place, register, dim) };
        if more > 0 {
            let more = self.b.u32(more as u32);
            coordinate = self.b.add(Ty::S32, coordinate, more);
        }
        let (ty, coordinate) = match self.class(start) {
            Class::B64 => (Ty::U64, self.b.cvt(Ty::U64, Ty::U32, coordinate)),
            _ => (Ty::U32, coordinate),
        };
        let position = self.b.add(ty, start, coordinate);
        let within = self.b.setp(Word::Lt, ty, position, size);
        window.axes[dim].inside.insert(parts, within);
        Some(within)
    }

    /// Whether a tile lies in its array, with so many elements on both sides of its lines: the same in all threads; `None` where that is known, or elements
    /// ask for themselves.
    pub(super) fn lies_inside(&mut self, window: &Window, beside: u64) -> Option<Reg> {
        if window.axes.iter().any(|side| side.gathered.is_some()) {
            return None;
        }
        let mut inside = None;
        for (side, &shape) in window.axes.iter().zip(window.layout.shape()) {
            let Some((start, size)) = side.bound else { continue };
            let (class, ty) = (self.class(start), if self.class(start) == Class::B64 { Ty::S64 } else { Ty::S32 });
            let beside = if side.known == Some(1) { beside } else { 0 };
            // A size less an extent wraps around nowhere.
            let extent = self.b.constant(class, side.extent.max(shape) + beside);
            let last = self.b.sub(ty, size, extent);
            let ends = self.b.setp(Word::Le, ty, start, last);
            inside = self.both(inside, Some(ends));
            if side.starts.0 < beside as i64 {
                let first = self.b.constant(class, beside);
                let begins = self.b.setp(Word::Ge, ty, start, first);
                inside = self.both(inside, Some(begins));
            }
        }
        inside
    }

    /// The address of a register's element.
    pub(super) fn address(&mut self, window: &mut Window, register: usize) -> Address {
        let bytes = window.unit as i64;
        let mut constant = window.shift;
        let mut key: SmallVec<[(u64, u64); 4]> = SmallVec::new();
        for (dim, side) in window.axes.iter().enumerate() {
            let (xor, add) = window.place.parts(register, dim);
            if side.gathered.is_some() {
                key.push((register as u64, u64::MAX));
                continue;
            }
            match side.known {
                Some(stride) => {
                    constant += add as i64 * stride * bytes;
                    key.push((xor, 0));
                }
                None => key.push((xor, add)),
            }
        }
        let fits = i32::try_from(constant).is_ok_and(|value| (-(1 << 23)..1 << 23).contains(&value));
        let base = match window.bases.get(&key) {
            Some(&base) => base,
            None => {
                let base = self.thread_address(window, register, &key);
                window.bases.insert(key, base);
                base
            }
        };
        if fits {
            return self.b.at(base, constant);
        }
        let constant = self.b.s64(constant);
        let base = self.b.add(Ty::S64, base, constant);
        self.b.at(base, 0)
    }

    fn thread_address(&mut self, window: &Window, register: usize, key: &[(u64, u64)]) -> Reg {
        let bytes = window.unit;
        let class = if window.wide { Class::B64 } else { Class::B32 };
        let flat = if window.wide { Ty::S64 } else { Ty::S32 };
        let mut offset = self.b.constant(class, 0);
        // The registers' share of open strides is added to the address last: threads share the rest.
        let mut steps: Vec<(Reg, u64)> = Vec::new();
        for (dim, side) in window.axes.iter().enumerate() {
            let stride = if window.wide { self.widen(side.stride) } else { side.stride };
            let part = match &side.gathered {
                Some(gathered) => {
                    let index = gathered[register];
                    match (window.wide, self.class(index)) {
                        (true, _) => self.widen(index),
                        (false, Class::B64) => self.b.cvt(Ty::U32, Ty::U64, index),
                        _ => index,
                    }
                }
                None => {
                    let (xor, add) = key[dim];
                    let mut part = window.place.thread[dim];
                    if xor != 0 {
                        let xor = self.b.u32(xor as u32);
                        part = self.b.xor(part, xor);
                    }
                    if add != 0 {
                        steps.push((stride, add));
                    }
                    if window.wide { self.b.cvt(Ty::U64, Ty::U32, part) } else { part }
                }
            };
            offset = self.b.mad(flat, part, stride, offset);
        }
        let mut base = if window.wide {
            let size = self.b.u64(bytes);
            self.b.mad(Ty::S64, offset, size, window.corner)
        } else {
            let size = self.b.u32(bytes as u32);
            self.b.mad_wide(Ty::S32, offset, size, window.corner)
        };
        for (stride, add) in steps {
            let size = self.b.constant(class, add * bytes);
            base =
                if window.wide { self.b.mad(Ty::S64, stride, size, base) } else { self.b.mad_wide(Ty::S32, stride, size, base) };
        }
        base
    }

    /// The elements that the thread holds, grouped into what one instruction can move. Holes and elements that lie outside
    /// of the array in every thread are left out.
    pub(super) fn runs(&mut self, window: &mut Window, ends: Ends) -> Vec<Run> {
        let (bits, cut) = self.vector_bits(window, ends);
        let mut runs = self.grouped(window, &bits, cut);
        for run in runs.iter_mut().filter(|_| cut.is_some()) {
            let Some(dim) = cut else { continue };
            let (along, cut) = self.parted(window, &run.registers, dim);
            (run.cut, run.when) = (cut.and_then(|cut| self.both(Some(cut), run.when)), self.both(run.when, along));
        }
        runs
    }

    /// Runs by the register bits that count along one; of an axis, along which the array may end among the elements of one, the caller says whether
    /// these lie in the array.
    pub(super) fn grouped(&mut self, window: &mut Window, bits: &[usize], but: Option<usize>) -> Vec<Run> {
        let mut seen = vec![false; window.place.len()];
        let mut runs = Vec::new();
        for first in 0..window.place.len() {
            if seen[first] {
                continue;
            }
            let mut registers = vec![first];
            for (position, &bit) in bits.iter().enumerate() {
                for i in 0..1 << position {
                    let other = registers[i] | bit;
                    registers.push(other);
                }
            }
            registers.iter().for_each(|&register| seen[register] = true);
            let hole = match self.inside(&window.place, first) {
                Inside::Never => continue,
                Inside::Always => None,
                Inside::When(within) => Some(within),
            };
            let others = self.in_array_but(window, first, but);
            let when = self.both(hole, others);
            let address = self.address(window, first);
            runs.push(Run { registers, address, when, cut: None });
        }
        runs
    }

    /// Whether all elements of a run lie in the array along its axis, and whether some may and others do not.
    pub(super) fn parted(&mut self, window: &mut Window, registers: &[usize], dim: usize) -> (Option<Reg>, Option<Reg>) {
        let (first, last) = (registers[0], registers[registers.len() - 1]);
        let (first, last) = (self.in_array_along(window, first, dim, 0), self.in_array_along(window, last, dim, 0));
        match (first, last) {
            (None, None) => (None, None),
            // The array begins before all of them.
            (first, Some(last)) if window.axes[dim].starts.0 >= 0 => {
                let beyond = self.b.not(last);
                (Some(last), self.both(first, Some(beyond)))
            }
            (first, last) => {
                let whole = self.both(first, last);
                (whole, whole.map(|whole| self.b.not(whole)))
            }
        }
    }

    /// The register bits that count along the axis whose neighbours are neighbours in memory, lowest first, as far as one
    /// instruction can move them at once; and that axis, where the array may end among them.
    fn vector_bits(&self, window: &Window, ends: Ends) -> (Vec<usize>, Option<usize>) {
        if window.packed.is_none() {
            let bounded = self.neighbours_of(window, Ends::Apart, Begin::Known);
            let bits = self.neighbours_of(window, ends, Begin::Known);
            let cut = (bits.len() > bounded.len()).then(|| contiguous(window)).flatten();
            return (bits, cut);
        }
        // The most of them that fill words.
        let bits = self.neighbours_of(window, Ends::Apart, Begin::Known);
        let width = u64::from(window.dtype.bits());
        let fits = (1..=bits.len()).rev().find(|&count| fills_words(width, 1 << count)).unwrap_or(0);
        (bits[..fits].to_vec(), None)
    }

    pub(super) fn neighbours_of(&self, window: &Window, ends: Ends, begin: Begin) -> Vec<usize> {
        let bytes = window.unit;
        let Some(dim) = contiguous(window) else { return Vec::new() };
        if window.axes.iter().any(|side| side.gathered.is_some() && !(side.stride_divisor * bytes).is_multiple_of(16)) {
            return Vec::new();
        }
        let core = window.layout.core();
        let side = &window.axes[dim];
        let mut bits = Vec::new();
        loop {
            let width = 2u64 << bits.len();
            // Other axes must keep the alignment, for every thread and register.
            let others = begin == Begin::Anywhere
                || window.axes.iter().enumerate().all(|(other, side)| {
                    other == dim || side.extent == 1 || (side.stride_divisor * bytes).is_multiple_of(width * bytes)
                });
            let bounded = ends == Ends::Among
                || side.bound.is_none()
                || (side.size_divisor.is_multiple_of(width) && side.start_divisor.is_multiple_of(width));
            let whole = window.layout.shape()[dim].is_multiple_of(width);
            let apart = window.place.thread_bits[dim] & (width - 1) == 0;
            let repeated = core.extent(dim).is_multiple_of(width);
            let aligned = begin == Begin::Anywhere || window.align.is_multiple_of(width * bytes);
            if width * bytes > 16 || !(others && bounded && whole && apart && repeated && aligned) {
                return bits;
            }
            let wanted = width / 2;
            let found = (0..core.bits(Axis::Register)).find(|&bit| {
                let basis = core.basis(Axis::Register, bit);
                basis.iter().enumerate().all(|(axis, &value)| value == if axis == dim { wanted } else { 0 })
            });
            match found {
                Some(bit) => bits.push(1 << bit),
                None => return bits,
            }
        }
    }

    /// The bits of what a load outside of the array yields.
    pub(super) fn padding(&mut self, padding: Padding, dtype: DType) -> Reg {
        self.bits(tessera_ir::Elem::Num(dtype), padding.bits(dtype))
    }
}

/// The axis along which neighbours are neighbours in memory.
pub(super) fn contiguous(window: &Window) -> Option<usize> {
    window.axes.iter().position(|side| side.known == Some(1) && side.gathered.is_none())
}
