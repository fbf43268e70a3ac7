//! The originals: their texts, and a launch of each at a size that wraps its ring twice and has ragged edges.

use std::sync::OnceLock;

use tessera_driver::{DevicePtr, Dim3, L2Promotion, OutOfBounds, Params, Swizzle, TensorMapSpec};
use tessera_emu::{EmuError, EmuOptions, Emulator, Finding, LaunchOptions, Sanitize, Schedule};
use tessera_types::DType;

/// A kernel that the compiler made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// A product by warpgroups.
    Ring,
    /// One whose blocks take several tiles.
    Persistent,
    /// One whose rounds two blocks of a cluster split.
    Split,
    /// Two chained products.
    Attention,
    /// A product by warps.
    Warps,
    /// Rows reduced twice.
    Rows,
    /// A sum.
    Sum,
}

/// What a launch found and wrote.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) findings: Vec<Finding>,
    pub(crate) result: Vec<u8>,
}

/// Numbers between -2 and 2.
fn random(count: u64, seed: u64) -> impl Iterator<Item = f32> {
    let mut state = seed;
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 * 4.0 - 2.0
    })
}

struct Machine(Emulator);

impl Machine {
    fn put(&self, bytes: &[u8]) -> DevicePtr {
        let at = self.0.alloc(bytes.len() as u64).unwrap();
        self.0.write(at, bytes).unwrap();
        at
    }

