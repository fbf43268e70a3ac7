//! What a kernel can choose among.

use std::path::{Path, PathBuf};

use tessera_compile::{Choices, CompileOptions, PossiblePlan};
use tessera_lang::ArgType;

use crate::kernel::{Kernel, KernelError, LaunchGrid};
use crate::knobs::Knobs;
use crate::value::Value;

impl Kernel {
    /// What the kernel can choose among for arguments of these types. A choice that changes nothing in the kernel is left out.
    ///
    /// # Errors
    /// Where the kernel does not take the arguments, or its space is not understood.
    pub fn choices(&self, types: &[(String, ArgType)], options: &CompileOptions) -> Result<Choices, KernelError> {
        self.origin.choices(self.name(), types, options).map_err(|found| self.rejected(found))
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
        tessera_compile::own_plan(&compiled, device, options.level, &launch).map_err(|found| self.rejected(found))
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
