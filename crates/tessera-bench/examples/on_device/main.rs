//! Exercises the CUDA runtime and the device half of the harness on kernels that are known to be right.
//!
//! ```text
//! on_device --out FOLDER [--cublaslt FILE] [--worker "python3 baselines/torch_baseline.py"] [--softmax softmax.ptx]
//! ```
//! 1. what a prepared launch costs the host, beside the table's own call and the driver's (see `bare.c`);
//! 2. the harness with a copy kernel of its own, the driver's copy, the softmax anchor, cublasLt and a worker;
//! 3. a fault and what is left after it.
//!
//! Prints tables and writes `launch.json` and one results file a suite into the folder.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tessera_bench::device::{DeviceLibrary, DeviceOptions, DeviceTensors, Launcher, Prepared, Timing};
use tessera_bench::{Fault, Mode, Monotonic, Record, Results, RunOptions, Selection, Shapes, Sizes, Writer, footer, run, table};
use tessera_driver::{Dim3, DriverError, Kernel, LaunchSpec, Params, Stream};
use tessera_ir::{Abi, AbiParam, Extent, ImageCode, IndexType, KernelImage, LaunchFacts, ParamKind};
use tessera_runtime::{CompileOptions, Device, DeviceKernel, DeviceLaunch, DriverDevice, Tensor, Value, module_cache};
use tessera_types::DType;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Arguments {
    out: PathBuf,
    cublaslt: Option<PathBuf>,
    worker: Option<String>,
    softmax: Option<PathBuf>,
    timing: Timing,
}

fn arguments() -> Outcome<Arguments> {
    let mut found = Arguments { out: ".".into(), cublaslt: None, worker: None, softmax: None, timing: Timing::COLD };
    let mut list = std::env::args().skip(1);
    while let Some(flag) = list.next() {
        let value = list.next().ok_or(format!("`{flag}` needs a value"))?;
        match flag.as_str() {
            "--out" => found.out = value.into(),
            "--cublaslt" => found.cublaslt = Some(value.into()),
            "--worker" => found.worker = Some(value),
            "--softmax" => found.softmax = Some(value.into()),
            "--timing" => found.timing = Timing::parse(&value).ok_or("cold, warm or graph")?,
            _ => return Err(format!("unknown argument `{flag}`").into()),
        }
    }
    Ok(found)
}

fn main() -> Outcome<()> {
    let arguments = arguments()?;
    let Device::Driver(device) = Device::cuda(0)? else { return Ok(()) };
    println!("{:?}", device.properties());
    println!("cache {:?} {:?}", module_cache().folder(), module_cache().counters());
    let launch = launch_cost(&device)?;
    println!("{launch:#}");
    std::fs::write(arguments.out.join("launch.json"), format!("{launch:#}\n"))?;

    copies(&arguments, &device)?;
    softmax(&arguments, &device)?;
    products(&arguments, &device)?;
    println!("memory {:?}", device.memory_counters());
    println!("cache {:?}", module_cache().counters());
    fault(device)
}

/// An entry of arrays and numbers, as a compiler would describe it.
fn image(entry: &str, text: &str, params: Vec<(&str, ParamKind)>, threads: u32) -> KernelImage {
    KernelImage {
        entry: entry.into(),
        target: "sm_90".into(),
        code: ImageCode::Ptx(text.into()),
        abi: Abi {
            params: params.into_iter().map(|(name, kind)| AbiParam { name: name.into(), kind }).collect(),
            stated: Vec::new(),
        },
        hidden: Vec::new(),
        launch: LaunchFacts { threads: [threads, 1, 1], ..LaunchFacts::default() },
    }
}

fn array(dtype: DType) -> ParamKind {
    let open = || std::iter::once(Extent::Dynamic).collect();
    ParamKind::Array { dtype, shape: open(), strides: open(), index: IndexType::I64, align: 4, lines: 4, disjoint: true }
}

const EMPTY: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry empty(.param .u64 a, .param .u64 sa, .param .u64 ta, .param .u64 b, .param .u64 sb, .param .u64 tb,
    .param .f32 c, .param .u32 d)
{
    ret;
}";

