//! Products: multiprocessors, clocks, memory and the dense peaks of each number format.
//!
//! A peak is `multiprocessors * operations a clock * clock`, a multiply-add counting two; figures "with sparsity" are not here. The
//! vendor's published figure stands beside the factors, and a test holds the two within two per cent of each other. A format
//! without a row has no rate of its own on that product: its products run in another format, and are judged by that one's peak.
//!
//! | pitfall | in this table |
//! |---|---|
//! | a tensor peak is rated below the highest clock (Hopper, B200) | each peak names its clock; [`Device::peak_at_boost`] is what a short kernel can reach |
//! | GeForce parts accumulate in `f32` at half rate | peaks are by accumulator |
//! | `f32` on CUDA cores and `tf32` on tensor cores | two formats, two units |
//!
//! ```
//! use tessera_types::{DType, Device};
//! let card = Device::by_name("NVIDIA GeForce RTX 4090").unwrap();
//! assert_eq!(card.peak(DType::F16, DType::F32).unwrap().tera, 165.2);
//! assert_eq!(card.peak(DType::F16, DType::F16).unwrap().tera, 330.3);
//! assert!(card.peak(DType::F4E2M1, DType::F32).is_none());
//! ```

use crate::arch::Arch;
use crate::dtype::DType;

/// The part of a multiprocessor that does the arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// The tensor cores.
    Tensor,
    /// The lanes that serve ordinary instructions.
    Vector,
}

/// The dense peak of some formats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// What does the arithmetic.
    pub unit: Unit,
    /// The operands' types.
    pub operands: &'static [DType],
    /// The accumulators' types.
    pub accumulators: &'static [DType],
    /// Operations a clock and multiprocessor.
    pub per_clock_sm: u32,
    /// The clock that the figure is rated at, in MHz.
    pub mhz: u32,
    /// The vendor's figure: 10^12 operations a second.
    pub tera: f64,
}

/// A product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// The name that the command line and reports use.
    pub name: &'static str,
    /// Other names, the driver's included; case, spaces, punctuation and the vendor's prefixes do not matter.
    pub aliases: &'static [&'static str],
    /// The architecture.
    pub arch: Arch,
    /// Multiprocessors.
    pub sms: u32,
    /// The highest clock that the vendor states, in MHz.
    pub boost_mhz: u32,
    /// Bytes of the second-level cache.
    pub l2_bytes: u64,
    /// Bytes of device memory.
    pub dram_bytes: u64,
    /// Bandwidth of device memory: 10^9 bytes a second.
    pub dram_gbps: f64,
    /// Board power in watts.
    pub watts: u32,
    /// The dense peaks.
    pub peaks: &'static [Peak],
}

impl Peak {
    /// The peak that its factors give on so many multiprocessors at a clock: 10^12 operations a second.
    pub fn tera_at(&self, sms: u32, mhz: u32) -> f64 {
        f64::from(sms) * f64::from(self.per_clock_sm) * f64::from(mhz) * 1e-6
    }
}

impl Device {
    /// The product of that name. Similar products are not taken for it.
    pub fn by_name(name: &str) -> Option<&'static Device> {
        let wanted = plain(name);
        Device::ALL.iter().find(|d| plain(d.name) == wanted || d.aliases.iter().any(|a| plain(a) == wanted))
    }

    /// The fastest unit's peak for products of `operand` summed in `accumulator`.
    pub fn peak(&self, operand: DType, accumulator: DType) -> Option<&'static Peak> {
        let candidates = [Unit::Tensor, Unit::Vector].map(|unit| self.peak_of(unit, operand, accumulator));
        candidates.into_iter().flatten().max_by(|a, b| a.tera.total_cmp(&b.tera))
    }

    /// One unit's peak for products of `operand` summed in `accumulator`.
    pub fn peak_of(&self, unit: Unit, operand: DType, accumulator: DType) -> Option<&'static Peak> {
        self.peaks.iter().find(|p| p.unit == unit && p.operands.contains(&operand) && p.accumulators.contains(&accumulator))
    }

    /// What no kernel can exceed: the peak at the highest clock, 10^12 operations a second.
    pub fn peak_at_boost(&self, peak: &Peak) -> f64 {
        peak.tera.max(peak.tera_at(self.sms, self.boost_mhz))
    }

    /// Operations for each byte of device memory at which the two limits meet.
    pub fn ridge(&self, peak: &Peak) -> f64 {
        peak.tera * 1e3 / self.dram_gbps
    }
}

