//! A launch that is asked for again and again, with other arrays and numbers.
//!
//! Arguments are checked and packed, tensor maps encoded and workspace taken when a [`Prepared`] is made. What differs at a launch goes
//! into a copy of the parameters: an address, a number, the tensor maps over an array that lies elsewhere. Nothing of what is shared
//! is written, so several threads may launch at once, and a stream that records a graph records what it was given.
//!
//! Types, sizes and strides stay: they may have decided which variant of a kernel it is, and how many blocks it has.

use std::sync::Arc;

use tessera_driver::{Params, StreamHandle};
use tessera_ir::{AbiParam, Diagnostic, ParamKind, bug};

use crate::argument::{Argument, Constant, Flat};
use crate::array::{Array, Placed};
use crate::check::Checker;
use crate::device_kernel::DeviceKernel;
use crate::error::DeviceError;
use crate::interface::Interface;
use crate::launch::{DeviceLaunch, scalar_bytes};
use crate::tensor_map::tensor_map;

/// A launch with arguments that may be changed.
#[derive(Debug)]
pub struct Prepared<A> {
    launch: Arc<DeviceLaunch>,
    interface: Interface,
    /// The arrays of each parameter: one, a list's, or none of a number.
    arrays: Vec<Vec<A>>,
}

/// What a launch has in place of what it was prepared with, see [`Prepared::again`].
#[derive(Clone, Debug)]
pub enum Change {
    /// An array of the same form at an address.
    Address(u64),
    /// A number.
    Number(Constant),
}

impl Prepared<Array> {
    /// Queues it as [`Prepared::enqueue`] does, for who knows that the arrays have the form of those that it was prepared with: types, sizes, strides,
    /// alignment, and which of them share memory. That is not looked at, so it takes a fraction of the time.
    ///
    /// # Errors
    /// Numbers beyond their types; what the driver refuses.
    pub fn again(&self, stream: StreamHandle, changes: &[(&str, Change)]) -> Result<(), DeviceError> {
        let checker: Checker<'_, Array> = Checker { places: &[], interface: &self.interface, args: &[] };
        let mut params = self.launch.params().clone();
        let (mut place, maps) = (0, self.launch.maps());
        for (position, param) in self.interface.abi.params.iter().enumerate() {
            let own = place;
            place += param.kind.argument_count();
            let Some((name, change)) = changes.iter().find(|(name, _)| param.name == *name) else { continue };
            match (&param.kind, change) {
                (ParamKind::Scalar { dtype }, Change::Number(number)) => {
                    let bits = checker.scalar(name, *dtype, &Argument::Constant(number.clone()));
                    let bits = bits.map_err(|diagnostic| DeviceError::without_text(vec![*diagnostic]))?;
                    params.replace(own, &bits.to_le_bytes()[..scalar_bytes(*dtype)]);
                }
                (ParamKind::Array { .. }, Change::Address(address)) => {
                    let [array] = &self.arrays[position][..] else { bug!("a launch without an array that its kernel takes") };
                    if array.has_none() {
                        continue;
                    }
                    params.replace(own, &address.to_le_bytes());
                    for (place, plan) in maps.iter().filter(|(_, plan)| plan.param == position) {
                        let array = array.at(*address);
                        let map = tensor_map(self.launch.kernel(), plan, Some(&array), |_| {
                            bug!("an array with elements has no stand-in")
                        })?;
                        params.replace(*place, map.bytes());
                    }
                }
                _ => bug!("`{name}` has another form than what the launch was prepared with"),
            }
        }
        Ok(self.launch.enqueue_with(stream, &params)?)
    }
}

impl<A: Placed> Prepared<A> {
    /// Packs arguments that the interface's [check](Interface::check) gave. Memory of the launch's own is ready when this returns, for
    /// launches in any stream.
    ///
    /// # Errors
    /// Those of [`DeviceLaunch::new`].
    pub fn new(kernel: DeviceKernel, interface: Interface, flat: &[Flat<A>], grid: [u32; 3]) -> Result<Prepared<A>, DeviceError> {
        let launch = DeviceLaunch::new(kernel, flat, grid)?;
        if launch.owns_memory() {
            launch.kernel().device().stream().synchronize()?;
        }
        let mut rest = flat.iter();
        let arrays = interface.abi.params.iter().map(|param| {
            let own = rest.by_ref().take(param.kind.argument_count());
            let arrays = own.flat_map(|flat| match flat {
                Flat::Array(array) => std::slice::from_ref(array),
                Flat::Table(items) => items,
                Flat::Word(_) => &[],
            });
            arrays.cloned().collect()
        });
        let arrays = arrays.collect();
        Ok(Prepared { launch: Arc::new(launch), interface, arrays })
    }

    /// The launch with the arguments that it was made with. Whoever keeps it keeps workspace and tables, which must stay until launches
    /// are done, and as long as graphs that recorded them.
    pub fn launch(&self) -> &Arc<DeviceLaunch> {
        &self.launch
    }

    /// Names of the parameters that the kernel may write.
    pub fn written(&self) -> impl Iterator<Item = &str> {
        let params = self.interface.abi.params.iter().zip(&self.interface.written);
        params.filter(|(_, written)| **written).map(|(param, _)| param.name.as_str())
    }

