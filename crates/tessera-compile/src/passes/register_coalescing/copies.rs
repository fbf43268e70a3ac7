//! Two arrays of registers become one where one of them is a copy of the other and they are not needed side by side.
//!
//! A copy is a loop that moves every element, or a row of moves of all of them. As for registers of a machine, the arrays can be one
//! if neither is written where the other's old contents are still read: by control flow, so that a read in the next round of
//! a loop counts, whatever the order of the text is.
//!
//! ```text
//! for 0, 100, 1 (%i) { tile.store_element (tile.load_element %a, [%i]), %b, [%i] }       %a is not read from here on: %b is %a
//! ```

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_ir::{Block, Const, Func, Op, OpKind, ScheduleOp, TileOp, Type, Value, bug};

/// A copy of a whole array.
struct Copy {
    from: Value,
    to: Value,
    /// Its operations: reading begins with the first, which stands for all.
    ops: Vec<Op>,
}

/// Merges arrays; true if there were any.
pub(super) fn merge(func: &mut Func) -> bool {
    let mut changed = false;
    while let Some(copy) = next(func) {
        let Copy { from, to, ops } = copy;
        for block in func.linked_blocks() {
            func.blocks[block].ops.retain(|op| !ops.contains(op));
        }
        func.replace_uses(|value| if value == to { from } else { value });
        first_of_two(func, from, to);
        changed = true;
    }
    changed
}

/// The array that stays is allocated where the first of the two was.
fn first_of_two(func: &mut Func, from: Value, to: Value) {
    let (Some(kept), Some(gone)) = (func.defining_op(from), func.defining_op(to)) else {
        bug!("an array that is not allocated");
    };
    let block = func.block_of(kept);
    let block = &mut func.blocks[block];
    let (a, b) = (block.place_of(kept), block.place_of(gone));
    block.ops[a.min(b)] = kept;
    block.ops.remove(a.max(b));
}

fn next(func: &Func) -> Option<Copy> {
    let flow = Flow::of(func);
    func.linked_blocks().into_iter().flat_map(|block| copies(func, block)).find(|copy| {
        let together = |a: Value, b: Value| {
            let (Some(a), Some(b)) = (func.defining_op(a), func.defining_op(b)) else { return false };
            func.linked_blocks().iter().any(|&block| [a, b].iter().all(|op| func.blocks[block].ops.contains(op)))
        };
        copy.from != copy.to
            && func.ty(copy.from) == func.ty(copy.to)
            && together(copy.from, copy.to)
            && !flow.interferes(func, copy)
    })
}

/// The copies of a block.
fn copies(func: &Func, block: Block) -> Vec<Copy> {
    let ops = &func.blocks[block].ops;
    let mut found: Vec<Copy> = ops.iter().filter_map(|&op| looped(func, op)).collect();
    for at in 0..ops.len() {
        found.extend(row(func, &ops[at..]));
    }
    found
}

fn length(func: &Func, array: Value) -> Option<u64> {
    match func.ty(array) {
        Type::Registers(tile) => Some(tile.len() as u64),
        _ => None,
    }
}

/// The element that an operation moves from an array of registers to another: both, and the value between.
fn loaded(func: &Func, op: Op) -> Option<(Value, &[Value], Value)> {
    let data = &func.ops[op];
    let is = matches!(data.kind, OpKind::Tile(TileOp::LoadElement {})) && length(func, data.one(0)).is_some();
    is.then(|| (data.one(0), data.group(1), data.result()))
}

fn stored(func: &Func, op: Op) -> Option<(Value, &[Value], Value)> {
    let data = &func.ops[op];
    let is = matches!(data.kind, OpKind::Tile(TileOp::StoreElement { .. })) && length(func, data.one(1)).is_some();
    is.then(|| (data.one(1), data.group(2), data.one(0)))
}

/// A loop over all elements that does nothing but move them.
fn looped(func: &Func, op: Op) -> Option<Copy> {
    let data = &func.ops[op];
    let rounds = func.known_rounds(data)?;
    let number = |at: usize| func.constant(data.one(at)).and_then(Const::as_int);
    if number(0) != Some(0) || number(2) != Some(1) || !data.results.is_empty() {
        return None;
    }
    let body = &func.blocks[data.regions[0]];
    let [load, store, _] = body.ops[..] else { return None };
    let ((from, read, moved), (to, written, value)) = (loaded(func, load)?, stored(func, store)?);
    let all = read == &body.args[..1] && written == &body.args[..1] && moved == value && length(func, from)? == rounds;
    all.then(|| Copy { from, to, ops: vec![op] })
}

/// A loop that gives every element of an array new contents before any is read.
fn fills(func: &Func, op: Op, array: Value) -> bool {
    let data = &func.ops[op];
    let (Some(rounds), Some(count)) = (func.known_rounds(data), length(func, array)) else { return false };
    let number = |at: usize| func.constant(data.one(at)).and_then(Const::as_int);
    let body = &func.blocks[data.regions[0]];
    let plain = body.ops.iter().all(|&op| func.ops[op].regions.is_empty());
    let touches = body.ops.iter().filter(|&&op| func.ops[op].used().any(|used| used == array));
    let writes = |&op: &Op| stored(func, op).is_some_and(|(to, at, _)| to == array && at == &body.args[..1]);
    rounds == count
        && number(0) == Some(0)
        && number(2) == Some(1)
        && plain
        && touches.clone().count() == 1
        && touches.copied().all(|op| writes(&op))
}

