//! Times of launches by a device's events; see the head of `device/mod.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tessera_cuda::{Nvml, NvmlDevice, Readings};
use tessera_driver::{DeviceBuffer, DriverError, Event, PinnedBuffer, Result, Stream};
use tessera_runtime::DriverDevice;

use super::kernels::{Kernels, whole_blocks};
use super::sums::Sums;
use crate::case::DeviceState;
use crate::clock::ClockFacts;
use crate::environment::Accelerator;
use crate::stats::median;

/// Whether the second-level cache holds a launch's data when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheState {
    /// Other data was read through the cache before.
    Cold,
    /// The launch before used the same data.
    Warm,
}

/// What is between two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// One launch, or as many as a sample is told to have.
    Events,
    /// A replay of a recorded graph of launches.
    Graph,
}

/// How launches are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// State of the cache.
    pub cache: CacheState,
    /// What is between two events.
    pub method: Method,
}

impl Timing {
    /// Single launches on a cold cache.
    pub const COLD: Timing = Timing { cache: CacheState::Cold, method: Method::Events };
    /// Batches of launches on a warm cache.
    pub const WARM: Timing = Timing { cache: CacheState::Warm, method: Method::Events };
    /// Graphs of launches on a warm cache.
    pub const GRAPH: Timing = Timing { cache: CacheState::Warm, method: Method::Graph };

    /// The name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match (self.method, self.cache) {
            (Method::Events, CacheState::Cold) => "cold",
            (Method::Events, CacheState::Warm) => "warm",
            (Method::Graph, _) => "graph",
        }
    }

    /// The timing of a name.
    pub fn parse(name: &str) -> Option<Timing> {
        [Timing::COLD, Timing::WARM, Timing::GRAPH].into_iter().find(|timing| timing.name() == name)
    }

    /// The most launches that a sample may have: one where the cache is emptied before each.
    pub const fn most_launches(self) -> usize {
        match self.cache {
            CacheState::Cold => 1,
            CacheState::Warm => 500,
        }
    }
}

/// Samples queued behind one wait: their launches and events must fit the driver's queue.
const QUEUED: usize = 40;
/// After this the wait is released by force: a launch has waited for the host.
const STALL: Duration = Duration::from_secs(10);
/// The driver's readings are taken again after this.
const TOLD_FOR: Duration = Duration::from_millis(50);

/// A device's clock.
#[derive(Debug)]
pub struct DeviceTimer {
    device: DriverDevice,
    kernels: Kernels,
    /// Loaded when it is asked for; `None` inside where the device does not take it.
    sums: Option<Option<Arc<Sums>>>,
    events: Vec<(Event, Event)>,
    /// Twice the second-level cache, all zero; made when a cold sample is asked for.
    flush: Option<DeviceBuffer>,
    /// A word that queued work waits for; absent where the back end cannot wait.
    gate: Option<Arc<PinnedBuffer>>,
    opened: u32,
    /// Two readings of three words.
    clock: DeviceBuffer,
    watcher: Option<Watcher>,
    /// What the driver said last, and when: asking takes longer than a short block.
    told: Option<(Instant, Readings)>,
    state: DeviceState,
    facts: Option<ClockFacts>,
}

struct Watcher(NvmlDevice);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NVML")
    }
}

impl DeviceTimer {
    /// A clock for a device.
    pub fn new(device: &DriverDevice) -> Result<DeviceTimer> {
        let context = device.context();
        let gate = match context.pinned(4) {
            Ok(gate) if context.table()?.stream_wait_value.is_some() => Some(Arc::new(gate)),
            _ => None,
        };
        let bus_id = device.properties().bus_id.as_deref();
        let watcher = bus_id.and_then(|bus_id| Some(Watcher(Nvml::load().ok()?.device(bus_id)?)));
        Ok(DeviceTimer {
            kernels: Kernels::load(context)?,
            sums: None,
            events: Vec::new(),
            flush: None,
            gate,
            opened: 0,
            clock: context.buffer(48)?,
            watcher,
            told: None,
            state: DeviceState::default(),
            facts: None,
            device: device.clone(),
        })
    }

