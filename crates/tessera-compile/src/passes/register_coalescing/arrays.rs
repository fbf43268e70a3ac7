//! Arrays of registers whose elements are chosen by constants become values.
//!
//! Each element is a variable. A load is what the variable holds there; a branch yields the variables that it writes, and a loop carries
//! those that its rounds write. What a variable holds before it is written is undetermined: zero stands for it.
//!
//! ```text
//! %a = tile.alloc_register : registers<2xf32>
//! tile.store_element %x, %a, [0]                            for ..., [%x] (%k, %v) {
//! for ... { %v = tile.load_element %a, [0]            =>      %w = addf %v, %v
//!           tile.store_element (addf %v, %v), %a, [0] }       continue [%w] }
//! ```

use rustc_hash::{FxHashMap, FxHashSet};
use tessera_ir::{Block, Const, Elem, Func, Op, OpKind, ScheduleOp, TileOp, TileType, Type, Value, bug};
use tessera_types::DType;

/// The most elements of an array that become values.
const MOST_ELEMENTS: usize = 256;

/// A number of a variable.
type Slot = usize;

/// Makes values of arrays; true if there were any.
pub(super) fn promote(func: &mut Func) -> bool {
    let arrays = promotable(func);
    if arrays.is_empty() {
        return false;
    }
    let mut types: Vec<DType> = Vec::new();
    let mut firsts: FxHashMap<Value, Slot> = FxHashMap::default();
    for (array, tile) in &arrays {
        let Some(dtype) = tile.elem.num() else { continue };
        firsts.insert(*array, types.len());
        types.extend(std::iter::repeat_n(dtype, tile.len()));
    }
    let mut walk =
        Walk { func, firsts, types, map: FxHashMap::default(), held: Vec::new(), loops: Vec::new(), first: Vec::new() };
    walk.held = walk.undetermined();
    let body = walk.func.body;
    walk.block(body);
    let Walk { func, first, .. } = walk;
    func.blocks[body].ops.splice(0..0, first);
    true
}

/// Arrays that only constants index, in one role each, outside the regions of reductions.
fn promotable(func: &Func) -> Vec<(Value, TileType)> {
    let mut found: Vec<(Value, TileType)> = Vec::new();
    let mut homes: FxHashMap<Value, Option<Op>> = FxHashMap::default();
    let mut refused: FxHashSet<Value> = FxHashSet::default();
    visit(func, func.body, Home::default(), &mut |func, op, home| {
        let data = &func.ops[op];
        if let OpKind::Tile(TileOp::AllocRegister {}) = data.kind
            && let Type::Registers(tile) = func.ty(data.result())
        {
            found.push((data.result(), (**tile).clone()));
            return;
        }
        for value in data.used().filter(|&value| matches!(func.ty(value), Type::Registers(_))) {
            let same = *homes.entry(value).or_insert(home.role) == home.role;
            if !same || home.closed || chosen(func, op).is_none_or(|(array, _)| array != value) {
                refused.insert(value);
            }
        }
    });
    found.retain(|(array, tile)| {
        !refused.contains(array) && tile.len() <= MOST_ELEMENTS && matches!(tile.elem, Elem::Num(_)) && homes.contains_key(array)
    });
    found
}

/// Where an operation stands.
#[derive(Clone, Copy, Default)]
struct Home {
    role: Option<Op>,
    in_loop: bool,
    /// In the region of a reduction, or in a role that a loop repeats: values cannot be passed on there.
    closed: bool,
}

fn visit(func: &Func, block: Block, home: Home, see: &mut impl FnMut(&Func, Op, Home)) {
    for &op in &func.blocks[block].ops {
        see(func, op, home);
        let inner = match func.ops[op].kind {
            OpKind::Tile(TileOp::Role { .. }) => Home { role: Some(op), closed: home.closed || home.in_loop, ..home },
            OpKind::Schedule(ScheduleOp::Reduce { .. } | ScheduleOp::Scan { .. }) => Home { closed: true, ..home },
            OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => Home { in_loop: true, ..home },
            _ => home,
        };
        for &region in &func.ops[op].regions {
            visit(func, region, inner, see);
        }
    }
}

/// The array and the element that an access chooses by constants that lie in it.
fn chosen(func: &Func, op: Op) -> Option<(Value, usize)> {
    let data = &func.ops[op];
    let (array, indices) = match &data.kind {
        OpKind::Tile(TileOp::LoadElement {}) => (data.one(0), data.group(1)),
        OpKind::Tile(TileOp::StoreElement { .. }) => (data.one(1), data.group(2)),
        _ => return None,
    };
    let Type::Registers(tile) = func.ty(array) else { return None };
    let mut flat = 0;
    for (&index, &extent) in indices.iter().zip(&tile.shape) {
        let index = func.constant(index).and_then(Const::as_int)?;
        let index = usize::try_from(index).ok().filter(|&index| index < extent as usize)?;
        flat = flat * extent as usize + index;
    }
    Some((array, flat))
}

struct Walk<'f> {
    func: &'f mut Func,
    /// The first variable of each array.
    firsts: FxHashMap<Value, Slot>,
    types: Vec<DType>,
    /// What loads became.
    map: FxHashMap<Value, Value>,
    /// What each variable holds here.
    held: Vec<Value>,
    /// The variables that open loops carry, innermost last.
    loops: Vec<Vec<Slot>>,
    /// Operations that go to the function's start.
    first: Vec<Op>,
}

