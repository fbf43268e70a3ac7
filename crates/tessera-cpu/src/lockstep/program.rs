//! A Tile function made ready, and its launches.

use tessera_ir::attrs::{AtomicMode, CacheHint, Combine, MemoryOrder, Overflow, Rounding, Signedness};
use tessera_ir::fragment;
use tessera_ir::uniformity::is_per_thread;
use tessera_ir::{
    Diagnostic, Elem, EntityId, Func, Level, Module, Op, OpData, OpKind, Padding, ScheduleOp, Shape, TileOp, TileType, Type,
    Value,
};
use tessera_types::DType;
use tessera_types::packed::Packing;

use super::machine::Machine;
use super::micro::{self, Micro, Operand, Single};
use crate::blocks::Blocks;
use crate::build::may_wait;
use crate::exec::Range;
use crate::launch::{Arg, Fault, RunOptions, ranges};

/// Blocks that run where these share the work of those that are asked for.
const WORKERS: u32 = 2;
/// The same where they share the work of one: more than a tile's pieces may be, so that some tiles have several and some blocks none.
const SHARERS: u32 = 5;

/// A Tile function ready to run in lock-step.
#[derive(Debug)]
pub struct Program {
    pub(super) func: Func,
    /// Threads of a block.
    pub(super) threads: usize,
    /// Scalars are each thread's own.
    pub(super) per_thread: bool,
    /// It has all barriers that its threads need.
    pub(super) all_barriers: bool,
    /// Blocks update memory that others may update too.
    meets: bool,
    /// Blocks may wait for others.
    may_wait: bool,
    /// Operations that the Schedule executor does, by number.
    micros: Vec<Option<Micro>>,
}

impl Program {
    /// Prepares a function of the module, which the verifier has found right.
    pub fn prepare(module: &Module, func: &Func) -> Result<Program, Diagnostic> {
        let warps = func.hints.num_warps.unwrap_or(0);
        if func.level != Level::Tile || !(1..=32).contains(&warps) {
            let message = format!("`@{}` is not a tile function with 1 to 32 warps", func.name);
            return Err(Diagnostic::error("cpu-level", func.span, message));
        }
        let threads = func.hints.threads() as usize;
        let mut micros: Vec<Option<Micro>> = Vec::new();
        micros.resize_with(func.ops.len(), || None);
        for (op, data) in executed(func) {
            packed(func, data)?;
            if let Some(single) = single(func, data, threads) {
                micros[op.index()] = Some(Micro::build(module, &single).map_err(|diagnostic| *diagnostic)?);
            }
        }
        let meets = executed(func).iter().any(|(_, data)| match data.kind.schedule() {
            Some(kind) => matches!(
                kind,
                ScheduleOp::AtomicRmwTko { .. } | ScheduleOp::AtomicCasTko { .. } | ScheduleOp::AtomicRedViewTko { .. }
            ),
            None => false,
        });
        let (per_thread, may_wait) = (is_per_thread(func), may_wait(func));
        Ok(Program { func: func.clone(), threads, per_thread, all_barriers: false, meets, may_wait, micros })
    }

    /// The same of a function that has all barriers that its threads need, those that the compiler puts in among them: what shares memory without one is
    /// reported by checked launches.
    #[must_use]
    pub fn with_all_barriers(self) -> Program {
        Program { all_barriers: true, ..self }
    }

    pub(super) fn micro(&self, op: Op) -> Option<&Micro> {
        self.micros[op.index()].as_ref()
    }