    /// The device.
    pub fn device(&self) -> &DriverDevice {
        &self.device
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Sums over matrices that the device makes for references. A back end whose queue cannot wait is no hardware: the host is as fast.
    pub(crate) fn sums(&mut self) -> Option<Arc<Sums>> {
        self.gate.as_ref()?;
        let device = &self.device;
        let load = || Sums::load(device.context(), device.stream()).ok().map(Arc::new);
        self.sums.get_or_insert_with(load).clone()
    }

    /// The step of the events' clock and the time of an empty launch.
    pub fn facts(&mut self) -> Result<ClockFacts> {
        if let Some(facts) = self.facts {
            return Ok(facts);
        }
        let facts = self.measure_facts()?;
        self.facts = Some(facts);
        Ok(facts)
    }

    /// Makes ready to empty the cache. A back end whose queue cannot wait is no hardware, and has none.
    fn prepare_flush(&mut self) -> Result<()> {
        if self.flush.is_some() || self.gate.is_none() {
            return Ok(());
        }
        let stream = self.device.stream();
        let flush = self.device.context().buffer(whole_blocks(2 * self.device.properties().l2_bytes.max(1 << 20)))?;
        flush.fill(0, stream)?;
        // A kernel is loaded at its first launch, which must not happen behind a closed gate.
        self.kernels.read(stream, flush.pointer(), flush.bytes())?;
        self.device.synchronize()?;
        self.flush = Some(flush);
        Ok(())
    }

    /// What the device said of itself around the last block.
    pub fn state(&self) -> DeviceState {
        self.state
    }

    /// Facts about the device for a session's record.
    pub fn accelerator(&self, timing: Timing) -> Accelerator {
        let properties = self.device.properties();
        let told = self.watcher.as_ref().map(|watcher| watcher.0.facts()).unwrap_or_default();
        let (major, minor) = properties.capability;
        Accelerator {
            name: properties.name.clone(),
            uuid: told.uuid,
            capability: format!("{major}.{minor}"),
            multiprocessors: properties.multiprocessors,
            memory_bytes: properties.memory_bytes,
            l2_bytes: properties.l2_bytes,
            driver: told.driver.unwrap_or_else(|| properties.driver.to_string()),
            max_mhz: told.max_sm_mhz.or(Some(properties.clock_mhz)),
            power_limit_w: told.power_limit_w,
            timing: timing.name().to_string(),
        }
    }

    fn measure_facts(&mut self) -> Result<ClockFacts> {
        let (mut times, kernels) = (Vec::new(), self.kernels.clone());
        kernels.empty(self.device.stream())?;
        self.device.synchronize()?;
        for _ in 0..10 {
            times.extend(self.queue(QUEUED, 1, CacheState::Warm, &mut |stream| kernels.empty(stream))?);
        }
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        let steps = sorted.windows(2).map(|pair| pair[1] - pair[0]).filter(|&step| step > 0.5);
        let tick_ns = steps.fold(f64::INFINITY, f64::min);
        Ok(ClockFacts { tick_ns: if tick_ns.is_finite() { tick_ns } else { 1.0 }, floor_ns: median(&times) })
    }

    /// Nanoseconds of one launch, for each of `samples` samples of `launches` launches. `launch` queues the work once.
    pub fn time(
        &mut self,
        timing: Timing,
        samples: usize,
        launches: usize,
        launch: &mut dyn FnMut(&Stream) -> Result<()>,
    ) -> Result<Vec<f64>> {
        let device = self.device.clone();
        let stream = device.stream();
        if timing.cache == CacheState::Cold {
            self.prepare_flush()?;
        }
        self.look(0)?;
        // Two launches that are not timed, and under a warm cache leave the data there.
        launch(stream)?;
        launch(stream)?;
        let mut times = Vec::with_capacity(samples);
        let recorded = match timing.method {
            Method::Events => None,
            Method::Graph => Some(stream.record(|| (0..launches).try_for_each(|_| launch(stream)))?),
        };
        while times.len() < samples {
            let count = QUEUED.min(samples - times.len());
            times.extend(match &recorded {
                None => self.queue(count, launches, timing.cache, launch)?,
                Some(graph) => {
                    let whole = self.queue(count, 1, timing.cache, &mut |stream| graph.launch(stream))?;
                    whole.into_iter().map(|time| time / launches as f64).collect()
                }
            });
        }
        self.look(1)?;
        self.conclude()?;
        Ok(times)
    }

    /// Queues samples behind a wait, releases it and reads the events.
    fn queue(
        &mut self,
        samples: usize,
        launches: usize,
        cache: CacheState,
        launch: &mut dyn FnMut(&Stream) -> Result<()>,
    ) -> Result<Vec<f64>> {
        let device = self.device.clone();
        let (context, stream) = (device.context(), device.stream());
        while self.events.len() < samples {
            self.events.push((context.event()?, context.event()?));
        }
        // Batches are limited so that all of them fit the queue.
        let gate = self.gate.as_ref().filter(|_| samples * launches <= 1000).cloned();
        self.opened = self.opened.wrapping_add(1);
        let release = match gate {
            Some(gate) => {
                stream.wait_value(gate.on_device(), self.opened)?;
                Some(Release::new(gate, self.opened))
            }
            None => None,
        };
        let queued = (|| {
            for (start, end) in &self.events[..samples] {
                if let (CacheState::Cold, Some(flush)) = (cache, &self.flush) {
                    self.kernels.read(stream, flush.pointer(), flush.bytes())?;
                }
                start.record(stream)?;
                for _ in 0..launches {
                    launch(stream)?;
                }
                end.record(stream)?;
            }
            Ok(())
        })();
        let stalled = release.is_some_and(Release::open);
        queued?;
        device.synchronize()?;
        if stalled {
            return Err(DriverError::Argument("a launch waited for the host: it cannot be timed on its own".into()));
        }
        let elapsed = |(start, end): &(Event, Event)| Ok(f64::from(end.elapsed_ms_since(start)?) * 1e6 / launches as f64);
        self.events[..samples].iter().map(elapsed).collect()
    }

    /// Queues a reading of the multiprocessor's clock.
    fn look(&self, which: u64) -> Result<()> {
        self.kernels.clock(self.device.stream(), self.clock.pointer().offset(24 * which))
    }

    /// What the driver says of clocks, power and heat, at most a moment old; nothing where there is no library to ask.
    fn readings(&mut self) -> Readings {
        let Some(watcher) = &self.watcher else { return Readings::default() };
        match self.told {
            Some((when, readings)) if when.elapsed() < TOLD_FOR => readings,
            _ => {
                let readings = watcher.0.readings();
                self.told = Some((Instant::now(), readings));
                readings
            }
        }
    }

    fn conclude(&mut self) -> Result<()> {
        let mut bytes = [0; 48];
        self.clock.read(0, &mut bytes, self.device.stream())?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * at..8 * at + 8]);
            u64::from_le_bytes(word)
        };
        let (cycles, nanoseconds) = (word(3).wrapping_sub(word(0)), word(4).wrapping_sub(word(1)));
        // Another multiprocessor has another counter, and a short time has few steps of the timer.
        let same = word(2) == word(5) && nanoseconds > 20_000;
        let readings = self.readings();
        self.state = DeviceState {
            mhz: same.then(|| cycles as f64 * 1e3 / nanoseconds as f64).filter(|mhz| (1.0..10_000.0).contains(mhz)),
            stated_mhz: readings.sm_mhz,
            memory_mhz: readings.memory_mhz,
            power_w: readings.power_w,
            temperature_c: readings.temperature_c,
            reasons: readings.reasons,
            processes: readings.processes,
            ..DeviceState::default()
        };
        Ok(())
    }
}

