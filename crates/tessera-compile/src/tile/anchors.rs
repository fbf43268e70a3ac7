//! Layouts that operations ask for by themselves.
//!
//! - A tile of a view is spread so that neighbouring threads touch neighbouring memory, in vectors of 16 bytes of the widest
//!   element that the function's views have: tiles of one shape and several element types then share one layout. Where no view has
//!   neighbours in memory, or lines of arrays are no whole vectors, neighbouring threads take neighbouring elements: what a thread reads one by one
//!   is then what a warp reads at once.
//! - A tile that is stored along another axis than it is loaded along is spread in blocks ([`turned`]).
//! - Warps lie along axes that nothing is combined over first: a row that a warp can hold needs no other warp's help.
//! - A load of fewer elements than the largest tile, or of no more than an accumulator, is not an anchor unless it feeds a matrix
//!   product: it takes its first user's layout.
//! - A matrix product asks for its instruction's fragments; one without an instruction reads both factors from shared memory ([`spread`]),
//!   where they lie whole or, with fewer bytes for exchanges than that takes, by parts of their steps.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::MemoryOrder;
use tessera_ir::fragment::{SIDE, WORD};
use tessera_ir::{
    Block, Diagnostic, Extent, Func, Op, OpKind, ScheduleOp, SharedType, Swizzle, TileOp, TileViewType, Type, Value, bug,
};
use tessera_layout::{Axis, Distribution, MmaAtom, Operand, WarpGrid};
use tessera_types::{Arch, DType};

use super::left::{self, Left};
use super::relation::{Layout, has_layout, shape};
use super::roles::is_product;
use super::{spread, turned};
use crate::facts::Facts;
use tessera_analysis::neighbours::{self, Vector};
use tessera_analysis::outer;
use tessera_analysis::sharing::{Sharing, instructions};
use tessera_analysis::views::ViewFacts;

/// Bytes of the widest access of one thread.
const VECTOR_BYTES: u64 = 16;

/// Rounds that a loop is taken to have.
const ROUNDS: usize = 8;

/// Bytes that memory moves at least.
const SECTOR_BYTES: u64 = 32;

/// What the target can multiply matrices with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// Whose instructions and limits.
    pub arch: Arch,
    /// There are products of warpgroups (`wgmma`) and a copy engine.
    pub warpgroups: bool,
    /// Bytes of shared memory that a block can have.
    pub shared: u32,
}

/// How a matrix product is done.
#[derive(Clone, Debug)]
pub(super) enum Product {
    /// By a warp's tensor instruction, from registers. `places` say where a left factor stands that is stored by half.
    Fragments { lhs: Layout, rhs: Layout, acc: Layout, places: Option<Layout> },
    /// By warpgroups, the right factor from shared memory, the left one from there or from registers.
    Warpgroups { lhs: Option<Layout>, acc: Layout, places: Option<Layout> },
    /// From shared memory: by multiply-adds of each thread, by a warp's instruction for a type that both factors are widened to, or one
    /// element of the accumulator after the other. `slots` says how a factor lies that comes as a tile.
    Shared { acc: Layout, slots: [SharedType; 2] },
    /// The same from registers, through shared memory, some steps of the contraction at a time: the factors are larger than what an exchange may
    /// use.
    InParts { acc: Layout },
}

impl Product {
    fn sums(&self) -> &Layout {
        match self {
            Product::Fragments { acc, .. }
            | Product::Warpgroups { acc, .. }
            | Product::Shared { acc, .. }
            | Product::InParts { acc } => acc,
        }
    }
}

/// The threads that run an operation.
#[derive(Clone, Copy, Debug)]
struct Team {
    threads: u64,
    /// Elements of a vector access.
    vector: u64,
}

impl Units {
    /// What an architecture has for a function, which may use less of its shared memory than there is.
    pub fn of(func: &Func, arch: Arch) -> Units {
        let shared = func.hints.ring_bytes.unwrap_or(arch.limits().shared_per_block);
        Units { arch, warpgroups: arch.has_wgmma(), shared }
    }
}

impl Team {
    fn new(warps: u32, bits: u32) -> Team {
        Team { threads: u64::from(warps) * 32, vector: VECTOR_BYTES * 8 / u64::from(bits) }
    }
}

/// The anchors of a function.
pub(super) struct Anchors {
    /// Who runs what stands in no role, or in the one that multiplies.
    team: Team,
    /// Who runs the operations of other roles.
    roles: FxHashMap<Op, Team>,
    /// Elements of the largest tile that is loaded.
    largest: u64,
    /// Axes that are combined over, by the rank of the tile.
    combined: FxHashMap<usize, usize>,
    products: FxHashMap<Op, Product>,
    /// How their sums lie, in order.
    sums: Vec<Layout>,
    /// Operations that a factor of a product is computed by.
    factors: FxHashSet<Op>,
    /// Accesses by pointers that are known to touch neighbours.
    vectors: FxHashMap<Op, Vector>,
    /// Loads whose tiles are stored along another axis, and that axis.
    turned: FxHashMap<Op, usize>,
}

