//! The Tile dialect: buffers and their parts, what threads do with them, rings and their slots, roles.

use tessera_layout::MmaAtom;
use tessera_types::DType;

use crate::attrs::{AtomicMode, Combine, RingProducer};
use crate::bug;
use crate::fragment::{PER_LANE, PLACES_PER_LANE};
use crate::func::{Func, Level, Op, OpData, Value};
use crate::op::OpKind;
use crate::tile::TileOp;
use crate::types::{Elem, RingType, Shape, SharedType, TileType, Type, ViewKind};
use crate::verify::elementwise::computes;
use crate::verify::tiles::{accumulates, indices, product_shapes, sparse_product};
use crate::verify::{Rule, Site, Wrong, ensure, memory, wgmma};

/// The place of a block among those that share the work of one.
fn place_in_cluster(site: &Site<'_>) -> Rule {
    splits(site)?;
    site.result_is(0, &Type::scalar(DType::I32))
}

/// The place of a cluster among those that share the work of one block.
fn place_of_cluster(site: &Site<'_>) -> Rule {
    splits(site)?;
    ensure!(site.func.hints.among.is_some(), "ir-hint", "no clusters share the work of one block");
    site.result_is(0, &Type::scalar(DType::I32))
}

pub(super) fn check(site: &Site<'_>, kind: &TileOp) -> Rule {
    match kind {
        TileOp::ThreadId {} | TileOp::LaneId {} | TileOp::WarpId {} | TileOp::Worker {} | TileOp::Workers {} => {
            site.result_is(0, &Type::scalar(DType::I32))
        }
        TileOp::ClusterRank {} => place_in_cluster(site),
        TileOp::ClusterNumber {} => place_of_cluster(site),
        TileOp::Workspace { .. } => workspace(site),
        TileOp::ConvertLayout {} => convert_layout(site),
        TileOp::Renew { .. } => renew(site),
        TileOp::Vary {} => vary(site),

        TileOp::AllocShared { align, offset } => alloc_shared(site, *align, *offset),
        TileOp::AllocRegister {} => {
            let result = site.result(0);
            ensure!(matches!(result, Type::Registers(_)), "ir-result-type", "the result must be an array of registers");
            Ok(())
        }
        TileOp::SliceShared {} => slice(site),
        TileOp::SubviewShared { offsets } => subview(site, offsets),
        TileOp::TransposeShared { permutation } => transpose(site, permutation),
        TileOp::CollapseShared {} => collapse(site),
        TileOp::LoadShared {} => site.result_tile_is(0, &shared(site, 0)?.tile()),
        TileOp::StoreShared { .. } => {
            let (value, buffer) = (site.tile(0)?, shared(site, 1)?);
            ensure!(*value == buffer.tile(), "ir-operand-type", "stores `{value}` in `{buffer}`");
            Ok(())
        }
        TileOp::CopyShared {} => {
            let (source, target) = (shared(site, 0)?, shared(site, 1)?);
            ensure!(source.tile() == target.tile(), "ir-operand-type", "copies `{source}` to `{target}`");
            Ok(())
        }
        TileOp::LoadElement {} => {
            let element = element(site, 0, 1)?;
            site.result_is(0, &element)
        }
        TileOp::StoreElement { relaxed } => store_element(site, *relaxed),
        TileOp::LoadVector { .. } => load_vector(site),
        TileOp::StoreVector { .. } => store_vector(site),
        TileOp::Prefetch {} => prefetch(site),
        TileOp::AtomicElement { mode } => atomic_element(site, *mode),
        TileOp::AtomicCasElement {} => compare_and_swap(site),

        TileOp::WarpReduce { combine, redux, .. } => warp_reduce(site, *combine, *redux),
        TileOp::Shuffle { .. } => shuffle(site),
        TileOp::MatchAny { bits } => match_any(site, *bits),
        TileOp::Popcount {} => word(site, "bits are counted of"),

        TileOp::MmaFragment { .. } => mma_fragment(site, false),
        TileOp::MmaFragmentSparse { .. } => mma_fragment(site, true),

        TileOp::Barrier {}
        | TileOp::ClusterBarrier {}
        | TileOp::CommitGroup {}
        | TileOp::WaitGroup { .. }
        | TileOp::FenceAsync {} => Ok(()),
        TileOp::ClusterSum { parts } => cluster_sum(site, *parts),
        TileOp::ClusterArrive {} | TileOp::ClusterWait {} => splits(site).map(|_| ()),
        TileOp::ClusterGather {} => cluster_gather(site),
        TileOp::NamedBarrier { id, threads } | TileOp::NamedArrive { id, threads } => named_barrier(site, *id, *threads),

        TileOp::GroupTurn { id, groups, .. } => group_turn(site, *id, *groups),

        TileOp::CopyAsync { .. } => {
            let tile = memory::access(site, 0, 1)?;
            copied(site, &tile, 2)
        }
        TileOp::CopyAsyncElement { bytes } => copy_element(site, *bytes),

        TileOp::Ring { stages, producer, consumers, bytes, blocks } => {
            in_cluster(site, *blocks, *producer)?;
            ring(site, *stages, *producer, *consumers, *bytes)
        }
        TileOp::RingStart {} => ring_of(site, 0).and_then(|_| site.result_is(0, &Type::Cursor)),
        TileOp::Advance {} => at(site, 0).and_then(|_| site.result_is(0, &Type::Cursor)),
        TileOp::Skip {} => skip(site),
        TileOp::Acquire {} | TileOp::Wait {} | TileOp::Release {} => at(site, 0).map(|_| ()),
        TileOp::Commit { bytes } => commit(site, *bytes),
        TileOp::Slot { buffer } => slot(site, *buffer),

        TileOp::TmaLoad { blocks } => {
            in_cluster(site, *blocks, RingProducer::Tma)?;
            let tile = memory::access(site, 0, 1)?;
            not_gathered(site, 0)?;
            copied(site, &tile, 2)?;
            at(site, 3).map(|_| ())
        }
        TileOp::TmaStore {} => {
            let tile = memory::access(site, 1, 2)?;
            not_gathered(site, 1)?;
            copied(site, &tile, 0)
        }
        TileOp::SendTile {} => sent_in_boxes(site),
        TileOp::StoreLines {} => sent(site),
        TileOp::TmaStoreWait { .. } => Ok(()),

        TileOp::MmaShared { .. } => {
            let acc = spread(site, 2)?;
            product(site, acc)?;
            site.result_is(0, site.operand(2))
        }
        TileOp::MmaSync { shape, .. } => mma_sync(site, shape),
        TileOp::Wgmma { .. } => {
            let acc = wgmma::check(site)?;
            site.result_is(0, &Type::InFlight(acc))
        }
        TileOp::WgmmaPromoted { depth } => wgmma_promoted(site, *depth),
        TileOp::WgmmaWait { .. } => wgmma_wait(site),

        TileOp::Role { first_warp, warps, registers } => role(site, *first_warp, *warps, *registers),
        TileOp::Mark { name, .. } => {
            ensure!(!name.is_empty(), "ir-attribute", "needs a name");
            Ok(())
        }
    }
}

