//! A plan's tensors on a device: guarded on both sides, inputs mirrored on the host for the reference.
//!
//! An input of more than [`PERIOD`] elements repeats its first [`PERIOD`]: the mirror is then small whatever the tensor is. The
//! period is eight times a prime, so a displacement by any stride that a kernel has shows.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use tessera_driver::DevicePtr;
use tessera_ops::{Fill, Inputs, Matrices, Matrix, Plan, Role, TensorSpec};
use tessera_runtime::{Device, RandomStream, Tensor};
use tessera_types::DType;

use super::subject::fault;
use super::sums::Sums;
use crate::case::{Fault, Lane, Poison};
use crate::library::{CHUNK, GUARD, filled, guard_byte, memory_fault};

/// Elements after which inputs repeat.
const PERIOD: usize = 8 * 1_048_573;

/// One tensor: guard, elements, guard.
#[derive(Debug)]
struct Guarded {
    name: &'static str,
    role: Role,
    fill: Fill,
    step: usize,
    memory: Tensor,
    /// Elements between the guards, rounded up to whole bytes.
    span: usize,
    view: Tensor,
    /// The first elements between the guards, for inputs.
    mirror: Option<Tensor>,
}

/// A plan's tensors on a device.
#[derive(Debug)]
pub struct DeviceTensors {
    list: Vec<Guarded>,
    sums: Option<Arc<Sums>>,
}

impl Guarded {
    fn new(position: usize, spec: &TensorSpec, device: &Device) -> Result<Guarded, Fault> {
        let span = (spec.len() * spec.step).next_multiple_of(32);
        let memory = Tensor::zeros_shareable(spec.dtype, &[GUARD + span + GUARD], device).map_err(memory_fault)?;
        let mut strides = vec![1; spec.shape.len()];
        for axis in (0..spec.shape.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * spec.shape[axis + 1];
        }
        strides.iter_mut().for_each(|stride| *stride *= spec.step);
        let view = memory.strided(GUARD, &spec.shape, &strides).map_err(memory_fault)?;
        let (name, role, fill, step) = (spec.name, spec.role, spec.fill, spec.step);
        let tensor = Guarded { name, role, fill, step, memory, span, view, mirror: None };
        for guard in tensor.guards()? {
            guard.fill_bytes(guard_byte(position)).map_err(memory_fault)?;
        }
        Ok(tensor)
    }

    fn part(&self, range: Range<usize>) -> Result<Tensor, Fault> {
        self.memory.slice(0, range, 1).map_err(memory_fault)
    }

    fn guards(&self) -> Result<[Tensor; 2], Fault> {
        Ok([self.part(0..GUARD)?, self.part(GUARD + self.span..GUARD + self.span + GUARD)?])
    }

    fn generate(&mut self, seed: u64, fill: Fill) -> Result<(), Fault> {
        let period = self.span.min(PERIOD);
        let mirror = match self.mirror.take() {
            Some(mirror) => mirror,
            None => Tensor::zeros(self.view.dtype(), &[period]).map_err(memory_fault)?,
        };
        let (name, dtype) = (self.name, self.view.dtype());
        let starts: Vec<usize> = (0..period).step_by(CHUNK).collect();
        let made: Vec<_> = starts
            .par_iter()
            .enumerate()
            .map(|(chunk, start)| {
                let count = CHUNK.min(period - start);
                filled(RandomStream::named(seed, &format!("{name}.{chunk}")), dtype, count, fill)
            })
            .collect();
        for (start, values) in starts.into_iter().zip(made) {
            let part = mirror.slice(0, start..(start + CHUNK).min(period), 1);
            values.and_then(|values| part?.copy_from(&values)).map_err(memory_fault)?;
        }
        self.part(GUARD..GUARD + period)?.copy_from(&mirror).map_err(memory_fault)?;
        let mut done = period;
        while done < self.span {
            let count = done.min(self.span - done);
            let source = self.part(GUARD..GUARD + count)?;
            self.part(GUARD + done..GUARD + done + count)?.copy_from(&source).map_err(memory_fault)?;
            done += count;
        }
        self.mirror = Some(mirror);
        Ok(())
    }