impl Anchors {
    pub(super) fn new(func: &Func, units: &Units, warps: u32) -> Result<Anchors, Diagnostic> {
        let ops = func.linked_ops();
        let bits = ops.iter().filter_map(|&op| buffered_bits(func, op)).fold(widest(func), u32::max);
        let views = || ops.iter().filter_map(|&op| view_of(func, op));
        let largest = views().map(|view| view.tile.iter().map(|&extent| u64::from(extent)).product()).max().unwrap_or(0);
        let neighbours = |view: &TileViewType| view.tensor.strides.contains(&Extent::Static(1));
        let facts = Facts::of(func);
        let vectors = neighbours::vectors(func, &facts);
        let apart = vectors.is_empty() && views().next().is_some() && !views().any(neighbours);
        let turned = turned::loads(func);
        // Neighbours that move one by one are taken by neighbouring threads.
        let widest =
            vectors.values().map(|vector| vector.width).min().or_else(|| together(func, &facts, &ops, turned.is_empty()));
        let team = Team::new(warps, bits);
        let team = Team { vector: widest.map_or(team.vector, |width| team.vector.min(width)), ..team };
        let combined = ops.iter().filter_map(|&op| match func.ops[op].kind {
            OpKind::Schedule(ScheduleOp::Reduce { dim, .. }) => Some((shape(func, func.ops[op].one(0)).len(), dim as usize)),
            _ => None,
        });
        let mut anchors = Anchors {
            team: Team { vector: if apart { 1 } else { team.vector }, ..team },
            roles: teams(func),
            largest,
            combined: combined.collect(),
            products: FxHashMap::default(),
            sums: Vec::new(),
            factors: FxHashSet::default(),
            vectors,
            turned,
        };
        for op in ops {
            let kind = &func.ops[op].kind;
            if is_laid_out(kind) {
                let product = anchors.choose(func, op, units, warps)?;
                anchors.largest = anchors.largest.max(product.sums().elements() + 1);
                anchors.sums.push(product.sums().clone());
                anchors.products.insert(op, product);
                anchors.trace_factor(func, func.ops[op].one(0));
                anchors.trace_factor(func, func.ops[op].one(1));
            }
            if let OpKind::Tile(TileOp::ClusterSum { parts }) = kind {
                // Parts are left as whole sums are.
                let part = |sums: &Layout| sums.part(sums.rank() - 1, u64::from(*parts)).map(Arc::new);
                let own: Vec<Layout> = anchors.sums.iter().filter_map(part).collect();
                anchors.sums.extend(own);
            }
            if matches!(kind, OpKind::Tile(TileOp::StoreShared { .. })) {
                anchors.trace(func, func.ops[op].one(0));
            }
        }
        Ok(anchors)
    }

    fn choose(&self, func: &Func, op: Op, units: &Units, warps: u32) -> Result<Product, Diagnostic> {
        let warps = u64::from(warps);
        if func.ops[op].places().is_some() {
            let chosen = warpgroups(func, op, units, warps).or_else(|| sparse(func, op, units, warps));
            return chosen.ok_or_else(|| no_sparse_product(func, op, units.arch));
        }
        let chosen = warpgroups(func, op, units, warps)
            .or_else(|| instruction(func, op, units, warps))
            .or_else(|| by_threads(func, op, warps))
            .or_else(|| widened(func, op, units, warps));
        let product = match chosen {
            Some(product) => product,
            None => {
                let (acc, slots) = (self.default_of(func, func.ops[op].result())?, spread::plain(func, op));
                let slots =
                    slots.ok_or_else(|| Diagnostic::error("tile-layout", func.ops[op].span, "factors hold no numbers"))?;
                Product::Shared { acc, slots }
            }
        };
        Ok(match product {
            Product::Shared { acc, slots } if !is_exchanged_whole(func, op, &slots) => Product::InParts { acc },
            product => product,
        })
    }

    /// Notes what a factor is computed by, where that is not what became of another product's sums: such a factor lies as they do.
    fn trace_factor(&mut self, func: &Func, factor: Value) {
        if !from_product(func, factor, &mut FxHashSet::default()) {
            self.trace(func, factor);
        }
    }

