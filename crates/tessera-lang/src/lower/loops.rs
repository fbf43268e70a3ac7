//! Loops: `for` over ranges, `while`, unrolled loops, and the jumps in them.
//!
//! A loop carries the variables that its body assigns and that have a value before it. A range with a positive constant step
//! and no `break` becomes a `for` operation; everything else a `loop` with a counter or without.

use tessera_ir::attrs::{Overflow, Predicate, Rounding, Signedness};
use tessera_ir::{Diagnostic, ScheduleOp, Shape, Span, Value};
use tessera_types::DType;

use super::arith::{Arith, FloatMode};
use super::control::{Condition, RETURNED, VALUE, missing};
use super::operand::At;
use super::skeleton::Skeleton;
use super::stmt::{assigned, has_break, has_return};
use super::{Flow, Locals, LoopContext, LoopKind, Lowerer, Res, tile_type};
use crate::ast::{Expr, ExprKind, Stmt, StmtKind};
use crate::builtins::Builtin;
use crate::diagnostics::id;
use crate::number::Num;
use crate::promote::promote;
use crate::value::{Binding, Range, Tile, Val};

type Carried = Vec<(String, Skeleton, Span)>;

/// The values that start a loop, in order of its block arguments.
struct Start {
    carried: Carried,
    values: Vec<Value>,
    returns: bool,
}

