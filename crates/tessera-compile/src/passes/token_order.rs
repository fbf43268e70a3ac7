//! `token-order`: makes the order of memory operations explicit. The front end writes them in program order without tokens; here
//! each waits for those that it may meet: a read for the last write of its memory, a write for that and for all reads since. Arrays
//! that nobody writes need no order. Loops carry one token for each kind of memory that they touch, conditions yield one.
//!
//! ```text
//! %1 = store_view_tko %x, %view, [%i] : token
//! %2, %3 = load_view_tko %view, [%j], token=%1 : tile<64xf32>, token
//! ```
//!
//! What may meet is [`tessera_analysis::memory`]'s alias rule.

use smallvec::SmallVec;
use tessera_ir::{Block, Changed, Func, Op, OpKind, Pass, PassCx, ScheduleOp, Type, Value, bug};

use crate::rewrite::make;
use tessera_analysis::memory::{Access, Root, access, accesses};

/// Token ordering.
pub(super) const PASS: Pass =
    Pass { name: "token-order", doc: "Threads tokens through memory operations in program order.", run };

fn run(func: &mut Func, _: &mut PassCx<'_>) -> Changed {
    let mut all: SmallVec<[Access; 8]> = SmallVec::new();
    for &op in &func.blocks[func.body].ops {
        accesses(func, op, &mut all);
    }
    let written = |root: Root| all.iter().any(|other| other.writes && other.root.meets(root));
    let mut kinds: Vec<Root> = all.iter().map(|access| access.root).filter(|&root| written(root)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    if kinds.is_empty() {
        return Changed(false);
    }
    let state = vec![Order::default(); kinds.len()];
    let mut threading = Threading { func, kinds, loops: Vec::new(), changed: false };
    threading.block(threading.func.body, state);
    Changed(threading.changed)
}

/// The order of one kind of memory at a point of the program.
#[derive(Clone, Default)]
struct Order {
    /// The last write.
    write: Option<Value>,
    /// Reads since.
    reads: SmallVec<[Value; 4]>,
}

impl Order {
    fn all(&self) -> impl Iterator<Item = Value> + '_ {
        self.write.iter().chain(&self.reads).copied()
    }
}

struct Threading<'f> {
    func: &'f mut Func,
    /// Kinds of memory that somebody writes.
    kinds: Vec<Root>,
    /// For each loop around this point, the kinds that it carries.
    loops: Vec<Vec<usize>>,
    changed: bool,
}

