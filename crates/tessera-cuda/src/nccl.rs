//! `libnccl`: exchanges between devices, by the vendor's library.
//!
//! Communicators are made non-blocking: every call returns at once, and [`NcclComm::is_ready`] says whether the library is done with
//! it. So whoever waits can stop waiting, and [`NcclComm::abort`] ends what runs on the device.
//!
//! ```
//! match tessera_cuda::Nccl::load(&[]) {
//!     Ok(nccl) => println!("{nccl}"),
//!     Err(reason) => println!("{reason}"),
//! }
//! ```

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use libloading::Library;
use tessera_driver::{Context, DevicePtr, DriverError, StreamHandle};
use tessera_types::DType;

type Status = c_int;
type Handle = *mut c_void;

symbols! {
    version = "ncclGetVersion": fn(*mut c_int);
    unique_id = "ncclGetUniqueId": fn(*mut NcclId);
    join = "ncclCommInitRankConfig": fn(*mut Handle, c_int, NcclId, c_int, *mut Config);
    async_error = "ncclCommGetAsyncError": fn(Handle, *mut Status);
    finalize = "ncclCommFinalize": fn(Handle);
    destroy = "ncclCommDestroy": fn(Handle);
    abort = "ncclCommAbort": fn(Handle);
    group_start = "ncclGroupStart": fn();
    group_end = "ncclGroupEnd": fn();
    all_reduce = "ncclAllReduce": fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle);
    reduce_scatter = "ncclReduceScatter": fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle);
    all_gather = "ncclAllGather": fn(*const c_void, *mut c_void, usize, c_int, Handle, Handle);
    broadcast = "ncclBroadcast": fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle);
    send = "ncclSend": fn(*const c_void, usize, c_int, c_int, Handle, Handle);
    recv = "ncclRecv": fn(*mut c_void, usize, c_int, c_int, Handle, Handle);
}

const SUCCESS: Status = 0;
const IN_PROGRESS: Status = 7;
/// The first version whose communicators can be non-blocking and are configured as here.
const FIRST: c_int = 21_800;
/// The first version with 8-bit floats.
const NARROW_FLOATS: c_int = 22_400;

/// What the ranks of a communicator share: one rank makes it, the others are told.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NcclId {
    bytes: [u8; NcclId::BYTES],
}

impl NcclId {
    /// Its size.
    pub const BYTES: usize = 128;

    /// To be told to other ranks.
    pub fn to_bytes(self) -> [u8; NcclId::BYTES] {
        self.bytes
    }

    /// As another rank made it.
    pub fn from_bytes(bytes: [u8; NcclId::BYTES]) -> NcclId {
        NcclId { bytes }
    }
}

/// `ncclConfig_t` as of version 2.18; later ones append, and read as much as the size says.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster: c_int,
    min_blocks: c_int,
    max_blocks: c_int,
    net: *const c_char,
    split_share: c_int,
}

impl Config {
    fn non_blocking() -> Config {
        const UNDEFINED: c_int = c_int::MIN;
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: FIRST as c_uint,
            blocking: 0,
            cluster: UNDEFINED,
            min_blocks: UNDEFINED,
            max_blocks: UNDEFINED,
            net: ptr::null(),
            split_share: UNDEFINED,
        }
    }
}

