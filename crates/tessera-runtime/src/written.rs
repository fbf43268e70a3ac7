//! Which parameters a kernel may write: what a launch takes for itself and what it leaves shared.

use tessera_ir::{Def, Effects, Func, Op, Type, Value};

/// For each parameter of the ABI, whether the kernel may write through it.
pub(crate) fn written_params(func: &Func) -> Vec<bool> {
    let mut written = vec![false; func.abi.params.len()];
    let mut blocks = vec![func.body];
    while let Some(block) = blocks.pop() {
        for &op in &func.blocks[block].ops {
            blocks.extend(func.ops[op].regions.iter().copied());
            if func.ops[op].row().effects == Effects::Write {
                places(func, op).into_iter().for_each(|place| mark(func, place, &mut written));
            }
        }
    }
    written
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
fn mark(func: &Func, place: Value, written: &mut [bool]) {
    let mut seen = vec![place];
    let mut next = 0;
    while let Some(&value) = seen.get(next) {
        next += 1;
        match func.values[value].def {
            Def::Argument(block, position) if block == func.body => {
                let owner = (0..written.len()).rev().find(|&param| func.abi.first_argument(param) <= position as usize);
                owner.into_iter().for_each(|param| written[param] = true);
            }
            Def::Argument(..) => return written.fill(true),
            Def::Result(op, _) => {
                if !func.ops[op].regions.is_empty() {
                    return written.fill(true);
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
