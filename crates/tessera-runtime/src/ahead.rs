//! Kernels compiled ahead of time: packed into bundles, and launched out of them.

use std::sync::Arc;

use tessera_bundle::{Bundle, BundleError, Variant};
use tessera_compile::{CompileOptions, compile_for};
use tessera_ir::{HiddenParam, item_name};
use tessera_lang::ArgType;
use tessera_launch::{Constant, DeviceKernel, LaunchGrid, Placed, Report};
use tessera_types::Arch;

use crate::device::DriverDevice;
use crate::device_launch::DeviceLaunch;
use crate::kernel::{Kernel, KernelError};
use crate::module_cache::module_cache;
use crate::tuned::{Chosen, Question, Site, Tuned};
use crate::value::{Value, arguments, constant};

/// A kernel compiled ahead of time.
#[derive(Clone, Debug)]
pub struct Packed {
    /// What a bundle holds.
    pub variant: Variant,
    /// What was given up to make it fit.
    pub remark: Option<Report>,
    /// The choice of a lockfile that it was compiled with.
    pub tuned: Option<Tuned>,
}

impl Kernel {
    /// Compiles for arguments of these types and a target, with the choice that the kernel's lockfile has for them.
    ///
    /// # Errors
    /// What does not compile; what [`Kernel::tuned_for_types`] refuses.
    pub fn ahead(&self, types: &[(String, ArgType)], options: &CompileOptions, arch: Arch) -> Result<Packed, KernelError> {
        let options = CompileOptions { target: Some(arch.name().to_owned()), ..options.clone() };
        let Chosen { types, options, tuned } = self.tuned_for_types(types, &options)?;
        self.packed(&types, (&options, tuned), arch)
    }

    /// The same for launches with arguments like these: a lockfile is asked for their sizes, and other sizes are taken too.
    ///
    /// # Errors
    /// What does not compile; what [`Kernel::tuned_options`] refuses.
    pub fn ahead_of_launch<A: Placed>(
        &self,
        args: &[(&str, Value<A>)],
        options: &CompileOptions,
        arch: Arch,
    ) -> Result<Packed, KernelError> {
        let options = CompileOptions { target: Some(arch.name().to_owned()), ..options.clone() };
        let types = self.argument_types(args)?;
        let (options, tuned) = self.tuned_options(&Question::of_launch(args, &types), &options, Site::Target(arch.name()))?;
        self.packed(&types, (&options, tuned), arch)
    }

    fn packed(
        &self,
        types: &[(String, ArgType)],
        (options, tuned): (&CompileOptions, Option<Tuned>),
        arch: Arch,
    ) -> Result<Packed, KernelError> {
        let compiled = self.compile(types, options)?;
        let device = compile_for(&compiled, arch, compiled.level)
            .map_err(|diagnostics| KernelError::Rejected(Report { diagnostics, sources: compiled.module.sources.clone() }))?;
        let interface = self.interface(&compiled, types, options)?;
        let mut image = device.kernel.image();
        for hidden in &mut image.hidden {
            // Where a bundle is launched there is no text to show.
            if let HiddenParam::Assertions(list) = hidden {
                for assertion in list {
                    let place = compiled.module.sources.locate(assertion.span);
                    assertion.message = format!("{place}: {}", assertion.message).trim_end_matches([':', ' ']).to_owned();
                }
            }
        }
        let mut constants = Vec::new();
        types.iter().for_each(|(name, ty)| collect(name, ty, &mut constants));
        let remark = device.remark().map(|remark| Report { diagnostics: vec![remark], sources: compiled.module.sources.clone() });
        Ok(Packed { variant: Variant::new(self.name(), image, interface, constants), remark, tuned })
    }
}

/// The constants of an argument; items of a tuple have names of their own.
fn collect(name: &str, ty: &ArgType, constants: &mut Vec<(String, Constant)>) {
    match ty {
        ArgType::Const(value) => constants.push((name.to_owned(), constant(value))),
        ArgType::Tuple(items) => {
            items.iter().enumerate().for_each(|(at, item)| collect(&item_name(name, at), item, constants));
        }
        ArgType::Array { .. } | ArgType::List { .. } | ArgType::Scalar(_) | ArgType::Stated { .. } => {}
    }
}

/// The launch of a bundle's kernel on tensors. Nothing is compiled.
///
/// # Errors
/// Where no variant takes the arguments or runs on the device, and what the device has not.
pub fn from_bundle(
    bundle: &Bundle,
    kernel: &str,
    args: &[(&str, Value)],
    grid: LaunchGrid,
    device: &DriverDevice,
) -> Result<DeviceLaunch, BundleError> {
    let chosen = bundle.choose(device, kernel, &arguments(args), grid)?;
    let loaded = DeviceKernel::load(device, Arc::new(chosen.image(device)), module_cache())?;
    Ok(DeviceLaunch::new(loaded, &chosen.variant.interface, &chosen.flat, chosen.grid)?)
}
