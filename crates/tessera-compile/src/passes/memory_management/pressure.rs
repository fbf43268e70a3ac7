//! What leaves the registers where a thread holds more than it has ([`super::registers`]).
//!
//! At the operation that lacks most, one value after the other that is held over it goes, the cheapest first: by instructions for each
//! register that it frees, those in loops counted as often as loops run.
//!
//! | a value | costs for each of its registers |
//! |---|---|
//! | that follows by arithmetic of elements from what is held anyway or takes fewer registers is made again at each use | 1 a use and operation |
//! | else is kept in shared memory, in a buffer of its own | 4 for the store and 4 a use: a pass over the banks moves 128 bytes of a warp |
//! | that follows from what is loaded, and no buffer has room for ([`super::spilling`]), is loaded again at each use | 12 a use |
//! | that goes round a loop, or is used there in each of its rounds | cannot go |
//!
//! ```text
//! %x = .. : tile<128x256xf32, #0>            256 registers                 tile.store_shared %x, %spill
//! .. 200 registers more ..                                                 ..
//! %y = addf %x, %z                                                         %back = tile.load_shared %spill : tile<128x256xf32, #0>
//! ```

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Def, Func, Op, OpKind, ScheduleOp, SharedType, TileOp, Trait, Type, Value, bug};
use tessera_types::Arch;

use super::live_values::LiveValues;
use super::registers::{Peak, Places, follows_from_scalars, is_free, registers};
use super::spilling::Eased;
use tessera_analysis::memory::{Access, Root, access, root};

/// What a loop multiplies costs by at most, and how many loops do.
const ROUNDS: u64 = 16;
const DEEPEST_LOOP: usize = 3;
/// Instructions that a register loaded from the cache of all blocks counts for.
const LOADED: u64 = 12;
/// Operations that follow each other where a value is made again.
const DEEPEST: u32 = 6;
/// Values that are moved out of registers in one function: more is no repair.
const MOST: usize = 32;

/// Finds where registers are missing, but for some operations.
pub(super) type Search = fn(&Func, Arch, &LiveValues, &[Op]) -> Option<Peak>;

/// Moves values out of registers until a search finds no operation that lacks any, or nothing more can be moved; what was moved.
pub(super) fn relieve(func: &mut Func, arch: Arch, search: Search) -> Vec<Eased> {
    let (mut left, mut given_up): (Vec<Value>, Vec<Op>) = (Vec::new(), Vec::new());
    let mut eased = Vec::new();
    for _ in 0..MOST {
        let live = LiveValues::of(func);
        let Some(peak) = search(func, arch, &live, &given_up) else { break };
        let choices = choices(func, &live, &peak, Means::Cheap, &left);
        let Some(choice) = choices.first() else {
            given_up.push(peak.op);
            continue;
        };
        left.push(choice.value);
        eased.push(choice.eased(func, peak.op));
        choice.apply(func);
    }
    eased
}

/// What leaves the registers over an operation, the cheapest first, but for the values in `left`.
pub(super) fn choices(func: &Func, live: &LiveValues, peak: &Peak, means: Means, left: &[Value]) -> Vec<Choice> {
    let places = Places::of(func);
    let held = live.held_over(func, peak.op, peak.counts).into_iter().filter(|value| !left.contains(value));
    let mut choices: Vec<Choice> =
        held.flat_map(|value| Choice::of(func, live, &places, peak.op, value, means)).flatten().collect();
    choices.sort_by(|a, b| (a.cost * b.frees).cmp(&(b.cost * a.frees)).then(a.value.cmp(&b.value)));
    choices
}

/// Which ways a value may leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// By arithmetic from what is held anyway, else through shared memory.
    Cheap,
    /// By loading it again, too.
    All,
}

/// How a value comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Back {
    /// These make it again, in order.
    Again(Vec<Op>),
    /// The same, with loads among them.
    Loaded(Vec<Op>),
    /// From a buffer in shared memory.
    Shared,
}

/// How a value leaves the registers over an operation.
pub(super) struct Choice {
    pub(super) value: Value,
    back: Back,
    /// Operations behind the peak that get it back.
    uses: Vec<Op>,
    pub(super) cost: u64,
    frees: u64,
}

impl Choice {
    fn of(func: &Func, live: &LiveValues, places: &Places, peak: Op, value: Value, means: Means) -> Option<Vec<Choice>> {
        let Def::Result(maker, _) = func.values[value].def else { return None };
        let (made, at) = (places.at.get(&maker)?, places.at.get(&peak)?);
        let Type::Distributed(ty) = func.ty(value) else { return None };
        let bits = ty.tile.elem.num()?.bits();
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
        let weight = |op: &Op| rounds(func, places, *op);
        let count = ty.layout.registers();
        let held_anyway = |operand: Value| {
            let held = live.is_held(peak, operand) && uses.iter().all(|&at| live.is_held(at, operand));
            held || is_free(func, operand)
        };
        let gets: u64 = uses.iter().map(weight).sum();
        let repeated = |way: Way, loads: bool| {
            // What is not held anyway is held instead: the narrower type that was widened.
            let instead: u64 = way.from.iter().map(|&from| registers(func, from)).sum();
            let frees = registers(func, value).saturating_sub(instead);
            let is_load = |op: &Op| is_load(func, *op);
            let arithmetic = way.ops.iter().filter(|&op| costs(func, *op) && !is_load(op)).count() as u64 * count;
            let loaded: u64 = way.ops.iter().filter(|op| is_load(op)).map(|&op| registers(func, func.ops[op].results[0])).sum();
            let cost = gets * (arithmetic + LOADED * loaded);
            let back = if loads { Back::Loaded(way.ops) } else { Back::Again(way.ops) };
            (frees > 0).then(|| Choice { value, back, uses: uses.clone(), cost, frees })
        };
        let mut way = Way::default();
        way.follow(func, maker, &held_anyway, &|_| false, DEEPEST);
        if !way.ops.is_empty()
            && let Some(choice) = repeated(way, false)
        {
            return Some(vec![choice]);
        }
        let frees = registers(func, value);
        // A pass over the banks moves 128 bytes of a warp; a store, and a load for each use.
        let cost = (weight(&maker) + gets) * count * u64::from(bits).div_ceil(32) * 4;
        let shared = Choice { value, back: Back::Shared, uses: uses.clone(), cost, frees };
        let mut found = if bits >= 8 && frees > 0 { vec![shared] } else { Vec::new() };
        if means == Means::All {
            let held_anyway = |operand: Value| held_anyway(operand) || follows_from_scalars(func, operand);
            let mut way = Way::default();
            way.follow(func, maker, &held_anyway, &|load| reads_the_same(func, places, load, &uses), DEEPEST);
            found.extend(repeated(way, true).filter(|choice| matches!(&choice.back, Back::Loaded(ops) if !ops.is_empty())));
        }
        Some(found)
    }

