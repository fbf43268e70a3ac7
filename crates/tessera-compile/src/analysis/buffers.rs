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

use smallvec::{SmallVec, smallvec};
use tessera_ir::{EntityId, Func, Op, OpData, OpKind, ScheduleOp, TileOp, Type, Value};

use super::exits::loop_exits;
use super::set::Set;

/// What goes on in a buffer after the operation that started it, until it has been waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Queue {
    /// Copies into the buffer that threads started, in groups that `tile.commit_group` makes; `tile.wait_group` waits.
    Copies,
    /// Copies out of the buffer by the accelerator; `tile.tma_store_wait` waits.
    Stores,
    /// Products of the tensor cores that read the buffer; `tile.wgmma_wait` waits.
    Products,
    /// Copies into the buffer by the accelerator; who waits for the slot waits for them.
    Loads,
}

/// What an operation does to a buffer that it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// The buffer, or a part of it.
    pub(crate) buffer: Value,
    /// It reads what was there before.
    pub(crate) reads: bool,
    /// It writes.
    pub(crate) writes: bool,
    /// All of the value's elements are written.
    pub(crate) whole: bool,
    /// It goes on after the operation.
    pub(crate) queue: Option<Queue>,
}

impl Access {
    fn read(buffer: Value) -> Access {
        Access { buffer, reads: true, writes: false, whole: false, queue: None }
    }

    fn write(buffer: Value) -> Access {
        Access { buffer, reads: false, writes: true, whole: true, queue: None }
    }

    /// Some elements.
    fn partly(self) -> Access {
        Access { whole: false, ..self }
    }

    fn in_queue(self, queue: Queue) -> Access {
        Access { queue: Some(queue), ..self }
    }
}

/// What an operation does to buffers, reads first. What it exchanges elements through is written and read by itself.
pub(crate) fn accesses(func: &Func, data: &OpData) -> SmallVec<[Access; 3]> {
    let is_shared = |value: Value| func.ty(value).as_shared().is_some();
    let mut found: SmallVec<[Access; 3]> = match &data.kind {
        OpKind::Tile(kind) => match kind {
            TileOp::LoadShared {} | TileOp::LoadElement {} => smallvec![Access::read(data.one(0))],
            TileOp::StoreShared { .. } => smallvec![Access::write(data.one(1))],
            TileOp::CopyShared {} => smallvec![Access::read(data.one(0)), Access::write(data.one(1))],
            TileOp::StoreElement {} => smallvec![Access::write(data.one(1)).partly()],
            TileOp::LoadVector { .. } if is_shared(data.one(0)) => smallvec![Access::read(data.one(0))],
            TileOp::StoreVector { .. } if is_shared(data.one(1)) => smallvec![Access::write(data.one(1)).partly()],
            TileOp::AtomicElement { .. } => smallvec![Access { writes: true, ..Access::read(data.one(1)) }],
            TileOp::AtomicCasElement {} => smallvec![Access { writes: true, ..Access::read(data.one(2)) }],
            TileOp::CopyAsync { .. } => smallvec![Access::write(data.one(2)).in_queue(Queue::Copies)],
            TileOp::CopyAsyncElement { .. } => smallvec![Access::write(data.one(1)).partly().in_queue(Queue::Copies)],
            TileOp::TmaLoad {} => smallvec![Access::write(data.one(2)).in_queue(Queue::Loads)],
            TileOp::TmaStore {} => smallvec![Access::read(data.one(0)).in_queue(Queue::Stores)],
            TileOp::MmaShared { .. } | TileOp::MmaSync { .. } | TileOp::WgmmaPromoted { .. } | TileOp::Wgmma { .. } => {
                let factors = [data.one(0), data.one(1)].into_iter().filter(|&factor| is_shared(factor)).map(Access::read);
                let started = matches!(kind, TileOp::Wgmma { .. });
                factors.map(|access| if started { access.in_queue(Queue::Products) } else { access }).collect()
            }
            _ => SmallVec::new(),
        },
        OpKind::Schedule(_) | OpKind::Graph(_) => SmallVec::new(),
    };
    found.extend(data.through.map(Access::write));
    found
}

/// The buffers of a function.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    /// What allocates them, in text order.
    pub(crate) allocs: Vec<Op>,
    parts: Vec<Set>,
}

impl Buffers {
    /// Finds them.
    pub(crate) fn of(func: &Func) -> Buffers {
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
    pub(crate) fn parts(&self, value: Value) -> &Set {
        &self.parts[value.index()]
    }

    /// The buffer that a value is, with all its elements.
    pub(crate) fn whole(&self, func: &Func, value: Value) -> Option<usize> {
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
        OpKind::Tile(TileOp::SliceShared {} | TileOp::SubviewShared { .. } | TileOp::TransposeShared { .. }) => {
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
