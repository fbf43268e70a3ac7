//! Ranges and divisibility: what is known about every element of an integer tile, or about every address of a pointer tile.
//!
//! A [`Fact`] says `least <= x <= greatest` and `divisor | x` (a pointer has a divisor only, in bytes). Facts come from constants,
//! the ABI (sizes are not negative, stated sizes, strides and alignments), `assume`, the grid and the bounds of loops, and
//! follow arithmetic as long as it cannot wrap; where it can, only powers of two stay divisors. What a loop carries is
//! unknown.
//!
//! | value | fact |
//! |---|---|
//! | `%i = get_tile_block_id` | `0 <= i < 2^31 - 1` |
//! | `muli %i, 64` | divisible by 64 |
//! | the counter of `for 0, %n, 32` | `0 <= k < n`, divisible by 32 |

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::attrs::{Assumption, Rounding, Signedness};
use tessera_ir::{
    Block, Const, ConstData, Elem, EntityId, Extent, Func, Op, OpKind, ParamKind, ScheduleOp, Stated, TileOp, Type, Value, bug,
};
use tessera_types::{DType, IntFormat};

/// Every driver's allocations start at multiples of so many bytes.
pub const WORKSPACE_ALIGN: u32 = 256;

/// What is known about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// No element is smaller, read as signed.
    pub least: i64,
    /// No element is larger, read as signed.
    pub greatest: i64,
    /// It divides every element, or every address in bytes; 0 when all are zero.
    pub divisor: u64,
}

impl Fact {
    /// Nothing is known but the type.
    fn of_type(ty: &Type) -> Fact {
        match ty.num() {
            Some(DType::B1) => Fact { least: 0, greatest: 1, divisor: 1 },
            Some(dtype) => match IntFormat::of(dtype) {
                Some(format) => Fact { least: format.min() as i64, greatest: format.max() as i64, divisor: 1 },
                None => Fact::NOTHING,
            },
            None => Fact::NOTHING,
        }
    }

    const NOTHING: Fact = Fact { least: i64::MIN, greatest: i64::MAX, divisor: 1 };

    fn exactly(value: i64) -> Fact {
        Fact { least: value, greatest: value, divisor: value.unsigned_abs() }
    }

    fn between(least: i64, greatest: i64) -> Fact {
        Fact { least, greatest, divisor: 1 }
    }

    /// The only value it can be.
    pub fn value(&self) -> Option<i64> {
        (self.least == self.greatest).then_some(self.least)
    }

    /// True when no element is negative.
    pub fn is_non_negative(&self) -> bool {
        self.least >= 0
    }

    /// What holds of a value that is one of two.
    fn either(self, other: Fact) -> Fact {
        Fact {
            least: self.least.min(other.least),
            greatest: self.greatest.max(other.greatest),
            divisor: gcd(self.divisor, other.divisor),
        }
    }
}

/// Facts about every value of a function.
pub struct Facts {
    facts: Vec<Fact>,
    /// Where loops' counters begin, and by how much they go up.
    counters: FxHashMap<Value, (Value, Value)>,
}

impl Facts {
    /// Gathers facts in one pass over the function.
    pub fn of(func: &Func) -> Facts {
        let facts = func.values.ids().map(|value| Fact::of_type(func.ty(value))).collect();
        let mut facts = Facts { facts, counters: FxHashMap::default() };
        facts.arguments(func);
        facts.stated(func);
        facts.block(func, func.body);
        facts
    }

    /// What is known about a value.
    pub fn fact(&self, value: Value) -> Fact {
        self.facts.get(value.index()).copied().unwrap_or(Fact::NOTHING)
    }

    /// Where a loop's counter begins, and by how much it goes up in each round.
    pub fn counter(&self, value: Value) -> Option<(Value, Value)> {
        self.counters.get(&value).copied()
    }

    /// True when every element (or address, in bytes) is a multiple of `divisor`.
    pub fn is_divisible(&self, value: Value, divisor: u64) -> bool {
        divisor != 0 && self.fact(value).divisor.is_multiple_of(divisor)
    }

    fn set(&mut self, value: Value, fact: Fact) {
        self.facts[value.index()] = fact;
    }