    /// Notes what a factor is computed by.
    fn trace(&mut self, func: &Func, factor: Value) {
        if let Some(op) = func.defining_op(factor)
            && has_layout(func, factor)
            && self.factors.insert(op)
        {
            for &operand in &func.ops[op].operands {
                self.trace(func, operand);
            }
        }
    }

    /// How a product is done; `None` for other operations.
    pub(super) fn product(&self, op: Op) -> Option<&Product> {
        self.products.get(&op)
    }

    /// The layout that an operation gives its result; `None` where it takes its first user's.
    pub(super) fn of_result(&self, func: &Func, op: Op, result: Value) -> Result<Option<Layout>, Diagnostic> {
        if !has_layout(func, result) {
            return Ok(None);
        }
        match (self.products.get(&op), view_of(func, op)) {
            (Some(product), _) => Ok(Some(product.sums().clone())),
            // What a block has left of its sums lies as they do.
            (None, Some(_)) if left::leads_to_workspace(func, op) => {
                let wanted = shape(func, result);
                Ok(self.sums.iter().filter_map(Left::layout).find(|left| left.shape() == wanted))
            }
            (None, Some(_)) if self.is_small(func, op, result) && !is_ordered(func, op) => Ok(None),
            (None, Some(view)) => self.of_view(func, op, view).map(Some),
            (None, None) => match &func.ops[op].kind {
                // What a ring brought beside factors goes where sums are, as scales do.
                OpKind::Tile(TileOp::LoadShared {}) if !self.products.is_empty() && self.is_small(func, op, result) => Ok(None),
                OpKind::Tile(TileOp::LoadShared {}) => self.of_buffer(func, op, result).map(Some),
                OpKind::Tile(TileOp::ClusterGather {}) => self.of_all(func, op, result).map(Some),
                _ => self.default_of(func, result).map(Some),
            },
        }
    }

    /// The layout of a tile that every thread has all of.
    fn of_all(&self, func: &Func, op: Op, value: Value) -> Result<Layout, Diagnostic> {
        let layout = Distribution::replicated(&shape(func, value), self.team_of(op).threads);
        layout.map(Arc::new).map_err(|error| NoLayout(error.to_string()).at(func.ops[op].span))
    }

    /// No factor is computed from what is loaded, and an accumulator or another tile is larger.
    fn is_small(&self, func: &Func, load: Op, result: Value) -> bool {
        !self.factors.contains(&load) && shape(func, result).iter().product::<u64>() < self.largest
    }

    /// The layout in which an operation takes an operand that has none.
    pub(super) fn of_operand(&self, func: &Func, op: Op, operand: Value) -> Result<Layout, Diagnostic> {
        if matches!(func.ops[op].kind, OpKind::Tile(TileOp::ClusterGather {})) {
            return self.of_all(func, op, operand);
        }
        match view_of(func, op) {
            // A tile of indices is not a tile of the view.
            Some(view) if shape(func, operand).into_iter().eq(view.tile.iter().map(|&extent| u64::from(extent))) => {
                self.of_view(func, op, view)
            }
            _ => self.default_of(func, operand),
        }
    }

    /// The layout in which an operation takes an operand that has this one.
    pub(super) fn for_user(&self, func: &Func, op: Op, operand: Value, layout: &Layout) -> Result<Layout, Diagnostic> {
        match view_of(func, op) {
            Some(view) if !fills_sectors(layout, fastest(view), view.tensor.elem) => self.of_view(func, op, view),
            None if matches!(func.ops[op].kind, OpKind::Tile(TileOp::ClusterGather {})) => self.of_all(func, op, operand),
            _ => Ok(layout.clone()),
        }
    }

    /// Row-major order, the last axis fastest.
    pub(super) fn default_of(&self, func: &Func, value: Value) -> Result<Layout, Diagnostic> {
        let shape = shape(func, value);
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        let team = func.defining_op(value).map_or(self.team, |op| self.team_of(op));
        self.blocked(team, &shape, &order).map_err(|error| error.at_value(func, value))
    }

    /// The same with as few elements a thread as there can be.
    pub(super) fn one_each(&self, func: &Func, op: Op, value: Value) -> Result<Layout, Diagnostic> {
        let shape = shape(func, value);
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        self.singly(func, op, &shape, &order)
    }

    fn singly(&self, func: &Func, op: Op, shape: &[u64], order: &[usize]) -> Result<Layout, Diagnostic> {
        let layout = Distribution::blocked(shape, order, 1, self.team_of(op).threads);
        layout.map(Arc::new).map_err(|error| NoLayout(error.to_string()).at(func.ops[op].span))
    }

