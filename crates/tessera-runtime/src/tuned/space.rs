//! What a kernel can choose among.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use rayon::prelude::*;
use tessera_compile::{Choices, CompileOptions, OptLevel, PossiblePlan};
use tessera_lang::ArgType;
use tessera_launch::LaunchGrid;

use crate::device::{Device, DriverDevice};
use crate::kernel::{Kernel, KernelError};
use crate::knobs::Knobs;
use crate::tensor::Tensor;
use crate::value::Value;

/// Choices by name.
pub(crate) type Config = BTreeMap<String, i64>;

/// A point of a space, and the plan that the compiler would choose there.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Choices by name.
    pub config: BTreeMap<String, i64>,
    /// The plan, where something of the kernel is planned.
    pub plan: Option<PossiblePlan>,
}

impl Point {
    fn time(&self) -> f64 {
        self.plan.as_ref().and_then(|plan| plan.time).map_or(f64::INFINITY, |time| time.clocks)
    }
}

fn sizes<'a>(args: &'a [(&str, Value)]) -> Vec<&'a [usize]> {
    let tensors = |value: &'a Value| match value {
        Value::Tensor(tensor) => std::slice::from_ref(tensor),
        Value::List(items) => items,
        _ => &[],
    };
    args.iter().flat_map(|(_, value)| tensors(value)).map(Tensor::shape).collect()
}

impl Kernel {
    /// What the kernel can choose among for arguments of these types. A choice that changes nothing in the kernel is left out.
    ///
    /// # Errors
    /// Where the kernel does not take the arguments, or its space is not understood.
    pub fn choices(&self, types: &[(String, ArgType)], options: &CompileOptions) -> Result<Choices, KernelError> {
        self.origin.choices(self.name(), types, options).map_err(|found| self.rejected(found))
    }

    /// The points of the kernel's space with the plan that the compiler would choose for each, and what a launch under it should take on a
    /// product: those first that should take least. Where the model says nothing, they are in the space's order.
    ///
    /// # Errors
    /// Where the kernel does not take the arguments, or its space is not understood.
    pub fn ranked_points(
        &self,
        args: &[(&str, Value)],
        grid: impl Into<LaunchGrid>,
        options: &CompileOptions,
        product: &tessera_types::Device,
    ) -> Result<(Vec<Point>, Choices), KernelError> {
        let target = options.target.clone().or_else(|| Some(product.arch.name().to_owned()));
        // The choice is that of the whole compiler, so that every level of it computes the same.
        let options = CompileOptions { target, searched: true, level: OptLevel::O3, ..options.clone() };
        let choices = self.choices(&self.argument_types(args)?, &options)?;
        let grid = grid.into();
        let known = |config: &Config| {
            let options = CompileOptions { config: config.clone().into_iter().collect(), ..options.clone() };
            // A point that does not compile says so when it is tried.
            let plan = self.own_plan(args, grid, &options, product).ok().flatten();
            Point { config: config.clone(), plan }
        };
        let first = choices.points.first().map(known);
        let has_time = first.as_ref().is_some_and(|first| first.time().is_finite());
        let rest = choices.points.get(1..).unwrap_or_default();
        let rest: Vec<Point> = match has_time {
            true => rest.par_iter().map(known).collect(),
            false => rest.iter().map(|config| Point { config: config.clone(), plan: None }).collect(),
        };
        let mut points: Vec<Point> = first.into_iter().chain(rest).collect();
        points.sort_by(|a, b| a.time().total_cmp(&b.time()));
        Ok((points, choices))
    }

    /// Options with what is taken where nobody has chosen: on a GPU the point of the kernel's space that should take least.
    pub(crate) fn first_choice<'o>(
        &self,
        args: &[(&str, Value)],
        grid: LaunchGrid,
        options: Cow<'o, CompileOptions>,
        device: &Device,
    ) -> Result<Cow<'o, CompileOptions>, KernelError> {
        let Some(product) = device.driver().and_then(DriverDevice::product) else { return Ok(options) };
        let is_open = options.config.is_empty() && options.plan.is_none() && options.block.is_none() && !options.searched;
        if !is_open || self.origin.space(self.name()).map_err(|found| self.rejected(found))?.is_none() {
            return Ok(options);
        }
        let types = self.argument_types(args)?;
        let asked = format!("{types:?}{:?}{grid:?}{options:?}{}", sizes(args), product.name);
        let asked = *blake3::hash(asked.as_bytes()).as_bytes();
        let known = || self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = known().get(&asked).cloned();
        let config = match earlier {
            Some(config) => config,
            None => {
                let (points, _) = self.ranked_points(args, grid, &options, product)?;
                let config = points.into_iter().next().map(|point| point.config).unwrap_or_default();
                known().insert(asked, config.clone());
                config
            }
        };
        Ok(Cow::Owned(CompileOptions { searched: true, config: config.into_iter().collect(), ..options.into_owned() }))
    }

    /// Whether anything of the kernel can be chosen on a device: a point of its space, or on a GPU the plan or the hints of a block program.
    ///
    /// # Errors
    /// Where its space is not understood.
    pub fn has_choice(&self, device: &Device) -> Result<bool, KernelError> {
        self.has_choice_where(device.is_cpu())
    }

    pub(super) fn has_choice_where(&self, is_cpu: bool) -> Result<bool, KernelError> {
        let has_space = self.origin.space(self.name()).map_err(|found| self.rejected(found))?.is_some();
        Ok(has_space || !is_cpu && self.origin.is_of_blocks(self.name()))
    }

    /// Whether choices are its decorator's options where it has no space: it is a block program in the kernel language.
    pub fn takes_hints(&self) -> bool {
        self.origin.takes_hints(self.name())
    }

    /// The plan that the compiler would choose for a launch on a product, with what the launch should take.
    pub fn own_plan(
        &self,
        args: &[(&str, Value)],
        grid: impl Into<LaunchGrid>,
        options: &CompileOptions,
        device: &tessera_types::Device,
    ) -> Result<Option<PossiblePlan>, KernelError> {
        let (compiled, launch) = self.known_launch(args, grid.into(), options, device)?;
        tessera_compile::own_plan(&compiled, device, compiled.level, &launch).map_err(|found| self.rejected(found))
    }

    /// The lockfile that the decorator's `cache` names: a path from the kernel's file on, or from the user's folder (`~/`).
    ///
    /// # Errors
    /// Where the space is not understood, or the user's folder is not known.
    pub fn cache(&self) -> Result<Option<PathBuf>, KernelError> {
        let space = self.origin.space(self.name()).map_err(|found| self.rejected(found))?;
        let Some(text) = space.and_then(|space| space.cache) else { return Ok(None) };
        let Some(rest) = text.strip_prefix("~/") else {
            let folder = Path::new(self.origin.file_name()).parent().unwrap_or(Path::new(""));
            return Ok(Some(folder.join(text)));
        };
        let home = Knobs::from_env().ok().and_then(|knobs| knobs.home).ok_or_else(|| KernelError::Io {
            path: text.clone(),
            error: std::io::Error::new(std::io::ErrorKind::NotFound, "`HOME` is not set"),
        })?;
        Ok(Some(home.join(rest)))
    }
}