    /// The value needs a buffer.
    pub(super) fn needs_buffer(&self) -> bool {
        self.back == Back::Shared
    }

    /// What the choice does, before it is done.
    pub(super) fn eased(&self, func: &Func, peak: Op) -> Eased {
        let how = match &self.back {
            Back::Again(_) => "is computed again",
            Back::Loaded(_) => "is loaded again",
            Back::Shared => "waits in shared memory",
        };
        let bytes = match (&self.back, func.ty(self.value).as_tile()) {
            (Back::Shared, Some(tile)) => tile.len() as u64 * tile.elem.bytes(),
            _ => 0,
        };
        let cost = if matches!(self.back, Back::Loaded(_)) { self.cost } else { 0 };
        Eased { value: self.value, how, frees: self.frees, bytes, span: func.ops[peak].span, cost }
    }

    /// Moves the value.
    pub(super) fn apply(&self, func: &mut Func) {
        let Def::Result(maker, position) = func.values[self.value].def else { bug!("an argument that is made again") };
        let ty = func.ty(self.value).clone();
        let mut buffer = None;
        if self.back == Back::Shared
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
        let (Back::Again(ops) | Back::Loaded(ops)) = &self.back else { return self.value };
        for &op in ops {
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
    /// Takes in an operation on elements, or a load that `again` allows, and what makes its operands unless they are held anyway.
    fn follow(
        &mut self,
        func: &Func,
        op: Op,
        held_anyway: &impl Fn(Value) -> bool,
        again: &impl Fn(Op) -> bool,
        deepest: u32,
    ) -> bool {
        let data = &func.ops[op];
        let elementwise = data.row().has(Trait::Elementwise) && data.row().effects == tessera_ir::Effects::Pure;
        let known = (elementwise || !costs(func, op)) && data.results.len() == 1 || again(op);
        if deepest == 0 || !known || data.through.is_some() {
            return false;
        }
        if self.ops.contains(&op) {
            return true;
        }
        for &operand in &data.operands {
            if held_anyway(operand) || self.from.contains(&operand) {
                continue;
            }
            let made = func.defining_op(operand).is_some_and(|maker| self.follow(func, maker, held_anyway, again, deepest - 1));
            if !made {
                self.from.push(operand);
            }
        }
        self.ops.push(op);
        true
    }
}

/// An operation loads a tile from memory that may change only by writes.
fn is_load(func: &Func, op: Op) -> bool {
    func.ops[op].kind.schedule().is_some_and(ScheduleOp::is_weak_load)
}

/// A load would read the same at each use: nothing writes there between.
fn reads_the_same(func: &Func, places: &Places, load: Op, uses: &[Op]) -> bool {
    let Some(Access { root, .. }) = access(func, load).filter(|_| is_load(func, load)) else { return false };
    let made = &places.at[&load];
    let last = uses.iter().map(|op| places.at[op].number).max().unwrap_or(made.number);
    // A round of a loop that the load is not in comes behind others.
    let loops: Vec<Op> =
        uses.iter().flat_map(|op| places.at[op].loops.clone()).filter(|looped| !made.loops.contains(looped)).collect();
    places.order.iter().all(|&op| {
        let at = &places.at[&op];
        let between = at.role != made.role
            || at.number > made.number && at.number < last
            || at.loops.iter().any(|looped| loops.contains(looped));
        !between || written(func, op).is_none_or(|other| !other.meets(root))
    })
}

/// Where an operation writes outside of the block's own memory.
fn written(func: &Func, op: Op) -> Option<Root> {
    let data = &func.ops[op];
    match &data.kind {
        OpKind::Tile(TileOp::TmaStore {} | TileOp::SendTile {} | TileOp::StoreLines {} | TileOp::StoreVector { .. }) => {
            Some(root(func, data.one(1)))
        }
        _ => access(func, op).filter(|access| access.writes).map(|access| access.root),
    }
}

/// Rounds that an operation is taken to run: what its loops count, where that is known and fewer.
pub(in crate::passes) fn rounds(func: &Func, places: &Places, op: Op) -> u64 {
    let loops = places.at[&op].loops.iter().take(DEEPEST_LOOP);
    loops.map(|&looped| func.known_rounds(&func.ops[looped]).map_or(ROUNDS, |rounds| rounds.clamp(1, ROUNDS))).product()
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
    let block = func.block_of(at);
    let block = &mut func.blocks[block];
    let position = block.place_of(at) + behind;
    block.ops.insert(position, op);
}
