//! A number in a results file that may be NaN or infinite: JSON has no such numbers, so they are written as strings.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An f64 that survives JSON: `0.5`, `"nan"`, `"inf"`, `"-inf"`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Real(pub f64);

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            x if x.is_nan() => serializer.serialize_str("nan"),
            f64::INFINITY => serializer.serialize_str("inf"),
            f64::NEG_INFINITY => serializer.serialize_str("-inf"),
            x => serializer.serialize_f64(x),
        }
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Real, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Real;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, \"nan\", \"inf\" or \"-inf\"")
            }
            fn visit_f64<E: Error>(self, v: f64) -> Result<Real, E> {
                Ok(Real(v))
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<Real, E> {
                Ok(Real(v as f64))
            }
            fn visit_i64<E: Error>(self, v: i64) -> Result<Real, E> {
                Ok(Real(v as f64))
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<Real, E> {
                match v {
                    "nan" => Ok(Real(f64::NAN)),
                    "inf" => Ok(Real(f64::INFINITY)),
                    "-inf" => Ok(Real(f64::NEG_INFINITY)),
                    other => Err(E::custom(format!("`{other}` is no number"))),
                }
            }
        }
        deserializer.deserialize_any(Number)
    }
}
