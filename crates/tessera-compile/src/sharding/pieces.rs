//! A rank's program as kernels and what ranks exchange between them: the form in which a runtime executes it.
//!
//! What an exchange gives, and what products, reductions and conditions give, lies in a buffer between two kernels, unless it only
//! goes through elementwise operations into one other place: those are computed where their result is stored. Elementwise
//! operations are repeated in every kernel that needs them. Results are written last, so that operands keep their values for as
//! long as kernels read them.
//!
//! ```text
//! %c = graph.contract %a, %b            kernel f_0(A, B, t0): t0 = A B
//! %d = graph.all_reduce [%c] {...}      exchange t1 = all_reduce t0
//! %e = exp %d; graph.store %e, %C       kernel f_1(t1, C): C = exp t1
//! ```

use indexmap::IndexMap;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tessera_ir::{
    AbiParam, Axis, Block, Def, Diagnostic, Effects, Func, GraphOp, Level, Mesh, Op, OpKind, ParamKind, Program, ScheduleOp,
    Sharding, TensorType, Type, Value, bug,
};
use tessera_types::DType;

use crate::sharding::simplify::exchange;

/// Memory between kernels.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Its name, as kernels call it.
    pub name: String,
    /// The rank's part.
    pub axes: Vec<Axis>,
    /// Element type, unsigned ones included.
    pub dtype: DType,
}

/// A tensor that is exchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A parameter of the program or a buffer, by name.
    pub name: String,
    /// Its last two axes are taken in reverse.
    pub transposed: bool,
}

/// What a rank does.
#[derive(Clone, Debug)]
pub enum RankStep {
    /// Runs a kernel, a Graph function without exchanges; its parameters are parameters of the program and buffers, by name.
    Kernel(Box<Func>),
    /// Exchanges tensors with other ranks.
    Exchange {
        /// How.
        kind: GraphOp,
        /// What this rank gives.
        sources: Vec<Place>,
        /// Names of the buffers that hold what it gets.
        results: Vec<String>,
    },
}

/// The program of a rank.
#[derive(Clone, Debug)]
pub struct RankProgram {
    /// The ranks.
    pub mesh: Mesh,
    /// The parameters; operands are the rank's parts.
    pub params: Vec<AbiParam>,
    /// For each parameter how the whole is divided, where it is.
    pub shardings: Vec<Option<Sharding>>,
    /// For each parameter whether the program writes it.
    pub written: Vec<bool>,
    /// Memory between kernels.
    pub buffers: Vec<Buffer>,
    /// What is done, in order.
    pub steps: Vec<RankStep>,
}

/// Splits a function that verifies and is the program of a rank.
pub fn rank_program(func: &Func) -> Result<RankProgram, Vec<Diagnostic>> {
    let Some(mesh) = func.mesh.clone().filter(|mesh| mesh.program == Program::Rank) else {
        let message = format!("`@{}` is not the program of a rank", func.name);
        return Err(vec![
            Diagnostic::error("ranks", func.span, message).help("apply `collective-insertion` to a function with a mesh"),
        ]);
    };
    let mut func = func.clone();
    let body = func.body;
    hoist(&mut func, body).map_err(|wrong| vec![*wrong])?;
    let mut splitter = Splitter::new(&func);
    let mut stores = Vec::new();
    for &op in &func.blocks[func.body].ops {
        if holds_store(&func, op) {
            stores.push(op);
        } else if exchange(&func.ops[op].kind).is_some() {
            splitter.exchange(op)?;
        } else if splitter.stands_alone(op) {
            splitter.compute(op)?;
        }
    }
    for op in stores {
        splitter.kernel(&[op], &[])?;
    }
    let written = func.abi.params.iter().map(|param| splitter.written.contains(&splitter.args[&param.name])).collect();
    let stated = |param: &AbiParam| func.shardings.get(&splitter.args[&param.name]).map(|stated| stated.sharding.clone());
    Ok(RankProgram {
        mesh,
        shardings: func.abi.params.iter().map(stated).collect(),
        written,
        buffers: splitter.buffers,
        steps: splitter.steps,
        params: func.abi.params.clone(),
    })
}