/// Host time for one launch of an empty kernel with eight parameters: prepared, and by the table alone.
fn launch_cost(device: &DriverDevice) -> Outcome<serde_json::Value> {
    let params = vec![
        ("a", array(DType::F32)),
        ("b", array(DType::F32)),
        ("c", ParamKind::Scalar { dtype: DType::F32 }),
        ("d", ParamKind::Scalar { dtype: DType::I32 }),
    ];
    let kernel = DeviceKernel::load(device, Arc::new(image("empty", EMPTY, params, 128)), module_cache())?;
    let there = Device::Driver(device.clone());
    let (a, b) = (Tensor::zeros_on(DType::F32, &[64], &there)?, Tensor::zeros_on(DType::F32, &[64], &there)?);
    let args = [("a", (&a).into()), ("b", (&b).into()), ("c", Value::Float(1.0)), ("d", Value::Int(7))];
    let prepared = DeviceLaunch::prepare(&kernel, &args, &[false, true, false, false], [1, 1, 1])?;
    let table = device.context().table()?;
    let spec = LaunchSpec {
        function: kernel.function().handle(),
        grid: Dim3::ONE,
        block: Dim3::from(128),
        cluster: None,
        shared_bytes: 0,
        overlaps_predecessor: false,
        stream: device.stream().handle(),
        params: prepared.params(),
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..15 {
        ours.push(batch(device, &|| prepared.enqueue())?);
        theirs.push(batch(device, &|| table.launch(&spec))?);
    }
    let round = |us: f64| (us * 1e4).round() / 1e4;
    Ok(json!({
        "what": "host time of one launch in microseconds: empty kernel, eight parameters, median of 15 batches of 1000",
        "prepared_us": round(median(&mut ours)), "table_us": round(median(&mut theirs)),
        "loaded_from": format!("{:?}", kernel.origin()), "load_ms": kernel.load_time().as_secs_f64() * 1e3,
    }))
}

fn batch(device: &DriverDevice, launch: &dyn Fn() -> Result<(), DriverError>) -> Outcome<f64> {
    device.synchronize()?;
    let start = Instant::now();
    for _ in 0..1000 {
        launch()?;
    }
    let spent = start.elapsed().as_secs_f64() * 1e3;
    device.synchronize()?;
    Ok(spent)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

const COPY: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 a, .param .u64 size_a, .param .u64 step_a, .param .u64 c, .param .u64 size_c,
    .param .u64 step_c)
{
    .reg .b32 %r<18>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [a];
    ld.param.u64 %d1, [c];
    mov.u32 %r16, %ctaid.x;
    mov.u32 %r17, %tid.x;
    mul.wide.u32 %d2, %r16, 16384;
    mul.wide.u32 %d3, %r17, 16;
    add.u64 %d2, %d2, %d3;
    add.u64 %d0, %d0, %d2;
    add.u64 %d1, %d1, %d2;
    ld.global.L1::no_allocate.v4.b32 {%r0, %r1, %r2, %r3}, [%d0];
    ld.global.L1::no_allocate.v4.b32 {%r4, %r5, %r6, %r7}, [%d0+4096];
    ld.global.L1::no_allocate.v4.b32 {%r8, %r9, %r10, %r11}, [%d0+8192];
    ld.global.L1::no_allocate.v4.b32 {%r12, %r13, %r14, %r15}, [%d0+12288];
    st.global.v4.b32 [%d1], {%r0, %r1, %r2, %r3};
    st.global.v4.b32 [%d1+4096], {%r4, %r5, %r6, %r7};
    st.global.v4.b32 [%d1+8192], {%r8, %r9, %r10, %r11};
    st.global.v4.b32 [%d1+12288], {%r12, %r13, %r14, %r15};
    ret;
}";

/// Work that a closure queues.
struct Queued<F>(F);

impl<F: FnMut(&DeviceTensors, &Stream) -> Result<(), DriverError>> Launcher for Queued<F> {
    fn enqueue(&mut self, tensors: &DeviceTensors, stream: &Stream) -> Result<(), DriverError> {
        (self.0)(tensors, stream)
    }
}

fn library(arguments: &Arguments, device: &DriverDevice, selection: Selection) -> Outcome<DeviceLibrary> {
    let options = DeviceOptions {
        timing: arguments.timing,
        cublaslt: arguments.cublaslt.clone(),
        workers: arguments.worker.iter().map(|command| ("torch".to_string(), command.clone())).collect(),
        ..DeviceOptions::default()
    };
    let (library, absent) = DeviceLibrary::select(&selection, CompileOptions::default(), device, options)?;
    absent.iter().for_each(|line| println!("{line}"));
    Ok(library)
}

fn given(operator: &str, precision: &[&str], extents: &[(&str, u64)], variant: &str) -> Selection {
    let extents = extents.iter().map(|(name, value)| (name.to_string(), vec![*value])).collect();
    Selection {
        operators: vec![operator.into()],
        precisions: precision.iter().map(|text| text.to_string()).collect(),
        sizes: Sizes::Given(vec![Shapes {
            extents,
            variant: (!variant.is_empty()).then(|| variant.to_string()),
            ..Shapes::default()
        }]),
    }
}

fn copies(arguments: &Arguments, device: &DriverDevice) -> Outcome<()> {
    for mib in [64, 1024] {
        let mut suite = library(arguments, device, given("bandwidth", &["fp32"], &[("bytes", mib << 20)], "copy sequential"))?;
        suite.remove("tessera");
        let (here, there) = (device.clone(), device.clone());
        suite.add("kernel", true, move |_, plan, tensors| {
            let failed = |error: tessera_runtime::DeviceError| Fault::new(tessera_bench::Status::CompileError, error.to_string());
            let params = vec![("a", array(DType::F32)), ("c", array(DType::F32))];
            let kernel = DeviceKernel::load(&here, Arc::new(image("copy", COPY, params, 256)), module_cache()).map_err(failed)?;
            let args = [("a", tensors.view(0).into()), ("c", tensors.view(1).into())];
            let blocks = (plan.tensors[0].allocated_bytes() / 16384) as u32;
            let launch = DeviceLaunch::prepare(&kernel, &args, &[false, true], [blocks, 1, 1]).map_err(failed)?;
            Ok(Box::new(Prepared { launches: vec![launch], phases: Vec::new(), config: "4 x 16 bytes a thread".into() }))
        });
        suite.add("driver", false, move |_, plan, _| {
            let (bytes, context) = (plan.tensors[0].allocated_bytes(), there.context().clone());
            Ok(Box::new(Queued(move |tensors: &DeviceTensors, stream: &Stream| {
                context.table()?.copy_on_device(tensors.pointer(1), tensors.pointer(0), bytes, stream.handle())
            })))
        });
        measure(arguments, &suite, &format!("copy-{mib}"))?;
    }
    Ok(())
}

fn softmax(arguments: &Arguments, device: &DriverDevice) -> Outcome<()> {
    let Some(path) = &arguments.softmax else { return Ok(()) };
    let kernel: Rc<RefCell<Kernel>> = Rc::new(RefCell::new(device.context().module(&std::fs::read(path)?)?.kernel("softmax")?));
    let extents = [("batch", 1), ("heads", 8), ("queries", 1024), ("keys", 8192)];
    let mut suite = library(arguments, device, given("softmax", &["bf16"], &extents, ""))?;
    suite.remove("tessera");
    suite.add("anchor", true, move |case, plan, _| {
        if !case.key.variant.is_empty() {
            return Err(Fault::new(tessera_bench::Status::Unsupported, "the anchor has no mask"));
        }
        let (rows, columns) = (plan.tensors[0].shape[0] as u32, plan.tensors[0].shape[1] as u32);
        let kernel = Rc::clone(&kernel);
        Ok(Box::new(Queued(move |tensors: &DeviceTensors, stream: &Stream| {
            let params = Params::new().pointer(tensors.pointer(0)).pointer(tensors.pointer(1)).u32(columns);
            kernel.borrow().launch(stream, Dim3::from(rows), Dim3::from(512), 0, &params)
        })))
    });
    measure(arguments, &suite, "softmax")
}

fn products(arguments: &Arguments, device: &DriverDevice) -> Outcome<()> {
    let all: &[&str] = &["bf16", "fp16", "fp8_e4m3@accum(fp32)", "tf32", "int8"];
    for (side, precisions) in [(1024, all), (8192, &all[..1])] {
        let extents = [("m", side), ("n", side), ("k", side), ("batch", 1)];
        let mut suite = library(arguments, device, given("gemm", precisions, &extents, "nt"))?;
        suite.remove("tessera");
        measure(arguments, &suite, &format!("gemm-{side}"))?;
    }
    Ok(())
}

fn measure(arguments: &Arguments, suite: &DeviceLibrary, name: &str) -> Outcome<()> {
    let path = arguments.out.join(format!("{name}.jsonl"));
    let mut writer = Writer::create(&path)?;
    let options = RunOptions {
        mode: Mode::Quick,
        seed: 1,
        order: 1,
        process: 0,
        timed: None,
        time_limit: None,
        memory_limit: None,
        device: "cuda:0".into(),
        argv: std::env::args().collect(),
        knobs: BTreeMap::new(),
        now: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    let begin = Instant::now();
    let end = run(suite, &options, &Monotonic::default(), None, &mut |record: Record| writer.write(&record), &mut |_| {})?;
    let results = Results::load(&path)?;
    println!("== {name}: {} of {} rows in {:.1} s", end.run, end.planned, begin.elapsed().as_secs_f64());
    for row in table(&results) {
        println!("{}", row.cells.join(" | "));
    }
    let last = footer(&results);
    last.reasons.iter().for_each(|line| println!("  {line}"));
    last.definitions
        .iter()
        .filter(|line| line.contains("ceilings") || line.contains("clock"))
        .for_each(|line| println!("  {line}"));
    let block = results.rows.iter().find_map(|row| row.blocks.last()).and_then(|block| block.device);
    println!("  last block: {block:?}");
    Ok(())
}

const CRASH: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry crash()
{
    .reg .b64 %d;
    mov.u64 %d, 16;
    st.global.u32 [%d], 1;
    ret;
}";

/// A kernel that writes where nothing is: the error names it, memory errors before it left the device usable.
fn fault(device: DriverDevice) -> Outcome<()> {
    let there = Device::Driver(device.clone());
    let error = Tensor::zeros_on(DType::U8, &[1 << 40], &there).err().map(|error| error.to_string());
    println!("out of memory: {error:?}");
    println!("still usable: {:?}", Tensor::zeros_on(DType::F32, &[4], &there)?.to_f64()?);
    let kernel = DeviceKernel::load(&device, Arc::new(image("crash", CRASH, vec![], 32)), module_cache())?;
    let launch = DeviceLaunch::prepare(&kernel, &[], &[], [1, 1, 1])?;
    println!("fault: {:?}", launch.run().err().map(|error| error.to_string()));
    drop((launch, there));
    match device.reopen(Arc::new(tessera_cuda::driver()?)) {
        Ok(_) => println!("a fresh context works"),
        Err(error) => println!("a fresh context is refused: {error}"),
    }
    Ok(())
}
