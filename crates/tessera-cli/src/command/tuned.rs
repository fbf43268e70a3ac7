//! What `tessera tune` shows: a line for each candidate, and what was left out.

use serde_json::json;
use tessera::bench::{Candidate, CaseKey, Outcome as Became, Sought, Tried, rank_correlation};

/// What was tried of a launch.
pub(crate) struct Table<'a> {
    pub(crate) tried: &'a Tried,
    pub(crate) case: &'a CaseKey,
    pub(crate) device: &'a str,
    /// Arguments as they were written.
    pub(crate) arguments: &'a [String],
    /// Whether times were taken.
    pub(crate) has_time: bool,
}

impl Table<'_> {
    pub(crate) fn print(&self, is_json: bool) {
        if is_json {
            self.tried
                .candidates
                .iter()
                .enumerate()
                .for_each(|(at, (candidate, outcome))| self.print_json(at, candidate, outcome));
        } else {
            self.print_text();
        }
    }

    fn print_json(&self, at: usize, candidate: &Candidate, outcome: &Became) {
        let (status, why) = match outcome {
            Became::Time(_) | Became::Counted(_) => ("ok", None),
            Became::Wrong(why) => ("wrong", Some(why.clone())),
            Became::Failed(why) => ("failed", Some(why.clone())),
            Became::Refused(why) => ("refused", Some(why.clone())),
            Became::Same(first) => ("same", Some(format!("the program of candidate {first}"))),
            Became::OtherOrder(order) => ("other-order", Some(order.clone())),
            Became::LeftOut => ("left-out", None),
        };
        let tried = self.tried;
        let line = json!({
            "kind": kind(tried.sought == Sought::Way), "kernel": tried.key.kernel, "case": self.case.to_string(), "arguments": self.arguments, "device": self.device,
            "config": candidate.config, "plan": candidate.plan.as_ref().map(|plan| &plan.text), "is_own_plan": !candidate.is_planned,
            "predicted_us": candidate.predicted.map(|predicted| predicted.micros),
            "bound": candidate.predicted.and_then(|predicted| predicted.bound),
            "status": status, "why": why, "chosen": at == tried.winner,
            "us": if let Became::Time(time) = outcome { Some(time / 1e3) } else { None },
            "instructions": if let Became::Counted(count) = outcome { Some(count) } else { None },
        });
        println!("{line}");
    }

    fn print_text(&self) {
        let tried = self.tried;
        match tried.sought {
            Sought::Way => println!("ways to cut {} on {}", tried.key.kernel, self.device),
            Sought::Launch => println!("{} on {}", tried.key.kernel, self.device),
        }
        if !self.has_time {
            println!(
                "no launch is timed here: what a choice should take decides, or the instructions where the model says nothing of it"
            );
        }
        println!("{:>12} {:>12}  {:<20} choice", if self.has_time { "us" } else { "instructions" }, "predicted", "bound");
        let mut shown: Vec<(usize, &Candidate, &Became)> = tried
            .candidates
            .iter()
            .enumerate()
            .filter(|(_, (_, outcome))| !matches!(outcome, Became::Same(_) | Became::LeftOut))
            .map(|(at, (candidate, outcome))| (at, candidate, outcome))
            .collect();
        let cost = |outcome: &Became| match outcome {
            Became::Time(time) => *time,
            Became::Counted(count) => *count as f64,
            _ => f64::INFINITY,
        };
        shown.sort_by(|a, b| {
            (a.0 != tried.winner, cost(a.2)).partial_cmp(&(b.0 != tried.winner, cost(b.2))).unwrap_or(a.0.cmp(&b.0))
        });
        for (at, candidate, outcome) in shown {
            let should = candidate.predicted.map_or("-".to_string(), |predicted| format!("{:.1}", predicted.micros));
            let bound = candidate.predicted.and_then(|predicted| predicted.bound).unwrap_or("-");
            let mark = if at == tried.winner { "  <- chosen" } else { "" };
            println!("{:>12} {should:>12}  {bound:<20} {}{mark}", short(outcome), candidate.summary());
        }
        self.print_rest();
    }

    fn print_rest(&self) {
        let tried = self.tried;
        let count = |is: fn(&Became) -> bool| tried.candidates.iter().filter(|(_, outcome)| is(outcome)).count();
        let (same, left_out) = (count(|it| matches!(it, Became::Same(_))), count(|it| matches!(it, Became::LeftOut)));
        if same > 0 {
            println!("{same} more are the program of one of these");
        }
        if left_out > 0 {
            println!("{left_out} more were not tried: those that stand first should take less (`--most` lets more in)");
        }
        if let (pruned @ 1.., Some(why)) = &tried.field.pruned {
            println!("{pruned} points of the space cannot run here; the first: {why}");
        }
        let refused = tried.candidates.iter().filter_map(|(candidate, outcome)| match outcome {
            Became::Refused(why) => Some(format!("{}: {}", candidate.summary(), why.lines().next().unwrap_or_default())),
            _ => None,
        });
        refused.for_each(|refused| println!("refused {refused}"));
        for name in &tried.field.idle {
            println!("`{name}` changes nothing in `{}`, and was left out of the search", tried.key.kernel);
        }
        for name in &tried.field.unknown {
            println!("`{name}` of `key` is no axis and no argument, so all sizes are the key");
        }
        rank_text(&tried.candidates).into_iter().for_each(|text| println!("{text}"));
        println!("for {}; sums: {}", tried.key.shape, tried.entry.order);
    }
}

/// The kind of a candidate's line, for programs.
pub(crate) fn kind(is_way: bool) -> &'static str {
    if is_way { "way" } else { "plan" }
}

/// How well what candidates should take orders what they take.
fn rank_text(candidates: &[(Candidate, Became)]) -> Option<String> {
    let pair = |(candidate, outcome): &(Candidate, Became)| match outcome {
        Became::Time(time) => Some((candidate.predicted?.micros, *time)),
        _ => None,
    };
    let (should, is): (Vec<f64>, Vec<f64>) = candidates.iter().filter_map(pair).unzip();
    let correlation = rank_correlation(&should, &is)?;
    Some(format!("rank correlation of predicted and measured times: {correlation:.2} ({} candidates)", is.len()))
}

fn short(outcome: &Became) -> String {
    match outcome {
        Became::Time(time) => format!("{:.1}", time / 1e3),
        Became::Counted(count) => count.to_string(),
        Became::Wrong(_) => "wrong".to_string(),
        Became::Failed(_) => "failed".to_string(),
        Became::Refused(_) => "refused".to_string(),
        Became::OtherOrder(_) => "other order".to_string(),
        Became::Same(_) | Became::LeftOut => "-".to_string(),
    }
}

/// What became of a candidate, in a few words.
pub(crate) fn told(outcome: &Became) -> String {
    match outcome {
        Became::Time(time) => format!("{:.1} us", time / 1e3),
        Became::Counted(_) => "right".to_string(),
        Became::Wrong(why) => format!("other results: {why}"),
        Became::Refused(why) | Became::Failed(why) => why.lines().next().unwrap_or_default().to_string(),
        Became::Same(_) => "the program of another one".to_string(),
        Became::OtherOrder(order) => format!("other order of sums: {order}"),
        Became::LeftOut => "not tried".to_string(),
    }
}
