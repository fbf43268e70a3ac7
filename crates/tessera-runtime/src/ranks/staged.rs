//! Ranks on devices that exchange by way of the CPU: for what no kernel does, where there is no NCCL, as on emulated devices.

use tessera_driver::StreamHandle;

use crate::device::{Device, DriverDevice};
use crate::error::TensorError;
use crate::ranks::call::{Call, Operation};
use crate::ranks::communicator::{Communicator, Pending};
use crate::ranks::error::ExchangeError;
use crate::tensor::Tensor;

/// One rank's end: another one on the CPU, to which tensors of a device are copied and from which results come back. A call is done on return.
pub(super) struct Staged {
    inner: Box<dyn Communicator>,
    own: DriverDevice,
    device: Device,
}

impl Staged {
    /// Over an end on the CPU.
    pub(super) fn new(inner: Box<dyn Communicator>, device: &DriverDevice) -> Staged {
        Staged { inner, own: device.clone(), device: Device::Driver(device.clone()) }
    }
}

/// A call with tensors on the CPU. Of its result the root of a broadcast alone reads what is there.
fn on_cpu(call: &Call) -> Result<Call, TensorError> {
    let copied = |tensor: &Tensor| tensor.to_device(&Device::Cpu);
    let room = |tensor: &Tensor| Tensor::unwritten_on(tensor.dtype(), tensor.shape(), &Device::Cpu);
    let is_root = matches!(call.operation, Operation::Broadcast { root } if call.group.rank() == root);
    let result = call.result.as_ref().map(|tensor| if is_root { copied(tensor) } else { room(tensor) });
    Ok(Call { source: call.source.as_ref().map(copied).transpose()?, result: result.transpose()?, ..call.clone() })
}

impl Communicator for Staged {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn ranks(&self) -> usize {
        self.inner.ranks()
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn start(&mut self, calls: &[Call], stream: Option<StreamHandle>) -> Result<Pending, ExchangeError> {
        let context = self.own.context();
        let stream = stream.unwrap_or_else(|| self.own.stream().handle());
        context.table().and_then(|table| table.stream_synchronize(stream)).map_err(TensorError::from)?;
        let staged = calls.iter().map(on_cpu).collect::<Result<Vec<Call>, _>>()?;
        self.inner.start(&staged, None)?.wait()?;
        for (call, staged) in calls.iter().zip(&staged) {
            if let (Some(result), Some(made)) = (&call.result, &staged.result) {
                result.copy_from(made)?;
                result.memory.set_poisoned(false);
            }
        }
        Ok(Pending::done())
    }

    fn abort(&mut self, reason: &str) {
        self.inner.abort(reason);
    }
}
