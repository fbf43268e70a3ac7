//! The emulated device: memory, modules, launches.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tessera_driver::{DevicePtr, Dim3, Params, TensorMapError, TensorMapSpec};
use tessera_ptx::{Target, Variant};
use tessera_types::Device;

use crate::exec::Launch;

use crate::memory::{Heap, Owner};
use crate::module::Module;
use crate::node::{MOST_DEVICES, Node};
use crate::options::{EmuOptions, LaunchOptions, Schedule};
use crate::program::{Program, SHARED_START};
use crate::report::{EmuError, Report};
use crate::tensor_map::Walk;
use crate::texture::{Bound, Image, Sampler};

/// An emulated device.
pub struct Emulator {
    device: &'static Device,
    multiprocessors: u32,
    ordinal: u32,
    node: Arc<Node>,
}

impl Emulator {
    /// A device with empty memory.
    pub fn new(options: &EmuOptions) -> Result<Emulator, EmuError> {
        let device = Device::by_name(&options.device)
            .ok_or_else(|| EmuError::Launch(format!("no device named `{}` is known", options.device)))?;
        Ok(Emulator::of(device, options, 0, Arc::new(Node::new(1))))
    }

    /// Several devices of one kind in one address space, numbered from 0. A kernel reaches memory of another device after
    /// [`Emulator::let_in`].
    ///
    /// # Errors
    /// An unknown product's name, and numbers of devices that no node has.
    pub fn group(options: &EmuOptions, count: u32) -> Result<Vec<Emulator>, EmuError> {
        let first = Emulator::new(options)?;
        if !(1..=MOST_DEVICES).contains(&count) {
            return Err(EmuError::Launch(format!("a node has 1 to {MOST_DEVICES} devices, not {count}")));
        }
        let node = Arc::new(Node::new(count));
        Ok((0..count).map(|ordinal| Emulator::of(first.device, options, ordinal, Arc::clone(&node))).collect())
    }

    fn of(device: &'static Device, options: &EmuOptions, ordinal: u32, node: Arc<Node>) -> Emulator {
        Emulator { device, multiprocessors: options.multiprocessors.unwrap_or(device.sms).max(1), ordinal, node }
    }

    /// Its number among the devices of its address space.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Lets this device's kernels reach the memory of another one; false where they do already.
    pub fn let_in(&self, other: u32) -> bool {
        self.node.let_in(self.ordinal, other)
    }

