//! `tessera emu`: one kernel of a PTX file on the emulator, with arguments by position.

use serde_json::json;
use tessera::driver::{DevicePtr, Dim3, L2Promotion, OutOfBounds, Params, Swizzle, TensorMapSpec};
use tessera::emu::{EmuError, Emulator, LaunchOptions, Launched, Parameter, Sanitize};
use tessera::ir::SourceMap;
use tessera::lang::ConstValue;
use tessera::runtime::argspec::{self, Fill, Value};
use tessera::runtime::{Tensor, npy};

use crate::arguments::Emu;
use crate::command::emulation::{how, options, refuse_idle_trace, refuse_unused_seed};
use crate::command::findings::Judge;
use crate::command::launch::time_limit;
use crate::failure::{Failure, Outcome, read_text};
use crate::finding::Spot;

/// An array of the launch.
struct Array {
    name: String,
    at: DevicePtr,
    before: Tensor,
}

pub(crate) fn emu(arguments: Emu) -> Outcome {
    refuse_unused_seed(&arguments.emulation, arguments.seed)?;
    let machine = options(&arguments.emulation, time_limit(&arguments.patience)?, arguments.seed.unwrap_or_default())?;
    let emulator = Emulator::new(&machine).map_err(Failure::environment)?;
    let module = emulator.load(&read_text(&arguments.file)?).map_err(|error| not_taken(&arguments.file, &error))?;
    let kernels: Vec<&str> = module.kernels().collect();
    let entry = match (&arguments.entry, kernels.as_slice()) {
        (Some(name), _) => name.as_str(),
        (None, [only]) => only,
        (None, _) => return Err(Failure::usage(format!("`--entry NAME` is missing: one of {}", kernels.join(", ")))),
    };
    let parameters = module.parameters(entry).map_err(Failure::usage)?;
    let mut launch = Launch { emulator: &emulator, arrays: Vec::new(), params: Params::new() };
    if arguments.arguments.len() != parameters.len() {
        let wanted: Vec<String> = parameters.iter().map(|p| format!("{} (.{}, {} bytes)", p.name, p.ty, p.bytes)).collect();
        return Err(Failure::usage(format!(
            "{} arguments for {} parameters of `{entry}`: {}",
            arguments.arguments.len(),
            parameters.len(),
            wanted.join(", ")
        )));
    }
    for (text, parameter) in arguments.arguments.iter().zip(&parameters) {
        launch.argument(text, parameter)?;
    }
    let saves = arguments.save.iter().map(|text| match text.split_once('=') {
        Some((name, path)) => launch.array(name).map(|at| (at, path)),
        None => Err(Failure::usage(format!("`--save {text}`\nhelp: write `--save NAME=FILE.npy`"))),
    });
    let saves = saves.collect::<Result<Vec<_>, Failure>>()?;
    let (grid, block) = (extents("--grid", &arguments.grid)?, extents("--block", &arguments.block)?);
    let cluster = arguments.cluster.as_deref().map(|text| extents("--cluster", text)).transpose()?;
    let judge = Judge::new(&machine.launch, &arguments.emulation);
    let how_to = LaunchOptions { cluster, shared_bytes: arguments.shared, ..machine.launch.clone() };

    let (report, finished) = match emulator.launch(&module, entry, grid, block, &launch.params, &how_to) {
        Ok(report) => (report, true),
        Err(EmuError::Fault { report, .. }) => (*report, false),
        Err(error) => return Err(Failure::usage(error)),
    };
    let launched = [Launched {
        kernel: entry.to_string(),
        grid: [grid.x, grid.y, grid.z],
        block: [block.x, block.y, block.z],
        schedule: how_to.schedule,
        seed: how_to.seed,
        finished,
        report,
    }];
    for (index, path) in &saves {
        npy::write(path, &launch.after(&launch.arrays[*index])?).map_err(Failure::environment)?;
    }
    if finished {
        refuse_idle_trace(&arguments.emulation, &launched)?;
    }
    if arguments.json {
        let mut object = judge.json(&launched);
        object.insert("file".to_owned(), json!(arguments.file));
        object.insert("device".to_owned(), json!(emulator.device().name));
        // Without `.loc` the text itself is the source.
        for list in ["findings", "suppressed"] {
            for finding in object.get_mut(list).and_then(|list| list.as_array_mut()).into_iter().flatten() {
                name_file(finding, &arguments.file);
            }
        }
        let verdict = judge.silent_verdict(&launched);
        object.insert("command".to_owned(), json!("emu"));
        object.insert("exit".to_owned(), json!(verdict.as_ref().map_or_else(|failure| failure.exit, |()| 0)));
        println!("{}", json!(object));
        return verdict;
    }
    let report = &launched[0].report;
    print!("{}", report.output);
    println!(
        "{entry} on {} (emulated), {}: {} thread-instructions{}",
        emulator.device().name,
        how(&how_to),
        report.instructions,
        if finished && report.findings.is_empty() && how_to.sanitize != Sanitize::NONE { ", nothing found" } else { "" }
    );
    for array in &launch.arrays {
        let after = launch.after(array)?;
        let changed = after.to_bytes().map_err(Failure::environment)? != array.before.to_bytes().map_err(Failure::environment)?;
        if changed {
            let elements = super::run::first_elements(&after)?;
            println!("  {}: {}{:?} = {elements}", array.name, after.dtype(), after.shape());
        }
    }
    judge.tell(&launched)
}

