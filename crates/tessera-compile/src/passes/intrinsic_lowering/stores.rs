//! Tiles that leave in fragments: by `stmatrix` into shared memory, and from there by the copy engine.
//!
//! A fragment of a product has two neighbours of 16 bits a thread: stored as it lies, each instruction writes half a sector of each of eight
//! lines. By matrices of rows of 16 bytes the tile goes to a buffer in the engine's own arrangement, and one thread sends it on its way. Fragments
//! of 8 bits, of which an instruction would write a quarter of a sector, go there by vectors.
//!
//! ```text
//! %t = store_view_tko %x, %view, [%i, %j]            %b = tile.alloc_shared .. : shared<128x256xbf16, swizzle=<3,4,3>>   (where the function begins)
//!                                                    tile.store_shared %x, %b {matrices=true}
//!                                              ->    tile.fence_async; tile.barrier
//!                                                    tile.tma_store %b, %view, [%i, %j]
//!                                                    tile.tma_store_wait {pending=0, read=true}
//! ```
//!
//! Sums of warpgroups in 16 or 32 bits need no buffer for the whole tile: each warp sends its own rows in parts (`tile.send_tile`), which may be lines
//! along several axes of the view's tile. Where the engine
//! cannot address the view, since lines begin anywhere, lanes store the parts line by line (`tile.store_lines`).
//!
//! In a loop the engine goes on while the next round works: the wait, for all of it, comes before the next round's tile is written, and once behind
//! the loops. What warps send from buffers of their own waits until these are free. The engine keeps no order between one round's tile and the next
//! one's: where a block may store to the same place in two rounds, warps wait before they send until all of what they sent is written.
//!
//! **Predicate.** The buffer's arrangement and the layout of the tile, or of what it was converted from, are made of the instruction's matrices, or
//! lanes side by side fill less than a sector and meet in no bank of the buffer; the engine can address the view, or sums lie in its lines; the array is
//! disjoint from all others, nothing else writes it but another role whose stores no token orders with this one, or the other side of a branch that a
//! block takes once, and nothing reads it when the engine may be writing; the buffer costs no resident block.

use rustc_hash::FxHashMap;
use tessera_ir::attrs::MemoryOrder;
use tessera_ir::{
    Block, Def, Effects, Elem, Extent, Func, Op, OpData, OpKind, ScheduleOp, SharedType, TileOp, Type, Value, ViewKind, bug,
};
use tessera_types::Arch;

use super::copies::{addressable, constant};
use crate::passes::memory_management::resident;
use tessera_analysis::arrangement::{Arrangement, MIXED_LINES, engine_span, engine_swizzle};
use tessera_analysis::exits::can_leave;
use tessera_analysis::facts::Facts;
use tessera_analysis::linear::{Linear, Wraps};
use tessera_analysis::memory::{Root, access, root};
use tessera_analysis::room::buffer_bytes;
use tessera_analysis::sent;
use tessera_analysis::views::step_of;

/// Shared memory that is left for the barriers of rings and for aligning buffers.
const FRAME: u64 = 2 << 10;

/// Registers of a thread beside its part of a tile.
const WORKING: u64 = 40;

/// How a tile gets to the engine.
enum Way {
    /// By warpgroups, each for its own rows.
    Groups,
    /// By the lanes of warpgroups, line by line.
    Lines,
    /// Through a buffer for all of it; by the instruction for matrices, or by vectors.
    Whole { buffer: SharedType, by_matrices: bool },
}

/// A store that the engine does.
struct Sent {
    store: Op,
    block: Block,
    /// What is written to the buffer, a matrix.
    matrix: Value,
    /// The operations between that and the store, the last one first.
    between: Vec<Op>,
    way: Way,
    /// The outermost loop around it, and the block that holds it.
    looped: Option<(Op, Block)>,
    /// Loops around it whose rounds a block goes through, the outermost last: not the one over blocks, which do not depend on each other.
    rounds: Vec<Op>,
}

/// Where every block stands: the operation that holds it, and the block of that.
type Parents = FxHashMap<Block, (Op, Block)>;

