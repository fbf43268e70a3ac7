//! Puts the layouts into the function: types, conversions, and flexible values computed in the layouts that are asked for.
//!
//! A value in a second layout stands directly behind the definition of the value, so it is visible wherever that is, and is made once
//! for each layout.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tessera_ir::{Block, Def, Diagnostic, Func, Op, OpKind, ScheduleOp, SharedType, TileOp, Type, Value, bug};

use super::anchors::Product;
use super::infer::{Layouts, carried, is_loop};
use super::relation::{Layout, Relation, has_layout};
use super::roles::{is_coarse, signs};
use super::spread;

/// Elements of the contraction that the tensor cores sum up by themselves where their sums have fewer bits than the accumulator.
const PROMOTED: u32 = 128;

/// The value is the tile that an operation puts a part into.
fn is_whole(func: &Func, op: Op, value: Value) -> bool {
    matches!(func.ops[op].kind, OpKind::Schedule(ScheduleOp::Insert {})) && func.ops[op].one(1) == value
}

/// Rewrites the function in place.
pub(super) fn rewrite(func: &mut Func, layouts: &Layouts) -> Result<(), Diagnostic> {
    for value in func.values.ids().collect::<Vec<_>>() {
        if let Some(layout) = layouts.get(value) {
            retype(func, value, layout);
        }
    }
    let mut rewriter = Rewriter {
        func,
        layouts,
        behind: FxHashMap::default(),
        ahead: FxHashMap::default(),
        copies: FxHashMap::default(),
        before: BTreeMap::new(),
    };
    let body = rewriter.func.body;
    rewriter.block(body, &mut Vec::new())?;
    rewriter.assemble(body);
    for op in func.linked_ops() {
        for result in func.ops[op].results.clone() {
            if has_layout(func, result) && func.ty(result).layout().is_none() {
                let layout = layouts.anchors.default_of(func, result)?;
                retype(func, result, &layout);
            }
        }
    }
    Ok(())
}

fn retype(func: &mut Func, value: Value, layout: &Layout) {
    if let Some(tile) = func.ty(value).as_tile().cloned() {
        func.values[value].ty = Type::distributed(tile, layout);
    }
}

struct Rewriter<'f> {
    func: &'f mut Func,
    layouts: &'f Layouts,
    /// New operations directly behind an operation.
    behind: FxHashMap<Op, Vec<Op>>,
    /// New operations at the start of a block.
    ahead: FxHashMap<Block, Vec<Op>>,
    /// New operations directly before an operation.
    before: BTreeMap<Op, Vec<Op>>,
    copies: FxHashMap<(Value, Layout), Value>,
}

