//! Maxima and minima of numbers, NaN and zeros of both signs, over every axis, tile and type: what NVIDIA's documents say, on every
//! executor. NaN is left out unless it propagates; where nothing is left, the result is NaN, and an index is the first one.

use arbtest::arbtest;
use tessera_compile::{CompileOptions, OptLevel, compile};
use tessera_cpu::RunOptions;
use tessera_lang::{ArgType, parse_file};
use tessera_types::{Arch, DType, FloatFormat};

use crate::devices::{ARCHS, Data, Launch, in_lockstep, on_cpu_with, on_emulator, same};

/// What is computed along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fold {
    Value,
    Index,
    Running,
    /// By a function of the user with the identity that NVIDIA's front end writes.
    Function,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: DType,
    rows: usize,
    columns: usize,
    /// None: both.
    axis: Option<usize>,
    fold: Fold,
    larger: bool,
    propagates: bool,
}

/// The better of two numbers; the positive one of two zeros is larger.
fn better(a: f64, b: f64, larger: bool) -> f64 {
    let first = if a == b { a.is_sign_negative() != larger } else { (a > b) == larger };
    if first { a } else { b }
}

impl Case {
    fn text(&self) -> String {
        let Case { rows, columns, axis, fold, larger, propagates, .. } = *self;
        let (name, worst) = if larger { ("max", "-math.inf") } else { ("min", "math.inf") };
        let keep = format!("propagate_nan={}", if propagates { "True" } else { "False" });
        let along = axis.map_or("None".to_string(), |axis| axis.to_string());
        let function = format!("lambda a, b: ct.{name}imum(a, b, {keep})");
        let result = match fold {
            Fold::Value => format!("ct.{name}(t, axis={along}, keepdims=True, {keep})"),
            Fold::Index => format!("ct.arg{name}(t, axis={along}, keepdims=True, {keep})"),
            Fold::Running => format!("ct.scan(t, {along}, {function}, {worst})"),
            Fold::Function => format!("ct.reduce(t, {along}, {function}, {worst}, keepdims=True)"),
        };
        // The style without the rule that extents are powers of two.
        let plain = rows.is_power_of_two() && columns.is_power_of_two();
        let (import, kernel) = if plain { ("", "@ct.kernel") } else { ("import tessera\n", "@tessera.kernel") };
        format!(
            "import math\nimport cuda.tile as ct\n{import}\n{kernel}\ndef kernel(x, y):\n    t = ct.load(x, (0, 0), ({rows}, {columns}))\n    ct.store(y, (0, 0), {result})\n"
        )
    }

    /// Rows and columns of the result.
    fn shape(&self) -> [usize; 2] {
        match (self.fold, self.axis) {
            (Fold::Running, _) => [self.rows, self.columns],
            (_, None) => [1, 1],
            (_, Some(0)) => [1, self.columns],
            (_, Some(_)) => [self.rows, 1],
        }
    }

    /// The result of a line of elements: one number, or as many as the line has.
    fn of_line(&self, line: &[f64]) -> Vec<f64> {
        let step = |running: f64, x: f64| match (running.is_nan(), x.is_nan()) {
            (false, false) => better(running, x, self.larger),
            _ if self.propagates => f64::NAN,
            (true, _) => x,
            (false, true) => running,
        };
        let mut running: Vec<f64> = Vec::new();
        for &x in line {
            running.push(running.last().map_or(x, |&before| step(before, x)));
        }
        let last = running.last().copied().unwrap_or(f64::NAN);
        match self.fold {
            Fold::Running => running,
            Fold::Value | Fold::Function => vec![last],
            // Zeros are equal here.
            Fold::Index => vec![line.iter().position(|&x| x == last || x.is_nan() && last.is_nan()).unwrap_or(0) as f64],
        }
    }

    fn meant(&self, x: &[f64]) -> Vec<f64> {
        let Case { rows, columns, .. } = *self;
        match self.axis {
            None => self.of_line(x),
            Some(1) => x.chunks(columns).flat_map(|line| self.of_line(line)).collect(),
            Some(_) => {
                let column = |j: usize| -> Vec<f64> { (0..rows).map(|i| x[i * columns + j]).collect() };
                let lines: Vec<Vec<f64>> = (0..columns).map(|j| self.of_line(&column(j))).collect();
                let height = lines[0].len();
                (0..height).flat_map(|i| lines.iter().map(move |line| line[i])).collect()
            }
        }
    }
}

