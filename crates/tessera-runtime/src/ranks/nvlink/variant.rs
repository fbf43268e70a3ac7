//! Which kernel does a call, and what it is given: the kernels of `kernels/nvlink.py` with everything that is known when they
//! are compiled.

use tessera_launch::Argument;
use tessera_types::DType;

use super::region::Layout;
use crate::kernel::{Kernel, KernelError};
use crate::ranks::call::Reduction;
use crate::value::Value;

/// The kernels' source.
pub const SOURCE: &str = include_str!("../../../kernels/nvlink.py");
/// What messages call it.
pub const FILE: &str = "nvlink.py";
/// Threads of a block.
pub const THREADS: u32 = 512;
/// Blocks of a launch at most: flags have room for so many.
pub const MOST_BLOCKS: u32 = 128;
/// Ranks at most: flags have room for so many.
pub const MOST_RANKS: usize = 8;

/// How a collective is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Each rank sends all it has to all others, in words that say whose call they are of.
    SmallAllReduce,
    /// The same 16 bytes at a time, with a flag for each block.
    OneShotAllReduce,
    /// Each rank combines a slice of all ranks' elements and sends the result to all others.
    TwoShotAllReduce,
    /// Each rank sends every other rank its part.
    ReduceScatter,
    /// Each rank sends all it has to all others.
    AllGather,
}

impl Algorithm {
    /// Every one.
    pub const ALL: [Algorithm; 5] = [
        Algorithm::SmallAllReduce,
        Algorithm::OneShotAllReduce,
        Algorithm::TwoShotAllReduce,
        Algorithm::ReduceScatter,
        Algorithm::AllGather,
    ];

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::SmallAllReduce => "small_all_reduce",
            Algorithm::OneShotAllReduce => "one_shot_all_reduce",
            Algorithm::TwoShotAllReduce => "two_shot_all_reduce",
            Algorithm::ReduceScatter => "reduce_scatter",
            Algorithm::AllGather => "all_gather",
        }
    }

    /// Bytes that a call with `bytes` bytes takes of a set of lines or of data. `bytes` are those of a rank's whole source for
    /// `all_reduce`, and of one part for the others.
    pub fn set_bytes(self, bytes: u64, ranks: u64) -> u64 {
        let lines = |bytes: u64| bytes.div_ceil(4) * 8;
        let vectors = |bytes: u64| bytes.div_ceil(16);
        match self {
            Algorithm::SmallAllReduce => ranks * lines(bytes),
            Algorithm::OneShotAllReduce | Algorithm::ReduceScatter | Algorithm::AllGather => ranks * vectors(bytes) * 16,
            Algorithm::TwoShotAllReduce => 2 * ranks * vectors(bytes).div_ceil(ranks) * 16,
        }
    }

    /// Blocks that a call with `bytes` bytes is done by.
    pub fn blocks(self, bytes: u64, ranks: u64) -> u32 {
        let items = match self {
            Algorithm::SmallAllReduce => bytes.div_ceil(4),
            Algorithm::OneShotAllReduce | Algorithm::ReduceScatter | Algorithm::AllGather => bytes.div_ceil(16),
            Algorithm::TwoShotAllReduce => bytes.div_ceil(16).div_ceil(ranks),
        };
        items.div_ceil(u64::from(THREADS)).clamp(1, u64::from(MOST_BLOCKS)) as u32
    }
}

/// How elements lie to 16 bytes. It may differ from rank to rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Every 16 bytes are whole.
    Whole,
    /// The last 16 bytes are cut.
    Tail,
    /// Rows begin anywhere.
    Odd,
}

impl Form {
    const fn name(self) -> &'static str {
        match self {
            Form::Whole => "whole",
            Form::Tail => "tail",
            Form::Odd => "odd",
        }
    }
}

