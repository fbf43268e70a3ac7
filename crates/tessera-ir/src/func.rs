//! Modules, functions and the structured SSA inside them.
//!
//! A function's body is one [`Block`]; an operation's regions are blocks too. Operations are unlinked, never deleted, so ids stay
//! valid while a pass works. The order of [`BlockData::ops`] is the order of execution.

use indexmap::IndexMap;
use smallvec::SmallVec;

use crate::abi::Abi;
use crate::bug;
use crate::constant::Const;
use crate::diag::{SourceMap, Span};
use crate::dialect::{OperandKind, Row};
use crate::entity::{Arena, entity};
use crate::mesh::{Mesh, StatedSharding};
use crate::op::OpKind;
use crate::plan::Plan;
use crate::schedule::ScheduleOp;
use crate::tile::TileOp;
use crate::types::{Shape, Type};

entity! {
    /// A value of a function.
    Value
}
entity! {
    /// An operation of a function.
    Op
}
entity! {
    /// A block of a function: its body or a region.
    Block
}

/// The level a function is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Whole operands.
    Graph,
    /// Block programs over tiles.
    Schedule,
    /// Block programs whose roles, rings and copies are made, over tiles that have no layouts yet.
    Staged,
    /// Programs of a block's threads over tiles with layouts.
    Tile,
}

impl Level {
    /// The word that opens a function of this level in text.
    pub const fn word(self) -> &'static str {
        match self {
            Level::Graph => "graph",
            Level::Schedule => "schedule",
            Level::Staged => "staged",
            Level::Tile => "tile",
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Def {
    /// The result of an operation at a position.
    Result(Op, u32),
    /// The argument of a block at a position.
    Argument(Block, u32),
}

/// A value.
#[derive(Clone, Debug)]
pub struct ValueData {
    /// Its type.
    pub ty: Type,
    /// Where it comes from.
    pub def: Def,
    /// What the source calls it; makes text readable, means nothing.
    pub name: Option<String>,
}

/// An operation in a function.
#[derive(Clone, Debug)]
pub struct OpData {
    /// What it is.
    pub kind: OpKind,
    /// All operands in the row's order, absent optional ones left out.
    pub operands: SmallVec<[Value; 4]>,
    /// How many values each declared operand stands for.
    pub segments: SmallVec<[u16; 6]>,
    /// The shared buffer that the operation's threads exchange elements through, where it has been given one (Tile functions only).
    pub through: Option<Value>,
    /// Results.
    pub results: SmallVec<[Value; 2]>,
    /// Regions.
    pub regions: SmallVec<[Block; 2]>,
    /// The source text it comes from.
    pub span: Span,
}

impl OpData {
    /// What is declared about it.
    pub fn row(&self) -> &'static Row {
        self.kind.row()
    }

    /// The values of the declared operand at `position`.
    pub fn group(&self, position: usize) -> &[Value] {
        let start: usize = self.segments[..position].iter().map(|&n| n as usize).sum();
        &self.operands[start..start + self.segments[position] as usize]
    }

    /// The value of a declared operand that stands for exactly one.
    pub fn one(&self, position: usize) -> Value {
        self.group(position)[0]
    }

    /// The value of an optional operand.
    pub fn optional(&self, position: usize) -> Option<Value> {
        self.group(position).first().copied()
    }

    /// Becomes another operation that takes the same values; optional operands that only one of the two declares, the last ones, are absent.
    pub fn turn_into(&mut self, kind: impl Into<OpKind>) {
        self.kind = kind.into();
        let declared = self.row().operands.len();
        if self.segments.get(declared..).is_some_and(|left| left.iter().any(|&count| count > 0)) {
            bug!("`{}` has no place for an operand", self.row().mnemonic);
        }
        self.segments.resize(declared, 0);
    }

    /// The words that say where elements of a product's left factor stand, where that is stored by half.
    pub fn places(&self) -> Option<Value> {
        match self.kind {
            OpKind::Schedule(ScheduleOp::MmaFSparse {}) => Some(self.one(3)),
            OpKind::Tile(TileOp::MmaShared { .. } | TileOp::Wgmma { .. }) => self.optional(3),
            _ => None,
        }
    }

    /// Every value that it uses: its operands and what it exchanges elements through.
    pub fn used(&self) -> impl Iterator<Item = Value> + '_ {
        self.operands.iter().copied().chain(self.through)
    }

    /// The only result.
    pub fn result(&self) -> Value {
        self.results[0]
    }
}

