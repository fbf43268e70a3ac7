//! What a rank is asked, and what it answers: one JSON object a line in each direction, where it is a process.
//!
//! ```text
//! -> {"ask":"describe"}                          <- {"name":"torch 2.11","offers":[{"name":"nccl","collectives":["all_reduce",...]},...]}
//! -> {"ask":"prepare","case":1,"collective":"all_reduce","bytes":4096,"ranks":2,"dtype":"bf16","implementation":"nccl"}    <- {}
//! -> {"ask":"fill","case":1,"seed":1,"exact":true}         inputs as `data.rs` says                                          <- {}
//! -> {"ask":"poison","case":1,"byte":255}                  every byte of the result; a broadcast's root has its input there   <- {}
//! -> {"ask":"run","case":1}                                the collective once, finished when it answers                      <- {}
//! -> {"ask":"time","case":1,"samples":10,"launches":4,"graph":true}       <- {"ns":[...]}    of one launch in each sample, on this rank
//! -> {"ask":"read","case":1,"rank":0,"start":0,"len":64}                  <- {"codes":"3f80bf80..."}   of that rank; others answer {}
//! -> {"ask":"digest","case":1,"of":"result"}                              <- {"digest":"81b3..."}
//! -> {"ask":"guards","case":1}                                            <- {"guards":null}
//! -> {"ask":"release","case":1}                                           <- {}
//! ```
//! All ranks are asked the same, and all answer before the next is asked. What cannot be done is answered with `{"error":"...","status":"..."}`;
//! ranks must then still agree: either all of them fail or none does, or the team is given up.

use serde::{Deserialize, Serialize};

use super::kind::Collective;
use crate::status::Status;

/// What a rank is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// What it is and what it does.
    Describe,
    /// Memory for a case.
    Prepare {
        /// The case's number.
        case: u64,
        /// What is to be done.
        collective: Collective,
        /// Bytes of the message.
        bytes: u64,
        /// How many ranks there are.
        ranks: usize,
        /// The elements' type.
        dtype: String,
        /// By which of the offered ways.
        implementation: String,
    },
    /// Inputs of a seed.
    Fill {
        /// The case.
        case: u64,
        /// The seed.
        seed: u64,
        /// Small integers instead of random values.
        exact: bool,
    },
    /// Bytes over the result.
    Poison {
        /// The case.
        case: u64,
        /// The byte.
        byte: u8,
    },
    /// The collective once.
    Run {
        /// The case.
        case: u64,
    },
    /// Times of launches.
    Time {
        /// The case.
        case: u64,
        /// Samples.
        samples: usize,
        /// Launches of a sample.
        launches: usize,
        /// Whether a sample is a graph of its launches, on a device.
        graph: bool,
    },
    /// Some elements of a rank's result.
    Read {
        /// The case.
        case: u64,
        /// Whose.
        rank: usize,
        /// The first element.
        start: usize,
        /// How many.
        len: usize,
    },
    /// A digest of what each rank has.
    Digest {
        /// The case.
        case: u64,
        /// Of which memory.
        of: Side,
    },
    /// Whether memory around the case's was written.
    Guards {
        /// The case.
        case: u64,
    },
    /// The case's memory is no longer needed.
    Release {
        /// The case.
        case: u64,
    },
}

/// What a rank gives, or what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Its input.
    Source,
    /// Its result.
    Result,
}

/// A way of doing collectives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Its name among those of its team; empty where there is one alone.
    pub name: String,
    /// What it does.
    pub collectives: Vec<Collective>,
}

/// What a rank answers; fields that were not asked for are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// Why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What that means for the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// What it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it offers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<Offer>,
    /// Nanoseconds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ns: Vec<f64>,
    /// Elements' bytes as they lie in memory, two hexadecimal digits each.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub codes: String,
    /// A digest in hexadecimal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Where a guard was overwritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guards: Option<String>,
}

impl Answer {
    /// That something cannot be done.
    pub fn failure(status: Status, why: impl Into<String>) -> Answer {
        Answer { error: Some(why.into()), status: Some(status), ..Answer::default() }
    }
}
