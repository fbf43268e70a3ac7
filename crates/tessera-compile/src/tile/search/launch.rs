//! What is known of a launch, and the integers of a function that follow from it: how often a loop goes round in a block.

use tessera_ir::{Const, Def, Extent, Func, Op, OpKind, ScheduleOp, Trait, Type, Value, ViewKind};

use crate::fold;

/// How deep definitions are followed.
const DEEPEST: u32 = 48;

/// What is known of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Blocks along x, y and z that are asked for.
    pub grid: [u32; 3],
    /// The function's arguments that are known integers (sizes, strides, scalars), by position.
    pub arguments: Vec<Option<i64>>,
}

/// One block of a launch.
#[derive(Clone, Copy)]
pub(super) struct Block<'l> {
    pub(super) launch: &'l Launch,
    pub(super) place: [u32; 3],
}

impl Launch {
    /// Blocks in all.
    pub(super) fn blocks(&self) -> u64 {
        self.grid.iter().map(|&extent| u64::from(extent)).product()
    }

    /// The block with a number, along x first.
    pub(super) fn block(&self, number: u64) -> Block<'_> {
        let [x, y, _] = self.grid.map(|extent| u64::from(extent.max(1)));
        Block { launch: self, place: [number % x, number / x % y, number / x / y].map(|place| place as u32) }
    }
}

impl Block<'_> {
    /// The rounds of a counted loop.
    pub(super) fn rounds(&self, func: &Func, looped: Op) -> Option<u64> {
        let [lower, upper, step] = [0, 1, 2].map(|bound| self.number(func, func.ops[looped].one(bound), 0));
        let (lower, upper, step) = (lower?, upper?, step.filter(|&step| step > 0)?);
        u64::try_from(upper.saturating_sub(lower)).ok().map(|length| length.div_ceil(step as u64)).or(Some(0))
    }

    /// The integer that a scalar is.
    fn number(&self, func: &Func, value: Value, depth: u32) -> Option<i64> {
        if depth > DEEPEST {
            return None;
        }
        let op = match func.values[value].def {
            Def::Argument(block, position) if block == func.body => {
                return self.launch.arguments.get(position as usize).copied().flatten();
            }
            Def::Argument(..) => return None,
            Def::Result(op, position) => (op, position as usize),
        };
        let (op, position) = op;
        let data = &func.ops[op];
        let OpKind::Schedule(kind) = &data.kind else { return None };
        match kind {
            ScheduleOp::Constant { value } => value.as_int(),
            ScheduleOp::GetTileBlockId { axis } => Some(i64::from(self.place[*axis as usize])),
            ScheduleOp::GetNumTileBlocks { axis } => Some(i64::from(self.launch.grid[*axis as usize])),
            ScheduleOp::Assume { .. } => self.number(func, data.one(0), depth + 1),
            ScheduleOp::GetTensorShape {} => self.size(func, data.one(0), position, depth),
            ScheduleOp::GetIndexSpaceShape {} => {
                let Type::TileView(view) = func.ty(data.one(0)) else { return None };
                if view.kind != ViewKind::Partition {
                    return None;
                }
                let tensor = func.ops[func.defining_op(data.one(0))?].one(0);
                let size = self.size(func, tensor, *view.dim_map.get(position)? as usize, depth)?;
                Some(size.div_euclid(view.tile[position].into()) + i64::from(size.rem_euclid(view.tile[position].into()) != 0))
            }
            _ if data.regions.is_empty() && data.row().has(Trait::Elementwise) => {
                let known = |&value: &Value| {
                    let dtype = func.ty(value).num().filter(|_| func.ty(value).is_scalar())?;
                    Some(Const::int(dtype, self.number(func, value, depth + 1)?))
                };
                let known: Vec<Const> = data.operands.iter().map(known).collect::<Option<_>>()?;
                fold::elementwise(kind, &known.iter().collect::<Vec<_>>(), func.ty(value).num()?)?.as_int()
            }
            _ => None,
        }
    }

    /// The size of an array's view along an axis.
    fn size(&self, func: &Func, tensor: Value, axis: usize, depth: u32) -> Option<i64> {
        let Type::TensorView(view) = func.ty(tensor) else { return None };
        match *view.shape.get(axis)? {
            Extent::Static(size) => Some(size),
            Extent::Dynamic => {
                let made = &func.ops[func.defining_op(tensor)?];
                if !matches!(made.kind, OpKind::Schedule(ScheduleOp::MakeTensorView {})) {
                    return None;
                }
                let before = view.shape[..axis].iter().filter(|extent| matches!(extent, Extent::Dynamic)).count();
                self.number(func, *made.group(1).get(before)?, depth + 1)
            }
        }
    }
}