/// A row of operations that moves every element, chosen by constants.
fn row(func: &Func, ops: &[Op]) -> Option<Copy> {
    let (from, _, _) = loaded(func, *ops.first()?)?;
    let count = length(func, from)?;
    let mut values: FxHashMap<Value, SmallVec<[i64; 2]>> = FxHashMap::default();
    let mut moved: FxHashSet<SmallVec<[i64; 2]>> = FxHashSet::default();
    let mut to = None;
    let mut taken = Vec::new();
    let constants = |indices: &[Value]| -> Option<SmallVec<[i64; 2]>> {
        indices.iter().map(|&index| func.constant(index).and_then(Const::as_int)).collect()
    };
    for &op in ops {
        if matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Constant { .. })) {
            continue;
        }
        if let Some((array, indices, value)) = loaded(func, op) {
            if array != from {
                return None;
            }
            values.insert(value, constants(indices)?);
        } else {
            let (array, indices, value) = stored(func, op)?;
            let at = constants(indices)?;
            if *to.get_or_insert(array) != array || array == from || values.get(&value) != Some(&at) {
                return None;
            }
            moved.insert(at);
        }
        taken.push(op);
        if moved.len() as u64 == count {
            let inside: FxHashSet<Op> = taken.iter().copied().collect();
            let alone = func
                .linked_ops()
                .into_iter()
                .all(|op| inside.contains(&op) || !func.ops[op].used().any(|used| values.contains_key(&used)));
            return alone.then_some(Copy { from, to: to?, ops: taken });
        }
    }
    None
}

/// Control flow between operations.
struct Flow {
    next: FxHashMap<Op, SmallVec<[Op; 2]>>,
}

impl Flow {
    fn of(func: &Func) -> Flow {
        let mut flow = Flow { next: FxHashMap::default() };
        flow.block(func, func.body, None, None);
        flow
    }

    /// `after` is what follows the block's end, `around` the innermost loop: its body and what follows it.
    fn block(&mut self, func: &Func, block: Block, after: Option<Op>, around: Option<(Op, Option<Op>)>) {
        let ops = &func.blocks[block].ops;
        for (at, &op) in ops.iter().enumerate() {
            let data = &func.ops[op];
            let following = ops.get(at + 1).copied().or(after);
            let entries = data.regions.iter().filter_map(|&region| func.blocks[region].ops.first().copied());
            let next: SmallVec<[Op; 2]> = match &data.kind {
                OpKind::Schedule(ScheduleOp::Continue {}) => {
                    around.iter().flat_map(|&(start, out)| std::iter::once(start).chain(out)).collect()
                }
                OpKind::Schedule(ScheduleOp::Break {}) => around.and_then(|(_, out)| out).into_iter().collect(),
                OpKind::Schedule(ScheduleOp::Return {}) => SmallVec::new(),
                OpKind::Schedule(ScheduleOp::Yield {}) => after.into_iter().collect(),
                _ => entries.chain(following).collect(),
            };
            self.next.insert(op, next);
            let is_loop = matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}));
            for &region in &data.regions {
                let start = func.blocks[region].ops.first().copied();
                let inner = start.filter(|_| is_loop).map(|start| (start, following)).or(around);
                self.block(func, region, following, inner);
            }
        }
    }

    /// Whether two arrays hold different contents where both are needed, the copy from one to the other aside.
    fn interferes(&self, func: &Func, copy: &Copy) -> bool {
        let all: FxHashSet<Op> = func.linked_ops().into_iter().collect();
        let own: FxHashSet<Op> = copy.ops.iter().copied().collect();
        let mut inner: FxHashSet<Op> = own.clone();
        for &op in &copy.ops {
            inner.extend(func.ops[op].regions.iter().flat_map(|&region| func.blocks[region].ops.iter().copied()));
        }
        let writes = |array: Value| {
            let own = &inner;
            all.iter().copied().filter(move |op| !own.contains(op) && stored(func, *op).is_some_and(|(to, ..)| to == array))
        };
        let clashes = |written: Value, other: Value| writes(written).any(|op| self.is_read(func, copy, &inner, op, other));
        clashes(copy.from, copy.to) || clashes(copy.to, copy.from)
    }

    /// Whether an array is read behind an operation before the copy gives it new contents.
    fn is_read(&self, func: &Func, copy: &Copy, inner: &FxHashSet<Op>, behind: Op, array: Value) -> bool {
        let mut seen: FxHashSet<Op> = FxHashSet::default();
        let mut open: Vec<Op> = self.next.get(&behind).into_iter().flatten().copied().collect();
        while let Some(op) = open.pop() {
            if !seen.insert(op) {
                continue;
            }
            if op == copy.ops[0] {
                if array == copy.from {
                    return true;
                }
                continue;
            }
            if fills(func, op, array) {
                continue;
            }
            let reads = !inner.contains(&op)
                && func.ops[op].used().any(|used| used == array)
                && !matches!(func.ops[op].kind, OpKind::Tile(TileOp::StoreElement { .. }));
            if reads {
                return true;
            }
            open.extend(self.next.get(&op).into_iter().flatten().copied());
        }
        false
    }
}
