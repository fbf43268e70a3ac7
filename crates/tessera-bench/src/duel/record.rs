//! What a duel leaves in a file: one JSON object a line.
//!
//! ```text
//! {"kind":"duel","schema":"1.1","sides":[{"tool":{...},"device":"cpu","rows":[...]},{...}],"names":[...],"seed":7,...}
//! {"kind":"pair","pair":0,"first":1,"seconds":3.1,"rows":[{"case":"81b3...","log":0.0012,"blocks_ns":[[...],[...]]},...]}
//! {"kind":"outcome","names":[...],"rows":[{"case":"81b3...","verdict":"SAME","bound":{"log":...,"half":...},...}],...}
//! ```

use serde::{Deserialize, Serialize};

use super::DuelOptions;
use super::pair::PairRecord;
use super::side::About;
use super::verdict::DuelOutcome;
use crate::record::SCHEMA;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum DuelRecord {
    /// The sides and what was asked; first.
    Duel {
        /// Version of the format.
        schema: String,
        /// The sides.
        sides: Box<[About; 2]>,
        /// Their names.
        names: [String; 2],
        /// How sure all verdicts together must be.
        sure: f64,
        /// The smallest change that matters, as a share.
        least: f64,
        /// Decides who begins, the order of rows and where memory lies.
        seed: u64,
    },
    /// A pair.
    Pair(PairRecord),
    /// The end.
    Outcome(DuelOutcome),
}

impl DuelRecord {
    pub(super) fn of(sides: [About; 2], names: [String; 2], options: &DuelOptions) -> DuelRecord {
        let DuelOptions { sure, least, seed, .. } = *options;
        DuelRecord::Duel { schema: SCHEMA.into(), sides: Box::new(sides), names, sure, least, seed }
    }
}
