//! Statements: variables become values that branches yield and loops carry.

use tessera_ir::attrs::{Overflow, Predicate};
use tessera_ir::{Block, ScheduleOp, Shape, Span, Value};
use tessera_types::DType;

use super::{Emit, Home, Open, assigned};
use crate::lower::{Arith, FloatMode, Res, signedness, tile_type};
use crate::number::Num;
use crate::simt::program::{Expression, Place, Space, Statement};
use crate::value::Tile;

/// How control leaves a list of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It goes on behind them.
    Falls,
    /// Every path ended in a jump or a return.
    Exits,
}

/// Variables that statements may set, loops and branches included.
pub(super) fn collect(emit: &Emit<'_>, list: &[Statement], found: &mut Vec<usize>) {
    for statement in list {
        match statement {
            Statement::Assign(local, _) => found.push(*local),
            Statement::Store(place, _) => found.extend(emit.variable_at(place)),
            Statement::If { body, orelse, .. } => {
                collect(emit, body, found);
                collect(emit, orelse, found);
            }
            Statement::For { local, body, .. } => {
                found.push(*local);
                collect(emit, body, found);
            }
            Statement::While { before, body, .. } => {
                collect(emit, before, found);
                collect(emit, body, found);
            }
            Statement::FragmentFill(position, _)
            | Statement::FragmentLoad(position, _)
            | Statement::FragmentMma(position, ..)
            | Statement::FragmentMmaSparse { accumulator: position, .. } => {
                if let (Some(Home::Apart(first)), Space::Fragment(role)) =
                    (emit.homes.get(*position), emit.kernel.allocations[*position].space)
                {
                    found.extend(*first..first + role.fragment().per_lane());
                }
            }
            Statement::Evaluate(_)
            | Statement::Break
            | Statement::Continue
            | Statement::Return
            | Statement::Barrier(_)
            | Statement::CopyAsync { .. }
            | Statement::CommitGroup
            | Statement::WaitGroup(_)
            | Statement::FragmentStore(..) => {}
        }
    }
}

fn has_break(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Break => true,
        Statement::If { body, orelse, .. } => has_break(body) || has_break(orelse),
        _ => false,
    })
}