    fn arguments(&mut self, func: &Func) {
        let mut args = func.args().iter().copied();
        for param in &func.abi.params {
            let own: SmallVec<[Value; 8]> = args.by_ref().take(param.kind.argument_count()).collect();
            let ParamKind::Array { dtype, shape, strides, align, lines, .. } = &param.kind else { continue };
            let Some((&pointer, sizes)) = own.split_first() else { bug!("an array without a pointer") };
            let known = self.fact(pointer);
            self.set(pointer, Fact { divisor: u64::from(*align), ..known });
            // So many elements fill whole vectors; 64 of 6 bits are three of 16 bytes. One byte promises nothing of them.
            let vector = u64::from(*lines) * 8;
            let elements = if *lines > 1 { vector >> dtype.bits().trailing_zeros().min(vector.trailing_zeros()) } else { 1 };
            for (position, (&value, extent)) in sizes.iter().zip(shape.iter().chain(strides)).enumerate() {
                let known = self.fact(value);
                match extent {
                    Extent::Static(extent) => self.set(value, Fact::exactly(*extent)),
                    Extent::Dynamic if strides.get(position) == Some(&Extent::Static(1)) => {
                        self.set(value, Fact { least: 0, divisor: elements, ..known });
                    }
                    Extent::Dynamic if position < shape.len() => self.set(value, Fact { least: 0, ..known }),
                    Extent::Dynamic => self.set(value, Fact { divisor: elements, ..known }),
                }
            }
        }
    }

    fn stated(&mut self, func: &Func) {
        for stated in &func.abi.stated {
            let Stated::AtMost { param, most } = stated else { continue };
            let Some(position) = func.abi.position(param) else { bug!("`{stated}` of a parameter that there is none of") };
            let first = func.abi.first_argument(position);
            let argument = match &func.abi.params[position].kind {
                ParamKind::Scalar { .. } => first,
                ParamKind::Array { strides, .. } => {
                    let line = strides.iter().position(|stride| *stride == Extent::Static(1));
                    first + 1 + line.unwrap_or_else(|| bug!("`{stated}` of an array without an axis of unit stride"))
                }
                ParamKind::List { .. } | ParamKind::Operand { .. } => bug!("`{stated}` of no number and no array"),
            };
            let value = func.args()[argument];
            let known = self.fact(value);
            self.set(value, Fact { greatest: known.greatest.min(*most), ..known });
        }
    }

    fn block(&mut self, func: &Func, block: Block) {
        for &op in &func.blocks[block].ops {
            self.op(func, op);
        }
    }

    fn op(&mut self, func: &Func, op: Op) {
        let data = &func.ops[op];
        let kind = match &data.kind {
            OpKind::Schedule(kind) => kind,
            OpKind::Tile(kind) => return self.threads(func, op, kind),
            OpKind::Graph(_) => return,
        };
        match kind {
            ScheduleOp::For { unsigned, .. } => {
                let body = data.regions[0];
                self.counters.insert(func.blocks[body].args[0], (data.one(0), data.one(2)));
                let (lower, upper, step) = (self.fact(data.one(0)), self.fact(data.one(1)), self.fact(data.one(2)));
                if !unsigned || (lower.is_non_negative() && upper.is_non_negative()) {
                    let greatest = upper.greatest.saturating_sub(1).max(lower.least);
                    let divisor = gcd(lower.divisor, step.divisor);
                    self.set(func.blocks[body].args[0], Fact { least: lower.least, greatest, divisor });
                }
                self.block(func, body);
                return;
            }
            ScheduleOp::If {} => {
                let mut yields: SmallVec<[Op; 2]> = SmallVec::new();
                for &region in &data.regions {
                    self.block(func, region);
                    yields.extend(func.blocks[region].ops.last().copied());
                }
                yields.retain(|last| matches!(func.ops[*last].kind, OpKind::Schedule(ScheduleOp::Yield {})));
                for (position, &result) in data.results.iter().enumerate() {
                    let facts = yields.iter().map(|&last| self.fact(func.ops[last].operands[position]));
                    if let Some(fact) = facts.reduce(Fact::either) {
                        self.set(result, fact);
                    }
                }
                return;
            }
            ScheduleOp::GetTensorShape {} => {
                let shape: &[Extent] = match func.ty(data.one(0)) {
                    Type::TensorView(view) => &view.shape,
                    _ => bug!("the sizes of what is no array"),
                };
                for (position, &result) in data.results.iter().enumerate() {
                    let known = self.fact(result);
                    let fact = match shape.get(position) {
                        Some(Extent::Static(extent)) => Fact::exactly(*extent),
                        Some(Extent::Dynamic) | None => Fact { least: 0, ..known },
                    };
                    self.set(result, fact);
                }
                return;
            }
            ScheduleOp::GetIndexSpaceShape {} => {
                for &result in &data.results {
                    let known = self.fact(result);
                    self.set(result, Fact { least: 0, ..known });
                }
                return;
            }
            _ => {}
        }
        for &region in &data.regions {
            self.block(func, region);
        }
        if let [result] = data.results[..]
            && let Some(fact) = self.result(func, op, kind)
        {
            self.set(result, fact);
        }
    }