/// Has the engine store what fragments hold; true where it does.
pub(super) fn lower(func: &mut Func, arch: Arch) -> bool {
    if !arch.has_stmatrix() {
        return false;
    }
    let parents = parents(func);
    let mut sent: Vec<Sent> = Vec::new();
    let mut bytes: u64 = func.linked_ops().into_iter().filter_map(|op| allocated(func, op)).sum();
    for block in func.linked_blocks() {
        for &op in &func.blocks[block].ops {
            let Some(found) = Sent::ways(func, &parents, block, op).into_iter().find(|found| found.has_room(func, arch, bytes))
            else {
                continue;
            };
            bytes += found.bytes(func);
            sent.push(found);
        }
    }
    for found in &sent {
        found.send(func);
    }
    !sent.is_empty()
}

/// Names the instruction where a tile is made of its matrices.
pub(super) fn by_matrices(func: &mut Func) -> bool {
    let open = |op: &Op| matches!(func.ops[*op].kind, OpKind::Tile(TileOp::StoreShared { matrices: false }));
    let found: Vec<Op> =
        func.linked_ops().into_iter().filter(open).filter(|&op| is_made_of_matrices(func, op) == Some(true)).collect();
    for &op in &found {
        func.ops[op].kind = TileOp::StoreShared { matrices: true }.into();
    }
    !found.is_empty()
}

/// Whether the instruction stores a tile to a buffer, and better than vectors do; `None` for parts of buffers, which lie otherwise than their
/// types say.
pub(super) fn is_made_of_matrices(func: &Func, store: Op) -> Option<bool> {
    let data = &func.ops[store];
    let (layout, ty) = (func.ty(data.one(0)).layout()?, func.ty(data.one(1)).as_shared()?);
    let made = &func.ops[func.defining_op(data.one(1))?].kind;
    let whole = matches!(made, OpKind::Tile(TileOp::AllocShared { .. } | TileOp::SliceShared {} | TileOp::Slot { .. }));
    whole.then(|| Arrangement::of(ty).matrix_store(layout).is_some())
}

fn allocated(func: &Func, op: Op) -> Option<u64> {
    let data = &func.ops[op];
    let allocates = matches!(data.kind, OpKind::Tile(TileOp::AllocShared { .. }));
    allocates.then(|| func.ty(data.result()).as_shared().map(buffer_bytes)).flatten()
}

fn parents(func: &Func) -> Parents {
    let mut parents = Parents::default();
    for block in func.linked_blocks() {
        for &op in &func.blocks[block].ops {
            parents.extend(func.ops[op].regions.iter().map(|&region| (region, (op, block))));
        }
    }
    parents
}

impl Sent {
    /// How a store can leave, the best way first.
    fn ways(func: &Func, parents: &Parents, block: Block, op: Op) -> Vec<Sent> {
        let data = &func.ops[op];
        let OpKind::Schedule(ScheduleOp::StoreViewTko { order: MemoryOrder::Weak, .. }) = data.kind else { return Vec::new() };
        let loops = loops_around(func, parents, block);
        let looped = loops.last().copied();
        let own = loops.len() - usize::from(looped.is_some() && func.hints.persistent.is_some());
        let rounds: Vec<Op> = loops[..own].iter().map(|&(looped, _)| looped).collect();
        let sent = |way, (matrix, between)| Sent { store: op, block, matrix, between, way, looped, rounds: rounds.clone() };
        let Some(buffer) = buffer(func, data.one(1)) else {
            let ways = in_boxes(func, data).map(|found| sent(Way::Groups, found));
            return ways.into_iter().filter(|sent| sent.is_alone(func, parents)).collect();
        };
        let (groups, way) = (by_groups(func, data, &buffer), addressable(func, data.one(1), &buffer));
        let way = if way.is_ok() { Way::Groups } else { Way::Lines };
        // A result that leaves once goes a little sooner as one box, where 16 bits have room for it.
        let at_once = |between: &[Op]| looped.is_none() && !between.is_empty() && buffer.elem.bits() == 16;
        let mut ways = Vec::new();
        if matches!(way, Way::Groups) && groups.as_ref().is_none_or(|(_, between)| at_once(between)) {
            ways.extend(as_a_box(func, data, buffer).map(|(way, found)| sent(way, found)));
        }
        ways.extend(groups.map(|found| sent(way, found)));
        ways.retain(|sent| sent.is_alone(func, parents));
        ways
    }

