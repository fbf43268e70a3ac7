//! Branches: `if` statements and expressions, `and` and `or`, early returns of inlined functions.

use tessera_ir::{Block, Diagnostic, Effects, Op, OpKind, ScheduleOp, Span, Value};
use tessera_types::DType;

use super::operand::At;
use super::skeleton::Skeleton;
use super::stmt::Rest;
use super::{Flow, Locals, Lowerer, Res};
use crate::ast::{BinaryOp, BoolOp, Expr, ExprKind, Stmt, UnaryOp};
use crate::diagnostics::id;
use crate::number::Num;
use crate::value::{Binding, Tile, Unusable, Val};

/// A condition.
pub(crate) enum Condition {
    /// Decided when the kernel is compiled.
    Known(bool),
    /// A scalar truth value.
    AtRunTime(Tile),
}

/// What a branch left: its block, its variables, and how it ended.
struct Branch {
    block: Block,
    locals: Locals,
    flow: Flow,
}

/// A value that both branches compute, with what it is called.
struct Both<'a> {
    first: &'a At,
    second: &'a At,
    what: &'a str,
}

impl Lowerer<'_> {
    /// The truth of a value.
    pub(crate) fn condition(&mut self, at: &At) -> Res<Condition> {
        match &at.0 {
            Val::Tile(tile) if !tile.shape.is_empty() => Err(Box::new(
                Diagnostic::error(id::CONDITION, at.1, "a tile has no single truth value")
                    .label(format!("this is {}", at.0.describe()))
                    .help("choose elements with `ct.where`, or reduce the tile to a scalar first"),
            )),
            Val::Tile(tile) if tile.known.is_none() => {
                let tile = self.convert(tile.clone(), DType::B1, None, at.1)?;
                Ok(Condition::AtRunTime(tile))
            }
            Val::Instance(..) | Val::Member(..) => {
                for name in ["__bool__", "__len__"] {
                    if let Some(value) = self.special(&at.0, name, &[], at.1)? {
                        return self.condition(&(value, at.1));
                    }
                }
                self.constant_truth(at).map(Condition::Known)
            }
            Val::Array(_) | Val::List(_) | Val::View(_) => Err(Box::new(
                Diagnostic::error(id::CONDITION, at.1, "a condition is a scalar or a compile-time value")
                    .label(format!("this is {}", at.0.describe())),
            )),
            _ => self.constant_truth(at).map(Condition::Known),
        }
    }

    fn check_branch(&self, span: Span) -> Res<()> {
        match self.combining {
            Some(kind) => Err(Box::new(
                Diagnostic::error(id::REDUCE_BODY, span, format!("a run-time branch can't stand in the function of a {kind}"))
                    .help("choose with `ct.where`"),
            )),
            None => Ok(()),
        }
    }

    /// The truth of an expression where nothing else of it is asked for, as behind `if`: `and`, `or` and `not` combine truth values.
    pub(crate) fn test(&mut self, expr: &Expr) -> Res<Condition> {
        match &expr.kind {
            ExprKind::BoolOp(op, items) => self.deeper(expr.span, |lowerer| lowerer.bool_test(*op, items, expr.span)),
            ExprKind::Unary(UnaryOp::Not, inner) => self.deeper(expr.span, |lowerer| {
                Ok(match lowerer.test(inner)? {
                    Condition::Known(value) => Condition::Known(!value),
                    Condition::AtRunTime(tile) => {
                        lowerer.span = expr.span;
                        Condition::AtRunTime(lowerer.complement(&tile, expr.span)?)
                    }
                })
            }),
            _ => {
                let at = self.at(expr)?;
                self.span = at.1;
                self.condition(&at)
            }
        }
    }

    fn bool_test(&mut self, op: BoolOp, items: &[Expr], span: Span) -> Res<Condition> {
        let Some((first, rest)) = items.split_first() else { return Ok(Condition::Known(op == BoolOp::And)) };
        let left = self.test(first)?;
        if rest.is_empty() {
            return Ok(left);
        }
        self.and_then(op, left, span, |lowerer| lowerer.bool_test(op, rest, span))
    }

    /// `left and right`, `left or right` as truth values: the right one is computed only where it matters, unless that has no effect.
    pub(crate) fn and_then(
        &mut self,
        op: BoolOp,
        left: Condition,
        span: Span,
        right: impl FnOnce(&mut Self) -> Res<Condition>,
    ) -> Res<Condition> {
        let stops_at = op == BoolOp::Or;
        let condition = match left {
            Condition::Known(value) if value == stops_at => return Ok(Condition::Known(value)),
            Condition::Known(_) => return right(self),
            Condition::AtRunTime(condition) => condition,
        };
        let block = self.func.new_block();
        let right = self.within(block, |lowerer| {
            Ok::<_, Box<Diagnostic>>(match right(lowerer)? {
                Condition::Known(value) => lowerer.constant(Num::Bool(value), DType::B1, Default::default(), span)?,
                Condition::AtRunTime(tile) => tile,
            })
        })?;
        self.span = span;
        if self.is_pure(block) {
            self.splice(block);
            let op = if stops_at { BinaryOp::Or } else { BinaryOp::And };
            let tile = self.bitwise_tiles(op, &condition, &right);
            return self.condition(&(Val::Tile(tile), span));
        }
        self.check_branch(span)?;
        let other = self.func.new_block();
        let decided = self.within(other, |lowerer| lowerer.constant(Num::Bool(stops_at), DType::B1, Default::default(), span))?;
        let (blocks, values) = if stops_at { ([other, block], [decided, right]) } else { ([block, other], [right, decided]) };
        let [first, second] = values.map(|tile| (Val::Tile(tile), span));
        let both = Both { first: &first, second: &second, what: "this condition" };
        let joined = self.join(&condition, span, blocks, &both)?;
        self.condition(&(joined, span))
    }

    pub(crate) fn if_stmt(&mut self, test: &Expr, body: &[Stmt], orelse: &[Stmt], span: Span) -> Res<Flow> {
        let condition = match self.test(test)? {
            Condition::Known(true) => return self.stmts(body),
            Condition::Known(false) => return self.stmts(orelse),
            Condition::AtRunTime(condition) => condition,
        };
        self.check_branch(test.span)?;
        let before = self.frame().locals.clone();
        let then_block = self.func.new_block();
        let then_flow = self.within(then_block, |lowerer| lowerer.stmts(body))?;
        let then_locals = std::mem::replace(&mut self.frame().locals, before);
        let else_block = self.func.new_block();
        if then_flow == Flow::Exits {
            // What follows runs under the opposite condition; it needs no region.
            self.span = span;
            self.within(else_block, |lowerer| lowerer.emit(ScheduleOp::Yield {}, &[&[]], []));
            self.emit_if(&condition, [], [then_block, else_block]);
            return self.stmts(orelse);
        }
        let else_flow = self.within(else_block, |lowerer| lowerer.stmts(orelse))?;
        let else_locals = std::mem::take(&mut self.frame().locals);
        let then = Branch { block: then_block, locals: then_locals, flow: then_flow };
        let other = Branch { block: else_block, locals: else_locals, flow: else_flow };
        self.merge(&condition, then, other, None, span)?;
        Ok(Flow::Falls)
    }

    fn emit_if(&mut self, condition: &Tile, results: impl IntoIterator<Item = tessera_ir::Type>, regions: [Block; 2]) -> Op {
        self.emit_with_regions(ScheduleOp::If {}, &[&[condition.value]], results, regions)
    }

    /// Emits the `if` and joins the variables of its branches, the first of which falls through, and a value that both compute.
    fn merge(&mut self, condition: &Tile, then: Branch, other: Branch, both: Option<&Both<'_>>, span: Span) -> Res<Option<Val>> {
        let mut merged = Locals::new();
        let mut flowing: Vec<(String, Skeleton, Span)> = Vec::new();
        let (mut then_values, mut else_values) = (Vec::new(), Vec::new());
        let mut value = None;
        if let Some(both) = both {
            value = self.meet(both, span, [then.block, other.block], [&mut then_values, &mut else_values])?;
        }
        for (name, binding) in &then.locals {
            let outer = other.locals.get(name);
            let place = binding.span;
            if other.flow == Flow::Exits {
                // Only the first branch goes on; what it computed must leave its region.
                if outer.is_some_and(|outer| outer.value.same(&binding.value)) || matches!(binding.value, Val::Unusable(_)) {
                    merged.insert(name.clone(), binding.clone());
                    continue;
                }
                if binding.value.is_bound_to_block() {
                    merged.insert(name.clone(), bound_to_branch(name, &binding.value, place));
                    continue;
                }
                let skeleton = self.skeleton(&binding.value, place)?;
                self.within(then.block, |lowerer| lowerer.flatten(&binding.value, place, &mut then_values))?;
                flowing.push((name.clone(), skeleton, place));
                continue;
            }
            let Some(outer) = outer else {
                merged.insert(name.clone(), missing(name, place, "assigned on one path only"));
                continue;
            };
            if outer.value.same(&binding.value) || matches!(binding.value, Val::Unusable(_)) {
                merged.insert(name.clone(), binding.clone());
                continue;
            }
            if matches!(outer.value, Val::Unusable(_)) {
                merged.insert(name.clone(), outer.clone());
                continue;
            }
            let (x, y) = (self.skeleton(&binding.value, place)?, self.skeleton(&outer.value, outer.span)?);
            if !x.same(&y) {
                merged.insert(name.clone(), conflict(name, (&x, place), (&y, outer.span)));
                continue;
            }
            self.within(then.block, |lowerer| lowerer.flatten(&binding.value, place, &mut then_values))?;
            self.within(other.block, |lowerer| lowerer.flatten(&outer.value, outer.span, &mut else_values))?;
            flowing.push((name.clone(), x, place));
        }
        for (name, binding) in &other.locals {
            if !then.locals.contains_key(name) && other.flow == Flow::Falls {
                merged.insert(name.clone(), missing(name, binding.span, "assigned on one path only"));
            }
        }
        self.span = span;
        self.within(then.block, |lowerer| lowerer.emit(ScheduleOp::Yield {}, &[&then_values], []));
        if other.flow == Flow::Falls {
            self.within(other.block, |lowerer| lowerer.emit(ScheduleOp::Yield {}, &[&else_values], []));
        }
        let mut types = Vec::new();
        value.iter().for_each(|skeleton| skeleton.types(&mut types));
        flowing.iter().for_each(|(_, skeleton, _)| skeleton.types(&mut types));
        let op = self.emit_if(condition, types, [then.block, other.block]);
        let results = self.func.ops[op].results.clone();
        let mut values = results.into_iter();
        let value = match (value, both) {
            (Some(skeleton), _) => Some(self.rebuild(&skeleton, &mut values)),
            (None, both) => both.map(|both| both.first.0.clone()),
        };
        for (name, skeleton, place) in flowing {
            let value = self.rebuild(&skeleton, &mut values);
            if let Val::Tile(tile) = &value {
                self.name_value(tile.value, &name);
            }
            merged.insert(name, Binding { value, span: place });
        }
        self.frame().locals = merged;
        Ok(value)
    }

    /// The type of a value that both branches compute, with what flows out of each; none where it is the same in both.
    fn meet(&mut self, both: &Both<'_>, span: Span, blocks: [Block; 2], out: [&mut Vec<Value>; 2]) -> Res<Option<Skeleton>> {
        let Both { first, second, what } = both;
        if first.0.same(&second.0) {
            return Ok(None);
        }
        let (x, y) = (self.skeleton(&first.0, first.1)?, self.skeleton(&second.0, second.1)?);
        if !x.same(&y) {
            return Err(Box::new(
                Diagnostic::error(
                    id::PATH_TYPE,
                    span,
                    format!("{what} is {} on one path and {} on the other", x.describe(), y.describe()),
                )
                .label("decided at run time")
                .also(first.1, format!("this is {}", x.describe()))
                .also(second.1, format!("this is {}", y.describe()))
                .help(one_type(&x, &y)),
            ));
        }
        self.span = span;
        for ((block, out), value) in blocks.into_iter().zip(out).zip([first, second]) {
            self.within(block, |lowerer| lowerer.flatten(&value.0, value.1, out))?;
        }
        Ok(Some(x))
    }

    /// Emits the `if` of two blocks that each compute one value.
    fn join(&mut self, condition: &Tile, span: Span, blocks: [Block; 2], both: &Both<'_>) -> Res<Val> {
        let locals = std::mem::take(&mut self.frame().locals);
        let [then, other] = blocks.map(|block| Branch { block, locals: Locals::new(), flow: Flow::Falls });
        let value = self.merge(condition, then, other, Some(both), span);
        self.frame().locals = locals;
        Ok(value?.unwrap_or(Val::None))
    }

    /// An `if` of an inlined function with a `return` in it: what follows is lowered into both branches.
    pub(crate) fn returning_if(&mut self, test: &Expr, body: &[Stmt], orelse: &[Stmt], rest: &Rest<'_>) -> Res<Flow> {
        let condition = match self.test(test)? {
            Condition::Known(true) => return self.run(body, Some(rest)),
            Condition::Known(false) => return self.run(orelse, Some(rest)),
            Condition::AtRunTime(condition) => condition,
        };
        self.check_branch(test.span)?;
        self.returning_branches(
            &condition,
            test.span,
            |lowerer| lowerer.run(body, Some(rest)),
            |lowerer| lowerer.run(orelse, Some(rest)),
        )
    }

    /// Behind a loop that may have returned, or that only a return ends: the value, or what follows.
    pub(crate) fn after_returning_loop(&mut self, returns: bool, rest: &Rest<'_>, span: Span) -> Res<Flow> {
        let returned = self.frame().locals.shift_remove(RETURNED);
        let value = self.frame().locals.shift_remove(VALUE);
        let (Some(returned), Some(value)) = (returned, value) else { return self.run(rest.stmts, rest.next) };
        let condition = match self.condition(&(returned.value, span))? {
            _ if returns => Condition::Known(true),
            condition => condition,
        };
        let condition = match condition {
            Condition::Known(true) => {
                self.frame().returned = Some((value.value, value.span));
                return Ok(Flow::Exits);
            }
            Condition::Known(false) => return self.run(rest.stmts, rest.next),
            Condition::AtRunTime(condition) => condition,
        };
        let then = |lowerer: &mut Self| {
            lowerer.frame().returned = Some((value.value.clone(), value.span));
            Ok(Flow::Exits)
        };
        self.returning_branches(&condition, span, then, |lowerer| lowerer.run(rest.stmts, rest.next))
    }

    /// Two branches that both end the function, each with its value.
    fn returning_branches(
        &mut self,
        condition: &Tile,
        span: Span,
        then: impl FnOnce(&mut Self) -> Res<Flow>,
        otherwise: impl FnOnce(&mut Self) -> Res<Flow>,
    ) -> Res<Flow> {
        let before = self.frame().locals.clone();
        let blocks = [self.func.new_block(), self.func.new_block()];
        self.within(blocks[0], then)?;
        let first = self.frame().returned.take().unwrap_or((Val::None, span));
        let mut first_locals = std::mem::replace(&mut self.frame().locals, before);
        self.within(blocks[1], otherwise)?;
        let second = self.frame().returned.take().unwrap_or((Val::None, span));
        let mut second_locals = std::mem::take(&mut self.frame().locals);
        // The function ends here; what functions defined in it read of its variables lives on.
        let scope = &self.scopes[self.frames.last().map_or(0, |frame| frame.scope.0)];
        let lives_on = |name: &str| scope.captured && scope.names.shared.contains(name);
        first_locals.retain(|name, _| lives_on(name));
        second_locals.retain(|name, _| lives_on(name));
        let then = Branch { block: blocks[0], locals: first_locals, flow: Flow::Falls };
        let other = Branch { block: blocks[1], locals: second_locals, flow: Flow::Falls };
        let both = Both { first: &first, second: &second, what: "the returned value" };
        let result = self.merge(condition, then, other, Some(&both), span)?.unwrap_or(Val::None);
        self.frame().returned = Some((result, span));
        Ok(Flow::Exits)
    }

    /// `a if test else b`.
    pub(crate) fn if_expr(&mut self, test: &Expr, body: &Expr, orelse: &Expr, span: Span) -> Res<Val> {
        let condition = match self.test(test)? {
            Condition::Known(true) => return self.expr(body),
            Condition::Known(false) => return self.expr(orelse),
            Condition::AtRunTime(condition) => condition,
        };
        let blocks = [self.func.new_block(), self.func.new_block()];
        let first = self.within(blocks[0], |lowerer| lowerer.at(body))?;
        let second = self.within(blocks[1], |lowerer| lowerer.at(orelse))?;
        let both = Both { first: &first, second: &second, what: "this value" };
        self.either(&(condition, test.span), span, blocks, &both)
    }

    /// One of two values that stand in blocks of their own: by a selection where computing both has no effect, else by a branch.
    fn either(&mut self, condition: &(Tile, Span), span: Span, blocks: [Block; 2], both: &Both<'_>) -> Res<Val> {
        let (first, second) = (both.first, both.second);
        self.check_kept(&first.0, first.1)?;
        self.check_kept(&second.0, second.1)?;
        self.span = span;
        if self.is_pure(blocks[0]) && self.is_pure(blocks[1]) {
            let scalars = |value: &Val| matches!(value, Val::Num(_)) || matches!(value, Val::Tile(tile) if tile.shape.is_empty());
            if (self.combining.is_some() || (scalars(&first.0) && scalars(&second.0)))
                && let (Ok(x), Ok(y)) = (self.skeleton(&first.0, first.1), self.skeleton(&second.0, second.1))
                && x.same(&y)
                && matches!(x, Skeleton::Tile(..))
            {
                self.splice(blocks[0]);
                self.splice(blocks[1]);
                return self.where_(&(Val::Tile(condition.0.clone()), condition.1), first, second);
            }
        }
        self.check_branch(span)?;
        self.join(&condition.0, span, blocks, both)
    }

    /// `a and b`, `a or b`, which yield one of their operands.
    pub(crate) fn bool_op(&mut self, op: BoolOp, items: &[Expr], span: Span) -> Res<Val> {
        let Some((first, rest)) = items.split_first() else { return Ok(Val::None) };
        let left = self.at(first)?;
        if rest.is_empty() {
            return Ok(left.0);
        }
        let stops_at = op == BoolOp::Or;
        let condition = match self.condition(&left)? {
            Condition::Known(value) if value == stops_at => return Ok(left.0),
            Condition::Known(_) => return self.bool_op(op, rest, span),
            Condition::AtRunTime(condition) => condition,
        };
        let place = rest.last().map_or(span, |last| rest[0].span.to(last.span));
        let block = self.func.new_block();
        let right = self.within(block, |lowerer| Ok::<_, Box<Diagnostic>>((lowerer.bool_op(op, rest, span)?, place)))?;
        self.span = span;
        let is_truth = |value: &Val| matches!(value, Val::Tile(tile) if tile.dtype == DType::B1 && tile.shape.is_empty());
        if is_truth(&left.0)
            && is_truth(&right.0)
            && self.is_pure(block)
            && let Val::Tile(tile) = &right.0
        {
            self.splice(block);
            let op = if stops_at { BinaryOp::Or } else { BinaryOp::And };
            return Ok(Val::Tile(self.bitwise_tiles(op, &condition, tile)));
        }
        let other = self.func.new_block();
        let word = if stops_at { "the outcome of `or`" } else { "the outcome of `and`" };
        let (blocks, both) = if stops_at {
            ([other, block], Both { first: &left, second: &right, what: word })
        } else {
            ([block, other], Both { first: &right, second: &left, what: word })
        };
        self.either(&(condition, left.1), span, blocks, &both).map_err(|error| match error.id {
            id::PATH_TYPE => Box::new(error.help("`and` and `or` yield one of their operands: write `bool(x)` for its truth")),
            _ => error,
        })
    }

    /// True when nothing in the block can fail or be seen from outside.
    fn is_pure(&self, block: Block) -> bool {
        self.are_pure(&self.func.blocks[block].ops)
    }

    /// The same for what was appended to the current block since it had so many operations.
    pub(crate) fn is_pure_from(&self, count: usize) -> bool {
        self.are_pure(&self.func.blocks[self.block].ops[count..])
    }

    fn are_pure(&self, ops: &[Op]) -> bool {
        ops.iter().all(|&op| {
            let data = &self.func.ops[op];
            data.regions.is_empty() && data.row().effects == Effects::Pure && matches!(data.kind, OpKind::Schedule(_))
        })
    }

    /// Moves a block's operations to the end of the current one.
    fn splice(&mut self, block: Block) {
        let ops = std::mem::take(&mut self.func.blocks[block].ops);
        self.func.blocks[self.block].ops.extend(ops);
    }
}

