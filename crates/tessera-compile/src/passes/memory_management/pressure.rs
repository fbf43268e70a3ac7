//! What leaves the registers where a thread holds more than it has ([`super::registers`]).
//!
//! At the operation that lacks most, one value after the other that is not touched there goes, the cheapest first: by instructions for each
//! register that it frees, those in loops counted as often as loops run.
//!
//! | a value | costs for each of its registers |
//! |---|---|
//! | that follows by arithmetic of elements from what is held anyway or takes fewer registers is made again at each use | 1 a use and operation |
//! | else is kept in shared memory, in a buffer of its own | 4 for the store and 4 a use: a pass over the banks moves 128 bytes of a warp |
//! | that goes round a loop, or is used where it is held | cannot go |
//!
//! ```text
//! %x = .. : tile<128x256xf32, #0>            256 registers                 tile.store_shared %x, %spill
//! .. 200 registers more ..                                                 ..
//! %y = addf %x, %z                                                         %back = tile.load_shared %spill : tile<128x256xf32, #0>
//! ```

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Def, Func, Op, OpKind, ScheduleOp, SharedType, TileOp, Trait, Type, Value};
use tessera_types::Arch;

use super::live_values::LiveValues;
use super::registers::{Peak, Places, is_free, registers};

/// What a loop multiplies costs by.
const ROUNDS: u64 = 16;
/// Operations that follow each other where a value is made again.
const DEEPEST: u32 = 6;
/// Values that are moved out of registers in one function: more is no repair.
const MOST: usize = 32;

/// Finds where registers are missing, but for some operations.
pub(super) type Search = fn(&Func, Arch, &LiveValues, &[Op]) -> Option<Peak>;

/// Moves values out of registers until a search finds no operation that lacks any, or nothing more can be moved; whether any was moved.
pub(super) fn relieve(func: &mut Func, arch: Arch, search: Search) -> bool {
    let (mut left, mut given_up): (Vec<Value>, Vec<Op>) = (Vec::new(), Vec::new());
    let mut changed = false;
    for _ in 0..MOST {
        let live = LiveValues::of(func);
        let Some(peak) = search(func, arch, &live, &given_up) else { break };
        let places = Places::of(func);
        let mut choices: Vec<Choice> = live
            .held_over(func, peak.op)
            .into_iter()
            .filter(|value| !left.contains(value))
            .filter_map(|value| Choice::of(func, &live, &places, peak.op, value))
            .collect();
        choices.sort_by(|a, b| (a.cost * b.frees).cmp(&(b.cost * a.frees)).then(a.value.cmp(&b.value)));
        let Some(choice) = choices.first() else {
            given_up.push(peak.op);
            continue;
        };
        left.push(choice.value);
        choice.apply(func);
        changed = true;
    }
    changed
}

