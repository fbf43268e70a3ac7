//! Registers: how many a thread holds at each operation, and what goes elsewhere where that is more than it has.
//!
//! Counted is what must be in registers at once. Work on elements is done piece by piece, so only what is held over an operation counts where
//! all threads meet, which no piece can pass: barriers, waits for a slot, exchanges. A tile takes its layout's registers, halves and bytes several
//! to one; constants and what is spread from a scalar take none. A thread has what its role has been given, else what the resident blocks
//! that were asked for leave it, and [`OWN`] of these are addresses.
//!
//! Where more is held, values that are not touched there are made again behind it where their makers are cheap and their makers' operands are held
//! anyway, else kept in shared memory: cheapest first, by instructions for each register that it frees, those in loops counted as often as
//! loops run.
//!
//! ```text
//! %x = .. : tile<128x256xf32, #0>            256 registers                 tile.store_shared %x, %spill
//! .. 200 registers more ..                                                 ..
//! %y = addf %x, %z                                                         %back = tile.load_shared %spill : tile<128x256xf32, #0>
//! ```

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Block, Def, Func, Op, OpKind, ScheduleOp, SharedType, TileOp, Trait, Type, Value};
use tessera_types::Arch;

use super::live_values::LiveValues;

/// Registers of a thread for addresses and for pieces of what is being computed.
const OWN: u64 = 24;
/// What a loop multiplies costs by.
const ROUNDS: u64 = 16;
/// Values that are moved out of registers in one function: more is no repair.
const MOST: usize = 32;

/// Registers that a value takes in a thread; what repeats elements has those of its source.
fn registers(func: &Func, value: Value) -> u64 {
    if let Some(op) = func.defining_op(value)
        && matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Broadcast {}))
    {
        return registers(func, func.ops[op].one(0));
    }
    let bits = |elem: tessera_ir::Elem| elem.num().map_or(64, |dtype| u64::from(dtype.bits()));
    match func.ty(value) {
        Type::Tile(tile) => bits(tile.elem).div_ceil(32),
        Type::Distributed(ty) | Type::InFlight(ty) => (ty.layout.registers() * bits(ty.tile.elem)).div_ceil(32),
        Type::TensorView(view) => {
            2 + view.shape.iter().chain(&view.strides).filter(|e| matches!(e, tessera_ir::Extent::Dynamic)).count() as u64
        }
        Type::Cursor => 2,
        Type::Shared(_) => 1,
        Type::TileView(_) | Type::Token | Type::Tensor(_) | Type::Operand(_) | Type::Registers(_) | Type::Ring(_) => 0,
    }
}

/// True for a value that the lowering makes out of nothing wherever it is wanted.
fn is_free(func: &Func, value: Value) -> bool {
    let Some(op) = func.defining_op(value) else { return false };
    let data = &func.ops[op];
    match &data.kind {
        OpKind::Schedule(ScheduleOp::Constant { .. }) => true,
        OpKind::Schedule(ScheduleOp::Broadcast {} | ScheduleOp::Reshape {}) => {
            func.ty(data.one(0)).is_scalar() || is_free(func, data.one(0))
        }
        _ => false,
    }
}

/// Registers that a thread may use at an operation, by the role around it.
fn budget(func: &Func, arch: Arch, role: Option<Op>) -> u64 {
    let limits = arch.limits();
    let given = role.and_then(|role| match &func.ops[role].kind {
        OpKind::Tile(TileOp::Role { registers, .. }) => *registers,
        _ => None,
    });
    let blocks = func.hints.occupancy.unwrap_or(1).max(1);
    let even = (limits.registers_per_sm / (func.hints.threads().max(32) * blocks) / 8 * 8).min(limits.registers_per_thread);
    u64::from(given.unwrap_or(even)).saturating_sub(OWN)
}

/// An operation at which a thread holds more than it has.
#[derive(Clone, Copy, Debug)]
struct Peak {
    op: Op,
    held: u64,
    budget: u64,
}