    /// The product that is emulated.
    pub fn device(&self) -> &'static Device {
        self.device
    }

    /// Its multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn heap(&self) -> MutexGuard<'_, Heap> {
        self.node.heap()
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.heap().used(Owner::Device(self.ordinal))
    }

    /// Allocates memory; it holds zeros, but counts as not written.
    pub fn alloc(&self, bytes: u64) -> Result<DevicePtr, EmuError> {
        let (mut heap, owner) = (self.heap(), Owner::Device(self.ordinal));
        let room = self.device.dram_bytes.saturating_sub(heap.used(owner));
        let pointer = if bytes <= room { heap.alloc(bytes, owner) } else { None };
        pointer.map(DevicePtr).ok_or_else(|| EmuError::Memory(format!("no room for {bytes} bytes")))
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Allocates memory of the host that every device reaches.
    pub(crate) fn alloc_pinned(&self, bytes: u64) -> Result<DevicePtr, EmuError> {
        let pointer = self.heap().alloc(bytes, Owner::Host);
        pointer.map(DevicePtr).ok_or_else(|| EmuError::Memory(format!("no room for {bytes} bytes")))
    }

    /// The device whose memory an address lies in; `None` for the host's.
    pub(crate) fn owner(&self, pointer: DevicePtr) -> Option<u32> {
        let heap = self.heap();
        match heap.find(pointer.0, 0).and_then(|index| heap.get(index))?.owner {
            Owner::Device(ordinal) => Some(ordinal),
            Owner::Host => None,
        }
    }

    /// Frees memory of [`Emulator::alloc`].
    pub fn free(&self, pointer: DevicePtr) -> Result<(), EmuError> {
        if self.heap().free(pointer.0) { Ok(()) } else { Err(EmuError::Memory(format!("{pointer} is no allocation"))) }
    }

    /// The live allocation that an address lies in.
    pub fn range(&self, pointer: DevicePtr) -> Option<Range<u64>> {
        let heap = self.heap();
        let found = heap.find(pointer.0, 0).and_then(|index| heap.get(index))?;
        Some(found.base..found.base + found.size)
    }

    /// Copies bytes to the device.
    pub fn write(&self, to: DevicePtr, from: &[u8]) -> Result<(), EmuError> {
        if from.is_empty() {
            return Ok(());
        }
        let heap = self.heap();
        let found = heap.find(to.0, from.len() as u64).and_then(|index| heap.get(index));
        let found = found.ok_or_else(|| missing(&heap, to, from.len()))?;
        found.copy_in(to.0, from);
        found.mark(to.0, from.len() as u64);
        Ok(())
    }

    /// Copies bytes from the device.
    pub fn read(&self, from: DevicePtr, to: &mut [u8]) -> Result<(), EmuError> {
        if to.is_empty() {
            return Ok(());
        }
        let heap = self.heap();
        let found = heap.find(from.0, to.len() as u64).and_then(|index| heap.get(index));
        found.ok_or_else(|| missing(&heap, from, to.len()))?.copy_out(from.0, to);
        Ok(())
    }

    /// Counts bytes as never written, whatever they hold: a checked launch that reads them is told of.
    pub fn forget(&self, at: DevicePtr, bytes: u64) -> Result<(), EmuError> {
        let heap = self.heap();
        let found = heap.find(at.0, bytes).and_then(|index| heap.get(index));
        found.ok_or_else(|| missing(&heap, at, bytes as usize))?.forget(at.0, bytes);
        Ok(())
    }

    /// For each byte from an address on, whether it was written; `None` where a launch without [`Sanitize::uninitialized`]
    /// kept no count.
    ///
    /// [`Sanitize::uninitialized`]: crate::Sanitize::uninitialized
    pub fn written(&self, at: DevicePtr, bytes: u64) -> Result<Option<Vec<bool>>, EmuError> {
        let heap = self.heap();
        let found = heap.find(at.0, bytes).and_then(|index| heap.get(index));
        Ok(found.ok_or_else(|| missing(&heap, at, bytes as usize))?.written(at.0, bytes))
    }

    /// A tensor map's bytes, as kernels take them.
    ///
    /// # Errors
    /// The engine's limits.
    pub fn tensor_map(spec: &TensorMapSpec) -> Result<[u8; 128], TensorMapError> {
        spec.check()?;
        Ok(crate::tensor_map::encode(spec))
    }

    /// The same for a map that takes steps, or of the im2col mode, whose channels and pixels stand in place of the spec's tile.
    ///
    /// # Errors
    /// The engine's limits.
    pub fn tensor_map_walking(spec: &TensorMapSpec, walk: &Walk) -> Result<[u8; 128], EmuError> {
        let mut spec = spec.clone();
        if let Some(im2col) = &walk.im2col {
            spec.tile = vec![1; spec.extents.len()];
            spec.tile[0] = im2col.channels;
        }
        let refuse = |message: String| EmuError::Memory(message);
        spec.check().map_err(|error| refuse(error.to_string()))?;
        crate::tensor_map::check_walk(&spec, walk).map_err(refuse)?;
        Ok(crate::tensor_map::encode_walk(&spec, walk))
    }

    /// A handle by which kernels read an image: what they take as a texture object or find in a `.texref` variable.
    ///
    /// # Errors
    /// No such image can be, or it does not lie in memory.
    pub fn texture(&self, image: &Image, sampler: &Sampler) -> Result<u64, EmuError> {
        self.bind(image, Bound::Texture(image.clone(), sampler.clone()))
    }

    /// A handle by which kernels read and write an image: a surface object, or what a `.surfref` variable holds.
    ///
    /// # Errors
    /// As for [`Emulator::texture`].
    pub fn surface(&self, image: &Image) -> Result<u64, EmuError> {
        self.bind(image, Bound::Surface(image.clone()))
    }

    fn bind(&self, image: &Image, bound: Bound) -> Result<u64, EmuError> {
        image.check().map_err(EmuError::Memory)?;
        let mut heap = self.heap();
        if heap.find(image.address.0, image.bytes()).is_none() {
            return Err(missing(&heap, image.address, image.bytes() as usize));
        }
        Ok(heap.bind(bound))
    }

    /// A handle of a sampler by itself, for modules that name textures and samplers apart.
    pub fn sampler(&self, sampler: &Sampler) -> u64 {
        self.heap().bind(Bound::Sampler(sampler.clone()))
    }

    /// Parses a module and allocates its variables. Kernels are translated on first use.
    ///
    /// # Errors
    /// What cannot be read, a module for another chip, and variables for which there is no room.
    pub fn load(&self, text: &str) -> Result<Module, EmuError> {
        Module::load(self, text)
    }

    /// Whether the device runs what is made for a target: its own, and that of earlier chips unless they alone have it.
    pub(crate) fn runs(&self, target: Target) -> Result<(), EmuError> {
        let (major, minor) = self.device.arch.compute_capability();
        let chip = major * 10 + minor;
        let fits = match target.variant {
            Variant::Plain => target.sm <= chip,
            Variant::Architecture => target.sm == chip,
            Variant::Family => target.sm <= chip && target.sm / 10 == chip / 10,
        };
        if fits { Ok(()) } else { Err(EmuError::Target { target, device: self.device.name, chip }) }
    }

    /// Frees a module's variables.
    pub fn unload(&self, module: &Module) {
        let mut heap = self.heap();
        for at in module.addresses() {
            heap.free(at);
        }
    }

    /// Memory that counts as written, whatever it holds.
    pub(crate) fn assume_written(&self, at: DevicePtr) {
        let heap = self.heap();
        if let Some(found) = heap.find(at.0, 0).and_then(|index| heap.get(index)) {
            found.assume_written();
        }
    }

    /// Blocks of a kernel that fit one multiprocessor.
    pub(crate) fn occupancy(&self, program: &Program, threads: u32, shared_bytes: u32) -> u32 {
        let limits = self.device.arch.limits();
        let warps = threads.div_ceil(32).max(1);
        let registers = program.registers(limits.registers_per_sm).next_multiple_of(8) * 32 * warps;
        let shared = program.static_shared + shared_bytes + limits.shared_reserved_per_block;
        let by_shared = limits.shared_per_sm.checked_div(shared).unwrap_or(limits.blocks_per_sm);
        limits.blocks_per_sm.min(limits.warps_per_sm / warps).min(limits.registers_per_sm / registers.max(1)).min(by_shared)
    }

    /// Runs a kernel to its end.
    pub fn launch(
        &self,
        module: &Module,
        kernel: &str,
        grid: Dim3,
        block: Dim3,
        args: &Params,
        options: &LaunchOptions,
    ) -> Result<Report, EmuError> {
        let heap = self.heap().clone();
        let launch = self.prepare(&heap, module, kernel, (grid, block), args, options)?;
        let resident = self.resident(&launch);
        let run = launch.begin();
        let result = match options.schedule {
            Schedule::Systematic => crate::explore::run(launch, resident),
            Schedule::Eager | Schedule::Lazy | Schedule::Random => crate::launch::run(&launch, resident),
        };
        self.node.end(run);
        if !options.sanitize.uninitialized {
            heap.assume_written();
        }
        result
    }

    /// Clusters of a launch that the device holds at once.
    pub(crate) fn resident(&self, launch: &Launch<'_>) -> u64 {
        let blocks = self.occupancy(launch.program, launch.block.count() as u32, launch.shared_bytes).max(1);
        (u64::from(blocks) * u64::from(self.multiprocessors) / launch.cluster.count()).max(1)
    }

    /// A launch that was checked and has not begun.
    pub(crate) fn prepare<'a>(
        &self,
        heap: &'a Heap,
        module: &'a Module,
        kernel: &str,
        (grid, block): (Dim3, Dim3),
        args: &Params,
        options: &'a LaunchOptions,
    ) -> Result<Launch<'a>, EmuError> {
        let program = module.program(kernel)?;
        let cluster = self.check(program, grid, block, args, options)?;
        let mut params = vec![0; program.param_bytes as usize];
        let ends = args.offsets().iter().skip(1).copied().chain([args.bytes().len()]);
        for ((param, &start), end) in program.params.iter().zip(args.offsets()).zip(ends) {
            let bytes = &args.bytes()[start..end.min(start + param.bytes as usize)];
            params[param.offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        Ok(Launch {
            program,
            heap,
            params,
            grid,
            block,
            cluster,
            shared_bytes: options.shared_bytes,
            multiprocessors: self.multiprocessors,
            device: self.ordinal,
            reach: self.node.reach(self.ordinal),
            shared: self.node.is_shared(),
            run: OnceLock::new(),
            options,
            files: module.files(),
            shadow: self.node.shadow(),
            output: Mutex::new(BTreeMap::new()),
            trace: Mutex::default(),
        })
    }

    fn check(
        &self,
        program: &Program,
        grid: Dim3,
        block: Dim3,
        args: &Params,
        options: &LaunchOptions,
    ) -> Result<Dim3, EmuError> {
        let refuse = |message: String| Err(EmuError::Launch(format!("kernel `{}`: {message}", program.name)));
        let limits = self.device.arch.limits();
        if grid.count() == 0 || block.count() == 0 {
            return refuse(format!("a grid of {grid:?} blocks of {block:?} threads cannot be launched"));
        }
        let [x, y, z] = Dim3::MOST_BLOCKS;
        if grid.x > x || grid.y > y || grid.z > z {
            return refuse(format!("a grid of {grid:?} blocks: at most {x} along x, {y} along y and {z} along z are possible"));
        }
        if block.count() > u64::from(limits.threads_per_block) || block.z > 64 {
            return refuse(format!("{} threads a block: at most {} are possible", block.count(), limits.threads_per_block));
        }
        if let Some(required) = program.required_threads
            && required != [block.x, block.y, block.z]
        {
            return refuse(format!("it requires blocks of {required:?} threads"));
        }
        if let Some([x, y, z]) = program.max_threads
            && block.count() > u64::from(x) * u64::from(y) * u64::from(z)
        {
            return refuse(format!("it was made for at most {} threads a block", x * y * z));
        }
        let shared = program.dynamic_start - SHARED_START + options.shared_bytes;
        if shared > limits.shared_per_block {
            return refuse(format!("{shared} bytes of shared memory: a block has at most {}", limits.shared_per_block));
        }
        if args.offsets().len() != program.params.len() {
            return refuse(format!("{} arguments for {} parameters", args.offsets().len(), program.params.len()));
        }
        let cluster = match (program.cluster, options.cluster) {
            (Some([x, y, z]), _) => Dim3::new(x, y, z),
            (None, Some(cluster)) => cluster,
            (None, None) => Dim3::ONE,
        };
        let divides = |grid: u32, part: u32| part != 0 && grid.is_multiple_of(part);
        if !divides(grid.x, cluster.x) || !divides(grid.y, cluster.y) || !divides(grid.z, cluster.z) || cluster.count() > 16 {
            return refuse(format!("the grid {grid:?} cannot be cut into clusters of {cluster:?}"));
        }
        Ok(cluster)
    }
}