    /// Runs every block of the grid, one after another where they update memory atomically: then what they leave could depend on
    /// their order.
    ///
    /// # Safety
    /// Every pointer argument and allocation is valid for reads and writes of its bytes, and nothing else uses that memory while
    /// the launch runs. Whatever the program does, only that memory is touched.
    pub unsafe fn run(&self, grid: [u32; 3], args: &[Arg], options: &RunOptions<'_>) -> Result<(), Fault> {
        let mut memory = ranges(self.func.args().len(), args, options, self.func.span)?;
        memory.extend(self.micros.iter().flatten().flat_map(Micro::globals));
        let threads = match options.checked || self.meets {
            true => 1,
            false => options.threads.unwrap_or_else(rayon::current_num_threads),
        };
        // Blocks that share the work of those that are asked for: more than one, so that it matters which they are.
        let workspaces = workspaces(&self.func);
        let cluster = self.func.hints.cluster.unwrap_or(1);
        let launched = match self.func.hints.persistent {
            Some(_) if !workspaces.is_empty() => [SHARERS, 1, 1],
            Some(_) => [grid.iter().product::<u32>().min(WORKERS).next_multiple_of(cluster), 1, 1],
            None => [grid[0].next_multiple_of(cluster), grid[1], grid[2]],
        };
        let blocks = (launched.iter().product::<u32>() * self.func.hints.shares_of_one()) as usize;
        let range = |base: *mut u8, bytes: usize| Range { start: base as u64, end: base as u64 + bytes as u64 };
        let mut shared: Vec<(Op, Vec<u64>)> =
            workspaces.iter().map(|&(op, bytes)| (op, vec![0; (bytes as usize * blocks).div_ceil(8)])).collect();
        let shared: Vec<(Op, Range)> =
            shared.iter_mut().map(|(op, words)| (*op, range(words.as_mut_ptr().cast(), 8 * words.len()))).collect();
        memory.extend(shared.iter().map(|&(_, range)| range));
        let blocks = Blocks::new(launched, threads);
        let crowd = blocks.crowd().filter(|_| self.may_wait);
        blocks.run(|| {
            let mut machine = Machine::new(self, [grid, launched], (memory.clone(), &shared), options, crowd);
            blocks.drain(|block| {
                // SAFETY: the caller's promise.
                let outcome = unsafe { machine.run_cluster(block, args) };
                (std::mem::take(&mut machine.text), outcome)
            });
        });
        blocks.finish(options)
    }
}

/// The launch's memory, with its bytes for each block.
fn workspaces(func: &Func) -> Vec<(Op, u32)> {
    let of = |(op, data): (Op, &OpData)| match data.kind {
        OpKind::Tile(TileOp::Workspace { bytes_per_block, .. }) => Some((op, bytes_per_block)),
        _ => None,
    };
    executed(func).into_iter().filter_map(of).collect()
}

/// Every linked operation outside the regions of reductions and scans, which run as a whole.
fn executed(func: &Func) -> Vec<(Op, &OpData)> {
    let mut found = Vec::new();
    let mut open = vec![func.body];
    while let Some(block) = open.pop() {
        for &op in &func.blocks[block].ops {
            let data = &func.ops[op];
            found.push((op, data));
            if !matches!(data.kind, OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. })) {
                open.extend(&data.regions);
            }
        }
    }
    found
}

/// Elements that share bytes can be in tiles, not in threads of their own.
fn packed(func: &Func, data: &OpData) -> Result<(), Diagnostic> {
    for &value in &data.results {
        let elem = micro::scalar_elem(func.ty(value)).and_then(Elem::num);
        if let Some(dtype) = elem.filter(|dtype| !dtype.is_byte_bool() && Packing::of(*dtype).is_some()) {
            let message = format!("a scalar of `{dtype}` can't be executed in lock-step: its elements share bytes");
            return Err(Diagnostic::error("cpu-packed", data.span, message));
        }
    }
    Ok(())
}

/// Operations on scalars alone are done for all threads at once, others for the block.
pub(super) fn is_lanes(func: &Func, data: &OpData) -> bool {
    let mut values = data.operands.iter().chain(&data.results).map(|&value| func.ty(value)).filter(|ty| **ty != Type::Token);
    let global = matches!(data.kind, OpKind::Schedule(ScheduleOp::GetGlobal { .. } | ScheduleOp::PrintTko { .. }));
    !global && values.all(Type::is_scalar)
}