    /// Queues it on a stream of the device's context, with other arguments in place of those named. Launches that use workspace are the
    /// caller's to order where they go to several streams.
    ///
    /// # Errors
    /// Those of [`Prepared::with`]; what the driver refuses.
    pub fn enqueue(&self, stream: StreamHandle, changes: &[(&str, Argument<A>)]) -> Result<(), DeviceError> {
        let queued = match changes {
            [] => self.launch.enqueue_on(stream),
            _ => self.launch.enqueue_with(stream, &self.with(changes)?),
        };
        Ok(queued?)
    }

    /// The parameters with other arguments in place of those named: numbers, and arrays of the same type, sizes and strides. Arrays'
    /// memory is the caller's to keep.
    ///
    /// # Errors
    /// Everything that is wrong: `unknown-argument`, `argument-twice`, `argument-kind`, `argument-shape`, `argument-list`,
    /// `argument-alignment`, `argument-scalar`, `argument-overlap`.
    pub fn with(&self, changes: &[(&str, Argument<A>)]) -> Result<Params, DeviceError> {
        let checker = Checker { places: &[], interface: &self.interface, args: &[] };
        let mut params = self.launch.params().clone();
        let mut wrong = Vec::new();
        let mut arrays: Vec<&[A]> = self.arrays.iter().map(Vec::as_slice).collect();
        let mut moved: Vec<usize> = Vec::new();
        for (at, (name, value)) in changes.iter().enumerate() {
            let Some(position) = self.interface.abi.params.iter().position(|param| param.name == *name) else {
                wrong.push(self.stranger(name));
                continue;
            };
            if changes[..at].iter().any(|(earlier, _)| earlier == name) {
                wrong.push(Diagnostic::bare("argument-twice", format!("the argument `{name}` is given twice")));
                continue;
            }
            let (place, param) = (self.interface.abi.first_argument(position), &self.interface.abi.params[position]);
            match (&param.kind, value) {
                (ParamKind::Scalar { dtype }, _) => match checker.scalar(name, *dtype, value) {
                    Ok(bits) => params.replace(place, &bits.to_le_bytes()[..scalar_bytes(*dtype)]),
                    Err(diagnostic) => wrong.push(*diagnostic),
                },
                (ParamKind::Array { align, .. }, Argument::Array(array)) => {
                    match self.same(position, array).and_then(|()| checker.begins(name, *align, array)) {
                        Ok(()) => {
                            params.replace(place, &array.start().to_le_bytes());
                            arrays[position] = std::slice::from_ref(array);
                            moved.push(position);
                        }
                        Err(diagnostic) => wrong.push(*diagnostic),
                    }
                }
                (ParamKind::Array { .. } | ParamKind::List { .. } | ParamKind::Operand { .. }, _) => {
                    wrong.push(refused(param, value));
                }
            }
        }
        if !moved.is_empty() {
            wrong.extend(checker.overlaps(&arrays));
        }
        if !wrong.is_empty() {
            return Err(DeviceError::without_text(wrong));
        }
        for (place, plan) in self.launch.maps().iter().filter(|(_, plan)| moved.contains(&plan.param)) {
            let array = arrays[plan.param].first();
            // The map over an array without elements is over memory of the launch's own.
            if array.is_some_and(Placed::has_none) {
                continue;
            }
            let map = tensor_map(self.launch.kernel(), plan, array, |_| bug!("an array with elements has no stand-in"))?;
            params.replace(*place, map.bytes());
        }
        Ok(params)
    }

    fn stranger(&self, name: &str) -> Diagnostic {
        let known: Vec<String> = self.interface.abi.params.iter().map(|param| format!("`{}`", param.name)).collect();
        let message = format!("`{name}` is no argument of the prepared launch");
        let known = if known.is_empty() { "it has none".to_owned() } else { format!("its arguments are {}", known.join(", ")) };
        Diagnostic::bare("unknown-argument", message).help(known)
    }

    /// Refuses an array of another form than the one that the parameter at a position was prepared for.
    fn same(&self, position: usize, array: &A) -> Result<(), Box<Diagnostic>> {
        let [own] = &self.arrays[position][..] else { bug!("a launch without an array that its kernel takes") };
        if (own.dtype(), own.sizes(), own.steps()) == (array.dtype(), array.sizes(), array.steps()) {
            return Ok(());
        }
        let form = |array: &A| format!("{}{:?} with strides {:?}", array.dtype(), array.sizes(), array.steps());
        let name = &self.interface.abi.params[position].name;
        let message = format!("`{name}` is {}, the launch was prepared for {}", form(array), form(own));
        Err(Box::new(Diagnostic::bare("argument-shape", message).help("prepare another launch for arrays of this form")))
    }
}

/// Why an argument is not one that a launch may change.
fn refused<A: Placed>(param: &AbiParam, value: &Argument<A>) -> Diagnostic {
    let name = &param.name;
    match &param.kind {
        ParamKind::List { .. } => {
            let message = format!("`{name}` is a list, which stays as it was prepared");
            Diagnostic::bare("argument-list", message).help("write into its arrays, or prepare another launch")
        }
        ParamKind::Array { .. } | ParamKind::Scalar { .. } | ParamKind::Operand { .. } => {
            Diagnostic::bare("argument-kind", format!("`{name}` takes an array, not {}", value.describe()))
        }
    }
}
