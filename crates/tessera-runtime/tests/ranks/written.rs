//! Random programs of ranks, run as they are written and as they are simplified. Every rank's values are seen: results are divided
//! over the whole mesh.

use std::fmt::Write;

use tessera_compile::RankStep;
use tessera_runtime::ranks::RankedKernel;
use tessera_runtime::{CompileOptions, Device, Kernel, LaunchOptions, RandomStream, Tensor, Value};

use super::integers;

const MESHES: [&[(&str, usize)]; 4] = [&[("p", 2)], &[("p", 4)], &[("p", 2), ("q", 2)], &[("p", 2), ("q", 3)]];

struct Writer {
    stream: RandomStream,
    count: u64,
    body: String,
    /// Name, extents and element type of each value.
    made: Vec<(String, [usize; 2], &'static str)>,
    /// For each value the mesh axes along which every rank holds the same: only of such a value can a rank take its part.
    same: Vec<Vec<String>>,
}

impl Writer {
    fn pick(&mut self, below: usize) -> usize {
        self.count += 1;
        (self.stream.word(self.count) >> 16) as usize % below
    }

    fn push(&mut self, line: &str, shape: [usize; 2], elem: &'static str, same: Vec<String>) {
        let name = format!("v{}", self.made.len());
        let _ = writeln!(self.body, "  %{name} = {line} : tensor<{}x{}x{elem}>", shape[0], shape[1]);
        self.made.push((name, shape, elem));
        self.same.push(same);
    }

