//! Launches.

#![allow(unsafe_code, reason = "reads the caller's arguments")]

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use tessera_bundle::Chosen;
use tessera_driver::StreamHandle;
use tessera_launch::{Array, DeviceKernel, DeviceLaunch, LaunchGrid, ModuleCache};

use crate::arguments::TesseraArgument;
use crate::bundle::TesseraBundle;
use crate::device::{TesseraDevice, lock};
use crate::status::{Failure, Status, guarded, handle, text};

/// Arguments beyond which a count is taken for a mistake.
const MOST_ARGUMENTS: usize = 1 << 16;

/// Launches a kernel of a bundle and does not wait for it.
///
/// `stream` is a stream of the device's primary context; null is the device's own stream, which copies use too. `grid` has the
/// blocks along x, y and z; null where the bundle knows how many are needed.
///
/// # Safety
/// `bundle` and `device` are null or open handles; `kernel` is null or a text that ends with a zero; `grid` is null or points at three
/// numbers; `arguments` is null or points at `count` arguments, each as its `kind` says; memory that they name stays until the launch
/// is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_launch(
    bundle: *const TesseraBundle,
    kernel: *const c_char,
    device: *const TesseraDevice,
    stream: *mut c_void,
    grid: *const u32,
    arguments: *const TesseraArgument,
    count: usize,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (bundle, device) = unsafe { (handle(bundle, "the bundle")?, handle(device, "the device")?) };
        // SAFETY: the caller's promises.
        let kernel = unsafe { text(kernel, "the kernel's name") }?;
        let blocks = match grid.is_null() {
            true => LaunchGrid::Auto,
            // SAFETY: the caller's promise: three numbers.
            false => LaunchGrid::Blocks(unsafe { grid.cast::<[u32; 3]>().read() }),
        };
        if count > MOST_ARGUMENTS || count > 0 && arguments.is_null() {
            return Err(Failure::call(format!("{count} arguments lie at {arguments:p}")));
        }
        let mut args = Vec::with_capacity(count);
        for at in 0..count {
            // SAFETY: the caller's promises: so many arguments lie there.
            args.push(unsafe { (*arguments.add(at)).read() }?);
        }
        let chosen = bundle.bundle.choose(&device.device, kernel, &args, blocks)?;
        let launch = DeviceLaunch::new(loaded(bundle, device, &chosen)?, &chosen.flat, chosen.grid)?;
        if stream.is_null() {
            launch.enqueue()?;
        } else {
            // Memory of the launch's own is made ready in the device's stream.
            if launch.owns_memory() {
                device.device.stream().synchronize()?;
            }
            launch.enqueue_on(StreamHandle(stream.addr() as u64))?;
        }
        if launch.owns_memory() { device.keep(launch) } else { Ok(()) }
    })
}

/// The chosen variant on the device, where it stays for its other launches.
fn loaded(bundle: &TesseraBundle, device: &TesseraDevice, chosen: &Chosen<'_, Array>) -> Result<DeviceKernel, Failure> {
    let key = (bundle.number, chosen.position);
    if let Some(kernel) = lock(&device.loaded).get(&key) {
        return Ok(kernel.clone());
    }
    // Loaded without the lock: other kernels are launched meanwhile. Of two at once the device keeps one module.
    let image = Arc::new(chosen.image(&device.device));
    let kernel = DeviceKernel::load(&device.device, image, &ModuleCache::new(None))?;
    lock(&device.loaded).insert(key, kernel.clone());
    Ok(kernel)
}
