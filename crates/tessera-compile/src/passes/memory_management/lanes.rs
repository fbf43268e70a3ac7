//! What the lanes of a warp have for a scalar: index expressions of element accesses, computed for the 32 lanes of the first warp.
//!
//! What is the same in all lanes but not known (arguments, the block's number, a loop's counter) is a number of our choice, the same everywhere: two
//! rounds choose 0 and 1, a counter its first and its second value. What is not known and differs between lanes has no answer.

use rustc_hash::FxHashMap;
use tessera_ir::uniformity::{Uniformity, UniformityMap};
use tessera_ir::{Const, Def, Func, OpKind, ScheduleOp, TileOp, Value};
use tessera_types::DType;

use crate::fold;

/// Lanes of a warp.
pub(super) const LANES: usize = 32;

/// A scalar in each lane.
type Each = Option<Box<[i64; LANES]>>;

/// Scalars of a function by lanes.
pub(super) struct Lanes<'f> {
    func: &'f Func,
    uniformity: &'f UniformityMap,
    round: i64,
    known: FxHashMap<Value, Each>,
}

impl<'f> Lanes<'f> {
    /// In a round of all loops, 0 or 1.
    pub(super) fn new(func: &'f Func, uniformity: &'f UniformityMap, round: i64) -> Lanes<'f> {
        Lanes { func, uniformity, round, known: FxHashMap::default() }
    }

    /// What the lanes have; `None` where that is not known.
    pub(super) fn of(&mut self, value: Value) -> Each {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        // A value that depends on itself, round a loop, is no number.
        self.known.insert(value, None);
        let found = self.computed(value).or_else(|| {
            let same = self.uniformity.value(value) <= Uniformity::Warp;
            same.then(|| Box::new([self.round; LANES]))
        });
        self.known.insert(value, found.clone());
        found
    }

    fn computed(&mut self, value: Value) -> Each {
        let func = self.func;
        let op = match func.values[value].def {
            Def::Result(op, _) => op,
            Def::Argument(block, position) => return self.counter(block, position),
        };
        let data = &func.ops[op];
        match &data.kind {
            OpKind::Tile(TileOp::ThreadId {} | TileOp::LaneId {}) => Some(Box::new(std::array::from_fn(|lane| lane as i64))),
            OpKind::Tile(TileOp::WarpId {}) => Some(Box::new([0; LANES])),
            OpKind::Schedule(ScheduleOp::Constant { value }) => value.as_int().map(|value| Box::new([value; LANES])),
            OpKind::Schedule(kind) if data.results.len() == 1 && func.ty(value).is_scalar() => {
                let result = func.ty(value).num()?;
                let types: Option<Vec<DType>> = data.operands.iter().map(|&operand| func.ty(operand).num()).collect();
                let types = types
                    .filter(|types| !types.is_empty() && types.iter().all(|dtype| dtype.is_integer() || *dtype == DType::B1))?;
                let args: Option<Vec<_>> = data.operands.iter().map(|&operand| self.of(operand)).collect();
                let args = args?;
                let mut all = [0; LANES];
                for (lane, slot) in all.iter_mut().enumerate() {
                    let scalars: Vec<Const> = args.iter().zip(&types).map(|(arg, &dtype)| Const::int(dtype, arg[lane])).collect();
                    let operands: Vec<&Const> = scalars.iter().collect();
                    *slot = fold::elementwise(kind, &operands, result)?.as_int()?;
                }
                Some(Box::new(all))
            }
            _ => None,
        }
    }

    /// A loop's counter.
    fn counter(&mut self, block: tessera_ir::Block, position: u32) -> Each {
        let func = self.func;
        let holds = |op: &tessera_ir::Op| func.ops[*op].regions.contains(&block);
        let data = &func.ops[func.linked_ops().into_iter().find(holds)?];
        if position != 0 || !matches!(data.kind, OpKind::Schedule(ScheduleOp::For { .. })) {
            return None;
        }
        let (lower, step) = (self.of(data.operands[0])?, self.of(data.operands[2])?);
        Some(Box::new(std::array::from_fn(|lane| lower[lane].wrapping_add(self.round.wrapping_mul(step[lane])))))
    }
}
