//! Loaded modules: kernels that are translated on first use, and variables in memory.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use tessera_driver::DevicePtr;
use tessera_ptx::{Function, FunctionKind, Initial, Item, Name, Space, Type, Variable};

use crate::decode;
use crate::emulator::Emulator;
use crate::program::Program;
use crate::report::EmuError;
use crate::texture::{Outside, Sampler};

/// A loaded module: its kernels are translated when they are first asked for.
pub struct Module {
    parsed: tessera_ptx::Module,
    globals: BTreeMap<Name, u64>,
    files: BTreeMap<u32, String>,
    programs: BTreeMap<String, OnceLock<Result<Program, decode::Refusal>>>,
}

/// Whether a variable of the module has memory of its own.
fn in_memory(variable: &Variable) -> bool {
    matches!(variable.space, Space::Global | Space::Const)
}

impl Module {
    /// Parses a module and allocates its variables.
    pub(crate) fn load(emulator: &Emulator, text: &str) -> Result<Module, EmuError> {
        let parsed = tessera_ptx::parse(text)?;
        if let Some(problem) = tessera_ptx::check(&parsed).into_iter().next() {
            return Err(EmuError::Parse(problem));
        }
        emulator.runs(parsed.target)?;
        let mut module = Module { parsed, globals: BTreeMap::new(), files: BTreeMap::new(), programs: BTreeMap::new() };
        let mut variables = Vec::new();
        for item in &module.parsed.items {
            match item {
                // What is declared and defined is one variable.
                Item::Variable(variable) if in_memory(variable) => {
                    let at = match module.globals.get(&variable.name) {
                        Some(&at) if variable.initial.is_empty() => DevicePtr(at),
                        _ => emulator.alloc(bytes_of(variable)?)?,
                    };
                    module.globals.insert(variable.name.clone(), at.0);
                    variables.push((variable, at));
                }
                Item::Function(Function { kind: FunctionKind::Entry, name, body: Some(_), .. }) => {
                    module.programs.insert(name.to_string(), OnceLock::new());
                }
                Item::File { index, path } => {
                    module.files.insert(*index, path.clone());
                }
                Item::Variable(_) | Item::Function(_) | Item::Section { .. } | Item::Pragma(_) | Item::Alias { .. } => {}
            }
        }
        for (variable, at) in variables {
            let bytes = match variable.ty {
                Type::Samplerref => emulator.sampler(&sampler(variable)?).to_le_bytes().to_vec(),
                _ => initial(variable, &module),
            };
            emulator.write(at, &bytes)?;
            // What has no initial value is zero.
            emulator.assume_written(at);
        }
        Ok(module)
    }

    /// The kernels' names.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.programs.keys().map(String::as_str)
    }

    /// The PTX version and target that the module says.
    pub fn header(&self) -> (tessera_ptx::PtxVersion, tessera_ptx::Target) {
        (self.parsed.version, self.parsed.target)
    }

    pub(crate) fn program(&self, name: &str) -> Result<&Program, EmuError> {
        let Some(cell) = self.programs.get(name) else {
            return Err(EmuError::Launch(format!("the module has no kernel `{name}`")));
        };
        let entry = self.parsed.functions().find(|function| &*function.name.0 == name);
        let translated = cell.get_or_init(|| match entry {
            Some(entry) => decode::translate(&self.parsed, &self.globals, entry),
            None => Err(decode::Refusal { line: 0, message: "the kernel has no body".to_owned() }),
        });
        translated.as_ref().map_err(|refusal| EmuError::Unsupported {
            kernel: name.to_owned(),
            line: refusal.line,
            message: refusal.message.clone(),
        })
    }

    /// The parameters of a kernel, in order.
    ///
    /// # Errors
    /// The module has no such kernel, or it uses something that is not executed.
    pub fn parameters(&self, kernel: &str) -> Result<Vec<Parameter>, EmuError> {
        let program = self.program(kernel)?;
        let declared = self.parsed.functions().find(|function| &*function.name.0 == kernel);
        let names = declared.into_iter().flat_map(|function| &function.params);
        let rows = names.zip(&program.params).map(|(variable, slot)| Parameter {
            name: variable.name.to_string(),
            bytes: slot.bytes,
            ty: variable.ty.name(),
        });
        Ok(rows.collect())
    }

    /// Source files by their numbers.
    pub(crate) fn files(&self) -> &BTreeMap<u32, String> {
        &self.files
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.globals.values().copied()
    }

    /// The module's variables in global and constant memory, in the order of their names.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        let known = |variable: &&Variable| self.globals.contains_key(&variable.name);
        let items = self.parsed.items.iter().filter_map(|item| match item {
            Item::Variable(variable) if in_memory(variable) => Some(variable),
            _ => None,
        });
        items.filter(known)
    }

    /// Where a variable of the module is.
    pub fn variable(&self, name: &str) -> Option<DevicePtr> {
        self.globals.get(&Name::from(name)).copied().map(DevicePtr)
    }
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the text.
    pub name: String,
    /// Its element type as PTX names it, such as `u64`.
    pub ty: &'static str,
    /// Its size; a pointer has 8 bytes, a tensor map 128.
    pub bytes: u32,
}

