//! Rows that end far before their tiles do: tiles of so many columns as their arrays have at most.
//!
//! ```text
//! %v = load %x, [%i, 0] : tile<1x8192xbf16>, padded by -inf          %v = load %x, [%i, 0] : tile<1x5120xbf16>
//! %m = reduce max [%v] : tile<1xf32>                    x <= 5120    %m = reduce max [%v] : tile<1xf32>
//! %e = exp (subf %v, broadcast %m)                      ->           %e = exp (subf %v, broadcast %m)
//! %s = reduce add [%e] : tile<1xf32>                                 %s = reduce add [%e] : tile<1xf32>
//! ```
//!
//! Tiles of kernels are powers of two, rows are not: a row of 4097 elements makes threads compute, hold and reduce 8192. What lies behind the end of all
//! arrays is known when a kernel is compiled, up to what is the same in a whole row: it is padding, and what is computed of that ([`Beyond`]). A sum may
//! leave zeros out, a maximum combines the one number that stands there with what it has of the others, and no store writes it.
//!
//! A launch says in which eighth of a tile rows end ([`tessera_ir::Stated`]), so that few variants of a kernel serve all of them.

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::attrs::{Combine, Predicate, Signedness};
use tessera_ir::{Const, Extent, Func, Op, OpKind, Padding, Reason, ScheduleOp, Type, Value, bug};
use tessera_types::{DType, FloatFormat};

use super::roles::is_product;
use super::{lines, strips};
use crate::facts::Facts;
use crate::fold;
use crate::rewrite::{drop_dead, make};
use tessera_analysis::modulo::MODULUS;

/// A tile becomes narrower by such a part of it at least, where that does not have its rows begin at whole vectors.
const EIGHTHS: u64 = 8;

/// What a tile has in the columns behind the ends of all arrays.
#[derive(Clone, Debug, PartialEq)]
enum Beyond {
    /// The same everywhere.
    Number(Const),
    /// The numbers of columns: these from the first such column on.
    Columns,
    /// What the row has in all of its columns; nothing else is known.
    Row,
    /// Anything.
    Unknown,
}

/// Has tiles of rows end where their arrays do at most.
///
/// # Errors
/// Why they do not; what the function is then is of no use.
pub(super) fn narrow(func: &mut Func) -> Result<(), Reason> {
    let own = strips::of_rows(func)?.count;
    let ends = ends(func)?;
    // What rows that begin anywhere leave of a tile is for the vectors that they begin in.
    let mut aligned = func.clone();
    if !ends.is_multiple_of(MODULUS) && ends + MODULUS - 1 <= own {
        cut(&mut aligned, ends)?;
        if lines::align(&mut aligned.clone()).is_ok() {
            *func = aligned;
            return Ok(());
        }
    }
    let whole = ends.next_multiple_of(MODULUS);
    if whole > own - own / EIGHTHS { Err("rows may be as long as their tiles".into()) } else { cut(func, whole) }
}

/// Where the arrays of rows end at most.
fn ends(func: &Func) -> Result<u64, Reason> {
    if func.abi.stated.is_empty() && !has_static_sizes(func) {
        return Err("nothing is known of where rows end".into());
    }
    if let Some(op) = func.linked_ops().into_iter().find(|&op| is_product(func, op)) {
        return Err(Reason::at("a row that is multiplied is not reduced alone", func.ops[op].span));
    }
    let columns = strips::of_rows(func)?;
    let facts = Facts::of(func);
    let mut ends = 1;
    for (_, view, axis) in columns.accesses(func) {
        let Type::TileView(ty) = func.ty(view) else { bug!("tiles of what is no view") };
        let end = match ty.tensor.shape[ty.dim_map[axis] as usize] {
            Extent::Static(size) => size,
            Extent::Dynamic => size_of(func, view, ty.dim_map[axis] as usize).map_or(i64::MAX, |size| facts.fact(size).greatest),
        };
        ends = ends.max(u64::try_from(end).unwrap_or(i64::MAX as u64));
    }
    Ok(ends)
}

