//! How many registers a thread holds, at each operation that no work can be put off behind, and how many it has.
//!
//! Work on elements is done piece by piece, so only what is held over an operation counts where all threads meet (barriers, waits for a slot,
//! exchanges), and what goes round a loop together with what is held over the loop. A tile takes its layout's registers, halves and
//! bytes several to one; constants and what is spread from a scalar take none. To be refused a kernel must lack registers even where all that
//! follows from scalars takes none. A thread has what its role has been given, else its share
//! of the multiprocessor's, and no more than an instruction can name.
//!
//! ```text
//! loop .. (%acc: tile<256x256xf32, #0>)      65536 elements on 256 threads: 256 registers of 255
//! ```

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Block, Diagnostic, Effects, Extent, Func, Op, OpKind, ScheduleOp, Severity, TileOp, Trait, Type, Value};
use tessera_types::Arch;

use super::live_values::{Held, LiveValues};

/// Registers of a thread for addresses and for pieces of what is being computed.
const OWN: u64 = 24;
/// Values that an error names.
const NAMED: usize = 4;

/// Registers that a value takes in a thread; what repeats elements has those of its source.
pub(super) fn registers(func: &Func, value: Value) -> u64 {
    if let Some(op) = func.defining_op(value)
        && matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Broadcast {}))
    {
        return registers(func, func.ops[op].one(0));
    }
    match func.ty(value) {
        Type::Tile(tile) => tile.elem.bits().div_ceil(32),
        Type::Distributed(ty) | Type::InFlight(ty) => (ty.layout.registers() * ty.tile.elem.bits()).div_ceil(32),
        Type::TensorView(view) => {
            2 + view.shape.iter().chain(&view.strides).filter(|e| matches!(e, Extent::Dynamic)).count() as u64
        }
        Type::Cursor => 2,
        Type::Shared(_) => 1,
        Type::TileView(_) | Type::Token | Type::Tensor(_) | Type::Operand(_) | Type::Registers(_) | Type::Ring(_) => 0,
    }
}

/// True for a value that the lowering makes out of nothing wherever it is wanted. A kernel's parameters, and views of nothing else, lie in
/// memory that instructions read as they read registers.
pub(super) fn is_free(func: &Func, value: Value) -> bool {
    let Some(op) = func.defining_op(value) else { return func.blocks[func.body].args.contains(&value) };
    let data = &func.ops[op];
    match &data.kind {
        OpKind::Schedule(ScheduleOp::Constant { .. }) => true,
        OpKind::Schedule(
            ScheduleOp::Assume { .. }
            | ScheduleOp::MakeTensorView {}
            | ScheduleOp::MakePartitionView {}
            | ScheduleOp::MakeStridedView {}
            | ScheduleOp::MakeGatherScatterView {},
        ) => data.operands.iter().all(|&operand| is_free(func, operand)),
        OpKind::Schedule(ScheduleOp::Broadcast {} | ScheduleOp::Reshape {}) => {
            func.ty(data.one(0)).is_scalar() || is_free(func, data.one(0))
        }
        _ => false,
    }
}

/// The values whose registers these are, each once: what only repeats or renames elements has those of its source, and what is computed from
/// scalars and from a thread's number alone is computed where it is wanted.
fn firm(func: &Func, values: Vec<Value>) -> Vec<Value> {
    let mut known = FxHashMap::default();
    let mut found: Vec<Value> = values.into_iter().map(|value| source(func, value)).collect();
    found.sort_unstable();
    found.dedup();
    found.retain(|&value| !is_free(func, value) && !from_scalars(func, value, &mut known));
    found
}

fn source(func: &Func, value: Value) -> Value {
    let made = func.defining_op(value).map(|op| &func.ops[op]);
    match made.map(|data| (&data.kind, data)) {
        Some((
            OpKind::Schedule(
                ScheduleOp::Broadcast {} | ScheduleOp::Reshape {} | ScheduleOp::Permute { .. } | ScheduleOp::Assume { .. },
            ),
            data,
        )) => source(func, data.one(0)),
        _ => value,
    }
}

/// A tile is computed from scalars and from a thread's number alone.
pub(super) fn follows_from_scalars(func: &Func, value: Value) -> bool {
    from_scalars(func, value, &mut FxHashMap::default())
}