impl Walk<'_> {
    /// Zeros, one a type.
    fn undetermined(&mut self) -> Vec<Value> {
        let mut zeros: Vec<(DType, Value)> = Vec::new();
        let span = self.func.span;
        for &dtype in &self.types {
            if zeros.iter().all(|(known, _)| *known != dtype) {
                let kind = ScheduleOp::Constant { value: Const::splat(dtype, 0) };
                let op = self.func.make_op(kind.into(), &[], [Type::scalar(dtype)], [], span);
                self.first.push(op);
                zeros.push((dtype, self.func.ops[op].result()));
            }
        }
        let zero = |dtype: &DType| zeros.iter().find(|(known, _)| known == dtype).map(|&(_, zero)| zero);
        self.types.iter().filter_map(zero).collect()
    }

    fn slot(&self, op: Op) -> Option<Slot> {
        let (array, element) = chosen(self.func, op)?;
        Some(self.firsts.get(&array)? + element)
    }

    /// The variables that operations write, in order.
    fn written(&self, block: Block, found: &mut Vec<Slot>) {
        for &op in &self.func.blocks[block].ops {
            let stores = matches!(self.func.ops[op].kind, OpKind::Tile(TileOp::StoreElement { .. }));
            found.extend(self.slot(op).filter(|_| stores));
            for &region in &self.func.ops[op].regions {
                self.written(region, found);
            }
        }
    }

    fn all_written(&self, regions: &[Block]) -> Vec<Slot> {
        let mut found = Vec::new();
        regions.iter().for_each(|&region| self.written(region, &mut found));
        found.sort_unstable();
        found.dedup();
        found
    }

    fn block(&mut self, block: Block) {
        let mut out = Vec::new();
        for op in std::mem::take(&mut self.func.blocks[block].ops) {
            let map = &self.map;
            let data = &mut self.func.ops[op];
            for used in data.operands.iter_mut().chain(&mut data.through) {
                *used = map.get(used).copied().unwrap_or(*used);
            }
            if self.op(op) {
                out.push(op);
            }
        }
        self.func.blocks[block].ops = out;
    }

    /// False for what became a value.
    fn op(&mut self, op: Op) -> bool {
        let data = &self.func.ops[op];
        match &data.kind {
            OpKind::Tile(TileOp::AllocRegister {}) => return !self.firsts.contains_key(&data.result()),
            OpKind::Tile(TileOp::LoadElement {}) => {
                let Some(slot) = self.slot(op) else { return true };
                let result = self.func.ops[op].result();
                self.map.insert(result, self.held[slot]);
                return false;
            }
            OpKind::Tile(TileOp::StoreElement { .. }) => {
                let Some(slot) = self.slot(op) else { return true };
                self.held[slot] = self.func.ops[op].one(0);
                return false;
            }
            OpKind::Schedule(ScheduleOp::If {}) => self.branch(op),
            OpKind::Schedule(ScheduleOp::For { .. } | ScheduleOp::Loop {}) => self.rounds(op),
            OpKind::Schedule(ScheduleOp::Continue {} | ScheduleOp::Break {}) => {
                let carried = self.loops.last().cloned();
                self.hand_on(op, &carried.unwrap_or_else(|| bug!("an exit without a loop")));
            }
            _ => {
                // What a role's array holds nobody outside sees.
                let before = self.held.clone();
                for region in data.regions.clone() {
                    self.block(region);
                }
                self.held = before;
            }
        }
        true
    }

    /// Gives a terminator what variables hold.
    fn hand_on(&mut self, op: Op, slots: &[Slot]) {
        let values: Vec<Value> = slots.iter().map(|&slot| self.held[slot]).collect();
        self.func.append_operands(op, &values);
    }

    fn branch(&mut self, op: Op) {
        let regions = self.func.ops[op].regions.clone();
        let slots = self.all_written(&regions);
        let before = self.held.clone();
        for &region in &regions {
            self.held.clone_from(&before);
            self.block(region);
            if let Some(&last) = self.func.blocks[region].ops.last()
                && matches!(self.func.ops[last].kind, OpKind::Schedule(ScheduleOp::Yield {}))
            {
                self.hand_on(last, &slots);
            }
        }
        self.held = before;
        self.results(op, &slots);
    }

    fn rounds(&mut self, op: Op) {
        let region = self.func.ops[op].regions[0];
        let slots = self.all_written(&[region]);
        let before = self.held.clone();
        self.hand_on(op, &slots);
        for &slot in &slots {
            let ty = Type::scalar(self.types[slot]);
            self.held[slot] = self.func.add_arg(region, ty, None);
        }
        self.loops.push(slots.clone());
        self.block(region);
        self.loops.pop();
        self.held = before;
        self.results(op, &slots);
    }

    /// New results that variables hold from here on.
    fn results(&mut self, op: Op, slots: &[Slot]) {
        for &slot in slots {
            let ty = Type::scalar(self.types[slot]);
            self.held[slot] = self.func.add_result(op, ty);
        }
    }
}