/// A straight list of operations with arguments.
#[derive(Clone, Debug, Default)]
pub struct BlockData {
    /// Arguments.
    pub args: SmallVec<[Value; 4]>,
    /// Operations in order of execution; the last one is a terminator.
    pub ops: Vec<Op>,
}

impl BlockData {
    /// The place of one of its operations.
    #[track_caller]
    pub fn place_of(&self, op: Op) -> usize {
        match self.ops.iter().position(|&other| other == op) {
            Some(place) => place,
            None => bug!("an operation outside of its block"),
        }
    }
}

/// What a kernel's author or the tuner says about the whole function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FuncHints {
    /// Blocks that should be resident on one multiprocessor.
    pub occupancy: Option<u32>,
    /// Blocks that the author wants in a cluster, where the function's plan finds what they can load together.
    pub num_ctas: Option<u32>,
    /// Such clusters that the author wants to share the rounds of each block that is asked for, where they split rounds.
    pub num_clusters: Option<u32>,
    /// Warps in a block.
    pub num_warps: Option<u32>,
    /// Threads in a block of a per-thread program, whose last warp may lack some: every scalar is each thread's own, and what is
    /// done to memory with scalars each thread does. In a program without it the block does that once.
    pub num_threads: Option<u32>,
    /// Stages of the software pipelines.
    pub num_stages: Option<u32>,
    /// Warps that compute in a kernel whose warps have roles.
    pub num_worker_warps: Option<u32>,
    /// The level of optimisation that the author asks of the device's compiler.
    pub opt_level: Option<u32>,
    /// So many blocks a multiprocessor are launched, whatever is asked for, and share the blocks that are: `tile.worker` says which one this is.
    pub persistent: Option<u32>,
    /// So many neighbours along x are a cluster that loads together. Where they do not divide the blocks that are asked for, more are launched.
    pub cluster: Option<u32>,
    /// So many blocks, which are a cluster, are launched along x for each one that is asked for, and share its work: `tile.cluster_rank` says which
    /// of them this is.
    pub split: Option<u32>,
    /// So many of these clusters are launched for each block that is asked for: `tile.cluster_number` says which of them this is.
    pub among: Option<u32>,
    /// A launched block takes up to so many neighbours along x of the blocks that are asked for, a warp each. They have nothing in common.
    pub programs: Option<u32>,
    /// What blocks of a product share, where its plan can have them share it ([`Sharing`]).
    pub sharing: Option<u32>,
    /// Marks are recorded, in every block whose number is a multiple of this.
    pub timeline: Option<u32>,
    /// Bytes of shared memory that an operation may exchange elements through; more go through it in parts.
    pub exchange_bytes: Option<u32>,
    /// Bytes of shared memory that rings of slots may take, where fewer than a block of the target has.
    pub ring_bytes: Option<u32>,
}

/// What the blocks of a product share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Nothing: each block that is asked for is launched.
    #[default]
    Nothing,
    /// A block a multiprocessor is launched, and takes several of those that are asked for.
    Blocks,
    /// These share the rounds of products too.
    Rounds,
    /// Blocks are shared as by `Blocks`, and two teams of a block's warps take them in turn: one stores while the other one multiplies.
    Turns,
    /// The blocks of a cluster, as many as `num_ctas` says, share the rounds of each block that is asked for, or the row that it reduces.
    Cluster,
}

impl Sharing {
    /// All of them, each at the place of its number: 0 nothing, 1 blocks, 2 rounds, 3 blocks in turn, 4 the rounds or the row of one block.
    pub const ALL: [Sharing; 5] = [Sharing::Nothing, Sharing::Blocks, Sharing::Rounds, Sharing::Turns, Sharing::Cluster];

    /// The number of kernels' options, of hints and of choices.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

impl FuncHints {
    /// What blocks share, by the hint of that name, which is one's place in [`Sharing::ALL`].
    pub fn shares(&self) -> Sharing {
        let number = self.sharing.unwrap_or_default();
        *Sharing::ALL.get(number as usize).unwrap_or_else(|| bug!("`sharing` of {number}"))
    }

    /// Clusters that the author wants to share a block's rounds, where that is more than one.
    pub fn shared_clusters(&self) -> Option<u32> {
        self.num_clusters.filter(|&clusters| clusters > 1)
    }

    /// The blocks that are launched are not those that are asked for.
    pub fn is_launched_otherwise(&self) -> bool {
        self.persistent.is_some() || self.blocks_of_cluster().is_some() || self.programs.is_some()
    }

