//! Precision policies: what is stored, what sums are kept in, and what results are stored as.
//!
//! ```text
//! policy      = storage [ "@" products ] [ "@accum(" accumulator ")" ] [ "->" result ]
//! storage     = element type | block-scaled name
//! products    = "3xtf32" | "3xbf16", for `fp32`
//! accumulator = element type
//! result      = element type
//! ```
//! Without `@accum` the accumulator is `fp32` for floats and `int32` for integers, or the storage type itself where that is wider
//! or `uint32`. Without `->` the result has the type that the operator gives by itself: a product's is its accumulator, a row's the storage
//! type. With `@3xtf32` and `@3xbf16` tensor cores multiply numbers of 32 bits: each is taken apart into the sum of two of the narrower type, and of
//! the four products of two such sums all are added up but that of the two small parts. A term of a sum is then off by at most
//! 3 * 2^-22 or 3 * 2^-16 of itself, and infinities give NaN. `fp6` is e2m3 and `fp4` e2m1, unscaled; block-scaled storage has names of its own:
//!
//! | name | elements | scale | elements a scale | scale of the whole tensor |
//! |---|---|---|---|---|
//! | `mxfp8_e4m3`, `mxfp8_e5m2` | `f8e4m3`, `f8e5m2` | `e8m0` | 32 | no |
//! | `mxfp6_e2m3`, `mxfp6_e3m2` | `f6e2m3`, `f6e3m2` | `e8m0` | 32 | no |
//! | `mxfp4` | `f4e2m1` | `e8m0` | 32 | no |
//! | `nvfp4` | `f4e2m1` | `f8e4m3` | 16 | `f32` |
//!
//! A policy prints as it was written, in the grammar's names; [`Policy::canonical`] drops an accumulator that says nothing new.
//!
//! ```
//! use tessera_types::{DType, Policy};
//! let policy: Policy = "fp8_e4m3@accum(fp32)".parse().unwrap();
//! assert_eq!((policy.element(), policy.accumulator()), (DType::F8E4M3, DType::F32));
//! assert_eq!(policy.to_string(), "fp8_e4m3@accum(fp32)");
//! assert_eq!(policy.canonical().to_string(), "fp8_e4m3");
//! let policy: Policy = "bf16@accum(fp32)->bf16".parse().unwrap();
//! assert_eq!((policy.accumulator(), policy.result()), (DType::F32, Some(DType::BF16)));
//! ```

use std::fmt;
use std::str::FromStr;

use crate::dtype::{DType, NumberClass};
use crate::packed::packed_bytes;

/// Elements that share a scale with their neighbours along the last axis.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockScaled {
    /// The name in the policy grammar.
    pub name: &'static str,
    /// The type of one element.
    pub element: DType,
    /// The type of one scale.
    pub scale: DType,
    /// Elements a scale.
    pub block: usize,
    /// The type of the scale of the whole tensor, where there is one.
    pub tensor_scale: Option<DType>,
}

const fn mx(name: &'static str, element: DType) -> BlockScaled {
    BlockScaled { name, element, scale: DType::E8M0, block: 32, tensor_scale: None }
}

impl BlockScaled {
    /// Every block-scaled storage.
    pub const ALL: &'static [BlockScaled] = &[
        mx("mxfp8_e4m3", DType::F8E4M3),
        mx("mxfp8_e5m2", DType::F8E5M2),
        mx("mxfp6_e2m3", DType::F6E2M3),
        mx("mxfp6_e3m2", DType::F6E3M2),
        mx("mxfp4", DType::F4E2M1),
        BlockScaled { name: "nvfp4", element: DType::F4E2M1, scale: DType::F8E4M3, block: 16, tensor_scale: Some(DType::F32) },
    ];
}

/// How a policy stores numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Storage {
    /// Elements by themselves.
    Plain(DType),
    /// Elements with shared scales.
    Scaled(&'static BlockScaled),
}

/// A precision policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Policy {
    storage: Storage,
    /// The type of the parts that factors are taken apart into, where they are.
    parts: Option<DType>,
    /// The accumulator that was named, if one was.
    named: Option<DType>,
    /// The type of the result that was named, if one was.
    result: Option<DType>,
}

