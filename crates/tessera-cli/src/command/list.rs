//! `tessera list`: what there is to name on the command line.

use serde_json::{Value, json};
use tessera::bench::pages::directions;
use tessera::compile::{named_pipeline, passes, pipeline_names};
use tessera::ops::OPERATORS;
use tessera::runtime::Device;
use tessera::types::{BlockScaled, DType, Device as Product, policy_name};

use crate::arguments::{List, Topic};
use crate::command::compare::plain_table;
use crate::failure::Outcome;

pub(crate) fn list(arguments: List) -> Outcome {
    let (header, rows) = match arguments.topic {
        Topic::Ops => ops(),
        Topic::Suites => suites(),
        Topic::Passes => pass_rows(),
        Topic::Targets => targets(),
        Topic::Devices => devices(),
        Topic::Precisions => precisions(),
    };
    if arguments.json {
        let objects: Vec<Value> = rows
            .iter()
            .map(|row| {
                Value::Object(header.iter().map(|name| name.to_string()).zip(row.iter().map(|cell| json!(cell))).collect())
            })
            .collect();
        println!("{}", Value::Array(objects));
        return Ok(());
    }
    let mut table = plain_table(&header);
    table.add_rows(rows);
    println!("{table}");
    Ok(())
}

type Rows = (Vec<&'static str>, Vec<Vec<String>>);

fn ops() -> Rows {
    let rows = OPERATORS.iter().map(|op| {
        let precisions = op.precisions.iter().chain(op.further_precisions).copied().collect::<Vec<_>>().join(" ");
        let rungs = op.ladder.iter().map(|rung| rung.name).collect::<Vec<_>>().join(", ");
        [op.name, op.about, &precisions, directions(op), &rungs].map(str::to_string).into()
    });
    (vec!["operator", "what", "precisions", "directions", "rungs"], rows.collect())
}

fn suites() -> Rows {
    let quick: usize = OPERATORS.iter().map(|op| (op.quick)().len()).sum();
    let seed: usize = OPERATORS.iter().map(|op| (op.suite)().len()).sum();
    let further: usize = OPERATORS.iter().map(|op| (op.further_suite)().len()).sum();
    let points: usize = OPERATORS.iter().map(|op| (op.suite)().len() * op.precisions.len()).sum();
    let more: usize = OPERATORS.iter().map(|op| (op.further_suite)().len() * op.precisions.len()).sum();
    let row = |name: &str, shapes: usize, rows: usize, what: &str| {
        vec![name.to_string(), shapes.to_string(), rows.to_string(), what.to_string()]
    };
    (
        vec!["suite", "shapes", "rows", "what"],
        vec![
            row("quick", quick, quick, "each operator in each of its precisions, small sizes"),
            row("seed", seed, points, "every shape of the benchmark suite in every precision"),
            row("all", seed + further, points + more, "those, and operators and shapes beyond"),
        ],
    )
}

fn pass_rows() -> Rows {
    let rows = passes::ALL.iter().map(|pass| {
        let holds = |name: &&&str| named_pipeline(name).is_some_and(|passes| passes.iter().any(|own| own.name == pass.name));
        let pipelines: Vec<&str> = pipeline_names().iter().filter(holds).copied().collect();
        vec![pass.name.to_string(), pass.doc.to_string(), pipelines.join(" ")]
    });
    (vec!["pass", "what", "pipelines"], rows.collect())
}

fn devices() -> Rows {
    let works = |name: &str| vec![name.to_string(), "works".to_string()];
    let mut rows = vec![works("cpu"), works("emu")];
    match Device::all_cuda() {
        Ok(devices) => rows.extend(devices.into_iter().enumerate().map(|(ordinal, device)| {
            let state = device.map_or_else(|error| error.to_string(), |device| describe(&device));
            vec![format!("cuda:{ordinal}"), state]
        })),
        Err(error) => rows.push(vec!["cuda:0".to_string(), error.to_string()]),
    }
    (vec!["device", "state"], rows)
}

/// `works: NVIDIA H200, sm_90a, 132 multiprocessors, 139.8 GiB, driver 13.0`.
pub(crate) fn describe(device: &Device) -> String {
    let Device::Driver(device) = device else { return "works".to_string() };
    let properties = device.properties();
    let (gib, driver) = (properties.memory_bytes as f64 / (1u64 << 30) as f64, properties.driver);
    format!(
        "works: {}, {}, {} multiprocessors, {gib:.1} GiB, driver {}.{}",
        properties.name,
        properties.target(),
        properties.multiprocessors,
        driver / 1000,
        driver % 1000 / 10
    )
}

fn precisions() -> Rows {
    let mut rows: Vec<Vec<String>> = DType::ALL
        .iter()
        .map(|&dtype| vec![dtype.name().to_string(), policy_name(dtype).to_string(), format!("{} bits", dtype.bits())])
        .collect();
    rows.extend(BlockScaled::ALL.iter().map(|scaled| {
        let what = format!("{} in blocks of {} with {} scales", scaled.element, scaled.block, scaled.scale);
        vec![scaled.name.to_string(), scaled.name.to_string(), what]
    }));
    (vec!["type", "policy", "what"], rows)
}

fn targets() -> Rows {
    let rows = Product::ALL.iter().map(|product| {
        let rate = |dtype: DType| {
            let accumulator = if dtype == DType::F64 {
                DType::F64
            } else if dtype.is_integer() {
                DType::I32
            } else {
                DType::F32
            };
            product.peak(dtype, accumulator).map_or("-".to_string(), |peak| format!("{:.1}", peak.tera))
        };
        let mut row = vec![
            product.name.to_string(),
            product.arch.name().to_string(),
            product.sms.to_string(),
            product.boost_mhz.to_string(),
            format!("{:.0}", product.dram_gbps),
            (product.arch.limits().shared_per_block >> 10).to_string(),
        ];
        row.extend(TARGET_FORMATS.map(rate));
        row
    });
    let mut header = vec!["target", "arch", "SMs", "MHz", "GB/s", "shared KiB"];
    header.extend(TARGET_FORMATS.map(DType::name));
    (header, rows.collect())
}

/// Formats whose dense peaks (10^12 operations a second) are listed.
const TARGET_FORMATS: [DType; 8] =
    [DType::F64, DType::F32, DType::TF32, DType::F16, DType::BF16, DType::F8E4M3, DType::F4E2M1, DType::I8];