impl Threading<'_> {
    /// The kinds that an access may meet.
    fn meets(&self, root: Root) -> Vec<usize> {
        (0..self.kinds.len()).filter(|&kind| self.kinds[kind].meets(root)).collect()
    }

    /// The state at the block's end, which is meaningless when the block leaves by an exit.
    fn block(&mut self, block: Block, mut state: Vec<Order>) -> Vec<Order> {
        let ops = std::mem::take(&mut self.func.blocks[block].ops);
        let mut out = Vec::with_capacity(ops.len());
        for op in ops {
            self.op(op, &mut state, &mut out);
        }
        self.func.blocks[block].ops = out;
        state
    }

    fn op(&mut self, op: Op, state: &mut [Order], out: &mut Vec<Op>) {
        if let Some(access) = access(self.func, op) {
            self.access(op, access, state, out);
            out.push(op);
            return;
        }
        match self.func.ops[op].kind.schedule() {
            Some(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => self.repeat(op, state, out),
            Some(ScheduleOp::If {}) => self.choose(op, state, out),
            Some(ScheduleOp::Continue {} | ScheduleOp::Break {}) => {
                let carried = self.loops.last().cloned();
                for kind in carried.unwrap_or_else(|| bug!("an exit without a loop")) {
                    let token = self.join_or_make(op, state[kind].all().collect(), out);
                    self.append(op, token);
                }
                out.push(op);
            }
            _ => out.push(op),
        }
    }

    fn access(&mut self, op: Op, access: Access, state: &mut [Order], out: &mut Vec<Op>) {
        let kinds = self.meets(access.root);
        if kinds.is_empty() {
            return;
        }
        let mut after: Vec<Value> = Vec::new();
        for &kind in &kinds {
            after.extend(state[kind].write);
            if access.writes {
                after.extend(&state[kind].reads);
            }
        }
        let last = self.func.ops[op].segments.len() - 1;
        let given = self.func.ops[op].optional(last);
        after.extend(given);
        if let Some(token) = self.join(op, after, out)
            && given != Some(token)
        {
            if given.is_some() {
                self.func.ops[op].operands.pop();
                self.func.ops[op].segments[last] = 0;
            }
            self.append(op, token);
        }
        let Some(&token) = self.func.ops[op].results.last() else { return };
        for kind in kinds {
            if access.writes {
                state[kind] = Order { write: Some(token), reads: SmallVec::new() };
            } else {
                state[kind].reads.push(token);
            }
        }
    }

    /// Adds a value to the last declared operand.
    fn append(&mut self, op: Op, value: Value) {
        self.func.ops[op].operands.push(value);
        if let Some(last) = self.func.ops[op].segments.last_mut() {
            *last += 1;
        }
        self.changed = true;
    }

    fn join(&mut self, at: Op, mut tokens: Vec<Value>, out: &mut Vec<Op>) -> Option<Value> {
        tokens.sort_unstable();
        tokens.dedup();
        if tokens.len() < 2 {
            return tokens.pop();
        }
        let span = self.func.ops[at].span;
        let join = self.func.make_op(ScheduleOp::JoinTokens {}.into(), &[&tokens], [Type::Token], [], span);
        out.push(join);
        Some(self.func.ops[join].result())
    }

    fn join_or_make(&mut self, at: Op, tokens: Vec<Value>, out: &mut Vec<Op>) -> Value {
        match self.join(at, tokens, out) {
            Some(token) => token,
            None => make(self.func, at, ScheduleOp::MakeToken {}, &[], Type::Token, out),
        }
    }

    /// The kinds that an operation's regions touch, and whether they write them.
    fn touched(&self, op: Op) -> Vec<(usize, bool)> {
        let mut inside: SmallVec<[Access; 8]> = SmallVec::new();
        accesses(self.func, op, &mut inside);
        (0..self.kinds.len())
            .filter_map(|kind| {
                let mut meeting = inside.iter().filter(|access| access.root.meets(self.kinds[kind])).peekable();
                meeting.peek()?;
                Some((kind, meeting.any(|access| access.writes)))
            })
            .collect()
    }

    fn add_result(&mut self, op: Op) -> Value {
        let position = self.func.ops[op].results.len() as u32;
        let def = tessera_ir::Def::Result(op, position);
        let value = self.func.values.push(tessera_ir::ValueData { ty: Type::Token, def, name: None });
        self.func.ops[op].results.push(value);
        value
    }

    fn repeat(&mut self, op: Op, state: &mut [Order], out: &mut Vec<Op>) {
        let touched = self.touched(op);
        let body = self.func.ops[op].regions[0];
        let mut inner = state.to_vec();
        for &(kind, writes) in &touched {
            let before = if writes { state[kind].all().collect() } else { Vec::new() };
            let init = self.join_or_make(op, before, out);
            self.append(op, init);
            let arg = self.func.add_arg(body, Type::Token, None);
            inner[kind] = if writes {
                Order { write: Some(arg), reads: SmallVec::new() }
            } else {
                Order { write: state[kind].write, reads: SmallVec::from_slice(&[arg]) }
            };
        }
        self.loops.push(touched.iter().map(|&(kind, _)| kind).collect());
        self.block(body, inner);
        self.loops.pop();
        for (kind, writes) in touched {
            let result = self.add_result(op);
            self.after(&mut state[kind], writes, result);
        }
        out.push(op);
    }

    fn choose(&mut self, op: Op, state: &mut [Order], out: &mut Vec<Op>) {
        let touched = self.touched(op);
        for region in self.func.ops[op].regions.clone() {
            let end = self.block(region, state.to_vec());
            let last = self.func.blocks[region].ops.pop().unwrap_or_else(|| bug!("a branch without an end"));
            if matches!(self.func.ops[last].kind, OpKind::Schedule(ScheduleOp::Yield {})) {
                let mut ops = std::mem::take(&mut self.func.blocks[region].ops);
                for &(kind, _) in &touched {
                    let token = self.join_or_make(last, end[kind].all().collect(), &mut ops);
                    self.append(last, token);
                }
                self.func.blocks[region].ops = ops;
            }
            self.func.blocks[region].ops.push(last);
        }
        for (kind, writes) in touched {
            let result = self.add_result(op);
            self.after(&mut state[kind], writes, result);
        }
        out.push(op);
    }

    fn after(&mut self, order: &mut Order, writes: bool, token: Value) {
        self.changed = true;
        if writes {
            *order = Order { write: Some(token), reads: SmallVec::new() };
        } else {
            order.reads.push(token);
        }
    }
}