    /// The layout of an access by pointers: along neighbours first.
    pub(super) fn of_pointers(&self, func: &Func, op: Op, pointers: Value) -> Result<Layout, Diagnostic> {
        let Some(vector) = self.vectors.get(&op) else { return self.default_of(func, pointers) };
        let shape = shape(func, pointers);
        let mut order: Vec<usize> = (0..shape.len()).rev().filter(|&axis| axis != vector.axis).collect();
        order.insert(0, vector.axis);
        self.blocked(self.team_of(op), &shape, &order).map_err(|error| error.at(func.ops[op].span))
    }

    fn team_of(&self, op: Op) -> Team {
        self.roles.get(&op).copied().unwrap_or(self.team)
    }

    /// A tile that is read from a buffer, in the order in which it lies there.
    fn of_buffer(&self, func: &Func, op: Op, result: Value) -> Result<Layout, Diagnostic> {
        let shape = shape(func, result);
        let Type::Shared(buffer) = func.ty(func.ops[op].one(0)) else { return self.default_of(func, result) };
        let order: Vec<usize> = buffer.order.iter().rev().map(|&axis| axis as usize).collect();
        self.blocked(self.team_of(op), &shape, &order).map_err(|error| error.at(func.ops[op].span))
    }

    fn of_view(&self, func: &Func, op: Op, view: &TileViewType) -> Result<Layout, Diagnostic> {
        let shape: Vec<u64> = view.tile.iter().map(|&extent| u64::from(extent)).collect();
        let fastest = fastest(view);
        let mut order: Vec<usize> = (0..shape.len()).rev().filter(|&axis| axis != fastest).collect();
        order.insert(0, fastest);
        let Team { threads, vector } = self.team_of(op);
        if is_ordered(func, op) {
            return self.singly(func, op, &shape, &order);
        }
        let held = shape.iter().product::<u64>() / threads;
        let free = self.products.is_empty() && self.combined.is_empty() && held >= 2 * vector;
        if let Some(&axis) = self.turned.get(&op).filter(|_| free) {
            let layout = Distribution::turned(&shape, &order, axis, vector, threads);
            return layout.map(Arc::new).map_err(|error| NoLayout(error.to_string()).at(func.ops[op].span));
        }
        self.blocked(self.team_of(op), &shape, &order).map_err(|error| error.at(func.ops[op].span))
    }

    fn blocked(&self, team: Team, shape: &[u64], order: &[usize]) -> Result<Layout, NoLayout> {
        let mut warps = order.to_vec();
        if let Some(&combined) = self.combined.get(&shape.len())
            && self.products.is_empty()
        {
            // Stable: the other axes keep their order.
            warps.sort_by_key(|&axis| axis == combined);
        }
        // Vectors of half the width where those of a warp divide a line and the wide ones do not: no thread is left without.
        let divides = |vector: u64| order.first().is_some_and(|&axis| shape[axis].is_multiple_of(vector * 32));
        let narrower = team.vector == VECTOR_BYTES && !divides(team.vector) && divides(team.vector / 2);
        let vector = if narrower { team.vector / 2 } else { team.vector };
        // A warp that combines over a short row has all of its lanes at it.
        let row = |fastest: usize| (0..shape.len()).all(|axis| axis == fastest || shape[axis] == 1);
        let short = |&fastest: &usize| {
            let alone = team.threads == 32 && self.combined.contains_key(&shape.len()) && self.products.is_empty();
            let few = shape[fastest] < 2 * vector * 32 && !shape[fastest].is_multiple_of(vector * 32);
            let even = (0..vector.ilog2()).rev().map(|bit| 1 << bit).find(|narrow| shape[fastest].is_multiple_of(narrow * 32));
            even.filter(|_| alone && few && row(fastest))
        };
        let vector = order.first().and_then(short).unwrap_or(vector);
        let layout = Distribution::blocked_warps(shape, order, &warps, vector, team.threads)
            .map_err(|error| NoLayout(error.to_string()))?;
        Ok(Arc::new(layout))
    }
}

/// Whether other threads see an access in an order: it is one of each element, for which a vector gains nothing.
fn is_ordered(func: &Func, op: Op) -> bool {
    match &func.ops[op].kind {
        OpKind::Schedule(ScheduleOp::LoadViewTko { order, .. } | ScheduleOp::StoreViewTko { order, .. }) => {
            *order != MemoryOrder::Weak
        }
        _ => false,
    }
}

/// A product whose tiles lie as its instruction asks, where it has one.
fn is_laid_out(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::Schedule(ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFSparse {})
            | OpKind::Tile(TileOp::MmaShared { .. })
    )
}