impl Lowerer<'_> {
    pub(crate) fn for_loop(&mut self, target: &Expr, iterable: &Expr, body: &[Stmt], span: Span) -> Res<Flow> {
        if let Some(items) = self.static_items(iterable)? {
            return self.unrolled(target, items, body, iterable.span);
        }
        let at = self.at(iterable)?;
        match &at.0 {
            Val::Range(range) => {
                let range = range.clone();
                self.check_loop(span)?;
                self.check_range(&range, at.1)?;
                if self.wants_trial(body) {
                    self.trial(|lowerer| lowerer.for_range(target, &range, body, at.1, span))?;
                }
                self.for_range(target, &range, body, at.1, span)
            }
            Val::Instance(..) | Val::SourceClass(_) | Val::Dict(_) => {
                let items = self.sequence(&at)?;
                self.unrolled(target, items, body, iterable.span)
            }
            Val::Tuple(items) | Val::Sequence(items) | Val::Iterator(items) => {
                let items = items.to_vec();
                self.unrolled(target, items, body, iterable.span)
            }
            other => Err(Box::new(
                Diagnostic::error(id::NOT_ITERABLE, at.1, format!("a `for` loop can't run over {}", other.describe()))
                    .label("expected a range")
                    .help("loop over `range(...)`, or over compile-time items with `ct.static_iter(...)`"),
            )),
        }
    }

    /// The items of `static_iter(...)`, where an iterable is one.
    pub(crate) fn static_items(&mut self, iterable: &Expr) -> Res<Option<Vec<Val>>> {
        if let ExprKind::Call(function, args) = &iterable.kind
            && (matches!(function.kind, ExprKind::Name(_))
                || matches!(&function.kind, ExprKind::Attribute(_, name) if name.name == "static_iter"))
            && matches!(self.expr(function)?, Val::Builtin(Builtin::StaticIter))
        {
            let [arg] = args.as_slice() else {
                return Err(Box::new(Diagnostic::error(id::CALL, iterable.span, "`static_iter` takes one iterable")));
            };
            let items = (self.evaluated(&arg.value)?, arg.value.span);
            return self.sequence(&items).map(Some);
        }
        Ok(None)
    }

    /// Refuses ranges that cuTile's loops don't run over.
    fn check_range(&self, range: &Range, span: Span) -> Res<()> {
        for bound in [&range.start, &range.stop, &range.step] {
            self.check_signed(&(bound.clone(), span), "a bound of `range`")?;
        }
        match range.step.number().and_then(Num::as_int) {
            Some(step) if step < 0 && self.cutile => Err(Box::new(
                Diagnostic::error(id::VALUE_RANGE, span, format!("a run-time loop can't count by the constant step {step}"))
                    .label("cuTile's loops count up")
                    .help("count up and subtract, unroll it with `ct.static_iter`, or write a `@tessera.kernel`, whose loops count down too"),
            )),
            _ => Ok(()),
        }
    }

    fn check_loop(&self, span: Span) -> Res<()> {
        match self.combining {
            Some(kind) => Err(Box::new(
                Diagnostic::error(id::REDUCE_BODY, span, format!("a loop can't stand in the function of a {kind}"))
                    .help("unroll it with `ct.static_iter`"),
            )),
            None => Ok(()),
        }
    }

    fn unrolled(&mut self, target: &Expr, items: Vec<Val>, body: &[Stmt], from: Span) -> Res<Flow> {
        let context = LoopContext { block: self.block, carried: Vec::new(), kind: LoopKind::Unrolled, returns: false };
        self.frame().loops.push(context);
        let mut flow = Flow::Falls;
        for item in items {
            self.assign(target, item, from)?;
            flow = self.stmts(body)?;
            if matches!(flow, Flow::Breaks | Flow::Exits) {
                break;
            }
        }
        self.frame().loops.pop();
        Ok(if flow == Flow::Exits { flow } else { Flow::Falls })
    }

    /// True when every loop around this place is unrolled and this place is reached in each of its rounds.
    pub(crate) fn loops_are_unrolled(&mut self) -> bool {
        let block = self.block;
        self.frame().loops.iter().all(|context| matches!(context.kind, LoopKind::Unrolled) && context.block == block)
    }

    /// True when the loop returns from an inlined function and the returned type is not known yet.
    fn wants_trial(&mut self, body: &[Stmt]) -> bool {
        !self.frame().is_kernel && has_return(body) && self.frame().return_shape.is_none()
    }

    /// Lowers something into a block that is thrown away, to learn what it returns.
    fn trial(&mut self, work: impl FnOnce(&mut Self) -> Res<Flow>) -> Res<()> {
        let locals = self.frame().locals.clone();
        let notes = self.notes.len();
        let scratch = self.func.new_block();
        self.within(scratch, work)?;
        self.notes.truncate(notes);
        self.frame().locals = locals;
        Ok(())
    }

    /// The variables that a loop carries and their first values, emitted here.
    fn start(&mut self, body: &[Stmt], span: Span) -> Res<Start> {
        let mut names = Vec::new();
        assigned(body, &mut names);
        let returns = !self.frame().is_kernel && has_return(body) && self.frame().return_shape.is_some();
        if returns {
            if !self.frame().locals.contains_key(RETURNED) {
                let shape = self.frame().return_shape.clone().unwrap_or(Skeleton::Fixed(Val::None));
                let value = self.placeholder(&shape, span)?;
                self.frame().locals.insert(RETURNED.to_string(), Binding { value: Val::bool(false), span });
                self.frame().locals.insert(VALUE.to_string(), Binding { value, span });
            }
            names.extend([RETURNED.to_string(), VALUE.to_string()]);
        }
        let mut start = Start { carried: Vec::new(), values: Vec::new(), returns };
        for name in names {
            let Some(binding) = self.frame().locals.get(&name).cloned() else { continue };
            if matches!(binding.value, Val::Unusable(_)) {
                continue;
            }
            let skeleton = self.skeleton(&binding.value, binding.span)?;
            self.flatten(&binding.value, binding.span, &mut start.values)?;
            start.carried.push((name, skeleton, binding.span));
        }
        Ok(start)
    }

    /// Binds carried variables to the values that flow.
    fn bind_carried(&mut self, carried: &Carried, values: impl IntoIterator<Item = Value>) {
        let mut values = values.into_iter();
        for (name, skeleton, span) in carried {
            let value = self.rebuild(skeleton, &mut values);
            if !name.starts_with('$')
                && let Val::Tile(tile) = &value
            {
                self.name_value(tile.value, name);
            }
            self.frame().locals.insert(name.clone(), Binding { value, span: *span });
        }
    }

    /// The carried variables as they are now, each of the type it started with.
    fn carried_values(&mut self, span: Span) -> Res<Vec<Value>> {
        let carried = match self.frame().loops.last() {
            Some(context) => context.carried.clone(),
            None => Vec::new(),
        };
        let mut values = Vec::new();
        for (name, skeleton, before) in &carried {
            let Some(binding) = self.frame().locals.get(name).cloned() else { continue };
            if let Val::Unusable(reason) = &binding.value {
                let mut error =
                    Diagnostic::error(reason.id, span, reason.message.clone()).label("the next round of the loop needs it");
                for (place, text) in &reason.places {
                    error = error.also(*place, text.clone());
                }
                return Err(Box::new(error.help(reason.help.clone())));
            }
            let now = self.skeleton(&binding.value, binding.span)?;
            if !now.same(skeleton) {
                let help = match (skeleton, &now) {
                    (Skeleton::Tile(..), Skeleton::Tile(dtype, shape)) if shape.is_empty() => {
                        format!(
                            "start it with that type, for example `{name} = ct.{}(0)`, or cast inside the loop",
                            crate::promote::dtype_name(*dtype)
                        )
                    }
                    (Skeleton::Tile(..), Skeleton::Tile(dtype, shape)) => format!(
                        "start it with that type, for example `{name} = ct.zeros({}, ct.{})`, or cast inside the loop",
                        crate::value::show_shape(shape),
                        crate::promote::dtype_name(*dtype)
                    ),
                    _ => "give it one type before and inside the loop".to_string(),
                };
                return Err(Box::new(
                    Diagnostic::error(
                        id::LOOP_TYPE,
                        binding.span,
                        format!("`{name}` changes its type inside a loop, from {} to {}", skeleton.describe(), now.describe()),
                    )
                    .label(format!("this is {}", now.describe()))
                    .also(*before, format!("before the loop it is {}", skeleton.describe()))
                    .help(help),
                ));
            }
            self.flatten(&binding.value, binding.span, &mut values)?;
        }
        Ok(values)
    }

    /// Ends the round: the terminator that goes on with the next one.
    fn next_round(&mut self, span: Span) -> Res<()> {
        let mut values = self.carried_values(span)?;
        self.span = span;
        if let Some(LoopContext { kind: LoopKind::Counted { induction, step }, .. }) = self.frame().loops.last() {
            let (induction, step) = (*induction, *step);
            let ty = self.func.ty(induction).clone();
            let next = self.emit_value(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[&[induction], &[step]], ty);
            values.insert(0, next);
        }
        self.emit(ScheduleOp::Continue {}, &[&values], []);
        Ok(())
    }

    /// Leaves the innermost loop with the variables as they are now.
    fn leave_loop(&mut self, span: Span) -> Res<()> {
        let mut values = self.carried_values(span)?;
        self.span = span;
        if let Some(LoopContext { kind: LoopKind::Counted { induction, .. }, .. }) = self.frame().loops.last() {
            values.insert(0, *induction);
        }
        self.emit(ScheduleOp::Break {}, &[&values], []);
        Ok(())
    }

    /// The scalar bounds of a range in one integer type, which has 32 bits or more.
    fn bounds(&mut self, range: &Range, at: Span) -> Res<[Tile; 3]> {
        let values = [&range.start, &range.stop, &range.step];
        let mut dtype = DType::I32;
        for value in values {
            let own = self.dtype_of(&(value.clone(), at))?;
            dtype = promote(dtype, own).ok_or_else(|| {
                Box::new(Diagnostic::error(id::PROMOTION, at, "the bounds of this range have no common type").label(format!(
                    "{} and {}",
                    crate::promote::dtype_name(dtype),
                    crate::promote::dtype_name(own)
                )))
            })?;
        }
        let mut tile = |value: &Val| self.tile_as(&(value.clone(), at), dtype);
        Ok([tile(values[0])?, tile(values[1])?, tile(values[2])?])
    }

    fn for_range(&mut self, target: &Expr, range: &Range, body: &[Stmt], at: Span, span: Span) -> Res<Flow> {
        self.span = at;
        let forward = range.step.number().and_then(Num::as_int).is_some_and(|step| step > 0);
        let [first, last, by] = self.bounds(range, at)?;
        let dtype = first.dtype;
        let plain = FloatMode::default();
        // Any other range is counted: round `k` of `ceil((stop - start) / step)` has the index `start + k * step`.
        let (lower, upper, step) = if forward {
            (first.clone(), last, by.clone())
        } else {
            let known = [&first, &last, &by].map(|bound| bound.known.and_then(Num::as_int));
            let rounds = if let [Some(start), Some(stop), Some(step)] = known {
                let count = crate::fixed::range_len([start, stop, step]);
                self.constant(Num::Int(count), dtype, Shape::new(), at)?
            } else {
                let length = self.arith_tiles(Arith::Sub, &last, &first, plain, at)?;
                let kind = ScheduleOp::DivI { signedness: Signedness::Signed, rounding: Rounding::PositiveInf };
                self.emit_tile(kind, &[length.value, by.value], dtype, Shape::new())
            };
            let zero = self.constant(Num::Int(0), dtype, Shape::new(), at)?;
            let one = self.constant(Num::Int(1), dtype, Shape::new(), at)?;
            (zero, rounds, one)
        };
        let before = self.frame().locals.clone();
        let start = self.start(body, span)?;
        let exits = has_break(body) || has_return(body);
        let region = self.func.new_block();
        let index = self.func.add_arg(region, tile_type(dtype, &[]), None);
        let args = self.region_args(region, &start.carried);
        let kind = if exits { LoopKind::Counted { induction: index, step: step.value } } else { LoopKind::For };
        let context = LoopContext { block: self.block, carried: start.carried.clone(), kind, returns: start.returns };
        self.frame().loops.push(context);
        self.within(region, |lowerer| -> Res<()> {
            lowerer.bind_carried(&start.carried, args);
            lowerer.span = at;
            if exits {
                let signedness = super::signedness(dtype);
                let kind = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness };
                let goes_on = lowerer.emit_value(kind, &[&[index], &[upper.value]], tile_type(DType::B1, &[]));
                lowerer.guard(goes_on, span)?;
            }
            let mut item = Tile { value: index, dtype, shape: Shape::new(), known: None };
            if !forward {
                let moved = lowerer.arith_tiles(Arith::Mul, &item, &by, plain, at)?;
                item = lowerer.arith_tiles(Arith::Add, &first, &moved, plain, at)?;
            }
            lowerer.assign(target, Val::Tile(item), target.span)?;
            if lowerer.stmts(body)? == Flow::Falls {
                lowerer.next_round(span)?;
            }
            Ok(())
        })?;
        self.frame().loops.pop();
        self.span = span;
        let mut types = Vec::new();
        start.carried.iter().for_each(|(_, skeleton, _)| skeleton.types(&mut types));
        let results = if exits {
            types.insert(0, tile_type(dtype, &[]));
            let mut init = vec![lower.value];
            init.extend(&start.values);
            let op = self.emit_with_regions(ScheduleOp::Loop {}, &[&init], types, [region]);
            self.func.ops[op].results[1..].to_vec()
        } else {
            let kind = ScheduleOp::For { unsigned: !dtype.is_signed(), unroll: None };
            let groups: [&[Value]; 4] = [&[lower.value], &[upper.value], &[step.value], &start.values];
            let op = self.emit_with_regions(kind, &groups, types, [region]);
            self.func.ops[op].results.to_vec()
        };
        let whole = [Stmt { kind: StmtKind::For { target: target.clone(), iterable: target.clone(), body: Vec::new() }, span }];
        self.after_loop(before, &start, results, &[&whole, body], span)
    }

    pub(crate) fn while_loop(&mut self, test: &Expr, body: &[Stmt], span: Span) -> Res<Flow> {
        self.check_loop(span)?;
        if self.wants_trial(body) {
            self.trial(|lowerer| lowerer.while_rounds(test, body, span))?;
        }
        self.while_rounds(test, body, span)
    }

    fn while_rounds(&mut self, test: &Expr, body: &[Stmt], span: Span) -> Res<Flow> {
        let before = self.frame().locals.clone();
        let start = self.start(body, span)?;
        let region = self.func.new_block();
        let args = self.region_args(region, &start.carried);
        let context =
            LoopContext { block: self.block, carried: start.carried.clone(), kind: LoopKind::While, returns: start.returns };
        self.frame().loops.push(context);
        self.within(region, |lowerer| -> Res<()> {
            lowerer.bind_carried(&start.carried, args);
            let condition = lowerer.test(test)?;
            lowerer.span = test.span;
            match condition {
                Condition::Known(true) if !has_break(body) && !has_return(body) => {
                    return Err(Box::new(
                        Diagnostic::error(id::ENDLESS, test.span, "this loop never ends")
                            .label("always true, and no `break` or `return` leaves the loop")
                            .help("leave it with `break`, or write a condition that becomes false"),
                    ));
                }
                Condition::Known(true) => {}
                Condition::Known(false) => return lowerer.leave_loop(span),
                Condition::AtRunTime(condition) => lowerer.guard(condition.value, test.span)?,
            }
            if lowerer.stmts(body)? == Flow::Falls {
                lowerer.next_round(span)?;
            }
            Ok(())
        })?;
        self.frame().loops.pop();
        self.span = span;
        let mut types = Vec::new();
        start.carried.iter().for_each(|(_, skeleton, _)| skeleton.types(&mut types));
        let op = self.emit_with_regions(ScheduleOp::Loop {}, &[&start.values], types, [region]);
        let results = self.func.ops[op].results.to_vec();
        self.after_loop(before, &start, results, &[body], span)
    }

    /// Block arguments for the carried variables.
    fn region_args(&mut self, region: tessera_ir::Block, carried: &Carried) -> Vec<Value> {
        let mut types = Vec::new();
        carried.iter().for_each(|(_, skeleton, _)| skeleton.types(&mut types));
        types.into_iter().map(|ty| self.func.add_arg(region, ty, None)).collect()
    }

    /// Leaves the loop unless the condition holds.
    fn guard(&mut self, condition: Value, span: Span) -> Res<()> {
        let (inside, outside) = (self.func.new_block(), self.func.new_block());
        self.within(inside, |lowerer| lowerer.emit(ScheduleOp::Yield {}, &[&[]], []));
        self.within(outside, |lowerer| lowerer.leave_loop(span))?;
        self.emit_with_regions(ScheduleOp::If {}, &[&[condition]], [], [inside, outside]);
        Ok(())
    }

    /// Variables behind the loop; a return inside it goes on outwards.
    fn after_loop(&mut self, before: Locals, start: &Start, results: Vec<Value>, bodies: &[&[Stmt]], span: Span) -> Res<Flow> {
        let inside = std::mem::replace(&mut self.frame().locals, before);
        self.bind_carried(&start.carried, results);
        let mut names = Vec::new();
        bodies.iter().for_each(|body| assigned(body, &mut names));
        for name in names {
            if start.carried.iter().any(|(carried, ..)| *carried == name) {
                continue;
            }
            let place = inside.get(&name).map_or(span, |binding| binding.span);
            self.frame()
                .locals
                .insert(name.clone(), missing(&name, place, "assigned inside the loop only, which may run zero times"));
        }
        if start.returns && !self.frame().loops.is_empty() {
            let returned = self.frame().locals.get(RETURNED).map(|binding| binding.value.clone());
            if let Some(Val::Tile(returned)) = returned {
                let (out, on) = (self.func.new_block(), self.func.new_block());
                self.within(out, |lowerer| lowerer.leave_loop(span))?;
                self.within(on, |lowerer| lowerer.emit(ScheduleOp::Yield {}, &[&[]], []));
                self.emit_with_regions(ScheduleOp::If {}, &[&[returned.value]], [], [out, on]);
            }
        }
        Ok(Flow::Falls)
    }

    /// Refuses a jump out of an unrolled loop.
    fn check_unrolled(&mut self, what: &str, span: Span) -> Res<()> {
        if self.frame().loops.iter().any(|context| matches!(context.kind, LoopKind::Unrolled)) {
            return Err(Box::new(
                Diagnostic::error(
                    id::MISPLACED,
                    span,
                    format!("`{what}` can't leave a loop that is unrolled when the kernel is compiled"),
                )
                .label("whether it is reached is known at run time only")
                .help("put the statements under a compile-time `if`"),
            ));
        }
        Ok(())
    }

    /// `break` or `continue`, which ends the round in its own way.
    fn jump(&mut self, what: &str, span: Span, unrolled: Flow, end: impl FnOnce(&mut Self) -> Res<()>) -> Res<Flow> {
        let block = self.block;
        match self.frame().loops.last() {
            None => Err(Box::new(
                Diagnostic::error(id::MISPLACED, span, format!("`{what}` outside a loop")).label("no loop around this"),
            )),
            Some(LoopContext { kind: LoopKind::Unrolled, block: own, .. }) if *own == block => Ok(unrolled),
            Some(LoopContext { kind: LoopKind::Unrolled, .. }) => self.check_unrolled(what, span).map(|()| Flow::Exits),
            Some(_) => end(self).map(|()| Flow::Exits),
        }
    }

    pub(crate) fn break_(&mut self, span: Span) -> Res<Flow> {
        self.jump("break", span, Flow::Breaks, |lowerer| lowerer.leave_loop(span))
    }

    pub(crate) fn continue_(&mut self, span: Span) -> Res<Flow> {
        self.jump("continue", span, Flow::Continues, |lowerer| lowerer.next_round(span))
    }

    /// A `return` of an inlined function inside a loop: the value is left in hidden variables, and every loop ends.
    pub(crate) fn return_from_loop(&mut self, result: At, span: Span) -> Res<Flow> {
        self.check_unrolled("return", span)?;
        let shape = self.skeleton(&result.0, result.1)?;
        match self.frame().return_shape.clone() {
            None => self.frame().return_shape = Some(shape),
            Some(known) if !known.same(&shape) => {
                return Err(Box::new(
                    Diagnostic::error(
                        id::PATH_TYPE,
                        result.1,
                        format!("the returned value is {} on one path and {} on another", known.describe(), shape.describe()),
                    )
                    .help("return one type on every path"),
                ));
            }
            Some(_) => {}
        }
        if self.frame().loops.last().is_some_and(|context| context.returns) {
            self.frame().locals.insert(RETURNED.to_string(), Binding { value: Val::bool(true), span });
            self.frame().locals.insert(VALUE.to_string(), Binding { value: result.0, span: result.1 });
        }
        self.leave_loop(span)?;
        Ok(Flow::Exits)
    }
}
