//! Kernels on a device: from a compiled image to something that can be launched.
//!
//! [`DeviceKernel::load`] finds the machine code (in this process, on disk, or by assembling it) and refuses a kernel that the
//! device cannot hold.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tessera_driver::{DeviceAttribute, FunctionAttribute};
use tessera_ir::{ImageCode, KernelImage};

use crate::device::DriverDevice;
use crate::error::DeviceError;
use crate::module_cache::{ModuleCache, ModuleKey};

/// What a kernel takes of a multiprocessor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelResources {
    /// Registers a thread.
    pub registers: u32,
    /// Bytes of local memory a thread: stack and spills.
    pub local_bytes: u32,
    /// Bytes of shared memory a block, declared and dynamic.
    pub shared_bytes: u32,
    /// Threads a block may have with so many registers.
    pub max_threads: u32,
}

/// Where a kernel's machine code was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOrigin {
    /// Loaded earlier by this process.
    Loaded,
    /// On disk.
    Disk,
    /// Assembled now.
    Assembled,
    /// It came as machine code.
    Given,
}

/// A kernel loaded into a device.
#[derive(Clone, Debug)]
pub struct DeviceKernel {
    device: DriverDevice,
    image: Arc<KernelImage>,
    function: tessera_driver::Kernel,
    resources: KernelResources,
    origin: CodeOrigin,
    load_time: Duration,
}

impl DeviceKernel {
    /// Loads an image; PTX is assembled unless the process or the cache has it already.
    ///
    /// # Errors
    /// What the driver refuses, and a kernel that needs more than the device has.
    pub fn load(device: &DriverDevice, image: Arc<KernelImage>, cache: &ModuleCache) -> Result<DeviceKernel, DeviceError> {
        let start = Instant::now();
        let (module, origin) = module(device, &image, cache)?;
        let function = module.kernel(&image.entry)?;
        let resources = resources(device, &image, &function)?;
        Ok(DeviceKernel { device: device.clone(), image, function, resources, origin, load_time: start.elapsed() })
    }

    /// The image.
    pub fn image(&self) -> &KernelImage {
        &self.image
    }

    /// Where it is loaded.
    pub fn device(&self) -> &DriverDevice {
        &self.device
    }

    /// The driver's kernel.
    pub fn function(&self) -> &tessera_driver::Kernel {
        &self.function
    }

    /// What it takes.
    pub fn resources(&self) -> KernelResources {
        self.resources
    }

    /// Where its machine code was found.
    pub fn origin(&self) -> CodeOrigin {
        self.origin
    }

    /// How long loading took.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }
}

fn module(
    device: &DriverDevice,
    image: &KernelImage,
    cache: &ModuleCache,
) -> Result<(tessera_driver::Module, CodeOrigin), DeviceError> {
    let context = device.context();
    let assembler = format!("{} {}", context.table()?.backend, device.properties().driver);
    let key = ModuleKey::new(image.code.bytes(), &device.properties().target(), &assembler, "");
    if let Some(module) = device.loaded(key) {
        return Ok((module, CodeOrigin::Loaded));
    }
    let (module, origin) = match &image.code {
        ImageCode::Cubin(code) => (context.module(code)?, CodeOrigin::Given),
        ImageCode::Ptx(text) if context.table()?.assemble.is_some() && !hands_over_registers(text) => {
            match cache.get(key, || context.assemble(text)) {
                Ok((code, found)) => (context.module(&code)?, if found { CodeOrigin::Disk } else { CodeOrigin::Assembled }),
                // What the linker refuses the loader may take; if not, its message is the one that counts.
                Err(_) => (context.module(text.as_bytes())?, CodeOrigin::Assembled),
            }
        }
        // A back end without an assembler of its own takes the text, and so does one that assembles worse than it loads.
        ImageCode::Ptx(text) => (context.module(text.as_bytes())?, CodeOrigin::Assembled),
    };
    Ok((device.keep(key, module), origin))
}

/// Roles of the kernel hand registers over. The driver's linker gives each of them what a block starts with and spills the rest, which
/// halves the speed of some products; its loader (with a cache of its own) gives each what it asks for.
fn hands_over_registers(ptx: &str) -> bool {
    ptx.contains("setmaxnreg")
}

/// Makes room for the launch and refuses what the device does not have.
fn resources(
    device: &DriverDevice,
    image: &KernelImage,
    function: &tessera_driver::Kernel,
) -> Result<KernelResources, DeviceError> {
    let number = |attribute| function.attribute(attribute).map_or(0, i32::unsigned_abs);
    let resources = KernelResources {
        registers: number(FunctionAttribute::Registers),
        local_bytes: number(FunctionAttribute::LocalBytes),
        shared_bytes: number(FunctionAttribute::SharedBytes).saturating_add(image.launch.shared_bytes),
        max_threads: number(FunctionAttribute::MaxThreadsPerBlock),
    };
    let refuse =
        |what, needs: u64, has: u64, help| DeviceError::Resources { kernel: image.entry.clone(), what, needs, has, help };
    let (needs, has) = (u64::from(resources.shared_bytes), u64::from(device.properties().shared_per_block));
    if has > 0 && needs > has {
        return Err(refuse("bytes of shared memory for a block", needs, has, "use smaller tiles or fewer stages"));
    }
    let threads = image.launch.threads.iter().map(|&n| u64::from(n)).product::<u64>() * u64::from(image.launch.grid.programs);
    let most = device.context().attribute(DeviceAttribute::MaxThreadsPerBlock).map_or(0, i32::unsigned_abs);
    if most > 0 && threads > u64::from(most) {
        return Err(refuse("threads for a block", threads, u64::from(most), "use fewer warps"));
    }
    if resources.max_threads > 0 && threads > u64::from(resources.max_threads) {
        let what = "threads for a block that registers suffice for";
        return Err(refuse(what, threads, u64::from(resources.max_threads), "use smaller tiles or fewer warps"));
    }
    const WITHOUT_ASKING: u32 = 48 << 10;
    if resources.shared_bytes > WITHOUT_ASKING && image.launch.shared_bytes > 0 {
        function.allow_shared(image.launch.shared_bytes)?;
    }
    if image.launch.cluster.is_some_and(|cluster| cluster.iter().product::<u32>() > 8) {
        function.allow_large_clusters()?;
    }
    Ok(resources)
}
