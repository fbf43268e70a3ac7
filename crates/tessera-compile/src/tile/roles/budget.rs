//! What the partitions need: registers of the threads that compute, and the shared memory that the rest of their work borrows.

use tessera_ir::{Block, Effects, Extent, Func, Op, OpKind, ScheduleOp, TileType, TileViewType, Type, Value, bug};
use tessera_types::Arch;

use super::is_free;
use super::shape::{is_coarse, signs};
use super::supply::Supply;
use crate::tile::feed::Way;
use crate::tile::left;
use crate::tile::relation::{Relation, has_layout};
use crate::tile::slots;
use tessera_analysis::sent;

/// Registers for addresses and for what an epilogue works with: where threads compute factors meanwhile, and where they turn them.
pub(super) const WORKING: [u32; 2] = [40, 64];
/// Registers a thread that multiplies while others of its block turn one factor, and where they do more.
const MOST: [u32; 2] = [216, 208];
/// Bytes of shared memory that small operations between chained products may borrow.
const SCRATCH: u32 = 4 << 10;

/// Registers of a thread that starts a product of warpgroups with so many columns: its sums and what the assembler wants beside them. ptxas
/// 13.0 and 13.5 refuse a kernel whose threads start with fewer (C7602), whatever is moved to them later.
pub(super) fn to_start(columns: u32) -> u32 {
    columns.min(256) / 2 + 26
}

/// The products of a function, as far as registers and shared memory care.
pub(super) struct Load<'f> {
    pub(super) func: &'f Func,
    pub(super) products: &'f [Op],
    /// Warps that multiply.
    pub(super) warps: u32,
}

impl Load<'_> {
    fn elements(&self, value: Value) -> u32 {
        self.func.ty(value).as_tile().map_or(0, |tile| tile.len() as u32) / (Arch::WARP * self.warps)
    }

    /// Whether sums of the tensor cores are added up beside them.
    pub(super) fn promotes(&self) -> bool {
        let coarse = |op: Op| matches!(self.func.ty(self.func.ops[op].one(1)).num(), Some(dtype) if is_coarse(dtype));
        self.products.iter().any(|&product| coarse(product) && !signs(&self.func.ops[product].kind).0)
    }

    /// The accumulators, what else the loop with this body carries, and the sums beside them, in elements a thread.
    pub(super) fn sums(&self, body: Block) -> u32 {
        let func = self.func;
        let of = |&product: &Op| self.elements(func.ops[product].result());
        let (carried, last) = (func.blocks[body].args.get(1..).unwrap_or_default(), func.blocks[body].ops.last());
        let handed = last.map_or(&[][..], |&last| &func.ops[last].operands[..]);
        // A sum that is rescaled on its way is the same one.
        let accumulator = |(arg, next): &(&Value, &Value)| {
            self.products.iter().any(|&product| func.ops[product].one(2) == **arg || func.ops[product].result() == **next)
        };
        let others: u32 = carried.iter().zip(handed).filter(|pair| !accumulator(pair)).map(|(&arg, _)| self.elements(arg)).sum();
        let beside = if self.promotes() { self.products.iter().map(of).max().unwrap_or(0).min(64) } else { 0 };
        self.products.iter().map(of).sum::<u32>() + others + beside
    }
}

/// Registers of the threads that copy and of those that compute, where they are moved at all. A warpgroup that fills rings alone keeps few;
/// threads that make factors (`ways`) share with those that multiply, who have `sums` to hold.
pub(super) fn registers(arch: Arch, (copy, compute): (u32, u32), ways: &[Way], sums: u32, promotes: bool) -> Option<[u32; 2]> {
    let all = copy + compute;
    if copy != 4 || compute < 8 {
        return None;
    }
    // Registers are moved among those that the block starts with, the same number a thread.
    let given = arch.registers_at_launch(all * Arch::WARP);
    if ways.is_empty() {
        let few = if compute == 8 { 24 } else { 32 };
        return Some([few, (given * all - few * copy) / compute / 8 * 8]);
    }
    let computes = ways.iter().any(|way| matches!(way, Way::Computed { .. }));
    let most = MOST[usize::from(ways.len() > 1 || promotes)];
    let working = WORKING[usize::from(!computes)];
    let many = (sums + working).next_multiple_of(8).clamp(given, most);
    let few = (given * all - many * compute) / copy / 8 * 8;
    Some([few.min(arch.limits().registers_moved.1), many])
}

/// Bytes of shared memory that the computing partition's other operations borrow.
pub(super) fn borrowed(func: &Func, supply: &Supply) -> u32 {
    let products: Vec<Op> = supply.products.iter().map(|product| product.op).collect();
    if supply.chained {
        // What is stored is the result of the last one, which no other product takes.
        let (Some(&first), Some(&last)) = (products.first(), products.last()) else { bug!("a chain without products") };
        let through = 2 * sums(func, last).len() as u32 + 16 * sums(func, first).shape[0];
        return SCRATCH + if stores_along_lines(func) { 0 } else { through };
    }
    let homes = supply
        .products
        .iter()
        .filter_map(|product| supply.places.block(product.op))
        .filter_map(|block| supply.places.holder(block));
    let homes: Vec<Op> = homes.collect();
    let around = homes.first().and_then(|&looped| supply.places.block(looped)).unwrap_or(func.body);
    epilogue(func, (&products, supply.compute.warps), &homes, &func.blocks[around].ops)
}