/// Where the mask of a pointer operation stands among its operands.
pub(super) fn mask_position(kind: &ScheduleOp) -> Option<usize> {
    match kind {
        ScheduleOp::LoadPtrTko { .. } => Some(1),
        ScheduleOp::StorePtrTko { .. } | ScheduleOp::AtomicRmwTko { .. } => Some(2),
        ScheduleOp::AtomicCasTko { .. } => Some(3),
        _ => None,
    }
}

/// A tile that is sent, in the shape of its view: a matrix may stand behind axes of extent 1.
fn sent(func: &Func, data: &OpData) -> Option<TileType> {
    let Type::TileView(view) = func.ty(data.one(1)) else { return None };
    Some(TileType { shape: view.tile.clone(), elem: func.ty(data.one(0)).as_tile()?.elem })
}

/// The operation that the Schedule executor does for this one; `None` where lock-step does it itself.
fn single<'f>(func: &'f Func, data: &'f OpData, threads: usize) -> Option<Single<'f>> {
    let of = Substitute { func, data, threads };
    match &data.kind {
        OpKind::Graph(_) => None,
        OpKind::Schedule(kind) => of.schedule(kind),
        OpKind::Tile(kind) => match kind {
            TileOp::WarpReduce { combine, signedness, .. } => of.warp_reduce(*combine, *signedness),
            TileOp::MmaFragment { lhs_signedness, rhs_signedness } => of.mma_fragment(*lhs_signedness, *rhs_signedness),
            TileOp::MmaFragmentSparse { lhs_signedness, rhs_signedness } => {
                of.mma_fragment_sparse(*lhs_signedness, *rhs_signedness)
            }
            TileOp::AtomicElement { mode } => of.atomic(*mode),
            TileOp::AtomicCasElement {} => of.compare_and_swap(),
            TileOp::CopyAsync { .. } => of.load(None),
            TileOp::TmaLoad { .. } => of.load(Some(Padding::Zero)),
            TileOp::TmaStore {} => of.store(func.ty(data.one(0)).as_shared()?.tile(), 1),
            TileOp::SendTile {} | TileOp::StoreLines {} => of.store(sent(func, data)?, 1),
            TileOp::MmaShared { fast_acc, lhs_signedness, rhs_signedness }
            | TileOp::Wgmma { fast_acc, lhs_signedness, rhs_signedness } => of.mma(*fast_acc, *lhs_signedness, *rhs_signedness),
            TileOp::MmaSync { lhs_signedness, rhs_signedness, .. } => of.mma(false, *lhs_signedness, *rhs_signedness),
            TileOp::WgmmaPromoted { .. } => of.mma(false, Signedness::Signed, Signedness::Signed),
            TileOp::ThreadId {}
            | TileOp::LaneId {}
            | TileOp::WarpId {}
            | TileOp::Worker {}
            | TileOp::Workers {}
            | TileOp::Workspace { .. }
            | TileOp::ConvertLayout {}
            | TileOp::Renew { .. }
            | TileOp::Vary {}
            | TileOp::AllocShared { .. }
            | TileOp::AllocRegister {}
            | TileOp::SliceShared {}
            | TileOp::SubviewShared { .. }
            | TileOp::TransposeShared { .. }
            | TileOp::CollapseShared {}
            | TileOp::LoadShared {}
            | TileOp::StoreShared { .. }
            | TileOp::CopyShared {}
            | TileOp::LoadElement {}
            | TileOp::StoreElement { .. }
            | TileOp::LoadVector { .. }
            | TileOp::StoreVector { .. }
            | TileOp::Prefetch {}
            | TileOp::Shuffle { .. }
            | TileOp::MatchAny { .. }
            | TileOp::Popcount {}
            | TileOp::Barrier {}
            | TileOp::ClusterBarrier {}
            | TileOp::ClusterRank {}
            | TileOp::ClusterNumber {}
            | TileOp::ClusterSum { .. }
            | TileOp::ClusterArrive {}
            | TileOp::ClusterWait {}
            | TileOp::ClusterGather {}
            | TileOp::NamedBarrier { .. }
            | TileOp::NamedArrive { .. }
            | TileOp::GroupTurn { .. }
            | TileOp::CopyAsyncElement { .. }
            | TileOp::CommitGroup {}
            | TileOp::WaitGroup { .. }
            | TileOp::Ring { .. }
            | TileOp::RingStart {}
            | TileOp::Advance {}
            | TileOp::Skip {}
            | TileOp::Acquire {}
            | TileOp::Commit { .. }
            | TileOp::Wait {}
            | TileOp::Release {}
            | TileOp::Slot { .. }
            | TileOp::TmaStoreWait { .. }
            | TileOp::WgmmaWait { .. }
            | TileOp::Role { .. }
            | TileOp::FenceAsync {}
            | TileOp::Mark { .. } => None,
        },
    }
}

