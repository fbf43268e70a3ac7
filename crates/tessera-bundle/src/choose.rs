//! Which variant a launch gets.
//!
//! Of the variants of a kernel those are tried that run on the device, later targets first, and of one target in the bundle's
//! order; the first that takes the arguments is launched. So variants that assume more stand before those that assume less.

use tessera_ir::{Diagnostic, KernelImage, bug};
use tessera_launch::{
    Argument, Constant, DeviceError, DeviceKernel, DriverDevice, Flat, LaunchGrid, Placed, Prepared, row_major,
};

use crate::bundle::Bundle;
use crate::error::{BundleError, line};
use crate::target::TargetName;
use crate::variant::{Fixed, Variant};

/// A variant with arguments that it takes.
#[derive(Debug)]
pub struct Chosen<'a, A> {
    /// Its position in the bundle.
    pub position: usize,
    /// The variant.
    pub variant: &'a Variant,
    /// Its arguments.
    pub flat: Vec<Flat<A>>,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
}

impl<A> Chosen<'_, A> {
    /// What the device loads.
    pub fn image(&self, device: &DriverDevice) -> KernelImage {
        self.variant.image(device.properties().capability, device.is_emulated())
    }
}

impl<A: Placed> Chosen<'_, A> {
    /// A launch of the loaded variant that can be queued with other arrays of the same form and with other numbers.
    ///
    /// # Errors
    /// What the device has not.
    pub fn prepare(&self, kernel: DeviceKernel) -> Result<Prepared<A>, DeviceError> {
        Prepared::new(kernel, self.variant.interface.clone(), &self.flat, self.grid)
    }
}

/// A variant that takes the arguments, or what is wrong with them for it.
type Outcome<'a, A> = Result<Chosen<'a, A>, (&'a Variant, Vec<Diagnostic>)>;

impl Bundle {
    /// The variant of a kernel for a device and arguments by name. Constants may be left out where all variants that take the rest
    /// have the same.
    ///
    /// # Errors
    /// A kernel that is not there or not for the device, and arguments that no variant takes: each says what there is.
    pub fn choose<A: Placed>(
        &self,
        device: &DriverDevice,
        kernel: &str,
        args: &[(&str, Argument<A>)],
        grid: LaunchGrid,
    ) -> Result<Chosen<'_, A>, BundleError> {
        let own: Vec<usize> = (0..self.variants().len()).filter(|&at| self.variants()[at].kernel == kernel).collect();
        if own.is_empty() {
            return Err(BundleError::NoKernel { kernel: kernel.to_owned(), known: self.kernels() });
        }
        let target = |at: usize| TargetName::parse(&self.variants()[at].target);
        let properties = device.properties();
        let runs = |&at: &usize| target(at).is_some_and(|target| target.runs_on(properties.capability));
        let mut usable: Vec<usize> = own.iter().copied().filter(runs).collect();
        if usable.is_empty() {
            let mut known: Vec<String> = own.iter().map(|&at| self.variants()[at].target.clone()).collect();
            known.sort_unstable();
            known.dedup();
            let (device, target) = (device.name().to_owned(), properties.target());
            return Err(BundleError::NoTarget { kernel: kernel.to_owned(), device, target, known });
        }
        usable.sort_by_key(|&at| std::cmp::Reverse(target(at)));
        let tried = usable.into_iter().map(|at| self.try_one(at, args, grid));
        let (fitting, refused): (Vec<Outcome<'_, A>>, Vec<_>) = tried.partition(Result::is_ok);
        let fitting: Vec<Chosen<'_, A>> = fitting.into_iter().flatten().collect();
        ambiguous(kernel, &fitting, args)?;
        if let Some(chosen) = fitting.into_iter().next() {
            return Ok(chosen);
        }
        let refused: Vec<_> = refused.into_iter().filter_map(Result::err).collect();
        match <[_; 1]>::try_from(refused) {
            Ok([(_, diagnostics)]) => Err(BundleError::Arguments { kernel: kernel.to_owned(), diagnostics }),
            Err(refused) => {
                let first = |(variant, found): &(&Variant, Vec<Diagnostic>)| {
                    let Some(found) = found.first() else { bug!("a refusal without a reason") };
                    (variant.describe(), line(found))
                };
                let refusals = refused.iter().map(first).collect();
                Err(BundleError::NoVariant { kernel: kernel.to_owned(), asked: asked(args), refusals })
            }
        }
    }

    /// The names of its kernels, each once.
    pub fn kernels(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for variant in self.variants() {
            if !names.contains(&variant.kernel) {
                names.push(variant.kernel.clone());
            }
        }
        names
    }

    fn try_one<A: Placed>(&self, position: usize, args: &[(&str, Argument<A>)], grid: LaunchGrid) -> Outcome<'_, A> {
        let variant = &self.variants()[position];
        let args = &completed(variant, args);
        let mut wrong = strangers(variant, args);
        wrong.extend(constants(variant, args));
        wrong.extend(variant.fixed.iter().flat_map(|fixed| shapes(fixed, args)));
        let flat = match variant.interface.check(&[], args) {
            Ok(flat) => flat,
            Err(found) => {
                wrong.extend(found);
                Vec::new()
            }
        };
        let blocks = match &variant.fixed {
            Some(fixed) => fixed_blocks(variant, fixed, grid),
            None => variant.interface.blocks(&variant.kernel, grid, args),
        };
        match blocks {
            Ok(grid) if wrong.is_empty() => Ok(Chosen { position, variant, flat, grid }),
            Ok(_) => Err((variant, wrong)),
            Err(found) => {
                wrong.push(*found);
                Err((variant, wrong))
            }
        }
    }
}

