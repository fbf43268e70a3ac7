//! Which array argument a pointer or a view is of.
//!
//! ```text
//! %v = make_tensor_view %x, [%n, %m], [%s, %t]      the argument `x`, where sizes and strides are those that came with it
//! ```

use tessera_ir::{Func, OpData, OpKind, ParamKind, ScheduleOp, Type, Value, bug};

/// The position among the kernel's parameters of the array that a view of tiles is of, with that array's own sizes and strides;
/// `None` for views that the kernel has put together itself.
pub fn own_array(func: &Func, view: Value) -> Option<usize> {
    let (tensor, made) = tensor_of(func, view)?;
    let position = array_at(func, made.one(0))?;
    let first = func.abi.first_argument(position);
    let own = func.args().get(first..first + func.abi.params[position].kind.argument_count())?;
    let foreign = |&value: &Value| !own.contains(&behind_assumptions(func, value));
    if made.group(1).iter().chain(made.group(2)).any(foreign) {
        return None;
    }
    match (&func.abi.params[position].kind, func.ty(tensor)) {
        (ParamKind::Array { shape, .. }, Type::TensorView(ty)) => (*shape == ty.shape).then_some(position),
        (ParamKind::Array { .. }, ty) => bug!("an array's view of type `{ty}`"),
        (_, _) => Some(position),
    }
}

/// The position among the kernel's parameters of the array where a view of tiles begins, whatever sizes it gives it.
pub fn viewed_array(func: &Func, view: Value) -> Option<usize> {
    array_at(func, tensor_of(func, view)?.1.one(0))
}

/// What a view has tiles of, and the operation that made it.
fn tensor_of(func: &Func, view: Value) -> Option<(Value, &OpData)> {
    let tensor = func.ops[func.defining_op(view)?].operands.first().copied()?;
    let made = &func.ops[func.defining_op(tensor)?];
    matches!(made.kind, OpKind::Schedule(ScheduleOp::MakeTensorView {})).then_some((tensor, made))
}

/// The position among the kernel's parameters of the array that begins at a pointer.
pub fn array_at(func: &Func, pointer: Value) -> Option<usize> {
    let base = behind_assumptions(func, pointer);
    let first = func.args().iter().position(|&arg| arg == base)?;
    func.abi.parameter_of(first).filter(|&position| func.abi.first_argument(position) == first)
}

/// The value that assumptions were made about.
fn behind_assumptions(func: &Func, mut value: Value) -> Value {
    while let Some(op) = func.defining_op(value)
        && matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Assume { .. }))
    {
        value = func.ops[op].one(0);
    }
    value
}