/// Whether a product's sums are among what a value is computed from in registers.
fn from_product(func: &Func, value: Value, seen: &mut FxHashSet<Op>) -> bool {
    let Some(op) = func.defining_op(value).filter(|_| has_layout(func, value)) else { return false };
    let data = &func.ops[op];
    if is_laid_out(&data.kind) {
        return true;
    }
    seen.insert(op) && data.operands.iter().any(|&operand| from_product(func, operand, seen))
}

/// Bits of the elements that an operation reads from a buffer or writes to one.
fn buffered_bits(func: &Func, op: Op) -> Option<u32> {
    let data = &func.ops[op];
    let buffer = match data.kind {
        OpKind::Tile(TileOp::LoadShared {}) => data.one(0),
        OpKind::Tile(TileOp::StoreShared { .. }) => data.one(1),
        _ => return None,
    };
    Some(func.ty(buffer).the_shared().elem.bits())
}

/// Who runs the operations of roles that multiply no matrices.
fn teams(func: &Func) -> FxHashMap<Op, Team> {
    fn inside(func: &Func, block: Block, ops: &mut Vec<Op>) {
        for &op in &func.blocks[block].ops {
            ops.push(op);
            func.ops[op].regions.iter().for_each(|&region| inside(func, region, ops));
        }
    }
    let mut teams = FxHashMap::default();
    for &op in &func.blocks[func.body].ops {
        let OpKind::Tile(TileOp::Role { warps, .. }) = func.ops[op].kind else { continue };
        let mut ops = Vec::new();
        inside(func, func.ops[op].regions[0], &mut ops);
        if ops.iter().any(|&op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::MmaShared { .. }))) {
            continue;
        }
        let moved = |&op: &Op| buffered_bits(func, op).or_else(|| access(func, op).map(|(_, bits)| bits));
        let bits = ops.iter().filter_map(moved).fold(8, u32::max);
        teams.extend(ops.into_iter().map(|op| (op, Team::new(warps, bits))));
    }
    teams
}

/// A shape that no layout covers.
struct NoLayout(String);

impl NoLayout {
    fn at(self, span: tessera_ir::Span) -> Diagnostic {
        Diagnostic::error("tile-layout", span, format!("no layout over the block's threads: {}", self.0))
    }

    fn at_value(self, func: &Func, value: Value) -> Diagnostic {
        let span = func.defining_op(value).map_or(func.span, |op| func.ops[op].span);
        self.at(span)
    }
}

/// The accumulator of a product of warpgroups from a ring's slots, in the widest instructions that divide it.
fn warpgroups(func: &Func, op: Op, units: &Units, warps: u64) -> Option<Product> {
    if !units.warpgroups {
        return None;
    }
    let data = &func.ops[op];
    let Type::Shared(rhs) = func.ty(data.one(1)) else { return None };
    if !is_of_ring(func, data.one(1)) && !readable(func, data) {
        return None;
    }
    let &[m, n] = &shape(func, data.result())[..] else { return None };
    let legal =
        |columns: &u64| n.is_multiple_of(*columns) && (rhs.elem != DType::I8 || *columns <= 24 || columns.is_multiple_of(16));
    let columns = (1..=32).rev().map(|eights| 8 * eights).find(legal)?;
    let atom = MmaAtom::wgmma(columns, u64::from(rhs.elem.bits())).ok()?;
    let grid = WarpGrid { m: warps, n: 1 };
    let acc = atom.operand(Operand::C, [m, n], grid).ok()?;
    let depth = u64::from(rhs.shape[0]);
    let (stored, words) = match data.places() {
        Some(_) => (depth / 2, Some(depth / u64::from(WORD))),
        None => (depth, None),
    };
    let lhs = match func.ty(data.one(0)) {
        Type::Shared(_) => None,
        _ => Some(Arc::new(atom.operand(Operand::A, [m, stored], grid).ok()?)),
    };
    let places = words.map(|words| atom.places([m, words], grid)).transpose().ok()?;
    Some(Product::Warpgroups { lhs, acc: Arc::new(acc), places: places.map(Arc::new) })
}