    /// Blocks of a cluster, where there are some.
    pub fn blocks_of_cluster(&self) -> Option<u32> {
        self.cluster.or(self.split)
    }

    /// Blocks that are launched for each that is asked for, and share its work.
    pub fn shares_of_one(&self) -> u32 {
        self.split.unwrap_or(1) * self.among.unwrap_or(1)
    }

    /// Threads in a block of a Tile function.
    pub fn threads(&self) -> u32 {
        self.num_threads.unwrap_or(32 * self.num_warps.unwrap_or(0))
    }

    /// Warps of a block of a staged or Tile function, which says how many.
    #[track_caller]
    pub fn warps(&self) -> u32 {
        match self.num_warps {
            Some(warps) => warps,
            None => bug!("a function of threads that does not say how many warps it has"),
        }
    }

    /// The names of the hints, with the value of each.
    pub fn entries(&self) -> [(&'static str, Option<u32>); 17] {
        [
            ("occupancy", self.occupancy),
            ("num_ctas", self.num_ctas),
            ("num_clusters", self.num_clusters),
            ("num_warps", self.num_warps),
            ("num_threads", self.num_threads),
            ("num_stages", self.num_stages),
            ("num_worker_warps", self.num_worker_warps),
            ("opt_level", self.opt_level),
            ("persistent", self.persistent),
            ("cluster", self.cluster),
            ("split", self.split),
            ("among", self.among),
            ("programs", self.programs),
            ("sharing", self.sharing),
            ("timeline", self.timeline),
            ("exchange_bytes", self.exchange_bytes),
            ("ring_bytes", self.ring_bytes),
        ]
    }

    /// Sets a hint by name, or takes it away; false when there is none of that name.
    pub fn set(&mut self, name: &str, value: impl Into<Option<u32>>) -> bool {
        let slot = match name {
            "occupancy" => &mut self.occupancy,
            "num_ctas" => &mut self.num_ctas,
            "num_clusters" => &mut self.num_clusters,
            "num_warps" => &mut self.num_warps,
            "num_threads" => &mut self.num_threads,
            "num_stages" => &mut self.num_stages,
            "num_worker_warps" => &mut self.num_worker_warps,
            "opt_level" => &mut self.opt_level,
            "persistent" => &mut self.persistent,
            "cluster" => &mut self.cluster,
            "split" => &mut self.split,
            "among" => &mut self.among,
            "programs" => &mut self.programs,
            "sharing" => &mut self.sharing,
            "timeline" => &mut self.timeline,
            "exchange_bytes" => &mut self.exchange_bytes,
            "ring_bytes" => &mut self.ring_bytes,
            _ => return false,
        };
        *slot = value.into();
        true
    }
}

/// A kernel at one level.
#[derive(Clone, Debug)]
pub struct Func {
    /// Its name, unique in the module.
    pub name: String,
    /// Its level.
    pub level: Level,
    /// What a launcher passes.
    pub abi: Abi,
    /// Hints.
    pub hints: FuncHints,
    /// Tile sizes and other choices of the schedule by name, such as `BLOCK_M`; what they mean is up to the stage that reads them.
    pub config: IndexMap<String, i64>,
    /// The ranks that the function is for, where it is for several (Graph IR).
    pub mesh: Option<Mesh>,
    /// How arguments are divided over the ranks.
    pub shardings: IndexMap<Value, StatedSharding>,
    /// How its work is spread over warps and time, from when that is chosen until it is carried out.
    pub plan: Option<Plan>,
    /// Where it is defined.
    pub span: Span,
    /// The body; its arguments are the function's.
    pub body: Block,
    /// All values.
    pub values: Arena<Value, ValueData>,
    /// All operations.
    pub ops: Arena<Op, OpData>,
    /// All blocks.
    pub blocks: Arena<Block, BlockData>,
}

impl Func {
    /// An empty function.
    pub fn new(name: impl Into<String>, level: Level, span: Span) -> Func {
        let mut blocks = Arena::new();
        let body = blocks.push(BlockData::default());
        Func {
            name: name.into(),
            level,
            abi: Abi::default(),
            hints: FuncHints::default(),
            config: IndexMap::new(),
            mesh: None,
            shardings: IndexMap::new(),
            plan: None,
            span,
            body,
            values: Arena::new(),
            ops: Arena::new(),
            blocks,
        }
    }

