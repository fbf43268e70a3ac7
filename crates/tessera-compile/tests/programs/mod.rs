//! Kernels to run everywhere: the blocks of the language tests, and the files in `tests/kernels`.
//!
//! A comment above a kernel says what it is run with:
//! `# args: x: f32[100,64], y: f32[100], n: i32, N = 64; grid: 4, 2; near: 1e-5`. Arrays get made-up numbers. Results agree bit by bit, but
//! where `near` says how far apart numbers may be, in parts of the larger one or of 1; `more` marks a rewrite that does more. A block of the language tests may have lines
//! `# grid: 2` and `# near: 1e-5`; an array of sizes that the block leaves open is small.

use std::path::Path;

use tessera_compile::{CompileOptions, Compiled, compile_module};
use tessera_ir::{Diagnostic, Extent};
use tessera_lang::{ArgType, LowerOptions, ParsedFile, lower, parse_file};
use tessera_types::{DType, FloatFormat, Overflow, Rounding};

use super::devices::Data;
use super::support::{self, arguments};

/// A kernel with what it is run with.
pub(crate) struct Program {
    /// Where it stands.
    pub(crate) name: String,
    file: ParsedFile,
    kernel: String,
    args: Vec<(String, ArgType)>,
    pub(crate) grid: [u32; 3],
    pub(crate) near: f64,
    /// It does more than the others of its file.
    pub(crate) more: bool,
}

impl Program {
    pub(crate) fn compiled(&self) -> Result<Compiled, Vec<Diagnostic>> {
        let options = LowerOptions { reveal: true, ..LowerOptions::default() };
        compile_module(lower(&self.file, &self.kernel, &self.args, &options)?, &[], &CompileOptions::default())
    }

    /// The first of the messages, with the lines that it is about.
    pub(crate) fn shown(&self, found: &[Diagnostic]) -> String {
        found.first().map_or(String::new(), |first| first.render(&self.file.sources, false))
    }

    /// What it is launched with, but for constants: small round numbers, or numbers of all sizes.
    fn data(&self, round: bool) -> Vec<Data> {
        let data = |(position, (_, ty)): (usize, &(String, ArgType))| match ty {
            ArgType::Array { dtype, shape, .. } => Some(array(*dtype, shape, position as u64, round)),
            ArgType::Scalar(DType::I32) => Some(Data::Scalar(6_i32.to_le_bytes().to_vec())),
            ArgType::Scalar(DType::F32) => Some(Data::Scalar(1.5_f32.to_le_bytes().to_vec())),
            ArgType::Scalar(dtype) => Some(Data::Scalar(vec![0; dtype.unpacked_bytes()])),
            ArgType::List { .. } | ArgType::Tuple(_) | ArgType::Const(_) | ArgType::Stated { .. } => None,
        };
        self.args.iter().enumerate().filter_map(data).collect()
    }

    /// Its arrays have run-time sizes, as a launch compiles them.
    fn opened(mut self, round: bool) -> (Program, Vec<Data>) {
        let data = self.data(round);
        for (_, ty) in &mut self.args {
            if let ArgType::Array { shape, dtype, align, .. } = ty {
                shape.fill(Extent::Dynamic);
                *align = dtype.unpacked_bytes() as u32;
            }
        }
        (self, data)
    }
}

