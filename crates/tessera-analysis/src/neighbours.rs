//! Neighbours: how far, along an axis, a tile's elements count up by one, or stay the same.
//!
//! An axis is cut into blocks of a power of two of elements, the first at the axis's start. [`Along`] says how long blocks may be within
//! which elements count up (numbers by one, addresses by their element's bytes), and within which all are the same, and
//! what divides the number or address that a block starts with. Memory at counting addresses behind an aligned start moves as vectors
//! where a mask is the same for all of a vector.
//!
//! | value | counts | same | starts at multiples of |
//! |---|---|---|---|
//! | `%o = iota : tile<64xi32>` | all | 1 | all |
//! | `%j = muli %i, 24`, broadcast | 1 | all | 8 |
//! | `%a = addi %j, %o` | all | 1 | 8 |
//! | `cmpi %a, %n {lt}` where 16 divides `%n` | 1 | 8 | |
//! | `%p = offset %base, %a`, `f32`, base at a multiple of 16 | all | 1 | 16 |
//!
//! What a loop carries starts as what comes in and is weakened until a round keeps it.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use tessera_ir::attrs::Predicate;
use tessera_ir::{Block, ConstData, Elem, EntityId, Func, Op, OpKind, ScheduleOp, TileOp, Trait, Value};

use super::exits::loop_exits;
use super::facts::{Facts, power};

/// The longest block; nothing is asked about longer ones.
const ALL: u64 = 1 << 12;

/// What is known along one axis; all are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Along {
    /// Elements of a block within which they count up.
    counts: u64,
    /// Elements of a block within which all are the same.
    same: u64,
    /// Divides what each counting block starts with; each element where none count.
    starts: u64,
}

impl Along {
    const NOTHING: Along = Along { counts: 1, same: 1, starts: 1 };

    /// What divides the starts of blocks of `length`, whose elements lie `unit` apart.
    fn starts_of(self, length: u64, unit: u64) -> u64 {
        if self.counts > length { self.starts.min(length * unit) } else { self.starts }
    }

    /// Whatever of two it is.
    fn either(self, other: Along, unit: u64) -> Along {
        let counts = self.counts.min(other.counts);
        let starts = self.starts_of(counts, unit).min(other.starts_of(counts, unit));
        Along { counts, same: self.same.min(other.same), starts }
    }

    /// The sum, where the first counts by `unit` and the second by one unit too.
    fn plus(self, other: Along, unit: u64) -> Along {
        let (first, second) = (self.counts.min(other.same), self.same.min(other.counts));
        let counts = first.max(second);
        let starts = self.starts_of(counts, unit).min(other.starts_of(counts, unit));
        Along { counts, same: self.same.min(other.same), starts }
    }

    /// Numbers that were computed with wrapping, in more bits: a block that starts at a multiple of its length does not wrap.
    fn extended(self) -> Along {
        let counts = self.counts.min(self.starts);
        Along { counts, starts: self.starts_of(counts, 1), ..self }
    }

    /// In bytes of elements of that size.
    fn scaled(self, bytes: u64) -> Along {
        Along { starts: (self.starts * bytes).min(ALL), ..self }
    }
}

type Axes = SmallVec<[Along; 2]>;

/// What is known of each value.
struct Neighbours<'f> {
    func: &'f Func,
    facts: &'f Facts,
    axes: Vec<Option<Axes>>,
}

/// The axis along which an access goes through memory, and the elements that one instruction can move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector {
    /// The axis along which they are neighbours.
    pub axis: usize,
    /// At least 1: neighbours whose alignment or mask is not known move one by one.
    pub width: u64,
}

/// How accesses by pointers go through memory, of those that are known to touch neighbours.
pub fn vectors(func: &Func, facts: &Facts) -> FxHashMap<Op, Vector> {
    let accesses: Vec<Op> = func.linked_ops().into_iter().filter(|&op| pointers(func, op).is_some()).collect();
    if accesses.is_empty() {
        return FxHashMap::default();
    }
    let mut all = Neighbours { func, facts, axes: vec![None; func.values.len()] };
    all.block(func.body);
    accesses.into_iter().filter_map(|op| Some((op, all.vector(op)?))).collect()
}

/// The pointers of an access by a tile of them, and its mask.
pub fn pointers(func: &Func, op: Op) -> Option<(Value, Option<Value>)> {
    let data = &func.ops[op];
    let found = match data.kind.schedule()? {
        ScheduleOp::LoadPtrTko { .. } => (data.one(0), data.optional(1)),
        ScheduleOp::StorePtrTko { .. } => (data.one(0), data.optional(2)),
        _ => return None,
    };
    (!func.ty(found.0).is_scalar()).then_some(found)
}

/// Bits of what pointers point to.
pub fn pointee_bits(func: &Func, pointers: Value) -> Option<u32> {
    match func.ty(pointers).as_tile()?.elem {
        Elem::Ptr(to) => Some(to.unpacked_bytes() as u32 * 8),
        Elem::Num(_) => None,
    }
}