/// What a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variant {
    /// How it is done.
    pub algorithm: Algorithm,
    /// The elements.
    pub dtype: DType,
    /// `max`, `min`, or else the sum.
    pub combine: Combining,
    /// How many ranks.
    pub ranks: usize,
    /// How elements lie.
    pub form: Form,
}

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Combining {
    /// Their sum; floats in fp32, integers wrap.
    Sum,
    /// The greatest.
    Max,
    /// The least.
    Min,
}

impl Combining {
    /// The one that does a reduction, where there is one.
    pub fn of(reduction: Reduction) -> Option<Combining> {
        match reduction {
            Reduction::Sum => Some(Combining::Sum),
            Reduction::Max => Some(Combining::Max),
            Reduction::Min => Some(Combining::Min),
            Reduction::Prod | Reduction::Avg => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Combining::Sum => "sum",
            Combining::Max => "max",
            Combining::Min => "min",
        }
    }
}

/// What a launch is given: numbers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Addresses of source and result.
    pub source: u64,
    /// As above.
    pub result: u64,
    /// The address of the table of all ranks' regions.
    pub table: u64,
    /// The address of the own region.
    pub region: u64,
    /// Elements: of a rank's source for `all_reduce`, of one part for the others.
    pub elements: u64,
    /// Regions' layout.
    pub layout: Layout,
    /// Which rank this is.
    pub rank: usize,
    /// Looks at a flag before a rank counts as missing.
    pub polls: u32,
}

impl Variant {
    /// Element types there are kernels for.
    pub const DTYPES: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::I32];

    /// The kernel, of the source given.
    ///
    /// # Errors
    /// A text that is no such kernel.
    pub fn kernel(&self, source: &str) -> Result<Kernel, KernelError> {
        Kernel::from_source(FILE, source, self.algorithm.name())
    }

    /// Its arguments.
    pub fn arguments(&self, numbers: &Numbers) -> Vec<(&'static str, Value)> {
        let mut args: Vec<(&'static str, Value)> =
            self.numbers(numbers).into_iter().map(|(name, number)| (name, Value::Int(number))).collect();
        let bytes = self.dtype.unpacked_bytes() as i64;
        args.push(("dtype", Value::DType(self.dtype)));
        if self.algorithm != Algorithm::AllGather {
            args.push(("acc", Value::DType(if self.dtype.is_float() { DType::F32 } else { self.dtype })));
            args.push(("op", Value::Str(self.combine.name().to_string())));
        }
        args.push(("ranks", Value::Int(self.ranks as i64)));
        if self.algorithm == Algorithm::SmallAllReduce {
            args.push(("packed", Value::Int(4 / bytes)));
        } else {
            args.push(("form", Value::Str(self.form.name().to_string())));
            args.push(("width", Value::Int(16 / bytes)));
            args.push(("align", Value::Int(if self.form == Form::Odd { bytes } else { 16 })));
        }
        args
    }

    /// What of its arguments differs from launch to launch.
    pub fn changes<A>(&self, numbers: &Numbers) -> Vec<(&'static str, Argument<A>)> {
        let constant = |number: i64| Argument::Constant(tessera_launch::Constant::Int(number));
        self.numbers(numbers).into_iter().map(|(name, number)| (name, constant(number))).collect()
    }

    fn numbers(&self, numbers: &Numbers) -> Vec<(&'static str, i64)> {
        let mut all = vec![
            ("x", numbers.source.cast_signed()),
            ("y", numbers.result.cast_signed()),
            ("table_at", numbers.table.cast_signed()),
            ("region", numbers.region.cast_signed()),
            ("n", numbers.elements.cast_signed()),
            ("lines_bytes", numbers.layout.lines_bytes.cast_signed()),
        ];
        if self.algorithm != Algorithm::SmallAllReduce {
            all.push(("set_bytes", numbers.layout.set_bytes.cast_signed()));
        }
        all.push(("rank", numbers.rank as i64));
        all.push(("polls", i64::from(numbers.polls.min(i32::MAX as u32))));
        all
    }
}