    /// Shared memory that the tile goes through.
    fn bytes(&self, func: &Func) -> u64 {
        match &self.way {
            Way::Groups | Way::Lines => match func.ty(self.matrix).layout() {
                Some(layout) => sent::staging_bytes(layout.warps()),
                None => bug!("a tile without a layout is sent"),
            },
            Way::Whole { buffer, .. } => buffer_bytes(buffer),
        }
    }

    /// It fits beside so many bytes, and costs no resident block.
    fn has_room(&self, func: &Func, arch: Arch, bytes: u64) -> bool {
        let more = self.bytes(func);
        // What was converted went through shared memory, too.
        let converted = self.between.iter().any(|&op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::ConvertLayout {})));
        let before = bytes + if converted { more } else { 0 };
        let fits = bytes + more + FRAME <= u64::from(arch.limits().shared_per_block);
        fits && self.resident(func, arch, bytes + more) == self.resident(func, arch, before)
    }

    /// Blocks that a multiprocessor holds: by so many bytes of shared memory, and by the registers of threads that hold the sums which the tile
    /// was made of.
    fn resident(&self, func: &Func, arch: Arch, bytes: u64) -> u64 {
        let layout = func.ty(self.matrix).layout().unwrap_or_else(|| bug!("a matrix without a layout"));
        let held = layout.registers() + WORKING;
        let registers = u64::from(arch.limits().registers_per_sm) / (held * u64::from(func.hints.threads().max(1)));
        resident::blocks(func, arch, bytes).min(registers.max(1))
    }

    /// Nobody else touches the array while the engine may write it, but for a team that stores other tiles meanwhile.
    fn is_alone(&self, func: &Func, parents: &Parents) -> bool {
        let array = root(func, func.ops[self.store].one(1));
        let Root::Param(_) = array else { return false };
        // Of tiles that overlap, another round's warps write a part of what a warp has sent.
        if matches!(self.way, Way::Groups) && !self.rounds.is_empty() && overlap(func, func.ops[self.store].one(1)) {
            return false;
        }
        let (mut behind, once) = (false, self.rounds.is_empty());
        for op in func.linked_ops() {
            let data = &func.ops[op];
            if op == self.store {
                behind = true;
                continue;
            }
            let named = data.row().effects != Effects::Pure && data.used().any(|value| points_to(func, value, array));
            let touched = access(func, op).filter(|access| access.root.meets(array) && !counts_in_workspace(func, data));
            let loads = data.kind.schedule().is_some_and(ScheduleOp::is_weak_load);
            let reads_before = loads && !behind && once;
            let elsewhere = || self.is_apart(func, parents, op) || once && self.is_otherwise(func, parents, op);
            if (named || touched.is_some()) && !reads_before && !elsewhere() {
                return false;
            }
        }
        self.looped.is_none_or(|(looped, _)| !can_leave(func, looped))
    }

    /// No two rounds of a block store to the same tile: of each loop around the store, an index goes up by an odd multiple of the counter, which no
    /// wrapping brings back, and by nothing else that changes in the loops.
    fn moves_on(&self, func: &Func) -> bool {
        let Some(&outermost) = self.rounds.last() else { return true };
        let within: Vec<Block> = func.ops[outermost].regions.iter().flat_map(|&region| func.blocks_within(region)).collect();
        let changes = |value: Value| match func.values[value].def {
            Def::Argument(block, _) => within.contains(&block),
            Def::Result(op, _) => within.iter().any(|&block| func.blocks[block].ops.contains(&op)),
        };
        let facts = Facts::of(func);
        let indices = func.ops[self.store].group(2).iter();
        let sums: Vec<Linear> = indices.map(|&index| Linear::of(func, &facts, index, Wraps::Ignored)).collect();
        self.rounds.iter().all(|&looped| {
            let counter = func.ops[looped].regions.iter().find_map(|&region| func.blocks[region].args.first().copied());
            let counter = counter.filter(|&counter| facts.counter(counter).is_some());
            let follows = |sum: &Linear| {
                let moved: Vec<_> = sum.terms.iter().filter(|&&(value, _)| changes(value)).collect();
                matches!(moved[..], [&(value, times)] if Some(value) == counter && times % 2 != 0)
            };
            sums.iter().any(follows)
        })
    }

    /// A store where the block stores if it does not store here.
    fn is_otherwise(&self, func: &Func, parents: &Parents, other: Op) -> bool {
        let stores = matches!(func.ops[other].kind, OpKind::Schedule(ScheduleOp::StoreViewTko { order: MemoryOrder::Weak, .. }));
        let home = func.linked_blocks().into_iter().find(|block| func.blocks[*block].ops.contains(&other));
        let branch = |block: Block| parents.get(&block).map(|&(op, _)| op).filter(|&op| is_branch(func, op));
        stores && home.is_some_and(|home| home != self.block && branch(home).is_some() && branch(home) == branch(self.block))
    }

    /// Another role loads or stores: no token goes from one role to another, so nothing says which of the two comes first.
    fn is_apart(&self, func: &Func, parents: &Parents, other: Op) -> bool {
        let kind = &func.ops[other].kind;
        let stores = matches!(kind, OpKind::Schedule(ScheduleOp::StoreViewTko { order: MemoryOrder::Weak, .. }));
        if !stores && !kind.schedule().is_some_and(ScheduleOp::is_weak_load) {
            return false;
        }
        let home = func.linked_blocks().into_iter().find(|&block| func.blocks[block].ops.contains(&other));
        let roles = (role(func, parents, self.block), home.and_then(|block| role(func, parents, block)));
        matches!(roles, (Some(own), Some(other)) if own != other)
    }

    fn send(&self, func: &mut Func) {
        let span = func.ops[self.store].span;
        let wait = |func: &mut Func, read| func.make_op(TileOp::TmaStoreWait { pending: 0, read }.into(), &[], [], [], span);
        let by_groups = |func: &mut Func, kind: TileOp| {
            let data = func.ops[self.store].clone();
            vec![func.make_op(kind.into(), &[&[self.matrix], &[data.one(1)], data.group(2)], [], [], span)]
        };
        let mut ops = match &self.way {
            Way::Groups => {
                let before = (!self.moves_on(func)).then(|| wait(func, false));
                before.into_iter().chain(by_groups(func, TileOp::SendTile {})).collect()
            }
            Way::Lines => by_groups(func, TileOp::StoreLines {}),
            Way::Whole { buffer, by_matrices } => {
                let before = self.looped.map(|_| wait(func, false));
                let Some(ops) = self.through(func, buffer, *by_matrices) else { return };
                before.into_iter().chain(ops).collect()
            }
        };
        // Lanes wait for nothing.
        let waits = !matches!(self.way, Way::Lines);
        if waits && self.looped.is_none() {
            ops.push(wait(func, true));
        }
        // Whoever asks for the store's token gets one that says nothing more.
        let token = func.make_op(ScheduleOp::MakeToken {}.into(), &[], [Type::Token], [], span);
        let (old, new) = (func.ops[self.store].result(), func.ops[token].result());
        func.replace_uses(|value| if value == old { new } else { value });
        ops.push(token);
        let list = &mut func.blocks[self.block].ops;
        if let Some(at) = list.iter().position(|&op| op == self.store) {
            list.splice(at..=at, ops);
        }
        if let Some((looped, block)) = self.looped.filter(|_| waits) {
            let last = wait(func, true);
            let list = &mut func.blocks[block].ops;
            if let Some(at) = list.iter().position(|&op| op == looped) {
                list.insert(at + 1, last);
            }
        }
        // What only led to the store is not needed any more.
        for &op in &self.between {
            let results = func.ops[op].results.clone();
            if !func.linked_ops().iter().any(|&user| func.ops[user].used().any(|used| results.contains(&used))) {
                for block in func.linked_blocks() {
                    func.blocks[block].ops.retain(|&other| other != op);
                }
            }
        }
    }

    /// The tile written to a buffer and handed to the engine; the buffer is allocated where the function begins.
    fn through(&self, func: &mut Func, buffer: &SharedType, by_matrices: bool) -> Option<Vec<Op>> {
        let data = func.ops[self.store].clone();
        let span = data.span;
        let ty = Type::Shared(Box::new(buffer.clone()));
        let alloc = func.make_op(TileOp::AllocShared { align: 128, offset: None }.into(), &[], [ty], [], span);
        let whole = func.ops[alloc].result();
        let (mut first, mut part, mut ty) = (vec![alloc], whole, buffer.clone());
        while ty.shape.len() > 2 {
            ty = ty.slice()?;
            let zero = constant(func, span);
            let types = [Type::Shared(Box::new(ty.clone()))];
            let slice = func.make_op(TileOp::SliceShared {}.into(), &[&[part], &[func.ops[zero].result()]], types, [], span);
            part = func.ops[slice].result();
            first.extend([zero, slice]);
        }
        let body = func.body;
        func.blocks[body].ops.splice(0..0, first);

        let kinds: [TileOp; 2] = [TileOp::FenceAsync {}, TileOp::Barrier {}];
        let store = TileOp::StoreShared { matrices: by_matrices };
        let mut ops = vec![func.make_op(store.into(), &[&[self.matrix], &[part]], [], [], span)];
        ops.extend(kinds.map(|kind| func.make_op(kind.into(), &[], [], [], span)));
        ops.push(func.make_op(TileOp::TmaStore {}.into(), &[&[whole], &[data.one(1)], data.group(2)], [], [], span));
        Some(ops)
    }
}

