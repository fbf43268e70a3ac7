//! Inputs of a plan in the host's memory, and what its reference makes of them: where mathematics is looked at and no kernel.

use std::sync::Arc;

use tessera_ops::{Expected, Inputs, Plan, Role, TensorSpec};
use tessera_runtime::RandomStream;
use tessera_types::DType;

use crate::case::Fault;
use crate::library::filled;
use crate::status::Status;

/// What a plan's tensors hold, as numbers of 64 bits whatever their types are.
pub(crate) struct Values {
    pub(crate) tensors: Vec<Arc<Vec<f64>>>,
    dtypes: Vec<DType>,
}

impl Values {
    /// These, in the places of a plan's tensors.
    pub(crate) fn of(plan: &Plan, tensors: Vec<Arc<Vec<f64>>>) -> Values {
        Values { tensors, dtypes: plan.tensors.iter().map(|spec| spec.dtype).collect() }
    }

    /// Inputs as the plan says, floats with all of 64 bits, or rounded as they are stored.
    pub(crate) fn drawn(plan: &Plan, seed: u64, stored: bool) -> Result<Values, Fault> {
        let drawn = |spec: &TensorSpec| -> Result<Arc<Vec<f64>>, Fault> {
            if spec.role != Role::Input && spec.role != Role::InOut {
                return Ok(Arc::default());
            }
            let dtype = if spec.dtype.is_float() && !stored { DType::F64 } else { spec.dtype };
            let tensor = filled(RandomStream::named(seed, spec.name), dtype, spec.len(), spec.fill);
            let numbers = tensor.and_then(|tensor| tensor.to_f64());
            Ok(Arc::new(numbers.map_err(|error| Fault::new(Status::HarnessError, error.to_string()))?))
        };
        Ok(Values::of(plan, plan.tensors.iter().map(drawn).collect::<Result<_, _>>()?))
    }

    /// What the reference gives.
    pub(crate) fn results(&self, plan: &Plan) -> Vec<Arc<Vec<f64>>> {
        let of = |at: usize| if plan.outputs[at].exact { self.exact(plan, at) } else { self.expected(plan, at).0 };
        (0..plan.outputs.len()).map(|at| Arc::new(of(at))).collect()
    }

    /// A result that is exact: integers, or floats that are moved as they are.
    fn exact(&self, plan: &Plan, at: usize) -> Vec<f64> {
        let output = &plan.outputs[at];
        let dtype = plan.tensors[output.tensor].dtype;
        let mut codes = vec![0; output.rows * output.row_len];
        plan.reference.rows(self, at, 0..output.rows, Expected::Codes(&mut codes));
        let unused = 64 - dtype.bits();
        let number = |code: u64| match dtype.is_float() {
            true => f64::from_bits(code),
            false => ((code << unused) as i64 >> unused) as f64,
        };
        codes.into_iter().map(number).collect()
    }

    /// One result and its bounds; nothing where it is no float.
    pub(crate) fn expected(&self, plan: &Plan, at: usize) -> (Vec<f64>, Vec<f64>) {
        let output = &plan.outputs[at];
        let len = match output.exact || !plan.tensors[output.tensor].dtype.is_float() {
            true => 0,
            false => output.rows * output.row_len,
        };
        let (mut want, mut bound) = (vec![0.0; len], vec![0.0; len]);
        if len > 0 {
            plan.reference.rows(self, at, 0..output.rows, Expected::Bounded { want: &mut want, bound: &mut bound });
        }
        (want, bound)
    }
}

impl Inputs for Values {
    fn numbers(&self, tensor: usize, start: usize, out: &mut [f64]) {
        out.copy_from_slice(&self.tensors[tensor][start..start + out.len()]);
    }

    fn codes(&self, tensor: usize, start: usize, out: &mut [u64]) {
        let dtype = self.dtypes[tensor];
        let code = |value: f64| match dtype.is_float() {
            // References of what has a gradient calculate, and do not look at bits.
            true => value.to_bits(),
            false => value as i64 as u64 & (u64::MAX >> (64 - dtype.bits())),
        };
        out.iter_mut().zip(&self.tensors[tensor][start..]).for_each(|(out, value)| *out = code(*value));
    }
}
