//! Random programs with random shardings over random meshes. Values are small integers kept small, so that every sum is exact and
//! results agree bit for bit, whatever was split, moved or combined.

use std::fmt::Write;

use tessera_runtime::RandomStream;

use super::{both, equal, integers};

/// Extents by name; ranks of every mesh divide them.
const AXES: [(&str, usize); 4] = [("M", 24), ("N", 48), ("K", 24), ("H", 72)];
const MESHES: [&[(&str, usize)]; 7] =
    [&[("p", 2)], &[("p", 3)], &[("p", 4)], &[("p", 8)], &[("p", 2), ("q", 2)], &[("p", 2), ("q", 3)], &[("p", 4), ("q", 2)]];

/// A tensor of the program: its name, its axes (by position in [`AXES`]; none is an extent of 1) and its element type.
#[derive(Clone)]
struct Made {
    name: String,
    axes: Vec<Option<usize>>,
    elem: &'static str,
}

struct Writer {
    stream: RandomStream,
    count: u64,
    symbols: bool,
    mesh: &'static [(&'static str, usize)],
    body: String,
    args: Vec<(String, String)>,
    made: Vec<Made>,
}

impl Writer {
    fn pick(&mut self, below: usize) -> usize {
        self.count += 1;
        (self.stream.word(self.count) >> 16) as usize % below
    }

    fn one<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.pick(items.len())].clone()
    }

    fn axis(&self, axis: Option<usize>) -> String {
        match axis {
            None => "1".to_string(),
            Some(at) if self.symbols => format!("@{}", AXES[at].0),
            Some(at) => AXES[at].1.to_string(),
        }
    }

    fn ty(&self, axes: &[Option<usize>], elem: &str) -> String {
        format!("<{}{elem}>", axes.iter().map(|&axis| self.axis(axis) + "x").collect::<String>())
    }

    fn sharding(&mut self, axes: &[Option<usize>]) -> String {
        let mesh = self.mesh;
        let mut dims = vec!["_"; axes.len()];
        for &(name, _) in mesh {
            let at = self.pick(axes.len() + 1);
            if at < axes.len() && dims[at] == "_" && axes[at].is_some() {
                dims[at] = name;
            }
        }
        format!(" {{sharding = \"[{}]\"}}", dims.join(", "))
    }

    fn operand(&mut self, name: &str, axes: &[Option<usize>], elem: &str) {
        let state = if self.pick(4) == 0 { String::new() } else { self.sharding(axes) };
        let text: Vec<String> = axes.iter().map(|&axis| format!("\"{}\"", self.axis(axis).trim_start_matches('@'))).collect();
        let arg = format!("%{name}: operand{}{state}", self.ty(axes, elem));
        self.args.push((arg, format!("{name}: operand<{elem}, [{}]>", text.join(", "))));
    }

    fn push(&mut self, line: &str, axes: Vec<Option<usize>>, elem: &'static str) -> Made {
        let name = format!("v{}", self.made.len());
        let _ = writeln!(self.body, "  %{name} = {line} : tensor{}", self.ty(&axes, elem));
        let made = Made { name, axes, elem };
        self.made.push(made.clone());
        made
    }

    fn broadcast(&mut self, value: &str, axes: &[Option<usize>], elem: &'static str) -> Made {
        self.push(&format!("graph.broadcast %{value}"), axes.to_vec(), elem)
    }

    /// Between -3 and 3 again.
    fn clamped(&mut self, from: &Made) -> Made {
        let (low, high) = (format!("low_{}", from.elem), format!("high_{}", from.elem));
        let low = self.broadcast(&low, &from.axes, from.elem);
        let high = self.broadcast(&high, &from.axes, from.elem);
        let (least, greatest) = if from.elem == "i32" { ("mini", "maxi") } else { ("minf", "maxf") };
        let raised = self.push(&format!("{greatest} %{}, %{}", from.name, low.name), from.axes.clone(), from.elem);
        self.push(&format!("{least} %{}, %{}", raised.name, high.name), from.axes.clone(), from.elem)
    }

    fn load(&mut self) {
        let name = format!("in{}", self.args.len());
        let rank = 2 + self.pick(2);
        let axes: Vec<Option<usize>> = (0..rank).map(|_| Some(self.pick(AXES.len()))).collect();
        let elem = self.one(&["f32", "f16", "bf16", "f32"]);
        self.operand(&name, &axes, elem);
        let mut own = axes;
        let turned = self.pick(3) == 0;
        if turned {
            own.swap(rank - 1, rank - 2);
        }
        let how = if turned { " {transpose=true}" } else { "" };
        self.push(&format!("graph.load %{name}{how}"), own, elem);
    }

    fn step(&mut self) {
        let from = {
            let made = self.made.clone();
            self.one(&made)
        };
        let rank = from.axes.len();
        match self.pick(8) {
            0 | 1 => {
                // A product with something that fits, or with a new operand that does.
                let Some(inner) = from.axes[rank - 1] else { return };
                let mut axes = from.axes.clone();
                axes[rank - 2] = Some(inner);
                axes[rank - 1] = Some(self.pick(AXES.len()));
                let name = format!("in{}", self.args.len());
                self.operand(&name, &axes, from.elem);
                let other = self.push(&format!("graph.load %{name}"), axes.clone(), from.elem);
                let mut result = from.axes.clone();
                result[rank - 1] = axes[rank - 1];
                let elem = if self.pick(2) == 0 { "f32" } else { from.elem };
                let product = self.push(&format!("graph.contract %{}, %{}", from.name, other.name), result, elem);
                let product = if self.pick(3) == 0 {
                    self.push(&format!("negf %{}", product.name), product.axes.clone(), product.elem)
                } else {
                    product
                };
                self.clamped(&product);
            }
            2 => {
                let axis = self.pick(rank);
                let combine = self.one(&["sum", "max", "min"]);
                let mut axes = from.axes.clone();
                axes[axis] = None;
                let line = format!("graph.reduce %{} {{axis={axis}, combine={combine}}}", from.name);
                let reduced = self.push(&line, axes, from.elem);
                let reduced = self.clamped(&reduced);
                if self.pick(3) != 0 {
                    self.broadcast(&reduced.name, &from.axes, from.elem);
                }
            }
            3 => {
                let elem = self.one(&["f32", "f16", "bf16"]);
                if elem != from.elem {
                    self.push(&format!("ftof %{}", from.name), from.axes, elem);
                }
            }
            4 => {
                self.push(&format!("negf %{}", from.name), from.axes.clone(), from.elem);
            }
            _ => {
                let fits = |other: &&Made| other.axes == from.axes && other.elem == from.elem;
                let others: Vec<Made> = self.made.iter().filter(fits).cloned().collect();
                let other = self.one(&others);
                let word = self.one(&["addf", "subf", "mulf", "maxf"]);
                let made = self.push(&format!("{word} %{}, %{}", from.name, other.name), from.axes, from.elem);
                self.clamped(&made);
            }
        }
    }
}

