//! What is known of a view's array before its kernel runs: what divides its address, its sizes and its strides.

use smallvec::SmallVec;
use tessera_ir::{Extent, Func, ScheduleOp, TileViewType, Value, ViewKind};

use super::facts::{Facts, gcd, power};
use super::modulo::Residue;

/// What is known of an array.
pub struct ViewFacts {
    /// Alignment of the base in bytes.
    pub align: u64,
    /// Divisors of the sizes.
    pub sizes: SmallVec<[u64; 4]>,
    /// What the sizes are at least.
    pub least_sizes: SmallVec<[i64; 4]>,
    /// Divisors of the strides.
    pub strides: SmallVec<[u64; 4]>,
    /// The strides themselves; `None` where the view's maker does not give them.
    steps: SmallVec<[Option<Residue>; 4]>,
}

impl ViewFacts {
    /// Of the array of a view.
    pub fn of(func: &Func, facts: &Facts, view: Value, ty: &TileViewType) -> ViewFacts {
        let rank = ty.tensor.shape.len();
        let of = |extent: &Extent| match extent {
            Extent::Static(value) => (value.unsigned_abs(), *value),
            Extent::Dynamic => (1, 0),
        };
        let step = |extent: &Extent| match extent {
            Extent::Static(value) => Some(Residue::number(*value)),
            Extent::Dynamic => None,
        };
        let mut known = ViewFacts {
            align: u64::from(ty.tensor.elem.bits()).div_ceil(8),
            sizes: ty.tensor.shape.iter().map(|extent| of(extent).0).collect(),
            least_sizes: ty.tensor.shape.iter().map(|extent| of(extent).1).collect(),
            strides: ty.tensor.strides.iter().map(|extent| of(extent).0).collect(),
            steps: ty.tensor.strides.iter().map(step).collect(),
        };
        // The view's operands say more than its type.
        let Some(tensor) = func.defining_op(view).map(|op| &func.ops[op]) else { return known };
        let tensor = match tensor.kind.schedule() {
            Some(ScheduleOp::MakeTensorView {}) => tensor,
            _ => match tensor.operands.first().and_then(|&tensor| func.defining_op(tensor)).map(|op| &func.ops[op]) {
                Some(tensor) if matches!(tensor.kind.schedule(), Some(ScheduleOp::MakeTensorView {})) => tensor,
                _ => return known,
            },
        };
        known.align = known.align.max(power(facts.fact(tensor.one(0)).divisor));
        let mut sizes = tensor.group(1).iter();
        let mut strides = tensor.group(2).iter();
        for dim in 0..rank {
            if ty.tensor.shape[dim] == Extent::Dynamic
                && let Some(&value) = sizes.next()
            {
                let fact = facts.fact(value);
                known.sizes[dim] = fact.divisor;
                known.least_sizes[dim] = fact.least.max(0);
            }
            if ty.tensor.strides[dim] == Extent::Dynamic
                && let Some(&value) = strides.next()
            {
                known.strides[dim] = facts.fact(value).divisor;
                known.steps[dim] = Some(Residue::of(func, facts, value));
            }
        }
        known
    }

    /// Where the tile at an index begins: elements from the array's base on, where a maker of the view gives its strides.
    pub fn corner(&self, func: &Func, facts: &Facts, ty: &TileViewType, index: &[Value]) -> Option<Residue> {
        let mut corner = Residue::number(0);
        for (position, &value) in index.iter().enumerate() {
            let step = step_of(ty, position);
            let stride = self.steps[ty.dim_map[position] as usize].as_ref()?;
            corner =
                corner.plus(&Residue::of(func, facts, value).times(&Residue::number(step as i64), facts).times(stride, facts));
        }
        Some(corner)
    }

    /// What divides the address of the tile at an index, in bytes.
    pub fn alignment(&self, func: &Func, facts: &Facts, ty: &TileViewType, index: &[Value]) -> u64 {
        let bytes = u64::from(ty.tensor.elem.bits()).div_ceil(8);
        let divisor = self.corner(func, facts, ty, index).map_or(1, |corner| corner.divisor(facts));
        self.align.min(divisor * bytes)
    }

    /// Elements between the last multiple of so many, a power of two, from the array's base on and the tile at an index, where that is one number.
    pub fn behind(&self, func: &Func, facts: &Facts, ty: &TileViewType, index: &[Value], many: u64) -> Option<u64> {
        let corner = self.corner(func, facts, ty, index)?;
        let number = corner.terms().find(|(factors, _)| factors.is_empty()).map_or(0, |(_, number)| number);
        let rest = corner.minus(&Residue::number(number as i64));
        rest.divisor(facts).is_multiple_of(many).then_some(number % many)
    }

    /// Neighbours along an axis of the array that one access may take, of elements of so many bytes: all lines of them begin and end at as many
    /// elements.
    pub fn neighbours(&self, dim: usize, bytes: u64) -> u64 {
        gcd(self.aligned(dim, bytes), self.sizes[dim])
    }

    /// The same of lines that may end anywhere: one access may take as many elements that lie before the end.
    pub fn aligned(&self, dim: usize, bytes: u64) -> u64 {
        let strides = (0..self.strides.len()).filter(|&other| other != dim).map(|other| self.strides[other]);
        strides.chain([self.align.div_ceil(bytes)]).fold(16 / bytes, gcd)
    }
}

/// How far one step of a view's index moves, in elements.
pub fn step_of(view: &TileViewType, position: usize) -> u64 {
    match &view.kind {
        ViewKind::Partition => u64::from(view.tile[position]),
        ViewKind::Strided(steps) => u64::from(steps[position]),
        ViewKind::GatherScatter { .. } => 1,
    }
}