    /// The function's arguments.
    pub fn args(&self) -> &[Value] {
        &self.blocks[self.body].args
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        &self.values[value].ty
    }

    /// The operation that defines a value, if it is a result.
    pub fn defining_op(&self, value: Value) -> Option<Op> {
        match self.values[value].def {
            Def::Result(op, _) => Some(op),
            Def::Argument(..) => None,
        }
    }

    /// The compile-time tile a value is, if it is the result of a constant.
    pub fn constant(&self, value: Value) -> Option<&Const> {
        match &self.ops[self.defining_op(value)?].kind {
            OpKind::Schedule(ScheduleOp::Constant { value }) => Some(value),
            _ => None,
        }
    }

    /// How many rounds a `for` has whose bounds and step are constants.
    pub fn known_rounds(&self, data: &OpData) -> Option<u64> {
        let OpKind::Schedule(ScheduleOp::For { unsigned, .. }) = data.kind else { return None };
        let number = |at: usize| self.constant(data.one(at)).and_then(Const::as_int).map(i128::from);
        let (lower, upper, step) = (number(0)?, number(1)?, number(2)?);
        if step <= 0 || (unsigned && (lower < 0 || upper < 0)) {
            return None;
        }
        u64::try_from((upper - lower).max(0).div_euclid(step) + i128::from((upper - lower).max(0) % step != 0)).ok()
    }

    /// A new block without arguments, linked nowhere.
    pub fn new_block(&mut self) -> Block {
        self.blocks.push(BlockData::default())
    }

    /// Adds an argument to a block.
    pub fn add_arg(&mut self, block: Block, ty: Type, name: Option<&str>) -> Value {
        let position = self.blocks[block].args.len() as u32;
        let name = name.map(str::to_string);
        let value = self.values.push(ValueData { ty, def: Def::Argument(block, position), name });
        self.blocks[block].args.push(value);
        value
    }

    /// Makes an operation without linking it into a block. `groups` has one entry for each declared operand.
    pub fn make_op(
        &mut self,
        kind: OpKind,
        groups: &[&[Value]],
        results: impl IntoIterator<Item = Type>,
        regions: impl IntoIterator<Item = Block>,
        span: Span,
    ) -> Op {
        let row = kind.row();
        debug_assert_eq!(groups.len(), row.operands.len(), "`{}` takes {} operand groups", row.mnemonic, row.operands.len());
        debug_assert!(
            groups.iter().zip(row.operands).all(|(group, spec)| match spec.kind {
                OperandKind::One => group.len() == 1,
                OperandKind::Optional => group.len() <= 1,
                OperandKind::Many => true,
            }),
            "`{}`: an operand group has the wrong number of values",
            row.mnemonic
        );
        let op = self.ops.push(OpData {
            kind,
            operands: groups.iter().flat_map(|group| group.iter().copied()).collect(),
            segments: groups.iter().map(|group| group.len() as u16).collect(),
            through: None,
            results: SmallVec::new(),
            regions: regions.into_iter().collect(),
            span,
        });
        for (position, ty) in results.into_iter().enumerate() {
            let value = self.values.push(ValueData { ty, def: Def::Result(op, position as u32), name: None });
            self.ops[op].results.push(value);
        }
        op
    }

    /// Adds a result to an operation.
    pub fn add_result(&mut self, op: Op, ty: Type) -> Value {
        let position = self.ops[op].results.len() as u32;
        let value = self.values.push(ValueData { ty, def: Def::Result(op, position), name: None });
        self.ops[op].results.push(value);
        value
    }

    /// Appends to the last operand of an operation, which is variadic.
    pub fn append_operands(&mut self, op: Op, values: &[Value]) {
        let data = &mut self.ops[op];
        data.operands.extend_from_slice(values);
        if let Some(last) = data.segments.last_mut() {
            *last += values.len() as u16;
        }
    }

    /// Carries one more value around a loop: its name in the body. A loop that counts yields it, too. What rounds hand on is to be appended to
    /// the ends of its body.
    pub fn carry(&mut self, looped: Op, start: Value) -> Value {
        let (body, ty) = (self.ops[looped].regions[0], self.ty(start).clone());
        self.append_operands(looped, &[start]);
        if matches!(self.ops[looped].kind, OpKind::Schedule(ScheduleOp::For { .. })) {
            self.add_result(looped, ty.clone());
        }
        self.add_arg(body, ty, None)
    }

    /// Every linked block, a region after the block of its operation.
    pub fn linked_blocks(&self) -> Vec<Block> {
        self.blocks_within(self.body)
    }