    /// Numbers of threads, and what roles do.
    fn threads(&mut self, func: &Func, op: Op, kind: &TileOp) {
        let data = &func.ops[op];
        for &region in &data.regions {
            self.block(func, region);
        }
        let threads = i64::from(func.hints.threads().max(1));
        let fact = match kind {
            TileOp::ThreadId {} => Fact::between(0, threads - 1),
            TileOp::LaneId {} => Fact::between(0, threads.min(32) - 1),
            TileOp::WarpId {} => Fact::between(0, (threads - 1) / 32),
            TileOp::Worker {} => Fact::between(0, i64::from(i32::MAX) - 1),
            TileOp::ClusterRank {} => place_among(func.hints.split),
            TileOp::ClusterNumber {} => place_among(func.hints.among),
            TileOp::Workers {} => Fact::between(1, i64::from(i32::MAX)),
            TileOp::Workspace { .. } => Fact { divisor: u64::from(WORKSPACE_ALIGN), ..self.fact(data.result()) },
            _ => return,
        };
        self.set(data.result(), fact);
    }

    fn result(&self, func: &Func, op: Op, kind: &ScheduleOp) -> Option<Fact> {
        let data = &func.ops[op];
        let ty = func.ty(data.result());
        let of = |position: usize| self.fact(data.operands[position]);
        let int = || ty.num().and_then(IntFormat::of);
        match kind {
            ScheduleOp::Constant { value } => constant(value),
            ScheduleOp::Iota {} => ty.as_tile().map(|tile| Fact::between(0, tile.len() as i64 - 1)),
            ScheduleOp::GetTileBlockId { .. } => Some(Fact::between(0, i64::from(i32::MAX) - 1)),
            ScheduleOp::GetNumTileBlocks { .. } => Some(Fact::between(1, i64::from(i32::MAX))),
            ScheduleOp::Broadcast {} | ScheduleOp::Reshape {} | ScheduleOp::Permute { .. } | ScheduleOp::Extract {} => {
                Some(of(0))
            }
            ScheduleOp::Cat { .. } | ScheduleOp::Insert {} => Some(of(0).either(of(1))),
            ScheduleOp::Select {} => Some(of(1).either(of(2))),
            ScheduleOp::Assume { predicate } => Some(assume(of(0), *predicate)),
            ScheduleOp::Offset {} => {
                let Some(Elem::Ptr(to)) = ty.as_tile().map(|tile| tile.elem) else { return None };
                let bytes = of(1).divisor.checked_mul(to.unpacked_bytes() as u64);
                Some(Fact { divisor: gcd(of(0).divisor, bytes.unwrap_or(1)), ..Fact::NOTHING })
            }
            ScheduleOp::PtrToPtr {} => Some(of(0)),
            ScheduleOp::AddI { .. } => {
                let (a, b) = (of(0), of(1));
                wrapping(int()?, [sum(a.least, b.least), sum(a.greatest, b.greatest)], Some(gcd(a.divisor, b.divisor)))
            }
            ScheduleOp::SubI { .. } => {
                let (a, b) = (of(0), of(1));
                let ends = [i128::from(a.least) - i128::from(b.greatest), i128::from(a.greatest) - i128::from(b.least)];
                wrapping(int()?, ends, Some(gcd(a.divisor, b.divisor)))
            }
            ScheduleOp::MulI { .. } => {
                let (a, b) = (of(0), of(1));
                let ends = [(a.least, b.least), (a.least, b.greatest), (a.greatest, b.least), (a.greatest, b.greatest)]
                    .map(|(a, b)| i128::from(a) * i128::from(b));
                let (least, greatest) = (ends.iter().min()?, ends.iter().max()?);
                wrapping(int()?, [*least, *greatest], a.divisor.checked_mul(b.divisor))
            }
            ScheduleOp::DivI { signedness, rounding } => divide(of(0), of(1), *signedness, *rounding),
            ScheduleOp::RemI { signedness } => remainder(of(0), of(1), *signedness),
            ScheduleOp::MinI { signedness } if comparable(of(0), of(1), *signedness) => {
                let (a, b) = (of(0), of(1));
                Some(Fact {
                    least: a.least.min(b.least),
                    greatest: a.greatest.min(b.greatest),
                    divisor: gcd(a.divisor, b.divisor),
                })
            }
            ScheduleOp::MaxI { signedness } if comparable(of(0), of(1), *signedness) => {
                let (a, b) = (of(0), of(1));
                Some(Fact {
                    least: a.least.max(b.least),
                    greatest: a.greatest.max(b.greatest),
                    divisor: gcd(a.divisor, b.divisor),
                })
            }
            ScheduleOp::AndI {} if of(0).is_non_negative() || of(1).is_non_negative() => {
                let bounds = [of(0), of(1)].into_iter().filter(Fact::is_non_negative).map(|fact| fact.greatest);
                Some(Fact::between(0, bounds.min()?))
            }
            ScheduleOp::ShlI { .. } => {
                let (a, count) = (of(0), of(1).value().filter(|count| (0..63).contains(count))?);
                let ends = [i128::from(a.least) << count, i128::from(a.greatest) << count];
                wrapping(int()?, ends, a.divisor.checked_mul(1 << count))
            }
            ScheduleOp::ShrI { .. } if of(0).is_non_negative() => {
                let (a, count) = (of(0), of(1).value().filter(|count| (0..63).contains(count))?);
                Some(Fact::between(a.least >> count, a.greatest >> count))
            }
            ScheduleOp::ExtI { signedness } if *signedness == Signedness::Signed || of(0).is_non_negative() => Some(of(0)),
            ScheduleOp::TruncI { .. } => {
                let fact = of(0);
                wrapping(int()?, [i128::from(fact.least), i128::from(fact.greatest)], Some(fact.divisor))
            }
            _ => None,
        }
    }
}