/// Why the library cannot do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NcclError {
    /// It is not there.
    #[error(
        "NCCL cannot be loaded ({reason})\nhelp: install it (`pip install nvidia-nccl-cu12`), or set `TESSERA_NCCL` to its `libnccl.so.2`"
    )]
    Library {
        /// What was tried.
        reason: String,
    },
    /// It is too old.
    #[error(
        "NCCL {found} of `{path}` is too old: 2.18 is the first that can be stopped\nhelp: set `TESSERA_NCCL` to a newer `libnccl.so.2`"
    )]
    Old {
        /// Its version.
        found: String,
        /// Where it is.
        path: String,
    },
    /// The version has not that element type, or no reduction of it.
    #[error("NCCL {version} does not {what} elements of type `{dtype}`{}", if dtype.bits() == 8 && dtype.is_float() { ": 2.24 is the first that does" } else { "" })]
    DType {
        /// What was asked for.
        what: &'static str,
        /// The type.
        dtype: DType,
        /// The library's version.
        version: String,
    },
    /// A call failed.
    #[error("`{call}`: {name}{}", if message.is_empty() { String::new() } else { format!(": {message}") })]
    Failed {
        /// The function.
        call: &'static str,
        /// The status.
        name: String,
        /// What the library says of it; may be empty.
        message: String,
    },
    /// The communicator has been aborted.
    #[error("the communicator was aborted")]
    Aborted,
    /// The device's context cannot be used.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

type Result<T> = std::result::Result<T, NcclError>;

fn name_of(status: Status) -> String {
    let name = match status {
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        8 => "ncclTimeout",
        other => return format!("status {other}"),
    };
    name.to_string()
}

/// The library.
#[derive(Clone)]
pub struct Nccl {
    symbols: Arc<Symbols>,
    version: c_int,
    path: String,
}

impl fmt::Display for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NCCL {} ({})", written(self.version), self.path)
    }
}

/// A version as it is written: 22703 is 2.27.3.
fn written(version: c_int) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// What is done with elements that meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NcclReduction {
    /// Their sum.
    Sum = 0,
    /// Their product.
    Prod = 1,
    /// The greatest.
    Max = 2,
    /// The least.
    Min = 3,
    /// Their mean.
    Avg = 4,
}

/// One call. Positions are those in the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NcclOperation {
    /// `count` elements of all ranks, combined, to all.
    AllReduce(NcclReduction),
    /// `count` elements a rank, combined, to each rank its own.
    ReduceScatter(NcclReduction),
    /// `count` elements of each rank, to all.
    AllGather,
    /// `count` elements of each rank to each.
    AllToAll,
    /// `count` elements of one rank, to all.
    Broadcast {
        /// That rank's position.
        root: usize,
    },
    /// `count` elements to a rank.
    Send {
        /// Its position.
        to: usize,
    },
    /// `count` elements from a rank.
    Recv {
        /// Its position.
        from: usize,
    },
}

/// A call with its memory. Memory that an operation does not have is null.
#[derive(Clone, Copy, Debug)]
pub struct NcclCall {
    /// What is done.
    pub operation: NcclOperation,
    /// Elements: see [`NcclOperation`].
    pub count: usize,
    /// Their type.
    pub dtype: DType,
    /// What the rank gives.
    pub source: DevicePtr,
    /// What it gets.
    pub result: DevicePtr,
}

