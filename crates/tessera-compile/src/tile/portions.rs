//! What is loaded behind a product's loop, as a residual that is added to its sums, comes in portions as wide as the loop's left factor: the copy
//! engine can bring those through the slots of that factor, while the last rounds are multiplied.
//!
//! ```text
//! %r = load_view_tko %view, [%i, %j] : tile<128x256xbf16>
//!
//! %p0 = load_view_tko %narrow, [%i, 4 * %j] : tile<128x64xbf16>  ...  %p3 = load_view_tko %narrow, [%i, 4 * %j + 3]
//! %r = cat (cat %p0, %p1), (cat %p2, %p3)
//! ```
//! **Predicate.** The tile stands behind the loop in its block, has the rows and the type of a left factor that the copy engine brings, lies in memory as
//! that does, and is 2, 4 or 8 times as wide. Nothing is ordered with its load, and no product takes it. Blocks do not share the rounds of a tile: what
//! is left of its sums is spread over them in other ways.

use tessera_ir::{
    Block, Builder, Func, Op, OpKind, ScheduleOp, SharedType, Sharing, TileType, TileViewType, Type, Value, ViewKind, bug,
};

use super::feed::{brought, looked_at};
use super::numbers::Numbers;
use super::roles::is_product;
use tessera_types::Arch;

/// How many times as wide a tile is at most.
const MOST: u32 = 8;

/// Cuts every load that is so.
pub(super) fn cut(func: &mut Func, arch: Arch) -> bool {
    if !arch.has_wgmma() || matches!(func.hints.shares(), Sharing::Rounds | Sharing::Cluster) {
        return false;
    }
    let mut changed = false;
    for block in func.linked_blocks() {
        let Some((slot, behind)) = slot(func, block) else { continue };
        let loads: Vec<Op> = func.blocks[block].ops[behind..].to_vec();
        for load in loads {
            if let Some(view) = narrow(func, load, &slot) {
                replace(func, (block, load), view);
                changed = true;
            }
        }
    }
    changed
}

/// The buffer of the left factor of a block's last loop that has products, and the place behind that loop.
fn slot(func: &Func, block: Block) -> Option<(SharedType, usize)> {
    let ops = &func.blocks[block].ops;
    let (place, product) = ops.iter().enumerate().rev().find_map(|(place, &op)| {
        let OpKind::Schedule(ScheduleOp::For { .. }) = func.ops[op].kind else { return None };
        let body = func.ops[op].regions[0];
        let product = func.blocks[body].ops.iter().copied().find(|&op| is_product(func, op))?;
        Some((place, product))
    })?;
    let load = looked_at(func, func.ops[product].one(0))?;
    Some((brought(func, load).ok()?, place + 1))
}

/// The view of a load's array in tiles as wide as a slot, where the load is one that is cut.
fn narrow(func: &Func, load: Op, slot: &SharedType) -> Option<TileViewType> {
    if !is_brought_alone(func, load) {
        return None;
    }
    let (Type::TileView(view), &[rows, columns]) = (func.ty(func.ops[load].one(0)), &slot.shape[..]) else { return None };
    let times = match view.tile[..] {
        [own, wide] if own == rows && wide.is_multiple_of(columns) => wide / columns,
        _ => return None,
    };
    let fits = view.kind == ViewKind::Partition && times.is_power_of_two() && (2..=MOST).contains(&times);
    let lies = brought(func, load).ok()?;
    let alike = (lies.elem, &lies.order) == (slot.elem, &slot.order);
    (fits && alike).then(|| TileViewType { tile: slot.shape.clone(), ..(**view).clone() })
}

/// A weak load of a view that is ordered with nothing, and that no product takes.
pub(super) fn is_brought_alone(func: &Func, load: Op) -> bool {
    let data = &func.ops[load];
    let is_load = matches!(data.kind, OpKind::Schedule(ScheduleOp::LoadViewTko { .. }));
    if !is_load || !data.kind.schedule().is_some_and(ScheduleOp::is_weak_load) || !data.group(2).is_empty() {
        return false;
    }
    func.linked_ops().into_iter().all(|op| {
        let taken = is_product(func, op) && (0..2).any(|side| looked_at(func, func.ops[op].one(side)) == Some(load));
        !taken && !func.ops[op].used().any(|used| used == data.results[1])
    })
}

fn replace(func: &mut Func, (block, load): (Block, Op), view: TileViewType) {
    let data = func.ops[load].clone();
    let Type::TileView(wide) = func.ty(data.one(0)) else { bug!("a load of no view") };
    let times = wide.tile[1] / view.tile[1];
    let Some(array) = func.defining_op(data.one(0)).map(|made| func.ops[made].one(0)) else { bug!("a view that nothing makes") };
    let ty = Type::Tile(TileType { shape: view.tile.clone(), ..func.ty(data.results[0]).the_tile().clone() });
    let at = func.blocks[block].place_of(load);
    let behind = func.blocks[block].ops.split_off(at);
    let mut b = Builder { block, span: data.span, func };
    let narrow = b.value(ScheduleOp::MakePartitionView {}, &[&[array]], Type::TileView(Box::new(view)));
    let [rows, columns] = data.group(1) else { bug!("two axes with other indices") };
    let many = b.number(i64::from(times));
    let first = b.times(*columns, many);
    let mut parts: Vec<Value> = (0..times)
        .map(|part| {
            let column = match part {
                0 => first,
                part => {
                    let part = b.number(i64::from(part));
                    b.plus(first, part)
                }
            };
            let OpKind::Schedule(kind) = data.kind.clone() else { bug!("a load") };
            let made = b.op(kind, &[&[narrow], &[*rows, column], &[]], [ty.clone(), Type::Token]);
            let part = b.func.ops[made].results[0];
            b.func.values[part].name = b.func.values[data.results[0]].name.clone();
            part
        })
        .collect();
    while parts.len() > 1 {
        parts = parts
            .chunks(2)
            .map(|pair| {
                let mut tile = b.func.ty(pair[0]).the_tile().clone();
                tile.shape[1] *= 2;
                b.value(ScheduleOp::Cat { dim: 1 }, &[&[pair[0]], &[pair[1]]], Type::Tile(tile))
            })
            .collect();
    }
    func.blocks[block].ops.extend(behind.into_iter().filter(|&op| op != load));
    let (old, new) = (data.results[0], parts[0]);
    func.replace_uses(|value| if value == old { new } else { value });
}