/// Why a text or a pair of types is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The storage is not one.
    #[error("`{0}` is not a precision: expected one such as `fp32`, `bf16`, `fp8_e4m3`, `int8` or `mxfp4`")]
    UnknownStorage(String),
    /// The accumulator is not an element type.
    #[error("`{0}` is not an accumulator type: expected one such as `fp32` or `int32`")]
    UnknownAccumulator(String),
    /// The result is not an element type.
    #[error("`{0}` is not a type of results: expected one such as `bf16` or `fp32`")]
    UnknownResult(String),
    /// What follows `@` is neither `accum(...)` nor a way to multiply.
    #[error("`@{0}` is not understood: expected `@accum(...)` with an element type, or `@3xtf32` or `@3xbf16` before it")]
    Suffix(String),
    /// Only numbers of 32 bits are taken apart.
    #[error("`{0}` is not taken apart: `@3xtf32` and `@3xbf16` are for `fp32` with sums in `fp32`")]
    Whole(String),
    /// The accumulator cannot hold sums of what is stored.
    #[error("`{accumulator}` cannot accumulate `{storage}`")]
    Unsuitable {
        /// The storage's name.
        storage: String,
        /// The accumulator's name.
        accumulator: &'static str,
    },
}

/// Types that factors are taken apart into, with their names in the policy grammar.
const PARTS: [(&str, DType); 2] = [("3xtf32", DType::TF32), ("3xbf16", DType::BF16)];

/// The name of an element type in the policy grammar: `fp32`, not `f32`.
pub fn policy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::TF32 | DType::BF16 | DType::E8M0 => dtype.name(),
        _ => dtype.aliases().first().copied().unwrap_or(dtype.name()),
    }
}

impl Storage {
    /// The type of one element.
    pub const fn element(self) -> DType {
        match self {
            Storage::Plain(dtype) => dtype,
            Storage::Scaled(scaled) => scaled.element,
        }
    }

    /// The name in the policy grammar.
    pub fn name(self) -> &'static str {
        match self {
            Storage::Plain(dtype) => policy_name(dtype),
            Storage::Scaled(scaled) => scaled.name,
        }
    }

    /// The bytes that `rows` rows of `columns` elements take, each row packed by itself with its own scales.
    pub fn bytes(self, rows: usize, columns: usize) -> usize {
        match self {
            Storage::Plain(dtype) if dtype.is_byte_bool() => rows * columns,
            Storage::Plain(dtype) => rows * packed_bytes(dtype, columns),
            Storage::Scaled(scaled) => {
                let scales = packed_bytes(scaled.scale, columns.div_ceil(scaled.block));
                let whole = scaled.tensor_scale.map_or(0, |t| packed_bytes(t, 1));
                rows * (packed_bytes(scaled.element, columns) + scales) + whole
            }
        }
    }

    const fn default_accumulator(self) -> DType {
        match self.element() {
            DType::F64 => DType::F64,
            DType::I64 => DType::I64,
            DType::U64 => DType::U64,
            DType::U32 => DType::U32,
            element => match element.class() {
                NumberClass::Float => DType::F32,
                NumberClass::Signed | NumberClass::Unsigned | NumberClass::Bool => DType::I32,
            },
        }
    }

    /// Sums need the same kind of number, in a type that holds every product's range: no narrower than the elements.
    fn allows(self, accumulator: DType) -> bool {
        let element = self.element();
        match accumulator {
            DType::F64 => element.is_float(),
            DType::F32 => element.is_float() && element != DType::F64,
            DType::F16 => element.is_float() && (element == DType::F16 || element.bits() <= 8),
            DType::I32 => !element.is_float() && element.bits() <= 32,
            DType::I64 => !element.is_float(),
            DType::U32 | DType::U64 => {
                matches!(element.class(), NumberClass::Unsigned | NumberClass::Bool) && element.bits() <= accumulator.bits()
            }
            DType::TF32
            | DType::BF16
            | DType::F8E4M3
            | DType::F8E5M2
            | DType::E8M0
            | DType::F6E2M3
            | DType::F6E3M2
            | DType::F4E2M1
            | DType::I16
            | DType::I8
            | DType::I4
            | DType::U16
            | DType::U8
            | DType::B1 => false,
        }
    }
}

impl Policy {
    /// The policy that stores `dtype` and accumulates in its default type.
    pub const fn of(dtype: DType) -> Policy {
        Policy { storage: Storage::Plain(dtype), parts: None, named: None, result: None }
    }