fn array(dtype: DType, shape: &[Extent], seed: u64, round: bool) -> Data {
    let open = [64, 32, 24, 64][shape.len().clamp(1, 4) - 1];
    let sizes: Vec<i64> = shape
        .iter()
        .enumerate()
        .map(|(axis, extent)| match extent {
            Extent::Static(size) => *size,
            Extent::Dynamic if shape.len() == 4 && axis < 2 => 2,
            Extent::Dynamic => open,
        })
        .collect();
    let count: i64 = sizes.iter().product();
    match dtype {
        DType::B1 => Data::codes(dtype, &sizes, |i| (i % 3 == 0).into()),
        dtype if dtype.bits() < 8 => {
            let bytes = (count as usize * dtype.bits() as usize).div_ceil(8);
            Data::Array { dtype: DType::I8, bytes: (0..bytes).map(|i| (i * 37 + 11) as u8).collect(), sizes }
        }
        dtype if dtype.is_float() && round => {
            let format = FloatFormat::of(dtype).expect("a float");
            let number = |i: usize| (i as u64 * 7 + seed) % 61;
            Data::codes(dtype, &sizes, |i| format.encode(number(i) as f64 / 16.0 - 1.5, Rounding::NearestEven, Overflow::Ieee))
        }
        dtype if dtype.is_float() => Data::floats(dtype, &sizes, seed + 1),
        // The first ones are zero, as locks are; the others make good indices of small arrays.
        dtype => Data::codes(dtype, &sizes, |i| if i < 4 { 0 } else { (i as u64 * 7 + seed) % 61 }),
    }
}

/// The test kernels with their arrays.
pub(crate) fn kernels() -> Vec<(Program, Vec<Data>)> {
    in_folder("kernels", false)
}

/// The kernels of a folder with their arrays, of small round numbers or of numbers of all sizes.
pub(crate) fn in_folder(folder: &str, round: bool) -> Vec<(Program, Vec<Data>)> {
    read(folder).into_iter().flat_map(|(_, programs)| programs).map(|program| program.opened(round)).collect()
}

/// The kernels of each file in a folder of the tests.
pub(crate) fn read(folder: &str) -> Vec<(String, Vec<Program>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).expect("the test kernels").map(|e| e.expect("a file").path()).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let mut programs = Vec::new();
        let text = std::fs::read_to_string(&path).expect("a test kernel file");
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(given) = line.strip_prefix("# args: ") else { continue };
            let mut parts = given.split("; ");
            let args = arguments(parts.next().unwrap_or(""));
            // Several such lines may stand above one kernel.
            let head = lines[at..].iter().find_map(|line| line.strip_prefix("def ")).unwrap_or("");
            let kernel = head.split('(').next().unwrap_or("").to_string();
            let mut program = Program {
                name: format!("{name}:{} {kernel}", at + 1),
                file: parse_file(&name, &text),
                kernel,
                args,
                grid: [1, 1, 1],
                near: 0.0,
                more: false,
            };
            for part in parts {
                program.option(part);
            }
            programs.push(program);
        }
        files.push((name, programs));
    }
    files
}

/// The blocks of the language tests that are accepted, with every kernel in them.
pub(crate) fn blocks() -> Vec<(Program, Vec<Data>)> {
    let mut programs = Vec::new();
    for block in support::blocks("language").into_iter().filter(|block| !block.expects_error()) {
        let args = arguments(&block.args_text());
        let file = block.parsed();
        for (kernel, parsed) in &file.kernels {
            let own = |(name, _): &&(String, ArgType)| parsed.params.iter().any(|param| param.name == *name);
            let mut program = Program {
                name: format!("{}:{} {kernel}", block.file, block.line),
                file: file.clone(),
                kernel: kernel.clone(),
                args: args.iter().filter(own).cloned().collect(),
                grid: [1, 1, 1],
                near: 0.0,
                more: false,
            };
            for line in block.code.lines() {
                program.option(line.trim_start_matches("# "));
            }
            let data = program.data(true);
            if !program.args.iter().any(|(_, ty)| matches!(ty, ArgType::List { .. })) {
                programs.push((program, data));
            }
        }
    }
    programs
}

impl Program {
    fn option(&mut self, text: &str) {
        self.more |= text == "more";
        if let Some(grid) = text.strip_prefix("grid: ") {
            for (axis, blocks) in grid.split(", ").enumerate() {
                self.grid[axis] = blocks.trim().parse().expect("a number of blocks");
            }
        }
        if let Some(near) = text.strip_prefix("near: ") {
            self.near = near.trim().parse().expect("a distance");
        }
    }
}