/// The tensor cores of warpgroups can read the factors where they lie, outside of rings: swizzled as the copy engine does, the
/// contraction contiguous but for elements of 16 bits; and there are no other tiles than their layouts allow for.
fn readable(func: &Func, data: &tessera_ir::OpData) -> bool {
    let (Some(acc), Type::Shared(rhs)) = (func.ty(data.one(2)).as_tile(), func.ty(data.one(1))) else { return false };
    let fits = |buffer: &SharedType, contraction: u32| {
        let engine = [Swizzle::B32, Swizzle::B64, Swizzle::B128].contains(&buffer.swizzle) && buffer.pad == 0;
        let &[_, fastest] = &buffer.order[..] else { return false };
        let line = buffer.shape[fastest as usize] * buffer.elem.bits() / 8;
        let lines = line.is_multiple_of(16 << buffer.swizzle.bits);
        engine && lines && (buffer.elem.bits() == 16 || fastest == contraction)
    };
    let (warps, rows) = (u64::from(func.hints.warps()), u64::from(acc.shape[0]));
    let step = 256 / rhs.elem.bits();
    fits(rhs, 0)
        && func.ty(data.one(0)).as_shared().is_none_or(|lhs| fits(lhs, 1))
        && matches!(rhs.elem, DType::F16 | DType::BF16 | DType::TF32 | DType::I8 | DType::F8E4M3 | DType::F8E5M2)
        && matches!(acc.elem.num(), Some(DType::F32 | DType::I32))
        && warps.is_multiple_of(4)
        && rows.is_multiple_of(16 * warps)
        && rows >= 64
        && rhs.shape[0].is_multiple_of(if data.places().is_some() { 2 * step } else { step })
}

/// The buffer is a slot's of a ring, or a part of one.
fn is_of_ring(func: &Func, buffer: Value) -> bool {
    let Some(made) = func.defining_op(buffer).map(|op| &func.ops[op]) else { return false };
    match made.kind {
        OpKind::Tile(TileOp::Slot { .. }) => true,
        OpKind::Tile(
            TileOp::SliceShared {} | TileOp::SubviewShared { .. } | TileOp::TransposeShared { .. } | TileOp::CollapseShared {},
        ) => is_of_ring(func, made.one(0)),
        _ => false,
    }
}

/// Whether the function's warps have an instruction for a product.
pub(super) fn instruction_for(func: &Func, op: Op, units: &Units) -> bool {
    let warps = u64::from(func.hints.num_warps.unwrap_or(4));
    let buffers = matches!(func.ops[op].kind, OpKind::Tile(TileOp::MmaShared { .. }));
    let dense = || func.ops[op].places().is_none() && instruction(func, op, units, warps).is_some();
    (buffers && warpgroups(func, op, units, warps).is_some()) || dense()
}

/// Factors that come as tiles have room in shared memory for all of their steps.
fn is_exchanged_whole(func: &Func, op: Op, slots: &[SharedType; 2]) -> bool {
    let bytes = slots.iter().map(SharedType::bytes).sum::<u64>();
    let buffers = matches!(func.ops[op].kind, OpKind::Tile(TileOp::MmaShared { .. }));
    buffers || func.hints.exchange_bytes.is_none_or(|most| bytes <= u64::from(most))
}

/// A product that threads do by themselves, of buffers or of tiles in the type of the sums.
fn by_threads(func: &Func, op: Op, warps: u64) -> Option<Product> {
    let data = &func.ops[op];
    let &[m, n] = &shape(func, data.result())[..] else { return None };
    let out = func.ty(data.one(2)).num()?;
    let slots = [spread::buffer(func, data.one(0), out, 1, true)?, spread::buffer(func, data.one(1), out, 0, true)?];
    let elem = |value: Value| match func.ty(value) {
        Type::Shared(_) => Some(out),
        ty => ty.num(),
    };
    if [data.one(0), data.one(1)].into_iter().any(|factor| elem(factor) != Some(out)) || !matches!(out, DType::F32 | DType::F64) {
        return None;
    }
    let acc = outer::layout([m, n], outer::deep(slots.each_ref()), warps)?;
    Some(Product::Shared { acc: Arc::new(acc), slots })
}

/// A product whose factors are widened to a type that a warp's instruction multiplies.
fn widened(func: &Func, op: Op, units: &Units, warps: u64) -> Option<Product> {
    let data = &func.ops[op];
    let (lhs, rhs) = (data.one(0), data.one(1));
    let (wide, other) = (spread::wider(func.ty(lhs).num()?)?, spread::wider(func.ty(rhs).num()?)?);
    let depth = u64::from(*func.ty(lhs).as_tile()?.shape.last()?);
    if wide != other || func.ty(data.one(2)).num() != Some(DType::F32) {
        return None;
    }
    let Product::Fragments { acc, .. } = instruction_of(wide, func, op, depth, units, warps)? else { return None };
    let slots = [spread::buffer(func, lhs, wide, 1, false)?, spread::buffer(func, rhs, wide, 0, false)?];
    Some(Product::Shared { acc, slots })
}

/// The fragments of a product that a warp's instruction does, shared among the warps of the block.
pub(super) fn instruction(func: &Func, op: Op, units: &Units, warps: u64) -> Option<Product> {
    let data = &func.ops[op];
    let factor = match func.ty(data.one(0)) {
        Type::Shared(lhs) => lhs.tile(),
        ty => ty.as_tile()?.clone(),
    };
    let &[_, k] = &factor.shape[..] else { return None };
    instruction_of(factor.elem.num()?, func, op, u64::from(k), units, warps)
}