    fn step(&mut self, mesh: &[(&str, usize)]) {
        // Mostly what was made last, so that exchanges meet each other.
        let back = if self.pick(4) == 0 { self.pick(self.made.len()) } else { 0 };
        let at = self.made.len() - 1 - back;
        let (from, shape, elem) = self.made[at].clone();
        let mut same = self.same[at].clone();
        let (over, size) = mesh[self.pick(mesh.len())];
        let axis = self.pick(2);
        let grown = |axis: usize, shape: [usize; 2]| {
            let mut shape = shape;
            shape[axis] *= size;
            Some(shape).filter(|shape| shape[axis] <= 144)
        };
        let cut = |axis: usize, shape: [usize; 2]| {
            let mut shape = shape;
            let whole = shape[axis].is_multiple_of(size) && shape[axis] > size;
            shape[axis] /= size;
            Some(shape).filter(|_| whole)
        };
        // Sums in f32 alone: they stay exact, in whatever order they are taken.
        let combine = ["max", "min", "sum"][self.pick(if elem == "f32" { 3 } else { 2 })];
        let (line, shape, elem) = match self.pick(8) {
            0 => (format!("graph.all_reduce [%{from}] {{over=[\"{over}\"], combine={combine}}}"), Some(shape), elem),
            1 => (format!("graph.all_gather [%{from}] {{over=\"{over}\", axis={axis}}}"), grown(axis, shape), elem),
            2 => {
                let line = format!("graph.reduce_scatter [%{from}] {{over=\"{over}\", axis={axis}, combine={combine}}}");
                (line, cut(axis, shape), elem)
            }
            3 => {
                let line = format!("graph.all_to_all [%{from}] {{over=\"{over}\", split={axis}, join={}}}", 1 - axis);
                (line, cut(axis, shape).and_then(|shape| grown(1 - axis, shape)), elem)
            }
            4 | 5 => (format!("graph.shard %{from} {{over=\"{over}\", axis={axis}}}"), cut(axis, shape), elem),
            6 => {
                let to = if elem == "f32" { "f16" } else { "f32" };
                (format!("ftof %{from}"), Some(shape), to)
            }
            _ => (format!("negf %{from}"), Some(shape), elem),
        };
        if line.starts_with("graph.shard") && !same.iter().any(|name| name == over) {
            return;
        }
        if line.starts_with("graph.") {
            same.retain(|name| name != over);
            if line.contains("all_reduce") || line.contains("all_gather") {
                same.push(over.to_string());
            }
        }
        if let Some(shape) = shape {
            self.push(&line, shape, elem, same);
        }
    }
}

fn program(seed: u64) -> String {
    let mut writer = Writer {
        stream: RandomStream::named(seed, "written"),
        count: 0,
        body: String::new(),
        made: Vec::new(),
        same: Vec::new(),
    };
    let mesh = MESHES[writer.pick(MESHES.len())];
    let dims: Vec<&str> = mesh.iter().map(|(name, _)| *name).chain(["_"]).take(2).collect();
    let sharding = format!("{{sharding = \"[{}]\"}}", dims.join(", "));
    writer.push("graph.load %A", [24, 12], "f32", Vec::new());
    let steps = 2 + writer.pick(8);
    (0..steps).for_each(|_| writer.step(mesh));
    let mut args = vec![format!("%A: operand<24x12xf32> {sharding}")];
    let mut params = vec!["A: operand<f32, [\"24\", \"12\"]>".to_string()];
    for result in 0..2 {
        let at = if result == 0 { writer.made.len() - 1 } else { writer.pick(writer.made.len()) };
        let (name, [rows, columns], elem) = writer.made[at].clone();
        args.push(format!("%out{result}: operand<{rows}x{columns}x{elem}> {sharding}"));
        params.push(format!("out{result}: operand<{elem}, [\"{rows}\", \"{columns}\"]>"));
        let _ = writeln!(writer.body, "  graph.store %{name}, %out{result}");
    }
    let mesh: Vec<String> = mesh.iter().map(|(name, size)| format!("{name}={size}")).collect();
    format!(
        "graph @f({}) abi({}) ranks({}) {{\n{}  return\n}}\n",
        args.join(", "),
        params.join(", "),
        mesh.join(", "),
        writer.body
    )
}

#[test]
fn simplified_programs_of_ranks_give_what_they_gave() {
    let (mut before, mut after) = (0, 0);
    for seed in 0..150 {
        let text = program(seed);
        let kernel = Kernel::from_ir("written.tir", &text, "f").unwrap_or_else(|error| panic!("{error}\n{text}"));
        let written = RankedKernel::as_written(&kernel).unwrap();
        let simplified = RankedKernel::new(&kernel).unwrap_or_else(|error| panic!("{error}\n{text}")).unwrap();
        let results = [&written, &simplified].map(|ranked| {
            let make = |param: &tessera_ir::AbiParam| {
                let tessera_ir::ParamKind::Operand { dtype, axes } = &param.kind else { panic!("operands only") };
                let mut shape: Vec<usize> = axes.iter().map(|axis| axis.parse().unwrap()).collect();
                for (extent, axis) in shape.iter_mut().zip(&ranked.mesh().axes) {
                    *extent *= axis.size as usize;
                }
                integers(seed)(&param.name, *dtype, &shape)
            };
            let args: Vec<(&str, Tensor)> =
                ranked.program().params.iter().map(|param| (param.name.as_str(), make(param))).collect();
            let values: Vec<(&str, Value)> = args.iter().map(|(name, tensor)| (*name, Value::Tensor(tensor.clone()))).collect();
            let options = (&CompileOptions::default(), &LaunchOptions::default());
            ranked.run(&values, &Device::Cpu, options).unwrap_or_else(|error| panic!("{error}\n{text}"));
            args.into_iter().map(|(_, tensor)| tensor).collect::<Vec<_>>()
        });
        let [alone, together] = &results;
        for (a, b) in alone.iter().zip(together) {
            assert_eq!(b.difference(a, |_, _| 0.0).unwrap(), None, "// seed {seed}\n{text}\n{:#?}", simplified.program().steps);
        }
        let count = |ranked: &RankedKernel| {
            ranked.program().steps.iter().filter(|step| matches!(step, RankStep::Exchange { .. })).count()
        };
        before += count(&written);
        after += count(&simplified);
    }
    // The rules apply: a fifth of what is exchanged at random goes.
    assert!(after * 5 < before * 4, "{after} of {before} exchanges are left");
}