/// Hidden variables of inlined functions that return from inside loops.
pub(crate) const RETURNED: &str = "$returned";
/// The value that such a return leaves.
pub(crate) const VALUE: &str = "$value";

/// A variable that some path does not assign.
pub(crate) fn missing(name: &str, place: Span, text: &str) -> Binding {
    Binding {
        value: Val::Unusable(std::rc::Rc::new(Unusable {
            id: id::MAYBE_UNDEFINED,
            message: format!("`{name}` may have no value here"),
            places: vec![(place, text.to_string())],
            help: format!("assign `{name}` before the branch or loop"),
        })),
        span: place,
    }
}

/// A variable whose value can't leave the branch that made it.
fn bound_to_branch(name: &str, value: &Val, place: Span) -> Binding {
    let reason = Unusable {
        id: id::PATH_TYPE,
        message: format!("`{name}` is {} that was made in a branch, and can't be used behind it", value.describe()),
        places: vec![(place, "made here".to_string())],
        help: format!("make `{name}` before the branch, or behind it"),
    };
    Binding { value: Val::Unusable(std::rc::Rc::new(reason)), span: place }
}

/// A variable whose type depends on the path.
/// What to write instead of two types where paths meet.
fn one_type(first: &Skeleton, second: &Skeleton) -> &'static str {
    match (first, second) {
        (Skeleton::Function(_), Skeleton::Function(_)) => {
            "call each function in its own branch, or make both by one function that keeps what differs: `make(1) if test else make(2)`"
        }
        _ => "give it one type on every path, with `.astype` or a typed constant such as `ct.float32(0)`",
    }
}

fn conflict(name: &str, first: (&Skeleton, Span), second: (&Skeleton, Span)) -> Binding {
    Binding {
        value: Val::Unusable(std::rc::Rc::new(Unusable {
            id: id::PATH_TYPE,
            message: format!("`{name}` is {} on one path and {} on the other", first.0.describe(), second.0.describe()),
            places: vec![(first.1, first.0.describe()), (second.1, second.0.describe())],
            help: one_type(first.0, second.0).to_string(),
        })),
        span: first.1,
    }
}