/// The same for factors of a type, `k` steps of the contraction deep.
fn instruction_of(dtype: DType, func: &Func, op: Op, k: u64, units: &Units, warps: u64) -> Option<Product> {
    let &[m, n] = &shape(func, func.ops[op].result())[..] else { return None };
    let atom = instructions(units.arch, dtype)
        .find(|&(am, an, ak)| m.is_multiple_of(am) && n.is_multiple_of(an) && k.is_multiple_of(ak))
        .and_then(|(am, an, ak)| MmaAtom::sync(am, an, ak, u64::from(dtype.bits())).ok())?;
    let sharing = Sharing::among(atom, warps, [m, n, k])?;
    let operand = |which, shape| sharing.operand(which, shape).map(Arc::new);
    Some(Product::Fragments {
        lhs: operand(Operand::A, [m, k])?,
        rhs: operand(Operand::B, [k, n])?,
        acc: operand(Operand::C, [m, n])?,
        places: None,
    })
}

fn no_sparse_product(func: &Func, op: Op, arch: Arch) -> Diagnostic {
    let message = format!(
        "`{arch}` has no product of these tiles whose left factor is stored by half: from sm_80 on there is one of 16 rows, 8 columns and 32 of the contraction"
    );
    Diagnostic::error("tile-layout", func.ops[op].span, message)
}

/// The fragments of a product whose left factor is stored by half, in registers: the instruction takes twice as many steps as one of these.
fn sparse(func: &Func, op: Op, units: &Units, warps: u64) -> Option<Product> {
    let data = &func.ops[op];
    let words = func.ty(data.places()?).as_tile()?.shape[1];
    let (lhs, &[m, n]) = (func.ty(data.one(0)).as_tile()?, &shape(func, data.result())[..]) else { return None };
    let (words, dtype) = (u64::from(words), lhs.elem.num()?);
    let k = words * u64::from(WORD);
    let atom = MmaAtom::sync(16, 8, u64::from(SIDE), u64::from(dtype.bits())).ok()?;
    if !units.arch.has_sparse_mma() || !m.is_multiple_of(atom.m) || !n.is_multiple_of(atom.n) {
        return None;
    }
    let sharing = Sharing::among(atom, warps, [m, n, k])?;
    let operand = |which, shape| sharing.operand(which, shape).map(Arc::new);
    Some(Product::Fragments {
        lhs: operand(Operand::A, [m, k / 2])?,
        rhs: operand(Operand::B, [k, n])?,
        acc: operand(Operand::C, [m, n])?,
        places: Some(Arc::new(sharing.places([m, words])?)),
    })
}

/// Elements of the tile that an operation reads or writes by a view or by pointers, and the bits of each in memory.
fn access(func: &Func, op: Op) -> Option<(u64, u32)> {
    if let Some(view) = view_of(func, op) {
        return Some((view.tile.iter().map(|&extent| u64::from(extent)).product(), view.tensor.elem.bits()));
    }
    let (pointers, _) = neighbours::pointers(func, op)?;
    let bits = neighbours::pointee_bits(func, pointers).unwrap_or_else(|| bug!("an access by what are no pointers"));
    Some((func.ty(pointers).the_tile().len() as u64, bits))
}

/// Accesses by pointers that are known to touch neighbours.
fn vectors(func: &Func) -> FxHashMap<Op, Vector> {
    neighbours::vectors(func, &Facts::of(func))
}

/// Bits of the widest element that the function reads or writes, a byte at least. Where nothing is multiplied, accesses of the largest tiles
/// say that alone: the others take their layouts from what is done with them, and a wide result of a reduction must not make vectors short.
pub(super) fn widest(func: &Func) -> u32 {
    let ops = func.linked_ops();
    let multiplies =
        ops.iter().any(|&op| is_product(func, op) || matches!(func.ops[op].kind, OpKind::Tile(TileOp::MmaShared { .. })));
    let largest = largest_access(func);
    let telling =
        ops.into_iter().filter_map(|op| access(func, op)).filter(|&(elements, _)| multiplies || Some(elements) == largest);
    telling.map(|(_, bits)| bits).fold(8, u32::max)
}

/// Elements of the largest tile that the function reads or writes, where it does.
fn largest_access(func: &Func) -> Option<u64> {
    func.linked_ops().into_iter().filter_map(|op| access(func, op)).map(|(elements, _)| elements).max()
}