/// A name without case, spaces, punctuation and the vendor's prefixes.
fn plain(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.map(str::to_ascii_lowercase).filter(|word| !matches!(word.as_str(), "nvidia" | "tesla" | "geforce")).collect()
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const F32: &[DType] = &[DType::F32];
const F64: &[DType] = &[DType::F64];
const F16: &[DType] = &[DType::F16];
const BF16: &[DType] = &[DType::BF16];
const TF32: &[DType] = &[DType::TF32];
const HALVES: &[DType] = &[DType::F16, DType::BF16];
const FP8: &[DType] = &[DType::F8E4M3, DType::F8E5M2];
const FP8_FP6: &[DType] = &[DType::F8E4M3, DType::F8E5M2, DType::F6E2M3, DType::F6E3M2];
const FP4: &[DType] = &[DType::F4E2M1];
const I8: &[DType] = &[DType::I8, DType::U8];
const I4: &[DType] = &[DType::I4];
const I32: &[DType] = &[DType::I32];
const F16_OR_F32: &[DType] = &[DType::F16, DType::F32];

const fn tensor(operands: &'static [DType], accumulators: &'static [DType], per_clock_sm: u32, mhz: u32, tera: f64) -> Peak {
    Peak { unit: Unit::Tensor, operands, accumulators, per_clock_sm, mhz, tera }
}

/// A peak of the vector lanes, summed in the operands' own type.
const fn vector(operands: &'static [DType], per_clock_sm: u32, mhz: u32, tera: f64) -> Peak {
    Peak { unit: Unit::Vector, ..tensor(operands, operands, per_clock_sm, mhz, tera) }
}

const HOPPER_SXM: &[Peak] = &[
    tensor(F16, F16_OR_F32, 4096, 1830, 989.4),
    tensor(BF16, F32, 4096, 1830, 989.4),
    tensor(TF32, F32, 2048, 1830, 494.7),
    tensor(FP8, F16_OR_F32, 8192, 1830, 1978.9),
    tensor(I8, I32, 8192, 1830, 1978.9),
    tensor(F64, F64, 256, 1980, 66.9),
    vector(F64, 128, 1980, 33.5),
    vector(F32, 256, 1980, 66.9),
    vector(HALVES, 512, 1980, 133.8),
];

impl Device {
    /// Every product, oldest first.
    pub const ALL: &'static [Device] = &[
        Device {
            name: "v100",
            aliases: &["V100 SXM", "V100 SXM2", "Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"],
            arch: Arch::Sm70,
            sms: 80,
            boost_mhz: 1530,
            l2_bytes: 6 * MIB,
            dram_bytes: 16 * GIB,
            dram_gbps: 900.0,
            watts: 300,
            peaks: &[
                tensor(F16, F16_OR_F32, 1024, 1530, 125.0),
                vector(F64, 64, 1530, 7.8),
                vector(F32, 128, 1530, 15.7),
                vector(F16, 256, 1530, 31.4),
                // Four products an instruction (`dp4a`): Volta's tensor cores know no integers.
                Peak { accumulators: I32, ..vector(I8, 512, 1530, 62.8) },
            ],
        },
        Device {
            name: "t4",
            aliases: &["Tesla T4"],
            arch: Arch::Sm75,
            sms: 40,
            boost_mhz: 1590,
            l2_bytes: 4 * MIB,
            dram_bytes: 16 * GIB,
            dram_gbps: 320.0,
            watts: 70,
            peaks: &[
                tensor(F16, F16_OR_F32, 1024, 1590, 65.0),
                tensor(I8, I32, 2048, 1590, 130.0),
                tensor(I4, I32, 4096, 1590, 260.0),
                vector(F64, 4, 1590, 0.254),
                vector(F32, 128, 1590, 8.1),
                vector(F16, 256, 1590, 16.2),
            ],
        },
        Device {
            name: "a100",
            aliases: &["A100 SXM", "NVIDIA A100-SXM4-80GB"],
            arch: Arch::Sm80,
            sms: 108,
            boost_mhz: 1410,
            l2_bytes: 40 * MIB,
            dram_bytes: 80 * GIB,
            dram_gbps: 2039.0,
            watts: 400,
            peaks: &[
                tensor(F16, F16_OR_F32, 2048, 1410, 312.0),
                tensor(BF16, F32, 2048, 1410, 312.0),
                tensor(TF32, F32, 1024, 1410, 156.0),
                tensor(I8, I32, 4096, 1410, 624.0),
                tensor(I4, I32, 8192, 1410, 1248.0),
                tensor(F64, F64, 128, 1410, 19.5),
                vector(F64, 64, 1410, 9.7),
                vector(F32, 128, 1410, 19.5),
                vector(F16, 512, 1410, 78.0),
                vector(BF16, 256, 1410, 39.0),
            ],
        },
        Device {
            name: "a10",
            aliases: &["NVIDIA A10"],
            arch: Arch::Sm86,
            sms: 72,
            boost_mhz: 1695,
            l2_bytes: 6 * MIB,
            dram_bytes: 24 * GIB,
            dram_gbps: 600.0,
            watts: 150,
            peaks: &[
                tensor(F16, F16_OR_F32, 1024, 1695, 125.0),
                tensor(BF16, F32, 1024, 1695, 125.0),
                tensor(TF32, F32, 512, 1695, 62.5),
                tensor(I8, I32, 2048, 1695, 250.0),
                tensor(I4, I32, 4096, 1695, 500.0),
                vector(F64, 4, 1695, 0.49),
                vector(F32, 256, 1695, 31.2),
                vector(HALVES, 256, 1695, 31.2),
            ],
        },
        Device {
            name: "rtx3090",
            aliases: &["RTX 3090", "NVIDIA GeForce RTX 3090"],
            arch: Arch::Sm86,
            sms: 82,
            boost_mhz: 1695,
            l2_bytes: 6 * MIB,
            dram_bytes: 24 * GIB,
            dram_gbps: 936.0,
            watts: 350,
            peaks: &[
                tensor(F16, F32, 512, 1695, 71.0),
                tensor(F16, F16, 1024, 1695, 142.0),
                tensor(BF16, F32, 512, 1695, 71.0),
                tensor(TF32, F32, 256, 1695, 35.6),
                tensor(I8, I32, 2048, 1695, 284.0),
                tensor(I4, I32, 4096, 1695, 568.0),
                vector(F64, 4, 1695, 0.556),
                vector(F32, 256, 1695, 35.6),
                vector(HALVES, 256, 1695, 35.6),
            ],
        },
        Device {
            name: "l4",
            aliases: &["NVIDIA L4"],
            arch: Arch::Sm89,
            sms: 58,
            boost_mhz: 2040,
            l2_bytes: 48 * MIB,
            dram_bytes: 24 * GIB,
            dram_gbps: 300.0,
            watts: 72,
            peaks: &[
                tensor(F16, F16_OR_F32, 1024, 2040, 121.0),
                tensor(BF16, F32, 1024, 2040, 121.0),
                tensor(TF32, F32, 512, 2040, 60.5),
                tensor(FP8, F16_OR_F32, 2048, 2040, 242.0),
                tensor(I8, I32, 2048, 2040, 242.0),
                tensor(I4, I32, 4096, 2040, 485.0),
                vector(F64, 4, 2040, 0.47),
                vector(F32, 256, 2040, 30.3),
                vector(HALVES, 256, 2040, 30.3),
            ],
        },
        Device {
            name: "l40s",
            aliases: &["NVIDIA L40S"],
            arch: Arch::Sm89,
            sms: 142,
            boost_mhz: 2520,
            l2_bytes: 96 * MIB,
            dram_bytes: 48 * GIB,
            dram_gbps: 864.0,
            watts: 350,
            peaks: &[
                tensor(F16, F16_OR_F32, 1024, 2520, 362.05),
                tensor(BF16, F32, 1024, 2520, 362.05),
                tensor(TF32, F32, 512, 2520, 183.0),
                tensor(FP8, F16_OR_F32, 2048, 2520, 733.0),
                tensor(I8, I32, 2048, 2520, 733.0),
                // The data sheet repeats the figure of `i8` here; the unit is the one of the other Ada parts, at twice that.
                tensor(I4, I32, 4096, 2520, 1466.0),
                vector(F64, 4, 2520, 1.43),
                vector(F32, 256, 2520, 91.6),
                vector(HALVES, 256, 2520, 91.6),
            ],
        },
        Device {
            name: "rtx4090",
            aliases: &["RTX 4090", "NVIDIA GeForce RTX 4090"],
            arch: Arch::Sm89,
            sms: 128,
            boost_mhz: 2520,
            l2_bytes: 72 * MIB,
            dram_bytes: 24 * GIB,
            dram_gbps: 1008.0,
            watts: 450,
            peaks: &[
                tensor(F16, F32, 512, 2520, 165.2),
                tensor(F16, F16, 1024, 2520, 330.3),
                tensor(BF16, F32, 512, 2520, 165.2),
                tensor(TF32, F32, 256, 2520, 82.6),
                tensor(FP8, F32, 1024, 2520, 330.3),
                tensor(FP8, F16, 2048, 2520, 660.6),
                tensor(I8, I32, 2048, 2520, 660.6),
                tensor(I4, I32, 4096, 2520, 1321.2),
                vector(F64, 4, 2520, 1.29),
                vector(F32, 256, 2520, 82.6),
                vector(HALVES, 256, 2520, 82.6),
            ],
        },
        Device {
            name: "h100",
            aliases: &["H100 SXM", "H100 SXM5", "NVIDIA H100 80GB HBM3"],
            arch: Arch::Sm90a,
            sms: 132,
            boost_mhz: 1980,
            l2_bytes: 50 * MIB,
            dram_bytes: 80 * GIB,
            dram_gbps: 3350.0,
            watts: 700,
            peaks: HOPPER_SXM,
        },
        Device {
            name: "h100-pcie",
            aliases: &["NVIDIA H100 PCIe"],
            arch: Arch::Sm90a,
            sms: 114,
            boost_mhz: 1755,
            l2_bytes: 50 * MIB,
            dram_bytes: 80 * GIB,
            dram_gbps: 2039.0,
            watts: 350,
            peaks: &[
                tensor(F16, F16_OR_F32, 4096, 1620, 756.0),
                tensor(BF16, F32, 4096, 1620, 756.0),
                tensor(TF32, F32, 2048, 1620, 378.0),
                tensor(FP8, F16_OR_F32, 8192, 1620, 1513.0),
                tensor(I8, I32, 8192, 1620, 1513.0),
                tensor(F64, F64, 256, 1755, 51.2),
                vector(F64, 128, 1755, 25.6),
                vector(F32, 256, 1755, 51.2),
                vector(HALVES, 512, 1755, 102.4),
            ],
        },
        Device {
            name: "h200",
            aliases: &["H200 SXM", "NVIDIA H200"],
            arch: Arch::Sm90a,
            sms: 132,
            boost_mhz: 1980,
            // What the driver reports; data sheets say 50 MB.
            l2_bytes: 60 * MIB,
            dram_bytes: 141_000_000_000,
            dram_gbps: 4800.0,
            watts: 700,
            peaks: HOPPER_SXM,
        },
        Device {
            name: "b200",
            aliases: &["B200 SXM", "NVIDIA B200"],
            arch: Arch::Sm100a,
            sms: 148,
            boost_mhz: 1965,
            l2_bytes: 126 * MIB,
            dram_bytes: 180_000_000_000,
            dram_gbps: 8000.0,
            watts: 1000,
            peaks: &[
                tensor(F16, F16_OR_F32, 8192, 1850, 2250.0),
                tensor(BF16, F32, 8192, 1850, 2250.0),
                tensor(TF32, F32, 4096, 1850, 1125.0),
                tensor(FP8_FP6, F16_OR_F32, 16384, 1850, 4500.0),
                tensor(FP4, F32, 32768, 1850, 9000.0),
                tensor(I8, I32, 16384, 1850, 4500.0),
                tensor(F64, F64, 128, 1965, 37.0),
                vector(F64, 128, 1965, 37.0),
                vector(F32, 256, 1965, 75.0),
            ],
        },
    ];
}
