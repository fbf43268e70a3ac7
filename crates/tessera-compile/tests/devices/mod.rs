//! One kernel on the CPU executor, in lock-step, on the emulator, and through the assembler.

#![allow(unsafe_code, reason = "the executors take raw memory; every call owns what it passes")]

use tessera_compile::target::TargetKernel;
use tessera_compile::{Compiled, OptLevel, compile_for};
use tessera_cpu::{Arg, Program, RunOptions, lockstep};
use tessera_driver::{Dim3, Params, TensorMapSpec};
use tessera_emu::{EmuOptions, Emulator, LaunchOptions, Schedule};
use tessera_ir::text::print_module;
use tessera_ir::{HiddenParam, IndexType, Module, ParamKind, PassManager, verify};
use tessera_ptx::{Assembler, Optimize, Target, ToolSource};
use tessera_types::{Arch, DType, Device, FloatFormat, Overflow, Rounding};

/// A launch argument.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// An array in row-major order, not packed.
    Array { dtype: DType, bytes: Vec<u8>, sizes: Vec<i64> },
    /// A scalar's bytes.
    Scalar(Vec<u8>),
}

impl Data {
    /// Zeros.
    pub(crate) fn zeros(dtype: DType, sizes: &[i64]) -> Data {
        let count: i64 = sizes.iter().product();
        Data::Array { dtype, bytes: vec![0; count as usize * dtype.unpacked_bytes()], sizes: sizes.to_vec() }
    }

    /// Codes given one by one.
    pub(crate) fn codes(dtype: DType, sizes: &[i64], mut code: impl FnMut(usize) -> u64) -> Data {
        let count: i64 = sizes.iter().product();
        let width = dtype.unpacked_bytes();
        let bytes = (0..count as usize).flat_map(|i| code(i).to_le_bytes()[..width].to_vec()).collect();
        Data::Array { dtype, bytes, sizes: sizes.to_vec() }
    }

    /// Numbers between -4 and 4, and some large and tiny ones.
    pub(crate) fn floats(dtype: DType, sizes: &[i64], seed: u64) -> Data {
        let format = FloatFormat::of(dtype).expect("a float");
        let mut next = stream(seed);
        Data::codes(dtype, sizes, |i| {
            let value = (next() >> 11) as f64 / (1u64 << 53) as f64 * 8.0 - 4.0;
            let value = match i % 37 {
                5 => value * 1e4,
                11 => value * 1e-6,
                17 => 0.0,
                _ => value,
            };
            format.encode(value, Rounding::NearestEven, Overflow::Ieee)
        })
    }

    /// An element as a number.
    pub(crate) fn number(&self, index: usize) -> f64 {
        let Data::Array { dtype, bytes, .. } = self else { return 0.0 };
        let width = dtype.unpacked_bytes();
        let mut word = [0; 8];
        word[..width].copy_from_slice(&bytes[index * width..][..width]);
        FloatFormat::of(*dtype).map_or(0.0, |format| format.decode(u64::from_le_bytes(word)))
    }

    /// Integers of all sizes.
    pub(crate) fn ints(dtype: DType, sizes: &[i64], seed: u64) -> Data {
        let mut next = stream(seed);
        Data::codes(dtype, sizes, |i| if i % 3 == 0 { next() } else { (next() % 200).wrapping_sub(100) })
    }
}

fn stream(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// A compiled kernel and its grid.
pub(crate) struct Launch<'c> {
    pub(crate) compiled: &'c Compiled,
    pub(crate) grid: [u32; 3],
}

fn row_major(sizes: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; sizes.len()];
    for axis in (1..sizes.len()).rev() {
        strides[axis - 1] = strides[axis] * sizes[axis];
    }
    strides
}

/// Executes the optimised Schedule function.
pub(crate) fn on_cpu(launch: &Launch<'_>, data: &mut [Data]) -> Result<(), String> {
    on_cpu_with(&RunOptions::default(), launch, data)
}

