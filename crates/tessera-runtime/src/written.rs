//! Which parameters a kernel may write: what a launch takes for itself and what it leaves shared. And which it may read.

use tessera_ir::effect::Space;
use tessera_ir::{Block, Def, Effects, Func, Op, ParamKind, Type, Value};

/// For each parameter of the ABI, whether the kernel may write through it.
pub(crate) fn written_params(func: &Func) -> Vec<bool> {
    let mut written = vec![false; func.abi.params.len()];
    for op in operations(func).filter(|&op| func.ops[op].row().effects == Effects::Write) {
        places(func, op).into_iter().for_each(|place| mark(func, place, &mut written));
    }
    written
}

/// For each parameter of the ABI, whether the kernel may read through it.
pub(crate) fn read_params(func: &Func) -> Vec<bool> {
    let mut read = vec![false; func.abi.params.len()];
    for op in operations(func) {
        let touches = func.touches(&func.ops[op]);
        let reads = touches.iter().filter(|touch| touch.space == Space::Global && touch.effect.reads());
        let reads = reads.filter(|touch| !is_table(func, touch.value));
        reads.for_each(|touch| mark(func, touch.value, &mut read));
    }
    read
}

/// Whether a place is in a list's table: that is what a launch hands over, and not the list's arrays.
fn is_table(func: &Func, mut place: Value) -> bool {
    loop {
        match func.values[place].def {
            Def::Argument(block, position) => {
                let param = func.abi.parameter_of(position as usize).filter(|_| block == func.body);
                return param.is_some_and(|param| matches!(func.abi.params[param].kind, ParamKind::List { .. }));
            }
            Def::Result(op, _) => match places(func, op).as_slice() {
                [from, ..] => place = *from,
                [] => return false,
            },
        }
    }
}

/// Every operation, those of inner blocks too.
fn operations(func: &Func) -> impl Iterator<Item = Op> + '_ {
    let mut blocks: Vec<Block> = vec![func.body];
    std::iter::from_fn(move || {
        let ops = &func.blocks[blocks.pop()?].ops;
        blocks.extend(ops.iter().flat_map(|&op| func.ops[op].regions.iter().copied()));
        Some(ops.iter().copied())
    })
    .flatten()
}

/// Operands that say where memory is.
fn places(func: &Func, op: Op) -> Vec<Value> {
    func.ops[op].operands.iter().copied().filter(|&operand| is_place(func.ty(operand))).collect()
}

fn is_place(ty: &Type) -> bool {
    match ty {
        Type::Tile(tile) => tile.elem.num().is_none(),
        Type::TensorView(_) | Type::TileView(_) | Type::Operand(_) => true,
        Type::Token | Type::Tensor(_) => false,
        // Of levels below block programs.
        Type::Distributed(_) | Type::InFlight(_) | Type::Shared(_) | Type::Registers(_) | Type::Ring(_) | Type::Cursor => false,
    }
}

/// Marks every parameter that a place may come from; all of them where that cannot be told.
fn mark(func: &Func, place: Value, marked: &mut [bool]) {
    let mut seen = vec![place];
    let mut next = 0;
    while let Some(&value) = seen.get(next) {
        next += 1;
        match func.values[value].def {
            Def::Argument(block, position) if block == func.body => {
                let owner = (0..marked.len()).rev().find(|&param| func.abi.first_argument(param) <= position as usize);
                owner.into_iter().for_each(|param| marked[param] = true);
            }
            Def::Argument(..) => return marked.fill(true),
            Def::Result(op, _) => {
                if !func.ops[op].regions.is_empty() {
                    return marked.fill(true);
                }
                // An address made of numbers comes from wherever they come from.
                let places = places(func, op);
                let from = if places.is_empty() { func.ops[op].operands.to_vec() } else { places };
                for value in from {
                    if !seen.contains(&value) {
                        seen.push(value);
                    }
                }
            }
        }
    }
}
