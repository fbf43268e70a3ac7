//! A launch on a device that passed every check: queued as often as it is asked to.
//!
//! Everything is packed when the launch is made. Queuing it is one call of the driver's table with parameters that lie ready;
//! its arguments, tables and workspace live as long as it does. Memory on a device is ordered by the device's stream, which
//! copies use too: a tensor read after a launch has what the launch wrote.

use std::sync::Arc;
use std::time::Duration;

use tessera_driver::{Dim3, DriverError, LaunchSpec, Params, PinnedBuffer, StreamHandle};
use tessera_ir::{Assertion, HiddenParam, IndexType, ParamKind, TensorMapPlan, TimelinePlan};
use tessera_types::DType;

use crate::argument::Flat;
use crate::array::Placed;
use crate::device_kernel::DeviceKernel;
use crate::error::{DeviceError, MemoryError};
use crate::pool::Pooled;
use crate::tensor_map::tensor_map;
use crate::timeline::Timeline;

/// A kernel with packed arguments.
#[derive(Debug)]
pub struct DeviceLaunch {
    kernel: DeviceKernel,
    name: Arc<str>,
    params: Params,
    /// Positions of tensor maps among the parameters.
    maps: Vec<(usize, TensorMapPlan)>,
    grid: Dim3,
    block: Dim3,
    cluster: Option<Dim3>,
    /// Tables of lists, workspace.
    own: Vec<Pooled>,
    /// Where a failed assertion is noted.
    assertions: Option<(PinnedBuffer, Vec<Assertion>)>,
    /// Where times are recorded.
    timeline: Option<(Pooled, TimelinePlan)>,
}

fn dim([x, y, z]: [u32; 3]) -> Dim3 {
    Dim3::new(x, y, z)
}

impl DeviceLaunch {
    /// Packs checked arguments, encodes tensor maps and takes workspace: what is left is to launch. Whoever asks keeps the memory of
    /// the arrays alive.
    ///
    /// # Errors
    /// A grid that cannot be launched, memory that cannot be had, arrays that no tensor map can be over.
    pub fn new<A: Placed>(kernel: DeviceKernel, flat: &[Flat<A>], asked: [u32; 3]) -> Result<DeviceLaunch, DeviceError> {
        let image = kernel.image();
        let facts = &image.launch;
        let multiprocessors = kernel.device().properties().multiprocessors;
        let (grid, threads) = facts.physical(asked, multiprocessors).ok_or_else(|| {
            DriverError::Argument(format!("the grid {asked:?} of `{}` is beyond what can be launched", image.entry))
        })?;
        let mut packer = Packer {
            kernel: &kernel,
            params: Params::new(),
            arrays: Vec::new(),
            maps: Vec::new(),
            own: Vec::new(),
            assertions: None,
            timeline: None,
        };
        packer.arguments(flat)?;
        for hidden in &image.hidden {
            packer.hidden(hidden, asked, grid)?;
        }
        let Packer { params, maps, own, assertions, timeline, .. } = packer;
        let (name, block, cluster) = (Arc::from(image.entry.as_str()), dim(threads), facts.cluster.map(dim));
        Ok(DeviceLaunch { name, params, maps, grid: dim(grid), block, cluster, own, assertions, timeline, kernel })
    }

    /// The kernel.
    pub fn kernel(&self) -> &DeviceKernel {
        &self.kernel
    }

    /// Blocks as they are launched.
    pub fn grid(&self) -> Dim3 {
        self.grid
    }

    /// The parameters as the kernel reads them.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The assertion that stopped the kernel, and in which block; to be asked when a launch has faulted.
    pub fn failed_assertion(&self) -> Option<(&Assertion, [u32; 3])> {
        let (record, assertions) = self.assertions.as_ref()?;
        let mut words = [[0; 4]; 4];
        for (position, word) in words.iter_mut().enumerate() {
            record.read(4 * position as u64, word).ok()?;
        }
        let [number, x, y, z] = words.map(u32::from_le_bytes);
        Some((assertions.get(number.checked_sub(1)? as usize)?, [x, y, z]))
    }