fn from_scalars(func: &Func, value: Value, known: &mut FxHashMap<Value, bool>) -> bool {
    if func.ty(value).layout().is_none() {
        return false;
    }
    if let Some(&known) = known.get(&value) {
        return known;
    }
    let made = func.defining_op(value).map(|op| &func.ops[op]);
    let computed = made.is_some_and(|data| {
        let pure = data.row().effects == Effects::Pure && data.regions.is_empty();
        let kind = match &data.kind {
            OpKind::Schedule(
                ScheduleOp::Constant { .. }
                | ScheduleOp::Iota {}
                | ScheduleOp::Broadcast {}
                | ScheduleOp::Reshape {}
                | ScheduleOp::Permute { .. },
            ) => true,
            OpKind::Schedule(_) => data.row().has(Trait::Elementwise),
            _ => false,
        };
        pure && kind && data.used().all(|used| func.ty(used).layout().is_none() || from_scalars(func, used, known))
    });
    known.insert(value, computed);
    computed
}

/// Registers that a thread has in a role when so many blocks are resident.
fn room(func: &Func, arch: Arch, role: Option<Op>, blocks: u32) -> u64 {
    let given = role.and_then(|role| match &func.ops[role].kind {
        OpKind::Tile(TileOp::Role { registers, .. }) => *registers,
        _ => None,
    });
    u64::from(given.unwrap_or_else(|| even(arch, func.hints.threads().max(Arch::WARP) * blocks)))
}

/// Registers of a thread when so many share a multiprocessor.
fn even(arch: Arch, threads: u32) -> u32 {
    let limits = arch.limits();
    (limits.registers_per_sm / threads.max(1) / 8 * 8).min(limits.registers_per_thread)
}

/// Where an operation stands.
#[derive(Clone, Debug, Default)]
pub(in crate::passes) struct Place {
    /// Its number in the text.
    pub(super) number: usize,
    /// Loops around it, outermost first.
    pub(super) loops: SmallVec<[Op; 4]>,
    pub(super) role: Option<Op>,
}

/// Where operations stand.
pub(in crate::passes) struct Places {
    pub(super) order: Vec<Op>,
    pub(super) at: FxHashMap<Op, Place>,
}

