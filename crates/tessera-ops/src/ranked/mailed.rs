//! Products of ranks that reach each other's memory: what a product needs comes, and what it gives goes, by copy engines while another piece is
//! multiplied.
//!
//! ```text
//! gathered   compute | own rows | rows of r - 1 | rows of r - 2 |      the rows of a rank are multiplied when they have come
//!            copy    | own rows to r + 1 | to r + 2 |
//! scattered  compute | rows of r - 1 | rows of r - 2, and what came | own rows, and what came |      in two pieces, which take turns
//!            copy                    | to r + 1                   | to r + 1 |
//! ```
//! A [`Mailbox`] holds what comes. The launches are prepared once, for each of its two sets.

use std::ops::Range;
use std::time::Duration;

use tessera_runtime::ranks::Communicator;
use tessera_runtime::ranks::nvlink::{Mailbox, Turn};
use tessera_runtime::{CompileOptions, Device, DriverDevice, PreparedLaunch, Tensor, TensorError};
use tessera_types::{DType, packed_bytes};

use super::RankedError;
use crate::call::Call;
use crate::operator::Machine;
use crate::set::gemm::GEMM;
use crate::set::gemm_onto;

/// The product of all ranks' rows of A, one after another, and this rank's columns of B.
///
/// A rank's results do not depend on when rows come: those of a rank are multiplied as they would be alone.
pub struct GatheredProduct {
    mailbox: Mailbox,
    device: DriverDevice,
    a: Tensor,
    /// What multiplies the rows of each rank, in each set.
    launches: [Vec<Vec<PreparedLaunch>>; 2],
}

/// This rank's rows of the sum over ranks of their products of A (this rank's part of the contraction) and B.
///
/// The rows of rank `b` are summed in the order `b + 1`, `b + 2`, ..., `b`; what comes from another rank was rounded to the type of C. A rank sends to the
/// next one alone: where each sends to all others, two that are not in step send to one, at half the rate (483 us for 100 MB in 12 parts on four H200,
/// 307 in a ring).
pub struct ScatteredProduct {
    mailbox: Mailbox,
    device: DriverDevice,
    pieces: Vec<Piece>,
}

/// Some of the rows that each rank gets: a step with them is computed while what the step before gave is on its way to the next rank.
struct Piece {
    /// As many as there are ranks: of the rows of the rank before this one, of the one before that, ..., of the own ones.
    steps: Vec<Step>,
}

/// What is multiplied in each set, with what came added from the second step on; and where it goes, but for the last step.
struct Step {
    launches: [Vec<PreparedLaunch>; 2],
    /// What the launches give, and bytes in front of it in a set.
    given: Option<(Tensor, u64)>,
}

/// What all ranks must have alike.
struct Shapes {
    program: &'static str,
    extents: [usize; 3],
    dtypes: [DType; 2],
}

impl Shapes {
    /// Of A, B and C, whose rows are those of A times a factor, or a share of them.
    fn of(program: &'static str, [a, b, c]: [&Tensor; 3], rows: impl Fn(usize) -> Option<usize>) -> Result<Shapes, RankedError> {
        let told = |why: String| RankedError::Parts { program, why };
        let (&[m, k], &[inner, n], &[of_c, columns]) = (a.shape(), b.shape(), c.shape()) else {
            return Err(told(format!(
                "A, B and C of shapes {:?}, {:?} and {:?}: matrices are wanted",
                a.shape(),
                b.shape(),
                c.shape()
            )));
        };
        let rows = rows(m).ok_or_else(|| told(format!("{m} rows of A do not divide among the ranks")))?;
        if (inner, columns, of_c) != (k, n, rows) {
            let why =
                format!("A is {m} x {k}: B of {k} x n and C of {rows} x n are wanted, not {inner} x {n} and {of_c} x {columns}");
            return Err(told(why));
        }
        if a.dtype() != b.dtype() {
            return Err(told(format!("A holds `{}` and B `{}`: they are of one type", a.dtype(), b.dtype())));
        }
        if [a, b, c].iter().any(|tensor| !tensor.is_contiguous()) {
            return Err(told("A, B and C lie in rows one after another: call `contiguous` first".to_string()));
        }
        Ok(Shapes { program, extents: [m, n, k], dtypes: [a.dtype(), c.dtype()] })
    }