impl Emit<'_> {
    pub(super) fn statements(&mut self, list: &[Statement]) -> Res<Flow> {
        for statement in list {
            if self.statement(statement)? == Flow::Exits {
                return Ok(Flow::Exits);
            }
        }
        Ok(Flow::Falls)
    }

    fn statement(&mut self, statement: &Statement) -> Res<Flow> {
        match statement {
            Statement::Assign(local, value) => {
                let tile = self.value(value)?;
                let name = &self.kernel.locals[*local].name;
                if !name.is_empty() {
                    self.walk.name_value(tile.value, name);
                }
                self.locals[*local] = Some(tile.value);
                self.addressed(*local, tile.value);
            }
            Statement::Store(place, value) => {
                let tile = self.value(value)?;
                self.store(place, tile.value)?;
            }
            Statement::Evaluate(value) => {
                self.value(value)?;
            }
            Statement::If { test, body, orelse } => return self.branch(test, body, orelse),
            Statement::For { local, start, stop, step, body } => self.count(*local, [start, stop, step], body)?,
            Statement::While { before, test, body } => self.repeat(before, test, body)?,
            Statement::Break => {
                let values = self.carried(false)?;
                self.walk.emit(ScheduleOp::Break {}, &[&values], []);
                return Ok(Flow::Exits);
            }
            Statement::Continue => {
                self.next_round()?;
                return Ok(Flow::Exits);
            }
            Statement::Return => {
                self.walk.emit(ScheduleOp::Return {}, &[], []);
                return Ok(Flow::Exits);
            }
            Statement::Barrier(span) => {
                self.walk.span = *span;
                self.tile_op(tessera_ir::TileOp::Barrier {}, &[], []);
            }
            Statement::CopyAsync { destination, source, count } => self.copy_async(destination, source, *count)?,
            Statement::CommitGroup => {
                self.tile_op(tessera_ir::TileOp::CommitGroup {}, &[], []);
            }
            Statement::WaitGroup(pending) => {
                self.tile_op(tessera_ir::TileOp::WaitGroup { pending: *pending }, &[], []);
            }
            Statement::FragmentFill(position, value) => self.fragment_fill(*position, value)?,
            Statement::FragmentLoad(position, place) => self.fragment_load(*position, place)?,
            Statement::FragmentStore(place, position) => self.fragment_store(place, *position)?,
            Statement::FragmentMma(sum, a, b) => self.fragment_product([*sum, *a, *b])?,
            Statement::FragmentMmaSparse { accumulator, a, places, b } => self.sparse_product(*accumulator, *a, *places, *b)?,
        }
        Ok(Flow::Falls)
    }

    // Branches

    fn branch(&mut self, test: &Expression, body: &[Statement], orelse: &[Statement]) -> Res<Flow> {
        let condition = self.value(test)?.value;
        let names = assigned(self, &[body, orelse]);
        let span = self.walk.span;
        let before = self.locals.clone();
        let blocks = [self.walk.func.new_block(), self.walk.func.new_block()];
        let first = self.inside(blocks[0], |emit| emit.statements(body))?;
        if first == Flow::Exits {
            // What follows runs under the opposite condition; it needs no region.
            self.locals = before;
            self.walk.span = span;
            self.walk.within(blocks[1], |walk| walk.emit(ScheduleOp::Yield {}, &[&[]], []));
            self.walk.emit_with_regions(ScheduleOp::If {}, &[&[condition]], [], blocks);
            return self.statements(orelse);
        }
        let then = std::mem::replace(&mut self.locals, before);
        let second = self.inside(blocks[1], |emit| emit.statements(orelse))?;
        let other = self.locals.clone();
        self.walk.span = span;
        let sides = [(first, &then), (second, &other)];
        let goes_on = |&&name: &&usize| sides.iter().all(|(flow, locals)| *flow == Flow::Exits || locals[name].is_some());
        let yielded: Vec<usize> = names.iter().filter(goes_on).copied().collect();
        for (block, (flow, locals)) in blocks.into_iter().zip(sides) {
            if flow == Flow::Falls {
                let values: Vec<Value> = yielded.iter().filter_map(|&name| locals[name]).collect();
                self.walk.within(block, |walk| walk.emit(ScheduleOp::Yield {}, &[&values], []));
            }
        }
        let types: Vec<_> = yielded.iter().map(|&name| tile_type(self.types[name], &[])).collect();
        let op = self.walk.emit_with_regions(ScheduleOp::If {}, &[&[condition]], types, blocks);
        let results = self.walk.func.ops[op].results.clone();
        for &name in &names {
            self.locals[name] = None;
        }
        for (&name, &result) in yielded.iter().zip(&results) {
            self.named(name, result);
        }
        Ok(Flow::Falls)
    }

    fn named(&mut self, local: usize, value: Value) {
        if let Some(own) = self.kernel.locals.get(local).filter(|own| !own.name.is_empty()) {
            self.walk.name_value(value, &own.name);
        }
        self.locals[local] = Some(value);
    }

    /// Works in another block.
    pub(super) fn inside<T>(&mut self, block: Block, work: impl FnOnce(&mut Self) -> T) -> T {
        let outside = std::mem::replace(&mut self.walk.block, block);
        let result = work(self);
        self.walk.block = outside;
        result
    }

    // Loops

    /// What the innermost loop carries, as it is here; with what goes from round to round beside the variables.
    fn carried(&mut self, counted: bool) -> Res<Vec<Value>> {
        let Some(open) = self.loops.last() else { return Ok(Vec::new()) };
        let mut values = Vec::new();
        let counter = open.counter.filter(|_| counted);
        for &name in &open.carried {
            values.push(self.locals[name].ok_or_else(|| self.broken("a variable without a value", self.walk.span))?);
        }
        if let Some((index, step)) = counter {
            let ty = self.walk.func.ty(index).clone();
            let next = self.walk.emit_value(ScheduleOp::AddI { overflow: Overflow::Wraps }, &[&[index], &[step]], ty);
            values.insert(0, next);
        }
        Ok(values)
    }

    fn next_round(&mut self) -> Res<()> {
        let values = self.carried(true)?;
        self.walk.emit(ScheduleOp::Continue {}, &[&values], []);
        Ok(())
    }

    /// Leaves the loop unless the condition holds.
    fn guard(&mut self, condition: Value) -> Res<()> {
        let blocks = [self.walk.func.new_block(), self.walk.func.new_block()];
        let values = self.carried(false)?;
        self.walk.within(blocks[0], |walk| walk.emit(ScheduleOp::Yield {}, &[&[]], []));
        self.walk.within(blocks[1], |walk| walk.emit(ScheduleOp::Break {}, &[&values], []));
        self.walk.emit_with_regions(ScheduleOp::If {}, &[&[condition]], [], blocks);
        Ok(())
    }

    /// Variables that rounds of a loop change and that had a value before, and what they had.
    fn entering(&self, changed: Vec<usize>) -> (Vec<usize>, Vec<Value>) {
        changed.into_iter().filter_map(|name| Some((name, self.locals[name]?))).unzip()
    }

    /// Builds a loop's region.
    fn rounds(&mut self, region: Block, open: Open, args: &[Value], work: impl FnOnce(&mut Self) -> Res<()>) -> Res<()> {
        for (&name, &arg) in open.carried.iter().zip(args) {
            self.named(name, arg);
        }
        self.loops.push(open);
        let result = self.inside(region, work);
        self.loops.pop();
        result
    }

    fn after(&mut self, before: Vec<Option<Value>>, changed: &[usize], carried: &[usize], results: &[Value], span: Span) {
        self.locals = before;
        self.walk.span = span;
        for &name in changed {
            self.locals[name] = None;
        }
        for (&name, &result) in carried.iter().zip(results) {
            self.named(name, result);
        }
    }

    fn count(&mut self, local: usize, bounds: [&Expression; 3], body: &[Statement]) -> Res<()> {
        let span = bounds[1].span;
        let [first, last, by] = [self.value(bounds[0])?, self.value(bounds[1])?, self.value(bounds[2])?];
        let (dtype, plain) = (first.dtype, FloatMode::default());
        self.walk.span = span;
        let forward = by.known.and_then(Num::as_int).is_some_and(|step| step > 0);
        // Any other range is counted: round `k` of `ceil((stop - start) / step)` has the number `start + k * step`.
        let (lower, upper, step) = match forward {
            true => (first.clone(), last, by.clone()),
            false => {
                let length = self.walk.arith_tiles(Arith::Sub, &last, &first, plain, span)?;
                let rounds = self.walk.arith_tiles(Arith::CDiv, &length, &by, plain, span)?;
                let zero = self.walk.constant(Num::Int(0), dtype, Shape::new(), span)?;
                let one = self.walk.constant(Num::Int(1), dtype, Shape::new(), span)?;
                (zero, rounds, one)
            }
        };
        let exits = has_break(body);
        let before = self.locals.clone();
        let mut changed = assigned(self, &[body]);
        changed.push(local);
        changed.sort_unstable();
        changed.dedup();
        let (carried, init) = self.entering(changed.clone());
        let region = self.walk.func.new_block();
        let index = self.walk.func.add_arg(region, tile_type(dtype, &[]), None);
        let types: Vec<_> = carried.iter().map(|&name| tile_type(self.types[name], &[])).collect();
        let args: Vec<Value> = types.iter().map(|ty| self.walk.func.add_arg(region, ty.clone(), None)).collect();
        let open = Open { carried: carried.clone(), counter: exits.then_some((index, step.value)) };
        self.rounds(region, open, &args, |emit| {
            emit.walk.span = span;
            if exits {
                let kind = ScheduleOp::CmpI { predicate: Predicate::Lt, signedness: signedness(dtype) };
                let goes_on = emit.walk.emit_value(kind, &[&[index], &[upper.value]], tile_type(DType::B1, &[]));
                emit.guard(goes_on)?;
            }
            let mut number = Tile { value: index, dtype, shape: Shape::new(), known: None };
            if !forward {
                let moved = emit.walk.arith_tiles(Arith::Mul, &number, &by, plain, span)?;
                number = emit.walk.arith_tiles(Arith::Add, &first, &moved, plain, span)?;
            }
            let number = emit.walk.convert(number, emit.types[local], None, span)?;
            emit.named(local, number.value);
            if emit.statements(body)? == Flow::Falls {
                emit.walk.span = span;
                emit.next_round()?;
            }
            Ok(())
        })?;
        self.walk.span = span;
        let op = match exits {
            true => {
                let init = [&[lower.value][..], &init].concat();
                self.walk.emit_with_regions(ScheduleOp::Loop {}, &[&init], types, [region])
            }
            false => {
                let kind = ScheduleOp::For { unsigned: !dtype.is_signed(), unroll: None };
                let groups: [&[Value]; 4] = [&[lower.value], &[upper.value], &[step.value], &init];
                self.walk.emit_with_regions(kind, &groups, types, [region])
            }
        };
        let results = self.walk.func.ops[op].results.to_vec();
        self.after(before, &changed, &carried, &results, span);
        Ok(())
    }

    fn repeat(&mut self, first: &[Statement], test: &Expression, body: &[Statement]) -> Res<()> {
        let span = test.span;
        let before = self.locals.clone();
        let changed = assigned(self, &[first, body]);
        let (carried, init) = self.entering(changed.clone());
        let region = self.walk.func.new_block();
        let types: Vec<_> = carried.iter().map(|&name| tile_type(self.types[name], &[])).collect();
        let args: Vec<Value> = types.iter().map(|ty| self.walk.func.add_arg(region, ty.clone(), None)).collect();
        let open = Open { carried: carried.clone(), counter: None };
        self.rounds(region, open, &args, |emit| {
            emit.statements(first)?;
            let condition = emit.value(test)?;
            emit.walk.span = span;
            if condition.known.is_none_or(|known| !known.truth()) {
                emit.guard(condition.value)?;
            }
            if emit.statements(body)? == Flow::Falls {
                emit.walk.span = span;
                emit.next_round()?;
            }
            Ok(())
        })?;
        self.walk.span = span;
        let op = self.walk.emit_with_regions(ScheduleOp::Loop {}, &[&init], types, [region]);
        let results = self.walk.func.ops[op].results.to_vec();
        self.after(before, &changed, &carried, &results, span);
        Ok(())
    }

    fn store(&mut self, place: &Place, value: Value) -> Res<()> {
        match self.variable_at(place) {
            Some(local) => self.locals[local] = Some(value),
            None => self.store_to_memory(place, value)?,
        }
        Ok(())
    }
}