/// The same under options.
pub(crate) fn on_cpu_with(options: &RunOptions<'_>, launch: &Launch<'_>, data: &mut [Data]) -> Result<(), String> {
    let program = Program::prepare(&launch.compiled.module, launch.compiled.func()).map_err(|diagnostic| diagnostic.message)?;
    let mut args = Vec::new();
    for item in data {
        match item {
            Data::Array { bytes, sizes, .. } => {
                args.push(Arg::Pointer { base: bytes.as_mut_ptr(), bytes: bytes.len() });
                args.extend(sizes.iter().chain(&row_major(sizes)).map(|&value| Arg::Scalar(value as u64)));
            }
            Data::Scalar(bytes) => {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                args.push(Arg::Scalar(u64::from_le_bytes(word)));
            }
        }
    }
    // SAFETY: the pointers are to vectors that live and are used by nothing else while the launch runs.
    unsafe { program.run(launch.grid, &args, options) }.map_err(|fault| fault.to_string())
}

/// Two targets: without and with products of warpgroups.
pub(crate) const ARCHS: [Arch; 2] = [Arch::Sm80, Arch::Sm90a];

/// The module in Tile IR, verified after every pass.
pub(crate) fn tiled(module: &Module, arch: Arch) -> Result<Module, String> {
    let mut tile = module.clone();
    let mut manager = PassManager { target: Some(arch), verify_each: true, ..PassManager::default() };
    match manager.run(&mut tile, &OptLevel::default().staging_passes()) {
        Ok(_) => Ok(tile),
        Err(failure) => {
            let found: Vec<String> = failure.diagnostics.iter().map(|found| found.render(&tile.sources, false)).collect();
            Err(format!("{}: {}\n{}", failure.pass, found.join("\n"), print_module(&tile)))
        }
    }
}

/// Executes the Tile function, checked, and yields its text.
pub(crate) fn in_lockstep(launch: &Launch<'_>, arch: Arch, data: &mut [Data]) -> Result<String, String> {
    in_lockstep_as_it_is(tiled(&launch.compiled.module, arch)?, launch.grid, data)
}

/// Executes a Tile function; its text.
pub(crate) fn in_lockstep_as_it_is(module: Module, grid: [u32; 3], data: &mut [Data]) -> Result<String, String> {
    if let Some(first) = verify(&module).first() {
        return Err(first.render(&module.sources, false));
    }
    lockstep_of(&module, grid, data)?;
    Ok(print_module(&module))
}

/// Executes a module's first function in lock-step, checked.
pub(crate) fn lockstep_of(module: &Module, grid: [u32; 3], data: &mut [Data]) -> Result<(), String> {
    let shown =
        |diagnostic: &tessera_ir::Diagnostic| format!("{}\n{}", diagnostic.render(&module.sources, false), print_module(module));
    let program = lockstep::Program::prepare(module, &module.funcs[0]).map_err(|diagnostic| shown(&diagnostic))?;
    let mut args = Vec::new();
    for item in data {
        match item {
            Data::Array { bytes, sizes, .. } => {
                args.push(Arg::Pointer { base: bytes.as_mut_ptr(), bytes: bytes.len() });
                args.extend(sizes.iter().chain(&row_major(sizes)).map(|&value| Arg::Scalar(value as u64)));
            }
            Data::Scalar(bytes) => {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                args.push(Arg::Scalar(u64::from_le_bytes(word)));
            }
        }
    }
    let options = RunOptions { checked: true, ..RunOptions::default() };
    // SAFETY: the pointers are to vectors that live and are used by nothing else while the launch runs.
    unsafe { program.run(grid, &args, &options) }.map_err(|fault| shown(&fault.diagnostic))
}

