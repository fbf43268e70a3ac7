//! From a plan to launches: its kernels with tensors in their places.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use tessera_runtime::{CompileOptions, Device, Kernel, KernelError, Lock, Placed, PreparedLaunch, Tensor, Value};
use tessera_types::{Arch, DType};

use crate::operator::{Argument, KernelFile, LaunchSpec, Machine, Operator, Plan};
use crate::shared::SharedFiles;

impl Machine {
    /// The kind of machine that a device is.
    pub fn of(device: &Device) -> Machine {
        match device {
            Device::Cpu => Machine::Cpu,
            // What is newer than the list has at least what the oldest with these recipes has.
            Device::Driver(device) => Machine::Gpu(device.properties().target().parse().unwrap_or(Arch::Sm80)),
        }
    }
}

impl Plan {
    /// The kernel of each launch, of the operator's file and of this one from a source text; `file` names it in messages.
    pub fn kernels(&self, file: &str, text: &str) -> Result<Vec<Kernel>, KernelError> {
        let kernel = |launch: &LaunchSpec| match launch.file.filter(|own| own.name != file) {
            Some(own) => own.kernel(launch.kernel),
            None => Kernel::from_project(file, text, launch.kernel, &SharedFiles),
        };
        self.launches.iter().map(kernel).collect()
    }

    /// Compiles the launches, or finds them compiled, for the tensors that `tensor` has in the plan's places.
    pub fn prepare(
        &self,
        kernels: &[Kernel],
        tensor: impl Fn(usize) -> Tensor,
        options: &CompileOptions,
        device: &Device,
    ) -> Result<Vec<PreparedLaunch>, KernelError> {
        let prepared = |(launch, kernel): (&LaunchSpec, &Kernel)| {
            kernel.prepare(&launch.values(&tensor), launch.grid, &launch.options(options), device)
        };
        self.launches.iter().zip(kernels).map(prepared).collect()
    }
}

impl KernelFile {
    /// The kernel of a name in this file.
    pub fn kernel(self, name: &str) -> Result<Kernel, KernelError> {
        Kernel::from_project(self.name, self.text, name, &SharedFiles)
    }
}

impl LaunchSpec {
    /// The arguments, with the tensors that `tensor` has in the plan's places.
    pub fn values(&self, tensor: impl Fn(usize) -> Tensor) -> Vec<(&'static str, Value)> {
        let values = self.values_of(|position| Ok::<_, Infallible>(tensor(position)));
        values.unwrap_or_else(|never| match never {})
    }

    /// The same with arrays that there may not be. A kernel of 64-bit floats takes its numbers in as many bits.
    pub(crate) fn values_of<A: Placed, E>(
        &self,
        array: impl Fn(usize) -> Result<A, E>,
    ) -> Result<Vec<(&'static str, Value<A>)>, E> {
        let mut wide = false;
        for (_, argument) in &self.arguments {
            if let Argument::Tensor(position) = *argument {
                wide |= array(position)?.dtype() == DType::F64;
            }
        }
        let value = |argument: Argument| {
            Ok(match argument {
                Argument::Tensor(position) => Value::Tensor(array(position)?),
                Argument::Int(value) => Value::Int(value),
                Argument::Float(value) if wide => Value::Double(value),
                Argument::Float(value) => Value::Float(value),
                Argument::Bool(value) => Value::Bool(value),
                Argument::Type(dtype) => Value::DType(dtype),
                Argument::Word(word) => Value::Str(word.to_string()),
            })
        };
        self.arguments.iter().map(|(name, argument)| Ok((*name, value(*argument)?))).collect()
    }

    /// The caller's options with what the operator asks of this launch.
    pub fn options(&self, options: &CompileOptions) -> CompileOptions {
        let &LaunchSpec { sharing, cluster, clusters, warps, resident, threads, .. } = self;
        CompileOptions {
            sharing: Some(sharing),
            cluster,
            clusters,
            warps,
            resident,
            block: threads.or(options.block),
            ..options.clone()
        }
    }
}

/// Kernels of the library that were asked for, by the names of their file and their own: each is read once.
static READ: Mutex<Vec<(&str, &str, Kernel)>> = Mutex::new(Vec::new());

impl Operator {
    /// The file that the kernel of a launch stands in.
    pub fn file_of(&self, launch: &LaunchSpec) -> KernelFile {
        launch.file.unwrap_or(KernelFile { name: self.file, text: self.source })
    }

    /// The kernel of each launch of a plan of this operator's, with choices from a lockfile.
    pub fn kernels(&self, plan: &Plan, lock: Option<&Arc<Lock>>) -> Result<Vec<Kernel>, KernelError> {
        let kernel = |launch: &LaunchSpec| -> Result<Kernel, KernelError> {
            // Every change leaves the list whole, so a panic elsewhere does not spoil it.
            let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
            let file = self.file_of(launch);
            if let Some((.., kernel)) = read.iter().find(|(own, name, _)| (*own, *name) == (file.name, launch.kernel)) {
                return Ok(kernel.clone());
            }
            let kernel = file.kernel(launch.kernel)?;
            read.push((file.name, launch.kernel, kernel.clone()));
            Ok(kernel)
        };
        let with_lock = |kernel: Kernel| if let Some(lock) = lock { kernel.with_lock(Arc::clone(lock)) } else { kernel };
        plan.launches.iter().map(|launch| Ok(with_lock(kernel(launch)?))).collect()
    }
}