    /// Refuses ranks that have others.
    fn agree(&self, communicator: &mut dyn Communicator) -> Result<(), RankedError> {
        let [m, n, k] = self.extents.map(|extent| extent as i64);
        let own = [m, n, k, self.dtypes[0] as i64, self.dtypes[1] as i64];
        let told = Tensor::from_vec(&[1, own.len()], own.to_vec())?.to_device(communicator.device())?;
        let world = communicator.world();
        let told = communicator.all_gather(&world, 0, &[told])?.remove(0).to_device(&Device::Cpu)?;
        let told = told.read::<i64>()?;
        match told.chunks(own.len()).position(|other| other != own) {
            None => Ok(()),
            Some(rank) => {
                let why = format!("rank {rank} has other extents or types than rank {}: all have the same", communicator.rank());
                Err(RankedError::Parts { program: self.program, why })
            }
        }
    }
}

/// The device that the arrays are on, which is the communicator's.
fn device_of(program: &'static str, communicator: &dyn Communicator, arrays: [&Tensor; 3]) -> Result<DriverDevice, RankedError> {
    let Some(device) = communicator.device().driver() else {
        let why =
            "its ranks have devices that reach each other's memory: use `gathered_product` or `scattered_product`".to_string();
        return Err(RankedError::Parts { program, why });
    };
    match arrays.iter().find(|array| array.device().driver().is_none_or(|own| !own.is(device))) {
        None => Ok(device.clone()),
        Some(array) => {
            let why = format!("an array is on `{}` and the communicator on `{}`", array.device(), communicator.device());
            Err(RankedError::Parts { program, why })
        }
    }
}

/// A product by itself.
fn product(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<Vec<PreparedLaunch>, RankedError> {
    let tensors = vec![("A", a.clone()), ("B", b.clone()), ("C", c.clone())];
    Ok(GEMM.resolve(&Call { tensors, ..Call::default() })?.prepare(std::slice::from_ref(c), &CompileOptions::default())?)
}

fn queue(launches: &[PreparedLaunch], device: &DriverDevice) -> Result<(), RankedError> {
    launches.iter().try_for_each(|launch| {
        let none = || RankedError::Parts { program: "product", why: "it was not prepared for a device".to_string() };
        Ok(launch.on_device().ok_or_else(none)?.enqueue_on(device.stream()).map_err(TensorError::from)?)
    })
}

/// Waits for what was queued, and says what became of it.
fn finished(mailbox: &Mailbox, device: &DriverDevice) -> Result<(), RankedError> {
    device.synchronize().map_err(TensorError::from)?;
    Ok(mailbox.check()?)
}

/// Bytes of the room that so many elements have in a set.
fn room(dtype: DType, elements: usize) -> u64 {
    (packed_bytes(dtype, elements) as u64).next_multiple_of(Mailbox::ALIGN)
}

impl GatheredProduct {
    const PROGRAM: &str = "all-gather + product";

    /// For A of m x k, B of k x n and C of (ranks x m) x n, on the device of a communicator whose ranks are on this machine; all ranks call this
    /// together. C is of any type that the operator `gemm` stores of such factors. `limit` is how long a rank waits for another one.
    ///
    /// # Errors
    /// Arrays that do not fit, ranks whose arrays differ or that cannot reach each other's memory; what the driver refuses.
    pub fn new(
        communicator: &mut dyn Communicator,
        [a, b, c]: [&Tensor; 3],
        limit: Duration,
    ) -> Result<GatheredProduct, RankedError> {
        let ranks = communicator.ranks();
        let device = device_of(Self::PROGRAM, communicator, [a, b, c])?;
        let shapes = Shapes::of(Self::PROGRAM, [a, b, c], |m| m.checked_mul(ranks))?;
        shapes.agree(communicator)?;
        let part = room(a.dtype(), a.len());
        let mailbox = Mailbox::meet(&device, part * ranks as u64, 1, communicator, limit)?;
        let [m, ..] = shapes.extents;
        let of_turn = |turn: Turn| {
            let of_rank = |rank: usize| {
                let came = mailbox.tensor(mailbox.rank(), turn, part * rank as u64, a.dtype(), a.shape())?;
                let rows = c.slice(0, rank * m..(rank + 1) * m, 1)?;
                product(if rank == mailbox.rank() { a } else { &came }, b, &rows)
            };
            (0..ranks).map(of_rank).collect::<Result<Vec<_>, RankedError>>()
        };
        let launches = [of_turn(Turn::BOTH[0])?, of_turn(Turn::BOTH[1])?];
        Ok(GatheredProduct { mailbox, a: a.clone(), launches, device })
    }

    /// Queues it on the device's stream; A may be written again by what is queued there next.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn enqueue(&mut self) -> Result<(), RankedError> {
        let (ranks, rank, turn) = (self.mailbox.ranks(), self.mailbox.rank(), self.mailbox.begin());
        let at = room(self.a.dtype(), self.a.len()) * rank as u64;
        for to in (1..ranks).map(|step| (rank + step) % ranks) {
            self.mailbox.send(&self.a, to, turn, at, 1)?;
        }
        queue(&self.launches[turn.index()][rank], &self.device)?;
        for from in (1..ranks).map(|step| (rank + ranks - step) % ranks) {
            self.mailbox.await_ranks(from..from + 1, 1)?;
            queue(&self.launches[turn.index()][from], &self.device)?;
        }
        Ok(self.mailbox.sent()?)
    }

    /// Waits for what was queued.
    ///
    /// # Errors
    /// A rank that did not come, after which nothing can be done with the program; what the driver refuses.
    pub fn wait(&self) -> Result<(), RankedError> {
        finished(&self.mailbox, &self.device)
    }
}

