//! What caches may expect of each access, by who touches the same memory again.
//!
//! - *Kept*: a tile of at most [`KEPT`] bytes that every block reads, or every round of a loop: the same addresses whatever the block's index and
//!   the counters are, in memory that the kernel does not write.
//! - *Streamed*: memory that one access alone touches, once: its address differs between all blocks and between all rounds of the
//!   loops around it.
//! - Everything else is left to the caches: rows that several blocks of a grid's other axis read live in L2 by themselves.
//!
//! Asynchronous copies go past L1, and their hint is a policy of L2: there, what every block reads is *kept* whatever the round. Where a copy's lines are
//! shorter than 128 bytes and a later round reads on in them, L2 is asked for whole [lines](whole_lines) at once.
//!
//! What a target does with a hint stands in [`honours`]. Streamed loads and stores without allocation cost up to 7 % on an H200
//! (`docs/performance-history.md`), so that nothing is streamed there.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::{CacheHint, MemoryOrder};
use tessera_ir::{Block, Def, EntityId, Extent, Func, Op, OpKind, ScheduleOp, TileOp, Type, Value};
use tessera_types::Arch;

use super::visit;
use tessera_analysis::memory::{Root, root};

/// Bytes of a tile that is worth keeping near.
const KEPT: u64 = 16 << 10;

/// Bytes that L2 fetches at most for one access.
const LINE: u32 = 128;

/// Whether hints of a kind gain anything on a target.
fn honours(arch: Arch, hint: CacheHint) -> bool {
    match hint {
        CacheHint::Normal => false,
        CacheHint::Kept => arch.gains_by_keeping(),
        CacheHint::Streamed => arch.gains_by_streaming(),
    }
}

/// What an address depends on.
#[derive(Clone, Default)]
struct Depends {
    axes: [bool; 3],
    /// Loops whose counter or carried values it depends on.
    loops: FxHashSet<Op>,
    /// It depends on what was loaded, or found by an atomic update.
    unknown: bool,
}

/// A weak access to global memory.
struct Touch {
    op: Op,
    root: Root,
    writes: bool,
    depends: Depends,
    around: Vec<Op>,
    /// Bytes that a block touches at once.
    bytes: u64,
    hinted: bool,
    /// It goes past L1, and its hint is one for L2.
    copies: bool,
}

/// Copies of which L2 shall fetch whole lines of 128 bytes: a round copies a part of each line, and a loop around it goes along the line.
pub(super) fn whole_lines(func: &Func) -> Vec<Op> {
    let analysis = Analysis::new(func);
    let mut found = Vec::new();
    visit(func, &mut |op, around| {
        let data = &func.ops[op];
        let OpKind::Tile(TileOp::CopyAsync { lines: false, .. }) = data.kind else { return };
        let Type::TileView(view) = func.ty(data.one(0)) else { return };
        let unit = |axis: &usize| view.tensor.strides.get(view.dim_map[*axis] as usize) == Some(&Extent::Static(1));
        let Some(axis) = (0..view.tile.len()).find(unit) else { return };
        let along = data.group(1).get(axis).map(|&index| analysis.of(index));
        let goes_on = along.is_some_and(|along| around.iter().any(|looped| along.loops.contains(looped)));
        if goes_on && view.tile[axis] * view.tensor.elem.bits() < 8 * LINE {
            found.push(op);
        }
    });
    found
}

/// Accesses with the hint of each.
pub(super) fn hints(func: &Func, arch: Arch) -> Vec<(Op, CacheHint)> {
    let analysis = Analysis::new(func);
    let mut touches: Vec<Touch> = Vec::new();
    let mut others: FxHashSet<usize> = FxHashSet::default();
    let mut foreign = false;
    visit(func, &mut |op, around| match touch(func, &analysis, op, around) {
        Some(touch) => touches.push(touch),
        None => {
            // The copy engine, atomic updates and ordered accesses touch memory too.
            for value in func.ops[op].used() {
                let points = matches!(func.ty(value), Type::TileView(_)) || is_pointer(func, value);
                let touching = func.ops[op].row().effects != tessera_ir::Effects::Pure;
                match root(func, value) {
                    Root::Param(param) if points && touching => drop(others.insert(param)),
                    Root::Shared | Root::Unknown if points && touching => foreign = true,
                    _ => {}
                }
            }
        }
    });
    let used = analysis.axes;
    let mut found = Vec::new();
    for touch in &touches {
        let Root::Param(param) = touch.root else { continue };
        if touch.hinted || foreign || others.contains(&param) || touch.depends.unknown {
            continue;
        }
        let same = touches.iter().filter(|other| other.root == touch.root);
        let alone = same.clone().count() == 1;
        let written = same.clone().any(|other| other.writes);
        let every_block = touch.depends.axes.iter().zip(used).all(|(own, used)| *own || !used);
        let every_round = touch.around.iter().all(|looped| touch.depends.loops.contains(looped));
        let no_block = touch.depends.axes == [false; 3];
        let no_round = !touch.around.is_empty() && touch.around.iter().all(|looped| !touch.depends.loops.contains(looped));
        let fixed = touch.depends.loops.is_empty() && (no_block || no_round) || touch.copies && no_block && used != [false; 3];
        let hint = if alone && every_block && every_round && used[0] {
            CacheHint::Streamed
        } else if !written && fixed && touch.bytes <= KEPT {
            CacheHint::Kept
        } else {
            CacheHint::Normal
        };
        if honours(arch, hint) {
            found.push((touch.op, hint));
        }
    }
    found
}

