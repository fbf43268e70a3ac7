//! Operations that name an instruction which the target does not have, or not for these operands.

use tessera_ir::{Diagnostic, Func, Op, OpKind, TileOp, Type};
use tessera_layout::MmaAtom;
use tessera_types::{Arch, DType};

use super::copies::addressable;
use super::stores::is_made_of_matrices;
use tessera_analysis::sharing::{Sharing, instructions};

/// Everything that the target cannot do as it is written.
pub(super) fn check(func: &Func, arch: Arch) -> Vec<Diagnostic> {
    func.linked_ops().into_iter().filter_map(|op| operation(func, op, arch)).collect()
}

fn operation(func: &Func, op: Op, arch: Arch) -> Option<Diagnostic> {
    let data = &func.ops[op];
    let OpKind::Tile(kind) = &data.kind else { return None };
    let name = data.row().mnemonic;
    let lacks = |what: &str, help: &str| {
        let message = format!("`{name}` needs {what}, which `{arch}` does not have");
        Some(Diagnostic::error("target-unsupported", data.span, message).help(help))
    };
    match kind {
        TileOp::Wgmma { .. } | TileOp::WgmmaPromoted { .. } | TileOp::WgmmaWait { .. } if !arch.has_wgmma() => {
            lacks("products of warpgroups", "write `tile.mma_shared`: the target's own instruction is chosen for it")
        }
        TileOp::Wgmma { .. } => {
            let half = match func.ty(data.one(2)) {
                Type::Distributed(ty) | Type::InFlight(ty) => ty.tile.elem.num() == Some(DType::F16),
                _ => false,
            };
            let message = format!("`{name}` accumulates in `f32` and `i32` here, not in `f16`");
            half.then(|| {
                Diagnostic::error("target-unsupported", data.span, message)
                    .help("convert the sum to `f16` afterwards, with `ftof`")
            })
        }
        TileOp::TmaLoad { .. } | TileOp::TmaStore {} if !arch.has_tma() => {
            let help = match kind {
                TileOp::TmaLoad { .. } => "write `tile.copy_async`, with a group that is waited for",
                _ => "write `tile.load_shared` and `store_view_tko`",
            };
            lacks("the copy engine", help)
        }
        TileOp::TmaLoad { .. } | TileOp::TmaStore {} => {
            let (view, buffer) = if matches!(kind, TileOp::TmaLoad { .. }) { (0, 2) } else { (1, 0) };
            let reason = addressable(func, data.one(view), func.ty(data.one(buffer)).as_shared()?).err()?;
            let help = "write `tile.copy_async`, or change what the reason names";
            Some(Diagnostic::error("target-tma", data.span, format!("`{name}`: {reason}")).help(help))
        }
        TileOp::StoreShared { matrices: true } if !arch.has_stmatrix() => {
            lacks("`stmatrix`", "leave `matrices` out: threads write what they hold by vectors then")
        }
        TileOp::StoreShared { matrices: true } if is_made_of_matrices(func, op) == Some(false) => {
            let message = format!("`{name}`: the tile and the buffer are not made of its matrices, or vectors are as good");
            let help = "leave `matrices` out: threads write what they hold by vectors then";
            Some(Diagnostic::error("target-layout", data.span, message).help(help))
        }
        TileOp::WarpReduce { redux: true, .. } if !arch.has_redux() => {
            lacks("`redux`", "leave `redux` out: lanes exchange their values then")
        }
        TileOp::MmaSync { shape, .. } => {
            let rhs = match func.ty(data.one(1)) {
                Type::Shared(shared) => shared.tile(),
                ty => ty.as_tile()?.clone(),
            };
            let dtype = rhs.elem.num()?;
            let &[m, n, k] = &shape[..] else { return None };
            let own = (u64::from(m), u64::from(n), u64::from(k));
            if !instructions(arch, dtype).any(|known| known == own) {
                let help = match instructions(arch, dtype).next() {
                    Some((m, n, k)) => format!("it has {m} x {n} x {k}"),
                    None => format!(
                        "convert the factors to a format that it multiplies, or write `tile.mma_shared`: there is none for `{dtype}`"
                    ),
                };
                let message = format!("`{name}` of {m} x {n} x {k} for `{dtype}` is no instruction of `{arch}`");
                return Some(Diagnostic::error("target-unsupported", data.span, message).help(help));
            }
            let atom = MmaAtom::sync(own.0, own.1, own.2, u64::from(dtype.bits())).ok()?;
            let fits = func.ty(data.one(2)).layout().is_some_and(|acc| Sharing::by(atom, acc, u64::from(rhs.shape[0])).is_some());
            let message = format!("`{name}`: the accumulator does not lie in registers as the instruction writes it");
            (!fits).then(|| {
                Diagnostic::error("target-layout", data.span, message)
                    .help("write `tile.mma_shared`: tiles are laid out for the instruction then")
            })
        }
        _ => None,
    }
}