/// Moves exchanges out of conditions, with what they are computed from: every rank then takes part whatever the condition is.
fn hoist(func: &mut Func, block: Block) -> Result<(), Box<Diagnostic>> {
    let mut at = 0;
    while let Some(&op) = func.blocks[block].ops.get(at) {
        for region in func.ops[op].regions.clone() {
            hoist(func, region)?;
            let ops = func.blocks[region].ops.clone();
            let mut needed: FxHashSet<Op> = FxHashSet::default();
            for &inner in ops.iter().rev() {
                let read = |other: &Op| captured(func, *other).any(|value| func.defining_op(value) == Some(inner));
                if exchange(&func.ops[inner].kind).is_some() || ops.iter().any(|other| needed.contains(other) && read(other)) {
                    if func.ops[inner].row().effects == Effects::MayTrap {
                        let message =
                            format!("`{}` under a condition decides what ranks exchange", func.ops[inner].row().mnemonic);
                        return Err(Box::new(
                            Diagnostic::error("ranks", func.ops[inner].span, message).help("compute it before the condition"),
                        ));
                    }
                    needed.insert(inner);
                }
            }
            let (moved, kept): (Vec<Op>, Vec<Op>) = ops.into_iter().partition(|inner| needed.contains(inner));
            func.blocks[region].ops = kept;
            let count = moved.len();
            func.blocks[block].ops.splice(at..at, moved);
            at += count;
        }
        at += 1;
    }
    Ok(())
}

/// Every value that an operation or what is in its regions uses; those that regions define are among them.
pub(super) fn captured(func: &Func, op: Op) -> impl Iterator<Item = Value> + '_ {
    let mut found: Vec<Value> = Vec::new();
    let mut open = vec![op];
    while let Some(op) = open.pop() {
        let data = &func.ops[op];
        found.extend(&data.operands);
        open.extend(data.regions.iter().flat_map(|&region| func.blocks[region].ops.iter().copied()));
    }
    found.into_iter()
}

fn holds_store(func: &Func, op: Op) -> bool {
    let data = &func.ops[op];
    matches!(data.kind, OpKind::Graph(GraphOp::Store {}))
        || data.regions.iter().any(|&region| func.blocks[region].ops.iter().any(|&inner| holds_store(func, inner)))
}

struct Splitter<'f> {
    func: &'f Func,
    /// Arguments by the name of their parameter.
    args: IndexMap<String, Value>,
    names: FxHashMap<Value, String>,
    written: FxHashSet<Value>,
    stores: usize,
    /// The operations of the body that use a value.
    users: FxHashMap<Value, Vec<Op>>,
    places: FxHashMap<Value, Place>,
    buffers: Vec<Buffer>,
    steps: Vec<RankStep>,
    prefix: String,
}

impl<'f> Splitter<'f> {
    fn new(func: &'f Func) -> Self {
        let mut args = IndexMap::new();
        let mut names = FxHashMap::default();
        for (position, param) in func.abi.params.iter().enumerate() {
            let arg = func.args()[func.abi.first_argument(position)];
            args.insert(param.name.clone(), arg);
            names.insert(arg, param.name.clone());
        }
        let mut users: FxHashMap<Value, Vec<Op>> = FxHashMap::default();
        for &op in &func.blocks[func.body].ops {
            captured(func, op).for_each(|value| users.entry(value).or_default().push(op));
        }
        let store = |op: &Op| matches!(func.ops[*op].kind, OpKind::Graph(GraphOp::Store {}));
        let stored: Vec<Value> = func.linked_ops().into_iter().filter(store).map(|op| func.ops[op].one(1)).collect();
        let mut prefix = "t".to_string();
        while func.abi.params.iter().any(|param| param.name.starts_with(&prefix)) {
            prefix.push('_');
        }
        let (places, buffers, steps) = (FxHashMap::default(), Vec::new(), Vec::new());
        Splitter {
            func,
            args,
            names,
            stores: stored.len(),
            written: stored.into_iter().collect(),
            users,
            places,
            buffers,
            steps,
            prefix,
        }
    }

