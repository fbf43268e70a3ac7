//! Layouts carried backward from products: what a factor in registers is computed by takes the layout in which the product takes the factor,
//! where that costs less than to compute it as memory lies and to exchange it then.
//!
//! ```text
//! %w = load_shared %slot : tile<8x256xi32>            eight bytes of a line a thread, as the fragment has their numbers
//! %q = ... reshape, broadcast, shri, andi, permute ... : tile<64x256xbf16>
//! mmaf %q, %x, %acc                                   no exchange between
//! ```
//!
//! What costs is counted in accesses of a thread to shared memory or to memory. Packed numbers pay: their words are few, and hold what one
//! thread needs. Bytes that are converted one by one do not.

use rustc_hash::FxHashMap;
use tessera_analysis::arrangement::Arrangement;
use tessera_ir::{Effects, Func, Op, OpKind, ScheduleOp, TileOp, Type, Value};

use super::anchors::{Anchors, Product};
use super::relation::{Layout, Relation, has_layout};

/// Bits of the widest access of a thread.
const ACCESS_BITS: u64 = 128;

/// The layouts that products ask for, of values behind their factors.
pub(super) fn by_products(func: &Func, anchors: &Anchors) -> FxHashMap<Value, Layout> {
    let mut asked = FxHashMap::default();
    for op in func.linked_ops() {
        let sides: [Option<&Layout>; 2] = match anchors.product(op) {
            Some(Product::Fragments { lhs, rhs, .. }) => [Some(lhs), Some(rhs)],
            Some(Product::Warpgroups { lhs, .. }) => [lhs.as_ref(), None],
            Some(Product::Shared { .. } | Product::InParts { .. }) | None => [None, None],
        };
        for (side, wanted) in sides.into_iter().enumerate() {
            let Some(wanted) = wanted else { continue };
            let mut behind = Behind { func, layouts: Vec::new(), loads: Vec::new() };
            let factor = func.ops[op].one(side);
            if behind.collect(factor, wanted).is_some() && behind.pays(factor, wanted) {
                for (value, layout) in behind.layouts {
                    asked.entry(value).or_insert(layout);
                }
            }
        }
    }
    asked
}

/// What is behind a factor.
struct Behind<'f> {
    func: &'f Func,
    /// Values that follow from loads, with the layouts that they would take.
    layouts: Vec<(Value, Layout)>,
    loads: Vec<Op>,
}

impl Behind<'_> {
    fn layout(&self, value: Value) -> Option<&Layout> {
        self.layouts.iter().find_map(|(known, layout)| (*known == value).then_some(layout))
    }

    /// Notes what a value in a layout is computed by, and says whether loads are behind it; `None` where the layout does not say how
    /// its operands lie.
    fn collect(&mut self, value: Value, layout: &Layout) -> Option<bool> {
        let func = self.func;
        if !has_layout(func, value) {
            return Some(false);
        }
        if let Some(known) = self.layout(value) {
            return (known == layout).then_some(true);
        }
        let op = func.defining_op(value)?;
        let data = &func.ops[op];
        let relation = Relation::of(func, op);
        let loaded = match (&data.kind, &relation) {
            (OpKind::Tile(TileOp::LoadShared {}) | OpKind::Schedule(ScheduleOp::LoadViewTko { .. }), _) => {
                self.loads.push(op);
                true
            }
            (_, Relation::Free) => false,
            (_, Relation::Same | Relation::Permute(_) | Relation::Reshape | Relation::Broadcast)
                if matches!(data.row().effects, Effects::Pure) =>
            {
                let mut loaded = false;
                for &operand in data.operands.iter().filter(|&&operand| has_layout(func, operand)) {
                    let wanted = relation.backward(func, operand, layout)?;
                    loaded |= self.collect(operand, &wanted)?;
                }
                loaded
            }
            _ => return None,
        };
        if loaded {
            self.layouts.push((value, layout.clone()));
        }
        Some(loaded)
    }

    /// The loads in these layouts take fewer accesses than loads as memory lies and an exchange of the factor, which is written once and read
    /// once.
    fn pays(&self, factor: Value, wanted: &Layout) -> bool {
        let bits = |value: Value| self.func.ty(value).as_tile().map_or(0, |tile| tile.elem.bits());
        let vectors = |registers: u64, value: Value| (registers * bits(value)).div_ceil(ACCESS_BITS);
        let (mut here, mut there) = (0, 0);
        for &load in &self.loads {
            let value = self.func.ops[load].results[0];
            let Some(layout) = self.layout(value) else { return false };
            here += self.accesses(load, layout);
            there += vectors(layout.elements().div_ceil(layout.threads()), value);
        }
        there += vectors(wanted.elements().div_ceil(wanted.threads()), factor) + vectors(wanted.registers(), factor);
        !self.loads.is_empty() && here < there
    }

    /// How often a thread accesses memory for a load in a layout.
    fn accesses(&self, load: Op, layout: &Layout) -> u64 {
        let Type::Shared(buffer) = self.func.ty(self.func.ops[load].one(0)) else { return layout.registers() };
        let lies = Arrangement::of(buffer);
        match lies.matrix_load(layout) {
            Some(access) => layout.registers() * lies.element_bytes() / (4 * access.matrices),
            None => layout.registers() >> lies.vector_bits(layout, ACCESS_BITS / 8).len(),
        }
    }
}
