//! A subject for tests: a small matrix product in f32, correct or broken in one chosen way.

use std::ops::Range;

use tessera_bench::{
    CaseKey, CaseSpec, Check, Digest, Expected, Fault, FlopClass, Lane, Metric, Output, Phase, Poison, Random, Size, Status,
    Subject, Suite, Work,
};
use tessera_types::DType;
use tessera_types::ErrorModel;

/// How a toy is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Does nothing.
    NoOp,
    /// Leaves the last row alone.
    UnwrittenTail,
    /// Writes zeros.
    Zeros,
    /// Leaves out the last 16 of K.
    DroppedTile,
    /// Two per cent too large.
    Scaled,
    /// Writes two rows in each other's place.
    SwappedRows,
    /// One NaN.
    Nan,
    /// Infinity where the result is finite.
    Infinite,
    /// What is no number becomes 0.
    LosesNan,
    /// Adds to what the output held.
    ReadsOutput,
    /// Changes an input.
    ChangesInput,
    /// Writes behind the output.
    Overruns,
    /// Another last bit on every launch.
    Random,
    /// Works once per inputs, then returns at once.
    Lazy,
    /// Works twelve times, then returns at once.
    Tires,
    /// Fails.
    Fails,
}

/// `c = a b` with `a: [m, k]`, `b: [k, n]`.
pub(crate) struct Toy {
    pub(crate) flaw: Flaw,
    m: usize,
    n: usize,
    k: usize,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    guard: u32,
    launches: usize,
    outputs: Vec<Output>,
    /// Busy time added to each launch.
    pub(crate) delay_ns: u64,
}

impl Toy {
    pub(crate) fn new(m: usize, n: usize, k: usize, flaw: Flaw) -> Toy {
        let outputs = vec![Output {
            name: "c".into(),
            rows: m,
            row_len: n,
            dtype: DType::F32,
            check: Check::Bounded,
            decode: |code| f64::from(f32::from_bits(code as u32)),
        }];
        Toy {
            flaw,
            m,
            n,
            k,
            a: vec![0.0; m * k],
            b: vec![0.0; k * n],
            c: vec![0.0; m * n],
            guard: 7,
            launches: 0,
            outputs,
            delay_ns: 0,
        }
    }

    fn product(&mut self) {
        let steps = if self.flaw == Flaw::DroppedTile { self.k - 16 } else { self.k };
        let rows = if self.flaw == Flaw::UnwrittenTail { self.m - 1 } else { self.m };
        for i in 0..rows {
            for j in 0..self.n {
                let mut sum = if self.flaw == Flaw::ReadsOutput { self.c[i * self.n + j] } else { 0.0 };
                for k in 0..steps {
                    sum = self.a[i * self.k + k].mul_add(self.b[k * self.n + j], sum);
                }
                self.c[i * self.n + j] = if self.flaw == Flaw::Scaled { sum * 1.02 } else { sum };
            }
        }
    }
}

impl Subject for Toy {
    fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    fn phases(&self) -> Vec<Phase> {
        vec![Phase { name: "parse".into(), ns: 1.5e5 }, Phase { name: "optimise".into(), ns: 2.5e6 }]
    }

    fn has_exact_lane(&self) -> bool {
        true
    }

    fn refresh(&mut self, seed: u64, lane: Lane) -> Result<(), Fault> {
        let mut random = Random::new(seed);
        for x in self.a.iter_mut().chain(&mut self.b) {
            *x = match lane {
                Lane::Case | Lane::Special => (random.unit() + random.unit() + random.unit() - 1.5) as f32,
                Lane::Exact => random.below(5) as f32 - 2.0,
            };
        }
        if lane == Lane::Special {
            (self.a[0], self.b[1]) = (f32::NAN, f32::INFINITY);
        }
        self.launches = 0;
        Ok(())
    }

    fn poison(&mut self, poison: Poison) -> Result<(), Fault> {
        self.c.fill(f32::from_bits(poison.code(DType::F32) as u32));
        Ok(())
    }

