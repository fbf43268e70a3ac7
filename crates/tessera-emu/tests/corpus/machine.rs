//! A file of the corpus on an emulated device, and what the tests' inputs and comparisons have in common.

use tessera_driver::{DevicePtr, Dim3, Params};
use tessera_emu::{EmuError, EmuOptions, Emulator, Finding, LaunchOptions, Module, Report, Sanitize, Schedule};

/// Numbers that lie in memory as their bytes.
pub(crate) trait Plain: Copy {
    fn write(self, out: &mut Vec<u8>);
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($ty:ty)*) => {$(
        impl Plain for $ty {
            fn write(self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn read(bytes: &[u8]) -> $ty {
                <$ty>::from_le_bytes(bytes.try_into().unwrap())
            }
        }
    )*};
}

plain! { u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 }

pub(crate) struct Machine {
    pub(crate) emulator: Emulator,
    pub(crate) module: Module,
    pub(crate) file: String,
    options: LaunchOptions,
    known: fn(&Finding) -> bool,
}

/// Runs `body` on each file under each schedule, with sanitizers and without.
pub(crate) fn each(files: &[&str], body: impl Fn(&Machine)) {
    each_but(files, |_| false, body);
}

/// The same where sanitizers are right to report something.
pub(crate) fn each_but(files: &[&str], known: fn(&Finding) -> bool, body: impl Fn(&Machine)) {
    let runs = [(Schedule::Eager, Sanitize::ALL), (Schedule::Lazy, Sanitize::ALL), (Schedule::Random, Sanitize::NONE)];
    for file in files {
        let text = std::fs::read_to_string(super::folder().join(format!("{file}.ptx"))).unwrap();
        for (schedule, sanitize) in runs {
            let emulator = Emulator::new(&EmuOptions::default()).unwrap();
            let module = emulator.load(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
            let options = LaunchOptions { schedule, sanitize, seed: 3, most_findings: 1 << 20, ..LaunchOptions::default() };
            body(&Machine { emulator, module, file: (*file).to_owned(), options, known });
        }
    }
}

impl Machine {
    pub(crate) fn put<T: Plain>(&self, values: &[T]) -> DevicePtr {
        let mut bytes = Vec::new();
        values.iter().for_each(|value| value.write(&mut bytes));
        let at = self.emulator.alloc(bytes.len() as u64).unwrap();
        self.emulator.write(at, &bytes).unwrap();
        at
    }

    /// Memory that counts as not written.
    pub(crate) fn room(&self, bytes: usize) -> DevicePtr {
        self.emulator.alloc(bytes as u64).unwrap()
    }

    pub(crate) fn get<T: Plain>(&self, at: DevicePtr, count: usize) -> Vec<T> {
        let mut bytes = vec![0; count * size_of::<T>()];
        self.emulator.read(at, &mut bytes).unwrap();
        bytes.chunks_exact(size_of::<T>()).map(T::read).collect()
    }

    pub(crate) fn run(&self, kernel: &str, grid: impl Into<Dim3>, block: impl Into<Dim3>, args: &Params) -> Report {
        self.run_with(kernel, grid, block, 0, args)
    }

    pub(crate) fn run_with(
        &self,
        kernel: &str,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        shared: u32,
        args: &Params,
    ) -> Report {
        let options = LaunchOptions { shared_bytes: shared, ..self.options.clone() };
        let report = match self.emulator.launch(&self.module, kernel, grid.into(), block.into(), args, &options) {
            Ok(report) => report,
            Err(EmuError::Fault { finding, .. }) => panic!("{}: {kernel}: {finding}", self.file),
            Err(error) => panic!("{}: {kernel}: {error}", self.file),
        };
        let found: Vec<String> =
            report.findings.iter().filter(|finding| !(self.known)(finding)).map(ToString::to_string).collect();
        assert!(found.is_empty(), "{}: {kernel} ({:?}):\n{}", self.file, self.options.schedule, found.join("\n"));
        report
    }
}

/// A stream of numbers that is the same everywhere.
pub(crate) struct Stream(pub(crate) u64);

impl Stream {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// From -1 to 1, with few enough digits that f32 holds it.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 44) as f32 / (1u32 << 19) as f32 - 1.0
    }

    pub(crate) fn units(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.unit()).collect()
    }

    pub(crate) fn words(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.bits() as u32).collect()
    }

    pub(crate) fn ints(&mut self, count: usize, from: i32, to: i32) -> Vec<i32> {
        (0..count).map(|_| from + self.below((to - from) as u64) as i32).collect()
    }
}

/// Whether every number is as near to what is wanted as a share of it and an absolute distance allow.
pub(crate) fn near(
    what: &str,
    got: impl IntoIterator<Item = f64>,
    wanted: impl IntoIterator<Item = f64>,
    share: f64,
    least: f64,
) {
    let (got, wanted): (Vec<f64>, Vec<f64>) = (got.into_iter().collect(), wanted.into_iter().collect());
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (index, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        let same = got == wanted || (got.is_nan() && wanted.is_nan());
        assert!(same || (got - wanted).abs() <= share * wanted.abs() + least, "{what} [{index}]: {got}, not {wanted}");
    }
}

pub(crate) fn wide(values: &[f32]) -> impl Iterator<Item = f64> {
    values.iter().map(|value| f64::from(*value))
}