fn store_element(site: &Site<'_>, relaxed: bool) -> Rule {
    let element = element(site, 1, 2)?;
    let shared = !relaxed || site.operand(1).as_shared().is_some();
    ensure!(shared, "ir-attribute", "registers are one thread's, whose stores are in order");
    value_is(site, 0, &element)
}

fn prefetch(site: &Site<'_>) -> Rule {
    let ty = site.operand(0);
    let pointer = ty.is_scalar() && ty.as_tile().is_some_and(|tile| matches!(tile.elem, Elem::Ptr(_)));
    ensure!(pointer, "ir-operand-type", "brings what a pointer points to nearer, not `{ty}`");
    Ok(())
}

/// What fills a part of a slot is no more than the slot, and not nothing.
fn commit(site: &Site<'_>, bytes: Option<u32>) -> Rule {
    let ring = at(site, 0)?;
    let Some(bytes) = bytes else { return Ok(()) };
    let most = ring.slots.iter().map(SharedType::bytes).sum::<u64>();
    let right = bytes > 0 && u64::from(bytes) <= most;
    ensure!(right, "ir-attribute", "a slot of {most} bytes does not become full by {bytes}");
    Ok(())
}

pub(super) fn shared<'m>(site: &Site<'m>, position: usize) -> Result<&'m SharedType, Wrong> {
    let ty = site.operand(position);
    ty.as_shared().ok_or_else(|| site.wrong_operand(position, "a shared buffer", ty))
}

fn workspace(site: &Site<'_>) -> Rule {
    let pointer = site.result(0).is_scalar() && site.result(0).as_tile().is_some_and(|tile| matches!(tile.elem, Elem::Ptr(_)));
    ensure!(pointer, "ir-result-type", "the result must be a pointer");
    Ok(())
}