/// The kernel in Target IR, optimised.
pub(crate) fn lowered(compiled: &Compiled, arch: Arch) -> Result<TargetKernel, String> {
    let device = compile_for(compiled, arch, OptLevel::O2).map_err(|found| found[0].render(&compiled.module.sources, false))?;
    let wrong = tessera_ptx::ssa::verify(&device.kernel.kernel);
    if wrong.is_empty() { Ok(device.kernel) } else { Err(format!("{}\n{}", wrong.join("\n"), device.kernel.ptx())) }
}

/// Executes the PTX of a kernel.
pub(crate) fn on_emulator(launch: &Launch<'_>, arch: Arch, data: &mut [Data]) -> Result<(), String> {
    run(&lowered(launch.compiled, arch)?, launch.grid, data)
}

/// Executes a kernel's PTX.
pub(crate) fn run(kernel: &TargetKernel, grid: [u32; 3], data: &mut [Data]) -> Result<(), String> {
    run_under(Schedule::Eager, kernel, grid, data)
}

/// Executes a kernel's PTX under a schedule.
pub(crate) fn run_under(schedule: Schedule, kernel: &TargetKernel, grid: [u32; 3], data: &mut [Data]) -> Result<(), String> {
    let sanitize = tessera_emu::Sanitize { races: true, barriers: true, ..tessera_emu::Sanitize::NONE };
    run_with(LaunchOptions { schedule, seed: 7, sanitize, ..LaunchOptions::default() }, kernel, grid, data)
}

/// Executes a kernel's PTX; the options' shared memory is the kernel's.
pub(crate) fn run_with(options: LaunchOptions, kernel: &TargetKernel, grid: [u32; 3], data: &mut [Data]) -> Result<(), String> {
    printed_with(options, kernel, grid, data).map(drop)
}

/// The same; what the kernel prints.
pub(crate) fn printed_with(
    options: LaunchOptions,
    kernel: &TargetKernel,
    grid: [u32; 3],
    data: &mut [Data],
) -> Result<String, String> {
    printed_by(options, (kernel, &kernel.ptx()), grid, data)
}

