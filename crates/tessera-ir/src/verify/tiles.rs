//! Constants, operations on shapes, matrix products, reductions and scans, and the program's place in its grid.

use tessera_types::DType;

use crate::attrs::Assumption;
use crate::constant::Const;
use crate::fragment::WORD;
use crate::schedule::ScheduleOp;
use crate::types::{Elem, Shape, TileType, Type};
use crate::verify::elementwise::{computes, elem, same_shape};
use crate::verify::{Rule, Site, Wrong, ensure, types};

pub(super) fn check(site: &Site<'_>, kind: &ScheduleOp) -> Rule {
    match kind {
        ScheduleOp::Constant { value } => {
            let tile = site.result_tile(0)?;
            let elem = Elem::Num(value.dtype);
            ensure!(tile.elem == elem, "ir-result-type", "a constant of `{elem}` cannot be a `{tile}`");
            types::constant(value, tile.len())
        }
        ScheduleOp::Iota {} => {
            let tile = site.result_tile(0)?;
            let counts = tile.elem.num().is_some_and(|dtype| dtype.is_integer() && dtype.bits() >= 8);
            ensure!(tile.shape.len() == 1 && counts, "ir-result-type", "the result must be a rank-1 tile of integers");
            Ok(())
        }
        ScheduleOp::Broadcast {} => broadcast(site),
        ScheduleOp::Reshape {} => {
            let (source, result) = (site.tile(0)?, site.result_tile(0)?);
            let right = source.elem == result.elem && source.len() == result.len();
            ensure!(right, "ir-shape", "`{source}` cannot become `{result}`: element types and counts must agree");
            Ok(())
        }
        ScheduleOp::Permute { permutation } => permute(site, permutation),
        ScheduleOp::Cat { dim } => cat(site, *dim as usize),
        ScheduleOp::Extract {} => {
            indices(site, 1)?;
            subtile(site, site.result_tile(0)?, site.tile(0)?, 1)
        }
        ScheduleOp::Insert {} => {
            indices(site, 2)?;
            subtile(site, site.tile(0)?, site.tile(1)?, 2)?;
            site.result_is(0, site.operand(1))
        }
        ScheduleOp::Select {} => {
            let (condition, value) = (site.operand(0), site.operand(1));
            ensure!(
                elem(condition) == Some(Elem::Num(DType::B1)),
                "ir-element-type",
                "the condition is `{condition}`, not truth values"
            );
            ensure!(same_shape(condition, value), "ir-shape", "the condition `{condition}` and `{value}` differ in shape");
            ensure!(value == site.operand(2), "ir-operand-type", "chooses between `{value}` and `{}`", site.operand(2));
            site.result_is(0, value)
        }
        ScheduleOp::Assume { predicate } => assume(site, *predicate),
        ScheduleOp::FPowI {} => {
            let (base, exponent) = (site.operand(0), site.operand(1));
            let float = matches!(elem(base), Some(Elem::Num(dtype)) if dtype.is_float() && computes(dtype));
            let int = matches!(elem(exponent), Some(Elem::Num(dtype)) if dtype.is_integer() && computes(dtype));
            ensure!(float && int, "ir-element-type", "needs a float base and an integer exponent, not `{base}` and `{exponent}`");
            ensure!(same_shape(base, exponent), "ir-shape", "`{base}` and `{exponent}` differ in shape");
            site.result_is(0, base)
        }
        ScheduleOp::Pack {} => bytes(site.tile(0)?, site.result_tile(0)?),
        ScheduleOp::Unpack {} => bytes(site.result_tile(0)?, site.tile(0)?),
        ScheduleOp::MmaF { .. } => {
            let [lhs, rhs, acc] = product(site)?;
            ensure!(
                accumulates(lhs, rhs, acc),
                "ir-element-type",
                "no matrix product of `{lhs}` and `{rhs}` accumulates in `{acc}`"
            );
            Ok(())
        }
        ScheduleOp::MmaFScaled {} => scaled(site),
        ScheduleOp::MmaFSparse {} => {
            sparse_product(site.tile(0)?, site.tile(1)?, site.tile(2)?, site.tile(3)?)?;
            site.result_is(0, site.operand(2))
        }
        ScheduleOp::MmaI { .. } => {
            let types = product(site)?;
            let right = types == [DType::I8, DType::I8, DType::I32];
            ensure!(right, "ir-element-type", "needs `i8` operands and an `i32` accumulator");
            Ok(())
        }
        ScheduleOp::Reduce { dim, identities, .. } => {
            let shape = combine(site, *dim as usize, identities)?;
            let mut reduced = shape;
            reduced.remove(*dim as usize);
            combined(site, &reduced)
        }
        ScheduleOp::Scan { dim, identities, .. } => {
            let shape = combine(site, *dim as usize, identities)?;
            combined(site, &shape)
        }
        ScheduleOp::GetTileBlockId { .. } | ScheduleOp::GetNumTileBlocks { .. } => site.result_is(0, &Type::scalar(DType::I32)),
        ScheduleOp::GetGlobal { name } => {
            let Some(global) = site.module.globals.iter().find(|global| global.name == *name) else {
                return Err(Wrong { id: "ir-global", message: format!("there is no global `@{name}`") });
            };
            site.result_is(0, &Type::pointers(Shape::new(), global.value.dtype))
        }
        _ => Ok(()),
    }
}