fn is_pointer(func: &Func, value: Value) -> bool {
    func.ty(value).as_tile().is_some_and(|tile| matches!(tile.elem, tessera_ir::Elem::Ptr(_)))
}

fn touch(func: &Func, analysis: &Analysis<'_>, op: Op, around: &[Op]) -> Option<Touch> {
    let data = &func.ops[op];
    let (place, index, moved, writes, cache) = match &data.kind {
        OpKind::Schedule(ScheduleOp::LoadViewTko { order: MemoryOrder::Weak, cache, .. }) => {
            (data.one(0), data.group(1), data.results[0], false, cache)
        }
        OpKind::Schedule(ScheduleOp::StoreViewTko { order: MemoryOrder::Weak, cache, .. }) => {
            (data.one(1), data.group(2), data.one(0), true, cache)
        }
        OpKind::Schedule(ScheduleOp::LoadPtrTko { order: MemoryOrder::Weak, cache, .. }) => {
            (data.one(0), &[][..], data.results[0], false, cache)
        }
        OpKind::Schedule(ScheduleOp::StorePtrTko { order: MemoryOrder::Weak, cache, .. }) => {
            (data.one(0), &[][..], data.one(1), true, cache)
        }
        OpKind::Tile(TileOp::LoadVector { cache, .. }) if is_pointer(func, data.one(0)) => {
            (data.one(0), &[][..], data.results[0], false, cache)
        }
        OpKind::Tile(TileOp::StoreVector { cache, .. }) if is_pointer(func, data.one(1)) => {
            (data.one(1), &[][..], data.group(0)[0], true, cache)
        }
        OpKind::Tile(TileOp::CopyAsync { cache, .. }) => (data.one(0), data.group(1), data.one(2), false, cache),
        _ => return None,
    };
    let copies = matches!(data.kind, OpKind::Tile(TileOp::CopyAsync { .. }));
    let mut depends = analysis.of(place);
    index.iter().for_each(|&index| depends.merge(&analysis.of(index)));
    let tile = match func.ty(moved) {
        Type::Shared(buffer) => buffer.tile(),
        ty => ty.as_tile()?.clone(),
    };
    let count = if tile.shape.is_empty() { u64::from(func.hints.threads()) } else { tile.len() as u64 };
    let bytes = count * tile.elem.bytes();
    let root = root(func, place);
    Some(Touch { op, root, writes, depends, around: around.to_vec(), bytes, hinted: *cache != CacheHint::Normal, copies })
}

impl Depends {
    fn merge(&mut self, other: &Depends) {
        self.axes.iter_mut().zip(other.axes).for_each(|(own, other)| *own |= other);
        self.loops.extend(&other.loops);
        self.unknown |= other.unknown;
    }
}

/// What every value depends on.
struct Analysis<'f> {
    func: &'f Func,
    values: Vec<Depends>,
    /// Axes of the grid that anything depends on.
    axes: [bool; 3],
}

impl<'f> Analysis<'f> {
    fn new(func: &'f Func) -> Analysis<'f> {
        let mut analysis = Analysis { func, values: vec![Depends::default(); func.values.len()], axes: [false; 3] };
        let mut owners: FxHashMap<Block, Op> = FxHashMap::default();
        for op in func.linked_ops() {
            owners.extend(func.ops[op].regions.iter().map(|&region| (region, op)));
        }
        for op in func.linked_ops() {
            for &region in &func.ops[op].regions {
                for &arg in &func.blocks[region].args {
                    analysis.argument(arg, &owners);
                }
            }
            analysis.operation(op);
        }
        analysis
    }

    fn of(&self, value: Value) -> Depends {
        self.values[value.index()].clone()
    }

    /// What a loop hands to its body differs from round to round, and depends on where it starts.
    fn argument(&mut self, arg: Value, owners: &FxHashMap<Block, Op>) {
        let Def::Argument(block, _) = self.func.values[arg].def else { return };
        let Some(&owner) = owners.get(&block) else { return };
        let mut depends = Depends::default();
        depends.loops.insert(owner);
        for &operand in &self.func.ops[owner].operands {
            depends.merge(&self.of(operand));
        }
        self.values[arg.index()] = depends;
    }

    fn operation(&mut self, op: Op) {
        let data = &self.func.ops[op];
        let mut depends = Depends::default();
        data.operands.iter().for_each(|&operand| depends.merge(&self.of(operand)));
        match &data.kind {
            OpKind::Schedule(ScheduleOp::GetTileBlockId { axis }) => {
                let at = *axis as usize;
                depends.axes[at] = true;
                self.axes[at] = true;
            }
            OpKind::Schedule(ScheduleOp::If {}) => depends.unknown = true,
            OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => depends.unknown = true,
            _ if !matches!(data.row().effects, tessera_ir::Effects::Pure | tessera_ir::Effects::MayTrap) => {
                depends.unknown = true
            }
            _ => {}
        }
        for &result in &data.results {
            self.values[result.index()] = depends.clone();
        }
    }
}
