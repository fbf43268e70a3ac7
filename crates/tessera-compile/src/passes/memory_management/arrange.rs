//! How each buffer lies: the arrangement in which its accesses cost the fewest passes over the banks.
//!
//! A buffer that no instruction dictates about may have any order of axes, a mixing of its addresses, and padding behind its lines. Every access of the
//! function is weighed by the loops around it, and an arrangement without conflicts goes before one with, unless it costs a quarter more. Of arrangements that cost the same the one with fewer instructions is taken, then the smaller one, then the
//! simpler one; a mixing counts half a pass for an access of a tile, whose registers' addresses are no longer a constant apart.
//! What has no conflicts stays as it is.
//!
//! ```text
//! %e = tile.load_element %a, [%t, %t]      128 x 128 bf16: lanes 2i and 2i + 1 ask for different words of one bank: degree 2
//! %a = tile.alloc_shared ..                becomes swizzle=<1,6,2>: rows with odd numbers lie 64 bytes further: degree 1
//! ```

use tessera_ir::{Func, Op, OpKind, SharedType, TileOp, Type, Value, bug};
use tessera_layout::{Access, Swizzle as Mixing};
use tessera_types::Arch;

use super::patterns::{Cost, Usage, usages};
use tessera_analysis::buffers::Buffers;
use tessera_analysis::room::buffer_bytes;

/// What a loop multiplies the weight of its accesses by.
const ROUNDS: u64 = 16;

/// What an arrangement without conflicts may cost at most, as a part of what the cheapest one costs: passes of one access that meet delay those of
/// others, too.
const DEAREST: (u64, u64) = (5, 4);

/// Bits of an address below which a mixing may look and change: types have room for no more.
const MOST_REACH: u32 = 17;

/// What decides between arrangements, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Twice the passes over the banks, and mixings.
    work: u64,
    instructions: u64,
    bytes: u64,
    mixed_bits: u32,
    pad: u32,
}

/// Arranges every buffer that is free; whether any has changed.
pub(super) fn arrange(func: &mut Func, arch: Arch) -> bool {
    let buffers = Buffers::of(func);
    if buffers.allocs.is_empty() {
        return false;
    }
    let mut chosen: Vec<(Op, SharedType)> = Vec::new();
    for (usage, &alloc) in usages(func, arch, &buffers).iter().zip(&buffers.allocs) {
        let Some(ty) = func.ty(func.ops[alloc].result()).as_shared() else { continue };
        if let Some(better) = best(usage, ty) {
            chosen.push((alloc, better));
        }
    }
    for (alloc, ty) in &chosen {
        let result = func.ops[*alloc].result();
        func.values[result].ty = Type::Shared(Box::new(ty.clone()));
    }
    if !chosen.is_empty() {
        retype_parts(func);
    }
    !chosen.is_empty()
}

/// The arrangement that beats the present one, if there is one.
fn best(usage: &Usage, ty: &SharedType) -> Option<SharedType> {
    if usage.dictated || usage.patterns.is_empty() {
        return None;
    }
    let (now, cost) = rank(usage, ty)?;
    if cost.wavefronts <= cost.ideal {
        return None;
    }
    let ranked = |candidate: SharedType| rank(usage, &candidate).map(|(rank, cost)| (rank, cost, candidate));
    let all: Vec<(Rank, Cost, SharedType)> = candidates(usage, ty).into_iter().filter_map(ranked).collect();
    let least = all.iter().min_by_key(|(rank, ..)| *rank).filter(|(rank, ..)| rank.work < now.work);
    let most = least.map_or(now.work, |(rank, ..)| rank.work) * DEAREST.0 / DEAREST.1;
    let free = all.iter().filter(|(rank, cost, _)| cost.degree <= 1 && rank.work <= most).min_by_key(|(rank, ..)| *rank);
    free.or(least).map(|(.., ty)| ty.clone())
}