/// Lines of NaN alone, of one number among NaN, of zeros, of infinities, and of everything.
fn elements(case: &Case, choose: &mut dyn FnMut(usize) -> usize) -> Vec<f64> {
    let (lines, length) = if case.axis == Some(0) { (case.columns, case.rows) } else { (case.rows, case.columns) };
    let mut made = vec![vec![f64::NAN; length]; lines];
    for line in &mut made {
        let all: &[f64] = match choose(7) {
            0 | 1 => &[f64::NAN],
            2 => &[0.0, -0.0],
            3 => &[f64::NAN, f64::NEG_INFINITY, f64::INFINITY],
            4 => &[f64::NAN, f64::NEG_INFINITY],
            5 => &[f64::NAN, f64::INFINITY],
            _ => &[f64::NAN, -2.0, -0.0, 0.0, 1.5, 3.0, f64::INFINITY, f64::NEG_INFINITY],
        };
        let kinds = 1 + choose(all.len());
        line.iter_mut().for_each(|x| *x = all[choose(kinds)]);
        if choose(3) == 0 {
            line[choose(length)] = [-1.0, -0.0, f64::NEG_INFINITY, f64::NAN][choose(4)];
        }
    }
    let at = |i: usize, j: usize| if case.axis == Some(0) { made[j][i] } else { made[i][j] };
    (0..case.rows * case.columns).map(|k| at(k / case.columns, k % case.columns)).collect()
}

fn disagreements(case: &Case, x: &[f64], number: usize) -> Vec<String> {
    let format = FloatFormat::of(case.dtype).expect("a float");
    let out = if case.fold == Fold::Index { DType::I32 } else { case.dtype };
    let [height, width] = case.shape().map(|extent| extent as i64);
    let want = case.meant(x);
    let want = Data::codes(out, &[height, width], |i| match out {
        DType::I32 => want[i] as u64,
        _ => format.encode_nearest(want[i]),
    });
    let file = parse_file("extremes.py", &case.text());
    let args = [("x", case.dtype), ("y", out)].map(|(name, dtype)| (name.to_string(), ArgType::array(dtype, 2)));
    let mut found = Vec::new();
    for level in [OptLevel::O0, OptLevel::O3] {
        let options = CompileOptions { level, ..CompileOptions::default() };
        let compiled = compile(&file, "kernel", &args, &options)
            .unwrap_or_else(|found| panic!("{}\n{}", found[0].render(&file.sources, false), case.text()));
        let launch = Launch { compiled: &compiled, grid: [1, 1, 1] };
        let mut check = |place: String, run: &mut dyn FnMut(&mut [Data]) -> Result<(), String>| {
            let input = Data::codes(case.dtype, &[case.rows as i64, case.columns as i64], |i| format.encode_nearest(x[i]));
            let mut data = [input, Data::zeros(out, &[height, width])];
            let outcome = run(&mut data).and_then(|()| same(&want, &data[1], 0.0));
            found.extend(outcome.err().map(|wrong| format!("{place} at {level}: {wrong}")));
        };
        for checked in [false, true] {
            let options = RunOptions { checked, ..RunOptions::default() };
            check(format!("CPU, checked: {checked}"), &mut |data| on_cpu_with(&options, &launch, data));
        }
        let arch = ARCHS[number % 2];
        check(format!("lock-step {arch}"), &mut |data| in_lockstep(&launch, arch, data).map(drop));
        if level == OptLevel::O3 {
            let arch = [Arch::Sm80, Arch::Sm90a][number % 2];
            check(format!("emulated {arch}"), &mut |data| on_emulator(&launch, arch, data));
        }
    }
    found
}

#[test]
fn extremes_treat_nan_and_zeros_as_documented() {
    let budget_ms = if std::env::var_os("TESSERA_TEST_ALL").is_some() { 120_000 } else { 4_000 };
    let mut count = 0;
    arbtest(|u| {
        let mut choose = |below: usize| u.int_in_range(0..=below - 1).unwrap_or(0);
        let extents = [1, 2, 4, 8, 16, 32, 64, 256, 1024, 3, 5, 24, 100, 1000];
        let (rows, columns) = loop {
            let (rows, columns) = (extents[choose(14)], extents[choose(14)]);
            if rows * columns <= 4096 {
                break (rows, columns);
            }
        };
        let fold = [Fold::Value, Fold::Value, Fold::Index, Fold::Running, Fold::Function][choose(5)];
        let axis = match (fold, choose(5)) {
            (Fold::Value | Fold::Index, 0) => None,
            (_, other) => Some(other % 2),
        };
        let dtype = [DType::F32, DType::F16, DType::BF16, DType::F64][choose(4)];
        let case = Case { dtype, rows, columns, axis, fold, larger: choose(2) == 0, propagates: choose(3) == 0 };
        let x = elements(&case, &mut choose);
        let found = disagreements(&case, &x, choose(2));
        assert!(found.is_empty(), "{case:?}\n{}\n{}", found.join("\n"), case.text());
        count += 1;
        Ok(())
    })
    .size_min(2_000)
    .budget_ms(budget_ms);
    println!("{count} cases");
}