/// Why a file is not what is executed, and where in it.
fn not_taken(file: &str, error: &EmuError) -> Failure {
    let failure = Failure::usage(format!("`{file}`: {error}"));
    let EmuError::Parse(at) = error else { return failure };
    failure.at(Spot { file: file.to_string(), line: at.line as usize, column: at.column as usize })
}

/// Gives a finding and what it conflicts with the PTX file as their file, where `.loc` names none.
fn name_file(finding: &mut serde_json::Value, path: &str) {
    if let Some(earlier) = finding.get_mut("earlier").filter(|earlier| !earlier.is_null()) {
        name_file(earlier, path);
    }
    if finding["file"].is_null() {
        finding["file"] = json!(path);
        finding["line"] = finding["ptx_line"].clone();
    }
}

/// A launch whose arguments are being made.
struct Launch<'a> {
    emulator: &'a Emulator,
    arrays: Vec<Array>,
    params: Params,
}

impl Launch<'_> {
    fn argument(&mut self, text: &str, parameter: &Parameter) -> Outcome {
        let params = std::mem::take(&mut self.params);
        if let Some(inside) = text.strip_prefix("map(").and_then(|rest| rest.strip_suffix(')')) {
            let map = self.tensor_map(inside, parameter)?;
            self.params = params.aligned(&map, 64);
            return Ok(());
        }
        let (name, value) = self.value(text, &parameter.name)?;
        let wrong = |what: &str| Failure::usage(format!("`{text}` for `{}`: {what}", parameter.name));
        let bytes = match value {
            Made::Array(index) if parameter.bytes == 8 => self.arrays[index].at.0.to_le_bytes().to_vec(),
            Made::Array(_) => return Err(wrong(&format!("an array for a parameter of {} bytes", parameter.bytes))),
            Made::Number(value) => {
                number(&value, parameter).ok_or_else(|| wrong(&format!("`{name}` is no .{}", parameter.ty)))?
            }
        };
        self.params = params.aligned(&bytes, bytes.len());
        Ok(())
    }

    /// Reads an argument's value; an array is put on the device.
    fn value(&mut self, text: &str, default: &str) -> Result<(String, Made), Failure> {
        let is_named = text
            .split_once('=')
            .is_some_and(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
        // The argument grammar wants a name that is one.
        let plain: String = default.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let named = if is_named { text.to_string() } else { format!("{plain}={text}") };
        let mut sources = SourceMap::default();
        let argument = argspec::parse(&mut sources, &named).map_err(|error| Failure::diagnostics(&[*error], &sources))?;
        let is_empty = matches!(&argument.value, Value::Made(made) if made.fill == Fill::Empty);
        let loaded = argument.value.load(&argument.name).map_err(Failure::environment)?;
        let made = match (loaded, argument.value) {
            (tessera::runtime::Value::Tensor(tensor), _) => {
                let bytes = tensor.to_bytes().map_err(Failure::environment)?;
                let at = self.emulator.alloc(bytes.len() as u64).map_err(Failure::environment)?;
                // What is to be written by the kernel counts as not written before.
                let before =
                    if is_empty { Tensor::from_bytes(tensor.dtype(), tensor.shape(), &vec![0; bytes.len()]) } else { Ok(tensor) };
                if !is_empty {
                    self.emulator.write(at, &bytes).map_err(Failure::environment)?;
                }
                self.arrays.push(Array { name: argument.name.clone(), at, before: before.map_err(Failure::environment)? });
                Made::Array(self.arrays.len() - 1)
            }
            (_, Value::Plain(value)) => Made::Number(value),
            _ => return Err(Failure::usage(format!("`{text}` is neither an array nor a number"))),
        };
        Ok((argument.name, made))
    }

    /// `ARRAY;tile=64,128;swizzle=128`: the array is given here or named.
    fn tensor_map(&mut self, text: &str, parameter: &Parameter) -> Result<Vec<u8>, Failure> {
        let usage =
            |why: String| Failure::usage(format!("`map({text})`: {why}\nhelp: write `map(ARRAY;tile=INNER,...;swizzle=BYTES)`"));
        let mut parts = text.split(';');
        let source = parts.next().unwrap_or_default();
        let index = match self.arrays.iter().position(|array| array.name == source) {
            Some(index) => index,
            None => match self.value(source, &parameter.name)? {
                (_, Made::Array(index)) => index,
                (_, Made::Number(_)) => return Err(usage("a map is over an array".to_string())),
            },
        };
        let (mut tile, mut swizzle) = (Vec::new(), Swizzle::None);
        for part in parts {
            match part.split_once('=') {
                Some(("tile", list)) => {
                    let sizes: Option<Vec<u32>> = list.split(',').map(|size| size.parse().ok()).collect();
                    tile = sizes.ok_or_else(|| usage(format!("`{list}` is no tile")))?;
                }
                Some(("swizzle", bytes)) => {
                    swizzle = match bytes {
                        "0" => Swizzle::None,
                        "32" => Swizzle::B32,
                        "64" => Swizzle::B64,
                        "128" => Swizzle::B128,
                        other => return Err(usage(format!("`{other}` is no swizzle: 0, 32, 64 or 128"))),
                    };
                }
                _ => return Err(usage(format!("`{part}` is neither a tile nor a swizzle"))),
            }
        }
        let array = &self.arrays[index];
        let dtype = array.before.dtype();
        // The inner dimension is the first of a map.
        let extents: Vec<u64> = array.before.shape().iter().rev().map(|&extent| extent as u64).collect();
        let strides = extents.iter().scan(u64::from(dtype.bits() / 8), |bytes, extent| {
            *bytes *= extent;
            Some(*bytes)
        });
        let strides = strides.take(extents.len().saturating_sub(1)).collect();
        let (l2, outside) = (L2Promotion::None, OutOfBounds::Zero);
        let spec = TensorMapSpec { dtype, address: array.at, extents, strides, tile, swizzle, l2, outside };
        Emulator::tensor_map(&spec).map(|map| map.to_vec()).map_err(|error| usage(error.to_string()))
    }

    fn array(&self, name: &str) -> Result<usize, Failure> {
        let names: Vec<&str> = self.arrays.iter().map(|array| array.name.as_str()).collect();
        let position = names.iter().position(|own| *own == name);
        position.ok_or_else(|| Failure::usage(format!("there is no array `{name}`: one of {}", names.join(", "))))
    }

    /// An array as it is now.
    fn after(&self, array: &Array) -> Result<Tensor, Failure> {
        let mut bytes = array.before.to_bytes().map_err(Failure::environment)?;
        self.emulator.read(array.at, &mut bytes).map_err(Failure::environment)?;
        Tensor::from_bytes(array.before.dtype(), array.before.shape(), &bytes).map_err(Failure::environment)
    }
}