    /// Calls `read(mirror, place, out)` for runs of elements that follow each other in the mirror.
    fn runs<T>(&self, start: usize, out: &mut [T], read: impl Fn(&Tensor, usize, &mut [T]) -> bool) -> bool {
        let Some(mirror) = &self.mirror else { return false };
        let period = mirror.len();
        let mut done = 0;
        while done < out.len() {
            let place = (start + done) * self.step % period;
            // Elements that are `step` apart are a run of a strided view.
            let count = ((period - place).div_ceil(self.step)).min(out.len() - done);
            let end = period.min(place + count * self.step);
            let Ok(view) = mirror.slice(0, place..end, self.step) else { return false };
            if !read(&view, 0, &mut out[done..done + count]) {
                return false;
            }
            done += count;
        }
        true
    }
}

impl Guarded {
    /// Calls `read` with the mirror and where in it elements lie.
    fn at(&self, places: &[usize], read: impl FnOnce(&Tensor, &[usize]) -> bool) -> bool {
        let Some(mirror) = &self.mirror else { return false };
        let places: Vec<usize> = places.iter().map(|&place| place * self.step % mirror.len()).collect();
        read(mirror, &places)
    }
}

impl DeviceTensors {
    /// Allocates a plan's tensors. Where the device makes sums over them, `sums` does.
    pub(crate) fn new(plan: &Plan, device: &Device, sums: Option<Arc<Sums>>) -> Result<DeviceTensors, Fault> {
        let list = plan
            .tensors
            .iter()
            .enumerate()
            .map(|(position, spec)| Guarded::new(position, spec, device))
            .collect::<Result<_, _>>()?;
        Ok(DeviceTensors { list, sums })
    }

    /// The tensor at a position of the plan, as a kernel takes it.
    pub fn view(&self, position: usize) -> &Tensor {
        &self.list[position].view
    }

    /// Where its first element is.
    pub fn pointer(&self, position: usize) -> DevicePtr {
        self.list[position].view.device_pointer().unwrap_or(DevicePtr(0))
    }

    /// Bytes of the device's second-level cache.
    pub(crate) fn l2_bytes(&self) -> u64 {
        match self.list.first().map(|tensor| tensor.memory.device()) {
            Some(Device::Driver(device)) => device.properties().l2_bytes,
            _ => 0,
        }
    }

    pub(crate) fn refresh(&mut self, seed: u64, lane: Lane) -> Result<(), Fault> {
        for tensor in &mut self.list {
            if matches!(tensor.role, Role::Input | Role::InOut) {
                let fill = match lane {
                    Lane::Case => tensor.fill,
                    Lane::Exact => Fill::Integers { least: -2, greatest: 2 },
                };
                tensor.generate(seed, fill)?;
            }
        }
        Ok(())
    }

    pub(crate) fn poison(&self, poison: Poison) -> Result<(), Fault> {
        for tensor in &self.list {
            match tensor.role {
                Role::Output | Role::Workspace => {
                    tensor.part(GUARD..GUARD + tensor.span)?.fill_bytes(poison.byte()).map_err(memory_fault)?;
                }
                Role::Input | Role::InOut => {}
            }
        }
        Ok(())
    }

    /// Codes of elements of a tensor, read from the device.
    pub(crate) fn read(&self, position: usize, start: usize, codes: &mut [u64]) -> Result<(), Fault> {
        let tensor = &self.list[position];
        let end = start + codes.len();
        // Whole bytes are fetched: elements that share bytes with neighbours come with them.
        let (first, last) = (start / 8 * 8, end.next_multiple_of(8).min(tensor.span / tensor.step));
        let from = GUARD + first * tensor.step;
        let part = tensor.part(from..(GUARD + last * tensor.step).min(GUARD + tensor.span))?;
        let host = part.to_device(&Device::Cpu).map_err(fault)?;
        let host = host.slice(0, 0..host.len(), tensor.step).map_err(fault)?;
        host.read_codes(start - first, codes).map_err(fault)
    }

