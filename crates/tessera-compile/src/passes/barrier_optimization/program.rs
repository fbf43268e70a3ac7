//! What a function does to memory that its threads share, and where threads meet and wait: all that the analysis looks at.
//!
//! A [`Program`] has the function's structure, with lists of nodes for blocks; operations that touch nothing have none. An operation whose threads
//! exchange elements through a buffer writes it, has all threads meet, and reads it.
//!
//! ```text
//! for ... {                                              Round [
//!   tile.wait_group {pending=1}                            Await(1)
//!   tile.barrier                                           Meet
//!   %acc = tile.mma_shared %a, %b, %acc                     Touch(read %a), Touch(read %b)
//!   tile.copy_async %view, [%k], %c                         Start(write %c)
//!   tile.commit_group                                       Group
//! ```

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_ir::attrs::{AtomicMode, MemoryOrder};
use tessera_ir::uniformity::{Uniformity, UniformityMap, is_per_thread};
use tessera_ir::{
    Block, Const, Def, Effects, Func, Level, Op, OpData, OpKind, Padding, ScheduleOp, TileOp, TileViewType, Type, Value,
};
use tessera_types::Arch;

use super::index::{Index, Indices, Turn};
use super::place::{Access, Choice, Extent, Memory, Part, Seen, Who};
use crate::analysis::memory::root;
use crate::passes::memory_management::buffer_bytes;

/// A position in [`Program::nodes`].
pub(super) type NodeId = usize;
/// A position in [`Program::lists`].
pub(super) type ListId = usize;
/// A position in [`Program::accesses`].
pub(super) type AccessId = usize;

/// What a node does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// Threads touch memory.
    Touch(AccessId),
    /// All threads of the team meet; inside an operation (`None`) or at one that may go.
    Meet,
    /// Threads start to copy into a buffer.
    Start(AccessId),
    /// Each thread's copies so far become a group.
    Group,
    /// All but so many groups have arrived.
    Await(u32),
    /// The tensor cores start to read.
    Fly(SmallVec<[AccessId; 2]>),
    /// All but so many products are done.
    Land(u32),
    /// The copy engine starts to read a buffer.
    Send(AccessId),
    /// All but so many of these have read.
    Sent(u32),
    /// Rounds of a loop, and whether there is at least one.
    Rounds(ListId, bool),
    /// One of two ways.
    Ways(SmallVec<[ListId; 2]>),
    /// Roles that run at the same time.
    Roles(Vec<ListId>),
    /// The next round, the end of the loop, the end of the program.
    Next,
    Leave,
    End,
}

/// One step.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) op: Op,
    pub(super) kind: Kind,
    pub(super) list: ListId,
    /// All threads of the team come here, so a barrier may stand before it.
    pub(super) together: bool,
    /// It may be taken out: a barrier or a wait of its own.
    pub(super) optional: bool,
}

/// The nodes of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    pub(super) nodes: Vec<NodeId>,
    /// The node that it belongs to.
    pub(super) parent: Option<NodeId>,
    pub(super) block: Option<Block>,
    /// Loops around it.
    pub(super) depth: u8,
}

/// A function as the analysis sees it.
pub(super) struct Program {
    pub(super) nodes: Vec<Node>,
    pub(super) lists: Vec<List>,
    pub(super) accesses: Vec<Access>,
    /// The node of each access.
    pub(super) node_of: Vec<NodeId>,
    /// How many loops are around the definition of each value that an access asks about.
    pub(super) depth: FxHashMap<Value, u8>,
    pub(super) per_thread: bool,
    /// Bodies of loops that are left from the end of a round.
    pub(super) counted: Vec<ListId>,
}