fn broadcast(site: &Site<'_>) -> Rule {
    let (source, result) = (site.tile(0)?, site.result_tile(0)?);
    let right = source.elem == result.elem
        && source.shape.len() == result.shape.len()
        && source.shape.iter().zip(&result.shape).all(|(&from, &to)| from == to || from == 1);
    ensure!(right, "ir-shape", "`{source}` cannot become `{result}`: the rank stays, and only extents of 1 grow");
    Ok(())
}

fn permute(site: &Site<'_>, permutation: &Shape) -> Rule {
    let (source, result) = (site.tile(0)?, site.result_tile(0)?);
    let mut sorted: Vec<u32> = permutation.to_vec();
    sorted.sort_unstable();
    let permutes = sorted.iter().enumerate().all(|(i, &axis)| i == axis as usize) && sorted.len() == source.shape.len();
    ensure!(permutes, "ir-attribute", "`permutation` does not name each axis of `{source}` once");
    let wanted: Shape = permutation.iter().map(|&axis| source.shape[axis as usize]).collect();
    site.result_tile_is(0, &TileType { shape: wanted, elem: result.elem })?;
    ensure!(source.elem == result.elem, "ir-element-type", "`{source}` cannot become `{result}`");
    Ok(())
}

fn cat(site: &Site<'_>, dim: usize) -> Rule {
    let (lhs, rhs) = (site.tile(0)?, site.tile(1)?);
    ensure!(dim < lhs.shape.len(), "ir-attribute", "`{lhs}` has no axis {dim}");
    let right = lhs.elem == rhs.elem
        && lhs.shape.len() == rhs.shape.len()
        && (0..lhs.shape.len()).all(|axis| axis == dim || lhs.shape[axis] == rhs.shape[axis]);
    ensure!(right, "ir-shape", "`{lhs}` and `{rhs}` can't be joined along axis {dim}");
    let mut wanted = lhs.clone();
    wanted.shape[dim] = lhs.shape[dim].saturating_add(rhs.shape[dim]);
    site.result_tile_is(0, &wanted)
}

/// The values of a declared operand are scalar integers.
pub(super) fn indices(site: &Site<'_>, position: usize) -> Rule {
    for &value in site.op.group(position) {
        let ty = site.ty(value);
        let counts = ty.is_scalar() && ty.num().is_some_and(|dtype| dtype.is_integer() && dtype.bits() >= 8);
        ensure!(counts, "ir-operand-type", "an index is `{ty}`, but must be a scalar integer");
    }
    Ok(())
}

fn subtile(site: &Site<'_>, part: &TileType, whole: &TileType, position: usize) -> Rule {
    let divides = part.elem == whole.elem
        && part.shape.len() == whole.shape.len()
        && part.shape.iter().zip(&whole.shape).all(|(part, whole)| whole % part == 0);
    ensure!(divides, "ir-shape", "the extents of `{part}` do not divide those of `{whole}`");
    let (count, rank) = (site.op.group(position).len(), whole.shape.len());
    ensure!(count == rank, "ir-shape", "{count} indices are given for {rank} axes");
    Ok(())
}

