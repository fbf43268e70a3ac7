//! A plan's tensors on a device: guarded on both sides, inputs mirrored on the host for the reference.
//!
//! An input of more than [`PERIOD`] random elements repeats its first [`PERIOD`]: the mirror is then small whatever the tensor is. The
//! period is eight times a prime, so a displacement by any stride that a kernel has shows.

use std::sync::Arc;

use rayon::prelude::*;
use tessera_driver::DevicePtr;
use tessera_ops::{Fill, Inputs, Matrices, Matrix, Plan, Role};
use tessera_runtime::{Device, RandomStream, Tensor};
use tessera_types::DType;

use super::sums::Sums;
use crate::case::{Fault, Lane, Place, Poison};
use crate::guarded::{Guarded, memory_fault};
use crate::library::{chunk, filled};
use crate::specials::plant;

/// Elements after which inputs repeat.
const PERIOD: usize = 8 * 1_048_573;

/// A tensor of the plan with what its elements are made of.
#[derive(Debug)]
struct Mirrored {
    guarded: Guarded,
    fill: Fill,
    step: usize,
    /// The first elements between the guards, for inputs, and for what is read and written as it is before a launch.
    mirror: Option<Tensor>,
}

/// A plan's tensors on a device.
#[derive(Debug)]
pub struct DeviceTensors {
    list: Vec<Mirrored>,
    sums: Option<Arc<Sums>>,
}

impl Mirrored {
    fn generate(&mut self, (seed, lane): (u64, Lane), fill: Fill) -> Result<(), Fault> {
        let (name, dtype, span) = (self.guarded.name(), self.guarded.view().dtype(), self.guarded.span());
        let period = if fill.is_of_one_piece() { span } else { span.min(PERIOD) };
        let most = chunk(fill, period);
        let mirror = match self.mirror.take() {
            Some(mirror) => mirror,
            None => Tensor::zeros(dtype, &[period]).map_err(memory_fault)?,
        };
        let starts: Vec<usize> = (0..period).step_by(most).collect();
        let made: Vec<_> = starts
            .par_iter()
            .enumerate()
            .map(|(chunk, start)| {
                let count = most.min(period - start);
                filled(RandomStream::named(seed, &format!("{name}.{chunk}")), dtype, count, fill)
            })
            .collect();
        for (start, values) in starts.into_iter().zip(made) {
            let part = mirror.slice(0, start..(start + most).min(period), 1);
            values.and_then(|values| part?.copy_from(&values)).map_err(memory_fault)?;
        }
        if lane == Lane::Special {
            plant(&mirror, self.guarded.name(), seed)?;
        }
        self.mirror = Some(mirror);
        self.restore()
    }

    /// Puts what was generated into its place again, where something was.
    fn restore(&self) -> Result<(), Fault> {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let (period, span) = (mirror.len(), self.guarded.span());
        self.guarded.inside(0..period)?.copy_from(mirror).map_err(memory_fault)?;
        let mut done = period;
        while done < span {
            let count = done.min(span - done);
            let source = self.guarded.inside(0..count)?;
            self.guarded.inside(done..done + count)?.copy_from(&source).map_err(memory_fault)?;
            done += count;
        }
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

impl Mirrored {
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
        let mut tensors = DeviceTensors { list: Vec::new(), sums };
        tensors.adapt(plan, device)?;
        Ok(tensors)
    }

    /// The tensors of another plan of the same problem: those that both have stay where they are, and keep what they hold.
    pub(crate) fn adapt(&mut self, plan: &Plan, device: &Device) -> Result<(), Fault> {
        let mut old = std::mem::take(&mut self.list).into_iter();
        for (position, spec) in plan.tensors.iter().enumerate() {
            let tensor = match old.next().filter(|tensor| tensor.guarded.is_of(spec)) {
                Some(tensor) => tensor,
                None => {
                    let guarded = Guarded::new(position, spec, device)?;
                    Mirrored { guarded, fill: spec.fill, step: spec.step, mirror: None }
                }
            };
            self.list.push(tensor);
        }
        Ok(())
    }

    /// Moves every tensor and keeps what it holds. Gives the old ones, which launches may still be bound to.
    pub(crate) fn relocate(&mut self, place: Place) -> Result<Vec<Guarded>, Fault> {
        let moved = self.list.iter().map(|tensor| tensor.guarded.moved(place)).collect::<Result<Vec<_>, _>>()?;
        let replaced = self.list.iter_mut().zip(moved).map(|(tensor, moved)| std::mem::replace(&mut tensor.guarded, moved));
        Ok(replaced.collect())
    }

    /// The tensor at a position of the plan, as a kernel takes it.
    pub fn view(&self, position: usize) -> &Tensor {
        self.list[position].guarded.view()
    }

    /// Where its first element is.
    pub fn pointer(&self, position: usize) -> DevicePtr {
        self.view(position).device_pointer().unwrap_or(DevicePtr(0))
    }

    /// Bytes of the device's second-level cache.
    pub(crate) fn l2_bytes(&self) -> u64 {
        match self.list.first().map(|tensor| tensor.guarded.view().device()) {
            Some(Device::Driver(device)) => device.properties().l2_bytes,
            _ => 0,
        }
    }

    pub(crate) fn refresh(&mut self, seed: u64, lane: Lane) -> Result<(), Fault> {
        for tensor in &mut self.list {
            if matches!(tensor.guarded.role(), Role::Input | Role::InOut) {
                let fill = match lane {
                    Lane::Case | Lane::Special => tensor.fill,
                    Lane::Exact => tensor.fill.exact(),
                };
                tensor.generate((seed, lane), fill)?;
            }
        }
        Ok(())
    }

    pub(crate) fn poison(&self, poison: Poison) -> Result<(), Fault> {
        self.list.iter().try_for_each(|tensor| match tensor.guarded.role() {
            Role::InOut => tensor.restore(),
            Role::Input | Role::Output | Role::Workspace | Role::Counter => tensor.guarded.poison(poison),
        })
    }

    /// Codes of elements of a tensor, read from the device.
    pub(crate) fn read(&self, position: usize, start: usize, codes: &mut [u64]) -> Result<(), Fault> {
        let tensor = &self.list[position];
        tensor.guarded.read(tensor.step, start, codes)
    }

    /// Memory whose digest stands for tensors of a role; tensors with gaps are left out where gaps are not written.
    pub(crate) fn digested(&self, roles: &[Role], with_gaps: bool) -> impl Iterator<Item = (DevicePtr, u64)> {
        let is_chosen = move |tensor: &&Mirrored| roles.contains(&tensor.guarded.role()) && (with_gaps || tensor.step == 1);
        let chosen = self.list.iter().filter(is_chosen).map(|tensor| &tensor.guarded);
        chosen.filter_map(|guarded| Some((guarded.view().device_pointer()?, guarded.words())))
    }

    pub(crate) fn damaged_guard(&self) -> Option<String> {
        self.list.iter().find_map(|tensor| tensor.guarded.damage())
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
        let view = tensor.guarded.view();
        let dtype = view.dtype();
        let sums = self.sums.as_deref().filter(|_| tensor.step == 1 && Sums::reads(dtype))?;
        Some((sums, view.device_pointer()?, dtype))
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
