//! The buffers of a Tile function: which of them a value may be a part of, and what operations do to them.
//!
//! A buffer is what a `tile.alloc_shared` or `tile.alloc_register` makes. Parts of it (slices, subviews, reordered axes, slots of
//! rings) are the same memory, also where loops and conditions carry them:
//!
//! ```text
//! %all = tile.alloc_shared {align=128} : shared<4x64x16xf32>        buffer 0
//! %slot = tile.slice_shared %all, %i : shared<64x16xf32>            may be a part of buffer 0
//! %x = tile.load_shared %slot : tile<64x16xf32, #0>                 reads a part of buffer 0
//! ```

use smallvec::SmallVec;
use tessera_ir::{EntityId, Func, Op, OpData, OpKind, Queue, ScheduleOp, Space, TileOp, Touch, Type, Value};

use super::exits::loop_exits;
use super::set::Set;

/// What an operation does to a buffer that it names.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The buffer, or a part of it.
    pub buffer: Value,
    /// It reads what was there before.
    pub reads: bool,
    /// It writes.
    pub writes: bool,
    /// All of the value's elements are written.
    pub whole: bool,
    /// It goes on after the operation.
    pub queue: Option<Queue>,
}

/// What an operation does to buffers, in the order of its row. What it exchanges elements through is written and read by itself.
pub fn accesses(func: &Func, data: &OpData) -> SmallVec<[Access; 3]> {
    let buffers = func.touches(data).into_iter().filter(|touch| matches!(touch.space, Space::Shared | Space::Registers));
    let mut found: SmallVec<[Access; 3]> = buffers
        .map(|Touch { value, effect, .. }| Access {
            buffer: value,
            reads: effect.reads(),
            writes: effect.writes(),
            whole: effect.replaces(),
            queue: effect.queue,
        })
        .collect();
    found.extend(data.through.map(|buffer| Access { buffer, reads: false, writes: true, whole: true, queue: None }));
    found
}

/// The buffers of a function.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// What allocates them, in text order.
    pub allocs: Vec<Op>,
    parts: Vec<Set>,
}

impl Buffers {
    /// Finds them.
    pub fn of(func: &Func) -> Buffers {
        let ops = func.linked_ops();
        let mut found = Buffers { allocs: Vec::new(), parts: vec![Set::default(); func.values.len()] };
        for &op in &ops {
            if matches!(func.ops[op].kind, OpKind::Tile(TileOp::AllocShared { .. } | TileOp::AllocRegister {})) {
                found.parts[func.ops[op].result().index()].insert(found.allocs.len());
                found.allocs.push(op);
            }
        }
        let passes: Vec<(Value, Value)> = ops.iter().flat_map(|&op| passed_on(func, op)).collect();
        while passes.iter().fold(false, |changed, &(from, to)| {
            let parts = found.parts[from.index()].clone();
            found.parts[to.index()].extend(&parts) | changed
        }) {}
        found
    }

    /// The buffers that a value may be a part of.
    pub fn parts(&self, value: Value) -> &Set {
        &self.parts[value.index()]
    }

    /// The buffer that a value is, with all its elements.
    pub fn whole(&self, func: &Func, value: Value) -> Option<usize> {
        let buffer = self.parts(value).only()?;
        let all = func.ty(func.ops[self.allocs[buffer]].result()).as_shared()?;
        (func.ty(value).as_shared()?.tile().len() == all.tile().len()).then_some(buffer)
    }
}

/// From which values to which others an operation passes buffers on.
fn passed_on(func: &Func, op: Op) -> Vec<(Value, Value)> {
    let data = &func.ops[op];
    let pairs = |from: &[Value], to: &[Value]| from.iter().copied().zip(to.iter().copied()).collect::<Vec<_>>();
    let mut found = match &data.kind {
        OpKind::Tile(
            TileOp::SliceShared {} | TileOp::SubviewShared { .. } | TileOp::TransposeShared { .. } | TileOp::CollapseShared {},
        ) => {
            vec![(data.one(0), data.result())]
        }
        OpKind::Tile(TileOp::Slot { buffer }) => {
            let ring = func.defining_op(data.one(0)).map(|ring| &func.ops[ring]);
            let whole = ring.and_then(|ring| ring.operands.get(*buffer as usize).copied());
            whole.into_iter().map(|whole| (whole, data.result())).collect()
        }
        OpKind::Schedule(ScheduleOp::For { .. }) => {
            let args = &func.blocks[data.regions[0]].args[1..];
            let mut found = pairs(data.group(3), args);
            found.extend(pairs(args, &data.results));
            for exit in loop_exits(func, op) {
                found.extend(pairs(&func.ops[exit].operands, args));
            }
            found
        }
        OpKind::Schedule(ScheduleOp::Loop {}) => {
            let args = &func.blocks[data.regions[0]].args;
            let mut found = pairs(&data.operands, args);
            for exit in loop_exits(func, op) {
                let leaves = matches!(func.ops[exit].kind, OpKind::Schedule(ScheduleOp::Break {}));
                found.extend(pairs(&func.ops[exit].operands, if leaves { &data.results } else { args }));
            }
            found
        }
        OpKind::Schedule(ScheduleOp::If {}) => data
            .regions
            .iter()
            .filter_map(|&region| func.blocks[region].ops.last())
            .filter(|&&last| matches!(func.ops[last].kind, OpKind::Schedule(ScheduleOp::Yield {})))
            .flat_map(|&last| pairs(&func.ops[last].operands, &data.results))
            .collect(),
        OpKind::Schedule(_) | OpKind::Tile(_) | OpKind::Graph(_) => Vec::new(),
    };
    found.retain(|&(from, _)| matches!(func.ty(from), Type::Shared(_)));
    found
}