/// The matrix of a store that warpgroups can send, sums as they lie, in lines of the array; and the operations between, the last one first.
fn by_groups(func: &Func, data: &OpData, buffer: &SharedType) -> Option<(Value, Vec<Op>)> {
    let rank = buffer.shape.len();
    if buffer.order.last().is_none_or(|&axis| axis as usize != rank - 1) {
        return None;
    }
    let (mut value, mut between) = (data.one(0), Vec::new());
    loop {
        let layout = func.ty(value).layout()?;
        if sent::parts(layout, buffer.elem).is_some() {
            return Some((value, between));
        }
        let made = func.defining_op(value)?;
        let from = func.ops[made].operands.first().copied()?;
        let drops = matches!(func.ops[made].kind, OpKind::Schedule(ScheduleOp::Reshape {})) && drops_units(func, from, value);
        if !drops {
            return None;
        }
        between.push(made);
        value = from;
    }
}

/// The matrix of a store whose rows are lines along several axes of the view's tile, where each warp's are a box; and the operations between, the
/// last one first.
fn in_boxes(func: &Func, data: &OpData) -> Option<(Value, Vec<Op>)> {
    let Type::TileView(ty) = func.ty(data.one(1)) else { return None };
    sent::box_of_rows(&ty.tile)?;
    let (mut value, mut between) = (data.one(0), Vec::new());
    let parts = loop {
        if let Some(parts) = func.ty(value).layout().and_then(|layout| sent::parts(layout, ty.tensor.elem)) {
            break parts;
        }
        let made = func.defining_op(value)?;
        let from = func.ops[made].operands.first().copied()?;
        match &func.ops[made].kind {
            OpKind::Tile(TileOp::ConvertLayout {}) => {}
            OpKind::Schedule(ScheduleOp::Reshape {}) if func.ty(from).as_tile()?.shape.last() == ty.tile.last() => {}
            _ => return None,
        }
        between.push(made);
        value = from;
    };
    let line = parts.columns as u32 * ty.tensor.elem.bits() / 8;
    let mut shape = ty.tile.clone();
    *shape.last_mut()? = parts.columns as u32;
    let part = SharedType { swizzle: engine_swizzle(line)?, ..SharedType::new(shape, ty.tensor.elem) };
    addressable(func, data.one(1), &part).ok().map(|()| (value, between))
}

