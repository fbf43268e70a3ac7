//! A thread's accesses to neighbours become one.
//!
//! Accesses of one kind at one place ([`Place`](super::accesses::Place)) are gathered as long as nothing stands between them that may
//! touch the same memory: loads then move up to the first of them, stores down to the last. A run of elements that follow each
//! other is cut into the widest accesses, up to 16 bytes, whose address is proven to be a multiple of their size.
//!
//! ```text
//! elements 1 2 3 4 5 6 7 at an address that is a multiple of 16, 4 bytes each:  1 | 2 3 | 4 5 6 7
//! ```

use rustc_hash::FxHashMap;
use tessera_ir::{Block, Effects, Func, Op, OpKind, TileOp, Type, Value, bug};

use super::accesses::{Access, Context, Relation};
use tessera_analysis::facts::power;

/// Bytes of the widest access.
const WIDEST: u64 = 16;

/// Accesses that may become one.
struct Group {
    members: Vec<Access>,
    /// Elements that were written since the first of a group of loads was read.
    written: Vec<i64>,
}

/// Merges accesses; true if there were any to merge.
pub(super) fn widen(func: &mut Func) -> bool {
    let mut merges: Vec<(Block, Vec<Access>)> = Vec::new();
    let cx = Context::new(func);
    for block in func.linked_blocks() {
        merges.extend(gather(&cx, block).into_iter().map(|chunk| (block, chunk)));
    }
    let mut map = FxHashMap::default();
    let mut changed = false;
    for (block, chunk) in merges {
        changed |= merge(func, block, &chunk, &mut map);
    }
    func.replace_uses(|value| map.get(&value).copied().unwrap_or(value));
    changed
}

/// The accesses of a block that become one, group by group.
fn gather(cx: &Context<'_>, block: Block) -> Vec<Vec<Access>> {
    let mut open: Vec<Group> = Vec::new();
    let mut chunks = Vec::new();
    for &op in &cx.func.blocks[block].ops {
        if matches!(cx.func.ops[op].row().effects, Effects::Pure | Effects::MayTrap) {
            continue;
        }
        let own = cx.access(op).cloned();
        let mut rest = Vec::with_capacity(open.len());
        for mut group in std::mem::take(&mut open) {
            let first = &group.members[0];
            let same = own.as_ref().is_some_and(|own| joins(first, own));
            let kept = same
                || match cx.relation(op, first) {
                    Relation::Apart => true,
                    Relation::Element(element) if first.stores => group.members.iter().all(|member| member.element != element),
                    Relation::Element(element) => {
                        group.written.push(element);
                        true
                    }
                    Relation::Meets => false,
                };
            if kept { rest.push(group) } else { chunks.extend(cut(cx, group)) }
        }
        open = rest;
        let Some(own) = own else { continue };
        let at = open.iter().position(|group| joins(&group.members[0], &own));
        if let Some(at) = at {
            let again = open[at].members.iter().any(|member| own.stores && member.element == own.element);
            if !again && !open[at].written.contains(&own.element) {
                open[at].members.push(own);
                continue;
            }
            chunks.extend(cut(cx, open.remove(at)));
        }
        open.push(Group { members: vec![own], written: Vec::new() });
    }
    chunks.extend(open.into_iter().flat_map(|group| cut(cx, group)));
    chunks
}

fn joins(a: &Access, b: &Access) -> bool {
    a.stores == b.stores && a.cache == b.cache && a.place == b.place
}

/// Cuts a group into accesses of two elements and more.
fn cut(cx: &Context<'_>, mut group: Group) -> Vec<Vec<Access>> {
    group.members.sort_by_key(|member| member.element);
    group.members.dedup_by_key(|member| member.element);
    let members = group.members;
    let mut chunks = Vec::new();
    let mut from = 0;
    while from < members.len() {
        let first = &members[from];
        let run = members[from..].iter().zip(first.element..).take_while(|(member, element)| member.element == *element).count();
        let bytes = first.bytes();
        let proven = address_divisor(cx, first).max(first.align.min(power(first.element.unsigned_abs()).saturating_mul(bytes)));
        let fits = |count: &u64| {
            *count as usize <= run
                && count * bytes <= WIDEST
                && proven.is_multiple_of(count * bytes)
                && first.line.is_multiple_of(*count)
        };
        let count = [16, 8, 4, 2].into_iter().find(fits).unwrap_or(1) as usize;
        if count > 1 {
            chunks.push(members[from..from + count].to_vec());
        }
        from += count;
    }
    chunks
}

