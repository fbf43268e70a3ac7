//! Layouts carried forward from the anchors.
//!
//! The result has an entry for each value: the layout that it is computed in, or `None` for a flexible one (see the module's head of
//! [`super`]). Loops are walked until what they carry keeps its layout; a value that a loop yields in an anchor's layout takes that
//! over from its first value, since the loop is where the work is. Values behind a factor take what its product asks for ([`asked`]).

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tessera_ir::{Block, Diagnostic, EntityId, Func, Op, OpKind, ScheduleOp, Value};

use super::anchors::Anchors;
use super::asked;
use super::relation::{Layout, Relation, has_layout, is_shared_out, shape};

/// The layout of each value, where it is not flexible.
pub(super) struct Layouts {
    values: Vec<Option<Layout>>,
    /// The anchors that it was inferred from.
    pub(super) anchors: Anchors,
}

impl Layouts {
    /// The layout that a value is computed in.
    pub(super) fn get(&self, value: Value) -> Option<&Layout> {
        self.values.get(value.index())?.as_ref()
    }

    /// The layout that a value is computed in, or the one that it takes where nobody asks for another.
    pub(super) fn or_default(&self, func: &Func, value: Value) -> Result<Layout, Diagnostic> {
        match self.get(value) {
            Some(layout) => Ok(layout.clone()),
            None => self.anchors.default_of(func, value),
        }
    }
}

/// Walks the function.
pub(super) fn infer(func: &Func, anchors: Anchors) -> Result<Layouts, Diagnostic> {
    let asked = asked::by_products(func, &anchors);
    let mut inference = Inference { func, layouts: Layouts { values: vec![None; func.values.len()], anchors }, asked };
    inference.block(func.body, &mut Vec::new())?;
    Ok(inference.layouts)
}

struct Inference<'f> {
    func: &'f Func,
    layouts: Layouts,
    /// What products ask for of values behind their factors.
    asked: FxHashMap<Value, Layout>,
}

/// What encloses an operation: the operation whose region it is in.
type Stack = Vec<Op>;