/// What all accesses of a buffer cost, and how that compares; `None` where one of them could not be made.
fn rank(usage: &Usage, ty: &SharedType) -> Option<(Rank, Cost)> {
    let mut all = Cost::default();
    for pattern in &usage.patterns {
        let (cost, weight) = (pattern.cost(ty)?, ROUNDS.pow(pattern.loops.min(3)));
        all.degree = all.degree.max(cost.degree);
        all.wavefronts += weight * cost.wavefronts;
        all.ideal += weight * cost.ideal;
        all.instructions += weight * cost.instructions;
        all.mixed += weight * cost.mixed;
    }
    let bytes = buffer_bytes(ty);
    let work = 2 * all.wavefronts + all.mixed;
    let rank = Rank { work, instructions: all.instructions, bytes, mixed_bits: ty.swizzle.bits, pad: ty.pad };
    Some((rank, all))
}

/// Arrangements worth trying.
fn candidates(usage: &Usage, ty: &SharedType) -> Vec<SharedType> {
    let rank = ty.shape.len();
    let element = ty.elem.unpacked_bytes() as u64;
    let mut found = Vec::new();
    let mut fastest: Vec<u32> = ty.order.iter().rev().copied().collect();
    if usage.whole_bytes > 0 {
        fastest.truncate(1);
    }
    for fastest in fastest {
        let mut order: smallvec::SmallVec<[u32; 4]> = ty.order.iter().copied().filter(|&axis| axis != fastest).collect();
        order.push(fastest);
        let plain = SharedType { swizzle: tessera_ir::Swizzle::NONE, order, pad: 0, ..ty.clone() };
        if rank > 1 {
            let widths = [1, 4 / element.min(4), 8 / element.min(8), 16 / element.min(16), 32 / element.min(32)];
            let pads =
                widths.into_iter().filter(|pad| usage.whole_bytes == 0 || (pad * element).is_multiple_of(usage.whole_bytes));
            found.extend(pads.map(|pad| SharedType { pad: pad as u32, ..plain.clone() }));
        }
        let limit = buffer_bytes(&plain).next_power_of_two().trailing_zeros().min(MOST_REACH);
        for most in [16, 8, 4] {
            let accesses: Vec<Access> = usage
                .patterns
                .iter()
                .flat_map(|pattern| {
                    let weight = ROUNDS.pow(pattern.loops.min(3));
                    pattern.plain(&plain, most).into_iter().map(move |access| Access { weight: weight * access.weight, ..access })
                })
                .collect();
            let (mixing, _) = Mixing::search(&accesses, usage.whole_bytes.max(element), limit);
            if mixing.bits > 0 && mixing.shift <= 10 {
                let swizzle = tessera_ir::Swizzle {
                    bits: u32::from(mixing.bits),
                    base: u32::from(mixing.base),
                    shift: u32::from(mixing.shift),
                };
                found.push(SharedType { swizzle, ..plain.clone() });
            }
        }
        found.push(plain);
    }
    found
}

/// The types of parts follow from those of the buffers that they are taken from.
fn retype_parts(func: &mut Func) {
    for op in func.linked_ops() {
        let data = &func.ops[op];
        let Some(source) = data.operands.first().and_then(|&source| func.ty(source).as_shared()) else { continue };
        let part = match &data.kind {
            OpKind::Tile(TileOp::SliceShared {}) => source.slice(),
            OpKind::Tile(TileOp::SubviewShared { .. }) => {
                let shape = func.ty(data.result()).as_shared().map(|ty| ty.shape.clone());
                shape.map(|shape| SharedType { shape, ..source.clone() })
            }
            OpKind::Tile(TileOp::TransposeShared { permutation }) => source.permuted(permutation),
            OpKind::Tile(TileOp::CollapseShared {}) => func.ty(data.result()).as_shared().map(|ty| {
                let part = source.collapsed(&ty.shape);
                part.unwrap_or_else(|| bug!("a buffer whose axes were parted that are one elsewhere"))
            }),
            _ => None,
        };
        if let Some(part) = part {
            let result: Value = func.ops[op].result();
            func.values[result].ty = Type::Shared(Box::new(part));
        }
    }
}