/// The same for what threads hold: an address is wider than the element that it is of, unless one stands for several neighbours. Of
/// accesses by pointers those of the largest tiles tell, too: a label picked for each row takes no registers beside the row.
pub(super) fn widest_held(func: &Func) -> u32 {
    let (vectors, largest) = (vectors(func), largest_access(func));
    let gathers = |op: Op| {
        let apart = vectors.get(&op).is_none_or(|vector| vector.width == 1);
        apart && neighbours::pointers(func, op).is_some() && access(func, op).map(|(elements, _)| elements) == largest
    };
    if func.linked_ops().into_iter().any(gathers) { widest(func).max(32) } else { widest(func) }
}

/// The view that an operation reads or writes.
fn view_of(func: &Func, op: Op) -> Option<&TileViewType> {
    let OpKind::Schedule(kind) = &func.ops[op].kind else { return None };
    if !matches!(kind, ScheduleOp::LoadViewTko { .. } | ScheduleOp::StoreViewTko { .. } | ScheduleOp::AtomicRedViewTko { .. }) {
        return None;
    }
    func.ops[op].operands.iter().find_map(|&value| match func.ty(value) {
        Type::TileView(view) => Some(&**view),
        _ => None,
    })
}

/// The neighbours that one access through a view of the largest tiles can take, as most of them have it, in rounds of loops: lines of arrays begin at whole vectors of so many
/// elements. What begins between vectors is then taken by several instructions, or several elements by one. (Rows of 301 to 8191 in 16 bits that two other arrays beside them
/// do not begin with, which begin at vectors: 0.44 to 0.89 of the time by single elements; `results/users/odd-h200.txt`.) `None` where factors of
/// products are read, which lie as these ask, and of elements that share bytes.
fn together(func: &Func, facts: &Facts, ops: &[Op], one_way: bool) -> Option<u64> {
    if ops.iter().any(|&op| is_laid_out(&func.ops[op].kind) || is_product(func, op)) {
        return None;
    }
    let largest = largest_access(func)?;
    let telling = ops.iter().filter(|&&op| access(func, op).is_some_and(|(elements, _)| elements == largest));
    let of = |&op: &Op| {
        let view = view_of(func, op).filter(|view| view.tensor.elem.bits() >= 8)?;
        let value = func.ops[op].operands.iter().copied().find(|&value| matches!(func.ty(value), Type::TileView(_)))?;
        let (fastest, bytes) = (fastest(view), u64::from(view.tensor.elem.bits()) / 8);
        let known = ViewFacts::of(func, facts, value, view);
        // Of a tile of one line it counts where that begins.
        if (0..view.tile.len()).all(|axis| axis == fastest || view.tile[axis] == 1) {
            let index = func.ops[op].group(if view_is_stored(func, op) { 2 } else { 1 });
            return Some((known.alignment(func, facts, view, index) / bytes).clamp(1, (16 / bytes).max(1)));
        }
        Some(known.aligned(*view.dim_map.get(fastest)? as usize, bytes))
    };
    let once = &func.blocks[func.body].ops;
    let times = |op: &Op| if once.contains(op) { 1 } else { ROUNDS };
    let mut widths: Vec<u64> = Vec::new();
    for op in telling {
        widths.extend(std::iter::repeat_n(of(op)?, times(op)));
    }
    widths.sort_unstable();
    // The lower one of two in the middle. What is stored along another axis than it is loaded along goes the way of vectors once.
    if one_way { widths.get(widths.len().checked_sub(1)? / 2).copied() } else { widths.last().copied() }
}

/// Whether an operation is a store through a view, whose tile stands before it.
fn view_is_stored(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::StoreViewTko { .. }))
}

/// The tile axis along which memory is contiguous; where it is along none, the last one.
pub(super) fn fastest(view: &TileViewType) -> usize {
    let contiguous = |&axis: &u32| view.tensor.strides.get(axis as usize) == Some(&Extent::Static(1));
    view.dim_map.iter().position(contiguous).unwrap_or(view.dim_map.len().saturating_sub(1))
}

/// Registers and lanes together cover whole sectors along an axis.
fn fills_sectors(layout: &Layout, dim: usize, elem: DType) -> bool {
    let core = layout.core();
    let elements = (SECTOR_BYTES * 8 / u64::from(elem.bits())).min(core.extent(dim));
    let bases: Vec<_> = [Axis::Register, Axis::Lane]
        .into_iter()
        .flat_map(|axis| (0..core.bits(axis)).map(move |bit| core.basis(axis, bit)))
        .collect();
    (0..elements.ilog2()).all(|bit| {
        bases.iter().any(|basis| basis.iter().enumerate().all(|(axis, &value)| value == if axis == dim { 1 << bit } else { 0 }))
    })
}
