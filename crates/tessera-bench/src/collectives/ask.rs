//! What a rank is asked, and what it answers: one JSON object a line in each direction, where it is a process.
//!
//! ```text
//! -> {"ask":"describe"}                          <- {"name":"torch 2.11","offers":[{"name":"nccl","collectives":["all_reduce",...]},...]}
//! -> {"ask":"prepare","case":1,"collective":"all_reduce","bytes":4096,"ranks":2,"dtype":"bf16","implementation":"nccl"}
//!                                                                         <- {"name":"torch 2.11"}   which the row says; {} where there is nothing to say
//! -> {"ask":"fill","case":1,"seed":1,"exact":true}         inputs as `data.rs` says                                          <- {}
//! -> {"ask":"poison","case":1,"byte":255}                  every byte of the result; a broadcast's root has its input there   <- {}
//! -> {"ask":"run","case":1}                                the collective once, finished when it answers                      <- {}
//! -> {"ask":"time","case":1,"samples":10,"launches":4,"graph":true}       <- {"ns":[...]}    of one launch in each sample, on this rank
//! -> {"ask":"read","case":1,"rank":0,"start":0,"len":64}                  <- {"codes":"803f80bf..."}   by that rank: 1, -1, ...; others answer {}
//! -> {"ask":"digest","case":1,"of":"result"}                              <- {"digest":"81b3..."}
//! -> {"ask":"guards","case":1}                                            <- {}, or {"guards":"12 bytes into the guard behind the result"}
//! -> {"ask":"release","case":1}                                           <- {}
//! ```
//! All ranks are asked the same, and all answer before anything else is asked. What cannot be done is answered with
//! `{"error":"...","status":"..."}`, by all ranks: where some fail and others do not, they no longer agree, and the team is given up.

use serde::{Deserialize, Serialize};

use super::kind::Collective;
use crate::status::Status;

/// What a rank is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// What it is and what it does.
    Describe,
    /// To make the memory of a case: an input and a result.
    Prepare {
        /// A number that no case of this team had before; later questions name the case by it.
        case: u64,
        /// What is to be done.
        collective: Collective,
        /// Bytes of the message, which divides among the ranks (`kind.rs` says what a message is).
        bytes: u64,
        /// How many ranks there are.
        ranks: usize,
        /// The elements' type.
        dtype: String,
        /// By which of the offered ways: [`Offer::name`].
        implementation: String,
    },
    /// To write its input, which follows from seed, rank and index (`data.rs`).
    Fill {
        /// Of which case.
        case: u64,
        /// From which all values follow.
        seed: u64,
        /// Small integers, whose sums are exact, instead of random values.
        exact: bool,
    },
    /// To overwrite its result, so that what is found there later was written later. A broadcast works in place: its root gets its input there.
    Poison {
        /// Of which case.
        case: u64,
        /// What every byte becomes.
        byte: u8,
    },
    /// To do the collective once; it answers when the result is there.
    Run {
        /// Of which case.
        case: u64,
    },
    /// How long launches take.
    Time {
        /// Of which case.
        case: u64,
        /// How many times are wanted.
        samples: usize,
        /// Launches in a row that one time is the mean of.
        launches: usize,
        /// Whether these launches are recorded into a CUDA graph, which is launched instead. On the CPU it says nothing.
        graph: bool,
    },
    /// Some elements of one rank's result. The other ranks are asked too, and answer nothing.
    Read {
        /// Of which case.
        case: u64,
        /// The rank whose result it is.
        rank: usize,
        /// The first element that is wanted.
        start: usize,
        /// How many elements are wanted.
        len: usize,
    },
    /// A digest of all that the rank has on one side (`data.rs`).
    Digest {
        /// Of which case.
        case: u64,
        /// Its input or its result.
        of: Side,
    },
    /// Whether something was written before or behind the input and the result.
    Guards {
        /// Of which case.
        case: u64,
    },
    /// To free the case's memory.
    Release {
        /// Of which case.
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

/// What a rank answers. Fields that were not asked for are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// Why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the row's status is then; `runtime_error` where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// What it is. The answer to `prepare` may say by what the case is done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The ways that it offers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<Offer>,
    /// Nanoseconds of one launch on this rank, one number a sample.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ns: Vec<f64>,
    /// Elements' bytes as they lie in memory, two hexadecimal digits each.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub codes: String,
    /// A digest in hexadecimal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Where something was written that should not have been; absent where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guards: Option<String>,
}

impl Answer {
    /// The answer that something cannot be done.
    pub fn failure(status: Status, why: impl Into<String>) -> Answer {
        Answer { error: Some(why.into()), status: Some(status), ..Answer::default() }
    }
}
