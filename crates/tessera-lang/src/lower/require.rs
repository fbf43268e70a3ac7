//! Arguments that must be of a certain compile-time kind.

use smallvec::SmallVec;
use tessera_ir::attrs::{MemoryOrder, MemoryScope, Rounding};
use tessera_ir::{Diagnostic, Padding, Shape, Span};
use tessera_types::{DType, FloatFormat};

use super::operand::At;
use super::{Lowerer, Res};
use crate::builtins::enum_member;
use crate::diagnostics::id;
use crate::number::Num;
use crate::promote::dtype_name;
use crate::value::{Val, show_shape};

/// A tile has at most this many elements.
const MAX_ELEMENTS: u64 = 1 << 24;
/// A tile has at most this many axes.
const MAX_RANK: usize = 12;

impl Lowerer<'_> {
    fn wrong(&self, what: &str, (value, span): &At) -> Box<Diagnostic> {
        let run_time = matches!(value, Val::Tile(_)) && !what.contains("tile");
        if run_time {
            Box::new(
                Diagnostic::error(id::NOT_CONSTANT, *span, format!("expected {what}, known when the kernel is compiled"))
                    .label(format!("this is {}, known at run time", value.describe()))
                    .help("use a literal, a `ct.Constant` parameter or arithmetic on them"),
            )
        } else {
            Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, *span, format!("expected {what}, found {}", value.describe()))
                    .label("wrong kind of argument"),
            )
        }
    }

    pub(crate) fn require_dtype(&self, at: &At) -> Res<DType> {
        match &at.0 {
            Val::DType(dtype) => Ok(*dtype),
            _ => Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, at.1, format!("expected a dtype, found {}", at.0.describe()))
                    .label("wrong kind of argument")
                    .help("dtypes are written `ct.float32`, or taken from an array: `x.dtype`"),
            )),
        }
    }

    pub(crate) fn require_int(&self, at: &At) -> Res<i64> {
        match at.0.number() {
            Some(Num::Int(value)) => i64::try_from(value).map_err(|_| {
                Box::new(Diagnostic::error(id::VALUE_RANGE, at.1, format!("{value} is outside the integers of 64 bits")))
            }),
            _ => Err(self.wrong("an integer", at)),
        }
    }

    /// The diagnostic for an index that is no integer known now.
    pub(crate) fn not_an_integer(&self, at: &At) -> Box<Diagnostic> {
        self.wrong("an integer", at)
    }

    pub(crate) fn require_bool(&self, at: &At) -> Res<bool> {
        match at.0.number() {
            Some(Num::Bool(value)) => Ok(value),
            _ => Err(self.wrong("`True` or `False`", at)),
        }
    }

    pub(crate) fn require_str(&self, at: &At) -> Res<std::rc::Rc<str>> {
        match &at.0 {
            Val::Str(text) => Ok(text.clone()),
            _ => Err(self.wrong("a string", at)),
        }
    }

    /// Integers of a tuple; one integer counts as a tuple of one.
    pub(crate) fn require_ints(&self, at: &At) -> Res<Vec<i64>> {
        match &at.0 {
            Val::Tuple(items) | Val::Sequence(items) => {
                items.iter().map(|item| self.require_int(&(item.clone(), at.1))).collect()
            }
            _ => Ok(vec![self.require_int(at)?]),
        }
    }

    /// An axis counted from 0; negative ones count from the end.
    pub(crate) fn require_axis(&self, at: &At, rank: usize) -> Res<usize> {
        let axis = self.require_int(at)?;
        self.axis(axis, rank, at.1)
    }

    pub(crate) fn axis(&self, axis: i64, rank: usize, span: Span) -> Res<usize> {
        let counted = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        match counted.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < rank) {
            Some(axis) => Ok(axis),
            None => Err(Box::new(
                Diagnostic::error(id::AXIS, span, format!("axis {axis} is outside a rank of {rank}")).label("out of range").help(
                    if rank == 0 {
                        "scalars have no axes".to_string()
                    } else {
                        format!("axes are {} to {}", -(rank as i64), rank - 1)
                    },
                ),
            )),
        }
    }

    /// A tile shape: positive extents, powers of two where the style asks for them.
    pub(crate) fn require_shape(&self, at: &At) -> Res<Shape> {
        let extents = self.require_ints(at)?;
        let mut shape = Shape::new();
        for &extent in &extents {
            match u32::try_from(extent) {
                Ok(extent) if extent > 0 => shape.push(extent),
                _ => {
                    return Err(Box::new(
                        Diagnostic::error(id::SHAPE, at.1, format!("a tile can't have the extent {extent}"))
                            .label("in this shape")
                            .help("extents are positive"),
                    ));
                }
            }
        }
        self.check_extents(&shape, at.1)?;
        Ok(shape)
    }

    /// Refuses shapes that a tile of this kernel can't have.
    pub(crate) fn check_extents(&self, shape: &[u32], span: Span) -> Res<()> {
        let count = shape.iter().try_fold(1u64, |count, &extent| count.checked_mul(extent.into()));
        if shape.len() > MAX_RANK || count.is_none_or(|count| count > MAX_ELEMENTS) {
            return Err(Box::new(
                Diagnostic::error(id::SHAPE, span, format!("a tile of shape {} is too large", show_shape(shape)))
                    .label(format!("tiles have at most {MAX_ELEMENTS} elements and {MAX_RANK} axes"))
                    .help("work on smaller tiles in a loop"),
            ));
        }
        match shape.iter().find(|extent| !extent.is_power_of_two()) {
            Some(extent) if self.cutile => Err(Box::new(
                Diagnostic::error(id::POWER_OF_TWO, span, format!("the tile extent {extent} is not a power of two"))
                    .label(format!("the shape is {}", show_shape(shape)))
                    .help(format!(
                        "use {} and let loads pad, or `@tessera.kernel`, which takes any extent",
                        extent.checked_next_power_of_two().unwrap_or(1 << 31)
                    )),
            )),
            _ => Ok(()),
        }
    }

    /// A permutation of axes, or `'C'` and `'F'` for the two usual ones.
    pub(crate) fn require_order(&self, at: &At, rank: usize) -> Res<SmallVec<[u32; 4]>> {
        if let Val::Str(text) = &at.0 {
            return match &**text {
                "C" => Ok((0..rank as u32).collect()),
                "F" => Ok((0..rank as u32).rev().collect()),
                other => Err(Box::new(
                    Diagnostic::error(id::VALUE_RANGE, at.1, format!("there is no order {other:?}"))
                        .help("write 'C', 'F' or a tuple of axes"),
                )),
            };
        }
        let axes = self.require_ints(at)?;
        self.permutation(&axes, rank, at.1)
    }

    /// Axes that name each of `rank` axes once.
    pub(crate) fn permutation(&self, axes: &[i64], rank: usize, span: Span) -> Res<SmallVec<[u32; 4]>> {
        if axes.len() != rank {
            return Err(Box::new(
                Diagnostic::error(id::RANK, span, format!("{} axes are given for a rank of {rank}", axes.len()))
                    .help("name every axis once"),
            ));
        }
        let mut order = SmallVec::new();
        for &axis in axes {
            let axis = self.axis(axis, rank, span)? as u32;
            if order.contains(&axis) {
                return Err(Box::new(
                    Diagnostic::error(id::AXIS, span, format!("axis {axis} is named twice")).help("name every axis once"),
                ));
            }
            order.push(axis);
        }
        Ok(order)
    }

    fn require_enum(&self, at: &At, kind: &'static str) -> Res<&'static str> {
        match at.0 {
            Val::Enum(found, member) if found == kind => Ok(member),
            Val::Str(ref text) if let Some((_, member)) = enum_member(kind, text) => Ok(member),
            _ => Err(Box::new(
                Diagnostic::error(id::ARGUMENT_TYPE, at.1, format!("expected a `{kind}`, found {}", at.0.describe()))
                    .help(format!("write `ct.{kind}.` and a member")),
            )),
        }
    }

    /// What elements beside an array of this type are taken for.
    pub(crate) fn padding_mode(&self, at: &At, dtype: DType) -> Res<Padding> {
        let format = FloatFormat::of(dtype);
        let lacks = |code: fn(&FloatFormat) -> Option<u64>| format.is_some_and(|format| code(format).is_none());
        let (padding, missing) = match self.require_enum(at, "PaddingMode")? {
            "ZERO" => (Padding::Zero, None),
            "NEG_ZERO" => (Padding::NegZero, None),
            "NAN" => (Padding::Nan, lacks(FloatFormat::nan_code).then_some("NaN")),
            "POS_INF" => (Padding::PosInf, lacks(FloatFormat::infinity_code).then_some("infinity")),
            "NEG_INF" => (Padding::NegInf, lacks(FloatFormat::infinity_code).then_some("infinity")),
            _ => (Padding::Undetermined, None),
        };
        match missing {
            Some(missing) => Err(Box::new(
                Diagnostic::error(id::VALUE_RANGE, at.1, format!("`{}` has no {missing} to pad with", dtype_name(dtype)))
                    .help("pad with `ct.PaddingMode.ZERO`, cast the tile and mask it with `ct.where`"),
            )),
            None => Ok(padding),
        }
    }

    pub(crate) fn rounding_mode(&self, at: &At) -> Res<Option<Rounding>> {
        if matches!(at.0, Val::None) {
            return Ok(None);
        }
        Ok(Some(match self.require_enum(at, "RoundingMode")? {
            "RZ" => Rounding::Zero,
            "RM" => Rounding::NegativeInf,
            "RP" => Rounding::PositiveInf,
            "RA" => Rounding::NearestAway,
            "FULL" => Rounding::Full,
            "APPROX" => Rounding::Approx,
            "RZI" => Rounding::NearestIntToZero,
            _ => Rounding::NearestEven,
        }))
    }

    /// A memory order and scope out of the orders that an operation has.
    pub(crate) fn memory_order(
        &self,
        order: &At,
        scope: &At,
        allowed: &[MemoryOrder],
    ) -> Res<(MemoryOrder, Option<MemoryScope>)> {
        let word = self.require_enum(order, "MemoryOrder")?;
        let value = match word {
            "RELAXED" => MemoryOrder::Relaxed,
            "ACQUIRE" => MemoryOrder::Acquire,
            "RELEASE" => MemoryOrder::Release,
            "ACQ_REL" => MemoryOrder::AcqRel,
            _ => MemoryOrder::Weak,
        };
        if !allowed.contains(&value) {
            let names: Vec<&str> = allowed.iter().map(|order| order.word()).collect();
            return Err(Box::new(
                Diagnostic::error(id::MEMORY_MODEL, order.1, format!("this operation can't be ordered as `{word}`"))
                    .help(format!("its orders are {}", names.join(", "))),
            ));
        }
        let place = match self.require_enum(scope, "MemoryScope")? {
            "BLOCK" => Some(MemoryScope::Block),
            "DEVICE" => Some(MemoryScope::Device),
            "SYS" => Some(MemoryScope::System),
            _ => None,
        };
        match (value, place) {
            (MemoryOrder::Weak, Some(_)) => Err(Box::new(
                Diagnostic::error(id::MEMORY_MODEL, scope.1, "a weak operation has no scope")
                    .help("give a `memory_order` such as `ct.MemoryOrder.RELAXED`, or leave the scope out"),
            )),
            (MemoryOrder::Weak, None) => Ok((value, None)),
            (_, None) => Err(Box::new(
                Diagnostic::error(id::MEMORY_MODEL, order.1, format!("the order `{word}` needs a scope"))
                    .help("add `memory_scope=ct.MemoryScope.DEVICE`"),
            )),
            (_, Some(_)) => Ok((value, place)),
        }
    }

    /// A latency hint.
    pub(crate) fn latency(&self, at: &At) -> Res<Option<u32>> {
        if matches!(at.0, Val::None) {
            return Ok(None);
        }
        let latency = self.require_int(at)?;
        if !(1..=10).contains(&latency) {
            return Err(Box::new(
                Diagnostic::error(id::VALUE_RANGE, at.1, format!("the latency hint {latency} is outside 1 to 10"))
                    .label("out of range"),
            ));
        }
        Ok(Some(latency as u32))
    }

    pub(crate) fn optional_bool(&self, at: &At) -> Res<Option<bool>> {
        if matches!(at.0, Val::None) { Ok(None) } else { self.require_bool(at).map(Some) }
    }
}
