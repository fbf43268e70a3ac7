//! A watchdog around a benchmark: the process that measures is a child, and its death or silence costs one row.
//!
//! After a fault a device's context is lost, and drivers refuse a fresh one in the same process. So the child that meets a
//! fault ends; the parent writes the row that was under way with its status and starts the next child, which resumes the
//! results file. A child that writes nothing for too long is ended the same way.
//!
//! ```text
//! parent: spawn child(resume) -> watch the file grow -> child ended? | silent? -> row for what was under way -> spawn again
//! ```

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use crate::record::{Record, SummaryRecord};
use crate::status::Status;
use crate::store::{Results, StoreError, Writer};

/// How children are watched.
#[derive(Clone, Copy, Debug)]
pub struct Supervisor {
    /// A child whose file does not grow for so long is ended.
    pub silence: Duration,
    /// Children that may be lost before the suite is given up.
    pub most_losses: usize,
    /// How often is looked.
    pub interval: Duration,
}

impl Default for Supervisor {
    fn default() -> Supervisor {
        Supervisor { silence: Duration::from_secs(90), most_losses: 100, interval: Duration::from_millis(50) }
    }
}

/// Runs children until one ends well; gives the number that were lost. `child` makes the command: its argument says whether it
/// is to resume the results file at `path`.
///
/// A child ends *well* when its file says that the run came to its end, whatever its exit code.
pub fn supervise(supervisor: Supervisor, path: &Path, child: &mut dyn FnMut(bool) -> Command) -> Result<usize, StoreError> {
    let mut losses = 0;
    loop {
        let before = Results::load(path).ok();
        // Rows that were left open are run one at a time by the next child: then the last one begun is the one.
        let alone = before.as_ref().is_some_and(|results| !results.unfinished().is_empty());
        let spawned = child(before.is_some()).spawn();
        let mut running = spawned.map_err(|source| StoreError::Io { path: path.display().to_string(), source })?;
        let outcome = watch(supervisor, path, &mut running);
        let after = Results::load(path)?;
        if after.end.is_some() {
            return Ok(losses);
        }
        losses += 1;
        let stuck = before.is_some_and(|before| before.whole_bytes == after.whole_bytes);
        if stuck || losses > supervisor.most_losses {
            return Ok(losses);
        }
        let open = after.unfinished();
        let culprit = after.begun.clone().filter(|begun| open.contains(begun) && (alone || open.len() == 1));
        let Some((case, implementation)) = culprit else { continue };
        let (status, reason) = match outcome {
            Outcome::Silent => {
                let seconds = supervisor.silence.as_secs_f64();
                (Status::Timeout, format!("nothing was heard of it for {seconds} s; its process was ended"))
            }
            Outcome::Ended(how) => (Status::RuntimeError, format!("its process ended before the row was finished ({how})")),
        };
        let summary = SummaryRecord::untimed(&case, &implementation, status, Some(reason));
        Writer::resume(path, &after)?.write(&Record::Summary(Box::new(summary)))?;
    }
}

enum Outcome {
    Ended(String),
    Silent,
}

fn watch(supervisor: Supervisor, path: &Path, child: &mut Child) -> Outcome {
    let length = || fs::metadata(path).map_or(0, |data| data.len());
    let (mut seen, mut since) = (length(), Instant::now());
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Outcome::Ended(status.to_string()),
            Ok(None) => {}
            Err(error) => return Outcome::Ended(error.to_string()),
        }
        let now = length();
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > supervisor.silence {
            let _ = child.kill();
            let _ = child.wait();
            return Outcome::Silent;
        }
        thread::sleep(supervisor.interval);
    }
}
