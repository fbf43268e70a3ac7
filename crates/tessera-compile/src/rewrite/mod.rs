//! Rewriting functions, for passes and for those who make functions: the walk that local passes share, and what cleans up behind it.
//!
//! The walk visits every operation once, in text order, with its operands already replaced. A rule keeps the operation, replaces its results by
//! other values, or puts the contents of one of its regions in its place. [`drop_dead`] and [`out_of_loops`] are passes of their own, too.

pub(crate) mod dce;
pub(crate) mod licm;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tessera_ir::{Block, Changed, Func, Op, OpKind, ScheduleOp, Type, Value};

pub(crate) use self::dce::drop_dead;
pub(crate) use self::licm::out_of_loops;

/// What becomes of an operation.
pub(crate) enum Step {
    /// It stays, and its regions are visited.
    Keep,
    /// It stays, but uses of some of its results become uses of other values.
    Forward(SmallVec<[(Value, Value); 2]>),
    /// It goes; its results become these values.
    Replace(SmallVec<[Value; 2]>),
    /// It goes; the block's operations take its place, with the block's arguments replaced by these values. What ends the
    /// block gives the results, or ends the surrounding block when it leaves it.
    Inline(Block, SmallVec<[Value; 4]>),
}

impl Step {
    /// One result becomes one value.
    pub(crate) fn value(value: Value) -> Step {
        Step::Replace(SmallVec::from_slice(&[value]))
    }
}

/// Applies the rule everywhere; new operations are pushed to the list that it is given, which stands before the operation.
pub(crate) fn rewrite(func: &mut Func, rule: impl FnMut(&mut Func, Op, &mut Vec<Op>) -> Step) -> Changed {
    let body = func.body;
    let mut walk = Walk { func, rule, map: FxHashMap::default(), changed: false };
    walk.block(body);
    Changed(walk.changed)
}

struct Walk<'f, R> {
    func: &'f mut Func,
    rule: R,
    map: FxHashMap<Value, Value>,
    changed: bool,
}

impl<R: FnMut(&mut Func, Op, &mut Vec<Op>) -> Step> Walk<'_, R> {
    fn block(&mut self, block: Block) {
        let ops = std::mem::take(&mut self.func.blocks[block].ops);
        let mut out = Vec::with_capacity(ops.len());
        for op in ops {
            if self.op(op, &mut out) {
                break;
            }
        }
        self.func.blocks[block].ops = out;
    }

    /// True when the block ends here, before its last operation.
    fn op(&mut self, op: Op, out: &mut Vec<Op>) -> bool {
        for operand in &mut self.func.ops[op].operands {
            *operand = self.map.get(operand).copied().unwrap_or(*operand);
        }
        let before = out.len();
        let step = (self.rule)(self.func, op, out);
        self.changed |= out.len() != before || !matches!(step, Step::Keep);
        match step {
            Step::Keep => {
                self.keep(op, out);
                false
            }
            Step::Forward(pairs) => {
                self.keep(op, out);
                self.map.extend(pairs);
                false
            }
            Step::Replace(values) => {
                self.replace(op, &values);
                false
            }
            Step::Inline(block, args) => {
                for (arg, value) in self.func.blocks[block].args.clone().into_iter().zip(args) {
                    self.map.insert(arg, value);
                }
                self.inline(op, block, out)
            }
        }
    }

    fn keep(&mut self, op: Op, out: &mut Vec<Op>) {
        out.push(op);
        for region in self.func.ops[op].regions.clone() {
            self.block(region);
        }
    }

    fn replace(&mut self, op: Op, values: &[Value]) {
        let results = self.func.ops[op].results.clone();
        for (result, &value) in results.into_iter().zip(values) {
            self.map.insert(result, value);
            if self.func.values[value].name.is_none() {
                self.func.values[value].name = self.func.values[result].name.take();
            }
        }
    }

    fn inline(&mut self, owner: Op, block: Block, out: &mut Vec<Op>) -> bool {
        let from_loop = !matches!(self.func.ops[owner].kind, OpKind::Schedule(ScheduleOp::If {}));
        for op in std::mem::take(&mut self.func.blocks[block].ops) {
            let gives_results = match &self.func.ops[op].kind {
                OpKind::Schedule(ScheduleOp::Yield {}) => true,
                OpKind::Schedule(ScheduleOp::Continue {}) => from_loop,
                _ => false,
            };
            if gives_results {
                let values: SmallVec<[Value; 4]> =
                    self.func.ops[op].operands.iter().map(|v| self.map.get(v).copied().unwrap_or(*v)).collect();
                self.replace(owner, &values);
                return false;
            }
            let leaves = matches!(
                &self.func.ops[op].kind,
                OpKind::Schedule(ScheduleOp::Continue {} | ScheduleOp::Break {} | ScheduleOp::Return {})
            );
            if self.op(op, out) || leaves {
                return true;
            }
        }
        false
    }
}

/// Makes an operation with one result for a rule to push.
pub(crate) fn make(func: &mut Func, at: Op, kind: impl Into<OpKind>, operands: &[Value], ty: Type, out: &mut Vec<Op>) -> Value {
    let span = func.ops[at].span;
    let groups: SmallVec<[&[Value]; 4]> = operands.iter().map(std::slice::from_ref).collect();
    let op = func.make_op(kind.into(), &groups, [ty], [], span);
    out.push(op);
    func.ops[op].result()
}

/// Whether an operation, or one of its regions, uses one of these values.
pub(crate) fn uses(func: &Func, op: Op, values: &[Value]) -> bool {
    let data = &func.ops[op];
    let inner = || data.regions.iter().any(|&region| func.blocks[region].ops.iter().any(|&op| uses(func, op, values)));
    data.used().any(|used| values.contains(&used)) || inner()
}

/// Copies operations in order, with uses replaced; the map learns what their results become.
pub(crate) fn copy(func: &mut Func, ops: &[Op], map: &mut FxHashMap<Value, Value>, out: &mut Vec<Op>) {
    for &op in ops {
        let made = deep(func, op, map);
        out.push(made);
    }
}

/// Copies an operation with its regions.
pub(crate) fn deep(func: &mut Func, op: Op, map: &mut FxHashMap<Value, Value>) -> Op {
    let data = func.ops[op].clone();
    let mut regions: Vec<Block> = Vec::new();
    for &region in &data.regions {
        let block = func.new_block();
        for arg in func.blocks[region].args.clone() {
            let ty = func.ty(arg).clone();
            let own = func.add_arg(block, ty, None);
            map.insert(arg, own);
        }
        let mut ops = Vec::new();
        copy(func, &func.blocks[region].ops.clone(), map, &mut ops);
        func.blocks[block].ops = ops;
        regions.push(block);
    }
    let mapped = |values: &[Value]| -> Vec<Value> { values.iter().map(|value| *map.get(value).unwrap_or(value)).collect() };
    let groups: Vec<Vec<Value>> = (0..data.segments.len()).map(|at| mapped(data.group(at))).collect();
    let through = data.through.map(|buffer| map.get(&buffer).copied().unwrap_or(buffer));
    let groups: Vec<&[Value]> = groups.iter().map(Vec::as_slice).collect();
    let types: Vec<Type> = data.results.iter().map(|&result| func.ty(result).clone()).collect();
    let made = func.make_op(data.kind, &groups, types, regions, data.span);
    func.ops[made].through = through;
    for (&old, new) in data.results.iter().zip(func.ops[made].results.clone()) {
        func.values[new].name = func.values[old].name.clone();
        map.insert(old, new);
    }
    made
}
