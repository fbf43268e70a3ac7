//! Loops and conditions. What a region puts into a register memref from outside goes round the loop, or out of the condition, as a
//! value.

use tessera_ir::text::cursor::Parsed;
use tessera_ir::{Block, Elem, ScheduleOp, TileType, Type, Value};
use tessera_types::DType;

use crate::emit::{Bound, Emit};
use crate::syntax::{Body, Operand, Statement, Word};

/// The operand of an operation that it changes, if it changes one.
fn changed<'s, 'a>(statement: &'s Statement<'a>) -> Option<&'s Operand<'a>> {
    match statement.name.text {
        "tile.fill" | "tile.broadcast_scale" | "tile.mask_fill" | "tile.scale_accumulator" | "tile.accumulate" => {
            statement.operands.first()
        }
        "tile.copy" => statement.operands.get(1),
        _ => None,
    }
}

impl<'a> Emit<'a, '_> {
    /// The register memrefs from outside that statements change, in the order of their first change.
    fn changed_cells(&self, statements: &[Statement<'a>], found: &mut Vec<usize>) {
        for statement in statements {
            if let Some(Operand::Value { name, .. }) = changed(statement)
                && let Some(Bound::Cell(cell)) = self.names.get(name.text)
                && !found.contains(cell)
            {
                found.push(*cell);
            }
            match &*statement.body {
                Body::None => {}
                Body::For { body, .. } => self.changed_cells(body, found),
                Body::If { then, orelse } => {
                    self.changed_cells(then, found);
                    self.changed_cells(orelse, found);
                }
            }
        }
    }

    /// `scf.for`, `scf.if`; false for other operations.
    pub(super) fn control(&mut self, statement: &Statement<'a>) -> Parsed<bool> {
        match &*statement.body {
            Body::None => Ok(false),
            _ if self.is_graph() => Err(self.error("document-level", "a program on whole operands has no loops and conditions")),
            Body::For { counter, bounds, carried, body } => {
                self.count(statement, *counter, bounds, carried, body)?;
                Ok(true)
            }
            Body::If { then, orelse } => {
                self.branch(statement, then, orelse)?;
                Ok(true)
            }
        }
    }

    /// A value with its tile under a name of its own: a number, or a register memref that holds it.
    fn bind(&mut self, name: Word<'a>, value: Value, tile: &TileType) -> Parsed<()> {
        let bound = self.yielded(value, tile.clone());
        self.define(name, bound)
    }

    fn count(
        &mut self,
        statement: &Statement<'a>,
        counter: Word<'a>,
        bounds: &[Operand<'a>; 3],
        carried: &[(Word<'a>, Operand<'a>)],
        body: &[Statement<'a>],
    ) -> Parsed<()> {
        let span = self.span;
        let mut limits = Vec::new();
        for bound in bounds {
            let value = self.scalar_of(bound)?;
            if limits.first().is_some_and(|&first| self.func.ty(first) != self.func.ty(value)) {
                return Err(self.error("document-type", "bounds and step differ in type"));
            }
            limits.push(value);
        }
        let counts = self.func.ty(limits[0]).num().is_some_and(|dtype| dtype.is_integer() && dtype.bits() >= 8);
        if !counts {
            return Err(self.error("document-type", "a loop counts with integers"));
        }
        let mut cells = Vec::new();
        self.changed_cells(body, &mut cells);
        let mut tiles: Vec<TileType> = cells.iter().map(|&cell| self.cells[cell].tile.clone()).collect();
        let mut init: Vec<Value> = cells.iter().map(|&cell| self.cells[cell].value).collect();
        for (_, operand) in carried {
            let (value, tile) = self.tile_of(operand)?;
            init.push(value);
            tiles.push(tile);
        }
        let region = self.func.new_block();
        let ty = self.func.ty(limits[0]).clone();
        let index = self.func.add_arg(region, ty.clone(), None);
        let types: Vec<Type> = init.iter().map(|&value| self.func.ty(value).clone()).collect();
        let args: Vec<Value> = types.iter().map(|ty| self.func.add_arg(region, ty.clone(), None)).collect();
        let outside: Vec<Value> = cells.iter().map(|&cell| self.cells[cell].value).collect();
        let names = self.defined.len();
        for (position, &cell) in cells.iter().enumerate() {
            self.func.values[args[position]].name = self.func.values[outside[position]].name.clone();
            self.cells[cell].value = args[position];
        }
        let counted = TileType { shape: Default::default(), elem: Elem::Num(ty.num().unwrap_or(DType::I32)) };
        self.bind(counter, index, &counted)?;
        for (position, (name, _)) in carried.iter().enumerate() {
            self.bind(*name, args[cells.len() + position], &tiles[cells.len() + position])?;
        }
        let yielded = self.inside(region, |emit| emit.region(body, &types[cells.len()..]))?;
        let mut next: Vec<Value> = cells.iter().map(|&cell| self.cells[cell].value).collect();
        next.extend(yielded);
        self.span = span;
        self.inside(region, |emit| emit.op(ScheduleOp::Continue {}, &[&next], []));
        self.forget(names);
        let kind = ScheduleOp::For { unsigned: false, unroll: None };
        let groups: [&[Value]; 4] = [&[limits[0]], &[limits[1]], &[limits[2]], &init];
        let op = self.op_with_regions(kind, &groups, types, [region]);
        let results = self.func.ops[op].results.to_vec();
        for (position, &cell) in cells.iter().enumerate() {
            self.cells[cell].value = results[position];
        }
        self.name_results(statement, &results[cells.len()..], &tiles[cells.len()..])
    }

    /// The statements of a region, whose last may be `scf.yield`; what that yields, of these types.
    fn region(&mut self, statements: &[Statement<'a>], types: &[Type]) -> Parsed<Vec<Value>> {
        let (last, body) = match statements.split_last() {
            Some((last, body)) if last.name.text == "scf.yield" => (Some(last), body),
            _ => (None, statements),
        };
        self.statements(body)?;
        let mut values = Vec::new();
        if let Some(last) = last {
            self.span = last.span;
            for operand in &last.operands {
                values.push(self.tile_of(operand)?.0);
            }
        }
        let found: Vec<Type> = values.iter().map(|&value| self.func.ty(value).clone()).collect();
        if found != types {
            let message = format!("the region yields {} values, {} of fitting types are wanted", found.len(), types.len());
            return Err(self.error("document-yield", message));
        }
        Ok(values)
    }

    fn name_results(&mut self, statement: &Statement<'a>, values: &[Value], tiles: &[TileType]) -> Parsed<()> {
        if statement.results.len() != values.len() {
            let message = format!("{} results are named, there are {}", statement.results.len(), values.len());
            return Err(self.error("ir-results", message));
        }
        for ((&name, &value), tile) in statement.results.iter().zip(values).zip(tiles) {
            self.bind(name, value, tile)?;
        }
        Ok(())
    }

    fn branch(&mut self, statement: &Statement<'a>, then: &[Statement<'a>], orelse: &[Statement<'a>]) -> Parsed<()> {
        let span = self.span;
        let condition = self.operand(statement, 0)?.clone();
        let condition = self.scalar_of(&condition)?;
        if self.func.ty(condition).num() != Some(DType::B1) {
            return Err(self.error("document-type", "a condition is an `i1`"));
        }
        let mut cells = Vec::new();
        self.changed_cells(then, &mut cells);
        self.changed_cells(orelse, &mut cells);
        let mut tiles = Vec::new();
        for (stated, at) in &statement.result_types {
            let tile = match stated {
                crate::memref::Ty::Scalar(dtype) => TileType { shape: Default::default(), elem: Elem::signless(*dtype) },
                crate::memref::Ty::Memref(memref) => memref.tile().ok_or_else(|| {
                    Box::new(tessera_ir::Diagnostic::error("document-type", *at, format!("`{memref}` must have known extents")))
                })?,
            };
            tiles.push(tile);
        }
        let mut types: Vec<Type> = cells.iter().map(|&cell| self.func.ty(self.cells[cell].value).clone()).collect();
        for tile in &tiles {
            types.push(self.tile_type(tile)?);
        }
        let before: Vec<Value> = cells.iter().map(|&cell| self.cells[cell].value).collect();
        let blocks: [Block; 2] = [self.func.new_block(), self.func.new_block()];
        for (block, statements) in blocks.into_iter().zip([then, orelse]) {
            for (&cell, &value) in cells.iter().zip(&before) {
                self.cells[cell].value = value;
            }
            let names = self.defined.len();
            self.span = span;
            let yielded = self.inside(block, |emit| emit.region(statements, &types[cells.len()..]))?;
            self.forget(names);
            let mut values: Vec<Value> = cells.iter().map(|&cell| self.cells[cell].value).collect();
            values.extend(yielded);
            self.span = span;
            self.inside(block, |emit| emit.op(ScheduleOp::Yield {}, &[&values], []));
        }
        let op = self.op_with_regions(ScheduleOp::If {}, &[&[condition]], types, blocks);
        let results = self.func.ops[op].results.to_vec();
        for (position, &cell) in cells.iter().enumerate() {
            self.cells[cell].value = results[position];
        }
        self.name_results(statement, &results[cells.len()..], &tiles)
    }
}
