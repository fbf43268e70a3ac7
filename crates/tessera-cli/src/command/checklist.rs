//! `tessera checklist`: the points that a measurement has to meet, with what a results file says of each.

use serde_json::{Value, json};
use tessera::bench::Exit;
use tessera::bench::checklist::checklist as points_of;

use crate::arguments::Checklist;
use crate::command::compare::load;
use crate::failure::{Failure, Outcome};

pub(crate) fn checklist(arguments: &Checklist) -> Outcome {
    let points = points_of(&load(&arguments.results)?);
    if points.is_empty() {
        return Err(Failure::usage(format!("`{}` has no session", arguments.results)));
    }
    if arguments.json {
        let rows: Vec<Value> =
            points.iter().map(|point| json!({ "what": point.what, "met": point.met, "evidence": point.evidence })).collect();
        println!("{}", Value::Array(rows));
    } else {
        for point in &points {
            let verdict = match point.met {
                Some(true) => "met",
                Some(false) => "NOT MET",
                None => "not told",
            };
            println!("{verdict:<8} {}: {}", point.what, point.evidence);
        }
    }
    match points.iter().any(|point| point.met == Some(false)) {
        true => Err(Failure::silent(Exit::Invalid)),
        false => Ok(()),
    }
}
