//! `specialise-abi`: sizes and strides that the ABI states are constants. The launcher checks them against the arrays that it is
//! given, and passes them all the same.

use tessera_ir::{Changed, Const, Extent, Func, ParamKind, Pass, PassCx, ScheduleOp, Value, bug};

use tessera_analysis::uses::Uses;

/// ABI specialisation.
pub(super) const PASS: Pass =
    Pass { name: "specialise-abi", doc: "Replaces sizes and strides that the ABI states by constants.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let uses = Uses::of(func);
    let mut stated: Vec<(Value, i64)> = Vec::new();
    for (position, param) in func.abi.params.iter().enumerate() {
        let ParamKind::Array { shape, strides, .. } = &param.kind else { continue };
        let first = func.abi.first_argument(position) + 1;
        for (&arg, extent) in func.args()[first..].iter().zip(shape.iter().chain(strides)) {
            if let (Extent::Static(value), true) = (extent, uses.count(arg) > 0) {
                stated.push((arg, *value));
            }
        }
    }
    let mut constants = Vec::with_capacity(stated.len());
    let mut replaced: Vec<(Value, Value)> = Vec::with_capacity(stated.len());
    for (arg, value) in stated {
        let ty = func.ty(arg).clone();
        let dtype = ty.num().unwrap_or_else(|| bug!("a size that is `{ty}`"));
        let kind = ScheduleOp::Constant { value: Const::int(dtype, value) };
        let op = func.make_op(kind.into(), &[], [ty], [], func.span);
        replaced.push((arg, func.ops[op].result()));
        constants.push(op);
    }
    let changed = !constants.is_empty();
    func.replace_uses(|value| replaced.iter().find(|(from, _)| *from == value).map_or(value, |&(_, to)| to));
    func.blocks[func.body].ops.splice(0..0, constants);
    Changed(changed)
}
