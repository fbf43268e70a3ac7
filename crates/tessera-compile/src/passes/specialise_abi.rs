//! `specialise-abi`: sizes and strides that the ABI states are constants, and those of an array that has another one's sizes and strides are that one's.
//! The launcher checks them against the arrays that it is given, and passes them all the same.

use tessera_ir::{Changed, Const, Extent, Func, ParamKind, Pass, PassCx, ScheduleOp, Stated, Value, bug};

use tessera_analysis::uses::Uses;

/// ABI specialisation.
pub(super) const PASS: Pass = Pass {
    name: "specialise-abi",
    doc: "Replaces sizes and strides that the ABI states by constants, or by those of an array that it says is alike.",
    run,
};

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let uses = Uses::of(func);
    let alike = alike(func);
    let mut stated: Vec<(Value, i64)> = Vec::new();
    for (position, param) in func.abi.params.iter().enumerate() {
        let ParamKind::Array { shape, strides, .. } = &param.kind else { continue };
        let first = func.abi.first_argument(position) + 1;
        for (&arg, extent) in func.args()[first..].iter().zip(shape.iter().chain(strides)) {
            if let Extent::Static(value) = extent {
                let same = alike.iter().filter(|(_, other)| *other == arg).map(|&(own, _)| own);
                stated.extend(std::iter::once(arg).chain(same).filter(|&arg| uses.count(arg) > 0).map(|arg| (arg, *value)));
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
    for (argument, other) in alike {
        if uses.count(argument) > 0 && replaced.iter().all(|(from, _)| *from != argument) {
            replaced.push((argument, other));
        }
    }
    let changed = !replaced.is_empty();
    func.replace_uses(|value| replaced.iter().find(|(from, _)| *from == value).map_or(value, |&(_, to)| to));
    func.blocks[func.body].ops.splice(0..0, constants);
    Changed(changed)
}

/// Sizes and strides of arrays that others before them have, with those.
fn alike(func: &Func) -> Vec<(Value, Value)> {
    let mut pairs = Vec::new();
    for stated in &func.abi.stated {
        let Stated::Alike { array, other } = stated else { continue };
        let place =
            |name: &str| func.abi.position(name).unwrap_or_else(|| bug!("`{stated}` of a parameter that there is none of"));
        let [own, other] = [place(array), place(other)];
        let [first, earlier] = [own, other].map(|position| func.abi.first_argument(position) + 1);
        let count = func.abi.params[own].kind.argument_count() - 1;
        let args = func.args();
        pairs.extend(args[first..first + count].iter().copied().zip(args[earlier..earlier + count].iter().copied()));
    }
    pairs
}