/// The same of another text with the kernel's parameters.
pub(crate) fn printed_by(
    options: LaunchOptions,
    (kernel, text): (&TargetKernel, &str),
    grid: [u32; 3],
    data: &mut [Data],
) -> Result<String, String> {
    let explain = |error: &dyn std::fmt::Display| format!("{error}\n{text}");
    // A chip that runs the module: what ends in `a` is for one chip alone.
    let product = Device::ALL.iter().rfind(|product| product.arch.name() == kernel.image.target);
    let machine =
        product.map_or_else(EmuOptions::default, |product| EmuOptions { device: product.name.into(), ..EmuOptions::default() });
    let emulator = Emulator::new(&EmuOptions { multiprocessors: Some(2), ..machine.clone() }).map_err(|e| explain(&e))?;
    let module = emulator.load(text).map_err(|e| explain(&e))?;
    let mut params = Params::new();
    let mut pointers = Vec::new();
    for (param, item) in kernel.image.abi.params.iter().zip(&*data) {
        match (&param.kind, item) {
            (ParamKind::Array { index, .. }, Data::Array { bytes, sizes, .. }) => {
                let pointer = emulator.alloc(bytes.len().max(1) as u64).map_err(|e| explain(&e))?;
                emulator.write(pointer, bytes).map_err(|e| explain(&e))?;
                pointers.push(Some(pointer));
                params = params.pointer(pointer);
                for value in sizes.iter().chain(&row_major(sizes)) {
                    params = match index {
                        IndexType::I32 => params.i32(*value as i32),
                        IndexType::I64 => params.i64(*value),
                    };
                }
            }
            (_, Data::Scalar(bytes)) => {
                params = params.aligned(bytes, bytes.len());
                pointers.push(None);
            }
            _ => return Err("an argument that does not fit".to_string()),
        }
    }
    let table = tessera_emu::driver(&machine).map_err(|e| explain(&e))?;
    for hidden in &kernel.image.hidden {
        let plan = match hidden {
            HiddenParam::TensorMap(plan) => plan,
            HiddenParam::Assertions(_) => {
                let record = emulator.alloc(16).map_err(|e| explain(&e))?;
                emulator.write(record, &[0; 16]).map_err(|e| explain(&e))?;
                params = params.pointer(record);
                continue;
            }
            HiddenParam::Workspace { bytes, bytes_per_block } => {
                let [x, y, z] = kernel
                    .image
                    .launch
                    .grid
                    .physical(grid, 2, kernel.image.launch.cluster)
                    .ok_or("more blocks than a launch has")?;
                let bytes = bytes + bytes_per_block * u64::from(x * y * z);
                let memory = emulator.alloc(bytes).map_err(|e| explain(&e))?;
                emulator.write(memory, &vec![0; bytes as usize]).map_err(|e| explain(&e))?;
                params = params.pointer(memory);
                continue;
            }
            HiddenParam::Grid => {
                params = grid.iter().fold(params, |params, &blocks| params.i32(blocks as i32));
                continue;
            }
            other => return Err(format!("{other:?} is not supplied here")),
        };
        let (Some(address), Data::Array { dtype, sizes, .. }) = (pointers[plan.param], &data[plan.param]) else {
            return Err("a tensor map of a scalar".to_string());
        };
        let strides = row_major(sizes);
        let bytes = dtype.unpacked_bytes() as u64;
        let spec = TensorMapSpec {
            dtype: plan.dtype.unwrap_or(*dtype),
            address,
            extents: plan.axes.iter().map(|&axis| sizes[axis] as u64).collect(),
            strides: plan.axes[1..].iter().map(|&axis| strides[axis] as u64 * bytes).collect(),
            tile: plan.tile.clone(),
            swizzle: plan.swizzle,
            l2: plan.l2,
            outside: plan.outside,
        };
        params = params.tensor_map(&table.tensor_map_encode(&spec).map_err(|e| explain(&e))?);
    }
    let facts = &kernel.image.launch;
    let options = LaunchOptions { shared_bytes: facts.shared_bytes, ..options };
    let [x, y, z] = facts.grid.physical(grid, 2, kernel.image.launch.cluster).ok_or("more blocks than a launch has")?;
    let report = emulator
        .launch(&module, &kernel.image.entry, Dim3::new(x, y, z), Dim3::new(facts.threads[0], 1, 1), &params, &options)
        .map_err(|e| explain(&e))?;
    if let Some(first) = report.findings.first() {
        return Err(format!("{first:?}\n{text}"));
    }
    for (item, pointer) in data.iter_mut().zip(pointers) {
        if let (Data::Array { bytes, .. }, Some(pointer)) = (item, pointer) {
            emulator.read(pointer, bytes).map_err(|e| explain(&e))?;
        }
    }
    Ok(report.output)
}

/// Whether two arrays hold the same bits; NaNs are equal. With a tolerance, numbers may differ by so many parts of the larger.
pub(crate) fn same(a: &Data, b: &Data, tolerance: f64) -> Result<(), String> {
    near(a, b, tolerance, 1e-30)
}

/// The same with a tolerance in parts of `least` where both numbers are smaller than that.
pub(crate) fn near(a: &Data, b: &Data, tolerance: f64, least: f64) -> Result<(), String> {
    let (Data::Array { dtype, bytes: left, .. }, Data::Array { bytes: right, .. }) = (a, b) else { return Ok(()) };
    let width = dtype.unpacked_bytes();
    let format = FloatFormat::of(*dtype);
    let code = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..width].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    for (i, (x, y)) in left.chunks(width).zip(right.chunks(width)).enumerate() {
        let (x, y) = (code(x), code(y));
        let nan = |code| format.is_some_and(|format| format.decode(code).is_nan());
        let near = format.is_some_and(|format| {
            let (x, y) = (format.decode(x), format.decode(y));
            tolerance > 0.0 && (x - y).abs() <= tolerance * x.abs().max(y.abs()).max(least)
        });
        if x != y && !near && !(nan(x) && nan(y)) {
            let show = |code| match format {
                Some(format) => format!("{:e} ({code:#x})", format.decode(code)),
                None => format!("{code:#x}"),
            };
            return Err(format!("element {i} is {} on the CPU and {} there", show(x), show(y)));
        }
    }
    Ok(())
}

