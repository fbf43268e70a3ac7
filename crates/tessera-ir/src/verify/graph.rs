//! Whole operands. An operand's axes stand in memory order; a value's axes are those, with the last two swapped when it is
//! loaded with `transpose`.

use crate::graph::GraphOp;
use crate::types::{Axis, TensorType, Type};
use crate::verify::elementwise::computes;
use crate::verify::mesh;
use crate::verify::{Rule, Site, Wrong, ensure};

pub(super) fn check(site: &Site<'_>, kind: &GraphOp) -> Rule {
    match kind {
        GraphOp::Load { transpose } => {
            let mut wanted = operand(site, 0)?.clone();
            let rank = wanted.axes.len();
            if *transpose {
                ensure!(rank >= 2, "ir-shape", "only operands with two axes and more can be transposed");
                wanted.axes.swap(rank - 1, rank - 2);
            }
            site.result_is(0, &Type::Tensor(Box::new(wanted)))
        }
        GraphOp::Store {} => {
            let (value, operand) = (site.tensor(0)?, operand(site, 1)?);
            ensure!(value == operand, "ir-operand-type", "stores a `tensor{value}` in an `operand{operand}`");
            Ok(())
        }
        GraphOp::Contract {} => contract(site),
        GraphOp::Reduce { axis, .. } => {
            let mut wanted = site.tensor(0)?.clone();
            ensure!((*axis as usize) < wanted.axes.len(), "ir-attribute", "`tensor{wanted}` has no axis {axis}");
            ensure!(computes(wanted.elem), "ir-element-type", "no arithmetic is defined on `tensor{wanted}`");
            wanted.axes[*axis as usize] = Axis::Fixed(1);
            site.result_is(0, &Type::Tensor(Box::new(wanted)))
        }
        GraphOp::Broadcast {} => {
            let Type::Tensor(result) = site.result(0) else {
                return Err(Wrong { id: "ir-result-type", message: format!("the result is a tensor, not `{}`", site.result(0)) });
            };
            let fits = match site.operand(0) {
                Type::Tile(tile) => tile.shape.is_empty() && tile.elem.num() == Some(result.elem),
                Type::Tensor(source) => {
                    source.elem == result.elem
                        && source.axes.len() <= result.axes.len()
                        && source
                            .axes
                            .iter()
                            .rev()
                            .zip(result.axes.iter().rev())
                            .all(|(from, to)| from == to || *from == Axis::Fixed(1))
                }
                _ => false,
            };
            ensure!(fits, "ir-shape", "`{}` cannot become `tensor{result}`", site.operand(0));
            Ok(())
        }
        GraphOp::AllReduce { .. }
        | GraphOp::AllGather { .. }
        | GraphOp::ReduceScatter { .. }
        | GraphOp::AllToAll { .. }
        | GraphOp::Shard { .. } => mesh::exchange(site, kind),
    }
}

fn operand<'m>(site: &Site<'m>, position: usize) -> Result<&'m TensorType, Wrong> {
    match site.operand(position) {
        Type::Operand(operand) => Ok(operand),
        ty => Err(site.wrong_operand(position, "a whole operand", ty)),
    }
}

fn contract(site: &Site<'_>) -> Rule {
    let (lhs, rhs) = (site.tensor(0)?, site.tensor(1)?);
    let rank = lhs.axes.len();
    let fits = rank >= 2
        && rhs.axes.len() == rank
        && lhs.axes[..rank - 2] == rhs.axes[..rank - 2]
        && lhs.axes[rank - 1] == rhs.axes[rank - 2];
    ensure!(fits, "ir-shape", "`tensor{lhs}` and `tensor{rhs}` do not form a product");
    let Type::Tensor(result) = site.result(0) else {
        return Err(Wrong { id: "ir-result-type", message: format!("the result is a tensor, not `{}`", site.result(0)) });
    };
    let mut axes = lhs.axes.clone();
    axes[rank - 1] = rhs.axes[rank - 1].clone();
    ensure!(result.axes == axes, "ir-shape", "the product of `tensor{lhs}` and `tensor{rhs}` is not `tensor{result}`");
    let floats = lhs.elem.is_float() && rhs.elem.is_float() && result.elem.is_float() && computes(result.elem);
    let integers = lhs.elem.bits() == 8
        && lhs.elem.is_integer()
        && rhs.elem == lhs.elem
        && result.elem.bits() == 32
        && result.elem.is_integer();
    ensure!(floats || integers, "ir-element-type", "no product of `{}` and `{}` is `{}`", lhs.elem, rhs.elem, result.elem);
    Ok(())
}