    /// Whether an operation's results lie in buffers of their own.
    fn stands_alone(&self, op: Op) -> bool {
        let data = &self.func.ops[op];
        let whole = match &data.kind {
            OpKind::Graph(GraphOp::Contract {} | GraphOp::Reduce { .. }) | OpKind::Schedule(ScheduleOp::If {}) => true,
            // What is overwritten is read before.
            OpKind::Graph(GraphOp::Load { .. }) if self.written.contains(&data.one(0)) => match self.stores {
                1 => true,
                _ => return true,
            },
            _ => false,
        };
        whole && data.results.iter().any(|&result| self.func.ty(result).as_tensor().is_some() && !self.flows(result))
    }

    /// Whether a value goes through elementwise operations into one place, and nowhere else.
    fn flows(&self, value: Value) -> bool {
        let mut value = value;
        loop {
            let Some(&[user]) = self.users.get(&value).map(Vec::as_slice) else { return false };
            let data = &self.func.ops[user];
            match &data.kind {
                OpKind::Graph(GraphOp::Store {}) => return true,
                kind if exchange(kind).is_some() => return true,
                OpKind::Schedule(kind) if !matches!(kind, ScheduleOp::If {}) && data.results.len() == 1 => value = data.result(),
                _ => return false,
            }
        }
    }

    fn buffer(&mut self, value: Value, dtype: DType) -> String {
        let name = format!("{}{}", self.prefix, self.buffers.len());
        let axes = self.func.ty(value).the_tensor().axes.to_vec();
        self.buffers.push(Buffer { name: name.clone(), axes, dtype });
        self.places.insert(value, Place { name: name.clone(), transposed: false });
        name
    }

    /// The element type of what a place holds.
    fn dtype(&self, place: &Place) -> DType {
        let own = self.buffers.iter().find(|buffer| buffer.name == place.name).map(|buffer| buffer.dtype);
        let param = self.func.abi.params.iter().find(|param| param.name == place.name).and_then(|param| match &param.kind {
            ParamKind::Operand { dtype, .. } => Some(*dtype),
            _ => None,
        });
        own.or(param).unwrap_or_else(|| bug!("`{}` is no buffer and no operand", place.name))
    }

    fn exchange(&mut self, op: Op) -> Result<(), Vec<Diagnostic>> {
        let data = &self.func.ops[op];
        let OpKind::Graph(kind) = &data.kind else { return Ok(()) };
        let mut sources = Vec::new();
        for &source in &data.operands {
            if self.direct(source).is_none() {
                self.kernel(&[], &[source])?;
            }
            sources.extend(self.direct(source));
        }
        let mut results = Vec::new();
        for (place, &result) in sources.iter().zip(&data.results) {
            let dtype = self.dtype(place);
            results.push(self.buffer(result, dtype));
        }
        self.steps.push(RankStep::Exchange { kind: kind.clone(), sources, results });
        Ok(())
    }

    /// Where a value lies already: in a buffer, or as an operand that is not overwritten.
    fn direct(&self, value: Value) -> Option<Place> {
        if let Some(place) = self.places.get(&value) {
            return Some(place.clone());
        }
        let data = &self.func.ops[self.func.defining_op(value)?];
        match data.kind {
            OpKind::Graph(GraphOp::Load { transpose }) if !self.written.contains(&data.one(0)) => {
                Some(Place { name: self.names.get(&data.one(0))?.clone(), transposed: transpose })
            }
            _ => None,
        }
    }

    fn compute(&mut self, op: Op) -> Result<(), Vec<Diagnostic>> {
        let results: Vec<Value> =
            self.func.ops[op].results.iter().copied().filter(|&result| self.func.ty(result).as_tensor().is_some()).collect();
        self.kernel(&[], &results)
    }