/// How a value leaves the registers over an operation.
struct Choice {
    value: Value,
    /// What makes it again, in order; else it goes through shared memory.
    again: Vec<Op>,
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
        let held_anyway = |operand: Value| {
            let held = live.is_held(peak, operand) && uses.iter().all(|&at| live.is_held(at, operand));
            held || is_free(func, operand)
        };
        let mut way = Way::default();
        way.follow(func, maker, &held_anyway, DEEPEST);
        // What is not held anyway is held instead: the narrower type that was widened.
        let instead: u64 = way.from.iter().map(|&from| registers(func, from)).sum();
        let again = !way.ops.is_empty() && instead < registers(func, value);
        let frees = registers(func, value) - if again { instead } else { 0 };
        let bits = ty.tile.elem.num()?.bits();
        let gets: u64 = uses.iter().map(weight).sum();
        let cost = if again {
            gets * count * way.ops.iter().filter(|&&op| costs(func, op)).count() as u64
        } else if bits >= 8 {
            // A pass over the banks moves 128 bytes of a warp; a store, and a load for each use.
            (weight(&maker) + gets) * count * u64::from(bits).div_ceil(32) * 4
        } else {
            return None;
        };
        let again = if again { way.ops } else { Vec::new() };
        (frees > 0).then_some(Choice { value, again, uses, cost, frees })
    }

    fn apply(&self, func: &mut Func) {
        let Def::Result(maker, position) = func.values[self.value].def else { return };
        let ty = func.ty(self.value).clone();
        let mut buffer = None;
        if self.again.is_empty()
            && let Type::Distributed(spread) = &ty
            && let Some(elem) = spread.tile.elem.num()
        {
            let span = func.ops[maker].span;
            let shared = Type::Shared(Box::new(SharedType::new(spread.tile.shape.clone(), elem)));
            let alloc = func.make_op(TileOp::AllocShared { align: 16, offset: None }.into(), &[], [shared], [], span);
            let place = func.ops[alloc].result();
            let store = func.make_op(TileOp::StoreShared { matrices: false }.into(), &[&[self.value], &[place]], [], [], span);
            insert_behind(func, maker, store);
            let body = func.body;
            func.blocks[body].ops.insert(0, alloc);
            buffer = Some(place);
        }
        for &at in &self.uses {
            let result = match buffer {
                Some(buffer) => {
                    let back = func.make_op(TileOp::LoadShared {}.into(), &[&[buffer]], [ty.clone()], [], func.ops[at].span);
                    insert_before(func, at, back);
                    func.ops[back].result()
                }
                None => self.repeat(func, at, maker, position as usize),
            };
            let data = &mut func.ops[at];
            for used in data.operands.iter_mut().chain(&mut data.through).filter(|used| **used == self.value) {
                *used = result;
            }
        }
    }

    /// Makes the value again before an operation.
    fn repeat(&self, func: &mut Func, at: Op, maker: Op, position: usize) -> Value {
        let mut made: FxHashMap<Value, Value> = FxHashMap::default();
        for &op in &self.again {
            let data = func.ops[op].clone();
            let renamed = |group: &[Value]| group.iter().map(|value| made.get(value).copied().unwrap_or(*value)).collect();
            let groups: Vec<SmallVec<[Value; 4]>> = (0..data.segments.len()).map(|group| renamed(data.group(group))).collect();
            let groups: Vec<&[Value]> = groups.iter().map(SmallVec::as_slice).collect();
            let types: Vec<Type> = data.results.iter().map(|&result| func.ty(result).clone()).collect();
            let back = func.make_op(data.kind, &groups, types, [], func.ops[at].span);
            insert_before(func, at, back);
            made.extend(data.results.iter().copied().zip(func.ops[back].results.iter().copied()));
        }
        let value = func.ops[maker].results[position];
        made.get(&value).copied().unwrap_or(value)
    }
}

/// How a value is made again.
#[derive(Default)]
struct Way {
    /// Operations in order, the last is the value's maker; none where it cannot be made again.
    ops: Vec<Op>,
    /// Values that are held for it.
    from: Vec<Value>,
}

impl Way {
    /// Takes in an operation on elements, and what makes its operands unless they are held anyway.
    fn follow(&mut self, func: &Func, op: Op, held_anyway: &impl Fn(Value) -> bool, deepest: u32) -> bool {
        let data = &func.ops[op];
        let elementwise = data.row().has(Trait::Elementwise) && data.row().effects == tessera_ir::Effects::Pure;
        if deepest == 0 || !elementwise && costs(func, op) || data.results.len() != 1 || data.through.is_some() {
            return false;
        }
        if self.ops.contains(&op) {
            return true;
        }
        for &operand in &data.operands {
            if held_anyway(operand) || self.from.contains(&operand) {
                continue;
            }
            let made = func.defining_op(operand).is_some_and(|maker| self.follow(func, maker, held_anyway, deepest - 1));
            if !made {
                self.from.push(operand);
            }
        }
        self.ops.push(op);
        true
    }
}

/// Whether an operation is instructions, and not only other names for registers.
fn costs(func: &Func, op: Op) -> bool {
    let named =
        matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Broadcast {} | ScheduleOp::Reshape {} | ScheduleOp::Iota {}));
    !named
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