/// The tile that a product yields.
fn sums(func: &Func, product: Op) -> &TileType {
    func.ty(func.ops[product].result()).the_tile()
}

/// Every store's lines lie as the last axis of its tile, which a warpgroup's sums fill by whole sectors: they need not go through shared
/// memory on their way out.
fn stores_along_lines(func: &Func) -> bool {
    func.linked_ops().into_iter().all(|op| match &func.ops[op].kind {
        OpKind::Schedule(ScheduleOp::StoreViewTko { .. }) => func.ops[op].operands.iter().all(|&value| match func.ty(value) {
            Type::TileView(view) => lies_in_lines(view),
            _ => true,
        }),
        _ => true,
    })
}

/// The array is contiguous along the tile's last axis.
fn lies_in_lines(view: &TileViewType) -> bool {
    let last = view.dim_map.last().and_then(|&axis| view.tensor.strides.get(axis as usize));
    last == Some(&Extent::Static(1))
}

/// Warpgroups send the tile: a matrix behind axes of extent 1, or lines along several axes where the engine can address them.
fn is_sent(func: &Func, value: Value, view: &TileViewType) -> bool {
    let is_matrix = view.tile.len() >= 2 && view.tile[..view.tile.len() - 2].iter().all(|&extent| extent == 1);
    is_matrix || sent::box_of_rows(&view.tile).is_some() && slots::addressable(func, value, view)
}

/// Bytes of shared memory that the operations behind the loops borrow. Warpgroups send sums in 16 and 32 bits by parts; wider ones fill whole
/// sectors of memory as they lie, and others go through shared memory once.
fn epilogue(func: &Func, (products, warps): (&[Op], u32), loops: &[Op], ops: &[Op]) -> u32 {
    let out = products.iter().map(|&product| sums(func, product).len() as u32).max().unwrap_or(0);
    let borrowed = |&op: &Op| {
        let data = &func.ops[op];
        // Scalars, views and tokens take no shared memory, and what ends a block does not.
        let tiles = data.results.iter().any(|&result| has_layout(func, result));
        if matches!(data.row().effects, Effects::Terminator) || !data.results.is_empty() && !tiles && is_free(func, op) {
            return 0;
        }
        let touches_tiles = tiles || data.operands.iter().any(|&operand| has_layout(func, operand));
        if data.regions.is_empty() && !touches_tiles {
            return 0;
        }
        match (&data.kind, Relation::of(func, op)) {
            (OpKind::Schedule(ScheduleOp::StoreViewTko { .. }), _) => {
                let view = data.operands.iter().find_map(|&value| match func.ty(value) {
                    Type::TileView(view) => Some((value, view)),
                    _ => None,
                });
                let sent = view.map(|(value, view)| (lies_in_lines(view), view.tensor.elem.bits(), is_sent(func, value, view)));
                match sent {
                    Some((true, 16 | 32, true)) => sent::staging_bytes(u64::from(warps)) as u32,
                    Some((true, 32.., _)) => 0,
                    _ => 2 * out,
                }
            }
            _ if loops.contains(&op) => 0,
            (OpKind::Schedule(ScheduleOp::If {} | ScheduleOp::For { .. }), _) => {
                let inside = |&region: &Block| epilogue(func, (products, warps), loops, &func.blocks[region].ops);
                data.regions.iter().map(inside).max().unwrap_or(0)
            }
            (_, Relation::Same | Relation::Broadcast | Relation::Free | Relation::Part(_) | Relation::Joined(_)) => 0,
            (_, Relation::Permute(_)) if left::turns(func, op) => 0,
            (OpKind::Schedule(ScheduleOp::Reshape {} | ScheduleOp::LoadViewTko { .. } | ScheduleOp::Yield {}), _) => 0,
            _ => 2 * out,
        }
    };
    ops.iter().map(borrowed).max().unwrap_or(0)
}

/// Elements a thread that multiplies holds while the products of one loop are done: of loops, the one with most.
pub(super) fn sums_of(func: &Func, supply: &Supply) -> u32 {
    let mut most = 0;
    for product in &supply.products {
        let block = supply.places.block(product.op).unwrap_or_else(|| bug!("a product in no block"));
        let own: Vec<Op> =
            supply.products.iter().map(|other| other.op).filter(|&other| supply.places.block(other) == Some(block)).collect();
        most = most.max(Load { func, products: &own, warps: supply.compute.warps }.sums(block));
    }
    most
}
