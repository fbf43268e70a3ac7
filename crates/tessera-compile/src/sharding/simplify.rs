//! Fewer and smaller exchanges in the program of a rank.
//!
//! | what stands there | becomes |
//! |---|---|
//! | `all_gather` of a `reduce_scatter` | `all_reduce` |
//! | `shard` of an `all_reduce` | `reduce_scatter` |
//! | `all_gather` of a `shard` along the same axis, and the reverse | nothing |
//! | `shard` of an `all_gather` along another axis | `all_to_all` |
//! | `all_gather` or `all_to_all` of an `all_to_all` | one exchange, or none |
//! | `all_reduce` of an `all_reduce` over another mesh axis | one over both |
//! | a cast to a narrower type behind a gather, to a wider one before | cast where fewer bytes are moved |
//! | `shard` of what is computed element by element | computed of parts |
//! | the same exchange twice | one |
//! | exchanges of one kind that wait for nothing of each other | one of several tensors |
//!
//! An exchange that others read too stays for them; a rule that would then exchange more does not apply.

use smallvec::SmallVec;
use tessera_ir::attrs::Combine;
use tessera_ir::{Axis, Block, Effects, Func, GraphOp, Mesh, Op, OpData, OpKind, TensorType, Trait, Type, TypeRule, Value, mesh};

use crate::rewrite::{Step, make, rewrite};
use tessera_analysis::uses::Uses;

/// Rounds after which the rules stop; each round makes the program smaller or moves an operation to its sources.
const ROUNDS: usize = 64;

/// Applies the rules until none changes anything; true when one did.
pub(super) fn simplify(func: &mut Func) -> bool {
    let Some(mesh) = func.mesh.clone() else { return false };
    let mut changed = false;
    for _ in 0..ROUNDS {
        let uses = Uses::of(func);
        let local = rewrite(func, |func, op, out| Rule { mesh: &mesh, uses: &uses, op }.apply(func, out)).0;
        let shared = share(func);
        let dead = sweep(func);
        changed |= local || shared || dead;
        if !(local || shared || dead) {
            break;
        }
    }
    while merge(func) {
        changed = true;
    }
    changed
}

/// What an operation exchanges, if it does.
pub(super) fn exchange(kind: &OpKind) -> Option<&GraphOp> {
    match kind {
        OpKind::Graph(GraphOp::Load { .. } | GraphOp::Store {} | GraphOp::Contract {}) => None,
        OpKind::Graph(GraphOp::Reduce { .. } | GraphOp::Broadcast {}) => None,
        OpKind::Graph(kind) => Some(kind),
        OpKind::Schedule(_) | OpKind::Tile(_) => None,
    }
}

struct Rule<'r> {
    mesh: &'r Mesh,
    uses: &'r Uses,
    op: Op,
}