/// Moves values out of registers until every operation has what it needs, or nothing more can be moved; whether any was moved.
pub(super) fn relieve(func: &mut Func, arch: Arch) -> bool {
    let mut left: Vec<Value> = Vec::new();
    let mut changed = false;
    for _ in 0..MOST {
        let live = LiveValues::of(func);
        let places = Places::of(func);
        let Some(peak) = peak(func, arch, &live, &places) else { break };
        let mut choices: Vec<Choice> = live
            .held_over(func, peak.op)
            .into_iter()
            .filter(|value| !left.contains(value))
            .filter_map(|value| Choice::of(func, &live, &places, peak.op, value))
            .collect();
        choices.sort_by(|a, b| (a.cost * b.frees).cmp(&(b.cost * a.frees)).then(a.value.cmp(&b.value)));
        let Some(choice) = choices.first() else { break };
        left.push(choice.value);
        choice.apply(func);
        changed = true;
    }
    changed
}

/// The operation that lacks most.
fn peak(func: &Func, arch: Arch, live: &LiveValues, places: &Places) -> Option<Peak> {
    let mut worst: Option<Peak> = None;
    for &op in &places.order {
        let (data, place) = (&func.ops[op], &places.at[&op]);
        let meets = matches!(data.kind, OpKind::Tile(TileOp::Barrier {} | TileOp::Wait { .. }));
        let firm = meets || data.through.is_some();
        if !firm {
            continue;
        }
        let held = live.held_over(func, op).into_iter().filter(|&value| !is_free(func, value));
        let (held, budget) = (held.map(|value| registers(func, value)).sum::<u64>(), budget(func, arch, place.role));
        let lacks = held.saturating_sub(budget);
        if lacks > 0 && worst.is_none_or(|worst| lacks > worst.held - worst.budget) {
            worst = Some(Peak { op, held, budget });
        }
    }
    worst
}

/// Where an operation stands.
#[derive(Clone, Debug, Default)]
struct Place {
    /// Its number in the text.
    number: usize,
    /// Loops around it, outermost first.
    loops: SmallVec<[Op; 4]>,
    role: Option<Op>,
}

/// Where operations stand.
struct Places {
    order: Vec<Op>,
    at: FxHashMap<Op, Place>,
}

impl Places {
    fn of(func: &Func) -> Places {
        let mut places = Places { order: Vec::new(), at: FxHashMap::default() };
        places.block(func, func.body, &mut SmallVec::new(), None);
        places
    }

    fn block(&mut self, func: &Func, block: Block, loops: &mut SmallVec<[Op; 4]>, role: Option<Op>) {
        for &op in &func.blocks[block].ops {
            let number = self.order.len();
            self.at.insert(op, Place { number, loops: loops.clone(), role });
            self.order.push(op);
            let data = &func.ops[op];
            if matches!(data.kind, OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. })) {
                continue;
            }
            let repeats = data.row().has(Trait::Loop);
            let role = if matches!(data.kind, OpKind::Tile(TileOp::Role { .. })) { Some(op) } else { role };
            if repeats {
                loops.push(op);
            }
            data.regions.iter().for_each(|&region| self.block(func, region, loops, role));
            if repeats {
                loops.pop();
            }
        }
    }
}

/// How a value leaves the registers over an operation.
struct Choice {
    value: Value,
    /// It is made again; else it goes through shared memory.
    again: bool,
    /// Operations behind the peak that get it back.
    uses: Vec<Op>,
    cost: u64,
    frees: u64,
}

