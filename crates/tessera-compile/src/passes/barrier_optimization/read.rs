//! How a function becomes a [`Program`]: control flow, barriers and waits, and what each operation does to shared memory.
//!
//! | operation | nodes |
//! |---|---|
//! | `for`, `loop`, `if`, roles | what they hold, by lists |
//! | a load, a store | a touch |
//! | one that exchanges elements | a touch that writes, a meeting, a touch that reads |
//! | a copy or a product that goes on by itself | its start; who waits for it has a node of its own |
//!
//! Which memory that is and which thread touches what of it is said in [`super::operands`].

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_ir::uniformity::{Uniformity, UniformityMap};
use tessera_ir::{Block, Const, Does, Func, Op, OpData, OpKind, Queue, ScheduleOp, Space, TileOp, Value};
use tessera_types::Arch;

use super::index::Indices;
use super::place::{Access, Memory, Who};
use super::program::{AccessId, Kind, List, ListId, Node, NodeId, Program};
use tessera_analysis::memory::root;

/// Kinds of atomic accesses to shared memory, each of which may change places with its like.
const UPDATED: u32 = u32::MAX;
const RELAXED: u32 = u32::MAX - 1;

/// A function on its way to a program.
pub(super) struct Reader<'f> {
    pub(super) func: &'f Func,
    uniform: &'f UniformityMap,
    pub(super) indices: Indices<'f>,
    pub(super) slots: FxHashSet<Value>,
    named: FxHashMap<u32, (u32, u32)>,
    pub(super) program: Program,
    looped: Option<Op>,
    warps: u32,
    first_warp: u32,
    scope: Uniformity,
    /// Threads that may be active, where their numbers say.
    pub(super) active: Option<Rc<[bool]>>,
}

impl<'f> Reader<'f> {
    pub(super) fn new(func: &'f Func, uniform: &'f UniformityMap, program: Program) -> Reader<'f> {
        Reader {
            func,
            uniform,
            indices: Indices::new(func, uniform),
            slots: slot_buffers(func),
            named: own_barriers(func),
            program,
            looped: None,
            warps: func.hints.warps(),
            first_warp: 0,
            scope: Uniformity::Block,
            active: None,
        }
    }

    /// The program of the function, without what is known of its values.
    pub(super) fn read(mut self) -> Program {
        self.block(self.func.body, None, 0);
        self.program
    }
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
        let access = Access { memory, writes, atomic: None, who, looped: self.looped, team: self.first_warp };
        self.program.accesses.push(access);
        self.program.node_of.push(self.program.nodes.len());
        self.program.accesses.len() - 1
    }

    pub(super) fn touch(&mut self, op: Op, list: ListId, memory: Memory, writes: bool, who: Who) -> AccessId {
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
            TileOp::CommitGroup {} => {
                self.node(op, list, Kind::Group);
            }
            TileOp::WaitGroup { pending } => {
                let node = self.node(op, list, Kind::Await(*pending));
                self.program.nodes[node].optional = true;
            }
            TileOp::TmaStoreWait { pending, .. } => {
                self.node(op, list, Kind::Sent(*pending));
            }
            TileOp::WgmmaWait { pending } => {
                self.node(op, list, Kind::Land(*pending));
            }
            _ => {
                // An exchange stands before what else is read: factors in buffers.
                self.exchange(op, list);
                self.effects(op, data, list);
            }
        }
    }

    /// What the operation's row says that it does to memory.
    fn effects(&mut self, op: Op, data: &OpData, list: ListId) {
        if data.kind.effects().iter().any(|effect| effect.does == Does::Make && effect.spaces == [Space::Ring]) {
            self.touch(op, list, Memory::Ring(op), true, Who::Anyone);
        }
        let mut in_flight = SmallVec::new();
        let touches = self.func.touches(data);
        for touch in &touches {
            let memory = match touch.space {
                Space::Global => Memory::Global(root(self.func, touch.value)),
                Space::Shared => self.buffer(touch.value),
                // An operation on a ring needs its barriers to be there.
                Space::Ring => match self.func.defining_op(touch.value) {
                    Some(made) => Memory::Ring(made),
                    None => continue,
                },
                Space::Registers => continue,
            };
            let who = self.who(data, touch, &memory);
            let writes = touch.effect.writes();
            // What goes on in the memory of the device is not followed there.
            match touch.effect.queue.filter(|_| touch.space == Space::Shared) {
                None | Some(Queue::Loads) => {
                    let access = self.touch(op, list, memory, writes, who);
                    self.program.accesses[access].atomic = match data.kind {
                        OpKind::Tile(TileOp::StoreElement { relaxed: true }) => Some(RELAXED),
                        _ => (touch.effect.does == Does::Update).then_some(UPDATED),
                    };
                }
                Some(Queue::Copies) => {
                    let access = self.access(memory, writes, who);
                    self.node(op, list, Kind::Start(access));
                }
                Some(Queue::Stores) => {
                    let access = self.access(memory, writes, who);
                    self.node(op, list, Kind::Send(access));
                }
                Some(Queue::Products) => in_flight.push(self.access(memory, writes, who)),
            }
        }
        if data.kind.effects().iter().any(|effect| effect.queue == Some(Queue::Products)) {
            self.node(op, list, Kind::Fly(in_flight));
        }
    }
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
    visit(func, func.body, (0, func.hints.warps()), &mut found);
    found.into_iter().filter_map(|(id, team)| Some((id, team?))).collect()
}
