//! Factors of products that lie in shared memory for all threads of the block, on the generic road.
//!
//! | who multiplies | a factor lies there | its lines |
//! |---|---|---|
//! | threads, by multiply-adds | as its elements come from memory, so that they are written in vectors | padded where steps of the contraction are neighbours |
//! | warps, by an instruction that has the factors' type | does not: it goes into registers | |
//! | warps, by an instruction for a wider type | widened, as its elements come from memory | padded |
//! | threads, one element of the accumulator after the other | row-major | as they are |
//!
//! Which padding or mixing costs least is decided by `memory-management`, from all accesses of the buffer.
//!
//! ```text
//! %k = permute %t : tile<64x32xf32>            shared<64x32xf32, order=[1, 0], pad=4>: the load's lines, 32 of 64 elements
//! ```

use tessera_ir::attrs::Rounding;
use tessera_ir::{Elem, Func, Op, ScheduleOp, SharedType, TileOp, Type, Value};
use tessera_types::DType;

use super::feed::fastest_axis;

/// The wider type that holds every number of a format and is multiplied where the format is not.
pub(super) fn wider(dtype: DType) -> Option<DType> {
    matches!(dtype, DType::F8E4M3 | DType::F8E5M2).then_some(DType::F16)
}

/// The buffer of a factor whose lines run as its elements come from memory; it has the type `elem` there. `contraction` is its axis that is
/// summed over, and says with `by_threads` which lines want padding.
pub(super) fn buffer(func: &Func, factor: Value, elem: DType, contraction: usize, by_threads: bool) -> Option<SharedType> {
    if let Type::Shared(ty) = func.ty(factor) {
        return Some((**ty).clone());
    }
    let tile = func.ty(factor).as_tile()?;
    let rank = tile.shape.len();
    let fastest = fastest_axis(func, factor).map_or(rank - 1, |(_, axis)| axis);
    let line = tile.shape[fastest] * elem.unpacked_bytes() as u32;
    let padded = line.is_multiple_of(16) && (!by_threads || fastest == contraction);
    let pad = if padded { 16 / elem.unpacked_bytes() as u32 } else { 0 };
    let order = (0..rank as u32).filter(|&axis| axis as usize != fastest).chain([fastest as u32]).collect();
    Some(SharedType { order, pad, ..SharedType::new(tile.shape.clone(), elem) })
}

/// Row-major buffers for both factors of a product; `None` where they hold no numbers.
pub(super) fn plain(func: &Func, op: Op) -> Option<[SharedType; 2]> {
    let buffer = |factor: Value| match func.ty(factor) {
        Type::Shared(ty) => Some((**ty).clone()),
        ty => Some(SharedType::new(ty.as_tile()?.shape.clone(), ty.num()?)),
    };
    Some([buffer(func.ops[op].one(0))?, buffer(func.ops[op].one(1))?])
}

/// Writes a tile to a buffer of its own, in the buffer's type, and yields the buffer.
pub(super) fn put(func: &mut Func, at: Op, mut value: Value, ty: SharedType, out: &mut Vec<Op>) -> Value {
    let span = func.ops[at].span;
    if let Type::Distributed(spread) = func.ty(value).clone()
        && spread.tile.elem.num() != Some(ty.elem)
    {
        let wide = Type::distributed(spread.tile.with_elem(Elem::Num(ty.elem)), &spread.layout);
        let kind = ScheduleOp::FToF { rounding: Rounding::NearestEven };
        let widened = func.make_op(kind.into(), &[&[value]], [wide], [], span);
        out.push(widened);
        value = func.ops[widened].result();
    }
    let alloc = func.make_op(TileOp::AllocShared { align: 16, offset: None }.into(), &[], [Type::Shared(Box::new(ty))], [], span);
    let buffer = func.ops[alloc].result();
    let store = func.make_op(TileOp::StoreShared { matrices: false }.into(), &[&[value], &[buffer]], [], [], span);
    out.extend([alloc, store]);
    buffer
}

/// A barrier of the block.
pub(super) fn barrier(func: &mut Func, at: Op, out: &mut Vec<Op>) {
    let span = func.ops[at].span;
    out.push(func.make_op(TileOp::Barrier {}.into(), &[], [], [], span));
}
