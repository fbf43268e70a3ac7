//! A call on a GPU that is made again with other arrays of the same forms: what was planned and packed stays, addresses change.

use tessera_runtime::{Change, CompileOptions, Device, Later, Often, Placed, StreamHandle, Tensor};

use crate::call::{CallError, Resolved};
use crate::operator::Argument;

/// Where a call's array comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The input, or the given result, of this name, which lay at this address.
    Given(&'static str, u64),
    /// The result of this number, which the caller makes.
    Result(usize),
}

/// The launches of a call, packed.
#[derive(Debug)]
pub struct Repeated {
    launches: Vec<Packed>,
    /// Of the plan's tensors, in order.
    sources: Vec<Source>,
}

#[derive(Debug)]
struct Packed {
    launch: Often,
    /// Names of the parameters that are arrays, and their tensors.
    arrays: Vec<(&'static str, usize)>,
}

impl Resolved {
    /// Packs the launches that write these arrays, to queue them again and again. None off the devices of a driver, and for calls with memory of
    /// their own, which a launch that is under way still uses.
    ///
    /// # Errors
    /// Those of [`Resolved::prepare`].
    pub fn prepare_often(&self, outputs: &[Tensor], options: &CompileOptions) -> Result<Option<Repeated>, CallError> {
        let Device::Driver(device) = self.device() else { return Ok(None) };
        let Some(sources) = self.sources() else { return Ok(None) };
        let tensors = self.tensors(outputs)?;
        let kernels = self.kernels()?;
        let mut launches = Vec::new();
        for (spec, kernel) in self.plan.launches.iter().zip(&kernels) {
            let values = spec.values(|position| tensors[position].clone());
            let launch = kernel.prepare_often(&values, (spec.grid.into(), Later::Alike), &spec.options(options), device)?;
            if launch.prepared.launch().owns_memory() {
                return Ok(None);
            }
            let arrays = spec.arguments.iter().filter_map(|&(name, argument)| match argument {
                Argument::Tensor(position) => Some((name, position)),
                _ => None,
            });
            launches.push(Packed { launch, arrays: arrays.collect() });
        }
        Ok(Some(Repeated { launches, sources }))
    }

    /// Where each of the plan's tensors comes from; none where the call makes one itself.
    fn sources(&self) -> Option<Vec<Source>> {
        let plan = self.plan.tensors.iter().zip(&self.given).enumerate();
        plan.map(|(position, (spec, given))| match given {
            Some(tensor) => Some(Source::Given(spec.name, tensor.start())),
            None => self.outputs().iter().position(|output| output.is_at(position)).map(Source::Result),
        })
        .collect()
    }
}

impl Repeated {
    /// Where each of its arrays comes from.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Queues the launches on a stream, for arrays at these addresses, which have the forms of those that it was packed with.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn enqueue(&self, stream: StreamHandle, address: impl Fn(Source) -> u64) -> Result<(), CallError> {
        let addresses: Vec<u64> = self.sources.iter().map(|&source| address(source)).collect();
        for Packed { launch, arrays } in &self.launches {
            let changes: Vec<(&str, Change)> = arrays.iter().map(|&(name, at)| (name, Change::Address(addresses[at]))).collect();
            launch.prepared.again(stream, &changes).map_err(|error| CallError::from(launch.refused(error)))?;
        }
        Ok(())
    }
}