/// Leaves of rows so many columns.
fn cut(func: &mut Func, count: u64) -> Result<(), Reason> {
    let mut columns = strips::of_rows(func)?;
    let facts = Facts::of(func);
    let mut beyond = Followed {
        func,
        facts: &facts,
        from: Some(count),
        columns: columns.values(func),
        reductions: &columns.reductions,
        known: FxHashMap::default(),
    };
    let mut left_out = Vec::new();
    for &op in &columns.reductions {
        left_out.push((op, beyond.left_out(op)?));
    }
    columns.pad(func, count, None, &[])?;
    for (op, number) in left_out {
        if let Some(number) = number {
            combine(func, op, number);
        }
    }
    drop_dead(func);
    Ok(())
}

/// Reductions that what arrays are padded with, on both sides of a row, and what is computed of that, does not change.
pub(super) fn neutral(func: &Func, columns: &strips::Columns) -> Vec<Op> {
    let facts = Facts::of(func);
    let reductions = &columns.reductions;
    let own = columns.values(func);
    let mut beyond = Followed { func, facts: &facts, from: None, columns: own, reductions, known: FxHashMap::default() };
    let changes_nothing = |op: &Op| match beyond.left_out(*op) {
        Ok(None) => true,
        Ok(Some(number)) => identity(func, *op) == Some(&number) || is_combined(func, *op, &number),
        Err(_) => false,
    };
    reductions.iter().copied().filter(changes_nothing).collect()
}

/// Whether everything that a reduction's result is for combines it with a number first, as [`combine`] has it.
fn is_combined(func: &Func, op: Op, number: &Const) -> bool {
    let (result, own) = (func.ops[op].result(), combined(func, op));
    let combines = |user: &Op| {
        let data = &func.ops[*user];
        let other = data.operands.iter().find(|&&operand| operand != result);
        let kind = data.kind.schedule().and_then(combination);
        kind.is_some() && kind == own && other.and_then(|&other| func.constant(other)) == Some(number)
    };
    func.linked_ops().iter().filter(|user| func.ops[**user].operands.contains(&result)).all(combines)
}

/// What a reduction of one number an element begins with.
fn identity(func: &Func, op: Op) -> Option<&Const> {
    match &func.ops[op].kind {
        OpKind::Schedule(ScheduleOp::Reduce { identities, .. }) => identities.first(),
        _ => None,
    }
}

/// Combines a reduction's result with a number that it left out.
fn combine(func: &mut Func, op: Op, number: Const) {
    let (block, data) = (func.block_of(op), func.ops[op].clone());
    let (result, ty) = (data.result(), func.ty(data.result()).clone());
    let kind = func.ops[func.blocks[data.regions[0]].ops[0]].kind.clone();
    let mut out = Vec::new();
    let number = make(func, op, ScheduleOp::Constant { value: number }, &[], ty.clone(), &mut out);
    let both = make(func, op, kind, &[result, number], ty, &mut out);
    let made = out[1];
    func.replace_uses(|value| if value == result { both } else { value });
    func.ops[made].operands[0] = result;
    let place = func.blocks[block].place_of(op) + 1;
    func.blocks[block].ops.splice(place..place, out);
}

fn has_static_sizes(func: &Func) -> bool {
    func.abi.params.iter().any(|param| match &param.kind {
        tessera_ir::ParamKind::Array { shape, .. } => shape.iter().any(|size| matches!(size, Extent::Static(_))),
        _ => false,
    })
}

/// The value that is the size of a view's array along an axis.
fn size_of(func: &Func, view: Value, dim: usize) -> Option<Value> {
    let array = func.defining_op(func.ops[func.defining_op(view)?].one(0))?;
    let OpKind::Schedule(ScheduleOp::MakeTensorView {}) = func.ops[array].kind else { return None };
    let Type::TensorView(ty) = func.ty(func.ops[array].result()) else { bug!("an array that is no view") };
    let place = ty.shape[..dim].iter().filter(|size| **size == Extent::Dynamic).count();
    Some(func.ops[array].group(1)[place])
}

/// What lies behind the ends of arrays, by value.
struct Followed<'f> {
    func: &'f Func,
    facts: &'f Facts,
    /// The first column that no array has; nothing where it is also asked what lies before a row.
    from: Option<u64>,
    /// What has columns; everything else a row has once for all of them.
    columns: FxHashSet<Value>,
    /// What reduces over columns.
    reductions: &'f [Op],
    known: FxHashMap<Value, Beyond>,
}