    /// A kernel that performs these stores and leaves these values in new buffers.
    fn kernel(&mut self, stores: &[Op], values: &[Value]) -> Result<(), Vec<Diagnostic>> {
        let func = self.func;
        let mut needed: FxHashSet<Op> = stores.iter().copied().collect();
        let mut open: Vec<Op> = stores.to_vec();
        open.extend(values.iter().filter_map(|&value| func.defining_op(value)));
        needed.extend(&open);
        while let Some(op) = open.pop() {
            for value in captured(func, op).collect::<Vec<_>>() {
                let Some(from) = func.defining_op(value) else { continue };
                let inside = func.blocks[func.body].ops.contains(&from);
                if inside && !self.places.contains_key(&value) && needed.insert(from) {
                    open.push(from);
                }
            }
        }
        let count = self.steps.iter().filter(|step| matches!(step, RankStep::Kernel(_))).count();
        let mut copy = Func::new(format!("{}_{count}", func.name), Level::Graph, func.span);
        copy.config = func.config.clone();
        copy.hints = func.hints.clone();
        let mut maker = Maker { splitter: self, copy, map: FxHashMap::default(), params: IndexMap::new() };
        let body = maker.copy.body;
        for &op in &func.blocks[func.body].ops {
            if needed.contains(&op) {
                maker.op(op, body);
            }
        }
        let stored: Vec<(Value, Value)> = values.iter().map(|&value| (value, maker.value(value))).collect();
        let Maker { copy, params, .. } = maker;
        let mut kernel = copy;
        let mut params: Vec<AbiParam> = params.into_values().map(|(param, _)| param).collect();
        for (value, made) in stored {
            let tensor = self.func.ty(value).the_tensor().clone();
            let dtype = tensor.elem;
            let name = self.buffer(value, dtype);
            let operand = kernel.add_arg(kernel.body, Type::Operand(Box::new(tensor.clone())), Some(&name));
            let store = kernel.make_op(GraphOp::Store {}.into(), &[&[made], &[operand]], [], [], func.span);
            kernel.blocks[body].ops.push(store);
            params.push(operand_param(name, dtype, &tensor.axes));
        }
        let end = kernel.make_op(ScheduleOp::Return {}.into(), &[], [], [], func.span);
        kernel.blocks[body].ops.push(end);
        kernel.abi.params = params;
        self.cover(&mut kernel)?;
        self.steps.push(RankStep::Kernel(Box::new(kernel)));
        Ok(())
    }

    /// Sizes come from operands: every axis that a kernel speaks of is an axis of one.
    fn cover(&self, kernel: &mut Func) -> Result<(), Vec<Diagnostic>> {
        let mut named: FxHashSet<Axis> = FxHashSet::default();
        for &arg in kernel.args() {
            if let Type::Operand(operand) = kernel.ty(arg) {
                named.extend(operand.axes.iter().cloned());
            }
        }
        let mut missing: Vec<Axis> = Vec::new();
        for op in kernel.linked_ops() {
            for &result in &kernel.ops[op].results {
                let Type::Tensor(tensor) = kernel.ty(result) else { continue };
                let open = tensor.axes.iter().filter(|axis| **axis != Axis::Fixed(1) && !named.contains(axis));
                missing.extend(open.cloned());
            }
        }
        for axis in missing {
            if named.contains(&axis) {
                continue;
            }
            let has = |(name, _, axes): &(String, DType, Vec<Axis>)| {
                axes.contains(&axis) && !kernel.abi.params.iter().any(|param| param.name == *name)
            };
            let Some((name, dtype, axes)) = self.memory().find(has) else {
                let message = format!("no operand of a kernel of `@{}` has the axis `{axis}`", self.func.name);
                return Err(vec![
                    Diagnostic::error("ranks", self.func.span, message).help("give the program an operand with that axis"),
                ]);
            };
            named.extend(axes.iter().cloned());
            let elem = dtype.signless();
            let operand = Type::Operand(Box::new(TensorType { axes: axes.iter().cloned().collect(), elem }));
            kernel.add_arg(kernel.body, operand, Some(&name));
            kernel.abi.params.push(operand_param(name, dtype, &axes));
        }
        Ok(())
    }