/// The same through a buffer for the whole tile.
fn as_a_box(func: &Func, data: &OpData, buffer: SharedType) -> Option<(Way, (Value, Vec<Op>))> {
    let rank = buffer.shape.len();
    let lies = (0..rank - 2).fold(Arrangement::of(&buffer), |lies, _| lies.entry());
    let (mut matrix, mut between) = (data.one(0), Vec::new());
    let fits = |value: Value| {
        let layout = func.ty(value).layout().filter(|layout| layout.rank() == 2)?;
        let matrices = lies.matrix_store(layout).is_some();
        (matrices || lies.gathers_parts_of_sectors(layout)).then_some(matrices)
    };
    let by_matrices = loop {
        if let Some(by_matrices) = fits(matrix) {
            break by_matrices;
        }
        let made = func.defining_op(matrix)?;
        between.push(made);
        matrix = match &func.ops[made].kind {
            OpKind::Tile(TileOp::ConvertLayout {}) => func.ops[made].one(0),
            OpKind::Schedule(ScheduleOp::Reshape {}) if drops_units(func, func.ops[made].one(0), matrix) => func.ops[made].one(0),
            _ => return None,
        };
    };
    Some((Way::Whole { buffer, by_matrices }, (matrix, between)))
}

/// How a view's tile, a matrix behind axes of extent 1, lies in a buffer that the engine reads.
fn buffer(func: &Func, view: Value) -> Option<SharedType> {
    let Type::TileView(ty) = func.ty(view) else { return None };
    let (rank, elem) = (ty.tile.len(), ty.tensor.elem);
    let leading = rank.checked_sub(2)?;
    let is_box = matches!(ty.kind, ViewKind::Partition | ViewKind::Strided(_));
    if !is_box || ty.tile[..leading].iter().any(|&extent| extent != 1) || elem.bits() < 8 {
        return None;
    }
    let unit = |axis: &usize| ty.tensor.strides.get(ty.dim_map[*axis] as usize) == Some(&Extent::Static(1));
    let fastest = (leading..rank).find(unit)?;
    let order = (0..rank).filter(|&axis| axis != fastest).chain([fastest]).map(|axis| axis as u32).collect();
    let line = ty.tile[fastest] * elem.bits() / 8;
    let swizzle = engine_swizzle(line)?;
    // Each slab of lines is a box, which begins where the pattern does.
    let lines: u32 = (leading..rank).filter(|&axis| axis != fastest).map(|axis| ty.tile[axis]).product();
    if !lines.is_multiple_of(MIXED_LINES) && engine_span(swizzle).is_some_and(|span| u64::from(line) > span) {
        return None;
    }
    Some(SharedType { swizzle, order, ..SharedType::new(ty.tile.clone(), elem) })
}