fn assume(site: &Site<'_>, predicate: Assumption) -> Rule {
    let ty = site.operand(0);
    let tile = site.tile(0)?;
    let integer = tile.elem.num().is_some_and(|dtype| dtype.is_integer());
    match predicate {
        Assumption::DivisibleBy(divisor) => {
            ensure!(divisor > 0, "ir-attribute", "nothing is divisible by 0");
            ensure!(integer || matches!(tile.elem, Elem::Ptr(_)), "ir-element-type", "needs integers or pointers, not `{ty}`");
        }
        Assumption::Bounded { least, greatest } => {
            ensure!(integer, "ir-element-type", "needs integers, not `{ty}`");
            let empty = matches!((least, greatest), (Some(least), Some(greatest)) if least > greatest);
            ensure!(!empty, "ir-attribute", "no number lies within these bounds");
        }
    }
    site.result_is(0, ty)
}

fn bytes(elements: &TileType, bytes: &TileType) -> Rule {
    let Some(dtype) = elements.elem.num() else {
        return Err(Wrong { id: "ir-element-type", message: format!("`{elements}` has no bytes") });
    };
    let bits = elements.len() as u64 * u64::from(dtype.bits());
    let right = bytes.elem == Elem::Num(DType::I8) && bytes.shape.len() == 1 && bits == 8 * bytes.len() as u64;
    ensure!(right, "ir-shape", "the bytes of `{elements}` are not a `{bytes}`");
    Ok(())
}

/// Floats that a matrix product takes and gives.
pub(super) fn accumulates(lhs: DType, rhs: DType, acc: DType) -> bool {
    let allowed: &[DType] = match lhs {
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 => &[DType::F16, DType::F32],
        DType::BF16 | DType::F32 | DType::TF32 => &[DType::F32],
        DType::F64 => &[DType::F64],
        _ => &[],
    };
    lhs == rhs && allowed.contains(&acc)
}

/// Checks shapes of `lhs x rhs + acc` and yields the three element types.
fn product(site: &Site<'_>) -> Result<[DType; 3], Wrong> {
    let types = product_shapes(site.tile(0)?, site.tile(1)?, site.tile(2)?)?;
    site.result_is(0, site.operand(2))?;
    Ok(types)
}

/// The same for operands of any kind.
pub(super) fn product_shapes(lhs: &TileType, rhs: &TileType, acc: &TileType) -> Result<[DType; 3], Wrong> {
    let rank = acc.shape.len();
    let right = (rank == 2 || rank == 3)
        && lhs.shape.len() == rank
        && rhs.shape.len() == rank
        && lhs.shape[..rank - 1] == acc.shape[..rank - 1]
        && rhs.shape[..rank - 2] == acc.shape[..rank - 2]
        && rhs.shape[rank - 1] == acc.shape[rank - 1]
        && lhs.shape[rank - 1] == rhs.shape[rank - 2];
    ensure!(right, "ir-shape", "`{lhs}`, `{rhs}` and `{acc}` do not form a product (M x K, K x N, M x N, one batch axis before)");
    match (lhs.elem, rhs.elem, acc.elem) {
        (Elem::Num(lhs), Elem::Num(rhs), Elem::Num(acc)) => Ok([lhs, rhs, acc]),
        _ => Err(Wrong { id: "ir-element-type", message: "pointers can't be multiplied".to_string() }),
    }
}

/// Checks a product whose left factor is stored by half; yields its element types.
pub(super) fn sparse_product(lhs: &TileType, rhs: &TileType, acc: &TileType, places: &TileType) -> Result<[DType; 3], Wrong> {
    let right = matches!(
        (&lhs.shape[..], &rhs.shape[..], &acc.shape[..], &places.shape[..]),
        (&[m, half], &[k, n], &[rows, columns], &[lines, words])
            if m == rows && m == lines && n == columns && k == 2 * half && k == WORD * words
    );
    ensure!(
        right,
        "ir-shape",
        "`{lhs}` with places `{places}`, `{rhs}` and `{acc}` do not form a product (M x K/2 with M x K/{WORD}, K x N, M x N)"
    );
    let types = (lhs.elem, rhs.elem, acc.elem, places.elem);
    let (Elem::Num(left), Elem::Num(other), Elem::Num(sum), Elem::Num(word)) = types else {
        return Err(Wrong { id: "ir-element-type", message: "pointers can't be multiplied".to_string() });
    };
    let known = left == other && matches!(left, DType::F16 | DType::BF16) && sum == DType::F32;
    ensure!(known, "ir-element-type", "no product of `{left}` stored by half and `{other}` accumulates in `{sum}`");
    ensure!(word == DType::I32, "ir-element-type", "places are words of `i32`, not of `{word}`");
    Ok([left, other, sum])
}