impl Nccl {
    /// Loads the library from the first of some places where it is; a name without a folder is one that the loader looks for.
    pub fn load(places: &[PathBuf]) -> Result<Nccl> {
        let mut first = None;
        for place in places {
            // SAFETY: loading the vendor's library runs its initialisers.
            let loaded = unsafe { Library::new(place) }.map_err(|error| {
                let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                NcclError::Library { reason }
            });
            match loaded.and_then(|library| Nccl::of(Symbols::find(library), place.display().to_string())) {
                Ok(nccl) => return Ok(nccl),
                // What was looked at first says most: the others are guesses.
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or(NcclError::Library { reason: "there is no place to look at".to_string() }))
    }

    fn of(symbols: Symbols, path: String) -> Result<Nccl> {
        let mut version = 0;
        let get = symbols.version.ok_or_else(|| missing("ncclGetVersion"))?;
        // SAFETY: writes one number.
        check("ncclGetVersion", unsafe { get(&mut version) })?;
        if version < FIRST {
            return Err(NcclError::Old { found: written(version), path });
        }
        Ok(Nccl { symbols: Arc::new(symbols), version, path })
    }

    /// Its version as it is written: `2.27.3`.
    pub fn version(&self) -> String {
        written(self.version)
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A new identifier. The process that makes it takes part with the communicator's first rank.
    pub fn unique_id(&self) -> Result<NcclId> {
        let mut id = NcclId { bytes: [0; NcclId::BYTES] };
        let get = self.symbols.unique_id.ok_or_else(|| missing("ncclGetUniqueId"))?;
        // SAFETY: writes 128 bytes.
        check("ncclGetUniqueId", unsafe { get(&mut id) })?;
        Ok(id)
    }

    /// Begins to join the communicator of an identifier as one of `ranks`; [`NcclComm::is_ready`] says when all are there.
    pub fn join(&self, context: &Context, id: NcclId, ranks: usize, position: usize) -> Result<NcclComm> {
        let join = self.symbols.join.ok_or_else(|| missing("ncclCommInitRankConfig"))?;
        context.table()?;
        let (mut handle, mut config) = (ptr::null_mut(), Config::non_blocking());
        // SAFETY: writes one handle, reads the configuration, whose size it knows; the context's device is current.
        let status = unsafe { join(&mut handle, ranks as c_int, id, position as c_int, &mut config) };
        if !matches!(status, SUCCESS | IN_PROGRESS) {
            return Err(failed(&self.symbols, "ncclCommInitRankConfig", status, handle));
        }
        let inner = CommInner { nccl: self.clone(), context: context.clone(), handle: Mutex::new(Some(Raw(handle))) };
        Ok(NcclComm { inner: Arc::new(inner) })
    }

    /// The library's number of a type, and its elements for one of ours. Where nothing is combined, elements are bytes.
    fn element(&self, dtype: DType, operation: NcclOperation) -> Result<(c_int, usize)> {
        let combines = matches!(operation, NcclOperation::AllReduce(_) | NcclOperation::ReduceScatter(_));
        let number = match dtype {
            DType::I8 => 0,
            DType::U8 => 1,
            DType::I32 => 2,
            DType::U32 => 3,
            DType::I64 => 4,
            DType::U64 => 5,
            DType::F16 => 6,
            DType::F32 => 7,
            DType::F64 => 8,
            DType::BF16 => 9,
            DType::F8E4M3 if self.version >= NARROW_FLOATS => 10,
            DType::F8E5M2 if self.version >= NARROW_FLOATS => 11,
            // Truth values are bytes 0 and 1: the greatest is "or", the least "and".
            dtype if dtype.is_byte_bool() => 1,
            dtype if !combines && dtype.bits().is_multiple_of(8) => return Ok((1, dtype.bits() as usize / 8)),
            dtype => {
                let what = if combines { "combine" } else { "move" };
                return Err(NcclError::DType { what, dtype, version: self.version() });
            }
        };
        Ok((number, 1))
    }
}

fn missing(call: &'static str) -> NcclError {
    NcclError::Failed { call, name: "the library has no such function".to_string(), message: String::new() }
}

fn check(call: &'static str, status: Status) -> Result<()> {
    match status {
        SUCCESS => Ok(()),
        status => Err(NcclError::Failed { call, name: name_of(status), message: String::new() }),
    }
}

/// The failure of a call, with what the library says of the last one.
fn failed(symbols: &Symbols, call: &'static str, status: Status, comm: Handle) -> NcclError {
    // SAFETY: the signature is that of the library's header.
    let last = unsafe { symbols._library.get::<unsafe extern "C" fn(Handle) -> *const c_char>("ncclGetLastError\0") };
    let message = last.ok().map(|last| {
        // SAFETY: the library allows a null communicator here.
        let text = unsafe { last(comm) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the library's text is terminated and lives as long as its thread.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
    });
    NcclError::Failed { call, name: name_of(status), message: message.unwrap_or_default() }
}

struct Raw(Handle);

// SAFETY: a communicator may be used from any thread, by one at a time: the mutex around it sees to that.
unsafe impl Send for Raw {}

struct CommInner {
    nccl: Nccl,
    context: Context,
    handle: Mutex<Option<Raw>>,
}

/// One rank's end of a communicator. Clones are the same.
#[derive(Clone)]
pub struct NcclComm {
    inner: Arc<CommInner>,
}

impl CommInner {
    fn raw(&self) -> MutexGuard<'_, Option<Raw>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NcclComm {
    /// Whether the library has done what it was last asked for: joined, or queued the calls. Errors of any rank come out here.
    pub fn is_ready(&self) -> Result<bool> {
        let inner = &*self.inner;
        let raw = inner.raw();
        let comm = raw.as_ref().ok_or(NcclError::Aborted)?.0;
        let ask = inner.nccl.symbols.async_error.ok_or_else(|| missing("ncclCommGetAsyncError"))?;
        let mut state = SUCCESS;
        // SAFETY: writes one status; the handle is alive.
        let status = unsafe { ask(comm, &mut state) };
        match (status, state) {
            (SUCCESS, SUCCESS) => Ok(true),
            (SUCCESS | IN_PROGRESS, IN_PROGRESS) => Ok(false),
            (SUCCESS, status) | (status, _) => Err(failed(&inner.nccl.symbols, "ncclCommGetAsyncError", status, comm)),
        }
    }

    /// Ends what runs on the device, and frees the communicators: later calls fail. It never waits for other ranks.
    ///
    /// Communicators of one device are ended together: freeing one waits for what the others run, until that is ended too.
    pub fn abort_all(comms: &[NcclComm]) {
        let end = |comm: &NcclComm| {
            let inner = &*comm.inner;
            let taken = {
                let _alone = QUEUING.lock().unwrap_or_else(PoisonError::into_inner);
                inner.raw().take()
            };
            let (Some(raw), Some(abort)) = (taken, inner.nccl.symbols.abort) else { return };
            if inner.context.table().is_ok() {
                // SAFETY: the handle is alive and used nowhere else any more. What it says changes nothing.
                unsafe { abort(raw.0) };
            }
        };
        thread::scope(|scope| {
            let end = &end;
            comms.iter().for_each(|comm| drop(scope.spawn(move || end(comm))));
        });
    }

    /// Whether it has been aborted.
    pub fn is_aborted(&self) -> bool {
        self.inner.raw().is_none()
    }
}

impl Drop for CommInner {
    fn drop(&mut self) {
        let Some(raw) = self.raw().take() else { return };
        let symbols = &self.nccl.symbols;
        let (Ok(_), Some(ask), Some(abort)) = (self.context.table(), symbols.async_error, symbols.abort) else { return };
        let mut state = SUCCESS;
        // SAFETY: writes one status; the handle is alive.
        let known = unsafe { ask(raw.0, &mut state) };
        match (symbols.finalize, symbols.destroy) {
            (Some(finalize), Some(destroy)) if known == SUCCESS && state == SUCCESS => {
                // SAFETY: the handle is alive; what was queued is flushed.
                let mut status = unsafe { finalize(raw.0) };
                // Ranks leave together. Whoever comes late must not hold this one up for ever.
                let start = std::time::Instant::now();
                while status == IN_PROGRESS && start.elapsed() < std::time::Duration::from_secs(5) {
                    thread::sleep(std::time::Duration::from_micros(100));
                    // SAFETY: as above.
                    unsafe { ask(raw.0, &mut status) };
                }
                match status {
                    // SAFETY: finalized, and used nowhere else any more.
                    SUCCESS => unsafe { destroy(raw.0) },
                    // SAFETY: used nowhere else any more.
                    _ => unsafe { abort(raw.0) },
                };
            }
            // SAFETY: used nowhere else any more.
            _ => {
                unsafe { abort(raw.0) };
            }
        }
    }
}

/// A communicator is not taken away to be aborted while calls are queued on it.
static QUEUING: Mutex<()> = Mutex::new(());

/// A communicator, its number of ranks, and a call on it.
pub type OnComm<'a> = (&'a NcclComm, usize, NcclCall);

/// Queues calls on a stream as one, each on its communicator. They are queued once every communicator [is ready](NcclComm::is_ready) again; until then
/// their memory must live, and afterwards until the stream has done them.
pub fn queue(calls: &[OnComm<'_>], streams: &[StreamHandle]) -> Result<()> {
    let Some((first, ..)) = calls.first() else { return Ok(()) };
    let symbols = &first.inner.nccl.symbols;
    let (Some(start), Some(end)) = (symbols.group_start, symbols.group_end) else { return Err(missing("ncclGroupStart")) };
    // What is wrong is found before the group begins: it has to be ended.
    let mut elements = Vec::with_capacity(calls.len());
    for (comm, _, call) in calls {
        elements.push(comm.inner.nccl.element(call.dtype, call.operation)?);
        if comm.is_aborted() {
            return Err(NcclError::Aborted);
        }
    }
    first.inner.context.table()?;
    let _alone = QUEUING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: no arguments.
    check("ncclGroupStart", unsafe { start() })?;
    let mut outcome = Ok(());
    for (((comm, ranks, call), &element), &stream) in calls.iter().zip(&elements).zip(streams) {
        outcome = outcome.and_then(|()| comm.queue_one(*ranks, call, element, stream));
    }
    // SAFETY: no arguments; ends the group that was begun above in this thread.
    let status = unsafe { end() };
    outcome?;
    match status {
        SUCCESS | IN_PROGRESS => Ok(()),
        status => Err(failed(symbols, "ncclGroupEnd", status, ptr::null_mut())),
    }
}

impl NcclComm {
    fn queue_one(&self, ranks: usize, call: &NcclCall, (number, each): (c_int, usize), stream: StreamHandle) -> Result<()> {
        let inner = &*self.inner;
        inner.context.table()?;
        let raw = inner.raw();
        let comm = raw.as_ref().ok_or(NcclError::Aborted)?.0;
        let symbols = &inner.nccl.symbols;
        let (from, to) = (call.source.0 as usize as *const c_void, call.result.0 as usize as *mut c_void);
        let (count, stream) = (call.count * each, stream.0 as usize as Handle);
        let done = |name: &'static str, status: Status| match status {
            SUCCESS | IN_PROGRESS => Ok(()),
            status => Err(failed(symbols, name, status, comm)),
        };
        macro_rules! call {
            ($field:ident, $name:literal, $($arg:expr),*) => {{
                let function = symbols.$field.ok_or_else(|| missing($name))?;
                // SAFETY: the handles are alive; the caller's memory is as large as the counts say.
                done($name, unsafe { function($($arg),*) })
            }};
        }
        match call.operation {
            NcclOperation::AllReduce(reduction) => {
                call!(all_reduce, "ncclAllReduce", from, to, count, number, reduction as c_int, comm, stream)
            }
            NcclOperation::ReduceScatter(reduction) => {
                call!(reduce_scatter, "ncclReduceScatter", from, to, count, number, reduction as c_int, comm, stream)
            }
            NcclOperation::AllGather => call!(all_gather, "ncclAllGather", from, to, count, number, comm, stream),
            NcclOperation::Broadcast { root } => {
                call!(broadcast, "ncclBroadcast", from, to, count, number, root as c_int, comm, stream)
            }
            NcclOperation::Send { to } => call!(send, "ncclSend", from, count, number, to as c_int, comm, stream),
            NcclOperation::Recv { from } => call!(recv, "ncclRecv", to, count, number, from as c_int, comm, stream),
            NcclOperation::AllToAll => {
                let bytes = call.count * call.dtype.bits().max(8) as usize / 8;
                for peer in 0..ranks {
                    let (from, to) = (from.wrapping_byte_add(peer * bytes), to.wrapping_byte_add(peer * bytes));
                    call!(send, "ncclSend", from, count, number, peer as c_int, comm, stream)?;
                    call!(recv, "ncclRecv", to, count, number, peer as c_int, comm, stream)?;
                }
                Ok(())
            }
        }
    }
}