impl Inference<'_> {
    fn block(&mut self, block: Block, stack: &mut Stack) -> Result<(), Diagnostic> {
        for &op in &self.func.blocks[block].ops {
            self.op(op, stack)?;
        }
        Ok(())
    }

    fn set(&mut self, value: Value, layout: Layout) {
        if has_layout(self.func, value) {
            self.layouts.values[value.index()] = Some(layout);
        }
    }

    /// The value gets the layout unless it has one.
    fn suggest(&mut self, value: Value, layout: Option<Layout>) {
        if let (None, Some(layout)) = (self.layouts.get(value), layout) {
            self.set(value, layout);
        }
    }

    fn op(&mut self, op: Op, stack: &mut Stack) -> Result<(), Diagnostic> {
        let func = self.func;
        let data = &func.ops[op];
        let relation = Relation::of(func, op);
        if let Some((&result, layout)) = data.results.first().and_then(|result| self.asked.get_key_value(result)) {
            self.set(result, layout.clone());
            return Ok(());
        }
        match relation {
            Relation::Control => return self.control(op, stack),
            Relation::Own => {
                if let Some(layout) = self.in_place(op) {
                    self.set(data.result(), layout);
                    return Ok(());
                }
                for &result in &data.results {
                    if let Some(layout) = self.layouts.anchors.of_result(func, op, result)? {
                        self.set(result, layout);
                    }
                }
                return Ok(());
            }
            _ => {}
        }
        let tiles: Vec<Value> = data.operands.iter().copied().filter(|&value| has_layout(func, value)).collect();
        let anchored = tiles.iter().find_map(|&value| self.layouts.get(value).cloned());
        let layout = match (anchored, tiles.first()) {
            (Some(layout), _) => Some(layout),
            (None, Some(&first)) if is_shared_out(func, op) => Some(self.layouts.anchors.one_each(func, op, first)?),
            (None, Some(&first)) if !relation.repeats(func, op) => Some(self.layouts.anchors.of_pointers(func, op, first)?),
            (None, _) => None,
        };
        if let Some(layout) = layout.and_then(|layout| relation.forward(func, op, &layout)) {
            for &result in &data.results {
                self.set(result, layout.clone());
            }
        } else if !relation.repeats(func, op) {
            for &result in &data.results {
                if has_layout(func, result) {
                    let layout = self.layouts.anchors.default_of(func, result)?;
                    self.set(result, layout);
                }
            }
        }
        Ok(())
    }

    /// The layout in which one of the equal parts of a tile is where it was, and so is a tile that a part is put into.
    fn in_place(&self, op: Op) -> Option<Layout> {
        let data = &self.func.ops[op];
        let OpKind::Schedule(kind) = &data.kind else { return None };
        match kind {
            ScheduleOp::Extract {} => {
                let source = self.layouts.get(data.one(0))?;
                let to = shape(self.func, data.result());
                let mut parted = (0..source.rank()).filter(|&dim| source.shape()[dim] != to[dim]);
                match (parted.next(), parted.next()) {
                    (Some(dim), None) => source.part(dim, source.shape()[dim] / to[dim]).map(Arc::new),
                    _ => None,
                }
            }
            ScheduleOp::Insert {} => self.layouts.get(data.one(1)).cloned(),
            _ => None,
        }
    }

    fn control(&mut self, op: Op, stack: &mut Stack) -> Result<(), Diagnostic> {
        let func = self.func;
        let data = &func.ops[op];
        let OpKind::Schedule(kind) = &data.kind else {
            stack.push(op);
            for &region in &data.regions {
                self.block(region, stack)?;
            }
            stack.pop();
            return Ok(());
        };
        match kind {
            ScheduleOp::For { .. } | ScheduleOp::Loop {} => {
                let body = data.regions[0];
                let carried = carried(func, op);
                let init = &data.operands[data.operands.len() - carried.len()..];
                for (&arg, &init) in carried.iter().zip(init) {
                    let layout = self.layouts.get(init).cloned();
                    self.suggest(arg, layout);
                }
                // What a loop yields can change what it takes, which can change what it yields: a layout is taken over at most
                // once a value, so this ends.
                for _ in 0..=carried.len() {
                    let before = self.snapshot(&carried);
                    stack.push(op);
                    self.block(body, stack)?;
                    stack.pop();
                    if self.snapshot(&carried) == before {
                        break;
                    }
                }
                for &arg in &carried {
                    if has_layout(func, arg) && self.layouts.get(arg).is_none() {
                        let layout = self.layouts.anchors.default_of(func, arg)?;
                        self.set(arg, layout);
                    }
                }
                stack.push(op);
                self.block(body, stack)?;
                stack.pop();
                if matches!(kind, ScheduleOp::For { .. }) {
                    for (&result, &arg) in data.results.iter().zip(&carried) {
                        let layout = self.layouts.get(arg).cloned();
                        self.suggest(result, layout);
                    }
                }
                self.settle(&data.results)
            }
            ScheduleOp::If {} => {
                stack.push(op);
                for &region in &data.regions {
                    self.block(region, stack)?;
                }
                stack.pop();
                self.settle(&data.results)
            }
            ScheduleOp::Yield {} => {
                if let Some(&owner) = stack.last() {
                    let results = func.ops[owner].results.clone();
                    self.hand_over(&data.operands, &results);
                }
                Ok(())
            }
            ScheduleOp::Continue {} | ScheduleOp::Break {} => {
                let Some(&owner) = stack.iter().rev().find(|&&owner| is_loop(func, owner)) else { return Ok(()) };
                let to = match kind {
                    ScheduleOp::Break {} => func.ops[owner].results.to_vec(),
                    _ => carried(func, owner),
                };
                self.hand_over(&data.operands, &to);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn hand_over(&mut self, from: &[Value], to: &[Value]) {
        for (&from, &to) in from.iter().zip(to) {
            let layout = self.layouts.get(from).cloned();
            self.suggest(to, layout);
        }
    }

    /// Results that no path gave a layout take the default.
    fn settle(&mut self, results: &[Value]) -> Result<(), Diagnostic> {
        for &result in results {
            if has_layout(self.func, result) && self.layouts.get(result).is_none() {
                let layout = self.layouts.anchors.default_of(self.func, result)?;
                self.set(result, layout);
            }
        }
        Ok(())
    }

    fn snapshot(&self, values: &[Value]) -> Vec<Option<Layout>> {
        values.iter().map(|&value| self.layouts.get(value).cloned()).collect()
    }
}

pub(super) fn is_loop(func: &Func, op: Op) -> bool {
    matches!(&func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}))
}

/// The block arguments of a loop's body that are carried from round to round.
pub(super) fn carried(func: &Func, op: Op) -> Vec<Value> {
    let args = &func.blocks[func.ops[op].regions[0]].args;
    let skipped = usize::from(matches!(&func.ops[op].kind, OpKind::Schedule(ScheduleOp::For { .. })));
    args[skipped..].to_vec()
}
