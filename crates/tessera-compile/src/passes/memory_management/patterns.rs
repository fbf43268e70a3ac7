//! How a buffer is accessed, in a form that any arrangement of it can be judged by.
//!
//! ```text
//! %y = tile.load_shared %part : tile<64x32xf32, #1>       the tile by layout #1, from a part of the buffer
//! %e = tile.load_element %a, [%t, %t] : tile<bf16>        one element a lane: (0, 0), (1, 1), (2, 2), ...
//! ```

use smallvec::SmallVec;
use tessera_ir::uniformity::UniformityMap;
use tessera_ir::{Block, Func, Op, OpData, OpKind, ScheduleOp, Shape, SharedType, Swizzle, TileOp, Type, Value};
use tessera_layout::{Access, Distribution, MatrixAccess, Operand, WARP, wavefronts};
use tessera_types::{Arch, DType};

use super::lanes::{LANES, Lanes};
use tessera_analysis::arrangement::Arrangement;
use tessera_analysis::buffers::{Buffers, accesses};
use tessera_analysis::lines::Lines;
use tessera_analysis::sharing::Sharing;

/// A step from a buffer to a part of it.
#[derive(Clone, Debug)]
enum Step {
    Entry,
    Block(Shape, Shape),
    Permuted(Shape),
    Collapsed(Shape),
}

/// From a whole buffer to a part.
#[derive(Clone, Debug, Default)]
struct Path(Vec<Step>);

impl Path {
    /// How a part lies, and the bytes before it.
    fn follow(&self, whole: &SharedType) -> Option<(Arrangement, u64)> {
        let (mut lies, mut start) = (Arrangement::of(whole), 0);
        for step in &self.0 {
            lies = match step {
                Step::Entry => lies.entry(),
                Step::Permuted(permutation) => lies.permuted(permutation),
                Step::Collapsed(shape) => lies.collapsed(shape)?,
                Step::Block(offsets, shape) => {
                    let (part, before) = lies.block(offsets, shape)?;
                    start += before;
                    part
                }
            };
        }
        Some((lies, start))
    }
}

/// What moves.
#[derive(Clone, Debug)]
enum Moves {
    /// A tile, by vectors, or out of memory by `ldmatrix` where that takes fewer instructions.
    Tile { layout: Distribution, stores: bool },
    /// A tile, by `ldmatrix` or `stmatrix` where that is possible.
    Matrices { layout: Distribution, stores: bool },
    /// A tile, by `stmatrix` and nothing else.
    Stored { layout: Distribution },
    /// Lines of a factor by the threads that multiply; the lines are the accumulator's coordinate `dim`.
    Lines { acc: Distribution, dim: usize },
    /// One element a lane.
    Elements { rounds: Vec<[SmallVec<[u64; 4]>; LANES]> },
}

/// An access and how often it runs.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    path: Path,
    moves: Moves,
    /// Loops around it.
    pub(super) loops: u32,
}

/// What an access costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// The worst degree of a phase.
    pub(super) degree: u32,
    pub(super) wavefronts: u64,
    pub(super) ideal: u64,
    /// Instructions of a warp.
    pub(super) instructions: u64,
    /// Those of them whose address must be mixed anew.
    pub(super) mixed: u64,
}

/// How a buffer is used.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// Every access whose lanes are known.
    pub(super) patterns: Vec<Pattern>,
    /// An instruction dictates how it lies, or somebody who cannot be followed uses it.
    pub(super) dictated: bool,
    /// Vectors of so many bytes must stay whole, along the axis that is fastest now.
    pub(super) whole_bytes: u64,
}

impl Pattern {
    /// What it costs when the whole buffer is of a type; `None` where it could not be made.
    pub(super) fn cost(&self, whole: &SharedType) -> Option<Cost> {
        let (lies, start) = self.path.follow(whole)?;
        match &self.moves {
            Moves::Lines { acc, dim } => drop(Lines::of(&lies, acc, *dim)?),
            Moves::Stored { layout } => drop(lies.matrix_store(layout)?),
            Moves::Tile { .. } | Moves::Matrices { .. } | Moves::Elements { .. } => {}
        }
        let mut cost = Cost::default();
        self.each(&lies, start, &mut |access| {
            let phases = wavefronts(&access.addresses, access.bytes);
            cost.degree = phases.iter().copied().fold(cost.degree, u32::max);
            cost.wavefronts += access.weight * u64::from(phases.iter().sum::<u32>());
            cost.ideal += access.weight * u64::from(access.ideal());
            cost.instructions += access.weight;
        });
        if lies.swizzle.bits > 0 && !matches!(self.moves, Moves::Elements { .. }) {
            cost.mixed = cost.instructions;
        }
        Some(cost)
    }