impl ScatteredProduct {
    const PROGRAM: &str = "product + reduce-scatter";

    /// For A of m x k, B of k x n and C of (m / ranks) x n, on the device of a communicator whose ranks are on this machine; all ranks call this
    /// together. `limit` is how long a rank waits for another one.
    ///
    /// # Errors
    /// Arrays that do not fit, ranks whose arrays differ or that cannot reach each other's memory; what the driver refuses.
    pub fn new(
        communicator: &mut dyn Communicator,
        [a, b, c]: [&Tensor; 3],
        limit: Duration,
    ) -> Result<ScatteredProduct, RankedError> {
        let ranks = communicator.ranks();
        let device = device_of(Self::PROGRAM, communicator, [a, b, c])?;
        let shapes = Shapes::of(Self::PROGRAM, [a, b, c], |m| m.is_multiple_of(ranks).then_some(m / ranks))?;
        shapes.agree(communicator)?;
        let cuts = cuts(c.shape()[0]);
        let of_step = |rows: &Range<usize>| room(c.dtype(), rows.len() * c.shape()[1]);
        let of_piece = |rows: &Range<usize>| of_step(rows) * (ranks - 1) as u64;
        let bytes = cuts.iter().map(of_piece).sum::<u64>();
        let mailbox = Mailbox::meet(&device, bytes.max(1), (cuts.len() * (ranks - 1)) as u32, communicator, limit)?;
        let (mut at, mut pieces) = (0, Vec::new());
        for rows in cuts {
            let places = (0..ranks - 1).map(|step| at + of_step(&rows) * step as u64).collect::<Vec<_>>();
            at += of_piece(&rows);
            pieces.push(Piece::new(&mailbox, rows, &places, [a, b, c])?);
        }
        Ok(ScatteredProduct { mailbox, pieces, device })
    }