    /// A block and all that its operations hold, a block after the one that it is in.
    pub fn blocks_within(&self, block: Block) -> Vec<Block> {
        let mut order = vec![block];
        let mut next = 0;
        while next < order.len() {
            for &op in &self.blocks[order[next]].ops {
                order.extend_from_slice(&self.ops[op].regions);
            }
            next += 1;
        }
        order
    }

    /// Every linked operation, those of a region after the operation that holds it, in text order.
    pub fn linked_ops(&self) -> Vec<Op> {
        fn visit(func: &Func, block: Block, order: &mut Vec<Op>) {
            for &op in &func.blocks[block].ops {
                order.push(op);
                for &region in &func.ops[op].regions {
                    visit(func, region, order);
                }
            }
        }
        let mut order = Vec::new();
        visit(self, self.body, &mut order);
        order
    }

    /// The block that a linked operation stands in.
    #[track_caller]
    pub fn block_of(&self, op: Op) -> Block {
        match self.linked_blocks().into_iter().find(|&block| self.blocks[block].ops.contains(&op)) {
            Some(block) => block,
            None => bug!("an operation that is not linked"),
        }
    }

    /// Replaces uses: every value `v` that a linked operation uses becomes `map(v)`.
    pub fn replace_uses(&mut self, mut map: impl FnMut(Value) -> Value) {
        for op in self.linked_ops() {
            let data = &mut self.ops[op];
            for used in data.operands.iter_mut().chain(&mut data.through) {
                *used = map(*used);
            }
        }
    }
}

/// Appends operations to a block.
pub struct Builder<'f> {
    /// The function.
    pub func: &'f mut Func,
    /// Where operations go: the end of this block.
    pub block: Block,
    /// The span given to them.
    pub span: Span,
}

impl<'f> Builder<'f> {
    /// Appends to the function's body.
    pub fn new(func: &'f mut Func) -> Self {
        let (block, span) = (func.body, func.span);
        Builder { func, block, span }
    }

    /// Appends an operation.
    pub fn op(&mut self, kind: impl Into<OpKind>, groups: &[&[Value]], results: impl IntoIterator<Item = Type>) -> Op {
        self.op_with_regions(kind, groups, results, [])
    }

    /// Appends an operation with regions.
    pub fn op_with_regions(
        &mut self,
        kind: impl Into<OpKind>,
        groups: &[&[Value]],
        results: impl IntoIterator<Item = Type>,
        regions: impl IntoIterator<Item = Block>,
    ) -> Op {
        let op = self.func.make_op(kind.into(), groups, results, regions, self.span);
        self.func.blocks[self.block].ops.push(op);
        op
    }

    /// Appends an operation with one result and yields that.
    pub fn value(&mut self, kind: impl Into<OpKind>, groups: &[&[Value]], ty: Type) -> Value {
        let op = self.op(kind, groups, [ty]);
        self.func.ops[op].result()
    }

    /// Appends an operation whose operands are one value each and whose result has the first operand's type.
    pub fn same(&mut self, kind: impl Into<OpKind>, operands: &[Value]) -> Value {
        let ty = self.func.ty(operands[0]).clone();
        let groups: SmallVec<[&[Value]; 4]> = operands.iter().map(std::slice::from_ref).collect();
        self.value(kind, &groups, ty)
    }

    /// A constant with the same bits in every element.
    pub fn constant(&mut self, value: Const, shape: impl Into<Shape>) -> Value {
        let ty = Type::tile(shape, value.dtype);
        self.value(ScheduleOp::Constant { value }, &[], ty)
    }

    /// Works in another block, then goes on here.
    pub fn within<T>(&mut self, block: Block, work: impl FnOnce(&mut Builder<'_>) -> T) -> T {
        let mut inner = Builder { func: self.func, block, span: self.span };
        work(&mut inner)
    }
}

/// A constant tile that kernels of the module can address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Its name, unique in the module.
    pub name: String,
    /// Its elements.
    pub value: Const,
    /// Its shape.
    pub shape: Shape,
}

/// Functions, constants and the texts they come from.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// The texts that spans point into.
    pub sources: SourceMap,
    /// Constants.
    pub globals: Vec<Global>,
    /// Kernels.
    pub funcs: Vec<Func>,
}

impl Module {
    /// The function of a name.
    pub fn func(&self, name: &str) -> Option<&Func> {
        self.funcs.iter().find(|func| func.name == name)
    }
}