/// A matrix that warps store line by line: it may stand behind axes of extent 1.
fn sent(site: &Site<'_>) -> Result<(), Wrong> {
    let tile = memory::access(site, 1, 2)?;
    not_gathered(site, 1)?;
    let own = site.tile(0)?;
    let fits = tile.elem == own.elem
        && tile.shape.ends_with(&own.shape)
        && tile.shape[..tile.shape.len() - own.shape.len()].iter().all(|&extent| extent == 1);
    ensure!(fits, "ir-operand-type", "stores `{}` as `{tile}`", site.operand(0));
    spread(site, 0).map(|_| ())
}

/// A matrix whose rows go through all axes of the view's tile but the last one.
fn sent_in_boxes(site: &Site<'_>) -> Result<(), Wrong> {
    let tile = memory::access(site, 1, 2)?;
    not_gathered(site, 1)?;
    let own = site.tile(0)?;
    let lines = own.shape.last() == tile.shape.last() && own.shape.len() >= 2 && own.len() == tile.len();
    ensure!(tile.elem == own.elem && lines, "ir-operand-type", "stores `{}` as `{tile}`", site.operand(0));
    spread(site, 0).map(|_| ())
}

/// A tile that has a layout, or will have one.
fn spread<'m>(site: &Site<'m>, position: usize) -> Result<&'m TileType, Wrong> {
    match site.operand(position) {
        Type::Distributed(distributed) => Ok(&distributed.tile),
        Type::Tile(tile) if site.func.level == Level::Staged && !tile.shape.is_empty() => Ok(tile),
        ty => Err(site.wrong_operand(position, "a tile with a layout", ty)),
    }
}

/// Lanes that work together must all be there.
fn whole_warps(site: &Site<'_>) -> Rule {
    let threads = site.func.hints.threads();
    ensure!(threads.is_multiple_of(32), "ir-hint", "needs whole warps, which a block of {threads} threads has not");
    Ok(())
}

fn value_is(site: &Site<'_>, position: usize, wanted: &Type) -> Rule {
    let found = site.operand(position);
    if found == wanted { Ok(()) } else { Err(site.wrong_operand(position, &format!("`{wanted}`"), found)) }
}

/// The type of one element of a buffer or register array, after its indices are checked.
fn element(site: &Site<'_>, at: usize, index: usize) -> Result<Type, Wrong> {
    let (rank, dtype) = match site.operand(at) {
        Type::Shared(shared) => (shared.shape.len(), Some(shared.elem)),
        Type::Registers(tile) => (tile.shape.len(), tile.elem.num()),
        ty => return Err(site.wrong_operand(at, "a shared buffer or an array of registers", ty)),
    };
    indices(site, index)?;
    let given = site.op.group(index).len();
    ensure!(given == rank, "ir-shape", "{given} indices are given for {rank} axes");
    dtype.map(Type::scalar).ok_or_else(|| site.wrong_operand(at, "an array of numbers", site.operand(at)))
}

/// The element type of an access to so many neighbours, after their number and the indices are checked.
fn neighbours(site: &Site<'_>, at: usize, index: usize, count: usize) -> Result<Type, Wrong> {
    let element = match site.operand(at) {
        Type::Tile(TileType { shape, elem: Elem::Ptr(to) }) if shape.is_empty() => {
            ensure!(site.op.group(index).is_empty(), "ir-shape", "a pointer takes no indices");
            Type::scalar(*to)
        }
        Type::Shared(_) => element(site, at, index)?,
        ty => return Err(site.wrong_operand(at, "a pointer or a shared buffer", ty)),
    };
    let bits = element.num().map_or(0, DType::bits);
    let bytes = count as u32 * bits / 8;
    let whole = bits >= 8 && count > 1 && matches!(bytes, 2 | 4 | 8 | 16);
    ensure!(whole, "ir-results", "an access moves 2, 4, 8 or 16 bytes of whole elements, not {count} of `{element}`");
    Ok(element)
}

fn convert_layout(site: &Site<'_>) -> Rule {
    let (source, result) = (spread(site, 0)?, site.result(0));
    let right = result.as_tile() == Some(source) && result.layout().is_some();
    ensure!(right, "ir-result-type", "`{}` cannot become `{result}`: only the layout changes", site.operand(0));
    Ok(())
}

fn renew(site: &Site<'_>) -> Rule {
    let narrow = spread(site, 0)?.elem.bits() == 16;
    ensure!(narrow, "ir-operand-type", "elements of 16 bits are renewed, not those of `{}`", site.operand(0));
    site.result_is(0, site.operand(0))
}

fn vary(site: &Site<'_>) -> Rule {
    let number = Type::scalar(DType::I32);
    ensure!(*site.operand(0) == number, "ir-operand-type", "a `{number}` is varied, not `{}`", site.operand(0));
    site.result_is(0, &number)
}