/// A program of a seed.
fn program(seed: u64) -> String {
    let stream = RandomStream::named(seed, "programs");
    let mut writer =
        Writer { stream, count: 0, symbols: false, mesh: MESHES[0], body: String::new(), args: Vec::new(), made: Vec::new() };
    writer.symbols = writer.pick(2) == 0;
    writer.mesh = writer.one(&MESHES);
    for elem in ["f32", "f16", "bf16"] {
        for (name, value) in [("low", "-3.0"), ("high", "3.0")] {
            let _ = writeln!(writer.body, "  %{name}_{elem} = constant {{value={elem}({value})}} : tile<{elem}>");
        }
    }
    writer.load();
    if writer.pick(2) == 0 {
        writer.load();
    }
    let steps = 2 + writer.pick(6);
    (0..steps).for_each(|_| writer.step());
    let results = 1 + writer.pick(2);
    for result in 0..results {
        let from = match result {
            0 => writer.made[writer.made.len() - 1].clone(),
            _ => {
                let made = writer.made.clone();
                writer.one(&made)
            }
        };
        let name = format!("out{result}");
        writer.operand(&name, &from.axes, from.elem);
        let _ = writeln!(writer.body, "  graph.store %{}, %{name}", from.name);
    }
    let (args, params): (Vec<String>, Vec<String>) = writer.args.into_iter().unzip();
    let mesh: Vec<String> = writer.mesh.iter().map(|(name, size)| format!("{name}={size}")).collect();
    format!(
        "graph @f({}) abi({}) mesh({}) {{\n{}  return\n}}\n",
        args.join(", "),
        params.join(", "),
        mesh.join(", "),
        writer.body
    )
}

#[test]
fn random_programs_on_ranks_give_what_they_give_alone() {
    for seed in 0..150 {
        let text = program(seed);
        let outcome = both(&text, &AXES, integers(seed));
        equal(&outcome, &format!("// seed {seed}\n{text}"));
    }
}
