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
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use crate::record::{EndRecord, Record, SummaryRecord};
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

/// What became of a run in children.
#[derive(Clone, Debug, PartialEq)]
pub enum Supervised {
    /// One of them came to the end, and said this of it.
    Ended(EndRecord),
    /// The first one wrote nothing at all and ended, or was ended after too long a silence.
    NotBegun(Option<ExitStatus>),
    /// So many were lost, and another one would not come further.
    GivenUp(usize),
}

/// Runs children until one ends well. `child` makes the command: its argument says whether it is to resume the results file at
/// `path`.
///
/// A child ends *well* when it wrote that the run came to its end, whatever its exit code: what an earlier run left in the file
/// says nothing of it.
pub fn supervise(supervisor: Supervisor, path: &Path, child: &mut dyn FnMut(bool) -> Command) -> Result<Supervised, StoreError> {
    let mut losses = 0;
    loop {
        let before = Results::load(path).ok();
        // Rows that were left open are run one at a time by the next child: then the last one begun is the one.
        let alone = before.as_ref().is_some_and(|results| !results.unfinished().is_empty());
        let spawned = child(before.is_some()).spawn();
        let mut running = spawned.map_err(|source| StoreError::Io { path: path.display().to_string(), source })?;
        let outcome = watch(supervisor, path, &mut running)
            .map_err(|source| StoreError::Io { path: path.display().to_string(), source })?;
        let after = match (Results::load(path), &before) {
            (Ok(after), None) => after,
            (Ok(after), Some(before)) if after.whole_bytes != before.whole_bytes => after,
            (Err(error), Some(_)) => return Err(error),
            (_, _) if losses == 0 => return Ok(Supervised::NotBegun(outcome)),
            (_, _) => return Ok(Supervised::GivenUp(losses + 1)),
        };
        if let Some(end) = after.end {
            return Ok(Supervised::Ended(end));
        }
        losses += 1;
        if losses > supervisor.most_losses {
            return Ok(Supervised::GivenUp(losses));
        }
        let open = after.unfinished();
        let culprit = after.begun.clone().filter(|begun| open.contains(begun) && (alone || open.len() == 1));
        let Some((case, implementation)) = culprit else { continue };
        let (status, reason) = match outcome {
            None => {
                let seconds = supervisor.silence.as_secs_f64();
                (Status::Timeout, format!("nothing was heard of it for {seconds} s; its process was ended"))
            }
            Some(how) => (Status::RuntimeError, format!("its process ended before the row was finished ({how})")),
        };
        let summary = SummaryRecord::untimed(&case, &implementation, status, Some(reason));
        Writer::resume(path, &after)?.write(&Record::Summary(Box::new(summary)))?;
    }
}

/// How the child ended; nothing where it was ended for its silence.
fn watch(supervisor: Supervisor, path: &Path, child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let length = || fs::metadata(path).map_or(0, |data| data.len());
    let (mut seen, mut since) = (length(), Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let now = length();
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > supervisor.silence {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        thread::sleep(supervisor.interval);
    }
}
