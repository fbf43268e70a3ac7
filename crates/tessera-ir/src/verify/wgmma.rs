//! Products on the tensor cores of warpgroups: shapes that instructions cover, buffers that they can read, and layouts that
//! they take and give.

use tessera_layout::{Distribution, MmaAtom, Operand, WarpGrid};
use tessera_types::DType;

use crate::types::{DistributedType, SharedType, Swizzle, Type};
use crate::verify::tile::{product, shared};
use crate::verify::{Rule, Site, Wrong, ensure};

/// Checks operands; the accumulator's type.
pub(super) fn check(site: &Site<'_>) -> Result<Box<DistributedType>, Wrong> {
    let acc = match site.operand(2) {
        Type::InFlight(flying) | Type::Distributed(flying) => flying,
        ty => return Err(site.wrong_operand(2, "a tile with a layout", ty)),
    };
    let [element, _, accumulator] = product(site, &acc.tile)?;
    let known = !matches!(element, DType::F32 | DType::F64) && accumulator.bits() <= 32;
    ensure!(known, "ir-element-type", "the tensor cores take no `{element}` here");
    ensure!(acc.tile.shape.len() == 2, "ir-shape", "multiplies matrices, without a batch axis");
    let warps = acc.layout.warps();
    ensure!(warps % 4 == 0, "ir-role", "needs whole warpgroups of 4 warps, but {warps} warps run it");
    let rhs = shared(site, 1)?;
    let (m, n, k) = (acc.tile.shape[0], acc.tile.shape[1], rhs.shape[0]);
    let places = site.op.places();
    let step = 256 / element.bits() * if places.is_some() { 2 } else { 1 };
    ensure!(m % 64 == 0 && n % 8 == 0, "ir-shape", "a product of {m} x {n} is not made of blocks of 64 x 8");
    ensure!(k % step == 0, "ir-shape", "K = {k} is not a multiple of {step}, what one instruction takes of `{element}`");
    // Only 16-bit operands may have K as their slower axis.
    let either = element.bits() == 16;
    readable(rhs, either || rhs.order.last() == Some(&0))?;
    let bits = u64::from(element.bits());
    if let Some(places) = places.map(|places| site.ty(places)) {
        let fits = places.layout().is_some_and(|layout| holds_places(layout, bits));
        ensure!(fits, "ir-layout", "`{places}` does not lie in registers as the instruction reads where its left factor stands");
    }
    match site.operand(0) {
        Type::Shared(lhs) => readable(lhs, either || lhs.order.last() == Some(&1))?,
        lhs => {
            let fits = lhs.layout().is_some_and(|layout| is_fragment(layout, Operand::A, bits));
            ensure!(fits, "ir-layout", "`{lhs}` does not lie in registers as the instruction reads its left factor");
        }
    }
    let fits = is_fragment(&acc.layout, Operand::C, bits);
    ensure!(fits, "ir-layout", "`{}` does not lie in registers as the instruction writes it", site.operand(2));
    Ok(acc.clone())
}

/// A buffer that the tensor cores can read.
fn readable(buffer: &SharedType, k_major: bool) -> Rule {
    let swizzles = [Swizzle::NONE, Swizzle::B32, Swizzle::B64, Swizzle::B128];
    let right = swizzles.contains(&buffer.swizzle) && buffer.pad == 0;
    ensure!(right, "ir-operand-type", "the tensor cores cannot read `{buffer}`: swizzles of 32, 64 or 128 bytes, no padding");
    ensure!(
        k_major,
        "ir-operand-type",
        "the tensor cores read `{}` with K as the fastest axis only, not `{buffer}`",
        buffer.elem
    );
    Ok(())
}

/// Grids of warpgroups that so many warps are.
fn grids(warps: u64) -> impl Iterator<Item = WarpGrid> {
    (4..=warps).step_by(4).filter(move |m| warps.is_multiple_of(*m)).map(move |m| WarpGrid { m, n: warps / m })
}

/// The layout is what some grid of warpgroups has for the words of a left factor stored by half.
fn holds_places(layout: &Distribution, bits: u64) -> bool {
    let &[rows, words] = layout.shape() else { return false };
    let atom = MmaAtom::wgmma(8, bits);
    grids(layout.warps())
        .any(|grid| atom.as_ref().is_ok_and(|atom| atom.places([rows, words], grid).is_ok_and(|wanted| wanted == *layout)))
}

/// The layout is what some width of the instruction, on some grid of warpgroups, has for an operand.
fn is_fragment(layout: &Distribution, operand: Operand, bits: u64) -> bool {
    let (&[rows, columns], warps) = (layout.shape(), layout.warps()) else { return false };
    let widths = || (8..=256).rev().step_by(8).filter(|n| operand == Operand::A || columns.is_multiple_of(*n));
    grids(warps).any(|grid| {
        widths().any(|n| {
            let atom = MmaAtom::wgmma(n, bits);
            atom.and_then(|atom| atom.operand(operand, [rows, columns], grid)).is_ok_and(|wanted| wanted == *layout)
        })
    })
}
