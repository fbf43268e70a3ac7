//! Loops: those that run, and those that are walked round by round, over what is known when the kernel is compiled.

use indexmap::{IndexMap, IndexSet};
use tessera_ir::{Diagnostic, Span};
use tessera_types::DType;

use super::Check;
use super::env::{Body, Entry, Item, count, was_else};
use super::program::Statement;
use super::stmts::{Flow, unsupported};
use super::value::{At, convert, truth, typed};
use crate::ast::{Arg, Expr, ExprKind, Stmt, StmtKind};
use crate::diagnostics::id;
use crate::fixed::{Fixed, range_len};
use crate::lower::Res;
use crate::promote::promote;
use crate::written;

/// The most rounds of a loop over a tuple, as in block style.
const MOST_ROUNDS: usize = 1000;

/// True when a `break` or `return` may leave the loop with this body.
fn leaves(body: &[Stmt]) -> bool {
    fn returns(body: &[Stmt]) -> bool {
        body.iter().any(|stmt| match &stmt.kind {
            StmtKind::Return(_) => true,
            StmtKind::If { body, orelse, .. } => returns(body) || returns(orelse),
            StmtKind::For { body, .. } | StmtKind::While { body, .. } => returns(body),
            _ => false,
        })
    }
    fn breaks(body: &[Stmt]) -> bool {
        body.iter().any(|stmt| match &stmt.kind {
            StmtKind::Break => true,
            StmtKind::If { body, orelse, .. } => breaks(body) || breaks(orelse),
            _ => false,
        })
    }
    returns(body) || breaks(body)
}