/// Bytes of a variable; an array without an extent has as many elements as initial values.
fn bytes_of(variable: &Variable) -> Result<u64, EmuError> {
    let bytes = decode::layout(variable).map(|(bytes, _)| bytes);
    let bytes = bytes.ok_or_else(|| EmuError::Memory(format!("`{}` is too large", variable.name)))?;
    Ok(bytes.max(u64::from(variable.ty.bits().div_ceil(8)) * variable.initial.len() as u64))
}

/// The sampler that a `.samplerref` variable's properties make ("Texture Sampler and Surface Types").
fn sampler(variable: &Variable) -> Result<Sampler, EmuError> {
    let mut sampler = Sampler { normalized: true, ..Sampler::default() };
    for value in &variable.initial {
        let Initial::Property(name, value) = value else { continue };
        let outside = || match &*value.0 {
            "wrap" => Some(Outside::Wrap),
            "mirror" => Some(Outside::Mirror),
            "clamp_ogl" | "clamp_to_edge" => Some(Outside::Clamp),
            "clamp_to_border" => Some(Outside::Border),
            _ => None,
        };
        let known = match &*name.0 {
            "addr_mode_0" => outside().map(|outside| sampler.outside[0] = outside),
            "addr_mode_1" => outside().map(|outside| sampler.outside[1] = outside),
            "addr_mode_2" => outside().map(|outside| sampler.outside[2] = outside),
            "filter_mode" => matches!(&*value.0, "nearest" | "linear").then(|| sampler.linear = &*value.0 == "linear"),
            "force_unnormalized_coords" => matches!(&*value.0, "0" | "1").then(|| sampler.normalized = &*value.0 == "0"),
            _ => None,
        };
        known.ok_or_else(|| EmuError::Memory(format!("`{}`: a sampler has no `{name} = {value}`", variable.name)))?;
    }
    Ok(sampler)
}

/// The bytes that a variable's initial values give.
fn initial(variable: &Variable, module: &Module) -> Vec<u8> {
    let address = |name: &Name, offset: i64| {
        let function = |item: &Item| matches!(item, Item::Function(found) if found.name == *name && found.body.is_some());
        let variable = module.globals.get(name).copied();
        let function = || module.parsed.items.iter().position(function).map(decode::function_address);
        variable.or_else(function).unwrap_or(0).wrapping_add(offset as u64)
    };
    let float = |value: f64| match variable.ty {
        Type::F32 => u64::from((value as f32).to_bits()),
        _ => value.to_bits(),
    };
    let width = (variable.ty.bits().div_ceil(8) as usize).clamp(1, 16);
    let mut memory = Vec::with_capacity(width * variable.initial.len());
    for value in &variable.initial {
        let word: u128 = match value {
            Initial::Int(value) => *value as i128 as u128,
            Initial::F32(bits) if variable.ty == Type::F64 => float(f64::from(f32::from_bits(*bits))).into(),
            Initial::F32(bits) => (*bits).into(),
            Initial::F64(bits) => float(f64::from_bits(*bits)).into(),
            Initial::Address(name, offset) => address(name, *offset).into(),
            Initial::AddressByte(name, offset, byte) => (address(name, *offset) >> (8 * byte) & 0xff).into(),
            Initial::Property(..) => continue,
        };
        memory.extend(&word.to_le_bytes()[..width]);
    }
    memory
}