impl Program {
    /// The program of a Tile function.
    pub(super) fn of(func: &Func) -> Program {
        debug_assert_eq!(func.level, Level::Tile);
        let uniform = UniformityMap::new(func);
        let program = Program {
            nodes: Vec::new(),
            lists: Vec::new(),
            accesses: Vec::new(),
            node_of: Vec::new(),
            depth: FxHashMap::default(),
            per_thread: is_per_thread(func),
            counted: Vec::new(),
        };
        let mut reader = Reader {
            func,
            uniform: &uniform,
            indices: Indices::new(func, &uniform),
            slots: slot_buffers(func),
            named: own_barriers(func),
            program,
            looped: None,
            warps: func.hints.num_warps.unwrap_or(0),
            first_warp: 0,
            scope: Uniformity::Block,
            active: None,
        };
        reader.block(func.body, None, 0);
        let mut program = reader.program;
        let depths = program.lists.iter().filter_map(|list| Some((list.block?, list.depth))).collect::<FxHashMap<_, _>>();
        program.depth = depths_of(func, &depths);
        program
    }

    /// The lists around a node, innermost first, with the node's ancestor in each.
    pub(super) fn ancestors(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(Some(node), |&node| self.lists[self.nodes[node].list].parent)
    }

    /// Whether a node lies in what another one holds.
    pub(super) fn is_inside(&self, node: NodeId, outer: NodeId) -> bool {
        self.ancestors(node).any(|ancestor| ancestor == outer)
    }

    /// Puts a barrier before a node.
    pub(super) fn insert(&mut self, before: NodeId) -> NodeId {
        let node = Node { kind: Kind::Meet, optional: true, together: true, ..self.nodes[before].clone() };
        let (list, id) = (node.list, self.nodes.len());
        self.nodes.push(node);
        let nodes = &mut self.lists[list].nodes;
        let place = nodes.iter().position(|&node| node == before).unwrap_or(nodes.len());
        nodes.insert(place, id);
        id
    }

    /// Takes a node out.
    pub(super) fn remove(&mut self, node: NodeId) {
        self.lists[self.nodes[node].list].nodes.retain(|&other| other != node);
    }

    /// How often a node runs, roughly.
    pub(super) fn weight(&self, node: NodeId) -> u64 {
        1 << (4 * self.lists[self.nodes[node].list].depth.min(12))
    }
}

/// Loops around the definition of each value.
fn depths_of(func: &Func, blocks: &FxHashMap<Block, u8>) -> FxHashMap<Value, u8> {
    let mut depths = FxHashMap::default();
    for (&block, &depth) in blocks.iter().filter(|&(_, &depth)| depth > 0) {
        let defined = func.blocks[block].ops.iter().flat_map(|&op| func.ops[op].results.iter());
        for &value in func.blocks[block].args.iter().chain(defined) {
            depths.insert(value, depth);
        }
    }
    depths
}

/// The buffers of rings.
fn slot_buffers(func: &Func) -> FxHashSet<Value> {
    let rings = func.linked_ops().into_iter().filter(|&op| matches!(func.ops[op].kind, OpKind::Tile(TileOp::Ring { .. })));
    rings.flat_map(|op| func.ops[op].operands.clone()).collect()
}

/// Numbers of named barriers that one team alone uses, as a whole: they are as good as the team's own.
fn own_barriers(func: &Func) -> FxHashMap<u32, (u32, u32)> {
    fn visit(func: &Func, block: Block, team: (u32, u32), found: &mut FxHashMap<u32, Option<(u32, u32)>>) {
        for &op in &func.blocks[block].ops {
            let data = &func.ops[op];
            let team = match data.kind {
                OpKind::Tile(TileOp::Role { first_warp, warps, .. }) => (first_warp, warps),
                _ => team,
            };
            match data.kind {
                OpKind::Tile(TileOp::NamedBarrier { id, threads }) => {
                    let own = (threads == Arch::WARP * team.1).then_some(team);
                    let known = *found.entry(id).or_insert(own);
                    found.insert(id, own.filter(|_| known == own));
                }
                OpKind::Tile(TileOp::NamedArrive { id, .. }) => {
                    found.insert(id, None);
                }
                _ => {}
            }
            data.regions.iter().for_each(|&region| visit(func, region, team, found));
        }
    }
    let mut found = FxHashMap::default();
    visit(func, func.body, (0, func.hints.num_warps.unwrap_or(0)), &mut found);
    found.into_iter().filter_map(|(id, team)| Some((id, team?))).collect()
}

