//! Symmetric memory: each rank has a region of one size, and all ranks of a machine reach all regions.
//!
//! In one process a device is let into the other's context; between processes the driver opens what the other shares
//! (`cuIpcGetMemHandle`). Regions are plain memory of the driver, since its pools let nobody in unasked. A table in each device's
//! memory holds the addresses at which it sees the regions, in the order of ranks.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use tessera_driver::{ContextHandle, DevicePtr, SharedHandle};
use tessera_types::DType;

use crate::device::{Device, DriverDevice};
use crate::error::TensorError;
use crate::ranks::communicator::Communicator;
use crate::ranks::error::{ExchangeError, RendezvousError};
use crate::tensor::Tensor;

/// Bytes in front of lines and data: see `kernels/nvlink.py`.
pub(super) const HEADER_BYTES: u64 = 16384;
/// Where the status word stands, in words of 32 bits.
const STATUS: usize = 0;
/// Where flags begin, in the same.
pub(super) const FLAGS: u64 = 256;
/// Words of 32 bits that a rank tells the others of its region.
const WORDS: usize = 24;

/// How a region is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a set of lines.
    pub lines_bytes: u64,
    /// Bytes of a set of data.
    pub set_bytes: u64,
}

impl Default for Layout {
    /// Lines for 128 KiB of each of 8 ranks, and data for an `all_reduce` of 16 MiB.
    fn default() -> Layout {
        Layout { lines_bytes: 2 << 20, set_bytes: 32 << 20 }
    }
}

impl Layout {
    /// Bytes of a region: two sets of each.
    pub const fn bytes(&self) -> u64 {
        HEADER_BYTES + 2 * (self.lines_bytes + self.set_bytes)
    }

    fn check(&self) -> Result<(), TensorError> {
        if self.lines_bytes.is_multiple_of(16) && self.set_bytes.is_multiple_of(16) && self.bytes() < 1 << 40 {
            return Ok(());
        }
        let what = format!("a region with sets of {} and {} bytes", self.lines_bytes, self.set_bytes);
        Err(TensorError::View { what: format!("{what} (multiples of 16 are wanted)"), shape: Vec::new() })
    }
}

/// A rank's region, and where it sees those of the others. It is dropped when no rank's kernels use it any more.
#[derive(Debug)]
pub struct SymmetricMemory {
    rank: usize,
    device: DriverDevice,
    layout: Layout,
    region: Tensor,
    _table: Tensor,
    addresses: Vec<u64>,
    /// Where the device sees its region, and the table.
    places: (u64, u64),
    _opened: Opened,
}

/// What was opened of other processes, closed in the end.
#[derive(Debug)]
struct Opened {
    device: DriverDevice,
    regions: Vec<DevicePtr>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Ok(table) = self.device.context().table() {
            for &pointer in &self.regions {
                let _ = table.mem_close(pointer);
            }
        }
    }
}

impl SymmetricMemory {
    /// Regions of the ranks whose devices these are, in one process and behind one driver.
    ///
    /// # Errors
    /// Devices that cannot reach each other; what the driver refuses.
    pub fn of_devices(devices: &[DriverDevice], layout: Layout) -> Result<Vec<SymmetricMemory>, ExchangeError> {
        layout.check()?;
        let regions = devices.iter().map(|device| region(device, layout)).collect::<Result<Vec<_>, _>>()?;
        let addresses = regions.iter().map(address).collect::<Result<Vec<_>, _>>()?;
        for (rank, device) in devices.iter().enumerate() {
            for (other, peer) in devices.iter().enumerate().filter(|(other, _)| *other != rank) {
                let reached = device.context().enable_peer(peer.context()).map_err(TensorError::from)?;
                if !reached {
                    return Err(unreachable(rank, other));
                }
            }
        }
        let own = |(rank, (device, region)): (usize, (&DriverDevice, Tensor))| {
            SymmetricMemory::new(rank, device, layout, region, addresses.clone(), Opened::none(device))
        };
        devices.iter().zip(regions).enumerate().map(own).collect()
    }

    /// The region of this rank of a group whose ranks are all on this machine; `others` is how they find each other, and `device`
    /// this rank's.
    ///
    /// # Errors
    /// Ranks of several machines, devices that cannot reach each other; what the driver or the exchange refuses.
    pub fn meet(device: &DriverDevice, layout: Layout, others: &mut dyn Communicator) -> Result<SymmetricMemory, ExchangeError> {
        layout.check()?;
        let (rank, world) = (others.rank(), others.world());
        let region = region(device, layout)?;
        let (handle, _) = region.share()?;
        let own = Introduction {
            machine: machine().map_err(|reason| refused(rank, reason))?,
            process: process(),
            context: device.context().handle().0,
            start: address(&region)?,
            handle,
        };
        let told = Tensor::from_vec(&[1, WORDS], own.words())?;
        let told = others.all_gather(&world, 0, &[told])?.remove(0).to_device(&Device::Cpu)?;
        let all: Vec<Introduction> = told.read::<i32>()?.chunks(WORDS).map(Introduction::of).collect();
        let (mut addresses, mut opened) = (Vec::new(), Opened::none(device));
        let outcome = all.iter().enumerate().try_for_each(|(other, peer)| {
            addresses.push(own.open((rank, other), peer, &mut opened)?);
            Ok(())
        });
        // Who cannot go on tells the others, which would wait at their first call.
        let well = i32::from(outcome.is_err());
        let told = Tensor::from_vec(&[1], vec![well])?;
        let told = others.all_gather(&world, 0, &[told])?.remove(0).to_device(&Device::Cpu)?;
        let failed: Vec<usize> = told.read::<i32>()?.iter().zip(0..).filter(|(word, _)| **word != 0).map(|(_, at)| at).collect();
        let memory = outcome.and_then(|()| SymmetricMemory::new(rank, device, layout, region, addresses, opened))?;
        match failed.first() {
            None => Ok(memory),
            Some(other) => Err(refused(rank, format!("rank {other} cannot reach the memory of all ranks"))),
        }
    }