impl Program {
    /// Registers that a thread starts with, where the kernel's limits fix them: what `setmaxnreg` counts from.
    pub(crate) fn launch_registers(&self) -> Option<u32> {
        let [x, y, z] = self.required_threads.or(self.max_threads)?;
        let blocks = self.min_blocks?;
        self.max_registers.or_else(|| Some((65536 / (x * y * z * blocks).max(1) / 8 * 8).min(255)))
    }

    /// Registers a thread, as far as the emulator knows: what the kernel's limits allow, or an estimate.
    pub(crate) fn registers(&self, per_multiprocessor: u32) -> u32 {
        let mut registers = self.register_estimate;
        if let Some(most) = self.max_registers {
            registers = registers.min(most);
        }
        let threads = self.required_threads.or(self.max_threads).map(|[x, y, z]| x * y * z);
        if let (Some(threads), blocks) = (threads, self.min_blocks.unwrap_or(1)) {
            registers = registers.min(per_multiprocessor / (threads * blocks).max(1) / 8 * 8);
        }
        registers.clamp(8, 255)
    }
}

fn missing(heap: &Heap, at: DevicePtr, bytes: usize) -> EmuError {
    EmuError::Memory(format!("{bytes} bytes at {at}: {}", heap.describe(at.0)))
}
