//! From a whole program to the program of a rank: operation by operation, each value in the parts that the ranks hold.
//!
//! A value may be had in several placements: the one where it was made, and those that readers asked for. What is still to be
//! combined (a sum over parts of a contraction) is combined when a reader needs it, in the way that is cheapest for that reader;
//! sums of narrow floats are formed and combined in `f32` and rounded once.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_ir::attrs::{Combine, Overflow, Rounding};
use tessera_ir::{
    Axis, Block, Builder, Const, Func, GraphOp, Level, Mesh, Op, OpKind, ParamKind, Program, ScheduleOp, Sharding,
    StatedSharding, TensorType, Type, Value, bug,
};
use tessera_types::DType;

use crate::sharding::choose::{Choice, Input, Output, Question, divides};
use crate::sharding::pieces::captured;
use crate::sharding::roles::{Roles, carries, dims, roles};
use crate::sharding::shift::Scale;
use crate::sharding::wishes::{Wishes, granted, wishes};
use tessera_analysis::placement::{Dims, MeshId, Placement, Step, bytes, local, steps};

/// A value as the ranks hold it.
#[derive(Clone)]
pub(super) struct Variant {
    pub(super) placement: Placement,
    pub(super) value: Value,
    /// What its elements are; wider than the value's where it is still to be combined.
    pub(super) elem: DType,
}

/// What is known where an operation stands; a region's knowledge ends with it.
#[derive(Clone, Default)]
pub(super) struct Known {
    /// The tensors; the place where one was made comes first.
    tensors: FxHashMap<Value, Vec<Variant>>,
    /// Scalars and operands.
    others: FxHashMap<Value, Value>,
    /// By number of a scale: the factor that each rank multiplies by.
    pub(super) factors: FxHashMap<usize, Value>,
}

pub(super) struct Inserter<'s> {
    pub(super) source: &'s Func,
    pub(super) mesh: Mesh,
    pub(super) func: Func,
    block: Block,
    pub(super) known: Known,
    wanted: FxHashMap<Value, Wishes>,
    /// How operands are held, in the order of memory.
    held: FxHashMap<Value, Dims>,
    /// Symbols that a sharding divides.
    stated: FxHashSet<(String, MeshId)>,
    /// How many operations use a value.
    pub(super) uses: FxHashMap<Value, usize>,
    /// Differences from a rank's own maximum, by scale.
    pub(super) shifted: FxHashMap<Value, usize>,
    pub(super) scales: Vec<Scale>,
    shapes: Vec<(Block, Op)>,
}

/// The program of a rank for a whole program that verifies.
pub(super) fn insert(source: &Func, mesh: &Mesh) -> Func {
    let mut func = Func::new(source.name.clone(), Level::Graph, source.span);
    func.abi = source.abi.clone();
    func.hints = source.hints.clone();
    func.config = source.config.clone();
    func.mesh = Some(Mesh { program: Program::Rank, ..mesh.clone() });
    let block = func.body;
    let mut inserter = Inserter {
        source,
        mesh: mesh.clone(),
        func,
        block,
        known: Known::default(),
        wanted: FxHashMap::default(),
        held: FxHashMap::default(),
        stated: FxHashSet::default(),
        uses: FxHashMap::default(),
        shifted: FxHashMap::default(),
        scales: Vec::new(),
        shapes: Vec::new(),
    };
    inserter.arguments();
    inserter.ops(source.body);
    inserter.finish();
    inserter.func
}

