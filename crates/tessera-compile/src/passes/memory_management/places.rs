//! The places of a function's buffers.
//!
//! First buffers share bytes only where that costs nothing. If fewer blocks are then resident than could be, those share too that
//! cost a barrier outside of loops, then inside of them, the outermost first; the first choice that gives the most blocks is taken.

use tessera_ir::{Diagnostic, Func, Op, OpKind, TileOp, Type};
use tessera_types::Arch;

use super::lifetimes::Lifetimes;
use super::resident;
use tessera_analysis::packing::{Item, Packed, heaviest, pack};
use tessera_analysis::room::{LEAST_ALIGN, MOST_ALIGN, SUM_BARRIERS, buffer_align, buffer_bytes, gathered_bytes};
use tessera_analysis::set::Set;

/// What placing has come to.
pub(super) struct Placed {
    /// Some buffer has another place than before.
    pub(super) changed: bool,
    /// Bytes that a block needs.
    pub(super) bytes: u64,
}

/// Gives every buffer a place.
pub(super) fn place(func: &mut Func, arch: Arch) -> Result<Placed, Box<Diagnostic>> {
    let lifetimes = Lifetimes::of(func);
    let allocs = &lifetimes.buffers.allocs;
    let shared: Vec<usize> = (0..allocs.len()).filter(|&buffer| item(func, allocs[buffer]).is_some()).collect();
    if shared.is_empty() {
        return Ok(Placed { changed: false, bytes: other_bytes(func) });
    }
    let items: Vec<Item> = shared.iter().filter_map(|&buffer| item(func, allocs[buffer])).collect();
    let others = other_bytes(func);
    let packed = choose(func, arch, &lifetimes, &shared, &items, others);
    let (bytes, limit) = (packed.bytes + others, u64::from(arch.limits().shared_per_block));
    if bytes > limit {
        return Err(Box::new(too_large(func, arch, &lifetimes, bytes, others)));
    }
    let mut changed = false;
    for (&buffer, offset) in shared.iter().zip(packed.offsets) {
        if let OpKind::Tile(TileOp::AllocShared { offset: place, align }) = &mut func.ops[allocs[buffer]].kind {
            *align = (*align).min(MOST_ALIGN as u32);
            changed |= *place != Some(offset as u32);
            *place = Some(offset as u32);
        }
    }
    Ok(Placed { changed, bytes })
}

fn item(func: &Func, alloc: Op) -> Option<Item> {
    let data = &func.ops[alloc];
    match (&data.kind, func.ty(data.result())) {
        (OpKind::Tile(TileOp::AllocShared { align, .. }), Type::Shared(ty)) => {
            Some(Item { bytes: buffer_bytes(ty), align: buffer_align(ty, *align) })
        }
        _ => None,
    }
}

/// What lies in shared memory besides buffers: arrays of each thread's own, the barriers of rings and sums, and what other blocks
/// send.
fn other_bytes(func: &Func) -> u64 {
    let threads = u64::from(func.hints.threads());
    let of = |op: Op| match (&func.ops[op].kind, func.ops[op].results.first().map(|&result| func.ty(result))) {
        (OpKind::Tile(TileOp::AllocRegister {}), Some(Type::Registers(tile))) => tile.len() as u64 * tile.elem.bytes() * threads,
        (OpKind::Tile(TileOp::Ring { stages, .. }), _) => 16 * u64::from(*stages),
        (OpKind::Tile(TileOp::ClusterSum { .. }), _) => SUM_BARRIERS,
        (OpKind::Tile(TileOp::ClusterGather {}), Some(ty)) => gathered_bytes(ty.the_tile()),
        _ => 0,
    };
    func.linked_ops().into_iter().map(|op| of(op).next_multiple_of(LEAST_ALIGN)).sum()
}

/// The packing that gives the most resident blocks, and of those the one whose barriers cost least.
fn choose(func: &Func, arch: Arch, lifetimes: &Lifetimes, shared: &[usize], items: &[Item], others: u64) -> Packed {
    let blocks = |packed: &Packed| resident::blocks(func, arch, packed.bytes + others);
    let deepest = (0..shared.len()).flat_map(|a| (0..a).filter_map(move |b| lifetimes.barrier(shared[a], shared[b]))).max();
    // Sharing is allowed where its barrier stands in fewer loops than this.
    let with = |allowed: u32| {
        pack(items, |a, b| {
            let (a, b) = (shared[a], shared[b]);
            lifetimes.are_apart(a, b) || lifetimes.barrier(a, b).is_some_and(|loops| loops >= allowed)
        })
    };
    let all = deepest.map_or(0, |deepest| deepest + 1);
    let tightest = with(all);
    let most = blocks(&tightest);
    (0..all).map(with).find(|packed| blocks(packed) >= most && blocks(packed) > 0).unwrap_or(tightest)
}

/// The error where buffers do not fit: what is needed at the fullest point.
fn too_large(func: &Func, arch: Arch, lifetimes: &Lifetimes, bytes: u64, others: u64) -> Diagnostic {
    let limit = u64::from(arch.limits().shared_per_block);
    let size = |buffer: usize| item(func, lifetimes.buffers.allocs[buffer]).map_or(0, |item| item.bytes);
    let sum = |set: &Set| set.iter().map(size).sum::<u64>();
    let together = Set::of(heaviest(lifetimes.buffers.allocs.len(), size, |a, b| lifetimes.are_apart(a, b)));
    let of_them = |set: &Set| {
        let mut both = set.clone();
        both.intersect(&together);
        sum(&both)
    };
    let fullest = lifetimes.occupied.iter().rev().max_by_key(|(_, set)| of_them(set));
    let message = format!("the kernel needs {bytes} bytes of shared memory, {} more than a block has on `{arch}`", bytes - limit);
    let Some((peak, _)) = fullest else { return Diagnostic::error("target-shared-memory", func.span, message) };
    let mut members: Vec<usize> = together.iter().filter(|&buffer| size(buffer) > 0).collect();
    members.sort_by_key(|&buffer| std::cmp::Reverse(size(buffer)));
    let mut error = Diagnostic::error("target-shared-memory", func.ops[*peak].span, message);
    let mut listed = Vec::new();
    for &buffer in &members {
        let data = &func.ops[lifetimes.buffers.allocs[buffer]];
        let name = func.values[data.result()].name.as_ref().map_or(String::new(), |name| format!(" `{name}`"));
        listed.push(format!("{} bytes{name} for `{}`", size(buffer), func.ty(data.result())));
    }
    if others > 0 {
        listed.push(format!("{others} bytes for arrays of threads and for queues"));
    }
    error = error.note(format!("needed together here: {}", listed.join(", ")));
    let halved = members.first().is_some_and(|&largest| bytes - size(largest) / 2 <= limit);
    error.help(match halved {
        true => "half the size of the largest of them would fit: make its tile smaller, or use fewer stages",
        false => "make the tiles smaller, or use fewer stages",
    })
}