    /// Everything that lies in memory: name, element type and axes.
    fn memory(&self) -> impl Iterator<Item = (String, DType, Vec<Axis>)> + '_ {
        let params = self.func.abi.params.iter().filter_map(|param| match (&param.kind, self.func.ty(self.args[&param.name])) {
            (ParamKind::Operand { dtype, .. }, Type::Operand(operand)) => {
                Some((param.name.clone(), *dtype, operand.axes.to_vec()))
            }
            _ => None,
        });
        params.chain(self.buffers.iter().map(|buffer| (buffer.name.clone(), buffer.dtype, buffer.axes.clone())))
    }
}

fn operand_param(name: String, dtype: DType, axes: &[Axis]) -> AbiParam {
    let text = |axis: &Axis| match axis {
        Axis::Symbol(name) => name.clone(),
        Axis::Fixed(extent) => extent.to_string(),
    };
    AbiParam { name, kind: ParamKind::Operand { dtype, axes: axes.iter().map(text).collect() } }
}

/// Copies operations into a kernel.
struct Maker<'s, 'f> {
    splitter: &'s Splitter<'f>,
    copy: Func,
    map: FxHashMap<Value, Value>,
    /// Parameters of the kernel with their arguments, by name.
    params: IndexMap<String, (AbiParam, Value)>,
}

impl Maker<'_, '_> {
    fn param(&mut self, param: AbiParam, ty: Type) -> Value {
        if let Some((_, arg)) = self.params.get(&param.name) {
            return *arg;
        }
        let arg = self.copy.add_arg(self.copy.body, ty, Some(&param.name));
        self.params.insert(param.name.clone(), (param, arg));
        arg
    }

    /// The copy of a value that was copied, is an argument or lies in a buffer.
    fn value(&mut self, value: Value) -> Value {
        if let Some(&made) = self.map.get(&value) {
            return made;
        }
        let func = self.splitter.func;
        if let (Some(place), Some(tensor)) = (self.splitter.places.get(&value), self.splitter.func.ty(value).as_tensor()) {
            let dtype = self.splitter.dtype(place);
            let param = operand_param(place.name.clone(), dtype, &tensor.axes);
            let operand = self.param(param, Type::Operand(Box::new(tensor.clone())));
            let ty = Type::Tensor(Box::new(tensor.clone()));
            let load = self.copy.make_op(GraphOp::Load { transpose: false }.into(), &[&[operand]], [ty], [], func.span);
            // Before everything: a place may be read inside a condition and again behind it.
            let body = self.copy.body;
            self.copy.blocks[body].ops.insert(0, load);
            let made = self.copy.ops[load].result();
            self.map.insert(value, made);
            return made;
        }
        let Def::Argument(..) = func.values[value].def else { return value };
        let Some(param) =
            self.splitter.names.get(&value).and_then(|name| func.abi.params.iter().find(|param| param.name == *name))
        else {
            return value;
        };
        let made = self.param(param.clone(), func.ty(value).clone());
        self.map.insert(value, made);
        made
    }

    fn op(&mut self, op: Op, block: Block) {
        let func = self.splitter.func;
        let data = &func.ops[op];
        let operands: SmallVec<[Value; 4]> = data.operands.iter().map(|&operand| self.value(operand)).collect();
        let regions: Vec<Block> = data
            .regions
            .iter()
            .map(|&region| {
                let copy = self.copy.new_block();
                func.blocks[region].ops.iter().for_each(|&inner| self.op(inner, copy));
                copy
            })
            .collect();
        let mut groups: SmallVec<[&[Value]; 6]> = SmallVec::new();
        let mut rest = operands.as_slice();
        for &count in &data.segments {
            let (group, left) = rest.split_at(usize::from(count));
            groups.push(group);
            rest = left;
        }
        let types: Vec<Type> = data.results.iter().map(|&result| func.ty(result).clone()).collect();
        let made = self.copy.make_op(data.kind.clone(), &groups, types, regions, data.span);
        self.copy.blocks[block].ops.push(made);
        for (&from, to) in data.results.iter().zip(self.copy.ops[made].results.clone()) {
            self.copy.values[to].name.clone_from(&func.values[from].name);
            self.map.insert(from, to);
        }
    }
}
