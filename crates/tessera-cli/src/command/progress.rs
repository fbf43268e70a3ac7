//! How far a `bench` is, on the standard error stream: a bar on a terminal, a line now and then elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tessera::bench::Progress;

/// Where there is no terminal, a line is printed after so long.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
/// For how many rows the time that was expected counts beside what rows have taken.
const EXPECTED_WEIGHT: f64 = 5.0;

/// Says how far a run is.
pub(crate) struct Telling {
    bar: ProgressBar,
    lines: bool,
    wanted: bool,
    begun: Instant,
    line: Instant,
    rows: usize,
    done: usize,
    expected: Option<Duration>,
}

impl Telling {
    pub(crate) fn new(wanted: bool) -> Telling {
        let terminal = crate::is_live();
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = if wanted && terminal { ProgressBar::new(1).with_style(style) } else { ProgressBar::hidden() };
        let (begun, lines) = (Instant::now(), wanted && !terminal);
        Telling { bar, lines, wanted, begun, line: begun, rows: 0, done: 0, expected: None }
    }

    pub(crate) fn tell(&mut self, progress: Progress<'_>) {
        match progress {
            Progress::Begin(rows, expected) => {
                (self.rows, self.expected, self.begun) = (rows, expected, Instant::now());
                self.bar.set_length(rows as u64);
                let about = expected.map_or(String::new(), |time| format!(", about {}", told(time)));
                if self.wanted {
                    eprintln!("{rows} rows{about}");
                }
            }
            Progress::Ceilings => self.say("measuring the machine's ceilings"),
            Progress::Checking(_, _, case, _) => self.say(&format!("checking {}", case.key)),
            Progress::Timing(rows) => self.say(&format!("timing {rows} rows in turn")),
            Progress::Finished(..) => {
                self.done += 1;
                self.bar.set_position(self.done as u64);
            }
        }
        if self.lines && self.line.elapsed() >= BETWEEN_LINES {
            self.line = Instant::now();
            eprintln!("{} of {} rows{}", self.done, self.rows, self.left());
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, what: &str) {
        self.bar.set_message(format!("{what}{}", self.left()));
    }

    /// `, about 20 s left`, from what rows took and what was expected.
    fn left(&self) -> String {
        let Some(expected) = self.expected.filter(|_| self.rows > 0) else { return String::new() };
        let each = expected.as_secs_f64() / self.rows as f64;
        let pace = (self.begun.elapsed().as_secs_f64() + EXPECTED_WEIGHT * each) / (self.done as f64 + EXPECTED_WEIGHT);
        let left = Duration::from_secs_f64(pace * self.rows.saturating_sub(self.done) as f64);
        format!(", about {} left", told(left))
    }
}

/// `40 s`, `12 min`.
fn told(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 100.0 => format!("{seconds:.0} s"),
        seconds => format!("{:.0} min", seconds / 60.0),
    }
}