impl Rewriter<'_> {
    fn block(&mut self, block: Block, stack: &mut Vec<Op>) -> Result<(), Diagnostic> {
        for op in self.func.blocks[block].ops.clone() {
            self.op(op, stack)?;
        }
        Ok(())
    }

    fn op(&mut self, op: Op, stack: &mut Vec<Op>) -> Result<(), Diagnostic> {
        let relation = Relation::of(self.func, op);
        if self.is_flexible(op, &relation) {
            return Ok(());
        }
        match &relation {
            Relation::Control => self.control(op, stack),
            Relation::Own => self.own(op),
            _ => {
                let operands = self.func.ops[op].operands.clone();
                let tiles: Vec<Value> = operands.iter().copied().filter(|&value| has_layout(self.func, value)).collect();
                let Some(&first) = tiles.first() else { return Ok(()) };
                let result = self.func.ops[op].results.iter().copied().find(|&value| has_layout(self.func, value));
                let wanted = match (&relation, result.and_then(|result| self.layouts.get(result).cloned())) {
                    (Relation::Reduce(_), _) | (_, None) => {
                        match tiles.iter().find_map(|&value| self.layouts.get(value).cloned()) {
                            Some(layout) => layout,
                            None => self.layouts.anchors.of_pointers(self.func, op, first)?,
                        }
                    }
                    (relation, Some(result)) => match relation.backward(self.func, first, &result) {
                        Some(layout) => layout,
                        None => self.layouts.or_default(self.func, first)?,
                    },
                };
                self.operands_in(op, |_, _| Some(wanted.clone()))
            }
        }
    }

    /// Nothing needs the operation where it stands: its users compute it again, each in the layout it needs.
    fn is_flexible(&self, op: Op, relation: &Relation) -> bool {
        let results = &self.func.ops[op].results;
        relation.repeats(self.func, op)
            && results.iter().any(|&value| has_layout(self.func, value))
            && results.iter().all(|&value| self.layouts.get(value).is_none())
    }

    fn own(&mut self, op: Op) -> Result<(), Diagnostic> {
        if let Some(product) = self.layouts.anchors.product(op) {
            return match product.clone() {
                Product::Fragments { lhs, rhs, acc, places } => self.operands_in(op, |_, position| match position {
                    3 => places.clone(),
                    _ => Some([&lhs, &rhs, &acc][position].clone()),
                }),
                Product::Warpgroups { lhs, acc, places } => self.warpgroup_product(op, [lhs.as_ref(), places.as_ref()], &acc),
                Product::Shared { acc, slots } => self.shared_product(op, &acc, slots),
                Product::InParts { acc } => {
                    let data = &self.func.ops[op];
                    let [lhs, rhs] = [data.one(0), data.one(1)].map(|factor| self.layouts.or_default(self.func, factor));
                    let wanted = [lhs?, rhs?, acc];
                    self.operands_in(op, |_, position| Some(wanted[position].clone()))
                }
            };
        }
        let layouts = self.layouts;
        let natural: Vec<Option<Layout>> = self.func.ops[op]
            .operands
            .clone()
            .iter()
            .map(|&value| match layouts.get(value) {
                // A tile that a part is put into has the result's.
                _ if is_whole(self.func, op, value) => layouts.or_default(self.func, self.func.ops[op].result()).map(Some),
                Some(layout) => layouts.anchors.for_user(self.func, op, value, layout).map(Some),
                None if has_layout(self.func, value) => layouts.anchors.of_operand(self.func, op, value).map(Some),
                None => Ok(None),
            })
            .collect::<Result<_, Diagnostic>>()?;
        self.operands_in(op, |_, position| natural[position].clone())
    }

    /// The product is started, then waited for: the operation becomes the wait.
    fn warpgroup_product(&mut self, op: Op, [lhs, places]: [Option<&Layout>; 2], acc: &Layout) -> Result<(), Diagnostic> {
        let data = self.func.ops[op].clone();
        let value = self.at(data.one(2), acc)?;
        let lhs = match lhs {
            Some(layout) => self.at(data.one(0), layout)?,
            None => data.one(0),
        };
        let Type::Distributed(ty) = self.func.ty(data.result()).clone() else { bug!("a product without a layout") };
        let OpKind::Tile(TileOp::MmaShared { fast_acc, lhs_signedness, rhs_signedness }) = data.kind else {
            bug!("a product of warpgroups whose factors are not in shared memory")
        };
        let stand = data.places().zip(places).map(|(words, layout)| self.at(words, layout)).transpose()?;
        let groups: [&[Value]; 4] = [&[lhs], &[data.one(1)], &[value], stand.as_slice()];
        let coarse = self.func.ty(data.one(1)).as_shared().filter(|factor| is_coarse(factor.elem) && !fast_acc);
        if let Some(factor) = coarse {
            let depth = factor.shape[0].min(PROMOTED);
            let product = &mut self.func.ops[op];
            product.turn_into(TileOp::WgmmaPromoted { depth });
            product.operands[2] = value;
            return Ok(());
        }
        let kind = TileOp::Wgmma { fast_acc, lhs_signedness, rhs_signedness };
        let started = self.func.make_op(kind.into(), &groups, [Type::InFlight(ty)], [], data.span);
        let in_flight = self.func.ops[started].result();
        self.before.entry(op).or_default().push(started);
        let wait = &mut self.func.ops[op];
        wait.kind = TileOp::WgmmaWait { pending: 0 }.into();
        wait.operands = [in_flight].into_iter().collect();
        wait.segments = [1].into_iter().collect();
        Ok(())
    }

    /// Both factors lie in shared memory, where every thread reads what its part of the product needs; tiles are put there.
    fn shared_product(&mut self, op: Op, acc: &Layout, slots: [SharedType; 2]) -> Result<(), Diagnostic> {
        let data = self.func.ops[op].clone();
        if matches!(data.kind, OpKind::Tile(TileOp::MmaShared { .. })) {
            let lhs =
                if has_layout(self.func, data.one(0)) { Some(self.layouts.or_default(self.func, data.one(0))?) } else { None };
            return self.operands_in(op, |_, position| if position == 2 { Some(acc.clone()) } else { lhs.clone() });
        }
        let mut factors = Vec::new();
        for (factor, slot) in [data.one(0), data.one(1)].into_iter().zip(slots) {
            let layout = self.layouts.or_default(self.func, factor)?;
            let value = self.at(factor, &layout)?;
            factors.push(spread::put(self.func, op, value, slot, self.before.entry(op).or_default()));
        }
        spread::barrier(self.func, op, self.before.entry(op).or_default());
        let acc = self.at(data.one(2), acc)?;
        let (fast_acc, lhs_signedness, rhs_signedness) = signs(&data.kind);
        let kind = TileOp::MmaShared { fast_acc, lhs_signedness, rhs_signedness };
        let target = &mut self.func.ops[op];
        target.turn_into(kind);
        target.operands = [factors[0], factors[1], acc].into_iter().collect();
        let mut behind = Vec::new();
        spread::barrier(self.func, op, &mut behind);
        self.behind.entry(op).or_default().splice(0..0, behind);
        Ok(())
    }

    fn control(&mut self, op: Op, stack: &mut Vec<Op>) -> Result<(), Diagnostic> {
        let data = self.func.ops[op].clone();
        let targets: Vec<Value> = match &data.kind {
            OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => carried(self.func, op),
            OpKind::Schedule(ScheduleOp::Yield {}) => match stack.last() {
                Some(&owner) => self.func.ops[owner].results.to_vec(),
                None => Vec::new(),
            },
            OpKind::Schedule(ScheduleOp::Continue {}) => match stack.iter().rev().find(|&&owner| is_loop(self.func, owner)) {
                Some(&owner) => carried(self.func, owner),
                None => Vec::new(),
            },
            OpKind::Schedule(ScheduleOp::Break {}) => match stack.iter().rev().find(|&&owner| is_loop(self.func, owner)) {
                Some(&owner) => self.func.ops[owner].results.to_vec(),
                None => Vec::new(),
            },
            _ => Vec::new(),
        };
        let first = data.operands.len() - targets.len().min(data.operands.len());
        let layouts = self.layouts;
        self.operands_in(op, |_, position| {
            position.checked_sub(first).and_then(|target| layouts.get(*targets.get(target)?)).cloned()
        })?;
        stack.push(op);
        for region in data.regions {
            self.block(region, stack)?;
        }
        stack.pop();
        Ok(())
    }

    /// Replaces each tile operand by itself in the layout that `wanted` names.
    fn operands_in(&mut self, op: Op, wanted: impl Fn(&Func, usize) -> Option<Layout>) -> Result<(), Diagnostic> {
        for position in 0..self.func.ops[op].operands.len() {
            let value = self.func.ops[op].operands[position];
            if !has_layout(self.func, value) {
                continue;
            }
            if let Some(layout) = wanted(self.func, position) {
                let value = self.at(value, &layout)?;
                self.func.ops[op].operands[position] = value;
            }
        }
        Ok(())
    }

    /// The value in a layout.
    fn at(&mut self, value: Value, layout: &Layout) -> Result<Value, Diagnostic> {
        if self.func.ty(value).layout() == Some(layout) || !has_layout(self.func, value) {
            return Ok(value);
        }
        if let Some(&copy) = self.copies.get(&(value, layout.clone())) {
            return Ok(copy);
        }
        let def = self.func.values[value].def;
        let copy = match def {
            Def::Result(op, position) if self.layouts.get(value).is_none() => {
                let relation = Relation::of(self.func, op);
                if relation.repeats(self.func, op) {
                    self.repeat(op, &relation, layout)?
                } else if self.func.ty(value).layout().is_none() {
                    // A load that nobody has asked for yet: it takes the first layout that it is asked for.
                    debug_assert_eq!(position, 0);
                    retype(self.func, value, layout);
                    return Ok(value);
                } else {
                    self.convert(value, layout)
                }
            }
            _ => self.convert(value, layout),
        };
        self.copies.insert((value, layout.clone()), copy);
        Ok(copy)
    }

    fn repeat(&mut self, op: Op, relation: &Relation, layout: &Layout) -> Result<Value, Diagnostic> {
        let data = self.func.ops[op].clone();
        let mut operands = Vec::with_capacity(data.operands.len());
        for &operand in &data.operands {
            operands.push(match has_layout(self.func, operand) {
                true => match relation.backward(self.func, operand, layout) {
                    Some(wanted) => self.at(operand, &wanted)?,
                    None => {
                        let wanted = self.layouts.or_default(self.func, operand)?;
                        self.at(operand, &wanted)?
                    }
                },
                false => operand,
            });
        }
        let tile = self.func.ty(data.result()).the_tile().clone();
        let groups: Vec<&[Value]> = operands.iter().map(std::slice::from_ref).collect();
        let copy = self.func.make_op(data.kind.clone(), &groups, [Type::distributed(tile, layout)], [], data.span);
        let value = self.func.ops[copy].result();
        self.func.values[value].name = self.func.values[data.result()].name.clone();
        self.behind.entry(op).or_default().push(copy);
        Ok(value)
    }

    fn convert(&mut self, value: Value, layout: &Layout) -> Value {
        let tile = self.func.ty(value).the_tile().clone();
        let span = match self.func.values[value].def {
            Def::Result(op, _) => self.func.ops[op].span,
            Def::Argument(..) => self.func.span,
        };
        let ty = Type::distributed(tile, layout);
        let op = self.func.make_op(TileOp::ConvertLayout {}.into(), &[&[value]], [ty], [], span);
        match self.func.values[value].def {
            Def::Result(def, _) => self.behind.entry(def).or_default().push(op),
            Def::Argument(block, _) => self.ahead.entry(block).or_default().push(op),
        }
        self.func.ops[op].result()
    }

    /// Links the new operations, and unlinks flexible ones.
    fn assemble(&mut self, block: Block) {
        let old = std::mem::take(&mut self.func.blocks[block].ops);
        let mut ops = Vec::with_capacity(old.len());
        let ahead = self.ahead.remove(&block).unwrap_or_default();
        self.append(ahead, &mut ops);
        for op in old {
            let before = self.before.remove(&op).unwrap_or_default();
            self.append(before, &mut ops);
            if !self.is_flexible(op, &Relation::of(self.func, op)) {
                ops.push(op);
            }
            for region in self.func.ops[op].regions.clone() {
                self.assemble(region);
            }
            let behind = self.behind.remove(&op).unwrap_or_default();
            self.append(behind, &mut ops);
        }
        self.func.blocks[block].ops = ops;
    }

    fn append(&mut self, new: Vec<Op>, ops: &mut Vec<Op>) {
        for op in new {
            ops.push(op);
            let behind = self.behind.remove(&op).unwrap_or_default();
            self.append(behind, ops);
        }
    }
}
