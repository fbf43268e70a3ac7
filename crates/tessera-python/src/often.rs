//! Launches on a device that are asked for again and again: what they were compiled to and packed as is found by the form of their arguments.
//!
//! The form of an array is its type, sizes, strides, alignment, and how far it is from those of the others that lie in the same range of memory; of
//! a constant parameter its value; of a number that is passed at launch its kind, and of an integer the class that a kernel may be compiled for. A launch that is found costs a copy of its parameters and the
//! driver's own call.
//!
//! A launch with memory of its own (workspace) is kept as long as the process: a stream may not have come to it yet, and a graph may have recorded
//! it. One that is not kept, since it has a list of arrays, which stand in a table of its own, or since there are too many, lets go of its memory
//! in the order of the stream that it went to.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tessera::compile::CompileOptions;
use tessera::driver::StreamHandle;
use tessera::lang::{ConstValue, number_class};
use tessera::runtime::{Change, Constant, KernelError, LaunchGrid, Often};

use crate::array::Given;
use crate::value::Argument;

/// Launches that are kept for one kernel. Those beyond them are packed anew each time.
const MOST: usize = 1024;

/// Alignments beyond this make no difference to any kernel.
const ALIGN: u32 = 8;

/// What decides how a launch is compiled and packed, and on which device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form(Vec<u64>);

impl Form {
    /// The form of a launch; none where a list is among its arguments. `is_constant` says of a parameter that its value is compiled in.
    pub(crate) fn of(
        (device, stream): (u64, StreamHandle),
        (grid, options): (LaunchGrid, &CompileOptions),
        names: &[Cow<'_, str>],
        arguments: &[Argument],
        is_constant: impl Fn(&str) -> bool,
    ) -> Option<Form> {
        let mut words = Vec::with_capacity(128);
        words.extend([device, stream.0, options.block.map_or(0, |threads| u64::from(threads) + 1), options.config.len() as u64]);
        for (name, value) in &options.config {
            text(name, &mut words);
            words.push(*value as u64);
        }
        match grid {
            LaunchGrid::Auto => words.push(0),
            LaunchGrid::Blocks(blocks) => words.extend(std::iter::once(1).chain(blocks.map(u64::from))),
        }
        let mut arrays: Vec<(u64, u64)> = Vec::new();
        for (name, argument) in names.iter().zip(arguments) {
            text(name, &mut words);
            match argument {
                Argument::Array(given) => {
                    words.push(2);
                    array(given, &mut words, &mut arrays);
                }
                Argument::List(_) => return None,
                Argument::Constant(value) => {
                    constant(value, is_constant(name), &mut words);
                    // Where a number ends in a tile is compiled in.
                    if let ConstValue::Int(number) = value {
                        words.push(number_class(*number).map_or(0, |(_, end)| end as u64));
                    }
                }
            }
        }
        Some(Form(words))
    }

    /// The form of a call of an operator on a device: arrays and numbers by name.
    pub(crate) fn of_call(
        (device, operator, variant): (u64, &str, Option<&str>),
        given: &[(String, Given)],
        scalars: &[(String, f64)],
    ) -> Form {
        let mut words = Vec::with_capacity(128);
        words.extend([device, variant.is_some().into(), given.len() as u64]);
        text(operator, &mut words);
        text(variant.unwrap_or_default(), &mut words);
        let mut arrays: Vec<(u64, u64)> = Vec::new();
        for (name, given) in given {
            text(name, &mut words);
            array(given, &mut words, &mut arrays);
        }
        for (name, value) in scalars {
            text(name, &mut words);
            words.push(value.to_bits());
        }
        Form(words)
    }
}

fn text(text: &str, words: &mut Vec<u64>) {
    words.push(text.len() as u64);
    for chunk in text.as_bytes().chunks(8) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        words.push(u64::from_le_bytes(bytes));
    }
}