impl Choice {
    fn of(func: &Func, live: &LiveValues, places: &Places, peak: Op, value: Value) -> Option<Choice> {
        let Def::Result(maker, _) = func.values[value].def else { return None };
        let (made, at) = (places.at.get(&maker)?, places.at.get(&peak)?);
        let Type::Distributed(ty) = func.ty(value) else { return None };
        if made.role != at.role || is_free(func, value) {
            return None;
        }
        // Those that can come behind the peak: later ones, and all in a loop around it that the maker is not in.
        let round = at.loops.iter().find(|op| !made.loops.contains(op));
        let comes_behind = |op: &&Op| {
            let place = &places.at[*op];
            place.number > at.number || round.is_some_and(|round| place.loops.contains(round))
        };
        let uses: Vec<Op> = places
            .order
            .iter()
            .filter(comes_behind)
            .filter(|op| func.ops[**op].used().any(|used| used == value))
            .copied()
            .collect();
        // What a loop or a condition hands on stays in registers all the same.
        let hands_on =
            |op: &Op| !func.ops[*op].regions.is_empty() || func.ops[*op].row().effects == tessera_ir::Effects::Terminator;
        if uses.is_empty() || uses.iter().any(|op| hands_on(op) || *op == peak) {
            return None;
        }
        let weight = |op: &Op| ROUNDS.pow(places.at[op].loops.len().min(3) as u32);
        let count = ty.layout.registers();
        let data = &func.ops[maker];
        let cheap = data.row().has(Trait::Elementwise) && data.row().effects == tessera_ir::Effects::Pure
            || matches!(data.kind, OpKind::Schedule(ScheduleOp::Iota {} | ScheduleOp::Broadcast {}));
        let held_anyway = |operand: &Value| {
            let held = live.is_held(peak, *operand) && uses.iter().all(|&at| live.is_held(at, *operand));
            held || is_free(func, *operand)
        };
        let again = cheap && data.operands.iter().all(held_anyway);
        let frees = registers(func, value);
        let bits = ty.tile.elem.num()?.bits();
        let gets: u64 = uses.iter().map(weight).sum();
        let cost = if again {
            gets * count
        } else if bits >= 8 {
            // A pass over the banks moves 128 bytes of a warp; a store, and a load for each use.
            (weight(&maker) + gets) * count * u64::from(bits).div_ceil(32) * 4
        } else {
            return None;
        };
        (frees > 0).then_some(Choice { value, again, uses, cost, frees })
    }

    fn apply(&self, func: &mut Func) {
        let Def::Result(maker, position) = func.values[self.value].def else { return };
        let ty = func.ty(self.value).clone();
        let mut buffer = None;
        if !self.again
            && let Type::Distributed(spread) = &ty
            && let Some(elem) = spread.tile.elem.num()
        {
            let span = func.ops[maker].span;
            let shared = Type::Shared(Box::new(SharedType::new(spread.tile.shape.clone(), elem)));
            let alloc = func.make_op(TileOp::AllocShared { align: 16, offset: None }.into(), &[], [shared], [], span);
            let place = func.ops[alloc].result();
            let store = func.make_op(TileOp::StoreShared {}.into(), &[&[self.value], &[place]], [], [], span);
            insert_behind(func, maker, store);
            let body = func.body;
            func.blocks[body].ops.insert(0, alloc);
            buffer = Some(place);
        }
        for &at in &self.uses {
            let span = func.ops[at].span;
            let back = match buffer {
                Some(buffer) => func.make_op(TileOp::LoadShared {}.into(), &[&[buffer]], [ty.clone()], [], span),
                None => {
                    let data = func.ops[maker].clone();
                    let groups: Vec<SmallVec<[Value; 4]>> =
                        (0..data.segments.len()).map(|group| data.group(group).into()).collect();
                    let groups: Vec<&[Value]> = groups.iter().map(SmallVec::as_slice).collect();
                    let types: Vec<Type> = data.results.iter().map(|&result| func.ty(result).clone()).collect();
                    func.make_op(data.kind, &groups, types, [], span)
                }
            };
            let result = func.ops[back].results[if buffer.is_some() { 0 } else { position as usize }];
            insert_before(func, at, back);
            let data = &mut func.ops[at];
            for used in data.operands.iter_mut().chain(&mut data.through).filter(|used| **used == self.value) {
                *used = result;
            }
        }
    }
}

fn insert_behind(func: &mut Func, at: Op, op: Op) {
    place(func, at, op, 1);
}

fn insert_before(func: &mut Func, at: Op, op: Op) {
    place(func, at, op, 0);
}

fn place(func: &mut Func, at: Op, op: Op, behind: usize) {
    for block in func.linked_blocks() {
        let ops = &mut func.blocks[block].ops;
        if let Some(position) = ops.iter().position(|&known| known == at) {
            ops.insert(position + behind, op);
            return;
        }
    }
}