    /// Queues it on the device's stream.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn enqueue(&mut self) -> Result<(), RankedError> {
        let (ranks, rank, turn) = (self.mailbox.ranks(), self.mailbox.rank(), self.mailbox.begin());
        let (before, next) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
        // What is sent is counted from 1 on, and comes in this order.
        let (mut came, mut sent) = (0, 0);
        for step in 0..ranks {
            for piece in &self.pieces {
                let Step { launches, given } = &piece.steps[step];
                if step > 0 {
                    came += 1;
                    self.mailbox.await_ranks(before..before + 1, came)?;
                }
                queue(&launches[turn.index()], &self.device)?;
                if let Some((given, at)) = given {
                    sent += 1;
                    self.mailbox.send(given, next, turn, *at, sent)?;
                }
            }
        }
        Ok(self.mailbox.sent()?)
    }

    /// Waits for what was queued.
    ///
    /// # Errors
    /// A rank that did not come, after which nothing can be done with the program; what the driver refuses.
    pub fn wait(&self) -> Result<(), RankedError> {
        finished(&self.mailbox, &self.device)
    }
}

/// Rows from which on there are two pieces, so that one is computed while the other is on its way. On four H200 it took 170 us of 1024 rows in one piece, 138 in two
/// and 248 in four; of 2048 rows 697, 438 and 502.
const TWO_PIECES: usize = 512;
/// Rows of the largest tiles: the first piece has whole ones.
const TILE_ROWS: usize = 256;

/// Rows of each piece.
fn cuts(rows: usize) -> Vec<Range<usize>> {
    let first = if rows < TWO_PIECES { rows } else { rows.div_ceil(2).next_multiple_of(TILE_ROWS) };
    [0..first, first..rows].into_iter().filter(|cut| !cut.is_empty()).collect()
}

impl Piece {
    /// Rows of each rank's. What comes for the second step lies at the first of `places` in a set, and so on.
    fn new(mailbox: &Mailbox, cut: Range<usize>, places: &[u64], [a, b, c]: [&Tensor; 3]) -> Result<Piece, RankedError> {
        let (ranks, rank, device) = (mailbox.ranks(), mailbox.rank(), b.device());
        let shape = [cut.len(), c.shape()[1]];
        let of_step = |step: usize| {
            let first = (rank + ranks - step) % ranks * c.shape()[0];
            let rows = a.slice(0, first + cut.start..first + cut.end, 1)?;
            let given =
                places.get(step - 1).map(|&at| Ok::<_, TensorError>((Tensor::unwritten_on(c.dtype(), &shape, &device)?, at)));
            let given = given.transpose()?;
            let result = match &given {
                Some((given, _)) => given,
                None => &c.slice(0, cut.clone(), 1)?,
            };
            let of_turn = |turn: Turn| match step {
                1 => product(&rows, b, result),
                _ => {
                    let came = mailbox.tensor(rank, turn, places[step - 2], c.dtype(), &shape)?;
                    Ok(vec![onto([&rows, b, &came, result])?])
                }
            };
            Ok(Step { launches: [of_turn(Turn::BOTH[0])?, of_turn(Turn::BOTH[1])?], given })
        };
        Ok(Piece { steps: (1..=ranks).map(of_step).collect::<Result<_, RankedError>>()? })
    }
}

/// A product to which a matrix is added.
fn onto([a, b, part, c]: [&Tensor; 4]) -> Result<PreparedLaunch, RankedError> {
    let sizes = [a.shape()[0], b.shape()[1], a.shape()[1]].map(|extent| extent as u64);
    let told = |error: crate::Unsupported| RankedError::Parts { program: ScatteredProduct::PROGRAM, why: error.to_string() };
    let launch = gemm_onto::launch(sizes, [a.dtype(), c.dtype()], Machine::of(&c.device())).map_err(told)?;
    let arrays = [a, b, part, c];
    let values = launch.values(|at| arrays[at].clone());
    let options = CompileOptions::default();
    Ok(GEMM.file_of(&launch).kernel(launch.kernel)?.prepare(&values, launch.grid, &launch.options(&options), &c.device())?)
}