/// A power of two that divides an access's address by what is known of its pointer.
fn address_divisor(cx: &Context<'_>, access: &Access) -> u64 {
    let pointer = address(&cx.func.ops[access.op], access.stores)[0];
    if cx.func.ty(pointer).is_scalar() { power(cx.facts.fact(pointer).divisor) } else { 1 }
}

/// The operands that say where: a pointer, or a buffer and indices.
fn address(data: &tessera_ir::OpData, stores: bool) -> Vec<Value> {
    let at = usize::from(stores && matches!(data.kind, OpKind::Tile(_)));
    match data.kind {
        OpKind::Tile(_) => data.group(at).iter().chain(data.group(at + 1)).copied().collect(),
        OpKind::Schedule(_) | OpKind::Graph(_) => vec![data.one(0)],
    }
}

/// Puts one access in the place of several.
fn merge(func: &mut Func, block: Block, chunk: &[Access], map: &mut FxHashMap<Value, Value>) -> bool {
    let stores = chunk[0].stores;
    let places = chunk.iter().map(|access| func.blocks[block].place_of(access.op));
    let at = if stores { places.max() } else { places.min() };
    let mut ops = func.blocks[block].ops.clone();
    let first = func.ops[chunk[0].op].clone();
    let place = address(&first, stores);
    let mut at = at.unwrap_or_else(|| bug!("no accesses put together"));
    if !stores && !hoist(func, &mut ops, &place, &mut at, map) {
        return false;
    }
    let cache = chunk[0].cache;
    let (target, indices) = (&place[..1], &place[1..]);
    let made = if stores {
        let values: Vec<Value> = chunk.iter().map(|access| stored(func, access.op)).collect();
        func.make_op(TileOp::StoreVector { cache }.into(), &[&values, target, indices], [], [], first.span)
    } else {
        let types = vec![Type::scalar(chunk[0].place.dtype); chunk.len()];
        func.make_op(TileOp::LoadVector { cache }.into(), &[target, indices], types, [], first.span)
    };
    if !stores {
        for (position, access) in chunk.iter().enumerate() {
            let (old, new) = (func.ops[access.op].results[0], func.ops[made].results[position]);
            func.values[new].name = func.values[old].name.clone();
            map.insert(old, new);
        }
    }
    // Behind the last store, in front of the first load.
    ops.insert(if stores { at + 1 } else { at }, made);
    ops.retain(|op| chunk.iter().all(|access| access.op != *op));
    func.blocks[block].ops = ops;
    true
}

fn stored(func: &Func, op: Op) -> Value {
    let data = &func.ops[op];
    if matches!(data.kind, OpKind::Tile(_)) { data.one(0) } else { data.one(1) }
}

/// Moves what computes some values before a position of a block, as far as it stands behind it; false, and nothing moved, where that
/// cannot be.
fn hoist(func: &Func, ops: &mut Vec<Op>, values: &[Value], at: &mut usize, map: &FxHashMap<Value, Value>) -> bool {
    let place: FxHashMap<Op, usize> = ops.iter().enumerate().map(|(place, &op)| (op, place)).collect();
    let mut moved: Vec<usize> = Vec::new();
    let mut open: Vec<Value> = values.to_vec();
    while let Some(value) = open.pop() {
        let value = map.get(&value).copied().unwrap_or(value);
        let Some(&found) = func.defining_op(value).and_then(|op| place.get(&op)) else { continue };
        if found < *at || moved.contains(&found) {
            continue;
        }
        let data = &func.ops[ops[found]];
        if data.row().effects != Effects::Pure || !data.regions.is_empty() {
            return false;
        }
        moved.push(found);
        open.extend(data.used());
    }
    moved.sort_unstable();
    for found in moved {
        let op = ops.remove(found);
        ops.insert(*at, op);
        *at += 1;
    }
    true
}