impl Inserter<'_> {
    /// How operands are held: as stated; whole where one is read and nothing is stated.
    fn arguments(&mut self) {
        let source = self.source;
        for &arg in source.args() {
            let data = &source.values[arg];
            let value = self.func.add_arg(self.func.body, data.ty.clone(), data.name.as_deref());
            self.known.others.insert(arg, value);
            let (Type::Operand(tensor), Some(stated)) = (&data.ty, source.shardings.get(&arg)) else { continue };
            let find = |name: &String| self.mesh.axes.iter().position(|axis| axis.name == *name);
            let held: Dims = stated.sharding.dims.iter().map(|dim| dim.as_ref().and_then(find)).collect();
            for (axis, dim) in tensor.axes.iter().zip(&held) {
                if let (Axis::Symbol(name), Some(over)) = (axis, dim) {
                    self.stated.insert((name.clone(), *over));
                }
            }
            self.held.insert(arg, held);
        }
        for op in source.linked_ops() {
            let data = &source.ops[op];
            data.operands.iter().for_each(|&operand| *self.uses.entry(operand).or_default() += 1);
            if let OpKind::Graph(GraphOp::Load { .. }) = &data.kind
                && let Type::Operand(operand) = source.ty(data.one(0))
            {
                self.held.entry(data.one(0)).or_insert_with(|| SmallVec::from_elem(None, operand.axes.len()));
            }
        }
        self.wanted = wishes(source, |operand| self.held.get(&operand));
    }

    /// Types, shardings and interface of the arguments; sizes of whole operands where their parts' sizes were asked for.
    fn finish(&mut self) {
        let source = self.source;
        let mut first = 0;
        for (position, param) in source.abi.params.iter().enumerate() {
            let arg = source.args()[first];
            first += param.kind.argument_count();
            let (Type::Operand(operand), Some(held)) = (source.ty(arg), self.held.get(&arg)) else { continue };
            let part = local(&self.mesh, &operand.axes, operand.elem, held);
            if let ParamKind::Operand { axes, .. } = &mut self.func.abi.params[position].kind {
                for (text, axis) in axes.iter_mut().zip(&part.axes) {
                    *text = match axis {
                        Axis::Symbol(name) => name.clone(),
                        Axis::Fixed(extent) => extent.to_string(),
                    };
                }
            }
            let value = self.known.others[&arg];
            self.func.values[value].ty = Type::Operand(Box::new(part));
            let name = |over: &MeshId| self.mesh.axes[*over].name.clone();
            let sharding = Sharding { dims: held.iter().map(|dim| dim.as_ref().map(name)).collect() };
            let span = source.shardings.get(&arg).map_or(source.span, |stated| stated.span);
            if source.shardings.contains_key(&arg) || !sharding.is_whole() {
                self.func.shardings.insert(value, StatedSharding { sharding, span });
            }
        }
        for (block, op) in std::mem::take(&mut self.shapes) {
            self.whole_sizes(block, op);
        }
    }

    fn whole_sizes(&mut self, block: Block, op: Op) {
        let data = self.func.ops[op].clone();
        let Some(stated) = self.func.shardings.get(&data.operands[0]).map(|stated| stated.sharding.clone()) else { return };
        for (dim, &size) in data.results.iter().enumerate() {
            let Some(over) = stated.dims.get(dim).cloned().flatten().and_then(|name| self.mesh.axis(&name)) else { continue };
            let dtype = self.func.ty(size).num().unwrap_or_else(|| bug!("a size that is no number"));
            let (ty, count) = (self.func.ty(size).clone(), Const::int(dtype, i64::from(over.size)));
            let count = self.func.make_op(ScheduleOp::Constant { value: count }.into(), &[], [ty.clone()], [], data.span);
            let factor = self.func.ops[count].result();
            let kind = ScheduleOp::MulI { overflow: Overflow::Wraps };
            let product = self.func.make_op(kind.into(), &[&[size], &[factor]], [ty], [], data.span);
            let whole = self.func.ops[product].result();
            self.func.replace_uses(|value| if value == size { whole } else { value });
            let block = &mut self.func.blocks[block];
            let at = block.place_of(op) + 1;
            block.ops.splice(at..at, [count, product]);
        }
    }

    fn ops(&mut self, block: Block) {
        let source = self.source;
        for &op in &source.blocks[block].ops {
            let data = &source.ops[op];
            match &data.kind {
                OpKind::Graph(GraphOp::Load { transpose }) => self.load(op, *transpose),
                OpKind::Graph(GraphOp::Store {}) => self.store(op),
                OpKind::Schedule(ScheduleOp::If {}) => self.choice(op),
                // The `if` around it passes its values on.
                OpKind::Schedule(ScheduleOp::Yield {}) => {}
                _ if roles(source, op).is_some() => {
                    if !self.is_spread_for_shift(op) && !self.shift(op) && !self.exponential(op) {
                        self.compute(op);
                    }
                }
                kind => {
                    let operands: SmallVec<[Value; 4]> = data.operands.iter().map(|value| self.known.others[value]).collect();
                    let groups: SmallVec<[&[Value]; 4]> = operands.iter().map(std::slice::from_ref).collect();
                    let types: Vec<Type> = data.results.iter().map(|&value| source.ty(value).clone()).collect();
                    let copy = self.emit(op, kind.clone(), &groups, types);
                    for (&from, to) in data.results.iter().zip(self.func.ops[copy].results.clone()) {
                        self.func.values[to].name.clone_from(&source.values[from].name);
                        self.known.others.insert(from, to);
                    }
                    if matches!(kind, OpKind::Schedule(ScheduleOp::GetTensorShape {})) {
                        self.shapes.push((self.block, copy));
                    }
                }
            }
        }
    }

    /// Appends an operation at the place of one of the source's.
    pub(super) fn emit(&mut self, at: Op, kind: OpKind, groups: &[&[Value]], types: impl IntoIterator<Item = Type>) -> Op {
        let span = self.source.ops[at].span;
        Builder { func: &mut self.func, block: self.block, span }.op(kind, groups, types)
    }

    pub(super) fn emit_one(&mut self, at: Op, kind: impl Into<OpKind>, operands: &[Value], ty: TensorType) -> Value {
        let groups: SmallVec<[&[Value]; 4]> = operands.iter().map(std::slice::from_ref).collect();
        let op = self.emit(at, kind.into(), &groups, [Type::Tensor(Box::new(ty))]);
        self.func.ops[op].result()
    }

    /// The type of a rank's part of one of the source's tensors.
    pub(super) fn part(&self, value: Value, elem: DType, dims: &Dims) -> TensorType {
        local(&self.mesh, &self.source.ty(value).the_tensor().axes, elem, dims)
    }

    /// Where a value was made.
    pub(super) fn home(&self, value: Value) -> &Variant {
        &self.known.tensors[&value][0]
    }

    pub(super) fn define(&mut self, value: Value, variant: Variant) {
        self.func.values[variant.value].name.clone_from(&self.source.values[value].name);
        self.known.tensors.insert(value, vec![variant]);
    }

    fn load(&mut self, op: Op, transpose: bool) {
        let data = &self.source.ops[op];
        let (operand, result) = (data.one(0), data.result());
        let mut dims = self.held[&operand].clone();
        let rank = dims.len();
        if transpose {
            dims.swap(rank - 1, rank - 2);
        }
        let elem = self.source.ty(result).the_tensor().elem;
        let ty = self.part(result, elem, &dims);
        let value = self.emit_one(op, GraphOp::Load { transpose }, &[self.known.others[&operand]], ty);
        self.define(result, Variant { placement: Placement::settled(dims), value, elem });
    }

    fn store(&mut self, op: Op) {
        let data = &self.source.ops[op];
        let (value, operand) = (data.one(0), data.one(1));
        let dims = self.held.get(&operand).cloned().unwrap_or_else(|| self.home(value).placement.dims.clone());
        self.held.insert(operand, dims.clone());
        let part = self.obtain(op, value, &dims);
        self.emit(op, GraphOp::Store {}.into(), &[&[part], &[self.known.others[&operand]]], []);
    }

    fn choice(&mut self, op: Op) {
        let source = self.source;
        let data = &source.ops[op];
        let condition = self.known.others[&data.one(0)];
        // What a branch reads is complete before, so that no branch completes it for itself.
        for value in captured(source, op).collect::<Vec<_>>() {
            if self.known.tensors.get(&value).is_some_and(|variants| variants[0].placement.is_pending()) {
                let goal = granted(self.wanted.get(&value), &self.home(value).placement.dims);
                self.obtain(op, value, &goal);
            }
        }
        let outer = self.block;
        let mut regions: SmallVec<[Block; 2]> = SmallVec::new();
        let mut goals: Vec<Option<Dims>> = Vec::new();
        for &region in &data.regions {
            let known = self.known.clone();
            self.block = self.func.new_block();
            self.ops(region);
            if let Some(&last) = source.blocks[region].ops.last() {
                let yielded = source.ops[last].operands.clone();
                if goals.is_empty() {
                    let goal = |(&value, &result): (&Value, &Value)| {
                        source.ty(value).as_tensor()?;
                        Some(granted(self.wanted.get(&result), &self.home(value).placement.dims))
                    };
                    goals = yielded.iter().zip(&data.results).map(goal).collect();
                }
                let values: SmallVec<[Value; 4]> = yielded
                    .iter()
                    .zip(&goals)
                    .map(|(&value, goal)| match goal {
                        Some(dims) => self.obtain(last, value, dims),
                        None => self.known.others[&value],
                    })
                    .collect();
                self.emit(last, ScheduleOp::Yield {}.into(), &[&values], []);
            }
            regions.push(self.block);
            self.known = known;
        }
        self.block = outer;
        let types: Vec<Type> = data
            .results
            .iter()
            .zip(&goals)
            .map(|(&result, goal)| match (goal, source.ty(result).as_tensor()) {
                (Some(dims), Some(tensor)) => Type::Tensor(Box::new(self.part(result, tensor.elem, dims))),
                _ => source.ty(result).clone(),
            })
            .collect();
        let made = Builder { func: &mut self.func, block: outer, span: data.span }.op_with_regions(
            ScheduleOp::If {},
            &[&[condition]],
            types,
            regions,
        );
        for (position, (&result, goal)) in data.results.iter().zip(goals).enumerate() {
            let value = self.func.ops[made].results[position];
            match (goal, source.ty(result).as_tensor()) {
                (Some(dims), Some(tensor)) => {
                    self.define(result, Variant { placement: Placement::settled(dims), value, elem: tensor.elem });
                }
                _ => {
                    self.func.values[value].name.clone_from(&source.values[result].name);
                    self.known.others.insert(result, value);
                }
            }
        }
    }

    /// How an operation is divided, and where that leaves its result.
    fn decide(&self, op: Op, roles: &Roles, result: &TensorType) -> (Choice, Placement) {
        let source = self.source;
        let data = &source.ops[op];
        let found: Vec<Option<Vec<&Placement>>> = data
            .operands
            .iter()
            .map(|operand| Some(self.known.tensors.get(operand)?.iter().map(|variant| &variant.placement).collect()))
            .collect();
        let inputs: Vec<Option<Input<'_>>> = data
            .operands
            .iter()
            .zip(&found)
            .map(|(&operand, placed)| {
                let tensor = source.ty(operand).as_tensor()?;
                Some(Input { axes: &tensor.axes, elem: tensor.elem, placed: placed.clone()? })
            })
            .collect();
        let homes: SmallVec<[Option<&Placement>; 3]> =
            found.iter().map(|placed| placed.as_ref().map(|placed| placed[0])).collect();
        let once = data
            .operands
            .iter()
            .zip(&homes)
            .all(|(operand, home)| home.is_none_or(|home| home.partial.is_empty() || self.uses[operand] == 1));
        let question = Question {
            mesh: &self.mesh,
            roles,
            inputs: &inputs,
            output: Output { axes: &result.axes, elem: result.elem, wanted: self.wanted.get(&data.result()) },
            carries: once && carries(source, op, &homes),
            divides: &|axis, over| divides(&self.mesh, axis, over, |name, over| self.stated.contains(&(name.to_string(), over))),
        };
        let choice = question.answer();
        let carried = homes.iter().flatten().copied().find(|home| choice.carry && home.is_pending());
        let placement = question.result(&choice, carried);
        (choice, placement)
    }

    /// An operation whose loops can be divided.
    fn compute(&mut self, op: Op) {
        let source = self.source;
        let data = &source.ops[op];
        let (Some(roles), Some(result)) = (roles(source, op), source.ty(data.result()).as_tensor()) else {
            bug!("an operation without loops");
        };
        let (choice, placement) = self.decide(op, &roles, result);
        let sums = !placement.partial.is_empty() && matches!(placement.combine, Combine::Sum | Combine::Prod);
        let elem = if sums && matches!(result.elem, DType::F16 | DType::BF16) { DType::F32 } else { result.elem };
        let mut operands: SmallVec<[Value; 4]> = SmallVec::new();
        for (position, &operand) in data.operands.iter().enumerate() {
            let Some(home) = self.known.tensors.get(&operand).map(|variants| variants[0].clone()) else {
                operands.push(self.known.others[&operand]);
                continue;
            };
            let to = dims(&roles.operands[position], &choice.divided);
            let mut value = if choice.carry && home.placement.is_pending() { home.value } else { self.obtain(op, operand, &to) };
            let narrow = source.ty(operand).as_tensor().is_some_and(|tensor| tensor.elem != elem);
            if narrow && elem != result.elem && matches!(data.kind, OpKind::Graph(GraphOp::Reduce { .. })) {
                let wide = self.part(operand, elem, &to);
                value = self.emit_one(op, ScheduleOp::FToF { rounding: Rounding::NearestEven }, &[value], wide);
            }
            operands.push(value);
        }
        let ty = self.part(data.result(), elem, &placement.dims);
        let value = self.emit_one(op, data.kind.clone(), &operands, ty);
        self.define(data.result(), Variant { placement, value, elem });
    }

    /// A value with its dimensions divided so and nothing left to combine.
    pub(super) fn obtain(&mut self, at: Op, value: Value, to: &Dims) -> Value {
        let variants = &self.known.tensors[&value];
        let there = |variant: &&Variant| variant.placement == Placement::settled(to.clone());
        if let Some(variant) = variants.iter().find(there) {
            return variant.value;
        }
        let whole = self.source.ty(value).the_tensor().clone();
        let cost = |variant: &Variant| {
            let steps = steps(&variant.placement, to);
            let sent = bytes(&self.mesh, &whole.axes, variant.elem, &variant.placement.dims, &steps);
            (sent, steps.len())
        };
        let mut best = variants[0].clone();
        for variant in &variants[1..] {
            if cost(variant) < cost(&best) {
                best = variant.clone();
            }
        }
        if let Some(scale) = best.placement.scaled {
            best = self.rescaled(at, value, &best, scale);
        }
        let combine = best.placement.combine;
        let mut dims = best.placement.dims.clone();
        let mut part = best.value;
        for step in steps(&best.placement, to) {
            step.apply(&mut dims);
            let ty = self.part(value, best.elem, &dims);
            let kind = self.exchange(&step, combine);
            part = match kind {
                GraphOp::Shard { .. } => self.emit_one(at, kind, &[part], ty),
                kind => {
                    let op = self.emit(at, kind.into(), &[&[part]], [Type::Tensor(Box::new(ty))]);
                    self.func.ops[op].result()
                }
            };
        }
        if best.elem != whole.elem {
            let ty = self.part(value, whole.elem, to);
            part = self.emit_one(at, ScheduleOp::FToF { rounding: Rounding::NearestEven }, &[part], ty);
        }
        let variant = Variant { placement: Placement::settled(to.clone()), value: part, elem: whole.elem };
        self.known.tensors.entry(value).or_default().push(variant);
        part
    }

    fn exchange(&self, step: &Step, combine: Combine) -> GraphOp {
        let name = |over: MeshId| self.mesh.axes[over].name.clone();
        match *step {
            Step::Shard { over, axis } => GraphOp::Shard { over: name(over), axis: axis as u32 },
            Step::ReduceScatter { over, axis } => GraphOp::ReduceScatter { over: name(over), axis: axis as u32, combine },
            Step::AllToAll { over, split, join } => {
                GraphOp::AllToAll { over: name(over), split: split as u32, join: join as u32 }
            }
            Step::AllReduce { ref over } => GraphOp::AllReduce { over: over.iter().map(|&over| name(over)).collect(), combine },
            Step::AllGather { over, axis } => GraphOp::AllGather { over: name(over), axis: axis as u32 },
        }
    }
}