impl Places {
    pub(in crate::passes) fn of(func: &Func) -> Places {
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

/// An operation at which a thread holds more than it has.
#[derive(Clone, Debug)]
pub(super) struct Peak {
    pub(super) op: Op,
    /// Which values count there.
    pub(super) counts: Held,
    role: Option<Op>,
    /// What is held, the largest first.
    values: Vec<(Value, u64)>,
    held: u64,
    room: u64,
}

impl Peak {
    /// The operation where threads meet that lacks most registers for what they hold and [`OWN`], when as many blocks are resident as were
    /// asked for. What the operation reads itself is not moved for that. Those in `given_up` are left out.
    pub(super) fn tight(func: &Func, arch: Arch, live: &LiveValues, given_up: &[Op]) -> Option<Peak> {
        let blocks = func.hints.occupancy.unwrap_or(1).max(1);
        worst(func, given_up, Held::Bystanders, |op, role| {
            let held = meets(func, op).then(|| live.held_over(func, op, Held::Bystanders))?;
            let held = held.into_iter().filter(|&value| !is_free(func, value)).collect();
            Some((held, room(func, arch, role, blocks).saturating_sub(OWN)))
        })
    }

    /// The operation, or the loop, that lacks most registers for nothing but what threads hold, with one block.
    pub(super) fn beyond(func: &Func, arch: Arch, live: &LiveValues, given_up: &[Op]) -> Option<Peak> {
        Peak::firm(func, arch, live, given_up, 0)
    }

    /// The same where [`OWN`] are left.
    pub(super) fn snug(func: &Func, arch: Arch, live: &LiveValues, given_up: &[Op]) -> Option<Peak> {
        Peak::firm(func, arch, live, given_up, OWN)
    }

    fn firm(func: &Func, arch: Arch, live: &LiveValues, given_up: &[Op], own: u64) -> Option<Peak> {
        worst(func, given_up, Held::All, |op, role| {
            let data = &func.ops[op];
            let held = match &data.kind {
                OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => {
                    live.around(op).into_iter().chain(func.blocks[data.regions[0]].args.iter().copied()).collect()
                }
                _ => meets(func, op).then(|| live.held_over(func, op, Held::All))?,
            };
            Some((firm(func, held), room(func, arch, role, 1).saturating_sub(own)))
        })
    }

    /// Registers that are missing.
    pub(super) fn lacks(&self) -> u64 {
        self.held - self.room
    }

    /// Bytes of local memory that a thread needs for what is missing, with what it works with.
    pub(super) fn local_bytes(&self) -> u64 {
        4 * (self.lacks() + OWN)
    }

    /// What is left to local memory: how much is held and by what, and which change would do without.
    pub(super) fn note(&self, func: &Func, arch: Arch) -> Diagnostic {
        let has = match self.role {
            Some(_) => "its role has".to_string(),
            None => format!("`{arch}` has for each of {}", func.hints.threads()),
        };
        let (held, lacks, room) = (self.held, self.lacks(), self.room);
        let message = format!(
            "a thread holds {held} registers here, {lacks} more than the {room} that {has}: some {} bytes go to local memory",
            self.local_bytes()
        );
        let mut error = Diagnostic::error("target-registers", func.ops[self.op].span, message).severity(Severity::Note);
        let mut named: Vec<String> = Vec::new();
        for &(value, count) in self.values.iter().take(NAMED) {
            named.push(format!("{count} for {}", described(func, value)));
        }
        let others: u64 = self.values.iter().skip(NAMED).map(|(_, count)| count).sum();
        if others > 0 {
            named.push(format!("{others} for others"));
        }
        error = error.note(format!("held together: {}", named.join(", ")));
        error.help(self.advice(func, arch))
    }

    /// The fewest halvings of the tiles that fit, and then the fewest warps.
    fn advice(&self, func: &Func, arch: Arch) -> String {
        let warps = (func.hints.threads() / Arch::WARP).max(1);
        for halvings in 0..10 {
            let held = self.held >> halvings;
            let smaller = match halvings {
                0 => String::new(),
                1 => "make the tiles half as large".to_string(),
                _ => format!("make the tiles {} times smaller", 1u32 << halvings),
            };
            if halvings > 0 && held + OWN <= self.room {
                return smaller;
            }
            let more = (1..4).map(|bits| warps << bits).take_while(|more| more * Arch::WARP <= arch.limits().threads_per_block);
            let fits = |more: &u32| held * u64::from(warps) / u64::from(*more) + OWN <= u64::from(even(arch, more * Arch::WARP));
            if let (None, Some(more)) = (self.role, more.into_iter().find(fits)) {
                let warps = format!("spread them over {more} warps");
                return if smaller.is_empty() {
                    format!("{warps}, by `num_warps={more}`")
                } else {
                    format!("{smaller} and {warps}")
                };
            }
        }
        "make the tiles smaller".to_string()
    }
}

/// A value in words of the source: `128x64xf32` and its name.
pub(super) fn described(func: &Func, value: Value) -> String {
    let name = func.values[value].name.as_ref().map_or(String::new(), |name| format!(" `{name}`"));
    let Some(tile) = func.ty(value).as_tile() else { return format!("others{name}") };
    let shape: Vec<String> = tile.shape.iter().map(u32::to_string).collect();
    format!("{}{name}", [&shape[..], &[tile.elem.to_string()]].concat().join("x"))
}

/// The operation that lacks most, by what is held at each in its role and how many registers there are for that.
fn worst(func: &Func, without: &[Op], counts: Held, at: impl Fn(Op, Option<Op>) -> Option<(Vec<Value>, u64)>) -> Option<Peak> {
    let places = Places::of(func);
    let mut worst: Option<Peak> = None;
    for &op in places.order.iter().filter(|op| !without.contains(op)) {
        let role = places.at[&op].role;
        let Some((held, room)) = at(op, role) else { continue };
        let mut values: Vec<(Value, u64)> = held.into_iter().map(|value| (value, registers(func, value))).collect();
        let held = values.iter().map(|(_, count)| count).sum::<u64>();
        if held > room && worst.as_ref().is_none_or(|worst| held - room > worst.lacks()) {
            values.sort_by_key(|&(value, count)| (std::cmp::Reverse(count), value));
            worst = Some(Peak { op, counts, role, values, held, room });
        }
    }
    worst
}

/// All threads meet there, which no work can be put off behind.
fn meets(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    data.through.is_some() || matches!(data.kind, OpKind::Tile(TileOp::Barrier {} | TileOp::Wait { .. }))
}