    fn new(
        rank: usize,
        device: &DriverDevice,
        layout: Layout,
        region: Tensor,
        addresses: Vec<u64>,
        opened: Opened,
    ) -> Result<SymmetricMemory, ExchangeError> {
        let words: Vec<i64> = addresses.iter().map(|&address| address.cast_signed()).collect();
        let table = Tensor::from_vec(&[words.len()], words)?.to_device(&Device::Driver(device.clone()))?;
        let places = (address(&region)?, address(&table)?);
        Ok(SymmetricMemory { rank, device: device.clone(), layout, region, _table: table, addresses, places, _opened: opened })
    }

    /// Which rank's it is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.addresses.len()
    }

    /// Whose memory it is.
    pub fn device(&self) -> &DriverDevice {
        &self.device
    }

    /// How regions are divided.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The address at which this rank's device sees a rank's region.
    pub(super) fn address_of(&self, rank: usize) -> u64 {
        self.addresses[rank]
    }

    /// The address of this rank's region, and of the table of all.
    pub fn places(&self) -> (u64, u64) {
        self.places
    }

    /// The rank that did not come in time, once kernels that waited have ended.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn missing(&self) -> Result<Option<usize>, TensorError> {
        let word = self.region.slice(0, STATUS..STATUS + 1, 1)?.to_device(&Device::Cpu)?;
        let status = word.read::<i32>()?[0];
        Ok(usize::try_from(status).ok().and_then(|status| status.checked_sub(1)))
    }
}

impl Opened {
    fn none(device: &DriverDevice) -> Opened {
        Opened { device: device.clone(), regions: Vec::new() }
    }
}

/// What a rank tells the others.
struct Introduction {
    /// Which machine it is on, and which process there.
    machine: u64,
    process: u64,
    /// Its device's context, for ranks of the same process.
    context: u64,
    /// Where it sees its region, for the same.
    start: u64,
    handle: SharedHandle,
}

impl Introduction {
    fn words(&self) -> Vec<i32> {
        let numbers = [self.machine, self.process, self.context, self.start];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend(self.handle.0);
        bytes.as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word)).collect()
    }

    fn of(words: &[i32]) -> Introduction {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let number = |at: usize| bytes[8 * at..8 * at + 8].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let mut handle = [0; 64];
        handle.copy_from_slice(&bytes[32..96]);
        Introduction {
            machine: number(0),
            process: number(1),
            context: number(2),
            start: number(3),
            handle: SharedHandle(handle),
        }
    }

    /// The address at which this rank's device sees another rank's region.
    fn open(&self, (rank, other): (usize, usize), peer: &Introduction, opened: &mut Opened) -> Result<u64, ExchangeError> {
        if rank == other {
            return Ok(self.start);
        }
        if peer.machine != self.machine {
            let reason = format!("rank {other} is on another machine: kernels reach memory of their own alone");
            return Err(refused(rank, reason));
        }
        let table = opened.device.context().table().map_err(TensorError::from)?;
        if peer.process != self.process {
            let pointer = table.mem_open(peer.handle).map_err(TensorError::from)?;
            opened.regions.push(pointer);
            return Ok(pointer.0);
        }
        if peer.context == self.context {
            return Err(refused(rank, format!("rank {other} has the same device")));
        }
        match table.peer_enable(ContextHandle(peer.context)) {
            Err(error) if error.code() != Some(tessera_driver::DriverCode::PEER_ALREADY_ENABLED) => {
                Err(TensorError::from(error).into())
            }
            Ok(()) | Err(_) => Ok(peer.start),
        }
    }
}

/// A region of zeros, which are there when this returns. The driver may lay small allocations together and share them all: of this
/// size one lies by itself.
fn region(device: &DriverDevice, layout: Layout) -> Result<Tensor, TensorError> {
    const ALONE: u64 = 2 << 20;
    let words = layout.bytes().next_multiple_of(ALONE) / 4;
    let region = Tensor::zeros_shareable(DType::I32, &[words as usize], &Device::Driver(device.clone()))?;
    device.synchronize()?;
    Ok(region)
}

fn address(memory: &Tensor) -> Result<u64, ExchangeError> {
    let none = || ExchangeError::Mismatch { reason: "a region is not in a device's memory".to_string() };
    Ok(memory.device_pointer().ok_or_else(none)?.0)
}

fn unreachable(rank: usize, other: usize) -> ExchangeError {
    refused(rank, format!("its device cannot reach the memory of rank {other}'s: use NCCL or ranks that are linked by NVLink"))
}

fn refused(rank: usize, reason: String) -> ExchangeError {
    RendezvousError::Refused { rank, reason }.into()
}

/// A number that differs between machines and between starts of one.
fn machine() -> Result<u64, String> {
    const BOOT: &str = "/proc/sys/kernel/random/boot_id";
    let text =
        std::fs::read_to_string(BOOT).map_err(|error| format!("which machine this is cannot be told: `{BOOT}`: {error}"))?;
    let hash = blake3::hash(text.trim().as_bytes());
    Ok(hash.as_bytes()[..8].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

/// A number of this process: the system's are alike in containers of one machine.
fn process() -> u64 {
    static OWN: OnceLock<u64> = OnceLock::new();
    *OWN.get_or_init(|| RandomState::new().hash_one(std::process::id()))
}