    /// Its instructions as they ask for unmixed addresses, vectors as wide as `most` bytes; for the search of a mixing.
    pub(super) fn plain(&self, whole: &SharedType, most: u64) -> Vec<Access> {
        let plain = SharedType { swizzle: Swizzle::NONE, ..whole.clone() };
        let mut found = Vec::new();
        if let Some((mut lies, start)) = self.path.follow(&plain) {
            lies.align = lies.align.min(most);
            self.each(&lies, start, &mut |access| found.push(access));
        }
        found
    }

    /// The instructions of the first warp. In a layout without holes they differ by what all lanes add or mix in alike, and the first stands for
    /// all.
    fn each(&self, lies: &Arrangement, start: u64, see: &mut impl FnMut(Access)) {
        let at = |coordinates: &[u64]| lies.swizzle.apply(start + lies.offset(coordinates));
        match &self.moves {
            Moves::Elements { rounds } => {
                for round in rounds {
                    let addresses = std::array::from_fn(|lane| Some(at(&round[lane])));
                    see(Access { addresses, bytes: lies.element_bytes(), weight: 1 });
                }
            }
            Moves::Matrices { layout, stores } => {
                let access = if *stores { lies.matrix_store(layout) } else { lies.matrix_access(layout) };
                match access {
                    None => self.vectors(lies, layout, *stores, &at, see),
                    Some(access) => matrices(layout, &access, &at, see),
                }
            }
            Moves::Stored { layout } => {
                if let Some(access) = lies.matrix_store(layout) {
                    matrices(layout, &access, &at, see);
                }
            }
            Moves::Tile { layout, stores } => match lies.matrix_load(layout).filter(|_| !stores) {
                None => self.vectors(lies, layout, *stores, &at, see),
                Some(access) => matrices(layout, &access, &at, see),
            },
            Moves::Lines { acc, dim } => {
                if let Some(lines) = Lines::of(lies, acc, *dim) {
                    let addresses = lines.offsets(acc, *dim).map(|offset| offset.map(|offset| start + offset));
                    let weight = lines.loads(u64::from(lies.shape[1 - dim]));
                    see(Access { addresses, bytes: lines.vector as u64 * lies.element_bytes(), weight });
                }
            }
        }
    }

    fn vectors(
        &self,
        lies: &Arrangement,
        layout: &Distribution,
        stores: bool,
        at: &impl Fn(&[u64]) -> u64,
        see: &mut impl FnMut(Access),
    ) {
        let bits = lies.vector_bits(layout, 16);
        let bytes = lies.element_bytes() << bits.len();
        let mask = bits.iter().fold(0, |mask, bit| mask | *bit as u64);
        let all = layout.registers() >> bits.len();
        let few = if layout.has_holes() { all } else { 1 };
        for register in (0..layout.registers()).filter(|register| register & mask == 0).take(few as usize) {
            let owns = |lane: u64| !stores || layout.is_primary(register, lane);
            let address = |lane: usize| {
                let element = layout.element(register, lane as u64).filter(|_| owns(lane as u64))?;
                Some(at(&element))
            };
            let addresses: [Option<u64>; WARP as usize] = std::array::from_fn(address);
            if addresses.iter().any(Option::is_some) {
                see(Access { addresses, bytes, weight: all / few });
            }
        }
    }
}

/// The rows that a warp's lanes name in an instruction that moves matrices.
fn matrices(layout: &Distribution, access: &MatrixAccess, at: &impl Fn(&[u64]) -> u64, see: &mut impl FnMut(Access)) {
    let all = access.registers.bases(layout).count() as u64;
    let few = if layout.has_holes() { all } else { 1 };
    for base in access.registers.bases(layout).take(few as usize) {
        let row = |lane: u64| {
            let taken = lane < 8 * access.matrices;
            taken.then(|| access.row(layout, base, 0, lane)).flatten()
        };
        let addresses = std::array::from_fn(|lane| row(lane as u64).map(|row| at(&row)));
        see(Access { addresses, bytes: 16, weight: all / few });
    }
}

/// How every buffer of a function is used.
pub(super) fn usages(func: &Func, arch: Arch, buffers: &Buffers) -> Vec<Usage> {
    let uniformity = UniformityMap::new(func);
    let mut walk = Walk {
        func,
        arch,
        buffers,
        rounds: [0, 1].map(|round| Lanes::new(func, &uniformity, round)),
        found: vec![Usage::default(); buffers.allocs.len()],
    };
    walk.block(func.body, 0);
    walk.found
}

struct Walk<'f> {
    func: &'f Func,
    arch: Arch,
    buffers: &'f Buffers,
    rounds: [Lanes<'f>; 2],
    found: Vec<Usage>,
}

