//! Tensor maps: what the copy engine is told of an argument.

use tessera_driver::{DevicePtr, DriverError, TensorMap, TensorMapSpec};
use tessera_ir::TensorMapPlan;
use tessera_types::{FloatFormat, OutOfBounds};

use crate::array::Placed;
use crate::device_kernel::DeviceKernel;
use crate::error::DeviceError;
use crate::layout::storage_bits;

/// The map of a plan over its array. The engine knows no array without elements: in place of one `stand_in` puts an element somewhere, the
/// one that it yields outside.
///
/// # Errors
/// Arrays that no map can be over; what `stand_in` says.
pub(crate) fn tensor_map<A: Placed>(
    kernel: &DeviceKernel,
    plan: &TensorMapPlan,
    array: Option<&A>,
    stand_in: impl FnOnce(&[u8]) -> Result<u64, DeviceError>,
) -> Result<TensorMap, DeviceError> {
    let image = kernel.image();
    let name = image.abi.params.get(plan.param).map_or("?", |param| param.name.as_str());
    let wrong = |why: String| DriverError::Argument(format!("no tensor map over `{name}` of `{}`: {why}", image.entry));
    let Some(array) = array else {
        return Err(wrong("it is no array".into()).into());
    };
    if plan.axes.iter().any(|&axis| axis >= array.sizes().len()) || plan.axes.is_empty() {
        return Err(wrong(format!("axes {:?} of an array of rank {}", plan.axes, array.sizes().len())).into());
    }
    let bytes = storage_bits(array.dtype()) as u64 / 8;
    if array.sizes()[plan.axes[0]] > 1 && array.steps()[plan.axes[0]] != 1 {
        return Err(wrong(format!("its axis {} has a stride of {}", plan.axes[0], array.steps()[plan.axes[0]])).into());
    }
    let (mut address, mut shape) = (array.start(), array.sizes().to_vec());
    if array.has_none() {
        let outside = match (plan.outside, FloatFormat::of(array.dtype())) {
            (OutOfBounds::Nan, Some(format)) => format.nan_code().unwrap_or(0),
            _ => 0,
        };
        address = stand_in(&[outside.to_le_bytes(), [0; 8]].concat())?;
        shape.fill(1);
    }
    // An axis of one element is never stepped along: any legal stride will do.
    let stride = |axis: usize| match shape[axis] {
        1 => 16,
        _ => array.steps()[axis] as u64 * bytes,
    };
    let spec = TensorMapSpec {
        dtype: plan.dtype.unwrap_or(array.dtype()),
        address: DevicePtr(address),
        extents: plan.axes.iter().map(|&axis| shape[axis] as u64).collect(),
        strides: plan.axes[1..].iter().map(|&axis| stride(axis)).collect(),
        tile: plan.tile.clone(),
        swizzle: plan.swizzle,
        l2: plan.l2,
        outside: plan.outside,
    };
    spec.check().map_err(|error| wrong(error.to_string()))?;
    Ok(kernel.device().context().tensor_map(&spec)?)
}