impl Neighbours<'_> {
    fn vector(&self, op: Op) -> Option<Vector> {
        let (pointers, mask) = pointers(self.func, op)?;
        let bytes = self.bytes(pointers)?;
        let axes = self.get(pointers);
        let (axis, along) = axes.iter().enumerate().max_by_key(|(axis, along)| (along.counts, *axis))?;
        let masked = mask.map_or(ALL, |mask| self.get(mask).get(axis).map_or(1, |along| along.same));
        let extent = 1 << self.func.ty(pointers).as_tile()?.shape[axis].trailing_zeros();
        let width = along.counts.min(extent).min(masked).min((along.starts / bytes).max(1)).min((16 / bytes).max(1));
        (along.counts > 1).then_some(Vector { axis, width })
    }

    /// Bytes of what pointers point to; an element of numbers counts as one.
    fn bytes(&self, value: Value) -> Option<u64> {
        match self.func.ty(value).as_tile()?.elem {
            Elem::Ptr(to) if to.bits() >= 8 => Some(to.unpacked_bytes() as u64),
            Elem::Ptr(_) => None,
            Elem::Num(_) => Some(1),
        }
    }

    fn rank(&self, value: Value) -> usize {
        self.func.ty(value).as_tile().map_or(0, |tile| tile.shape.len())
    }

    /// The largest power of two that is known to divide all elements.
    fn divisor(&self, value: Value) -> u64 {
        power(self.facts.fact(value).divisor).min(ALL)
    }

    fn get(&self, value: Value) -> Axes {
        match self.axes.get(value.index()) {
            Some(Some(axes)) => axes.clone(),
            _ => smallvec![Along { starts: self.divisor(value), ..Along::NOTHING }; self.rank(value)],
        }
    }

    fn set(&mut self, value: Value, mut axes: Axes) {
        let divisor = self.divisor(value);
        for along in axes.iter_mut().filter(|along| along.counts == 1) {
            along.starts = along.starts.max(divisor);
        }
        self.axes[value.index()] = Some(axes);
    }

    /// Weakens what is known of a value to what holds of another one too; true where that changes it.
    fn join(&mut self, value: Value, other: Value) -> bool {
        if self.rank(value) == 0 || self.rank(value) != self.rank(other) {
            return false;
        }
        let unit = self.bytes(value).unwrap_or(1);
        let found = self.get(other);
        let joined: Axes = match &self.axes[value.index()] {
            None => found,
            Some(known) => known.iter().zip(&found).map(|(a, b)| a.either(*b, unit)).collect(),
        };
        let changed = self.axes[value.index()].as_ref() != Some(&joined);
        self.axes[value.index()] = Some(joined);
        changed
    }

    fn block(&mut self, block: Block) {
        for &op in &self.func.blocks[block].ops {
            self.op(op);
        }
    }

    fn op(&mut self, op: Op) {
        let func = self.func;
        let data = &func.ops[op];
        match &data.kind {
            OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => self.repeated(op),
            OpKind::Schedule(ScheduleOp::If {}) => {
                for &region in &data.regions {
                    self.block(region);
                }
                for &region in &data.regions {
                    if let Some(&last) = func.blocks[region].ops.last()
                        && matches!(func.ops[last].kind, OpKind::Schedule(ScheduleOp::Yield {}))
                    {
                        for (&result, &value) in data.results.iter().zip(func.ops[last].group(0)) {
                            self.join(result, value);
                        }
                    }
                }
            }
            _ => {
                for &region in &data.regions {
                    self.block(region);
                }
                if let [result] = data.results[..]
                    && self.rank(result) > 0
                    && let Some(axes) = self.result(op, result)
                {
                    self.set(result, axes);
                }
            }
        }
    }

    fn repeated(&mut self, op: Op) {
        let func = self.func;
        let data = &func.ops[op];
        let body = data.regions[0];
        let counts = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. }));
        let args = &func.blocks[body].args[usize::from(counts)..];
        let init = data.group(if counts { 3 } else { 0 });
        for (&arg, &value) in args.iter().zip(init) {
            self.join(arg, value);
        }
        let exits = loop_exits(func, op);
        let goes_on = |op: &&Op| matches!(func.ops[**op].kind, OpKind::Schedule(ScheduleOp::Continue {}));
        loop {
            self.block(body);
            let mut changed = false;
            for &exit in exits.iter().filter(goes_on) {
                for (&arg, &value) in args.iter().zip(func.ops[exit].group(0)) {
                    changed |= self.join(arg, value);
                }
            }
            if !changed {
                break;
            }
        }
        for (position, &result) in data.results.iter().enumerate() {
            if counts {
                self.join(result, args[position]);
                continue;
            }
            for &exit in exits.iter().filter(|exit| !goes_on(exit)) {
                self.join(result, func.ops[exit].group(0)[position]);
            }
        }
    }

    /// What is known of an operation's result.
    fn result(&self, op: Op, result: Value) -> Option<Axes> {
        let data = &self.func.ops[op];
        let of = |position: usize| self.get(data.operands[position]);
        let constant = Along { counts: 1, same: ALL, starts: 1 };
        let kind = match &data.kind {
            OpKind::Schedule(kind) => kind,
            OpKind::Tile(TileOp::ConvertLayout {}) => return Some(of(0)),
            OpKind::Tile(_) | OpKind::Graph(_) => return None,
        };
        Some(match kind {
            ScheduleOp::Constant { value } => match value.data {
                ConstData::Splat(_) => smallvec![constant; self.rank(result)],
                _ => return None,
            },
            ScheduleOp::Iota {} => smallvec![Along { counts: ALL, same: 1, starts: ALL }],
            ScheduleOp::Broadcast {} => {
                let (from, to) = (self.func.ty(data.one(0)).as_tile()?, self.func.ty(result).as_tile()?);
                let starts = self.divisor(result);
                let extents = from.shape.iter().zip(&to.shape);
                extents.zip(of(0)).map(|((a, b), along)| if a == b { along } else { Along { starts, ..constant } }).collect()
            }
            ScheduleOp::Reshape {} => self.reshaped(data.one(0), result)?,
            ScheduleOp::Permute { permutation } => permutation.iter().map(|&axis| of(0)[axis as usize]).collect(),
            ScheduleOp::Assume { .. } | ScheduleOp::TruncI { .. } => of(0),
            ScheduleOp::ExtI { .. } => of(0).into_iter().map(Along::extended).collect(),
            ScheduleOp::AddI { .. } => of(0).into_iter().zip(of(1)).map(|(a, b)| a.plus(b, 1)).collect(),
            ScheduleOp::SubI { .. } => of(0)
                .into_iter()
                .zip(of(1))
                .map(|(a, b)| a.plus(Along { counts: 1, starts: b.starts_of(1, 1), ..b }, 1))
                .collect(),
            ScheduleOp::Offset {} => {
                let bytes = self.bytes(result)?;
                let wide = self.func.ty(data.one(1)).num().is_some_and(|dtype| dtype.bits() == 64);
                let index = of(1).into_iter().map(|along| if wide { along } else { along.extended() });
                of(0).into_iter().zip(index).map(|(base, index)| base.plus(index.scaled(bytes), bytes)).collect()
            }
            ScheduleOp::Select {} => {
                let unit = self.bytes(result).unwrap_or(1);
                let either = of(1).into_iter().zip(of(2)).map(|(a, b)| a.either(b, unit));
                let cut = |along: Along, length: u64| {
                    let counts = along.counts.min(length);
                    Along { counts, same: along.same.min(length), starts: along.starts_of(counts, unit) }
                };
                // A scalar condition chooses for all.
                let chosen = self.rank(data.one(0)) == self.rank(result);
                let lengths: Axes = if chosen { of(0) } else { smallvec![constant; self.rank(result)] };
                either.zip(lengths).map(|(along, condition)| cut(along, condition.same)).collect()
            }
            ScheduleOp::CmpI { predicate, .. } => {
                let pairs = of(0).into_iter().zip(of(1));
                pairs.map(|(a, b)| Along { same: same_side(*predicate, a, b), ..Along::NOTHING }).collect()
            }
            _ if data.row().has(Trait::Elementwise) => {
                let tiles = data.operands.iter().filter(|&&value| self.rank(value) == self.rank(result));
                let mut axes: Axes = smallvec![Along { starts: 1, ..constant }; self.rank(result)];
                for &value in tiles {
                    for (along, other) in axes.iter_mut().zip(self.get(value)) {
                        along.same = along.same.min(other.same);
                    }
                }
                axes
            }
            _ => return None,
        })
    }

    /// Axes of extent 1 come and go.
    fn reshaped(&self, source: Value, result: Value) -> Option<Axes> {
        let (from, to) = (self.func.ty(source).as_tile()?, self.func.ty(result).as_tile()?);
        let (old, starts) = (self.get(source), self.divisor(result));
        let mut kept = (0..from.shape.len()).filter(|&axis| from.shape[axis] != 1);
        let mut axes = Axes::new();
        for &extent in &to.shape {
            axes.push(match extent {
                1 => Along { counts: 1, same: ALL, starts },
                _ => {
                    let axis = kept.next().filter(|&axis| from.shape[axis] == extent)?;
                    old[axis]
                }
            });
        }
        kept.next().is_none().then_some(axes)
    }
}

/// The blocks within which a comparison of two tiles has one outcome.
fn same_side(predicate: Predicate, a: Along, b: Along) -> u64 {
    let constant = a.same.min(b.same);
    // All of a block that starts at a multiple of its length lies on one side of a multiple of that.
    let (counting, limit) = match predicate {
        Predicate::Lt | Predicate::Ge => (a, b),
        Predicate::Gt | Predicate::Le => (b, a),
        Predicate::Eq | Predicate::Ne => return constant,
    };
    let blocks = counting.counts.min(counting.starts).min(limit.same).min(limit.starts_of(1, 1));
    constant.max(blocks)
}