fn alloc_shared(site: &Site<'_>, align: u32, offset: Option<u32>) -> Rule {
    ensure!(align.is_power_of_two(), "ir-attribute", "the alignment {align} is not a power of two");
    let aligned = offset.is_none_or(|offset| offset % align == 0);
    ensure!(aligned, "ir-attribute", "the offset {} is no multiple of the alignment {align}", offset.unwrap_or(0));
    ensure!(site.result(0).as_shared().is_some(), "ir-result-type", "the result must be a shared buffer");
    Ok(())
}

fn slice(site: &Site<'_>) -> Rule {
    let source = shared(site, 0)?;
    indices(site, 1)?;
    let Some(wanted) = source.slice() else {
        return Err(Wrong { id: "ir-shape", message: format!("`{source}` has no axis to take an entry of") });
    };
    site.result_is(0, &Type::Shared(Box::new(wanted)))
}

fn load_vector(site: &Site<'_>) -> Rule {
    let element = neighbours(site, 0, 1, site.op.results.len())?;
    (0..site.op.results.len()).try_for_each(|position| site.result_is(position, &element))
}

fn store_vector(site: &Site<'_>) -> Rule {
    let values = site.op.group(0);
    let element = neighbours(site, 1, 2, values.len())?;
    match values.iter().find(|&&value| *site.ty(value) != element) {
        Some(&value) => Err(site.wrong_operand(0, &format!("`{element}`"), site.ty(value))),
        None => Ok(()),
    }
}

fn atomic_element(site: &Site<'_>, mode: AtomicMode) -> Rule {
    let buffer = shared(site, 1)?;
    memory::atomic(mode, Elem::Num(buffer.elem))?;
    let element = element(site, 1, 2)?;
    value_is(site, 0, &element)?;
    site.result_is(0, &element)
}

fn compare_and_swap(site: &Site<'_>) -> Rule {
    let buffer = shared(site, 2)?;
    memory::atomic(AtomicMode::Xchg, Elem::Num(buffer.elem))?;
    let element = element(site, 2, 3)?;
    value_is(site, 0, &element)?;
    value_is(site, 1, &element)?;
    site.result_is(0, &element)
}

fn warp_reduce(site: &Site<'_>, combine: Combine, redux: bool) -> Rule {
    let ty = site.operand(0);
    let one = !redux || (*ty == Type::scalar(DType::I32) && combine != Combine::Prod);
    ensure!(one, "ir-attribute", "`redux` takes `i32` and has no products");
    let right = ty.is_scalar() && ty.num().is_some_and(|dtype| computes(dtype) && dtype != DType::B1);
    ensure!(right, "ir-operand-type", "combines one number a lane, not `{ty}`");
    whole_warps(site)?;
    site.result_is(0, ty)
}

fn shuffle(site: &Site<'_>) -> Rule {
    let ty = site.operand(0);
    ensure!(ty.is_scalar() && ty.num().is_some(), "ir-operand-type", "passes one number a lane, not `{ty}`");
    whole_warps(site)?;
    value_is(site, 1, &Type::scalar(DType::I32))?;
    site.result_is(0, ty)
}

fn match_any(site: &Site<'_>, bits: u32) -> Rule {
    ensure!((1..=32).contains(&bits), "ir-attribute", "a word has 1 to 32 bits to compare, not {bits}");
    whole_warps(site)?;
    word(site, "lanes are matched by")
}

/// An integer of 32 bits, and another one as the result.
fn word(site: &Site<'_>, what: &str) -> Rule {
    let number = Type::scalar(DType::I32);
    ensure!(*site.operand(0) == number, "ir-operand-type", "{what} one `i32` a lane, not `{}`", site.operand(0));
    site.result_is(0, &number)
}