/// The result is the source, a matrix or more, behind axes of extent 1.
fn drops_units(func: &Func, source: Value, result: Value) -> bool {
    let (Some(from), Some(to)) = (func.ty(source).as_tile(), func.ty(result).as_tile()) else { return false };
    let Some(more) = to.shape.len().checked_sub(from.shape.len()) else { return false };
    from.shape.len() >= 2 && to.shape[..more].iter().all(|&extent| extent == 1) && to.shape[more..] == from.shape[..]
}

/// An access to the launch's own memory. Where it orders others, as a counter does, these are of that memory: no block is told that way
/// what lies in an array.
fn counts_in_workspace(func: &Func, data: &OpData) -> bool {
    func.touches(data).first().is_some_and(|touch| matches!(root(func, touch.value), Root::Workspace(_)))
}

/// The value is a pointer into an array, or a view of it.
fn points_to(func: &Func, value: Value, array: Root) -> bool {
    let pointer = func.ty(value).as_tile().is_some_and(|tile| matches!(tile.elem, Elem::Ptr(_)));
    (pointer || matches!(func.ty(value), Type::TileView(_) | Type::TensorView(_))) && root(func, value) == array
}

fn is_branch(func: &Func, op: Op) -> bool {
    matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::If {}))
}

/// The role around a block.
fn role(func: &Func, parents: &Parents, mut block: Block) -> Option<Op> {
    while let Some(&(op, outer)) = parents.get(&block) {
        if matches!(func.ops[op].kind, OpKind::Tile(TileOp::Role { .. })) {
            return Some(op);
        }
        block = outer;
    }
    None
}

/// The loops around a block, the innermost first, each with the block that holds it.
fn loops_around(func: &Func, parents: &Parents, mut block: Block) -> Vec<(Op, Block)> {
    let mut found = Vec::new();
    while let Some(&(op, outer)) = parents.get(&block) {
        if matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {})) {
            found.push((op, outer));
        }
        block = outer;
    }
    found
}

/// Whether tiles of a view may share elements.
fn overlap(func: &Func, view: Value) -> bool {
    let Type::TileView(ty) = func.ty(view) else { return true };
    (0..ty.tile.len()).any(|axis| step_of(ty, axis) < u64::from(ty.tile[axis]))
}