/// Opens the gate once, at the latest when dropped or when the host has been stuck for long.
struct Release {
    gate: Arc<PinnedBuffer>,
    value: u32,
    stalled: Arc<AtomicBool>,
    done: Option<mpsc::Sender<()>>,
    guard: Option<thread::JoinHandle<()>>,
}

impl Release {
    fn new(gate: Arc<PinnedBuffer>, value: u32) -> Release {
        let (done, wait) = mpsc::channel();
        let stalled = Arc::new(AtomicBool::new(false));
        let (flag, word) = (Arc::clone(&stalled), Arc::clone(&gate));
        let guard = thread::spawn(move || {
            if wait.recv_timeout(STALL) == Err(mpsc::RecvTimeoutError::Timeout) {
                flag.store(true, Ordering::Release);
                let _ = word.write(0, &value.to_le_bytes());
            }
        });
        Release { gate, value, stalled, done: Some(done), guard: Some(guard) }
    }

    /// Lets the queue run; true when it had to be forced before.
    fn open(mut self) -> bool {
        self.finish();
        self.stalled.load(Ordering::Acquire)
    }

    fn finish(&mut self) {
        let _ = self.gate.write(0, &self.value.to_le_bytes());
        drop(self.done.take());
        if let Some(guard) = self.guard.take() {
            let _ = guard.join();
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.finish();
    }
}