fn array(given: &Given, words: &mut Vec<u64>, arrays: &mut Vec<(u64, u64)>) {
    let (start, end) = (given.address, given.address + given.span() as u64);
    let align = given.address.trailing_zeros().min(ALIGN);
    words.extend([given.dtype as u64, u64::from(align), u64::from(given.readonly), given.shape.len() as u64]);
    words.extend(given.shape.iter().chain(&given.strides).map(|&extent| extent as u64));
    // Whether arrays of one range of memory have elements in common depends on how far one is from the other.
    let count = words.len();
    words.push(0);
    for (at, (from, to)) in arrays.iter().enumerate() {
        if start < *to && *from < end {
            words[count] += 1;
            words.extend([at as u64, start.wrapping_sub(*from)]);
        }
    }
    arrays.push((start, end));
}

fn constant(value: &ConstValue, is_constant: bool, words: &mut Vec<u64>) {
    match value {
        ConstValue::None => words.push(4),
        ConstValue::Bool(value) => words.extend([5, if is_constant { u64::from(*value) } else { 2 }]),
        ConstValue::Int(value) if is_constant => words.extend([6, *value as u64]),
        // Numbers of 32 and of 64 bits are of two types.
        ConstValue::Int(value) => words.extend([7, u64::from(i32::try_from(*value).is_ok())]),
        ConstValue::Float(value) if is_constant => words.extend([8, value.to_bits()]),
        ConstValue::Float(_) => words.push(9),
        ConstValue::Str(own) => {
            words.push(10);
            text(own, words);
        }
        ConstValue::DType(dtype) => words.extend([11, *dtype as u64]),
        ConstValue::Tuple(items) => {
            words.extend([12, items.len() as u64]);
            // Tuples are compiled in, items and all.
            items.iter().for_each(|item| constant(item, true, words));
        }
    }
}

/// The launches that were packed.
#[derive(Default)]
pub(crate) struct Launches(Mutex<FxHashMap<Form, Arc<Often>>>);

impl Launches {
    pub(crate) fn find(&self, form: &Form) -> Option<Arc<Often>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(form).cloned()
    }

    /// Keeps a launch, unless there is one of its form or there are too many; whether it does.
    pub(crate) fn keep(&self, form: Form, launch: &Arc<Often>) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have kept one of this form meanwhile, which a stream may not have come to yet.
        let is_kept = known.len() < MOST && !known.contains_key(&form);
        if is_kept {
            known.insert(form, Arc::clone(launch));
        }
        is_kept
    }
}

impl Drop for Launches {
    fn drop(&mut self) {
        let known = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        known.drain().filter(|(_, launch)| launch.prepared.launch().owns_memory()).for_each(std::mem::forget);
    }
}

/// Queues a packed launch with the addresses and numbers of these arguments, which have its form.
pub(crate) fn enqueue(
    launch: &Often,
    stream: StreamHandle,
    names: &[Cow<'_, str>],
    arguments: &[Argument],
    is_constant: impl Fn(&str) -> bool,
) -> Result<(), KernelError> {
    let mut changes: Vec<(&str, Change)> = Vec::with_capacity(arguments.len());
    for (name, argument) in names.iter().zip(arguments) {
        let change = match argument {
            Argument::Array(given) => Change::Address(given.address),
            Argument::Constant(_) if is_constant(name) => continue,
            Argument::Constant(ConstValue::Int(value)) => Change::Number(Constant::Int(*value)),
            Argument::Constant(ConstValue::Float(value)) => Change::Number(Constant::Float(*value)),
            Argument::Constant(ConstValue::Bool(value)) => Change::Number(Constant::Bool(*value)),
            // Packed as they are: part of the form, or of a launch that is not kept.
            Argument::List(_) | Argument::Constant(_) => continue,
        };
        changes.push((name, change));
    }
    launch.prepared.again(stream, &changes).map_err(|error| launch.refused(error))
}