fn scaled(site: &Site<'_>) -> Rule {
    let [lhs, rhs, acc] = product(site)?;
    let operands = lhs == rhs && matches!(lhs, DType::F8E4M3 | DType::F8E5M2 | DType::F4E2M1) && acc == DType::F32;
    ensure!(operands, "ir-element-type", "no scaled matrix product of `{lhs}` and `{rhs}` accumulates in `{acc}`");
    let (scale, other) = (site.tile(3)?, site.tile(4)?);
    let four = lhs == DType::F4E2M1;
    let scales =
        scale.elem == other.elem && (scale.elem == Elem::Num(DType::E8M0) || (four && scale.elem == Elem::Num(DType::F8E4M3)));
    ensure!(scales, "ir-element-type", "`{lhs}` has no scales of type `{scale}` and `{other}`");
    let (lhs, rhs) = (site.tile(0)?, site.tile(1)?);
    let rank = lhs.shape.len();
    let k = lhs.shape[rank - 1];
    let group = |scale: &TileType, axis: usize, operand: &TileType| {
        let shape = scale.shape.len() == rank && (0..rank).all(|i| i == axis || scale.shape[i] == operand.shape[i]);
        (shape && k % scale.shape[axis] == 0).then(|| k / scale.shape[axis])
    };
    let groups = (group(scale, rank - 1, lhs), group(other, rank - 2, rhs));
    let right = matches!(groups, (Some(a), Some(b)) if a == b && (a == 32 || (a == 16 && four)));
    ensure!(right, "ir-shape", "scales `{scale}` and `{other}` do not cover groups of 32 (or 16, for `f4e2m1`) along K");
    Ok(())
}

/// Checks the operands, identities and region of a reduction or scan; yields the operands' shape.
fn combine(site: &Site<'_>, dim: usize, identities: &[Const]) -> Result<Shape, Wrong> {
    let operands = &site.op.operands;
    ensure!(!operands.is_empty(), "ir-structure", "needs an operand");
    let mut shape: Option<&Shape> = None;
    let mut region: Vec<Type> = Vec::new();
    ensure!(identities.len() == operands.len(), "ir-attribute", "one identity an operand is needed");
    for (&operand, identity) in operands.iter().zip(identities) {
        let ty = site.ty(operand);
        let (Some(tile), Some(dtype)) = (ty.as_tile(), ty.num()) else {
            return Err(site.wrong_operand(0, "a tile of numbers", ty));
        };
        ensure!(shape.is_none_or(|shape| *shape == tile.shape), "ir-shape", "operands differ in shape");
        shape = Some(&tile.shape);
        let splat = identity.dtype == dtype && identity.splat_bits().is_some();
        ensure!(splat, "ir-attribute", "the identity `{identity}` is not one `{ty}` element");
        region.extend([Type::scalar(dtype), Type::scalar(dtype)]);
    }
    let shape = shape.cloned().unwrap_or_default();
    ensure!(dim < shape.len(), "ir-attribute", "there is no axis {dim}");
    let args: Vec<&Type> = site.func.blocks[site.op.regions[0]].args.iter().map(|&arg| site.ty(arg)).collect();
    let right = args.len() == region.len() && args.iter().zip(&region).all(|(found, wanted)| *found == wanted);
    ensure!(right, "ir-region", "the region must take the element and the running value of each operand");
    Ok(shape)
}

fn combined(site: &Site<'_>, shape: &Shape) -> Rule {
    let (operands, results) = (&site.op.operands, &site.op.results);
    ensure!(operands.len() == results.len(), "ir-results", "one result an operand is needed");
    for (position, &operand) in operands.iter().enumerate() {
        if let Some(tile) = site.ty(operand).as_tile() {
            site.result_tile_is(position, &TileType { shape: shape.clone(), elem: tile.elem })?;
        }
    }
    Ok(())
}