    /// The times at which the kernel came to its marks, once it has run; `None` where it records none.
    pub fn timeline(&self) -> Result<Option<Timeline>, DriverError> {
        let Some((memory, plan)) = &self.timeline else { return Ok(None) };
        let blocks: u64 = [self.grid.x, self.grid.y, self.grid.z].into_iter().map(u64::from).product();
        let mut bytes = vec![0; plan.bytes(blocks) as usize];
        let device = self.kernel.device();
        memory.read(0, &mut bytes, device.stream())?;
        device.synchronize()?;
        let words =
            bytes.chunks_exact(8).map(|word| word.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte))).collect();
        Ok(Some(Timeline { kernel: self.name.to_string(), plan: plan.clone(), blocks, words }))
    }

    /// Positions of tensor maps among the parameters.
    pub(crate) fn maps(&self) -> &[(usize, TensorMapPlan)] {
        &self.maps
    }

    /// Whether it holds memory of its own, which must stay until the launch is done.
    pub fn owns_memory(&self) -> bool {
        !self.own.is_empty() || self.assertions.is_some() || self.timeline.is_some()
    }

    /// Queues it on the device's stream.
    pub fn enqueue(&self) -> Result<(), DriverError> {
        self.enqueue_on(self.kernel.device().stream().handle())
    }

    /// Queues it on another stream of the same context. What else uses its memory is the caller's to order.
    pub fn enqueue_on(&self, stream: StreamHandle) -> Result<(), DriverError> {
        self.enqueue_with(stream, &self.params)
    }

    /// The same with parameters in place of its own.
    pub(crate) fn enqueue_with(&self, stream: StreamHandle, params: &Params) -> Result<(), DriverError> {
        // No driver takes a grid without blocks.
        if self.grid.count() == 0 {
            return Ok(());
        }
        let facts = &self.kernel.image().launch;
        self.kernel.device().queued(&self.name);
        self.kernel.function().launch_spec(&LaunchSpec {
            function: self.kernel.function().handle(),
            grid: self.grid,
            block: self.block,
            cluster: self.cluster,
            shared_bytes: facts.shared_bytes,
            overlaps_predecessor: facts.overlaps_predecessor,
            stream,
            params,
        })
    }

    /// Queues it and waits until everything on the device's stream is done.
    pub fn run(&self) -> Result<(), DriverError> {
        self.run_within(None).map(|_| ())
    }

    /// The same, but waits for no longer than so; false where the kernel has not ended by then and is left running.
    pub fn run_within(&self, limit: Option<Duration>) -> Result<bool, DriverError> {
        // A profiler shows the launch as a range of the kernel's name.
        let _range = self.kernel.device().range(&self.name);
        self.enqueue().and_then(|()| self.kernel.device().wait_at_most(limit))
    }
}

/// Bytes of a number among the parameters.
pub(crate) fn scalar_bytes(dtype: DType) -> usize {
    (dtype.bits() as usize).div_ceil(8)
}

/// Parameters under construction.
struct Packer<'a, A> {
    kernel: &'a DeviceKernel,
    params: Params,
    /// The array of each parameter of the interface, where it is one.
    arrays: Vec<Option<A>>,
    maps: Vec<(usize, TensorMapPlan)>,
    own: Vec<Pooled>,
    assertions: Option<(PinnedBuffer, Vec<Assertion>)>,
    timeline: Option<(Pooled, TimelinePlan)>,
}