/// An operation that the Schedule executor is to do, by an operation on vectors of all threads or for the whole block.
struct Substitute<'f> {
    func: &'f Func,
    data: &'f OpData,
    threads: usize,
}

impl<'f> Substitute<'f> {
    /// One element a thread.
    fn lanes(&self, elem: Elem) -> TileType {
        TileType { shape: Shape::from_slice(&[self.threads as u32]), elem }
    }

    fn vector(&self, elem: Elem) -> Operand {
        Operand::Tile(self.lanes(elem))
    }

    fn made(&self, kind: ScheduleOp, groups: Vec<Vec<Operand>>, results: Vec<Type>) -> Option<Single<'f>> {
        Some(Single { kind, groups, results, region: None, span: self.data.span })
    }

    fn warp_reduce(&self, combine: Combine, signedness: Signedness) -> Option<Single<'f>> {
        let elem = micro::scalar_elem(self.func.ty(self.data.one(0)))?;
        let float = elem.num().is_some_and(DType::is_float);
        let (overflow, rounding) = (Overflow::Wraps, Rounding::NearestEven);
        let kind = match (combine, float) {
            (Combine::Sum, true) => ScheduleOp::AddF { rounding, flush_to_zero: false },
            (Combine::Prod, true) => ScheduleOp::MulF { rounding, flush_to_zero: false },
            (Combine::Max, true) => ScheduleOp::MaxF { propagate_nan: false, flush_to_zero: false },
            (Combine::Min, true) => ScheduleOp::MinF { propagate_nan: false, flush_to_zero: false },
            (Combine::Sum, false) => ScheduleOp::AddI { overflow },
            (Combine::Prod, false) => ScheduleOp::MulI { overflow },
            (Combine::Max, false) => ScheduleOp::MaxI { signedness },
            (Combine::Min, false) => ScheduleOp::MinI { signedness },
        };
        self.made(kind, vec![vec![self.vector(elem)], vec![self.vector(elem)]], vec![Type::Tile(self.lanes(elem))])
    }

    fn mma_fragment(&self, lhs_signedness: Signedness, rhs_signedness: Signedness) -> Option<Single<'f>> {
        let matrix = |position: usize| {
            let elem = micro::scalar_elem(self.func.ty(*self.data.group(position).first()?))?;
            Some(TileType { shape: Shape::from_slice(&[fragment::SIDE, fragment::SIDE]), elem })
        };
        let (lhs, rhs, acc) = (matrix(0)?, matrix(1)?, matrix(2)?);
        let kind = match acc.elem.num()?.is_float() {
            true => ScheduleOp::MmaF { fast_acc: false },
            false => ScheduleOp::MmaI { lhs_signedness, rhs_signedness },
        };
        let result = Type::Tile(acc.clone());
        self.made(kind, [lhs, rhs, acc].map(|tile| vec![Operand::Tile(tile)]).into(), vec![result])
    }

    /// Each row by itself, with the rows of the right factor that it multiplies.
    fn mma_fragment_sparse(&self, lhs_signedness: Signedness, rhs_signedness: Signedness) -> Option<Single<'f>> {
        let rows = |position: usize, shape: [u32; 3]| {
            let elem = micro::scalar_elem(self.func.ty(*self.data.group(position).first()?))?;
            Some(TileType { shape: Shape::from_slice(&shape), elem })
        };
        let side = fragment::SIDE;
        let (lhs, rhs, acc) = (rows(0, [side, 1, side])?, rows(2, [side; 3])?, rows(3, [side, 1, side])?);
        let kind = match acc.elem.num()?.is_float() {
            true => ScheduleOp::MmaF { fast_acc: false },
            false => ScheduleOp::MmaI { lhs_signedness, rhs_signedness },
        };
        let result = Type::Tile(acc.clone());
        self.made(kind, [lhs, rhs, acc].map(|tile| vec![Operand::Tile(tile)]).into(), vec![result])
    }

    fn atomic(&self, mode: AtomicMode) -> Option<Single<'f>> {
        let elem = micro::scalar_elem(self.func.ty(self.data.one(0)))?;
        let kind = ScheduleOp::AtomicRmwTko { order: MemoryOrder::Relaxed, scope: tessera_ir::attrs::MemoryScope::Block, mode };
        let groups = vec![
            vec![self.vector(Elem::Ptr(elem.num()?))],
            vec![self.vector(elem)],
            vec![self.vector(Elem::Num(DType::B1))],
            vec![],
        ];
        self.made(kind, groups, vec![Type::Tile(self.lanes(elem)), Type::Token])
    }

    fn compare_and_swap(&self) -> Option<Single<'f>> {
        let elem = micro::scalar_elem(self.func.ty(self.data.one(0)))?;
        let scope = tessera_ir::attrs::MemoryScope::Block;
        let kind = ScheduleOp::AtomicCasTko { order: MemoryOrder::Relaxed, scope };
        let groups = vec![
            vec![self.vector(Elem::Ptr(elem.num()?))],
            vec![self.vector(elem)],
            vec![self.vector(elem)],
            vec![self.vector(Elem::Num(DType::B1))],
            vec![],
        ];
        self.made(kind, groups, vec![Type::Tile(self.lanes(elem)), Type::Token])
    }

    /// A tile of a view, with another padding where one is given.
    fn load(&self, padding: Option<Padding>) -> Option<Single<'f>> {
        let Type::TileView(view) = self.func.ty(self.data.one(0)) else { return None };
        let mut view = view.clone();
        if let Some(padding) = padding {
            view.padding = padding;
        }
        let tile = TileType { shape: view.tile.clone(), elem: Elem::Num(view.tensor.elem) };
        let index = self.data.group(1).iter().map(|&value| whole(self.func.ty(value))).collect::<Option<_>>()?;
        let order = MemoryOrder::Weak;
        let kind = ScheduleOp::LoadViewTko {
            order,
            scope: None,
            latency: None,
            allow_tma: None,
            inbounds: false,
            cache: CacheHint::Normal,
        };
        let groups = vec![vec![Operand::View(Type::TileView(view))], index, vec![]];
        self.made(kind, groups, vec![Type::Tile(tile), Type::Token])
    }

    fn store(&self, tile: TileType, view: usize) -> Option<Single<'f>> {
        let index = self.data.group(view + 1).iter().map(|&value| whole(self.func.ty(value))).collect::<Option<_>>()?;
        let order = MemoryOrder::Weak;
        let kind = ScheduleOp::StoreViewTko {
            order,
            scope: None,
            latency: None,
            allow_tma: None,
            inbounds: false,
            cache: CacheHint::Normal,
        };
        let groups = vec![vec![Operand::Tile(tile)], vec![whole(self.func.ty(self.data.one(view)))?], index, vec![]];
        self.made(kind, groups, vec![Type::Token])
    }

    fn mma(&self, fast_acc: bool, lhs_signedness: Signedness, rhs_signedness: Signedness) -> Option<Single<'f>> {
        let factor = |value: Value| match self.func.ty(value) {
            Type::Shared(shared) => Some(shared.tile()),
            ty => ty.as_tile().cloned(),
        };
        let (lhs, rhs) = (factor(self.data.one(0))?, factor(self.data.one(1))?);
        let acc = match self.func.ty(self.data.one(2)) {
            Type::InFlight(flying) => flying.tile.clone(),
            ty => ty.as_tile()?.clone(),
        };
        let places = self.data.places().map(|places| self.func.ty(places).the_tile().clone());
        let kind = match acc.elem.num()?.is_float() {
            true if places.is_some() => ScheduleOp::MmaFSparse {},
            true => ScheduleOp::MmaF { fast_acc },
            false => ScheduleOp::MmaI { lhs_signedness, rhs_signedness },
        };
        let result = Type::Tile(acc.clone());
        let groups = [lhs, rhs, acc].into_iter().chain(places).map(|tile| vec![Operand::Tile(tile)]).collect();
        self.made(kind, groups, vec![result])
    }

    /// The operation itself, on vectors where it is one on scalars.
    fn schedule(&self, kind: &ScheduleOp) -> Option<Single<'f>> {
        let (func, data) = (self.func, self.data);
        let is_lanes = is_lanes(func, data);
        match kind {
            ScheduleOp::For { .. }
            | ScheduleOp::Loop {}
            | ScheduleOp::If {}
            | ScheduleOp::Yield {}
            | ScheduleOp::Continue {}
            | ScheduleOp::Break {}
            | ScheduleOp::Return {}
            | ScheduleOp::GetTileBlockId { .. }
            | ScheduleOp::GetNumTileBlocks { .. }
            | ScheduleOp::MakeTensorView {}
            | ScheduleOp::MakePartitionView {}
            | ScheduleOp::MakeStridedView {}
            | ScheduleOp::MakeGatherScatterView {}
            | ScheduleOp::MakeToken {}
            | ScheduleOp::JoinTokens {}
            | ScheduleOp::Alloca { .. }
            | ScheduleOp::Assume { .. }
            | ScheduleOp::GdcWaitTko {}
            | ScheduleOp::GdcLaunchDependentsTko {} => return None,
            ScheduleOp::Constant { .. }
            | ScheduleOp::Reshape {}
            | ScheduleOp::Broadcast {}
            | ScheduleOp::Permute { .. }
            | ScheduleOp::Extract {}
            | ScheduleOp::Insert {}
                if is_lanes =>
            {
                return None;
            }
            _ => {}
        }
        let operand = |&value: &Value| match func.ty(value) {
            Type::Token => None,
            ty if is_lanes => micro::scalar_elem(ty).map(|elem| Operand::Tile(self.lanes(elem))),
            ty => whole(ty),
        };
        let mut groups: Vec<Vec<Operand>> =
            (0..data.segments.len()).map(|position| data.group(position).iter().filter_map(operand).collect()).collect();
        if let Some(position) = mask_position(kind).filter(|_| is_lanes) {
            groups[position] = vec![Operand::Tile(self.lanes(Elem::Num(DType::B1)))];
        }
        let result = |&value: &Value| match func.ty(value) {
            ty if is_lanes => micro::scalar_elem(ty).map_or_else(|| ty.clone(), |elem| Type::Tile(self.lanes(elem))),
            ty => ty.as_tile().map_or_else(|| ty.clone(), |tile| Type::Tile(tile.clone())),
        };
        let region = data.regions.first().map(|&block| micro::Combine { func, block });
        let results = data.results.iter().map(result).collect();
        Some(Single { kind: kind.clone(), groups, results, region, span: data.span })
    }
}

/// A value of an operation that is done once for the block.
fn whole(ty: &Type) -> Option<Operand> {
    match ty {
        Type::TensorView(_) | Type::TileView(_) => Some(Operand::View(ty.clone())),
        ty => ty.as_tile().map(|tile| match tile.shape.is_empty() {
            true => Operand::Bits(tile.elem),
            false => Operand::Tile(tile.clone()),
        }),
    }
}