    /// The policy with a named accumulator.
    ///
    /// # Errors
    /// Where that type cannot hold sums of what is stored.
    pub fn with_accumulator(storage: Storage, accumulator: DType) -> Result<Policy, PolicyError> {
        if storage.allows(accumulator) {
            Ok(Policy { storage, parts: None, named: Some(accumulator), result: None })
        } else {
            Err(PolicyError::Unsuitable { storage: storage.name().to_string(), accumulator: policy_name(accumulator) })
        }
    }

    /// The same policy with factors taken apart into two numbers of a type each.
    ///
    /// # Errors
    /// Where numbers or sums are not `fp32`, or the type is neither `tf32` nor `bf16`.
    pub fn in_parts(self, parts: DType) -> Result<Policy, PolicyError> {
        let whole = self.storage == Storage::Plain(DType::F32) && self.accumulator() == DType::F32;
        if whole && PARTS.iter().any(|(_, own)| *own == parts) {
            Ok(Policy { parts: Some(parts), ..self })
        } else {
            Err(PolicyError::Whole(self.to_string()))
        }
    }

    /// The type of the two numbers that each factor of a product is taken apart into, where it is.
    pub const fn parts(self) -> Option<DType> {
        self.parts
    }

    /// The same policy with results of a type.
    pub const fn with_result(self, result: DType) -> Policy {
        Policy { result: Some(result), ..self }
    }

    /// The type that results are stored as, where the policy names one; else it is the operator's own.
    pub const fn result(self) -> Option<DType> {
        self.result
    }

    /// How numbers are stored.
    pub const fn storage(self) -> Storage {
        self.storage
    }

    /// The type of one stored element.
    pub const fn element(self) -> DType {
        self.storage.element()
    }

    /// The type that sums are kept in.
    pub const fn accumulator(self) -> DType {
        match self.named {
            Some(accumulator) => accumulator,
            None => self.storage.default_accumulator(),
        }
    }

    /// The same policy without an accumulator that is the default: equal for policies that mean the same.
    pub fn canonical(self) -> Policy {
        let default = self.storage.default_accumulator();
        Policy { named: self.named.filter(|&a| a != default), ..self }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.storage.name())?;
        if let Some((name, _)) = PARTS.iter().find(|(_, own)| Some(*own) == self.parts) {
            write!(f, "@{name}")?;
        }
        if let Some(accumulator) = self.named {
            write!(f, "@accum({})", policy_name(accumulator))?;
        }
        match self.result {
            Some(result) => write!(f, "->{}", policy_name(result)),
            None => Ok(()),
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        let (sums, result) = match text.split_once("->") {
            Some((sums, result)) => (sums.trim(), Some(result.trim())),
            None => (text.trim(), None),
        };
        let (storage, suffixes) = match sums.split_once('@') {
            Some((storage, suffixes)) => (storage.trim_end(), Some(suffixes)),
            None => (sums, None),
        };
        let taken_apart = suffixes.and_then(|text| {
            let (first, rest) = text.split_once('@').map_or((text, None), |(first, rest)| (first, Some(rest)));
            PARTS.iter().find(|(name, _)| *name == first.trim()).map(|&(_, parts)| (parts, rest))
        });
        let suffix = taken_apart.map_or(suffixes, |(_, rest)| rest);
        let scaled = BlockScaled::ALL.iter().find(|s| s.name == storage);
        // A scale alone stores no numbers.
        let plain = |name: &str| DType::parse(name).filter(|&t| t != DType::E8M0);
        let storage = match (scaled, plain(storage)) {
            (Some(scaled), _) => Storage::Scaled(scaled),
            (None, Some(dtype)) => Storage::Plain(dtype),
            (None, None) => return Err(PolicyError::UnknownStorage(storage.to_string())),
        };
        let policy = match suffix {
            None => Policy { storage, parts: None, named: None, result: None },
            Some(suffix) => {
                let name = suffix
                    .trim_start()
                    .strip_prefix("accum(")
                    .and_then(|rest| rest.strip_suffix(')'))
                    .ok_or_else(|| PolicyError::Suffix(suffix.to_string()))?
                    .trim();
                let accumulator = DType::parse(name).ok_or_else(|| PolicyError::UnknownAccumulator(name.to_string()))?;
                Policy::with_accumulator(storage, accumulator)?
            }
        };
        let policy = taken_apart.map_or(Ok(policy), |(parts, _)| policy.in_parts(parts))?;
        let result = result.map(|name| plain(name).ok_or_else(|| PolicyError::UnknownResult(name.to_string()))).transpose()?;
        Ok(result.map_or(policy, |result| policy.with_result(result)))
    }
}