impl<A: Placed> Packer<'_, A> {
    fn memory(&self, error: MemoryError) -> DeviceError {
        DeviceError::Memory { kernel: self.kernel.image().entry.clone(), error: Box::new(error) }
    }

    fn push(&mut self, bytes: &[u8]) {
        let params = std::mem::take(&mut self.params);
        self.params = params.aligned(bytes, bytes.len());
    }

    fn index(&mut self, value: u64, index: IndexType) {
        match index {
            IndexType::I32 => self.push(&(value as u32).to_le_bytes()),
            IndexType::I64 => self.push(&value.to_le_bytes()),
        }
    }

    /// Memory of the launch's own with the given contents.
    fn own(&mut self, contents: &[u8]) -> Result<u64, DeviceError> {
        let device = self.kernel.device();
        let memory = device.allocate(contents.len() as u64).map_err(|error| self.memory(error))?;
        memory.write(0, contents, device.stream())?;
        let address = memory.pointer().0;
        self.own.push(memory);
        Ok(address)
    }

    fn arguments(&mut self, flat: &[Flat<A>]) -> Result<(), DeviceError> {
        let kernel = self.kernel;
        let mut rest = flat.iter();
        for param in &kernel.image().abi.params {
            let mut array = None;
            for _ in 0..param.kind.argument_count() {
                match rest.next() {
                    Some(Flat::Array(tensor)) => {
                        self.push(&tensor.start().to_le_bytes());
                        array = Some(tensor.clone());
                    }
                    Some(Flat::Table(items)) => {
                        let mut table = Vec::new();
                        for item in items {
                            table.extend_from_slice(&item.start().to_le_bytes());
                            let extents = item.sizes().iter().chain(item.steps());
                            extents.for_each(|&extent| table.extend_from_slice(&(extent as u64).to_le_bytes()));
                        }
                        let address = self.own(&table)?;
                        self.push(&address.to_le_bytes());
                    }
                    Some(&Flat::Word(bits)) => match &param.kind {
                        ParamKind::Array { index, .. } | ParamKind::List { index, .. } => self.index(bits, *index),
                        ParamKind::Scalar { dtype } => {
                            self.push(&bits.to_le_bytes()[..scalar_bytes(*dtype)]);
                        }
                        ParamKind::Operand { .. } => self.push(&bits.to_le_bytes()),
                    },
                    None => {}
                }
            }
            self.arrays.push(array);
        }
        Ok(())
    }

    fn hidden(&mut self, hidden: &HiddenParam, asked: [u32; 3], grid: [u32; 3]) -> Result<(), DeviceError> {
        match hidden {
            HiddenParam::Grid => asked.iter().for_each(|blocks| self.push(&blocks.to_le_bytes())),
            HiddenParam::Workspace { bytes, bytes_per_block } => {
                let blocks: u64 = grid.iter().map(|&n| u64::from(n)).product();
                let bytes = bytes_per_block.saturating_mul(blocks).saturating_add(*bytes);
                let device = self.kernel.device();
                let memory = device.allocate(bytes).map_err(|error| self.memory(error))?;
                memory.fill(0, device.stream())?;
                let address = memory.pointer().0;
                self.own.push(memory);
                self.push(&address.to_le_bytes());
            }
            HiddenParam::Assertions(list) => {
                let record = self.kernel.device().context().pinned(16)?;
                self.push(&record.on_device().0.to_le_bytes());
                self.assertions = Some((record, list.clone()));
            }
            HiddenParam::Timeline(plan) => {
                let blocks: u64 = grid.iter().map(|&n| u64::from(n)).product();
                let device = self.kernel.device();
                let memory = device.allocate(plan.bytes(blocks).max(8)).map_err(|error| self.memory(error))?;
                memory.fill(0, device.stream())?;
                self.push(&memory.pointer().0.to_le_bytes());
                self.timeline = Some((memory, plan.clone()));
            }
            HiddenParam::TensorMap(plan) => {
                let kernel = self.kernel;
                let array = self.arrays.get(plan.param).cloned().flatten();
                let map = tensor_map(kernel, plan, array.as_ref(), |stand_in| self.own(stand_in))?;
                self.maps.push((self.params.offsets().len(), plan.clone()));
                self.params = std::mem::take(&mut self.params).tensor_map(&map);
            }
        }
        Ok(())
    }
}