enum Made {
    Array(usize),
    Number(ConstValue),
}

/// A number as a parameter's bytes.
fn number(value: &ConstValue, parameter: &Parameter) -> Option<Vec<u8>> {
    let width = parameter.bytes as usize;
    let float = match value {
        ConstValue::Float(value) => *value,
        ConstValue::Int(value) => *value as f64,
        _ => 0.0,
    };
    let word: u64 = match (parameter.ty, value) {
        ("f64", ConstValue::Float(_) | ConstValue::Int(_)) => float.to_bits(),
        ("f32", ConstValue::Float(_) | ConstValue::Int(_)) => u64::from((float as f32).to_bits()),
        // Compilers declare floats as untyped bits too: a number with a point means them.
        ("b32", ConstValue::Float(_)) => u64::from((float as f32).to_bits()),
        ("b64", ConstValue::Float(_)) => float.to_bits(),
        (_, ConstValue::Int(value)) => *value as u64,
        (_, ConstValue::Bool(value)) => u64::from(*value),
        _ => return None,
    };
    (width <= 8).then(|| word.to_le_bytes()[..width].to_vec())
}

fn extents(option: &str, text: &str) -> Result<Dim3, Failure> {
    let numbers: Option<Vec<u32>> = text.split(',').map(|part| part.parse().ok().filter(|&n| n > 0)).collect();
    match numbers.as_deref() {
        Some([x]) => Ok(Dim3::new(*x, 1, 1)),
        Some([x, y]) => Ok(Dim3::new(*x, *y, 1)),
        Some([x, y, z]) => Ok(Dim3::new(*x, *y, *z)),
        _ => Err(Failure::usage(format!("`{option} {text}`\nhelp: write `X`, `X,Y` or `X,Y,Z`"))),
    }
}
