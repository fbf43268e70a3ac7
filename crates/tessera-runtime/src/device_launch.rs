//! A launch on a device with its tensors: what keeps their memory alive, and knows which of them hold nothing yet.

use std::time::Duration;

use tessera_driver::{DriverError, Stream, StreamHandle};
use tessera_ir::Assertion;
use tessera_launch::{DeviceKernel, Flat, Interface, LaunchGrid, Timeline};

use crate::device::Device;
use crate::error::DeviceError;
use crate::layout::storage_bits;
use crate::tensor::Tensor;
use crate::unwritten::Unwritten;
use crate::value::{Value, arguments};

/// A kernel with packed arguments.
#[derive(Debug)]
pub struct DeviceLaunch {
    packed: tessera_launch::DeviceLaunch,
    /// Arguments by name, with whether each may be written; they keep their memory alive.
    tensors: Vec<(String, Tensor, bool)>,
}

impl DeviceLaunch {
    /// Checks arguments, packs them, encodes tensor maps and takes workspace: what is left is to launch. `written` says of
    /// each parameter of the kernel whether it may be written.
    ///
    /// # Errors
    /// Arguments or a grid that the kernel does not take; what the device has not.
    pub fn prepare(
        kernel: &DeviceKernel,
        args: &[(&str, Value)],
        written: &[bool],
        grid: [u32; 3],
    ) -> Result<DeviceLaunch, DeviceError> {
        let abi = kernel.image().abi.clone();
        let interface = Interface { abi, written: written.to_vec(), ..Interface::default() };
        let args = arguments(args);
        let flat = interface.check(&[], &args).map_err(DeviceError::without_text)?;
        let grid = interface.blocks(&kernel.image().entry, LaunchGrid::Blocks(grid), &args);
        DeviceLaunch::new(kernel.clone(), &interface, &flat, grid.map_err(|found| DeviceError::without_text(vec![*found]))?)
    }

    /// The same with arguments that were checked.
    pub(crate) fn new(
        kernel: DeviceKernel,
        interface: &Interface,
        flat: &[Flat<Tensor>],
        grid: [u32; 3],
    ) -> Result<DeviceLaunch, DeviceError> {
        let counts = interface.abi.params.iter().map(|param| param.kind.argument_count());
        let owners = counts.enumerate().flat_map(|(position, count)| std::iter::repeat_n(position, count));
        let mut tensors = Vec::new();
        for (flat, owner) in flat.iter().zip(owners) {
            let name = &interface.abi.params[owner].name;
            let written = interface.written.get(owner).copied().unwrap_or(true);
            match flat {
                Flat::Array(tensor) => tensors.push((name.clone(), tensor.clone(), written)),
                Flat::Table(items) => {
                    let items = items.iter().enumerate();
                    tensors.extend(items.map(|(position, item)| (format!("{name}[{position}]"), item.clone(), written)));
                }
                Flat::Word(_) => {}
            }
        }
        for (name, tensor, _) in &tensors {
            match tensor.device() {
                Device::Driver(place) if place.is(kernel.device()) => {}
                place => {
                    let (argument, device) = (name.clone(), kernel.device().name().to_owned());
                    return Err(DeviceError::Elsewhere { argument, place: place.to_string(), device });
                }
            }
        }
        Ok(DeviceLaunch { packed: tessera_launch::DeviceLaunch::new(kernel, flat, grid)?, tensors })
    }

    /// The kernel.
    pub fn kernel(&self) -> &DeviceKernel {
        self.packed.kernel()
    }

    /// Blocks as they are launched.
    pub fn grid(&self) -> tessera_driver::Dim3 {
        self.packed.grid()
    }

    /// The parameters as the kernel reads them.
    pub fn params(&self) -> &tessera_driver::Params {
        self.packed.params()
    }

    /// Names of the arguments that the kernel may write; `xs[1]` is an item of a list.
    pub fn written(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().filter(|(.., written)| *written).map(|(name, ..)| name.as_str())
    }

    /// The assertion that stopped the kernel, and in which block; to be asked when a launch has faulted.
    pub fn failed_assertion(&self) -> Option<(&Assertion, [u32; 3])> {
        self.packed.failed_assertion()
    }

    /// The times at which the kernel came to its marks, once it has run; `None` where it records none.
    pub fn timeline(&self) -> Result<Option<Timeline>, DriverError> {
        self.packed.timeline()
    }

    /// Positions of arguments that hold nothing yet: to be asked before a launch, for [`DeviceLaunch::unwritten`].
    pub fn poisoned(&self) -> Vec<usize> {
        (0..self.tensors.len()).filter(|&position| self.tensors[position].1.is_poisoned()).collect()
    }

    /// Of arguments that held nothing, those that were not written whole; `None` where the driver keeps no count.
    pub fn unwritten(&self, held_nothing: &[usize]) -> Result<Option<Vec<Unwritten>>, DriverError> {
        let mut found = Vec::new();
        for (name, tensor, _) in held_nothing.iter().map(|&position| &self.tensors[position]) {
            let Some((_, buffer)) = tensor.memory.device() else { continue };
            let is_counted = storage_bits(tensor.dtype()) >= 8;
            let Some(written) = buffer.written()?.filter(|_| is_counted) else { return Ok(None) };
            found.extend(Unwritten::by_bytes(name, tensor, |byte| written[byte]));
        }
        let table = self.kernel().device().context().table()?;
        Ok(table.mem_written.is_some().then_some(found))
    }

    /// Queues it on the device's stream.
    pub fn enqueue(&self) -> Result<(), DriverError> {
        self.packed.enqueue().inspect(|()| self.was_queued())
    }

    /// Queues it on another stream of the same context. What else uses its memory is the caller's to order.
    pub fn enqueue_on(&self, stream: &Stream) -> Result<(), DriverError> {
        self.packed.enqueue_on(stream.handle()).inspect(|()| self.was_queued())
    }

    /// The same on a stream that is somebody else's.
    pub fn enqueue_in(&self, stream: StreamHandle) -> Result<(), DriverError> {
        self.packed.enqueue_on(stream).inspect(|()| self.was_queued())
    }

    /// Whether it has memory of its own, which is made and freed in the order of the device's stream.
    pub fn owns_memory(&self) -> bool {
        self.packed.owns_memory()
    }

    /// Queues it and waits until everything on the device's stream is done.
    pub fn run(&self) -> Result<(), DriverError> {
        self.run_within(None).map(|_| ())
    }

    /// The same, but waits for no longer than so; false where the kernel has not ended by then and is left running.
    pub fn run_within(&self, limit: Option<Duration>) -> Result<bool, DriverError> {
        let done = self.packed.run_within(limit);
        self.was_queued();
        done
    }

    /// What may be written counts as written; a launch of no blocks writes nothing.
    fn was_queued(&self) {
        if self.grid().count() == 0 {
            return;
        }
        for (_, tensor, written) in &self.tensors {
            if *written && tensor.is_poisoned() {
                tensor.memory.set_poisoned(false);
            }
        }
    }
}