/// A product of fragments; `sparse` where its left factor is stored by half.
fn mma_fragment(site: &Site<'_>, sparse: bool) -> Rule {
    let number = |group: usize| site.op.group(group).first().and_then(|&value| site.ty(value).num());
    // The groups of the factors and of the sums, and how many elements a lane has of them.
    let groups =
        if sparse { [(0, PER_LANE), (2, 2 * PER_LANE), (3, PER_LANE)] } else { [(0, PER_LANE), (1, PER_LANE), (2, PER_LANE)] };
    let [Some(lhs), Some(rhs), Some(acc)] = groups.map(|(group, _)| number(group)) else {
        return Err(Wrong { id: "ir-operand-type", message: "multiplies numbers of a lane".to_string() });
    };
    let holds = |group: usize, count: usize, dtype: DType| {
        let values = site.op.group(group);
        values.len() == count && values.iter().all(|&value| *site.ty(value) == Type::scalar(dtype))
    };
    for ((group, count), dtype) in groups.into_iter().zip([lhs, rhs, acc]) {
        ensure!(holds(group, count, dtype), "ir-operand-type", "a lane holds {count} elements of one type here");
    }
    if sparse {
        let right = holds(1, PLACES_PER_LANE, DType::I32);
        ensure!(right, "ir-operand-type", "a lane holds {PLACES_PER_LANE} words of places, of `i32`");
    }
    let halves = matches!(lhs, DType::F16 | DType::BF16) && (acc == DType::F32 || (lhs, acc) == (DType::F16, DType::F16));
    let known = lhs == rhs && (halves || (lhs, acc) == (DType::I8, DType::I32));
    ensure!(known, "ir-operand-type", "there is no product of fragments of `{lhs}` and `{rhs}` that adds up in `{acc}`");
    whole_warps(site)?;
    ensure!(site.op.results.len() == PER_LANE, "ir-results", "a lane gets {PER_LANE} elements");
    (0..PER_LANE).try_for_each(|position| site.result_is(position, &Type::scalar(acc)))
}

fn named_barrier(site: &Site<'_>, id: u32, threads: u32) -> Rule {
    ensure!((1..=15).contains(&id), "ir-attribute", "there are named barriers 1 to 15, not {id}");
    let all = 32 * site.func.hints.num_warps.unwrap_or(0);
    let right = threads > 0 && threads.is_multiple_of(32) && threads <= all;
    ensure!(right, "ir-attribute", "{threads} threads are not whole warps of a block of {all}");
    Ok(())
}

fn group_turn(site: &Site<'_>, id: u32, groups: u32) -> Rule {
    ensure!((2..=15).contains(&groups), "ir-attribute", "two groups or more take turns, at a barrier each, not {groups}");
    named_barrier(site, id, 4 * 32 * groups)?;
    let last = id.saturating_add(groups - 1);
    ensure!(last <= 15, "ir-attribute", "{groups} groups from barrier {id} on take more than there are: the last one is 15");
    Ok(())
}

fn copy_element(site: &Site<'_>, bytes: u32) -> Rule {
    let (pointer, buffer) = (site.operand(0), shared(site, 1)?);
    let right = *pointer == Type::pointers(Shape::new(), buffer.elem);
    ensure!(right, "ir-operand-type", "copies from `{pointer}` to `{buffer}`");
    let whole = matches!(bytes, 4 | 8 | 16) && (8 * bytes).is_multiple_of(buffer.elem.bits());
    ensure!(whole, "ir-attribute", "copies 4, 8 or 16 bytes of whole elements, not {bytes}");
    element(site, 1, 2).map(|_| ())
}

fn skip(site: &Site<'_>) -> Rule {
    at(site, 0)?;
    value_is(site, 2, &Type::scalar(DType::I32))?;
    site.result_is(0, &Type::Cursor)
}

fn slot(site: &Site<'_>, buffer: u32) -> Rule {
    let ring = at(site, 0)?;
    let Some(slot) = ring.slots.get(buffer as usize) else {
        let message = format!("a slot of the ring has {} buffers, there is no {buffer}", ring.slots.len());
        return Err(Wrong { id: "ir-attribute", message });
    };
    site.result_is(0, &Type::Shared(Box::new(slot.clone())))
}

fn mma_sync(site: &Site<'_>, shape: &Shape) -> Rule {
    let acc = spread(site, 2)?;
    let rhs = match site.operand(1) {
        Type::Shared(shared) => shared.tile(),
        _ => spread(site, 1)?.clone(),
    };
    let [element, ..] = product_of(site, &rhs, acc)?;
    let &[m, n, k] = &shape[..] else {
        return Err(Wrong { id: "ir-attribute", message: "`shape` is rows, columns and contraction".to_string() });
    };
    let known = MmaAtom::sync(u64::from(m), u64::from(n), u64::from(k), u64::from(element.bits())).is_ok();
    ensure!(known, "ir-attribute", "there is no instruction of {m} x {n} x {k} for `{element}`");
    let &[rows, columns] = &acc.shape[..] else {
        return Err(Wrong { id: "ir-shape", message: "multiplies matrices, without a batch axis".to_string() });
    };
    let whole = rows % m == 0 && columns % n == 0 && rhs.shape[0] % k == 0;
    ensure!(whole, "ir-shape", "{rows} x {columns} x {} is not made of whole instructions of {m} x {n} x {k}", rhs.shape[0]);
    site.result_is(0, site.operand(2))
}

