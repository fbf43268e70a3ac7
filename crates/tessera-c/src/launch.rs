//! Launches: at once, or prepared and then queued as often as they are wanted.

#![allow(unsafe_code, reason = "reads the caller's arguments")]

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use tessera_bundle::{BundleError, Chosen};
use tessera_driver::StreamHandle;
use tessera_launch::{Array, DeviceError, DeviceKernel, DeviceLaunch, LaunchGrid, ModuleCache, Prepared};

use crate::arguments::{Arguments, TesseraArgument};
use crate::bundle::{TesseraBundle, give_handle};
use crate::device::{Kept, TesseraDevice, lock};
use crate::status::{Failure, Status, guarded, handle, text};

/// A launch with arguments that may be changed.
pub struct TesseraPrepared {
    launch: Prepared<Array>,
    /// What the device keeps until somebody waits for it.
    kept: Arc<Kept>,
}

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
        let (chosen, kernel) = unsafe { chosen((bundle, kernel), device, grid, (arguments, count)) }?;
        let launch = DeviceLaunch::new(kernel, &chosen.flat, chosen.grid)?;
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

/// Checks and packs a launch that `tessera_prepared_launch` queues.
///
/// # Safety
/// `bundle` and `device` are null or open handles; `kernel` is null or a text that ends with a zero; `grid` is null or points at three
/// numbers; `arguments` is null or points at `count` arguments, each as its `kind` says; `prepared` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_prepare(
    bundle: *const TesseraBundle,
    kernel: *const c_char,
    device: *const TesseraDevice,
    grid: *const u32,
    arguments: *const TesseraArgument,
    count: usize,
    prepared: *mut *mut TesseraPrepared,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promises.
        let (bundle, device) = unsafe { (handle(bundle, "the bundle")?, handle(device, "the device")?) };
        // SAFETY: the caller's promises.
        let (chosen, kernel) = unsafe { chosen((bundle, kernel), device, grid, (arguments, count)) }?;
        let launch = TesseraPrepared { launch: chosen.prepare(kernel)?, kept: Arc::clone(&device.kept) };
        // SAFETY: the caller's promise.
        unsafe { give_handle(prepared, || Box::into_raw(Box::new(launch))) }
    })
}

/// Queues a prepared launch with other arguments in place of those that `changes` names, and does not wait for it.
///
/// # Safety
/// `prepared` is null or an open handle; `changes` is null or points at `count` arguments, each as its `kind` says; memory that they and
/// the prepared arguments name stays until the launch is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_prepared_launch(
    prepared: *const TesseraPrepared,
    stream: *mut c_void,
    changes: *const TesseraArgument,
    count: usize,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let TesseraPrepared { launch, kept } = unsafe { handle(prepared, "the prepared launch") }?;
        // SAFETY: the caller's promises.
        let changes = unsafe { Arguments::read(changes, count) }?;
        let own = launch.launch();
        let stream = match stream.is_null() {
            true => own.kernel().device().stream().handle(),
            false => StreamHandle(stream.addr() as u64),
        };
        changes.with(|changes| launch.enqueue(stream, changes)).map_err(|error| match error {
            DeviceError::Rejected(report) => {
                BundleError::Arguments { kernel: own.kernel().image().entry.clone(), diagnostics: report.diagnostics }
            }
            other => other.into(),
        })?;
        if own.owns_memory() {
            kept.remember(own);
        }
        Ok(())
    })
}

/// Closes a prepared launch; null is nothing to close. Launches that are under way go on.
///
/// # Safety
/// `prepared` is null or an open handle that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tessera_prepared_close(prepared: *mut TesseraPrepared) {
    if !prepared.is_null() {
        // SAFETY: made by `tessera_prepare`, and closed once.
        let prepared = unsafe { Box::from_raw(prepared) };
        guarded(|| {
            drop(prepared);
            Ok(())
        });
    }
}

/// The variant for a launch, loaded on the device.
///
/// # Safety
/// As for `tessera_launch`.
unsafe fn chosen<'a>(
    (bundle, kernel): (&'a TesseraBundle, *const c_char),
    device: &TesseraDevice,
    grid: *const u32,
    (arguments, count): (*const TesseraArgument, usize),
) -> Result<(Chosen<'a, Array>, DeviceKernel), Failure> {
    // SAFETY: the caller's promises.
    let kernel = unsafe { text(kernel, "the kernel's name") }?;
    let blocks = match grid.is_null() {
        true => LaunchGrid::Auto,
        // SAFETY: the caller's promise: three numbers.
        false => LaunchGrid::Blocks(unsafe { grid.cast::<[u32; 3]>().read() }),
    };
    // SAFETY: the caller's promises.
    let arguments = unsafe { Arguments::read(arguments, count) }?;
    let chosen = arguments.with(|arguments| bundle.bundle.choose(&device.device, kernel, arguments, blocks))?;
    let loaded = loaded(bundle, device, &chosen)?;
    Ok((chosen, loaded))
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