impl Followed<'_> {
    /// What a reduction takes from there: nothing that changes it, or one number however often.
    fn left_out(&mut self, op: Op) -> Result<Option<Const>, Reason> {
        let data = &self.func.ops[op];
        let no = || Reason::at("what lies behind the ends of rows is reduced with them", data.span);
        let &[value] = &data.operands[..] else { return Err(no()) };
        let Beyond::Number(number) = self.of(value) else { return Err(no()) };
        match combined(self.func, op) {
            Some(Combine::Sum) if is_zero(&number) => Ok(None),
            Some(Combine::Max | Combine::Min) => Ok(Some(number)),
            Some(Combine::Sum | Combine::Prod) | None => Err(no()),
        }
    }

    fn of(&mut self, value: Value) -> Beyond {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        // Of columns that loops carry nothing is known.
        let found = match self.func.defining_op(value) {
            Some(op) => self.made(op, value),
            None if self.columns.contains(&value) => Beyond::Unknown,
            None => Beyond::Row,
        };
        self.known.insert(value, found.clone());
        found
    }

    fn made(&mut self, op: Op, value: Value) -> Beyond {
        let data = &self.func.ops[op];
        let Some(kind) = data.kind.schedule() else { return Beyond::Unknown };
        let Some(tile) = self.func.ty(value).as_tile() else { return Beyond::Unknown };
        if !self.columns.contains(&value) && !matches!(kind, ScheduleOp::Constant { .. }) {
            return Beyond::Row;
        }
        match kind {
            ScheduleOp::Constant { value } => match value.splat_bits() {
                Some(_) => Beyond::Number(value.clone()),
                None => Beyond::Unknown,
            },
            ScheduleOp::Iota {} => Beyond::Columns,
            ScheduleOp::LoadViewTko { .. } if value == data.results[0] => self.padding(data.one(0), tile.elem.num()),
            ScheduleOp::Broadcast {} | ScheduleOp::Reshape {} => self.of(data.one(0)),
            ScheduleOp::CmpI { predicate, signedness } => self.compared(*predicate, *signedness, data.one(0), data.one(1)),
            ScheduleOp::Select {} => match self.of(data.one(0)) {
                Beyond::Number(chosen) => self.of(data.one(if chosen.splat_bits() == Some(0) { 2 } else { 1 })),
                _ => Beyond::Unknown,
            },
            _ if data.row().has(tessera_ir::Trait::Elementwise)
                || matches!(kind, ScheduleOp::FToF { .. } | ScheduleOp::IToF { .. }) =>
            {
                self.computed(op, kind.clone(), tile.elem.num())
            }
            _ => Beyond::Unknown,
        }
    }

    fn padding(&self, view: Value, elem: Option<DType>) -> Beyond {
        let (Type::TileView(ty), Some(elem)) = (self.func.ty(view), elem) else { return Beyond::Unknown };
        let number = match ty.padding {
            // What the author leaves open may be zero.
            Padding::Zero | Padding::Undetermined => Some(Const::splat(elem, 0)),
            Padding::NegInf => infinity(elem, f64::NEG_INFINITY),
            Padding::PosInf => infinity(elem, f64::INFINITY),
            Padding::NegZero | Padding::Nan => None,
        };
        number.map_or(Beyond::Unknown, Beyond::Number)
    }

    /// A column's number beside one that the row has: it is larger than all that a launch says of that.
    fn compared(&mut self, predicate: Predicate, signedness: Signedness, lhs: Value, rhs: Value) -> Beyond {
        let (predicate, row) = match (self.of(lhs), self.of(rhs)) {
            (Beyond::Columns, Beyond::Row | Beyond::Number(_)) => (predicate, rhs),
            (Beyond::Row | Beyond::Number(_), Beyond::Columns) => (mirrored(predicate), lhs),
            _ => return Beyond::Unknown,
        };
        let Some(from) = self.from else { return Beyond::Unknown };
        let fact = self.facts.fact(self.row_of(row));
        if fact.greatest > from as i64 || signedness == Signedness::Unsigned && fact.least < 0 {
            return Beyond::Unknown;
        }
        match predicate {
            Predicate::Lt => Beyond::Number(Const::bool(false)),
            Predicate::Ge => Beyond::Number(Const::bool(true)),
            // A column may be the one that the row's number is.
            Predicate::Eq | Predicate::Ne | Predicate::Le | Predicate::Gt => Beyond::Unknown,
        }
    }

    /// The scalar that stands in all columns.
    fn row_of(&self, value: Value) -> Value {
        let Some(op) = self.func.defining_op(value) else { return value };
        match self.func.ops[op].kind {
            OpKind::Schedule(ScheduleOp::Broadcast {} | ScheduleOp::Reshape {}) => self.row_of(self.func.ops[op].one(0)),
            _ => value,
        }
    }

    fn computed(&mut self, op: Op, kind: ScheduleOp, elem: Option<DType>) -> Beyond {
        let operands: Vec<Value> = self.func.ops[op].operands.to_vec();
        let found: Vec<Beyond> = operands.iter().map(|&operand| self.of(operand)).collect();
        let numbers: Option<Vec<&Const>> =
            found.iter().map(|found| if let Beyond::Number(number) = found { Some(number) } else { None }).collect();
        if let (Some(numbers), Some(elem)) = (&numbers, elem) {
            let vanishes = matches!(kind, ScheduleOp::Exp { .. } | ScheduleOp::Exp2 { .. }) && is_neg_inf(numbers[0]);
            let number = if vanishes { Some(Const::splat(elem, 0)) } else { fold::elementwise(&kind, numbers, elem) };
            return number.map_or(Beyond::Unknown, Beyond::Number);
        }
        if found.iter().all(|found| *found == Beyond::Row) {
            return Beyond::Row;
        }
        // Minus infinity less a row's largest: that is infinite only where its other columns are no numbers then, too.
        let [source, largest] = match (&kind, &operands[..]) {
            (ScheduleOp::SubF { .. }, &[lhs, rhs]) => [lhs, rhs],
            _ => return Beyond::Unknown,
        };
        match &found[0] {
            Beyond::Number(number) if is_neg_inf(number) && self.is_largest(largest, source) => Beyond::Number(number.clone()),
            _ => Beyond::Unknown,
        }
    }

    /// A row's number is the largest of these columns.
    fn is_largest(&self, value: Value, of: Value) -> bool {
        let Some(op) = self.func.defining_op(value) else { return false };
        let data = &self.func.ops[op];
        match &data.kind {
            OpKind::Schedule(ScheduleOp::Broadcast {} | ScheduleOp::Reshape {}) => self.is_largest(data.one(0), of),
            OpKind::Schedule(ScheduleOp::Reduce { .. }) => {
                self.reductions.contains(&op) && combined(self.func, op) == Some(Combine::Max) && data.one(0) == of
            }
            _ => false,
        }
    }
}