struct Reader<'f> {
    func: &'f Func,
    uniform: &'f UniformityMap,
    indices: Indices<'f>,
    slots: FxHashSet<Value>,
    named: FxHashMap<u32, (u32, u32)>,
    program: Program,
    looped: Option<Op>,
    warps: u32,
    first_warp: u32,
    scope: Uniformity,
    /// Threads that may be active, where their numbers say.
    active: Option<Rc<[bool]>>,
}

impl Reader<'_> {
    fn block(&mut self, block: Block, parent: Option<NodeId>, depth: u8) -> ListId {
        let list = self.program.lists.len();
        self.program.lists.push(List { nodes: Vec::new(), parent, block: Some(block), depth });
        let ops = self.func.blocks[block].ops.clone();
        let mut at = 0;
        while at < ops.len() {
            let roles = ops[at..].iter().take_while(|&&op| self.is_role(op)).count();
            if roles > 0 {
                self.roles(&ops[at..at + roles], list, depth);
                at += roles;
            } else {
                self.op(ops[at], list, depth);
                at += 1;
            }
        }
        list
    }

    fn is_role(&self, op: Op) -> bool {
        matches!(self.func.ops[op].kind, OpKind::Tile(TileOp::Role { .. }))
    }

    fn node(&mut self, op: Op, list: ListId, kind: Kind) -> NodeId {
        let together = self.uniform.condition(op).uniformity <= self.scope;
        let id = self.program.nodes.len();
        self.program.nodes.push(Node { op, kind, list, together, optional: false });
        self.program.lists[list].nodes.push(id);
        id
    }

    fn roles(&mut self, ops: &[Op], list: ListId, depth: u8) {
        let node = self.node(ops[0], list, Kind::Roles(Vec::new()));
        let outer = (self.warps, self.first_warp, self.scope, self.looped);
        let mut lists = Vec::new();
        for &op in ops {
            let OpKind::Tile(TileOp::Role { first_warp, warps, .. }) = self.func.ops[op].kind else { continue };
            (self.warps, self.first_warp, self.scope) = (warps, first_warp, Uniformity::Role);
            lists.push(self.block(self.func.ops[op].regions[0], Some(node), depth));
        }
        (self.warps, self.first_warp, self.scope, self.looped) = outer;
        self.program.nodes[node].kind = Kind::Roles(lists);
    }

    fn access(&mut self, memory: Memory, writes: bool, who: Who) -> AccessId {
        let access = Access { memory, writes, atomic: None, who, looped: self.looped };
        self.program.accesses.push(access);
        self.program.node_of.push(self.program.nodes.len());
        self.program.accesses.len() - 1
    }

    fn touch(&mut self, op: Op, list: ListId, memory: Memory, writes: bool, who: Who) -> AccessId {
        let access = self.access(memory, writes, who);
        self.node(op, list, Kind::Touch(access));
        access
    }

    fn op(&mut self, op: Op, list: ListId, depth: u8) {
        let data = &self.func.ops[op];
        match &data.kind {
            OpKind::Schedule(kind) => self.schedule(op, data, kind, list, depth),
            OpKind::Tile(kind) => self.tile(op, data, kind, list),
            OpKind::Graph(_) => {}
        }
    }

    /// Elements change threads: they are written, all meet, they are read.
    fn exchange(&mut self, op: Op, list: ListId) {
        let Some(through) = self.func.ops[op].through else { return };
        let memory = self.buffer(through);
        self.touch(op, list, memory.clone(), true, Who::Anyone);
        self.node(op, list, Kind::Meet);
        self.touch(op, list, memory, false, Who::Anyone);
    }

    // --- control and global memory

    fn schedule(&mut self, op: Op, data: &OpData, kind: &ScheduleOp, list: ListId, depth: u8) {
        match kind {
            ScheduleOp::For { .. } | ScheduleOp::Loop {} => {
                let once = matches!(kind, ScheduleOp::Loop {}) || self.runs(data);
                let node = self.node(op, list, Kind::Rounds(0, once));
                let outer = self.looped.replace(op);
                let body = self.block(data.regions[0], Some(node), depth + 1);
                self.looped = outer;
                self.program.nodes[node].kind = Kind::Rounds(body, once);
                if matches!(kind, ScheduleOp::For { .. }) {
                    self.program.counted.push(body);
                }
            }
            ScheduleOp::If {} => {
                let node = self.node(op, list, Kind::Ways(SmallVec::new()));
                let holds = self.indices.mask(data.one(0));
                let outer = self.active.clone();
                let mut ways = SmallVec::new();
                for (position, &region) in data.regions.iter().enumerate() {
                    if let Some(holds) = &holds {
                        let active =
                            |thread: usize| holds[thread] == (position == 0) && outer.as_ref().is_none_or(|outer| outer[thread]);
                        self.active = Some((0..holds.len()).map(active).collect());
                    }
                    ways.push(self.block(region, Some(node), depth));
                    self.active = outer.clone();
                }
                self.program.nodes[node].kind = Kind::Ways(ways);
            }
            ScheduleOp::Continue {} => {
                self.node(op, list, Kind::Next);
            }
            ScheduleOp::Break {} => {
                self.node(op, list, Kind::Leave);
            }
            ScheduleOp::Return {} => {
                self.node(op, list, Kind::End);
            }
            ScheduleOp::Yield {} => {}
            _ => {
                self.global(op, data, kind, list);
                self.exchange(op, list);
            }
        }
    }

    /// Whether a counting loop has a first round.
    fn runs(&self, data: &OpData) -> bool {
        let number = |value: Value| self.func.constant(value).and_then(Const::as_int);
        matches!((number(data.one(0)), number(data.one(1))), (Some(lower), Some(upper)) if lower < upper && lower >= 0)
    }

    fn global(&mut self, op: Op, data: &OpData, kind: &ScheduleOp, list: ListId) {
        let (place, value, order) = match kind {
            ScheduleOp::LoadViewTko { order, .. } => (data.one(0), data.results[0], *order),
            ScheduleOp::StoreViewTko { order, .. } => (data.one(1), data.one(0), *order),
            ScheduleOp::AtomicRedViewTko { order, .. } => (data.one(0), data.one(2), *order),
            ScheduleOp::LoadPtrTko { order, .. } | ScheduleOp::StorePtrTko { order, .. } => (data.one(0), data.one(0), *order),
            ScheduleOp::AtomicRmwTko { order, .. } | ScheduleOp::AtomicCasTko { order, .. } => (data.one(0), data.one(0), *order),
            _ => return,
        };
        let releases = matches!(order, MemoryOrder::Release | MemoryOrder::AcqRel);
        let acquires = matches!(order, MemoryOrder::Acquire | MemoryOrder::AcqRel);
        let ordering = (releases || acquires) && !self.program.per_thread;
        let writes = data.row().effects == Effects::Write || order != MemoryOrder::Weak;
        let memory = if ordering { Memory::All } else { Memory::Global(root(self.func, place)) };
        let who = if ordering { Who::Anyone } else { self.who_of(data, kind, place, value, order) };
        let access = self.touch(op, list, memory, writes, who);
        // Sums may be made in any order, where nobody asks what was there before.
        let mode = match kind {
            ScheduleOp::AtomicRedViewTko { mode, .. } => Some(*mode),
            ScheduleOp::AtomicRmwTko { mode, .. } if !self.is_used(data.results[0]) => Some(*mode),
            _ => None,
        };
        if !ordering && mode != Some(AtomicMode::Xchg) {
            self.program.accesses[access].atomic = mode.map(|mode| mode as u32);
        }
    }

    fn is_used(&self, value: Value) -> bool {
        self.func.linked_ops().into_iter().any(|op| self.func.ops[op].used().any(|used| used == value))
    }

    fn who_of(&mut self, data: &OpData, kind: &ScheduleOp, place: Value, value: Value, order: MemoryOrder) -> Who {
        if self.func.ty(value).is_scalar() {
            if self.program.per_thread {
                return self.pointed(place, 1);
            }
            let read_by_all = data.row().effects == Effects::Read && order == MemoryOrder::Weak;
            return if read_by_all { Who::Anyone } else { Who::First };
        }
        let (Some(layout), Type::TileView(view)) = (self.func.ty(value).layout(), self.func.ty(place)) else {
            return Who::Anyone;
        };
        let index = match kind {
            ScheduleOp::StoreViewTko { .. } => data.group(2),
            _ => data.group(1),
        };
        let cut = TileViewType { padding: Padding::Zero, ..(**view).clone() };
        let made = self.func.defining_op(place).map(|op| &self.func.ops[op]);
        let array = match made.map(|made| (&made.kind, made)) {
            Some((OpKind::Schedule(ScheduleOp::MakePartitionView {} | ScheduleOp::MakeStridedView {}), made)) => made.one(0),
            _ => place,
        };
        Who::Spread(layout.clone(), Some(Box::new(Seen { array, cut, index: index.iter().copied().collect() })))
    }

    /// The element that each thread's pointer points to: an array argument, moved.
    fn pointed(&mut self, pointer: Value, width: i64) -> Who {
        let Some(op) = self.func.defining_op(pointer) else { return Who::Anyone };
        let data = &self.func.ops[op];
        match &data.kind {
            OpKind::Schedule(ScheduleOp::Offset {}) if self.indices.is_common(data.one(0)) => {
                let index = self.indices.of(data.one(1));
                self.choice(Some(data.one(0)), vec![index], width)
            }
            _ => Who::Anyone,
        }
    }

    fn choice(&self, base: Option<Value>, indices: Vec<Option<Index>>, width: i64) -> Who {
        let threads = self.func.hints.threads() as usize;
        Who::Each(Rc::new(Choice { base, indices, width, active: self.active.clone(), threads }))
    }

    // --- buffers

    /// The part of a buffer that a value is.
    fn buffer(&self, value: Value) -> Memory {
        Memory::Buffer(self.part(value).map(Box::new))
    }

    fn part(&self, value: Value) -> Option<Part> {
        let Def::Result(op, _) = self.func.values[value].def else { return None };
        let data = &self.func.ops[op];
        let OpKind::Tile(kind) = &data.kind else { return None };
        match kind {
            TileOp::AllocShared { offset, .. } => {
                let ty = self.func.ty(value).as_shared()?;
                let bytes = offset.map(|offset| (u64::from(offset), u64::from(offset) + buffer_bytes(ty)));
                Some(Part { slot: self.slots.contains(&value), ..Part::whole(op, ty, bytes) })
            }
            TileOp::SliceShared {} => {
                let part = self.part(data.one(0))?;
                let index = data.one(1);
                let entry = match self.func.constant(index).and_then(Const::as_int) {
                    Some(number) => Entry::Known(number),
                    None => Entry::Named(index, Turn::of(self.func, index)),
                };
                sliced(part, entry)
            }
            TileOp::SubviewShared { offsets } => {
                let mut part = self.part(data.one(0))?;
                let ty = self.func.ty(value).as_shared()?;
                for (own, (&offset, &extent)) in offsets.iter().zip(&ty.shape).enumerate() {
                    if let Extent::Range(first, count) = &mut part.axes[part.own[own]] {
                        *first += u64::from(offset);
                        *count = u64::from(extent);
                    }
                }
                Some(part)
            }
            TileOp::TransposeShared { permutation } => {
                let mut part = self.part(data.one(0))?;
                part.own = permutation.iter().map(|&axis| part.own[axis as usize]).collect();
                Some(part)
            }
            TileOp::Slot { buffer } => {
                let ring = self.func.defining_op(data.one(0))?;
                let whole = *self.func.ops[ring].group(0).get(*buffer as usize)?;
                sliced(self.part(whole)?, Entry::Named(data.one(1), None))
            }
            _ => None,
        }
    }

    /// Elements that each thread names.
    fn chosen(&mut self, memory: &Memory, indices: &[Value], width: i64) -> Who {
        let Memory::Buffer(Some(part)) = memory else { return Who::Anyone };
        let mut all: Vec<Option<Index>> = Vec::new();
        for extent in &part.axes {
            all.push(match extent {
                Extent::One(number) => Some(self.indices.number(*number)),
                Extent::Named(value, _) => self.indices.of(*value),
                Extent::Range(..) => None,
            });
        }
        for (&axis, &index) in part.own.iter().zip(indices) {
            let Extent::Range(first, _) = part.axes[axis] else { continue };
            all[axis] = self.indices.of(index).map(|index| index.ahead(first as i64));
        }
        // Neighbours are counted along the last axis.
        let last = part.own.last().copied().unwrap_or(0);
        let whole = self.func.ty(self.func.ops[part.alloc].result()).as_shared();
        let in_order = whole.is_some_and(|ty| ty.order.last().is_some_and(|&axis| axis as usize == last));
        if width > 1 && !(in_order && last + 1 == all.len()) {
            return Who::Anyone;
        }
        self.choice(None, all, width)
    }

    fn spread(&self, value: Value) -> Who {
        match self.func.ty(value).layout() {
            Some(layout) => Who::Spread(layout.clone(), None),
            None => Who::Anyone,
        }
    }

    fn buffers_of(&self, data: &OpData) -> SmallVec<[Value; 2]> {
        data.operands.iter().copied().filter(|&value| self.is_buffer(value)).collect()
    }

    fn is_buffer(&self, value: Value) -> bool {
        matches!(self.func.ty(value), Type::Shared(_))
    }

    fn tile(&mut self, op: Op, data: &OpData, kind: &TileOp, list: ListId) {
        match kind {
            TileOp::Barrier {} => {
                let node = self.node(op, list, Kind::Meet);
                self.program.nodes[node].optional = true;
            }
            TileOp::NamedBarrier { id, .. } if self.named.get(id) == Some(&(self.first_warp, self.warps)) => {
                let node = self.node(op, list, Kind::Meet);
                self.program.nodes[node].optional = true;
            }
            TileOp::LoadShared {} => {
                let (memory, who) = (self.buffer(data.one(0)), self.spread(data.result()));
                self.touch(op, list, memory, false, who);
            }
            TileOp::StoreShared {} => {
                let (memory, who) = (self.buffer(data.one(1)), self.spread(data.one(0)));
                self.touch(op, list, memory, true, who);
            }
            TileOp::CopyShared {} => {
                let (source, target) = (self.buffer(data.one(0)), self.buffer(data.one(1)));
                self.touch(op, list, source, false, Who::Anyone);
                self.touch(op, list, target, true, Who::Anyone);
            }
            TileOp::LoadElement {} if self.is_buffer(data.one(0)) => {
                let memory = self.buffer(data.one(0));
                let who = self.chosen(&memory, data.group(1), 1);
                self.touch(op, list, memory, false, who);
            }
            TileOp::StoreElement {} if self.is_buffer(data.one(1)) => {
                let memory = self.buffer(data.one(1));
                let who = self.chosen(&memory, data.group(2), 1);
                self.touch(op, list, memory, true, who);
            }
            TileOp::LoadVector { .. } => self.neighbours(op, list, (data.one(0), data.group(1)), data.results.len(), false),
            TileOp::StoreVector { .. } => self.neighbours(op, list, (data.one(1), data.group(2)), data.group(0).len(), true),
            TileOp::AtomicElement { .. } | TileOp::AtomicCasElement {} => {
                let (buffer, indices) = if matches!(kind, TileOp::AtomicElement { .. }) { (1, 2) } else { (2, 3) };
                let memory = self.buffer(data.one(buffer));
                let who = self.chosen(&memory, data.group(indices), 1);
                let access = self.touch(op, list, memory, true, who);
                self.program.accesses[access].atomic = Some(u32::MAX);
            }
            TileOp::CopyAsync { .. } => {
                let memory = self.buffer(data.one(2));
                self.global_read(op, list, data.one(0));
                let access = self.access(memory, true, Who::Anyone);
                self.node(op, list, Kind::Start(access));
            }
            TileOp::CopyAsyncElement { bytes } => {
                let memory = self.buffer(data.one(1));
                let bits = self.func.ty(data.one(1)).as_shared().map_or(8, |ty| ty.elem.bits());
                let who = self.chosen(&memory, data.group(2), i64::from(8 * bytes / bits));
                self.global_read(op, list, data.one(0));
                let access = self.access(memory, true, who);
                self.node(op, list, Kind::Start(access));
            }
            TileOp::CommitGroup {} => {
                self.node(op, list, Kind::Group);
            }
            TileOp::WaitGroup { pending } => {
                let node = self.node(op, list, Kind::Await(*pending));
                self.program.nodes[node].optional = true;
            }
            TileOp::Ring { .. } => {
                self.touch(op, list, Memory::Ring(op), true, Who::Anyone);
            }
            TileOp::Acquire {} | TileOp::Commit {} | TileOp::Wait {} | TileOp::Release {} => self.ring_use(op, data.one(0), list),
            TileOp::TmaLoad {} => {
                self.ring_use(op, data.one(3), list);
                self.global_read(op, list, data.one(0));
                let memory = self.buffer(data.one(2));
                self.touch(op, list, memory, true, Who::Anyone);
            }
            TileOp::TmaStore {} => {
                let memory = self.buffer(data.one(0));
                let access = self.access(memory, false, Who::First);
                self.node(op, list, Kind::Send(access));
                let root = root(self.func, data.one(1));
                self.touch(op, list, Memory::Global(root), true, Who::First);
            }
            TileOp::TmaStoreWait { pending, .. } => {
                self.node(op, list, Kind::Sent(*pending));
            }
            TileOp::Wgmma { .. } => {
                let mut reads = SmallVec::new();
                for value in self.buffers_of(data) {
                    let memory = self.buffer(value);
                    reads.push(self.access(memory, false, Who::Anyone));
                }
                self.node(op, list, Kind::Fly(reads));
            }
            TileOp::WgmmaWait { pending } => {
                self.node(op, list, Kind::Land(*pending));
            }
            _ => {
                // An exchange stands before what else is read: factors in buffers.
                self.exchange(op, list);
                if matches!(data.row().effects, Effects::Read | Effects::Write) {
                    let writes = data.row().effects == Effects::Write;
                    for value in self.buffers_of(data) {
                        let memory = self.buffer(value);
                        self.touch(op, list, memory, writes, Who::Anyone);
                    }
                }
            }
        }
    }

    /// Each thread reads or writes some neighbours, of a buffer from the element that it names, or behind its pointer.
    fn neighbours(&mut self, op: Op, list: ListId, (place, indices): (Value, &[Value]), count: usize, writes: bool) {
        let (memory, who) = match self.func.ty(place) {
            Type::Shared(_) => {
                let memory = self.buffer(place);
                let who = self.chosen(&memory, indices, count as i64);
                (memory, who)
            }
            Type::Registers(_) => return,
            _ => (Memory::Global(root(self.func, place)), self.pointed(place, count as i64)),
        };
        self.touch(op, list, memory, writes, who);
    }

    fn global_read(&mut self, op: Op, list: ListId, place: Value) {
        let root = root(self.func, place);
        self.touch(op, list, Memory::Global(root), false, Who::Anyone);
    }

    /// An operation on a ring needs its barriers to be there.
    fn ring_use(&mut self, op: Op, ring: Value, list: ListId) {
        if let Some(made) = self.func.defining_op(ring) {
            self.touch(op, list, Memory::Ring(made), false, Who::Anyone);
        }
    }
}

/// The entry of a part's first axis that a slice takes.
enum Entry {
    Known(i64),
    Named(Value, Option<Turn>),
}

fn sliced(mut part: Part, entry: Entry) -> Option<Part> {
    let axis = *part.own.first()?;
    part.own.remove(0);
    let Extent::Range(first, _) = part.axes[axis] else { return None };
    part.axes[axis] = match entry {
        Entry::Known(number) => Extent::One(number + first as i64),
        Entry::Named(value, turn) => Extent::Named(value, turn.filter(|_| first == 0)),
    };
    Some(part)
}
