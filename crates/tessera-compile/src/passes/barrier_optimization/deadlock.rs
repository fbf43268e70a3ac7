//! Roles that wait for each other: a search for a way on which all of them come to their ends.
//!
//! Each role is a graph of the steps at which it waits or lets others go on. Conditions and numbers of rounds are free, and what a step needs is
//! the least that it may need, so a program without any such way stands still whatever it is given.
//!
//! ```text
//! tile.role { tile.wait %a, %i; tile.commit %b, %i }       waits for what the other role fills behind its own wait
//! tile.role { tile.wait %b, %i; tile.commit %a, %i }
//! ```

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_ir::{Block, Diagnostic, Func, Op, OpKind, ScheduleOp, TileOp, Value};
use tessera_types::Arch;

/// As many states are looked at; a search that finds nothing in so many says nothing.
const MOST_STATES: usize = 20_000;

/// The roles of a function that cannot all come to their ends.
pub(super) fn mistake(func: &Func) -> Option<Diagnostic> {
    let waits =
        |op: &Op| matches!(func.ops[*op].kind, OpKind::Tile(TileOp::Wait {} | TileOp::Acquire {} | TileOp::NamedBarrier { .. }));
    if !func.linked_ops().iter().any(waits) {
        return None;
    }
    let mut graph = Graph { func, steps: Vec::new(), rings: FxHashMap::default(), limits: Vec::new() };
    let end = graph.add(Step::End);
    let start = graph.block(func.body, func.hints.warps(), end, &Exits::default());
    let mut search = Search { graph: &graph, seen: FxHashSet::default(), stuck: None };
    let state = State { at: SmallVec::from_slice(&[start]), rings: vec![(0, 0); graph.limits.len()], barriers: [(0, 0); 16] };
    if search.ends(state) || search.seen.len() >= MOST_STATES {
        return None;
    }
    let stuck = search.stuck?;
    let (&first, others) = stuck.split_first()?;
    let error = Diagnostic::error("sync-deadlock", func.ops[first].span, "waits for what never comes");
    let error = others.iter().fold(error, |error, &op| error.also(func.ops[op].span, "meanwhile this waits"));
    Some(error.help("let what a role waits for be done before its other side waits for that role"))
}

/// A step of a role, and where it goes on.
#[derive(Clone, Debug)]
enum Step {
    End,
    /// One of several ways.
    Ways(SmallVec<[usize; 2]>),
    /// Roles start; behind them their first step goes on when all have ended.
    Roles(Vec<usize>, usize),
    Acquire(usize, Op, usize),
    Commit(usize, usize),
    Wait(usize, Op, usize),
    Release(usize, usize),
    /// Threads that come to a barrier that opens for so many; whether they wait.
    Barrier {
        id: usize,
        come: u32,
        wanted: u32,
        waits: bool,
        op: Op,
        next: usize,
    },
}

/// Where the exits of the loop around a block lead.
#[derive(Clone, Copy, Debug, Default)]
struct Exits {
    next: usize,
    leave: usize,
}

struct Graph<'f> {
    func: &'f Func,
    steps: Vec<Step>,
    /// Number of each ring.
    rings: FxHashMap<Value, usize>,
    /// Slots and consumers of each.
    limits: Vec<(u32, u32)>,
}

impl Graph<'_> {
    fn add(&mut self, step: Step) -> usize {
        self.steps.push(step);
        self.steps.len() - 1
    }

    fn ring(&mut self, ring: Value) -> usize {
        if let Some(&known) = self.rings.get(&ring) {
            return known;
        }
        let made = self.func.defining_op(ring).map(|op| &self.func.ops[op].kind);
        let limit = match made {
            Some(OpKind::Tile(TileOp::Ring { stages, consumers, .. })) => (*stages, *consumers),
            _ => (u32::MAX, 1),
        };
        self.limits.push(limit);
        self.rings.insert(ring, self.limits.len() - 1);
        self.limits.len() - 1
    }

    /// The first step of a block that goes on with `then`; built from its end.
    fn block(&mut self, block: Block, warps: u32, then: usize, exits: &Exits) -> usize {
        let func = self.func;
        let mut next = then;
        let mut roles: Vec<usize> = Vec::new();
        for &op in func.blocks[block].ops.iter().rev() {
            let data = &func.ops[op];
            if let OpKind::Tile(TileOp::Role { warps, .. }) = data.kind {
                let end = self.add(Step::End);
                let role = self.block(data.regions[0], warps, end, &Exits::default());
                roles.push(role);
                continue;
            }
            next = self.started(&mut roles, next);
            next = match &data.kind {
                OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => {
                    let head = self.add(Step::End);
                    let body = self.block(data.regions[0], warps, head, &Exits { next: head, leave: next });
                    let open = matches!(data.kind, OpKind::Schedule(ScheduleOp::Loop {}));
                    self.steps[head] = Step::Ways(if open { SmallVec::from_slice(&[body]) } else { [body, next].into() });
                    head
                }
                OpKind::Schedule(ScheduleOp::If {}) => {
                    let ways = data.regions.iter().map(|&region| self.block(region, warps, next, exits)).collect();
                    self.add(Step::Ways(ways))
                }
                OpKind::Schedule(ScheduleOp::Continue {}) => exits.next,
                OpKind::Schedule(ScheduleOp::Break {}) => exits.leave,
                OpKind::Schedule(ScheduleOp::Return {}) => self.add(Step::End),
                OpKind::Tile(kind) => self.step(op, kind, warps, next),
                _ => next,
            };
        }
        self.started(&mut roles, next)
    }

    /// The step at which roles start that stand before `next`.
    fn started(&mut self, roles: &mut Vec<usize>, next: usize) -> usize {
        if roles.is_empty() {
            return next;
        }
        let mut roles = std::mem::take(roles);
        roles.reverse();
        self.add(Step::Roles(roles, next))
    }

    fn step(&mut self, op: Op, kind: &TileOp, warps: u32, next: usize) -> usize {
        let data = &self.func.ops[op];
        let come = warps * Arch::WARP;
        let step = match kind {
            TileOp::Acquire {} => Step::Acquire(self.ring(data.one(0)), op, next),
            TileOp::Commit { .. } => Step::Commit(self.ring(data.one(0)), next),
            TileOp::Wait {} => Step::Wait(self.ring(data.one(0)), op, next),
            TileOp::Release {} => Step::Release(self.ring(data.one(0)), next),
            TileOp::NamedBarrier { id, threads } => {
                Step::Barrier { id: *id as usize % 16, come, wanted: *threads, waits: true, op, next }
            }
            TileOp::NamedArrive { id, threads } => {
                Step::Barrier { id: *id as usize % 16, come, wanted: *threads, waits: false, op, next }
            }
            _ => return next,
        };
        self.add(step)
    }
}