    fn floats(&self, count: u64, seed: u64) -> DevicePtr {
        self.put(&random(count, seed).flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
    }

    fn halves(&self, count: u64, seed: u64) -> DevicePtr {
        self.put(&random(count, seed).flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect::<Vec<u8>>())
    }

    /// A map over a row-major array of bf16; boxes are of its first two dimensions.
    fn map(&self, address: DevicePtr, extents: &[u64], tile: [u32; 2]) -> [u8; 128] {
        self.map_of(DType::BF16, address, extents, tile)
    }

    fn map_of(&self, dtype: DType, address: DevicePtr, extents: &[u64], [width, rows]: [u32; 2]) -> [u8; 128] {
        let mut tile = vec![1; extents.len()];
        tile[..2].copy_from_slice(&[width, rows]);
        let spec = TensorMapSpec {
            dtype,
            address,
            extents: extents.to_vec(),
            strides: (1..extents.len())
                .map(|axis| extents[..axis].iter().product::<u64>() * u64::from(dtype.bits() / 8))
                .collect(),
            tile,
            swizzle: Swizzle::B128,
            l2: L2Promotion::None,
            outside: OutOfBounds::Zero,
        };
        Emulator::tensor_map(&spec).unwrap()
    }
}

/// An array's pointer, sizes and row-major strides.
fn array(params: Params, at: DevicePtr, sizes: &[u64]) -> Params {
    let params = sizes.iter().fold(params.pointer(at), |params, &size| params.u32(size as u32));
    (1..=sizes.len()).fold(params, |params, axis| params.u32(sizes[axis..].iter().product::<u64>() as u32))
}

impl Kernel {
    pub(crate) const ALL: [Kernel; 7] =
        [Kernel::Ring, Kernel::Persistent, Kernel::Split, Kernel::Attention, Kernel::Warps, Kernel::Rows, Kernel::Sum];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kernel::Ring => "product_sm90a",
            Kernel::Persistent => "persistent_sm90a",
            Kernel::Split => "split_sm90a",
            Kernel::Attention => "attention_sm90a",
            Kernel::Warps => "product_sm80",
            Kernel::Rows => "rows_sm80",
            Kernel::Sum => "sum_sm80",
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Kernel::Ring => include_str!("product_sm90a.ptx"),
            Kernel::Persistent => include_str!("persistent_sm90a.ptx"),
            Kernel::Split => include_str!("split_sm90a.ptx"),
            Kernel::Attention => include_str!("attention_sm90a.ptx"),
            Kernel::Warps => include_str!("product_sm80.ptx"),
            Kernel::Rows => include_str!("rows_sm80.ptx"),
            Kernel::Sum => include_str!("sum_sm80.ptx"),
        }
    }

    /// The original's result.
    pub(crate) fn right(self) -> &'static [u8] {
        static RESULTS: [OnceLock<Vec<u8>>; Kernel::ALL.len()] = [const { OnceLock::new() }; Kernel::ALL.len()];
        RESULTS[self as usize].get_or_init(|| self.run(self.text(), Schedule::Lazy, 0).result)
    }

    /// Runs a text in the place of the kernel's own, with all sanitizers.
    pub(crate) fn run(self, text: &str, schedule: Schedule, seed: u64) -> Run {
        let machine = Machine(Emulator::new(&EmuOptions { multiprocessors: Some(2), ..EmuOptions::default() }).unwrap());
        let empty = |bytes: u64| machine.0.alloc(bytes).unwrap();
        let (entry, grid, threads, shared, params, out, bytes) = match self {
            Kernel::Ring => {
                // Six stages of 64: two rounds and a ragged third; two rows of tiles.
                let (m, n, k) = (150, 120, 840);
                let (a, b, c) = (machine.halves(m * k, 11), machine.halves(n * k, 13), empty(m * n * 2));
                let params = array(array(array(Params::new(), a, &[m, k]), b, &[n, k]), c, &[m, n]);
                let params = params.f32(1.0).f32(0.0).u32(k as u32);
                let maps = [machine.map(a, &[k, m], [64, 128]), machine.map(b, &[k, n], [64, 128])];
                let params = maps.iter().fold(params, |params, map| params.aligned(map, 64));
                ("gemm", 2, 384, 6 * 32768 + 96, params, c, m * n * 2)
            }
            Kernel::Persistent => {
                // Four tiles for two blocks, seven steps each, through a ring of six.
                let (m, n, k) = (150, 248, 424);
                let (a, b, c) = (machine.halves(m * k, 11), machine.halves(n * k, 13), empty(m * n * 2));
                let params = array(array(array(Params::new(), a, &[m, k]), b, &[k, n]), c, &[m, n]);
                let maps = [machine.map(a, &[k, m], [64, 128]), machine.map(b, &[n, k], [64, 64])];
                let params = maps.iter().fold(params, |params, map| params.aligned(map, 64));
                ("persistent_matmul", 2, 384, 6 * 32768 + 96, params, c, m * n * 2)
            }
            Kernel::Split => {
                // Two tiles, of seven and of six rounds: one block has the first slots again when the other one is done.
                let (m, n, k) = (120, 56, 824);
                let (a, b, c) = (machine.halves(m * k, 11), machine.halves(n * k, 13), empty(m * n * 4));
                let params = array(array(array(Params::new(), a, &[m, k]), b, &[k, n]), c, &[m, n]);
                let params = params.u32(2).u32(1).u32(1);
                let factors = [machine.map(a, &[k, m], [64, 64]), machine.map(b, &[n, k], [64, 64])];
                let sums = machine.map_of(DType::F32, c, &[n, m], [32, 16]);
                let params = factors.iter().chain([&sums]).fold(params, |params, map| params.aligned(map, 64));
                ("split", 4, 256, 115_712, params, c, m * n * 4)
            }
            Kernel::Attention => {
                // Five whole tiles of keys and a ragged one: each ring goes round three times.
                let (queries, keys, d) = (150, 340, 64);
                let (q, k, v) = (machine.halves(queries * d, 11), machine.halves(keys * d, 13), machine.halves(keys * d, 17));
                let o = empty(queries * d * 2);
                let params = [(q, queries), (k, keys), (v, keys), (o, queries)]
                    .into_iter()
                    .fold(Params::new(), |params, (at, rows)| array(params, at, &[1, 1, rows, d]));
                let maps = [(q, queries, 128), (k, keys, 64), (v, keys, 64)];
                let params = maps.into_iter().fold(params.f32(0.125), |params, (at, rows, tile)| {
                    params.aligned(&machine.map(at, &[d, rows, 1, 1], [64, tile]), 64)
                });
                ("attention", 2, 384, 49232, params, o, queries * d * 2)
            }
            Kernel::Warps => {
                let (m, n, k) = (60, 56, 200);
                let (a, b, c) = (machine.halves(m * k, 11), machine.halves(n * k, 13), empty(m * n * 2));
                let params = array(array(array(Params::new(), a, &[m, k]), b, &[k, n]), c, &[m, n]);
                ("gemm", 1, 128, 38912, params.f32(1.0).f32(0.0).u32(k as u32), c, m * n * 2)
            }
            Kernel::Rows => {
                let (rows, columns) = (3, 1000);
                let (x, y) = (machine.floats(rows * columns, 7), empty(rows * columns * 4));
                let params = array(array(Params::new(), x, &[rows, columns]), y, &[rows, columns]);
                ("softmax", 3, 128, 512, params, y, rows * columns * 4)
            }
            Kernel::Sum => {
                let count = 5000;
                let (x, partials) = (machine.floats(count, 7), empty(8));
                let params = array(array(Params::new(), x, &[count]), partials, &[2]);
                ("sum_partials", 2, 128, 512, params, partials, 8)
            }
        };
        let options = LaunchOptions {
            schedule,
            seed,
            sanitize: Sanitize::ALL,
            shared_bytes: shared,
            patience: 1 << 21,
            ..LaunchOptions::default()
        };
        let module = machine.0.load(text).unwrap_or_else(|error| panic!("{error}"));
        let findings = match machine.0.launch(&module, entry, Dim3::from(grid), Dim3::from(threads), &params, &options) {
            Ok(report) => report.findings,
            Err(EmuError::Fault { report, .. }) => report.findings,
            Err(error) => panic!("{error}"),
        };
        let mut result = vec![0; bytes as usize];
        machine.0.read(out, &mut result).unwrap();
        Run { findings, result }
    }
}