impl Rule<'_> {
    fn apply(&self, func: &mut Func, out: &mut Vec<Op>) -> Step {
        self.replacement(func, out).map_or(Step::Keep, Step::value)
    }

    fn replacement(&self, func: &mut Func, out: &mut Vec<Op>) -> Option<Value> {
        let data = func.ops[self.op].clone();
        let (&[source], &[result]) = (data.operands.as_slice(), data.results.as_slice()) else { return None };
        let made = func.defining_op(source).map(|op| func.ops[op].clone());
        if let Some(value) = self.alone(func, &data, source) {
            return Some(value);
        }
        let made = made?;
        let once = self.uses.count(source) == 1;
        match &data.kind {
            OpKind::Graph(GraphOp::AllGather { over, axis }) => self.gather(func, &made, once, result, (over, *axis), out),
            OpKind::Graph(GraphOp::Shard { over, axis }) => self.shard(func, &made, once, result, (over, *axis), out),
            OpKind::Graph(GraphOp::AllToAll { over, split, join }) => {
                self.all_to_all(func, &made, once, result, (over, *split, *join), out)
            }
            OpKind::Graph(GraphOp::AllReduce { over, combine }) => {
                let (GraphOp::AllReduce { over: inner, combine: same }, [from]) =
                    (exchange(&made.kind)?, made.operands.as_slice())
                else {
                    return None;
                };
                let extreme = matches!(combine, Combine::Max | Combine::Min);
                let apart = over.iter().all(|name| !inner.contains(name));
                if !(combine == same && once && (apart || extreme)) {
                    return None;
                }
                let mut both = inner.clone();
                both.extend(over.iter().filter(|name| !inner.contains(name)).cloned());
                let ty = func.ty(result).clone();
                Some(make(func, self.op, GraphOp::AllReduce { over: both, combine: *combine }, &[*from], ty, out))
            }
            // A cast that leaves fewer bytes to be moved.
            OpKind::Schedule(_) if once && self.narrows(func, &data) => match exchange(&made.kind)? {
                moved @ (GraphOp::AllGather { .. } | GraphOp::AllToAll { .. }) if made.operands.len() == 1 => {
                    let part = of_elem(func, made.operands[0], func.ty(result))?;
                    let cast = make(func, self.op, data.kind.clone(), &[made.operands[0]], part, out);
                    let ty = func.ty(result).clone();
                    Some(make(func, self.op, moved.clone(), &[cast], ty, out))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Among ranks of which there is one along an axis, nothing is exchanged; types tell where a symbol is renamed.
    fn alone(&self, func: &Func, data: &OpData, source: Value) -> Option<Value> {
        let single = |name: &String| self.mesh.axis(name).is_some_and(|axis| axis.size == 1);
        let alone = match exchange(&data.kind)? {
            GraphOp::AllReduce { over, .. } => over.iter().all(single),
            GraphOp::AllGather { over, .. }
            | GraphOp::ReduceScatter { over, .. }
            | GraphOp::AllToAll { over, .. }
            | GraphOp::Shard { over, .. } => single(over),
            _ => false,
        };
        (alone && func.ty(source) == func.ty(data.result())).then_some(source)
    }

    fn gather(
        &self,
        func: &mut Func,
        made: &OpData,
        once: bool,
        result: Value,
        (over, axis): (&String, u32),
        out: &mut Vec<Op>,
    ) -> Option<Value> {
        let ty = func.ty(result).clone();
        let &[from] = made.operands.as_slice() else { return None };
        match &made.kind {
            OpKind::Graph(GraphOp::ReduceScatter { over: by, axis: along, combine }) if once && by == over && *along == axis => {
                let kind = GraphOp::AllReduce { over: vec![over.clone()], combine: *combine };
                Some(make(func, self.op, kind, &[from], ty, out))
            }
            OpKind::Graph(GraphOp::Shard { over: by, axis: along }) if by == over && *along == axis => Some(from),
            OpKind::Graph(GraphOp::AllToAll { over: by, split, join }) if once && by == over && *split == axis => {
                Some(make(func, self.op, GraphOp::AllGather { over: over.clone(), axis: *join }, &[from], ty, out))
            }
            _ => self.widened(func, made, once, result, GraphOp::AllGather { over: over.clone(), axis }, out),
        }
    }

    fn shard(
        &self,
        func: &mut Func,
        made: &OpData,
        once: bool,
        result: Value,
        (over, axis): (&String, u32),
        out: &mut Vec<Op>,
    ) -> Option<Value> {
        let ty = func.ty(result).clone();
        match &made.kind {
            OpKind::Graph(GraphOp::AllReduce { over: all, combine })
                if once && made.operands.len() == 1 && all.contains(over) =>
            {
                let scatter = GraphOp::ReduceScatter { over: over.clone(), axis, combine: *combine };
                let part = make(func, self.op, scatter, &[made.operands[0]], ty.clone(), out);
                let rest: Vec<String> = all.iter().filter(|name| *name != over).cloned().collect();
                if rest.is_empty() {
                    return Some(part);
                }
                Some(make(func, self.op, GraphOp::AllReduce { over: rest, combine: *combine }, &[part], ty, out))
            }
            OpKind::Graph(GraphOp::AllGather { over: by, axis: along }) if made.operands.len() == 1 && by == over => {
                if *along == axis {
                    return Some(made.operands[0]);
                }
                let kind = GraphOp::AllToAll { over: over.clone(), split: axis, join: *along };
                once.then(|| make(func, self.op, kind, &[made.operands[0]], ty, out))
            }
            OpKind::Graph(GraphOp::Broadcast {}) => {
                let from = made.operands[0];
                let (Type::Tensor(whole), source) = (func.ty(made.result()), func.ty(from).clone()) else { return None };
                let position = match &source {
                    Type::Tensor(source) => {
                        let skipped = whole.axes.len() - source.axes.len();
                        (axis as usize).checked_sub(skipped).filter(|&at| source.axes[at] != Axis::Fixed(1))
                    }
                    _ => None,
                };
                let part = match position {
                    Some(at) => self.slice(func, from, over, at as u32, out)?,
                    None => from,
                };
                Some(make(func, self.op, GraphOp::Broadcast {}, &[part], ty, out))
            }
            OpKind::Schedule(_) if once && made.row().has(Trait::Elementwise) && made.row().effects == Effects::Pure => {
                let mut parts: SmallVec<[Value; 4]> = SmallVec::new();
                for &operand in &made.operands {
                    let tensor = matches!(func.ty(operand), Type::Tensor(_));
                    parts.push(if tensor { self.slice(func, operand, over, axis, out)? } else { operand });
                }
                Some(make(func, self.op, made.kind.clone(), &parts, ty, out))
            }
            _ => None,
        }
    }

    fn all_to_all(
        &self,
        func: &mut Func,
        made: &OpData,
        once: bool,
        result: Value,
        (over, split, join): (&String, u32, u32),
        out: &mut Vec<Op>,
    ) -> Option<Value> {
        let ty = func.ty(result).clone();
        let &[from] = made.operands.as_slice() else { return None };
        match &made.kind {
            OpKind::Graph(GraphOp::AllToAll { over: by, split: back, join: forth }) if by == over && *back == join => {
                if *forth == split {
                    return Some(from);
                }
                let kind = GraphOp::AllToAll { over: over.clone(), split, join: *forth };
                once.then(|| make(func, self.op, kind, &[from], ty, out))
            }
            OpKind::Graph(GraphOp::Shard { over: by, axis }) if by == over && *axis == join => {
                Some(make(func, self.op, GraphOp::Shard { over: over.clone(), axis: split }, &[from], ty, out))
            }
            OpKind::Graph(GraphOp::ReduceScatter { over: by, axis, combine }) if once && by == over && *axis == join => {
                let kind = GraphOp::ReduceScatter { over: over.clone(), axis: split, combine: *combine };
                Some(make(func, self.op, kind, &[from], ty, out))
            }
            _ => self.widened(func, made, once, result, GraphOp::AllToAll { over: over.clone(), split, join }, out),
        }
    }

    /// A movement of what a cast made wider moves what it was made from.
    fn widened(
        &self,
        func: &mut Func,
        made: &OpData,
        once: bool,
        result: Value,
        movement: GraphOp,
        out: &mut Vec<Op>,
    ) -> Option<Value> {
        let &[from] = made.operands.as_slice() else { return None };
        let cast = matches!(made.row().rule, TypeRule::Convert(..)) && bits(func, from)? < bits(func, made.result())?;
        if !(cast && once) {
            return None;
        }
        let narrow = of_elem(func, result, func.ty(from))?;
        let moved = make(func, self.op, movement, &[from], narrow, out);
        let ty = func.ty(result).clone();
        Some(make(func, self.op, made.kind.clone(), &[moved], ty, out))
    }

    fn narrows(&self, func: &Func, data: &OpData) -> bool {
        let fewer = || Some(bits(func, data.result())? < bits(func, data.operands[0])?);
        matches!(data.row().rule, TypeRule::Convert(..)) && fewer() == Some(true)
    }

    /// A rank's part of a value.
    fn slice(&self, func: &mut Func, value: Value, over: &str, axis: u32, out: &mut Vec<Op>) -> Option<Value> {
        let Type::Tensor(tensor) = func.ty(value) else { return None };
        let mut tensor = tensor.clone();
        let at = &mut tensor.axes[axis as usize];
        *at = mesh::part(at, self.mesh.axis(over)?)?;
        Some(make(func, self.op, GraphOp::Shard { over: over.to_owned(), axis }, &[value], Type::Tensor(tensor), out))
    }
}

fn bits(func: &Func, value: Value) -> Option<u32> {
    match func.ty(value) {
        Type::Tensor(tensor) => Some(tensor.elem.bits()),
        _ => None,
    }
}

/// The type of one tensor with the elements of another.
fn of_elem(func: &Func, shape: Value, elem: &Type) -> Option<Type> {
    match (func.ty(shape), elem) {
        (Type::Tensor(shape), Type::Tensor(elem)) => {
            Some(Type::Tensor(Box::new(TensorType { axes: shape.axes.clone(), elem: elem.elem })))
        }
        _ => None,
    }
}

/// Exchanges that stand in one block twice become one.
fn share(func: &mut Func) -> bool {
    let mut found: Vec<(Value, Value)> = Vec::new();
    for block in func.linked_blocks() {
        let exchanges: Vec<Op> =
            func.blocks[block].ops.iter().copied().filter(|&op| exchange(&func.ops[op].kind).is_some()).collect();
        for (position, &later) in exchanges.iter().enumerate() {
            let same = |&&earlier: &&Op| {
                func.ops[earlier].kind == func.ops[later].kind && func.ops[earlier].operands == func.ops[later].operands
            };
            if let Some(&earlier) = exchanges[..position].iter().find(same) {
                found.extend(func.ops[later].results.iter().copied().zip(func.ops[earlier].results.iter().copied()));
            }
        }
    }
    func.replace_uses(|value| found.iter().find(|(later, _)| *later == value).map_or(value, |&(_, earlier)| earlier));
    // What is replaced is dead now; the sweep sees it.
    false
}

/// Removes pure operations that nobody reads; true when there were any.
fn sweep(func: &mut Func) -> bool {
    let mut changed = false;
    loop {
        let uses = Uses::of(func);
        let before = func.linked_ops().len();
        for block in func.linked_blocks() {
            let mut ops = std::mem::take(&mut func.blocks[block].ops);
            ops.retain(|&op| {
                let data = &func.ops[op];
                let pure = matches!(data.row().effects, Effects::Pure | Effects::Read);
                !pure || data.results.iter().any(|&result| uses.count(result) > 0)
            });
            func.blocks[block].ops = ops;
        }
        if func.linked_ops().len() == before {
            return changed;
        }
        changed = true;
    }
}

/// Makes one exchange of two neighbours of one kind, where one can stand at the other's place; true when it did.
fn merge(func: &mut Func) -> bool {
    for block in func.linked_blocks() {
        let ops = func.blocks[block].ops.clone();
        for (second, &op) in ops.iter().enumerate() {
            let is = |op: Op| matches!(exchange(&func.ops[op].kind), Some(kind) if !matches!(kind, GraphOp::Shard { .. }));
            if !is(op) {
                continue;
            }
            let first = ops[..second].iter().rposition(|&other| is(other) && func.ops[other].kind == func.ops[op].kind);
            let Some(first) = first else { continue };
            let between = &ops[first + 1..second];
            // What waits for the first goes behind the second, unless that waits for it too.
            let mut waiting: Vec<Op> = vec![ops[first]];
            for &other in between {
                let waits = waiting.iter().any(|&earlier| reads(func, other, &func.ops[earlier].results));
                if waits {
                    waiting.push(other);
                }
            }
            let apart = !waiting.iter().any(|&earlier| reads(func, op, &func.ops[earlier].results));
            let moves = waiting[1..].iter().all(|&other| func.ops[other].row().effects == Effects::Pure);
            let made = |value: &Value, op: Op| func.ops[op].results.contains(value);
            let early = !func.ops[op].operands.iter().any(|source| ops[first..second].iter().any(|&other| made(source, other)));
            if early || apart && moves {
                join(func, block, &ops, (first, second), if early { None } else { Some(&waiting[1..]) });
                return true;
            }
        }
    }
    false
}

/// Whether an operation or what is in its regions uses one of the values.
fn reads(func: &Func, op: Op, values: &[Value]) -> bool {
    let data = &func.ops[op];
    data.operands.iter().any(|operand| values.contains(operand))
        || data.regions.iter().any(|&region| func.blocks[region].ops.iter().any(|&inner| reads(func, inner, values)))
}

/// One exchange in the place of two: of the first, or of the second with what waits for the first moved behind it.
fn join(func: &mut Func, block: Block, ops: &[Op], (first, second): (usize, usize), moved: Option<&[Op]>) {
    let (a, b) = (func.ops[ops[first]].clone(), func.ops[ops[second]].clone());
    let sources: SmallVec<[Value; 4]> = a.operands.iter().chain(&b.operands).copied().collect();
    let old: SmallVec<[Value; 4]> = a.results.iter().chain(&b.results).copied().collect();
    let types: Vec<Type> = old.iter().map(|&value| func.ty(value).clone()).collect();
    let made = func.make_op(a.kind.clone(), &[&sources], types, [], a.span);
    let new = func.ops[made].results.clone();
    for (&from, &to) in old.iter().zip(&new) {
        func.values[to].name = func.values[from].name.clone();
    }
    func.replace_uses(|value| old.iter().position(|&from| from == value).map_or(value, |position| new[position]));
    let mut order = Vec::with_capacity(ops.len());
    for (position, &op) in ops.iter().enumerate() {
        match moved {
            None if position == first => order.push(made),
            Some(moved) if position == second => {
                order.push(made);
                order.extend_from_slice(moved);
            }
            _ if position == first || position == second => {}
            Some(moved) if moved.contains(&op) => {}
            _ => order.push(op),
        }
    }
    func.blocks[block].ops = order;
}