/// The arguments, with the numbers that the variant has for those that are left out.
fn completed<'n, A: Placed>(variant: &'n Variant, args: &[(&'n str, Argument<A>)]) -> Vec<(&'n str, Argument<A>)> {
    let mut all = args.to_vec();
    for (name, number) in variant.fixed.iter().flat_map(|fixed| &fixed.numbers) {
        if !args.iter().any(|(given, _)| given == name) {
            all.push((name, Argument::Constant(number.clone())));
        }
    }
    all
}

/// Arguments that are no parameter's, or given twice.
fn strangers<A>(variant: &Variant, args: &[(&str, Argument<A>)]) -> Vec<Diagnostic> {
    let params = variant.interface.abi.params.iter().map(|param| &param.name);
    let names: Vec<&String> = params.chain(variant.constants.iter().map(|(name, _)| name)).collect();
    let mut wrong = Vec::new();
    for (at, (name, _)) in args.iter().enumerate() {
        if !names.iter().any(|own| own == name) {
            let known: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let message = format!("`{}` has no parameter `{name}`", variant.kernel);
            wrong.push(Diagnostic::bare("unknown-argument", message).help(format!("its parameters are {}", known.join(", "))));
        } else if args[..at].iter().any(|(earlier, _)| earlier == name) {
            wrong.push(Diagnostic::bare("argument-twice", format!("the argument `{name}` is given twice")));
        }
    }
    wrong
}

/// Constants that are given and differ from the variant's.
fn constants<A: Placed>(variant: &Variant, args: &[(&str, Argument<A>)]) -> Vec<Diagnostic> {
    let differs = |(name, own): &(String, Constant)| {
        let (_, given) = args.iter().find(|(given, _)| given == name)?;
        let is_same = match given {
            Argument::Constant(given) => is_same(own, given),
            Argument::Array(_) | Argument::List(_) => false,
        };
        let message = || format!("`{name}` is {}, the kernel was compiled for {own}", given.describe());
        (!is_same).then(|| Diagnostic::bare("argument-constant", message()))
    };
    variant.constants.iter().filter_map(differs).collect()
}

/// Callers that know integers, floats and text alone may write truth values and types by them.
fn is_same(own: &Constant, given: &Constant) -> bool {
    match (own, given) {
        (Constant::Bool(own), Constant::Int(given)) => i64::from(*own) == *given,
        (Constant::Type(own), Constant::Text(given)) => own.name() == given,
        _ => own == given,
    }
}

fn shapes<A: Placed>(fixed: &Fixed, args: &[(&str, Argument<A>)]) -> Vec<Diagnostic> {
    let differs = |(name, sizes): &(String, Vec<usize>)| {
        let Some((_, Argument::Array(array))) = args.iter().find(|(given, _)| given == name) else { return None };
        let message = || format!("`{name}` has shape {:?}, the kernel was packed for {sizes:?}", array.sizes());
        (array.sizes() != sizes).then(|| Diagnostic::bare("argument-shape", message()))
    };
    fixed.shapes.iter().filter_map(differs).collect()
}

fn fixed_blocks(variant: &Variant, fixed: &Fixed, grid: LaunchGrid) -> Result<[u32; 3], Box<Diagnostic>> {
    match grid {
        LaunchGrid::Blocks(given) if given != fixed.grid => {
            let message = format!("`{}` needs a grid of {:?}, {given:?} is given", variant.kernel, fixed.grid);
            Err(Box::new(Diagnostic::bare("grid", message).help("leave the grid out")))
        }
        LaunchGrid::Blocks(_) | LaunchGrid::Auto => Ok(fixed.grid),
    }
}

/// Refuses a choice that a constant decides which nobody gave.
fn ambiguous<A>(kernel: &str, fitting: &[Chosen<'_, A>], args: &[(&str, Argument<A>)]) -> Result<(), BundleError> {
    let Some((first, others)) = fitting.split_first() else { return Ok(()) };
    for (name, value) in &first.variant.constants {
        if args.iter().any(|(given, _)| given == name) {
            continue;
        }
        let of = |chosen: &Chosen<'_, A>| {
            chosen.variant.constants.iter().find(|(own, other)| own == name && other != value).map(|(_, other)| other.to_string())
        };
        // For another target a kernel may well have other tiles.
        let rivals = others.iter().filter(|other| other.variant.target == first.variant.target);
        let mut values: Vec<String> = rivals.filter_map(of).collect();
        if !values.is_empty() {
            values.insert(0, value.to_string());
            values.dedup();
            return Err(BundleError::Ambiguous { kernel: kernel.to_owned(), constant: name.clone(), values });
        }
    }
    Ok(())
}

/// `A=bf16[128,64], TILE=32`: what was asked for.
fn asked<A: Placed>(args: &[(&str, Argument<A>)]) -> String {
    let array = |array: &A| {
        let sizes: Vec<String> = array.sizes().iter().map(usize::to_string).collect();
        let mut text = format!("{}[{}]", array.dtype(), sizes.join(","));
        if array.steps() != row_major(array.sizes()) {
            text.push_str(&format!(";strides={:?}", array.steps()));
        }
        text
    };
    let one = |(name, argument): &(&str, Argument<A>)| match argument {
        Argument::Array(given) => format!("{name}={}", array(given)),
        Argument::List(items) => format!("{name}=[{}]", items.iter().map(array).collect::<Vec<_>>().join(",")),
        Argument::Constant(value) => format!("{name}={value}"),
    };
    if args.is_empty() { "no arguments".to_owned() } else { args.iter().map(one).collect::<Vec<_>>().join(", ") }
}
