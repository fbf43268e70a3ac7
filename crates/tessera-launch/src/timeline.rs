//! The times at which the warps of a launch came to its marks, as spans and as a trace for Perfetto and Chrome
//! (<https://ui.perfetto.dev>, `chrome://tracing`).
//!
//! A pair of marks is a span: a begin and the next end of its name, in one round of the loops around them, of one warp. A process of the
//! trace is a block, a thread a warp. On the emulator a nanosecond is one of its steps.
//!
//! ```text
//! {"name":"wait for data","ph":"X","pid":0,"tid":4,"ts":1.024,"dur":0.512,"args":{"round":"3"}}
//! ```

use std::fmt::Write;

use tessera_ir::TimelinePlan;
use tessera_ir::attrs::MarkPhase;

/// What a launch recorded.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The kernel.
    pub kernel: String,
    /// Which words are what.
    pub plan: TimelinePlan,
    /// Blocks that were launched.
    pub blocks: u64,
    /// Times in nanoseconds; zero where nothing came.
    pub words: Vec<u64>,
}

/// Something that took time, or happened at one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The block's number in the grid.
    pub block: u64,
    /// The warp's in the block.
    pub warp: u32,
    /// What it is.
    pub name: String,
    /// The rounds of the loops around it, outermost first.
    pub rounds: Vec<u32>,
    /// When it began, in nanoseconds since the launch's first mark.
    pub start: u64,
    /// How long it took; `None` for what only happened.
    pub length: Option<u64>,
}

impl Timeline {
    /// Every span, by block and warp, in order of time.
    pub fn spans(&self) -> Vec<Span> {
        let first = self.words.iter().copied().filter(|&time| time > 0).min().unwrap_or(0);
        let mut spans = Vec::new();
        for (at, mark) in self.plan.marks.iter().enumerate() {
            if mark.phase == MarkPhase::End {
                continue;
            }
            let ends = || {
                let rest = &self.plan.marks[at + 1..];
                rest.iter().filter(|end| end.phase == MarkPhase::End && end.name == mark.name && end.rounds == mark.rounds)
            };
            for block in 0..self.plan.recorded(self.blocks) {
                for warp in 0..self.plan.warps {
                    for slot in 0..mark.slots() {
                        let time = |first: u32| {
                            let word = self.plan.word(first + slot, block, warp, self.blocks);
                            self.words.get(word as usize).copied().filter(|&time| time > 0)
                        };
                        let Some(start) = time(mark.slot) else { continue };
                        let end = ends().find_map(|end| time(end.slot));
                        let length = match mark.phase {
                            MarkPhase::Instant => None,
                            _ => Some(end.unwrap_or(start).saturating_sub(start)),
                        };
                        let (block, name) = (block * u64::from(self.plan.every.max(1)), mark.name.clone());
                        spans.push(Span { block, warp, name, rounds: rounds(slot, &mark.rounds), start: start - first, length });
                    }
                }
            }
        }
        spans.sort_by_key(|span| (span.block, span.warp, span.start, std::cmp::Reverse(span.length)));
        spans
    }

    /// The spans as a trace.
    pub fn chrome_trace(&self) -> String {
        let spans = self.spans();
        let mut events: Vec<String> = Vec::new();
        let mut known: Option<(u64, u32)> = None;
        for span in &spans {
            if known.is_none_or(|(block, _)| block != span.block) {
                events.push(names("process_name", span.block, 0, &format!("block {}", span.block)));
            }
            if known != Some((span.block, span.warp)) {
                events.push(names("thread_name", span.block, span.warp, &self.warp_name(span.warp)));
                known = Some((span.block, span.warp));
            }
            let rounds: Vec<String> = span.rounds.iter().map(u32::to_string).collect();
            let mut event = format!(
                r#"{{"name":{},"ph":"{}","pid":{},"tid":{},"ts":{}"#,
                quoted(&span.name),
                if span.length.is_some() { "X" } else { "i" },
                span.block,
                span.warp,
                microseconds(span.start)
            );
            match span.length {
                Some(length) => event.push_str(&format!(r#","dur":{}"#, microseconds(length))),
                None => event.push_str(r#","s":"t""#),
            }
            if !rounds.is_empty() {
                event.push_str(&format!(r#","args":{{"round":"{}"}}"#, rounds.join(".")));
            }
            event.push('}');
            events.push(event);
        }
        format!(
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"kernel\":{}}},\"traceEvents\":[\n{}\n]}}\n",
            quoted(&self.kernel),
            events.join(",\n")
        )
    }

    /// A warp by its role, where marks are of some warps only.
    fn warp_name(&self, warp: u32) -> String {
        let own = self.plan.marks.iter().find(|mark| {
            let [first, count] = mark.warps;
            count < self.plan.warps && (first..first + count).contains(&warp)
        });
        own.map_or_else(|| format!("warp {warp}"), |mark| format!("warp {warp}: {}", mark.name))
    }
}

/// The round of each loop that a slot belongs to.
fn rounds(mut slot: u32, counts: &[u32]) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::new();
    for &count in counts.iter().rev() {
        found.insert(0, slot % count.max(1));
        slot /= count.max(1);
    }
    found
}

fn names(what: &str, block: u64, warp: u32, name: &str) -> String {
    format!(r#"{{"name":"{what}","ph":"M","pid":{block},"tid":{warp},"args":{{"name":{}}}}}"#, quoted(name))
}

fn microseconds(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use tessera_ir::TimelineMark;

    use super::*;

    #[test]
    fn a_begin_and_the_next_end_of_its_name_are_a_span() {
        let mark = |name: &str, phase, slot, rounds: &[u32]| TimelineMark {
            name: name.into(),
            phase,
            warps: [1, 1],
            slot,
            rounds: rounds.to_vec(),
        };
        let marks = vec![
            mark("work", MarkPhase::Begin, 0, &[]),
            mark("wait", MarkPhase::Begin, 1, &[2]),
            mark("wait", MarkPhase::End, 3, &[2]),
            mark("work", MarkPhase::End, 5, &[]),
            mark("there", MarkPhase::Instant, 6, &[]),
        ];
        let plan = TimelinePlan { every: 2, warps: 2, marks };
        assert_eq!((plan.slots(), plan.recorded(3), plan.bytes(3)), (7, 2, 8 * 7 * 2 * 2));
        let mut words = vec![0; 28];
        // Warp 1 of the second recorded block, which is block 2; the second round never came.
        for (slot, time) in [(0, 1000), (1, 1010), (3, 1030), (5, 1100), (6, 1050)] {
            words[plan.word(slot, 1, 1, 3) as usize] = time;
        }
        let timeline = Timeline { kernel: "k".into(), plan, blocks: 3, words };
        let shown: Vec<_> = timeline
            .spans()
            .into_iter()
            .map(|span| (span.block, span.warp, span.name, span.rounds, span.start, span.length))
            .collect();
        let wanted = [
            (2, 1, "work".to_string(), vec![], 0, Some(100)),
            (2, 1, "wait".to_string(), vec![0], 10, Some(20)),
            (2, 1, "there".to_string(), vec![], 50, None),
        ];
        assert_eq!(shown, wanted);
        let trace = timeline.chrome_trace();
        assert!(
            trace.contains(r#"{"name":"wait","ph":"X","pid":2,"tid":1,"ts":0.010,"dur":0.020,"args":{"round":"0"}}"#),
            "{trace}"
        );
        assert!(trace.contains(r#""name":"warp 1: work""#), "{trace}");
    }
}