impl Walk<'_> {
    fn block(&mut self, block: Block, loops: u32) {
        let func = self.func;
        for &op in &func.blocks[block].ops {
            self.op(op, loops);
            let data = &func.ops[op];
            let deeper = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
            data.regions.iter().for_each(|&region| self.block(region, loops + u32::from(deeper)));
        }
    }

    fn op(&mut self, op: Op, loops: u32) {
        let func = self.func;
        let data = &func.ops[op];
        match &data.kind {
            OpKind::Tile(TileOp::LoadShared {}) => self.tile(data.one(0), data.result(), false, loops),
            OpKind::Tile(TileOp::StoreShared { matrices: false }) => self.tile(data.one(1), data.one(0), true, loops),
            OpKind::Tile(TileOp::StoreShared { matrices: true }) => {
                let layout = func.ty(data.one(0)).layout().cloned();
                self.note(data.one(1), loops, layout.map(|layout| Moves::Stored { layout }));
            }
            OpKind::Tile(TileOp::LoadElement {}) => self.elements(data.one(0), data.group(1), loops),
            OpKind::Tile(TileOp::StoreElement { .. }) => self.elements(data.one(1), data.group(2), loops),
            OpKind::Tile(TileOp::AtomicElement { .. }) => self.elements(data.one(1), data.group(2), loops),
            OpKind::Tile(TileOp::AtomicCasElement {}) => self.elements(data.one(2), data.group(3), loops),
            OpKind::Tile(TileOp::CopyAsync { .. }) => self.keep_whole(data.one(2), 16),
            OpKind::Tile(TileOp::CopyAsyncElement { bytes }) => self.keep_whole(data.one(1), u64::from(*bytes)),
            OpKind::Tile(TileOp::LoadVector { .. }) => self.vector(data.one(0), data.results.len()),
            OpKind::Tile(TileOp::StoreVector { .. }) => self.vector(data.one(1), data.group(0).len()),
            OpKind::Tile(TileOp::MmaShared { .. } | TileOp::MmaSync { .. }) => self.product(data, loops),
            OpKind::Tile(TileOp::ConvertLayout {}) => self.exchange(data, loops),
            _ => {
                // Whoever else has a hand on the memory is not followed: the accelerator, warpgroups, rings, copies that turn.
                let named = accesses(func, data).into_iter().map(|access| access.buffer);
                let rings = matches!(data.kind, OpKind::Tile(TileOp::Ring { .. }));
                let all = named.chain(data.operands.iter().copied().filter(|_| rings));
                all.for_each(|value| self.dictated(value));
            }
        }
        // Parts that loops and conditions carry have no path.
        let carried = !data.regions.is_empty() || data.row().effects == tessera_ir::Effects::Terminator;
        if carried {
            let shared = data.operands.iter().filter(|&&value| matches!(func.ty(value), Type::Shared(_)));
            shared.for_each(|&value| self.dictated(value));
        }
    }

    fn dictated(&mut self, value: Value) {
        for buffer in self.buffers.parts(value).iter() {
            self.found[buffer].dictated = true;
        }
    }

    /// Neighbours that one access moves stay neighbours.
    fn vector(&mut self, value: Value, count: usize) {
        if let Type::Shared(ty) = self.func.ty(value) {
            self.keep_whole(value, (count * ty.elem.unpacked_bytes()) as u64);
        }
    }

    fn keep_whole(&mut self, value: Value, bytes: u64) {
        for buffer in self.buffers.parts(value).iter() {
            let least = &mut self.found[buffer].whole_bytes;
            *least = (*least).max(bytes);
        }
    }

    /// Where a value lies in its buffer.
    fn path(&self, value: Value) -> Option<(usize, Path)> {
        let func = self.func;
        let (mut at, mut steps) = (value, Vec::new());
        loop {
            let data = &func.ops[func.defining_op(at)?];
            match &data.kind {
                OpKind::Tile(TileOp::AllocShared { .. }) => break,
                OpKind::Tile(TileOp::SliceShared {}) => steps.push(Step::Entry),
                OpKind::Tile(TileOp::TransposeShared { permutation }) => steps.push(Step::Permuted(permutation.clone())),
                OpKind::Tile(TileOp::CollapseShared {}) => steps.push(Step::Collapsed(func.ty(at).as_shared()?.shape.clone())),
                OpKind::Tile(TileOp::SubviewShared { offsets }) => {
                    steps.push(Step::Block(offsets.clone(), func.ty(at).as_shared()?.shape.clone()));
                }
                _ => return None,
            }
            at = data.one(0);
        }
        steps.reverse();
        Some((self.buffers.parts(at).only()?, Path(steps)))
    }

    fn note(&mut self, value: Value, loops: u32, moves: Option<Moves>) {
        match (self.path(value), moves) {
            (Some((buffer, path)), Some(moves)) => self.found[buffer].patterns.push(Pattern { path, moves, loops }),
            (Some(_), None) => {}
            (None, _) => self.dictated(value),
        }
    }

    fn tile(&mut self, value: Value, tile: Value, stores: bool, loops: u32) {
        let layout = self.func.ty(tile).layout().cloned();
        self.note(value, loops, layout.map(|layout| Moves::Tile { layout, stores }));
    }

    /// Accesses that memory decides about have no pattern, and want none.
    fn elements(&mut self, value: Value, indices: &[Value], loops: u32) {
        let Type::Shared(ty) = self.func.ty(value) else { return };
        let mut rounds = Vec::new();
        for lanes in &mut self.rounds {
            let axes: Option<Vec<_>> = indices.iter().map(|&index| lanes.of(index)).collect();
            let Some(axes) = axes else { break };
            // What lies outside stands for what is there in some other round.
            let inside = |axis: usize, lane: usize| axes[axis][lane].rem_euclid(i64::from(ty.shape[axis])) as u64;
            rounds.push(std::array::from_fn(|lane| (0..axes.len()).map(|axis| inside(axis, lane)).collect()));
        }
        self.note(value, loops, (!rounds.is_empty()).then_some(Moves::Elements { rounds }));
    }

    /// A tile that changes its layout on the way through a buffer of its shape.
    fn exchange(&mut self, data: &OpData, loops: u32) {
        let Some(through) = data.through else { return };
        let (from, to) = (self.func.ty(data.one(0)), self.func.ty(data.result()));
        let fits = self.func.ty(through).as_shared().is_some_and(|ty| from.as_tile() == Some(&ty.tile()));
        match (from.layout().cloned(), to.layout().cloned()) {
            (Some(from), Some(to)) if fits => {
                let stored = match self.arch.has_stmatrix() {
                    true => Moves::Matrices { layout: from, stores: true },
                    false => Moves::Tile { layout: from, stores: true },
                };
                self.note(through, loops, Some(stored));
                self.note(through, loops, Some(Moves::Matrices { layout: to, stores: false }));
            }
            _ => self.dictated(through),
        }
    }

    /// A product by a warp's instructions reads fragments, one step of the contraction at a time.
    fn product(&mut self, data: &OpData, loops: u32) {
        let func = self.func;
        let (lhs, rhs, acc) = (data.one(0), data.one(1), data.one(2));
        let shared = [lhs, rhs].into_iter().filter(|&factor| matches!(func.ty(factor), Type::Shared(_)));
        let fragments = || {
            let (right, out) = (func.ty(rhs).as_shared()?, func.ty(acc).layout()?);
            let (depth, n) = (u64::from(*right.shape.first()?), u64::from(*right.shape.get(1)?));
            let sharing = Sharing::of(self.arch, right.elem, out, depth).filter(|_| right.shape.len() == 2)?;
            let left = sharing.operand(Operand::A, [out.shape()[0], sharing.atom.k])?;
            Some((left, sharing.operand(Operand::B, [sharing.atom.k, n])?, sharing.atom.k))
        };
        let Some((left, right, step)) = fragments() else {
            let by_threads = match (func.ty(rhs), func.ty(acc)) {
                (Type::Shared(right), Type::Distributed(out))
                    if out.tile.elem.num() == Some(right.elem) && matches!(right.elem, DType::F32 | DType::F64) =>
                {
                    Some(&out.layout)
                }
                _ => None,
            };
            for factor in shared {
                let moves = by_threads.map(|acc| Moves::Lines { acc: acc.clone(), dim: usize::from(factor == rhs) });
                match moves {
                    Some(moves) => self.note(factor, loops, Some(moves)),
                    None => self.dictated(factor),
                }
            }
            return;
        };
        for factor in shared {
            let axis = usize::from(factor == lhs);
            let layout = if factor == lhs { &left } else { &right };
            let Some(ty) = func.ty(factor).as_shared() else { continue };
            let count = u64::from(ty.shape[axis]) / step;
            for number in 0..count.min(4) {
                let Some((buffer, mut path)) = self.path(factor) else {
                    self.dictated(factor);
                    break;
                };
                let mut offsets = Shape::from_elem(0, 2);
                offsets[axis] = (number * step) as u32;
                let shape = layout.shape().iter().map(|&extent| extent as u32).collect();
                path.0.push(Step::Block(offsets, shape));
                self.found[buffer].patterns.push(Pattern {
                    path,
                    moves: Moves::Matrices { layout: layout.clone(), stores: false },
                    loops,
                });
            }
        }
    }
}