fn wgmma_promoted(site: &Site<'_>, depth: u32) -> Rule {
    let acc = wgmma::check(site)?;
    let (rhs, part) = (shared(site, 1)?, depth);
    let whole = part > 0 && part % (256 / rhs.elem.bits()) == 0 && rhs.shape[0] % part == 0;
    ensure!(whole, "ir-attribute", "K = {} is not made of parts of {part} in whole instructions", rhs.shape[0]);
    site.result_is(0, &Type::Distributed(acc))
}

fn wgmma_wait(site: &Site<'_>) -> Rule {
    let (values, results) = (site.op.group(0), &site.op.results);
    ensure!(values.len() == results.len(), "ir-results", "one result a value is needed");
    for (position, &value) in values.iter().enumerate() {
        let Type::InFlight(flying) = site.ty(value) else {
            return Err(site.wrong_operand(0, "a product in flight", site.ty(value)));
        };
        site.result_is(position, &Type::Distributed(flying.clone()))?;
    }
    Ok(())
}

fn role(site: &Site<'_>, first_warp: u32, warps: u32, registers: Option<u32>) -> Rule {
    let all = site.func.hints.num_warps.unwrap_or(0);
    let right = warps > 0 && first_warp.checked_add(warps).is_some_and(|end| end <= all);
    ensure!(right, "ir-role", "{warps} warps from warp {first_warp} on are not among the block's {all}");
    let budget = registers.is_none_or(|count| (24..=240).contains(&count) && count % 8 == 0);
    ensure!(budget, "ir-attribute", "a budget of registers is a multiple of 8 from 24 to 240");
    ensure!(site.func.blocks[site.op.regions[0]].args.is_empty(), "ir-region", "its region takes no arguments");
    Ok(())
}

fn subview(site: &Site<'_>, offsets: &Shape) -> Rule {
    let source = shared(site, 0)?;
    let Type::Shared(result) = site.result(0) else {
        return Err(Wrong { id: "ir-result-type", message: "the result must be a shared buffer".to_string() });
    };
    let rank = source.shape.len();
    ensure!(offsets.len() == rank && result.shape.len() == rank, "ir-shape", "needs one offset and one extent an axis");
    let inside = (0..rank).all(|i| offsets[i].checked_add(result.shape[i]).is_some_and(|end| end <= source.shape[i]));
    ensure!(inside, "ir-shape", "`{result}` at {:?} does not lie inside `{source}`", offsets.as_slice());
    let wanted = SharedType { shape: result.shape.clone(), ..source.clone() };
    site.result_is(0, &Type::Shared(Box::new(wanted)))
}

fn transpose(site: &Site<'_>, permutation: &Shape) -> Rule {
    let source = shared(site, 0)?;
    let wanted = source.permuted(permutation).ok_or_else(|| Wrong {
        id: "ir-attribute",
        message: format!("`permutation` does not name each axis of `{source}` once"),
    })?;
    site.result_is(0, &Type::Shared(Box::new(wanted)))
}

fn collapse(site: &Site<'_>) -> Rule {
    let source = shared(site, 0)?;
    let Type::Shared(result) = site.result(0) else {
        return Err(Wrong { id: "ir-result-type", message: "the result must be a shared buffer".to_string() });
    };
    let wanted = source.collapsed(&result.shape);
    let wanted = wanted.ok_or_else(|| Wrong {
        id: "ir-shape",
        message: format!("`{result}` is not `{source}` with neighbours that lie one behind the other as one axis"),
    })?;
    site.result_is(0, &Type::Shared(Box::new(wanted)))
}

/// The buffer that a tile of a view is copied to or from.
fn copied(site: &Site<'_>, tile: &TileType, position: usize) -> Rule {
    let buffer = shared(site, position)?;
    ensure!(buffer.tile() == *tile, "ir-operand-type", "copies between `{tile}` of the view and `{buffer}`");
    Ok(())
}

fn not_gathered(site: &Site<'_>, position: usize) -> Rule {
    let Type::TileView(view) = site.operand(position) else { return Ok(()) };
    let right = !matches!(view.kind, ViewKind::GatherScatter { .. });
    ensure!(right, "ir-operand-type", "the accelerator cannot gather: `{view}`");
    Ok(())
}