    fn launch(&mut self) -> Result<(), Fault> {
        let start = std::time::Instant::now();
        self.launches += 1;
        match self.flaw {
            Flaw::NoOp => return Ok(()),
            Flaw::Lazy if self.launches > 2 => return Ok(()),
            Flaw::Tires if self.launches > 12 => return Ok(()),
            Flaw::Fails => return Err(Fault::new(Status::RuntimeError, "the launch failed")),
            Flaw::Zeros => self.c.fill(0.0),
            _ => self.product(),
        }
        match self.flaw {
            Flaw::SwappedRows => (0..self.n).for_each(|j| self.c.swap(j, self.n + j)),
            Flaw::Nan => self.c[5] = f32::NAN,
            Flaw::Infinite => self.c[5] = f32::INFINITY,
            Flaw::LosesNan => self.c.iter_mut().filter(|c| c.is_nan()).for_each(|c| *c = 0.0),
            Flaw::ChangesInput => self.a[3] = 9.0,
            Flaw::Overruns => self.guard = 8,
            Flaw::Random => self.c[5] = f32::from_bits(self.c[5].to_bits() ^ (self.launches as u32 & 1)),
            _ => {}
        }
        while start.elapsed().as_nanos() < u128::from(self.delay_ns) {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn read(&self, _output: usize, rows: Range<usize>, codes: &mut [u64]) -> Result<(), Fault> {
        let values = &self.c[rows.start * self.n..rows.end * self.n];
        codes.iter_mut().zip(values).for_each(|(code, x)| *code = u64::from(x.to_bits()));
        Ok(())
    }

    fn expect(&self, _output: usize, rows: Range<usize>, expected: Expected<'_>) -> Result<(), Fault> {
        let Expected::Values { want, bound } = expected else {
            return Err(Fault::new(Status::HarnessError, "this output has bounds"));
        };
        let model = ErrorModel::nearest(DType::F32, DType::F32);
        for (at, i) in rows.enumerate() {
            for j in 0..self.n {
                let products = (0..self.k).map(|k| f64::from(self.a[i * self.k + k]) * f64::from(self.b[k * self.n + j]));
                let (sum, magnitude) = products.fold((0.0, 0.0), |(s, m), p| (s + p, m + p.abs()));
                want[at * self.n + j] = sum;
                bound[at * self.n + j] = model.contraction(sum, magnitude, self.k);
            }
        }
        Ok(())
    }

    fn input_digest(&self) -> Result<u64, Fault> {
        let mut digest = Digest::default();
        self.a.iter().chain(&self.b).for_each(|x| digest.word(u64::from(x.to_bits())));
        Ok(digest.finish())
    }

    fn damaged_guard(&self) -> Option<String> {
        (self.guard != 7).then(|| "4 bytes behind `c`".into())
    }
}

/// A suite of toys; the implementation's name says what it is.
pub(crate) struct Toys {
    pub(crate) cases: Vec<CaseSpec>,
}

impl Toys {
    pub(crate) fn new(operators: &[(&str, u64)], implementations: &[&str]) -> Toys {
        let spec = |&(operator, n): &(&str, u64)| CaseSpec {
            key: CaseKey {
                operator: operator.into(),
                size: Size::new([("m", n), ("n", n), ("k", 64)]),
                precision: "f32".into(),
                variant: String::new(),
                distribution: "uniform3".into(),
            },
            work: Work {
                read_bytes: 4 * 2 * 64 * n,
                write_bytes: 4 * n * n,
                flops: 2 * 64 * n * n,
                class: Some(FlopClass::F32),
                metric: Metric::Compute,
                tensor_bytes: 4 * (2 * 64 * n + n * n),
                formula: "2mnk flop".into(),
            },
            implementations: implementations.iter().map(|i| i.to_string()).collect(),
        };
        Toys { cases: operators.iter().map(spec).collect() }
    }
}

impl Suite for Toys {
    fn name(&self) -> &str {
        "toys"
    }

    fn cases(&self) -> &[CaseSpec] {
        &self.cases
    }

    fn build(&self, case: &CaseSpec, implementation: &str) -> Result<Box<dyn Subject>, Fault> {
        let n = case.key.size.get("n").unwrap_or(16) as usize;
        let flaw = match implementation {
            "noop" => Flaw::NoOp,
            "tires" => Flaw::Tires,
            "scaled" => Flaw::Scaled,
            "absent" => return Err(Fault::new(Status::Unsupported, "no such implementation here")),
            _ => Flaw::None,
        };
        let mut toy = Toy::new(n, n, 64, flaw);
        toy.delay_ns = if implementation == "slow" { 2_000_000 } else { 0 };
        Ok(Box::new(toy))
    }

    fn empty_launch(&self) -> Option<Box<dyn FnMut() + '_>> {
        Some(Box::new(|| {
            std::hint::black_box(());
        }))
    }
}