/// Assembles a kernel for the oldest target and for three that recipes know.
pub(crate) fn assembles(compiled: &Compiled) {
    for arch in [Arch::Sm75, Arch::Sm80, Arch::Sm90a, Arch::Sm100a] {
        assembled(&lowered(compiled, arch).unwrap_or_else(|error| panic!("{arch}: {error}")));
    }
}

/// The assembler of the tests; says so where there is none.
pub(crate) fn assembler() -> Option<Assembler> {
    let path = |name: &str| std::env::var_os(name).map(std::path::PathBuf::from);
    let source = ToolSource { ptxas: path("TESSERA_PTXAS"), python: path("TESSERA_PYTHON"), ..ToolSource::default() };
    let found = Assembler::find(&source).ok();
    if found.is_none() {
        println!("skipped: no assembler (TESSERA_PTXAS, TESSERA_PYTHON)");
    }
    found
}

/// Assembles a kernel quickly: no spills, no products of warpgroups that wait for each other. Skips where there is no assembler.
pub(crate) fn assembled(kernel: &TargetKernel) {
    assembled_with(kernel, 0);
}

/// The same where so many bytes may be spilled.
pub(crate) fn assembled_with(kernel: &TargetKernel, spills: u32) {
    let Some(assembler) = assembler() else { return };
    match assembly_fault(kernel, &assembler, Optimize::Quick) {
        None => {}
        Some(AssemblyFault::Spills(bytes)) if bytes <= spills => {}
        Some(fault) => panic!("{}: {fault}\n{}", kernel.arch, kernel.ptx()),
    }
}

/// What is wrong with the machine code of a kernel.
pub(crate) fn assembly_fault(kernel: &TargetKernel, assembler: &Assembler, optimize: Optimize) -> Option<AssemblyFault> {
    let target = Target::parse(kernel.arch.name())?;
    match assembler.assemble(&kernel.ptx(), target, optimize) {
        Err(error) => Some(AssemblyFault::Refused(error.to_string())),
        Ok(assembly) if assembly.report.serialises_wgmma() => Some(AssemblyFault::Serialises),
        Ok(assembly) => {
            let spilled = assembly.report.spilled_bytes();
            (spilled > 0).then_some(AssemblyFault::Spills(spilled))
        }
    }
}

/// What can be wrong with machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AssemblyFault {
    /// There is none.
    Refused(String),
    /// Products of warpgroups wait for each other.
    Serialises,
    /// So many bytes go to memory and come back for want of registers.
    Spills(u32),
}

impl std::fmt::Display for AssemblyFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AssemblyFault::Refused(why) => f.write_str(why),
            AssemblyFault::Serialises => f.write_str("serialises wgmma"),
            AssemblyFault::Spills(bytes) => write!(f, "spills {bytes} bytes"),
        }
    }
}

/// The targets that recipes know.
pub(crate) const TARGETS: [Arch; 3] = [Arch::Sm80, Arch::Sm90a, Arch::Sm100a];

/// What is wrong with the machine code of a kernel for each of those, as it is assembled for use.
pub(crate) fn assembles_fully(compiled: &Compiled) -> Vec<String> {
    let Some(assembler) = assembler() else { return Vec::new() };
    let fault = |arch| match lowered(compiled, arch) {
        Ok(kernel) => assembly_fault(&kernel, &assembler, Optimize::Full).map(|fault| fault.to_string()),
        Err(error) => Some(error),
    };
    TARGETS.into_iter().filter_map(|arch| fault(arch).map(|fault| format!("{arch}: {fault}"))).collect()
}