fn ring(site: &Site<'_>, stages: u32, producer: RingProducer, consumers: u32, bytes: u32) -> Rule {
    let mut slots = Vec::new();
    for &value in site.op.group(0) {
        let buffer = site.ty(value).as_shared().ok_or_else(|| site.wrong_operand(0, "shared buffers", site.ty(value)))?;
        let slot = buffer.slice().filter(|_| buffer.shape[0] == stages);
        ensure!(slot.is_some(), "ir-shape", "the first axis of `{buffer}` does not count the ring's {stages} stages");
        slots.extend(slot);
    }
    ensure!(consumers > 0, "ir-attribute", "a ring without consumers never frees a slot");
    let most: u64 = slots.iter().map(SharedType::bytes).sum();
    match producer {
        RingProducer::Tma => {
            let right = bytes > 0 && u64::from(bytes) <= most;
            ensure!(right, "ir-attribute", "a slot of {most} bytes does not become full by {bytes}");
        }
        RingProducer::CopyAsync | RingProducer::Threads => {
            ensure!(bytes == 0, "ir-attribute", "only what the accelerator writes is counted in bytes");
        }
    }
    site.result_is(0, &Type::Ring(Box::new(RingType { stages, slots })))
}

/// The function's blocks are in clusters of so many, where they load together, by the copy engine.
fn in_cluster(site: &Site<'_>, blocks: Option<u32>, producer: RingProducer) -> Rule {
    let fills = blocks.is_none() || producer == RingProducer::Tma;
    ensure!(fills, "ir-attribute", "the copy engine alone fills slots of other blocks");
    let own = site.func.hints.cluster;
    ensure!(
        blocks.is_none() || blocks == own,
        "ir-attribute",
        "{} blocks load together, and clusters are of {}",
        blocks.unwrap_or(1),
        own.unwrap_or(1)
    );
    Ok(())
}

/// How many blocks of a cluster share the work of one.
fn splits(site: &Site<'_>) -> Result<u32, Wrong> {
    let blocks = site.func.hints.split;
    blocks.ok_or_else(|| Wrong { id: "ir-hint", message: "no blocks of a cluster share the work of one".to_string() })
}

/// Sums of equal types of 32 bits, of which each block gets a part along the last axis; the buffer has room for a part of what every block holds.
fn cluster_sum(site: &Site<'_>, parts: u32) -> Rule {
    let blocks = splits(site)?;
    let right = parts.is_power_of_two() && parts <= blocks;
    ensure!(right, "ir-attribute", "{blocks} blocks get 1, 2, ... {blocks} parts, not {parts}");
    let values = site.op.group(0);
    ensure!(!values.is_empty(), "ir-operands", "adds up one value at least");
    let tile = spread(site, 0)?;
    let adds = tile.elem.num().is_some_and(|dtype| matches!(dtype, DType::F32 | DType::I32));
    ensure!(adds, "ir-element-type", "adds up `f32` and `i32`, not `{}`", tile.elem);
    if let Some(&other) = values.iter().find(|&&value| site.ty(value) != site.operand(0)) {
        return Err(site.wrong_operand(0, "values of one type", site.ty(other)));
    }
    let Some((&last, before)) = tile.shape.split_last() else { bug!("a tile with a layout and without axes") };
    ensure!(last.is_multiple_of(parts), "ir-shape", "the last axis of `{tile}` has no {parts} equal parts");
    let wanted = TileType { shape: before.iter().copied().chain([last / parts]).collect(), elem: tile.elem };
    ensure!(site.op.results.len() == values.len(), "ir-results", "yields one part of each of {} values", values.len());
    for position in 0..values.len() {
        site.result_tile_is(position, &wanted)?;
        if let (Some(whole), Some(own)) = (site.operand(0).layout(), site.result(position).layout()) {
            let fits = whole.part(before.len(), u64::from(parts)).as_ref() == Some(own);
            ensure!(fits, "ir-layout", "`{}` is not how a part of `{}` lies", site.result(position), site.operand(0));
        }
    }
    ensure!(site.op.optional(1).is_some(), "ir-operands", "needs a buffer to add up through");
    let buffer = shared(site, 1)?;
    let bytes = values.len() as u64 * tile.len() as u64 * 4 * u64::from(blocks) / u64::from(parts);
    ensure!(buffer.bytes() >= bytes, "ir-shape", "`{buffer}` has no room for {bytes} bytes");
    sums_once(site)
}

/// Every block comes to a sum once, after it has said once that the others may write to it.
fn sums_once(site: &Site<'_>) -> Rule {
    let func = site.func;
    let of_body = func.blocks[func.body].ops.iter();
    let met: Vec<&OpData> = of_body.flat_map(|&op| with_role(func, op)).map(|op| &func.ops[op]).collect();
    let place = met.iter().position(|op| std::ptr::eq(*op, site.op));
    let Some(place) = place else {
        return Err(Wrong {
            id: "ir-structure",
            message: "stands in a role or the body, where every block comes to it once".to_string(),
        });
    };
    let arrives = |op: &OpData| matches!(op.kind, OpKind::Tile(TileOp::ClusterArrive {}));
    let before = met[..place].iter().filter(|op| arrives(op)).count();
    let all = func.linked_ops().into_iter().filter(|&op| arrives(&func.ops[op])).count();
    ensure!(
        before == 1 && all == 1,
        "ir-structure",
        "stands behind the only `tile.cluster_arrive`; {before} of {all} stand before it"
    );
    Ok(())
}