/// What a reduction's region does with two numbers, where that is one operation.
fn combined(func: &Func, op: Op) -> Option<Combine> {
    let region = *func.ops[op].regions.first()?;
    let [first, _] = func.blocks[region].ops[..] else { return None };
    combination(func.ops[first].kind.schedule()?)
}

/// What an operation combines two numbers to.
fn combination(kind: &ScheduleOp) -> Option<Combine> {
    match kind {
        ScheduleOp::AddF { .. } | ScheduleOp::AddI { .. } => Some(Combine::Sum),
        ScheduleOp::MaxF { .. } | ScheduleOp::MaxI { .. } => Some(Combine::Max),
        ScheduleOp::MinF { .. } | ScheduleOp::MinI { .. } => Some(Combine::Min),
        ScheduleOp::MulF { .. } | ScheduleOp::MulI { .. } => Some(Combine::Prod),
        _ => None,
    }
}

fn is_zero(number: &Const) -> bool {
    number.splat_bits() == Some(0)
}

fn is_neg_inf(number: &Const) -> bool {
    infinity(number.dtype, f64::NEG_INFINITY).is_some_and(|infinity| infinity == *number)
}

/// An infinity, of types that have one.
fn infinity(dtype: DType, value: f64) -> Option<Const> {
    let format = FloatFormat::of(dtype)?;
    let bits = format.encode_nearest(value);
    (format.decode(bits) == value).then(|| Const::splat(dtype, bits))
}

fn mirrored(predicate: Predicate) -> Predicate {
    match predicate {
        Predicate::Lt => Predicate::Gt,
        Predicate::Le => Predicate::Ge,
        Predicate::Gt => Predicate::Lt,
        Predicate::Ge => Predicate::Le,
        Predicate::Eq | Predicate::Ne => predicate,
    }
}