impl Check<'_> {
    /// Walks a loop's body; names that it changes must be variables.
    fn body(&mut self, body: &[Stmt], span: Span) -> Res<Vec<Statement>> {
        let before = self.frame().names.clone();
        let strayed = self.strayed.take();
        let round = self.round.take();
        self.loops += 1;
        self.bodies.push(Body { first: self.blocks + 1, read: IndexSet::new() });
        let (statements, _) = self.walk_block(body)?;
        self.bodies.pop();
        self.loops -= 1;
        self.round = round;
        self.strayed = strayed;
        let after = std::mem::replace(&mut self.frame().names, before.clone());
        self.meet([Some(before), Some(after)], span);
        Ok(statements)
    }

    /// `for target in iterable`.
    pub(super) fn for_each(&mut self, target: &Expr, iterable: &Expr, body: &[Stmt], span: Span) -> Res<Flow> {
        if let Some(args) = self.python_call("range", iterable) {
            let bounds = self.bounds(args, iterable.span)?;
            return self.count(target, bounds, iterable.span, body, span);
        }
        if let Some([Arg { keyword: None, value }]) = self.python_call("reversed", iterable)
            && let Some(args) = self.python_call("range", value)
        {
            let bounds = self.bounds(args, value.span)?;
            let backwards = backwards(&bounds, value.span)?;
            return self.count(target, backwards, iterable.span, body, span);
        }
        match self.at(iterable)? {
            (Item::Fixed(Fixed::Range(numbers)), at) => {
                let bounds = numbers.map(|number| (Item::Fixed(Fixed::int(number)), at));
                self.count(target, bounds, at, body, span)
            }
            at => {
                let items = self.iterate(&at)?;
                self.rounds(target, items, at.1, body, span)
            }
        }
    }

    /// The arguments of a call of a function of Python's.
    fn python_call<'e>(&mut self, wanted: &str, expr: &'e Expr) -> Option<&'e [Arg]> {
        match &expr.kind {
            ExprKind::Call(function, args) if matches!(&function.kind, ExprKind::Name(name) if name == wanted && self.is_python(name, function)) => {
                Some(args)
            }
            _ => None,
        }
    }

    /// The rounds of a loop over items, one behind the other.
    fn rounds(&mut self, target: &Expr, items: Vec<Item>, at: Span, body: &[Stmt], span: Span) -> Res<Flow> {
        if items.len() > MOST_ROUNDS {
            return Err(Box::new(
                Diagnostic::error(id::TOO_LARGE, at, format!("a compile-time sequence has more than {MOST_ROUNDS} items"))
                    .help("use a run-time loop over `range`"),
            ));
        }
        let items: Vec<Item> = items.into_iter().map(|item| self.held(item)).collect();
        let mut assigned = IndexMap::new();
        count(body, &mut assigned);
        let mut variables = Vec::new();
        let around = self.round.replace(self.branches);
        let mut flow = Flow::Falls;
        for item in items {
            self.step(span)?;
            self.bind_round(target, &(item, at), &assigned, &mut variables)?;
            flow = self.stmts(body)?;
            if !matches!(flow, Flow::Falls | Flow::Continues) {
                break;
            }
        }
        self.round = around;
        for name in variables {
            self.frame().names.insert(name, Entry::Local);
        }
        Ok(match flow {
            Flow::Falls | Flow::Continues | Flow::Breaks => Flow::Falls,
            Flow::Jumps | Flow::Returns => flow,
        })
    }

    /// Binds a loop's target for one round: what the body does not change is known in it. A name that was a variable before is set, too,
    /// and listed, since it is one again behind the loop.
    fn bind_round(&mut self, target: &Expr, at: &At, assigned: &IndexMap<String, u32>, variables: &mut Vec<String>) -> Res<()> {
        match &target.kind {
            ExprKind::Name(name) if !assigned.contains_key(name) => {
                let is_variable = matches!(self.frame().names.get(name), Some(Entry::Local));
                if is_variable || variables.contains(name) {
                    self.frame().names.insert(name.clone(), Entry::Local);
                    self.bind(name, at.0.clone(), target.span)?;
                    variables.push(name.clone());
                } else if self.is_read_again(name, Some(&at.0)) {
                    return Err(was_else(name, &format!("now it is {}", at.0.describe()), target.span));
                }
                let entry = Entry::Item(at.0.clone(), self.block);
                self.frame().names.insert(name.clone(), entry);
                Ok(())
            }
            ExprKind::Tuple(targets) | ExprKind::List(targets) => {
                let items = self.unpack(targets, at, target.span)?;
                let mut pairs = targets.iter().zip(items);
                pairs.try_for_each(|(target, item)| self.bind_round(target, &(item, at.1), assigned, variables))
            }
            _ => self.assign(target, at),
        }
    }

    /// A jump out of a round of a loop that is walked round by round, at whose begin so many branches were open.
    pub(super) fn leave_round(&self, branches: u32, flow: Flow, span: Span) -> Res<Flow> {
        if self.branches == branches {
            return Ok(flow);
        }
        Err(Box::new(
            Diagnostic::error(id::UNSUPPORTED, span, "this jump is decided at run time, and the loop around it is unrolled")
                .label("the rounds of a loop over a tuple are known when the kernel is compiled")
                .help("loop over a `range`, or put what follows under the opposite condition"),
        ))
    }

    /// Start, stop and step of `range(...)`.
    fn bounds(&mut self, args: &[Arg], call: Span) -> Res<[At; 3]> {
        let bound = written::arguments("range", "*bounds", args, call)?;
        let mut values: Vec<At> = Vec::new();
        for &expr in &bound[0] {
            let at = (self.expr(expr)?, expr.span);
            let whole = match &at.0 {
                Item::Value(value) => value.dtype.is_integer(),
                Item::Fixed(value) => value.as_int().is_some(),
                _ => false,
            };
            if !whole {
                return Err(Box::new(
                    Diagnostic::error(id::ARGUMENT_TYPE, expr.span, "`range` takes integers")
                        .label(format!("this is {}", at.0.describe())),
                ));
            }
            values.push(at);
        }
        let number = |value: i128| (Item::Fixed(Fixed::int(value)), call);
        let (start, stop, step) = match values.as_slice() {
            [stop] => (number(0), stop.clone(), number(1)),
            [start, stop] => (start.clone(), stop.clone(), number(1)),
            [start, stop, step] => (start.clone(), stop.clone(), step.clone()),
            other => {
                let message = format!("`range` takes one to three arguments, not {}", other.len());
                return Err(Box::new(Diagnostic::error(id::CALL, call, message)));
            }
        };
        if matches!(&step.0, Item::Fixed(value) if value.as_int() == Some(0)) {
            return Err(Box::new(Diagnostic::error(id::VALUE_RANGE, step.1, "the step of a `range` is zero")));
        }
        Ok([start, stop, step])
    }

    /// A loop over a range.
    fn count(&mut self, target: &Expr, bounds: [At; 3], call: Span, body: &[Stmt], span: Span) -> Res<Flow> {
        let ExprKind::Name(name) = &target.kind else {
            return Err(unsupported(target.span, "anything but one name as the target of a `for` over a `range`"));
        };
        let [start, stop, step] = bounds;
        if let Some(numbers) = self.unrolled(name, [&start, &stop, &step], body) {
            return self.rounds(target, numbers, call, body, span);
        }
        let mut dtype = DType::I32;
        for at in [&start, &stop, &step] {
            let own = match &at.0 {
                Item::Value(value) => Some(value.dtype),
                Item::Fixed(Fixed::Num(number)) => crate::promote::literal_dtype(*number),
                _ => None,
            };
            dtype = own.and_then(|own| promote(dtype, own)).unwrap_or(DType::I64);
        }
        let (start, stop, step) = (typed(&start, dtype)?, typed(&stop, dtype)?, typed(&step, dtype)?);
        let uniform = start.uniform && stop.uniform && step.uniform;
        if self.hides(name) {
            return Err(was_else(name, "now it counts the rounds of a loop", target.span));
        }
        let before = self.frame().names.clone();
        let (local, own) = self.variable(name, dtype, uniform, target.span)?;
        let bounds = [start, stop, step].map(|value| convert(value, own));
        let outside = self.divergent;
        if !uniform {
            self.divergent.get_or_insert(call);
        }
        let body = self.body(body, span)?;
        self.divergent = outside.or(self.ended).or(self.strayed);
        let after = std::mem::take(&mut self.frame().names);
        self.meet([Some(before), Some(after)], span);
        let [start, stop, step] = bounds;
        self.out.push(Statement::For { local, start, stop, step, body });
        Ok(Flow::Falls)
    }

    pub(super) fn repeat(&mut self, test: &Expr, body: &[Stmt], span: Span) -> Res<()> {
        let outside = std::mem::take(&mut self.out);
        self.loops += 1;
        // The condition is of every round.
        self.bodies.push(Body { first: self.blocks + 1, read: IndexSet::new() });
        let condition = self.test(test);
        self.loops -= 1;
        let before = std::mem::replace(&mut self.out, outside);
        let condition = condition?;
        if let Item::Fixed(value) = &condition.0 {
            if !value.truth(test.span)? {
                self.bodies.pop();
                return Ok(());
            }
            if !leaves(body) {
                return Err(Box::new(
                    Diagnostic::error(id::ENDLESS, test.span, "this loop never ends")
                        .label("always true, and no `break` or `return` leaves the loop")
                        .help("leave it with `break`, or write a condition that becomes false"),
                ));
            }
        }
        let condition = truth(&condition)?;
        let outside = self.divergent;
        if !condition.uniform {
            self.divergent.get_or_insert(test.span);
        }
        let body = self.body(body, span)?;
        self.bodies.pop();
        self.divergent = outside.or(self.ended).or(self.strayed);
        self.out.push(Statement::While { before, test: condition, body });
        Ok(())
    }
}

/// The bounds that count the numbers of known bounds from the last to the first.
fn backwards(bounds: &[At; 3], span: Span) -> Res<[At; 3]> {
    let number = |(item, _): &At| if let Item::Fixed(value) = item { value.as_int() } else { None };
    let [Some(start), Some(stop), Some(step)] = [number(&bounds[0]), number(&bounds[1]), number(&bounds[2])] else {
        return Err(Box::new(
            Diagnostic::error(
                id::NOT_CONSTANT,
                span,
                "`reversed` takes a range whose bounds are known when the kernel is compiled",
            )
            .help("count down: `range(n - 1, -1, -1)`"),
        ));
    };
    let last = start + (range_len([start, stop, step]) - 1) * step;
    Ok([last, start - step, -step].map(|number| (Item::Fixed(Fixed::int(number)), span)))
}