/// An operation, with those of a role.
fn with_role(func: &Func, op: Op) -> Vec<Op> {
    let data = &func.ops[op];
    let inside = match data.kind {
        OpKind::Tile(TileOp::Role { .. }) => data.regions.iter().flat_map(|&region| func.blocks[region].ops.clone()).collect(),
        _ => Vec::new(),
    };
    std::iter::once(op).chain(inside).collect()
}

/// The most numbers that blocks of a cluster give each other at a time: each thread has those of all blocks.
const GATHERED: u32 = 16;

/// Numbers of 32 or 64 bits that every thread has, of which every thread gets those of all blocks: a line for each.
fn cluster_gather(site: &Site<'_>) -> Rule {
    let blocks = splits(site)?;
    let in_body = site.func.blocks[site.func.body].ops.iter().any(|&op| std::ptr::eq(&raw const site.func.ops[op], site.op));
    ensure!(in_body, "ir-structure", "stands in the function's body, where every block comes to it once");
    let ty = site.operand(0);
    let moves = ty.num().is_some_and(|dtype| matches!(dtype.bits(), 32 | 64));
    ensure!(moves, "ir-operand-type", "gathers numbers of 32 or 64 bits, not `{ty}`");
    let tile = ty.the_tile();
    let line = tile.len() as u32;
    let counted = tile.shape.len() < 2 && line.is_power_of_two() && line <= GATHERED;
    ensure!(counted, "ir-operand-type", "gathers a number, or a power of two of them up to {GATHERED}, not `{ty}`");
    let shape = std::iter::once(blocks).chain(tile.shape.iter().copied()).collect();
    site.result_tile_is(0, &TileType { shape, elem: tile.elem })?;
    for ty in [ty, site.result(0)] {
        if let (Some(layout), Some(tile)) = (ty.layout(), ty.as_tile()) {
            let apart = |axis: usize| layout.along(axis).lanes != 0 || layout.along(axis).warps != 0;
            let alike = layout.registers() == tile.len() as u64 && !(0..tile.shape.len()).any(apart);
            ensure!(alike, "ir-layout", "every thread has all numbers, and by `{ty}` it has not");
        }
    }
    Ok(())
}

fn ring_of<'m>(site: &Site<'m>, position: usize) -> Result<&'m RingType, Wrong> {
    match site.operand(position) {
        Type::Ring(ring) => Ok(ring),
        ty => Err(site.wrong_operand(position, "a ring", ty)),
    }
}

/// The ring and, after it, a cursor.
fn at<'m>(site: &Site<'m>, position: usize) -> Result<&'m RingType, Wrong> {
    let ring = ring_of(site, position)?;
    value_is(site, position + 1, &Type::Cursor)?;
    Ok(ring)
}

/// Shapes and element types of a product whose operands may lie in shared memory; yields its element types.
pub(super) fn product(site: &Site<'_>, acc: &TileType) -> Result<[DType; 3], Wrong> {
    product_of(site, &shared(site, 1)?.tile(), acc)
}

/// The same, where the right factor may be a tile.
fn product_of(site: &Site<'_>, rhs: &TileType, acc: &TileType) -> Result<[DType; 3], Wrong> {
    let lhs = match site.operand(0) {
        Type::Shared(shared) => shared.tile(),
        _ => spread(site, 0)?.clone(),
    };
    if site.op.places().is_some() {
        return sparse_product(&lhs, rhs, acc, spread(site, 3)?);
    }
    let types = product_shapes(&lhs, rhs, acc)?;
    let [a, b, c] = types;
    let integers = types == [DType::I8, DType::I8, DType::I32];
    ensure!(integers || accumulates(a, b, c), "ir-element-type", "no matrix product of `{a}` and `{b}` accumulates in `{c}`");
    Ok(types)
}

/// Warps of the role at a value's definition; how layouts are checked against who runs them.
pub(super) fn layout_fits(site: &Site<'_>, value: Value, warps: u64) -> Rule {
    let ty = site.ty(value);
    let Some(layout) = ty.layout() else { return Ok(()) };
    let found = layout.warps();
    ensure!(found == warps, "ir-layout", "`{ty}` is spread over {found} warps, but {warps} run the operation");
    Ok(())
}
