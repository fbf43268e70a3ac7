//! Reductions and scans, with the combinations that have names and with functions of the user.

use tessera_ir::attrs::ReduceOrder;
use tessera_ir::{Const, Diagnostic, ScheduleOp, Shape, Span};
use tessera_types::DType;

use super::arith::{Arith, FloatMode};
use super::operand::{At, broadcast_shape, encode};
use super::{Lowerer, Res, tile_type};
use crate::ast::{BinaryOp, CompareOp};
use crate::bind::{Args, Given};
use crate::builtins::Builtin;
use crate::diagnostics::id;
use crate::number::Num;
use crate::promote::{dtype_name, int_range, is_restricted};
use crate::value::{Tile, Val, show_shape};

/// Reduction or scan of some tiles along one axis.
struct Combination<'a> {
    /// `reduction` or `scan`.
    kind: &'static str,
    tiles: &'a [Tile],
    identities: &'a [Num],
    axis: usize,
    /// The direction of a scan.
    reverse: bool,
    span: Span,
}

impl Lowerer<'_> {
    /// Emits the operation; `body` combines the running values, which stand for earlier elements, with the next elements.
    fn combine(
        &mut self,
        what: &Combination<'_>,
        body: impl FnOnce(&mut Self, &[Tile], &[Tile]) -> Res<Vec<Tile>>,
    ) -> Res<Vec<Tile>> {
        if let Some(outer) = self.combining {
            return Err(Box::new(
                Diagnostic::error(
                    id::REDUCE_BODY,
                    what.span,
                    format!("a {} can't stand in the function of a {outer}", what.kind),
                )
                .help("the function combines two scalars and does nothing else"),
            ));
        }
        let mut identities = Vec::new();
        for (tile, number) in what.tiles.iter().zip(what.identities) {
            let Some(bits) = encode(*number, tile.dtype) else {
                return Err(Box::new(Diagnostic::error(
                    id::CONSTANT_OVERFLOW,
                    what.span,
                    format!("the identity {number} does not fit {}", dtype_name(tile.dtype)),
                )));
            };
            identities.push(Const::splat(tile.dtype.signless(), bits));
        }
        let region = self.func.new_block();
        let scalar = |lowerer: &mut Self, tile: &Tile| Tile {
            value: lowerer.func.add_arg(region, tile_type(tile.dtype, &[]), None),
            dtype: tile.dtype,
            shape: Shape::new(),
            known: None,
        };
        // The region's arguments come in pairs, the element first and the running value second.
        let (mut elements, mut running) = (Vec::new(), Vec::new());
        for tile in what.tiles {
            elements.push(scalar(self, tile));
            running.push(scalar(self, tile));
        }
        self.combining = Some(what.kind);
        let results = self.within(region, |lowerer| -> Res<()> {
            let results = body(lowerer, &running, &elements)?;
            let values: Vec<_> = results.iter().map(|tile| tile.value).collect();
            lowerer.emit(ScheduleOp::Yield {}, &[&values], []);
            Ok(())
        });
        self.combining = None;
        results?;
        let mut shape = what.tiles[0].shape.clone();
        let dim = what.axis as u32;
        let kind = if what.kind == "scan" {
            ScheduleOp::Scan { dim, identities, reverse: what.reverse }
        } else {
            shape.remove(what.axis);
            ScheduleOp::Reduce { dim, identities, order: ReduceOrder::Free }
        };
        let operands: Vec<_> = what.tiles.iter().map(|tile| tile.value).collect();
        let types: Vec<_> = what.tiles.iter().map(|tile| tile_type(tile.dtype, &shape)).collect();
        let op = self.emit_with_regions(kind, &[&operands], types, [region]);
        let results = self.func.ops[op].results.clone();
        Ok(results
            .iter()
            .zip(what.tiles)
            .map(|(&value, tile)| Tile { value, dtype: tile.dtype, shape: shape.clone(), known: None })
            .collect())
    }

    /// The axes to reduce, in ascending order.
    fn reduction_axes(&self, axis: &At, rank: usize) -> Res<Vec<usize>> {
        if matches!(axis.0, Val::None) {
            return Ok((0..rank).collect());
        }
        let mut axes = Vec::new();
        for given in self.require_ints(axis)? {
            let counted = self.axis(given, rank, axis.1)?;
            if axes.contains(&counted) {
                return Err(Box::new(Diagnostic::error(id::AXIS, axis.1, format!("axis {given} is reduced twice"))));
            }
            axes.push(counted);
        }
        axes.sort_unstable();
        Ok(axes)
    }

    fn kept(&mut self, tile: Tile, original: &Shape, axes: &[usize], keepdims: bool) -> Tile {
        if !keepdims {
            return tile;
        }
        let shape = original.iter().enumerate().map(|(i, &extent)| if axes.contains(&i) { 1 } else { extent }).collect();
        self.reshape_to(tile, shape)
    }

    fn reducible(&mut self, at: &At, name: &str) -> Res<Tile> {
        let tile = self.tile(at)?;
        if is_restricted(tile.dtype) {
            return Err(Box::new(
                Diagnostic::error(id::OPERAND_TYPE, at.1, format!("`{name}` does not take {}", dtype_name(tile.dtype)))
                    .label(format!("this is {}", at.0.describe()))
                    .help("cast it first: `.astype(ct.float32)`"),
            ));
        }
        if tile.dtype == DType::B1 { self.convert(tile, DType::I32, None, at.1) } else { Ok(tile) }
    }

    /// `sum`, `prod`, `max`, `min`.
    pub(crate) fn reduce_named(&mut self, builtin: Builtin, args: &Args) -> Res<Val> {
        let name = builtin.row().name;
        let mut tile = self.reducible(&args.at(0), name)?;
        let keepdims = self.require_bool(&args.at(2))?;
        let mode = match builtin {
            Builtin::Sum | Builtin::Prod => FloatMode {
                rounding: self.rounding_mode(&args.at(3))?,
                flush_to_zero: self.require_bool(&args.at(4))?,
                propagate_nan: false,
            },
            _ => FloatMode {
                rounding: None,
                flush_to_zero: self.require_bool(&args.at(3))?,
                propagate_nan: self.require_bool(&args.at(4))?,
            },
        };
        let op = named(builtin);
        let identity = identity(op, tile.dtype, mode.propagate_nan);
        let original = tile.shape.clone();
        let axes = self.reduction_axes(&args.at(1), original.len())?;
        for (done, &axis) in axes.iter().enumerate() {
            tile = self.along(&tile, axis - done, (op, mode), identity, args.call)?;
        }
        Ok(Val::Tile(self.kept(tile, &original, &axes, keepdims)))
    }

    /// `cumsum`, `cumprod`.
    pub(crate) fn scan_named(&mut self, builtin: Builtin, args: &Args) -> Res<Val> {
        let tile = self.reducible(&args.at(0), builtin.row().name)?;
        let axis = self.require_axis(&args.at(1), tile.shape.len())?;
        let reverse = self.require_bool(&args.at(2))?;
        let mode = FloatMode {
            rounding: self.rounding_mode(&args.at(3))?,
            flush_to_zero: self.require_bool(&args.at(4))?,
            propagate_nan: false,
        };
        let op = named(builtin);
        let identity = identity(op, tile.dtype, false);
        let tiles = [tile];
        let what = Combination { kind: "scan", tiles: &tiles, identities: &[identity], axis, reverse, span: args.call };
        let mut results =
            self.combine(&what, |lowerer, a, b| Ok(vec![lowerer.arith_tiles(op, &a[0], &b[0], mode, args.call)?]))?;
        Ok(Val::Tile(results.remove(0)))
    }

    fn select(&mut self, condition: &Tile, yes: &Tile, no: &Tile) -> Tile {
        self.emit_tile(ScheduleOp::Select {}, &[condition.value, yes.value, no.value], yes.dtype, yes.shape.clone())
    }

    /// The reduction of a tile along an axis by an operation.
    fn along(&mut self, tile: &Tile, axis: usize, (op, mode): (Arith, FloatMode), identity: Num, span: Span) -> Res<Tile> {
        let tiles = std::slice::from_ref(tile);
        let what = Combination { kind: "reduction", tiles, identities: &[identity], axis, reverse: false, span };
        let mut results = self.combine(&what, |lowerer, a, b| Ok(vec![lowerer.arith_tiles(op, &a[0], &b[0], mode, span)?]))?;
        Ok(results.remove(0))
    }

    /// `argmax`, `argmin`: the smallest index among equal values; NaN loses unless it propagates.
    pub(crate) fn arg_extreme(&mut self, builtin: Builtin, args: &Args) -> Res<Val> {
        let mut tile = self.reducible(&args.at(0), builtin.row().name)?;
        let keepdims = self.require_bool(&args.at(2))?;
        let propagate = self.require_bool(&args.at(3))?;
        let original = tile.shape.clone();
        let (axis, axes) = if matches!(args.val(1), Val::None) {
            let count = original.iter().product();
            tile = self.reshape_to(tile, Shape::from_slice(&[count]));
            (0, (0..original.len()).collect::<Vec<_>>())
        } else {
            let axis = self.require_axis(&args.at(1), original.len())?;
            (axis, vec![axis])
        };
        let extent = tile.shape[axis];
        let counter = self.emit_tile(ScheduleOp::Iota {}, &[], DType::I32, Shape::from_slice(&[extent]));
        let along: Shape = (0..tile.shape.len()).map(|i| if i == axis { extent } else { 1 }).collect();
        let counter = self.reshape_to(counter, along);
        let shape = tile.shape.clone();
        let indices = self.broadcast(counter, &shape);
        // The extreme alone is found first, in an instruction an element where pairs of both take twenty; then the first place that has it.
        let op = if builtin == Builtin::ArgMax { Arith::Max } else { Arith::Min };
        let mode = FloatMode { rounding: None, flush_to_zero: false, propagate_nan: propagate };
        let extreme = self.along(&tile, axis, (op, mode), identity(op, tile.dtype, propagate), args.call)?;
        let one = shape.iter().enumerate().map(|(i, &extent)| if i == axis { 1 } else { extent }).collect();
        let extreme = self.reshape_to(extreme, one);
        let extreme = self.broadcast(extreme, &shape);
        let mut has_it = self.compare_tiles(CompareOp::Eq, &tile, &extreme);
        let of_nan = tile.dtype.is_float();
        if of_nan && propagate {
            let is_nan = self.compare_tiles(CompareOp::Ne, &tile, &tile);
            has_it = self.bitwise_tiles(BinaryOp::Or, &has_it, &is_nan);
        }
        let last = Num::Int(i128::from(i32::MAX));
        let nowhere = self.constant(last, DType::I32, shape.clone(), args.call)?;
        let places = self.select(&has_it, &indices, &nowhere);
        let exact = FloatMode { rounding: None, flush_to_zero: false, propagate_nan: false };
        let mut index = self.along(&places, axis, (Arith::Min, exact), last, args.call)?;
        if of_nan && !propagate {
            // Nothing is there but NaN, of which the first is taken.
            let nowhere = self.constant(last, DType::I32, index.shape.clone(), args.call)?;
            let zero = self.constant(Num::Int(0), DType::I32, index.shape.clone(), args.call)?;
            let none = self.compare_tiles(CompareOp::Eq, &index, &nowhere);
            index = self.select(&none, &zero, &index);
        }
        Ok(Val::Tile(self.kept(index, &original, &axes, keepdims)))
    }

    /// `reduce` and `scan` with a function.
    pub(crate) fn combine_with_function(&mut self, kind: &'static str, args: &Args) -> Res<Val> {
        let (several, inputs): (bool, Vec<At>) = match args.val(0) {
            Val::Tuple(items) => (true, items.iter().map(|item| (item.clone(), args.span(0))).collect()),
            _ => (false, vec![args.at(0)]),
        };
        let mut identities = Vec::new();
        let identity_items = match args.val(3) {
            Val::Tuple(items) if several => items.to_vec(),
            other => vec![other.clone()],
        };
        for item in &identity_items {
            match item.number() {
                Some(number) => identities.push(number),
                None => {
                    return Err(Box::new(
                        Diagnostic::error(
                            id::NOT_CONSTANT,
                            args.span(3),
                            format!("an identity is a constant number, not {}", item.describe()),
                        )
                        .label("known at run time only"),
                    ));
                }
            }
        }
        if inputs.is_empty() || identities.len() != inputs.len() {
            return Err(Box::new(
                Diagnostic::error(
                    id::CALL,
                    args.span(3),
                    format!(
                        "{} identities are given for {} tile{}",
                        identities.len(),
                        inputs.len(),
                        if inputs.len() == 1 { "" } else { "s" }
                    ),
                )
                .help("give one identity for each tile"),
            ));
        }
        let mut shape = Shape::new();
        let mut tiles = Vec::new();
        for input in &inputs {
            let tile = self.tile(input)?;
            shape = broadcast_shape(&shape, &tile.shape).ok_or_else(|| {
                Box::new(Diagnostic::error(
                    id::BROADCAST,
                    input.1,
                    format!("the tiles don't broadcast: {} and {}", show_shape(&shape), show_shape(&tile.shape)),
                ))
            })?;
            tiles.push(tile);
        }
        let tiles: Vec<Tile> = tiles.into_iter().map(|tile| self.broadcast(tile, &shape)).collect();
        let axis = self.require_axis(&args.at(1), shape.len())?;
        let flag = self.require_bool(&args.at(4))?;
        let function = args.at(2);
        let what =
            Combination { kind, tiles: &tiles, identities: &identities, axis, reverse: flag && kind == "scan", span: args.call };
        let results = self.combine(&what, |lowerer, a, b| {
            let given: Vec<Given> =
                a.iter().chain(b).map(|tile| Given { keyword: None, value: Val::Tile(tile.clone()), span: function.1 }).collect();
            let result = lowerer.call_value(&function.0, given, function.1)?;
            let items: Vec<Val> = match &result {
                Val::Tuple(items) if several => items.to_vec(),
                _ => vec![result.clone()],
            };
            if items.len() != a.len() {
                return Err(Box::new(
                    Diagnostic::error(
                        id::REDUCE_BODY,
                        function.1,
                        format!(
                            "the function of this {kind} returns {} where {} value{} are combined",
                            result.describe(),
                            a.len(),
                            if a.len() == 1 { "" } else { "s" }
                        ),
                    )
                    .help("return a tuple with one value for each tile"),
                ));
            }
            let mut tiles = Vec::new();
            for (item, tile) in items.iter().zip(a) {
                let at = (item.clone(), function.1);
                if !item.is_numeric() || !lowerer.shape_of(&at)?.is_empty() {
                    return Err(Box::new(Diagnostic::error(
                        id::REDUCE_BODY,
                        function.1,
                        format!("the function of this {kind} returns {}, not a scalar", item.describe()),
                    )));
                }
                tiles.push(lowerer.implicit(&at, tile.dtype, "the combined value")?);
            }
            Ok(tiles)
        })?;
        let keepdims = flag && kind == "reduction";
        let results: Vec<Val> = results.into_iter().map(|tile| Val::Tile(self.kept(tile, &shape, &[axis], keepdims))).collect();
        Ok(if several { Val::tuple(results) } else { results[0].clone() })
    }
}

fn named(builtin: Builtin) -> Arith {
    match builtin {
        Builtin::Prod | Builtin::CumProd => Arith::Mul,
        Builtin::Max => Arith::Max,
        Builtin::Min => Arith::Min,
        _ => Arith::Add,
    }
}

/// The neutral element of a combination; that of a maximum or minimum that ignores NaN is NaN.
fn identity(op: Arith, dtype: DType, propagates: bool) -> Num {
    if dtype.is_float() && !propagates && matches!(op, Arith::Max | Arith::Min) {
        return Num::Float(f64::NAN);
    }
    let extreme = |greatest: bool| match (dtype.is_float(), greatest) {
        (true, true) => Num::Float(f64::INFINITY),
        (true, false) => Num::Float(f64::NEG_INFINITY),
        (false, true) => Num::Int(int_range(dtype).1),
        (false, false) => Num::Int(int_range(dtype).0),
    };
    match op {
        Arith::Mul => Num::Int(1),
        Arith::Max => extreme(false),
        Arith::Min => extreme(true),
        _ => Num::Int(0),
    }
}
