//! Times of calls on one rank: by the host's clock after a barrier, on a device by events around what its stream does.
//!
//! Ranks are not in step when they begin. So a barrier comes first on the CPU, and on a device a launch that is not timed, which ranks
//! that receive do not leave before those that send have come. A sample on a device is long enough (the sampler sees to that) for the host to queue the next one meanwhile.

use std::time::Instant;

use tessera_driver::{DriverError, Event, Stream};
use tessera_runtime::Device;
use tessera_runtime::ranks::{Call, Communicator, ExchangeError, Pending};

/// How many launches are timed, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Take {
    pub(super) samples: usize,
    pub(super) launches: usize,
    /// A sample is a graph of its launches.
    pub(super) graph: bool,
}

pub(super) enum Stopwatch {
    Host,
    Device { stream: Stream, events: Vec<(Event, Event)> },
}

impl Stopwatch {
    pub(super) fn new(device: &Device) -> Result<Stopwatch, DriverError> {
        Ok(match device.driver() {
            None => Stopwatch::Host,
            Some(device) => Stopwatch::Device { stream: device.context().stream()?, events: Vec::new() },
        })
    }

    /// Nanoseconds of a launch in each sample.
    pub(super) fn time(
        &mut self,
        communicator: &mut dyn Communicator,
        calls: &[Call],
        take: Take,
    ) -> Result<Vec<f64>, ExchangeError> {
        match self {
            Stopwatch::Host => on_host(communicator, calls, take),
            Stopwatch::Device { stream, events } => {
                let made = (events.len()..take.samples).try_for_each(|_| {
                    let device = communicator.device().driver().ok_or(DriverError::Argument("no device".into()))?;
                    events.push((device.context().event()?, device.context().event()?));
                    Ok(())
                });
                made.map_err(memory)?;
                on_device(communicator, calls, take, stream, events)
            }
        }
    }
}

fn memory(error: DriverError) -> ExchangeError {
    ExchangeError::Memory(error.into())
}

fn on_host(communicator: &mut dyn Communicator, calls: &[Call], take: Take) -> Result<Vec<f64>, ExchangeError> {
    let world = communicator.world();
    let mut times = Vec::with_capacity(take.samples);
    for _ in 0..take.samples {
        communicator.barrier(&world)?;
        let begin = Instant::now();
        for _ in 0..take.launches {
            communicator.start(calls, None).and_then(Pending::wait)?;
        }
        times.push(begin.elapsed().as_nanos() as f64 / take.launches as f64);
    }
    Ok(times)
}

fn on_device(
    communicator: &mut dyn Communicator,
    calls: &[Call],
    take: Take,
    stream: &Stream,
    events: &[(Event, Event)],
) -> Result<Vec<f64>, ExchangeError> {
    // What was queued elsewhere, filling and poison above all, comes first.
    let device = communicator.device().driver();
    let device = device.ok_or_else(|| memory(DriverError::Argument("ranks on the CPU have no stream".into())))?;
    device.synchronize().map_err(memory)?;
    let handle = stream.handle();
    let mut queue = |count: usize| -> Result<(), ExchangeError> {
        // The stream is waited for as a whole, below.
        (0..count).try_for_each(|_| communicator.enqueue(calls, handle))
    };
    queue(1)?;
    stream.synchronize().map_err(memory)?;
    let graph = match take.graph {
        false => None,
        true => {
            let mut outcome = Ok(());
            let recorded = stream.record(|| {
                outcome = queue(take.launches);
                Ok(())
            });
            outcome?;
            Some(recorded.map_err(memory)?)
        }
    };
    let mut once = |count: usize| match &graph {
        Some(graph) => graph.launch(stream).map_err(memory),
        None => queue(count),
    };
    once(1)?;
    for (start, end) in &events[..take.samples] {
        start.record(stream).map_err(memory)?;
        once(take.launches)?;
        end.record(stream).map_err(memory)?;
    }
    stream.synchronize().map_err(memory)?;
    let elapsed = |(start, end): &(Event, Event)| {
        let ms = end.elapsed_ms_since(start).map_err(memory)?;
        Ok(f64::from(ms) * 1e6 / take.launches as f64)
    };
    events[..take.samples].iter().map(elapsed).collect()
}