/// Where each role is, and what rings and barriers have counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The function's own step, then the roles'.
    at: SmallVec<[usize; 4]>,
    /// Fillings and releases of each ring, no more than matter.
    rings: Vec<(u32, u32)>,
    /// Threads that have come to each barrier, and which roles wait there.
    barriers: [(u32, u32); 16],
}

struct Search<'g> {
    graph: &'g Graph<'g>,
    seen: FxHashSet<State>,
    /// What roles waited for where nothing could go on, the first time.
    stuck: Option<Vec<Op>>,
}

impl Search<'_> {
    /// Whether some way leads to the end.
    fn ends(&mut self, state: State) -> bool {
        let mut open = vec![state];
        while let Some(mut state) = open.pop() {
            while self.goes_on(&mut state) {}
            if matches!(self.graph.steps[state.at[0]], Step::End) {
                return true;
            }
            if self.seen.len() >= MOST_STATES {
                return false;
            }
            if !self.seen.insert(state.clone()) {
                continue;
            }
            let before = open.len();
            self.ways(&state, &mut open);
            if open.len() == before && self.stuck.is_none() {
                self.stuck = Some(self.waiting(&state));
            }
        }
        false
    }

    /// Does one step that needs no choice and takes nothing from anybody; false if there is none.
    fn goes_on(&self, state: &mut State) -> bool {
        for role in 0..state.at.len() {
            let next = match &self.graph.steps[state.at[role]] {
                &Step::Commit(ring, next) => {
                    let count = &mut state.rings[ring].0;
                    *count = (*count + 1).min(self.graph.limits[ring].0);
                    next
                }
                &Step::Release(ring, next) => {
                    let count = &mut state.rings[ring].1;
                    *count = (*count + 1).min(self.graph.limits[ring].1);
                    next
                }
                &Step::Wait(ring, _, next) if state.rings[ring].0 > 0 => next,
                &Step::Acquire(ring, _, next) if state.rings[ring].0 < self.graph.limits[ring].0 => next,
                &Step::Acquire(ring, _, next) if state.rings[ring].1 >= self.graph.limits[ring].1 => next,
                Step::Roles(roles, _) if state.at.len() == 1 => {
                    state.at.extend(roles.iter().copied());
                    return true;
                }
                &Step::Roles(_, next) if state.at[1..].iter().all(|&at| matches!(self.graph.steps[at], Step::End)) => {
                    state.at.truncate(1);
                    next
                }
                _ => continue,
            };
            state.at[role] = next;
            return true;
        }
        false
    }

    /// What may come next where there is a choice; the way that is tried first comes last. A role's choice of a way is nothing to the others,
    /// so one role chooses at a time; who comes first to a barrier may be.
    fn ways(&self, state: &State, open: &mut Vec<State>) {
        for (role, &at) in state.at.iter().enumerate() {
            if let Step::Ways(ways) = &self.graph.steps[at] {
                for &way in ways.iter().rev() {
                    let mut next = state.clone();
                    next.at[role] = way;
                    open.push(next);
                }
                return;
            }
        }
        for role in (0..state.at.len()).rev() {
            let Step::Barrier { id, come, wanted, waits, next: behind, .. } = self.graph.steps[state.at[role]] else { continue };
            let (count, waiting) = state.barriers[id];
            if waiting >> role & 1 == 1 {
                continue;
            }
            let mut next = state.clone();
            if count + come < wanted {
                next.barriers[id] = (count + come, if waits { waiting | 1 << role } else { waiting });
                if !waits {
                    next.at[role] = behind;
                }
            } else {
                next.barriers[id] = (0, 0);
                next.at[role] = behind;
                for other in (0..state.at.len()).filter(|&other| waiting >> other & 1 == 1) {
                    if let Step::Barrier { next: behind, .. } = self.graph.steps[state.at[other]] {
                        next.at[other] = behind;
                    }
                }
            }
            open.push(next);
        }
    }

    fn waiting(&self, state: &State) -> Vec<Op> {
        let op = |&at: &usize| match self.graph.steps[at] {
            Step::Acquire(_, op, _) | Step::Wait(_, op, _) | Step::Barrier { op, .. } => Some(op),
            _ => None,
        };
        state.at.iter().filter_map(op).collect()
    }
}
