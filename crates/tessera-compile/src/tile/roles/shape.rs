//! Which products the tensor cores of warpgroups do.

use tessera_ir::attrs::Signedness;
use tessera_ir::{Elem, Func, Op, OpKind, Reason, ScheduleOp};
use tessera_types::DType;

/// A product of two tiles, as it stands in block programs.
pub(in crate::tile) fn is_product(func: &Func, op: Op) -> bool {
    let kind = &func.ops[op].kind;
    matches!(
        kind,
        OpKind::Schedule(
            ScheduleOp::MmaF { .. } | ScheduleOp::MmaI { .. } | ScheduleOp::MmaFScaled {} | ScheduleOp::MmaFSparse {}
        )
    )
}

/// The rows of a product that has an instruction for warpgroups.
pub(super) fn fits(func: &Func, product: Op) -> Result<u32, Reason> {
    let (mma, at) = (&func.ops[product], func.ops[product].span);
    if matches!(mma.kind, OpKind::Schedule(ScheduleOp::MmaFScaled { .. })) {
        return Err(Reason::at("products with scaled blocks have no instruction for warpgroups", at));
    }
    let tile = |value| func.ty(value).as_tile().ok_or_else(|| Reason::at("an operand is no tile", at));
    let (lhs, rhs, out) = (tile(mma.one(0))?, tile(mma.one(1))?, tile(mma.result())?);
    let (&[m, n], &[_, k]) = (&out.shape[..], &lhs.shape[..]) else {
        return Err(Reason::at("the product has a batch axis", at));
    };
    let number = |elem: &Elem| elem.num().ok_or_else(|| Reason::at("an operand holds no numbers", at));
    let (left, right) = (number(&lhs.elem)?, number(&rhs.elem)?);
    let fits = matches!(
        (left, number(&out.elem)?),
        (DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 | DType::TF32, DType::F32) | (DType::I8, DType::I32)
    );
    if !fits || left != right {
        return Err(Reason::at(format!("products of `{left}` into `{}` have no instruction for warpgroups", out.elem), at));
    }
    // A PTX instruction has 8 columns at least ("wgmma.mma_async"); those of whole bytes are used from 16 on.
    let columns = if left.bits() == 16 { 8 } else { 16 };
    if !m.is_multiple_of(64) || !n.is_multiple_of(columns) || !(k * left.bits() / 8).is_multiple_of(32) {
        let text = format!(
            "a {m}x{n}x{k} product is not of whole instructions: 64 rows, {columns} columns, 32 bytes of a factor's line"
        );
        return Err(Reason::at(text, at));
    }
    Ok(m)
}

/// Formats whose products the tensor cores of warpgroups add with about 14 bits.
pub(in crate::tile) fn is_coarse(dtype: DType) -> bool {
    matches!(dtype, DType::F8E4M3 | DType::F8E5M2)
}

/// Attributes of a product, in the order of [`tessera_ir::TileOp::MmaShared`].
pub(in crate::tile) fn signs(kind: &OpKind) -> (bool, Signedness, Signedness) {
    match kind {
        OpKind::Schedule(ScheduleOp::MmaF { fast_acc }) => (*fast_acc, Signedness::Signed, Signedness::Signed),
        OpKind::Schedule(ScheduleOp::MmaI { lhs_signedness, rhs_signedness }) => (false, *lhs_signedness, *rhs_signedness),
        _ => (false, Signedness::Signed, Signedness::Signed),
    }
}
