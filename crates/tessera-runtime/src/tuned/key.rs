//! What a choice is found by.
//!
//! A key has what is chosen for, of what sizes, and the place: the device and the toolchain ([`Site`]).
//!
//! The kernel's part is a hash of its text without choices: Graph IR of a declarative kernel, Schedule or Tile IR without optimisation of another
//! one. A comment changes nothing, a constant does. What can be chosen among is hashed too: another space is another question.

use std::borrow::Cow;
use std::fmt::Write;

use tessera_compile::CompileOptions;
use tessera_ir::text::print_module;
use tessera_ir::{Diagnostic, Extent};
use tessera_lang::{ArgType, ConstValue, state_odd_lines};
use tessera_launch::Placed;
use tessera_lock::{Key, size_class};

use crate::device::Device;
use crate::kernel::{Kernel, KernelError};
use crate::specialise::USEFUL_ALIGN;
use crate::value::Value;

/// Digits of the hash of what decides.
const IR_DIGITS: usize = 32;

/// Where a choice is made and holds.
#[derive(Clone, Copy, Debug)]
pub enum Site<'a> {
    /// On a device.
    Device(&'a Device),
    /// On any product of a target: code is compiled for it here, and launched there.
    Target(&'a str),
}

impl Site<'_> {
    /// The key of a choice that is made here: whose it is, the text of all that decides beside sizes, and the class of these.
    pub fn key(self, name: &str, asked: &str, shape: String) -> Key {
        let (device, driver) = match self {
            Site::Device(Device::Cpu) => {
                let threads = rayon::current_num_threads();
                (format!("cpu {}, {threads} threads", tessera_cpu::Level::in_use()), String::new())
            }
            Site::Device(Device::Driver(driver)) if driver.is_emulated() => {
                (format!("emu {}", driver.properties().target()), String::new())
            }
            Site::Device(Device::Driver(driver)) => {
                let version = driver.properties().driver;
                let class = format!("{} {}", driver.properties().target(), driver.name());
                (class, format!(", driver {}.{}", version / 1000, version % 1000 / 10))
            }
            // The driver's version is a product's.
            Site::Target(target) => (target.to_string(), String::new()),
        };
        Key {
            kernel: name.to_string(),
            ir: blake3::hash(asked.as_bytes()).to_hex()[..IR_DIGITS].to_string(),
            shape,
            device,
            toolchain: format!("tessera {}{driver}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Whether a choice with a key holds here, for one that is looked for by [`Site::key`].
    pub(super) fn takes(self, asked: &Key, other: &Key) -> bool {
        let Site::Target(target) = self else { return asked == other };
        let [own, has] = [asked, other].map(|key| (&key.kernel, &key.ir, &key.shape));
        let of_target = other.device.strip_prefix(target).is_some_and(|product| product.starts_with(' '));
        let driver = other.toolchain.strip_prefix(&asked.toolchain);
        own == has && of_target && driver.is_some_and(|driver| driver.is_empty() || driver.starts_with(','))
    }

    /// What is compiled for, where it is not this processor.
    pub(super) fn target(self) -> Option<String> {
        match self {
            Site::Device(device) => device.driver().map(|driver| driver.properties().target()),
            Site::Target(target) => Some(target.to_string()),
        }
    }

    pub(super) fn is_cpu(self) -> bool {
        matches!(self, Site::Device(Device::Cpu))
    }
}

/// The arguments that a choice is for.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// What a launch with these arguments compiles for.
    pub(super) types: Cow<'a, [(String, ArgType)]>,
    /// Sizes of arrays, by name.
    sizes: Vec<(String, Vec<u64>)>,
    /// Other arguments, as classes or as they are.
    others: Vec<(String, String)>,
}

impl<'a> Question<'a> {
    /// The arguments of a launch, and the types that it compiles for.
    pub fn of_launch<A: Placed>(args: &[(&str, Value<A>)], types: &'a [(String, ArgType)]) -> Question<'a> {
        let (mut sizes, mut others) = (Vec::new(), Vec::new());
        for (name, value) in args {
            match value {
                Value::Tensor(tensor) => sizes.push((name.to_string(), extents(tensor.sizes()))),
                Value::List(items) => {
                    let items = items.iter().enumerate();
                    sizes.extend(items.map(|(at, item)| (format!("{name}[{at}]"), extents(item.sizes()))));
                }
                Value::Int(number) => others.push((name.to_string(), class(*number))),
                other => others.push((name.to_string(), other.constant().map_or_else(String::new, |value| constant(&value)))),
            }
        }
        Question { types: plain(types), sizes, others }
    }

    /// The arguments of launches that types speak of; `None` where a size is left open.
    pub fn of_types(types: &[(String, ArgType)]) -> Option<Question<'static>> {
        let (mut launched, mut sizes, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (name, ty) in types {
            let (ty, shape) = match ty {
                ArgType::Array { shape, .. } => {
                    let shape: Vec<u64> = shape.iter().map(known).collect::<Option<_>>()?;
                    (as_launched(ty, &shape), Some(shape))
                }
                ArgType::List { .. } => return None,
                other => (other.clone(), None),
            };
            match (&ty, shape) {
                (_, Some(shape)) => sizes.push((name.clone(), shape)),
                (ArgType::Const(value), None) => others.push((name.clone(), constant(value))),
                _ => {}
            }
            launched.push((name.clone(), ty));
        }
        let shapes: Vec<Option<&Vec<u64>>> =
            launched.iter().map(|(name, _)| sizes.iter().find(|(known, _)| known == name).map(|(_, shape)| shape)).collect();
        state_odd_lines(&mut launched, |place| {
            shapes[place].map(|shape| [shape.iter().map(|&size| size as i64).collect(), row_major(shape)])
        });
        Some(Question { types: launched.into(), sizes, others })
    }
}

/// The types without what is stated beside them, which sizes say.
fn plain(types: &[(String, ArgType)]) -> Cow<'_, [(String, ArgType)]> {
    if !types.iter().any(|(_, ty)| matches!(ty, ArgType::Stated { .. })) {
        return types.into();
    }
    let of = |(name, ty): &(String, ArgType)| match ty {
        ArgType::Stated { of, .. } => (name.clone(), (**of).clone()),
        ty => (name.clone(), ty.clone()),
    };
    types.iter().map(of).collect::<Vec<_>>().into()
}

fn extents(shape: &[usize]) -> Vec<u64> {
    shape.iter().map(|&extent| extent as u64).collect()
}

fn known(extent: &Extent) -> Option<u64> {
    match extent {
        Extent::Static(size) => u64::try_from(*size).ok(),
        Extent::Dynamic => None,
    }
}

/// The type for which a launch on a row-major array of known sizes compiles.
fn as_launched(ty: &ArgType, shape: &[u64]) -> ArgType {
    let mut ty = ty.clone();
    if let ArgType::Array { dtype, shape: extents, strides, lines, .. } = &mut ty {
        extents.iter_mut().for_each(|extent| *extent = Extent::Dynamic);
        let unit = strides.iter().rposition(|stride| *stride == Extent::Static(1));
        for (axis, stride) in strides.iter_mut().enumerate() {
            if Some(axis) != unit {
                *stride = Extent::Dynamic;
            }
        }
        // Strides are products of sizes, so the last size divides what all of them are multiples of.
        let bits = u64::from(dtype.bits());
        let rows = shape.last().map_or(USEFUL_ALIGN, |&last| (1 << (last * bits).trailing_zeros().min(32)) / 8);
        *lines = (*lines).min(rows.clamp(1, USEFUL_ALIGN) as u32);
    }
    ty
}

fn row_major(shape: &[u64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as i64;
    }
    strides
}

fn class(number: i64) -> String {
    u64::try_from(number).map_or_else(|_| number.to_string(), size_class)
}

fn constant(value: &ConstValue) -> String {
    match value {
        ConstValue::Int(number) => class(*number),
        ConstValue::Str(text) => text.clone(),
        ConstValue::DType(dtype) => dtype.to_string(),
        ConstValue::Bool(true) => "True".into(),
        ConstValue::Bool(false) => "False".into(),
        ConstValue::Float(number) => number.to_string(),
        ConstValue::None => "None".into(),
        ConstValue::Tuple(items) => items.iter().map(constant).collect::<Vec<_>>().join(" "),
    }
}

impl Kernel {
    /// What a choice for a question is found by.
    ///
    /// # Errors
    /// Where the kernel does not take these arguments.
    pub fn tuning_key(&self, question: &Question<'_>, options: &CompileOptions, site: Site<'_>) -> Result<Key, KernelError> {
        let target = options.target.clone().or_else(|| site.target());
        let options = CompileOptions { target, ..options.clone() };
        let shape = self.shape_class(question, &options)?.0;
        Ok(site.key(self.name(), &self.asked(question, &options)?, shape))
    }

    /// Names of the decorator's `key` that are neither an axis nor an argument: with one of them all sizes are the key.
    pub fn unknown_key_names(&self, question: &Question<'_>, options: &CompileOptions) -> Result<Vec<String>, KernelError> {
        Ok(self.shape_class(question, options)?.1)
    }

    /// The text of a question without its sizes.
    fn asked(&self, question: &Question<'_>, options: &CompileOptions) -> Result<String, KernelError> {
        let rejected = |found: Vec<Diagnostic>| self.rejected(found);
        let module = self.origin.unchosen(self.name(), &question.types, options).map_err(rejected)?;
        let space = self.origin.space(self.name()).map_err(rejected)?.map(|space| space.choices).unwrap_or_default();
        let mut asked = print_module(&module);
        let CompileOptions { level, sharing, cluster, clusters, warps, resident, .. } = options;
        let _ = write!(asked, "{space:?} {level:?} {sharing:?} {cluster} {clusters} {warps} {resident}");
        Ok(asked)
    }

    /// The class of the sizes, and what the decorator's `key` names in vain.
    fn shape_class(&self, question: &Question<'_>, options: &CompileOptions) -> Result<(String, Vec<String>), KernelError> {
        let rejected = |found: Vec<Diagnostic>| self.rejected(found);
        let names = self.origin.space(self.name()).map_err(rejected)?.map(|space| space.key).unwrap_or_default();
        let mut unknown = Vec::new();
        let mut parts = Vec::new();
        if !names.is_empty() {
            let axes = self.origin.operands(self.name(), &question.types, options).map_err(rejected)?;
            for name in &names {
                let of_axis = axes.iter().find_map(|(array, axes)| {
                    let at = axes.iter().position(|axis| axis == name)?;
                    let (_, sizes) = question.sizes.iter().find(|(own, _)| own == array)?;
                    sizes.get(at).map(|&size| size_class(size))
                });
                let other = || question.others.iter().find(|(own, _)| own == name).map(|(_, class)| class.clone());
                match of_axis.or_else(other) {
                    Some(class) => parts.push(format!("{name} {class}")),
                    None => unknown.push(name.clone()),
                }
            }
        }
        if names.is_empty() || !unknown.is_empty() {
            let class = |sizes: &Vec<u64>| sizes.iter().map(|&size| size_class(size)).collect::<Vec<_>>().join(" x ");
            parts = question.sizes.iter().map(|(name, sizes)| format!("{name} {}", class(sizes))).collect();
        }
        Ok((parts.join(", "), unknown))
    }
}