/// The largest power of two that divides a number, at most 2^20.
pub fn power(number: u64) -> u64 {
    1 << number.trailing_zeros().min(20)
}

/// The greatest common divisor.
pub fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn sum(a: i64, b: i64) -> i128 {
    i128::from(a) + i128::from(b)
}

/// The fact of a result that lies between `ends` before it wraps; a divisor that overflowed is unknown.
fn wrapping(format: IntFormat, ends: [i128; 2], divisor: Option<u64>) -> Option<Fact> {
    let divisor = divisor.unwrap_or(1);
    if ends[0] >= format.min() && ends[1] <= format.max() {
        return Some(Fact { least: ends[0] as i64, greatest: ends[1] as i64, divisor });
    }
    let power = if divisor == 0 { 1 } else { 1 << divisor.trailing_zeros().min(format.bits - 1) };
    Some(Fact { least: format.min() as i64, greatest: format.max() as i64, divisor: power })
}

/// Signed and unsigned reading agree.
/// The place among so many blocks or clusters that share the work of one block.
fn place_among(count: Option<u32>) -> Fact {
    let count = count.unwrap_or_else(|| bug!("a place among blocks that share nothing"));
    Fact::between(0, i64::from(count) - 1)
}

fn comparable(a: Fact, b: Fact, signedness: Signedness) -> bool {
    signedness == Signedness::Signed || (a.is_non_negative() && b.is_non_negative())
}

fn divide(a: Fact, b: Fact, signedness: Signedness, rounding: Rounding) -> Option<Fact> {
    let by = b.value().filter(|by| *by > 0)?;
    if signedness == Signedness::Unsigned && !a.is_non_negative() {
        return None;
    }
    let quotient = |value: i64| match rounding {
        Rounding::NegativeInf => Some(value.div_euclid(by)),
        Rounding::PositiveInf => Some(value.div_euclid(by) + i64::from(value.rem_euclid(by) != 0)),
        Rounding::Zero => Some(value / by),
        _ => None,
    };
    let exact = a.divisor.is_multiple_of(by as u64);
    let divisor = if exact { a.divisor / by as u64 } else { 1 };
    Some(Fact { least: quotient(a.least)?, greatest: quotient(a.greatest)?, divisor })
}

fn remainder(a: Fact, b: Fact, signedness: Signedness) -> Option<Fact> {
    let by = b.value().filter(|by| *by > 0)?;
    if signedness == Signedness::Unsigned && !a.is_non_negative() {
        return None;
    }
    let least = if a.is_non_negative() { 0 } else { 1 - by };
    Some(Fact { least, greatest: (by - 1).min(a.greatest.max(0)), divisor: gcd(a.divisor, by as u64) })
}

fn assume(fact: Fact, predicate: Assumption) -> Fact {
    match predicate {
        Assumption::DivisibleBy(by) => {
            let lcm = if fact.divisor == 0 { Some(0) } else { (fact.divisor / gcd(fact.divisor, by)).checked_mul(by) };
            Fact { divisor: lcm.unwrap_or(by), ..fact }
        }
        Assumption::Bounded { least, greatest } => {
            let (least, greatest) = (least.unwrap_or(i64::MIN).max(fact.least), greatest.unwrap_or(i64::MAX).min(fact.greatest));
            // A promise that contradicts what is known changes nothing.
            if least <= greatest { Fact { least, greatest, ..fact } } else { fact }
        }
    }
}

fn constant(value: &Const) -> Option<Fact> {
    let format = IntFormat::of(value.dtype)?;
    match &value.data {
        ConstData::Splat(bits) => Some(Fact::exactly(format.value(*bits) as i64)),
        ConstData::Dense(items) => items.iter().map(|&bits| Fact::exactly(format.value(bits) as i64)).reduce(Fact::either),
    }
}