    /// Memory whose digest stands for tensors of a role; tensors with gaps are left out where gaps are not written.
    pub(crate) fn digested(&self, roles: &[Role], with_gaps: bool) -> impl Iterator<Item = (DevicePtr, u64)> {
        let chosen = self.list.iter().filter(move |tensor| roles.contains(&tensor.role) && (with_gaps || tensor.step == 1));
        chosen.filter_map(|tensor| {
            let bits = if tensor.view.dtype().is_byte_bool() { 8 } else { tensor.view.dtype().bits() as usize };
            Some((tensor.view.device_pointer()?, (tensor.span * bits / 32) as u64))
        })
    }

    pub(crate) fn damaged_guard(&self) -> Option<String> {
        for (position, tensor) in self.list.iter().enumerate() {
            for (side, guard) in ["before", "after"].iter().zip(tensor.guards().ok()?) {
                if let Ok(Some(byte)) = guard.first_other_byte(guard_byte(position)) {
                    return Some(format!("{byte} bytes into the guard {side} `{}`", tensor.name));
                }
            }
        }
        None
    }
}

impl Inputs for DeviceTensors {
    fn numbers(&self, tensor: usize, start: usize, out: &mut [f64]) {
        if !self.list[tensor].runs(start, out, |view, place, out| view.read_f64(place, out).is_ok()) {
            out.fill(f64::NAN);
        }
    }

    fn codes(&self, tensor: usize, start: usize, out: &mut [u64]) {
        if !self.list[tensor].runs(start, out, |view, place, out| view.read_codes(place, out).is_ok()) {
            out.fill(u64::MAX);
        }
    }

    fn numbers_at(&self, tensor: usize, places: &[usize], out: &mut [f64]) {
        if !self.list[tensor].at(places, |mirror, places| mirror.read_f64_at(places, out).is_ok()) {
            out.fill(f64::NAN);
        }
    }

    fn codes_at(&self, tensor: usize, places: &[usize], out: &mut [u64]) {
        if !self.list[tensor].at(places, |mirror, places| mirror.read_codes_at(places, out).is_ok()) {
            out.fill(u64::MAX);
        }
    }

    fn matrices(&self) -> Option<&dyn Matrices> {
        self.sums.is_some().then_some(self)
    }
}

impl DeviceTensors {
    /// What the device makes sums of, for a matrix whose elements it reads.
    fn stored(&self, matrix: &Matrix) -> Option<(&Sums, DevicePtr, DType)> {
        let tensor = &self.list[matrix.tensor];
        let dtype = tensor.view.dtype();
        let sums = self.sums.as_deref().filter(|_| tensor.step == 1 && Sums::reads(dtype))?;
        Some((sums, tensor.view.device_pointer()?, dtype))
    }
}

impl Matrices for DeviceTensors {
    fn matrix_vector(&self, matrix: &Matrix, v: &[f64]) -> Option<(Vec<f64>, Vec<f64>)> {
        let (sums, data, dtype) = self.stored(matrix)?;
        sums.matrix_vector(data, dtype, matrix, v).ok()
    }

    fn product(&self, left: &Matrix, rows: &[usize], right: &Matrix, sums: &mut [f64], magnitudes: &mut [f64]) -> bool {
        let (Some((device, data, dtype)), Some((_, other, other_type))) = (self.stored(left), self.stored(right)) else {
            return false;
        };
        device.product((data, dtype, left), rows, (other, other_type, right), (sums, magnitudes)).is_ok()
    }
}
