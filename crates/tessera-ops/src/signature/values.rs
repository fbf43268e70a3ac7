//! What arrays of a call may hold, beyond their types: numbers of rows and classes that there are, bounds that rise.

use tessera_runtime::{Device, Tensor};

use super::Signature;
use crate::call::CallError;

/// An array of class numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels {
    name: &'static str,
    /// The array that has the classes, and along which of its axes.
    classes_of: &'static str,
    axis: ClassAxis,
    /// The number that says which label stands for no class, and its usual value.
    ignored: (&'static str, f64),
}

/// The axis of an array that has the classes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClassAxis {
    First,
    Last,
}

impl Labels {
    /// `labels` of the classes that an array has along an axis.
    pub(crate) const fn of(classes_of: &'static str, axis: ClassAxis, ignored: (&'static str, f64)) -> Labels {
        Labels { name: "labels", classes_of, axis, ignored }
    }
}

/// An array of numbers of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Indices {
    name: &'static str,
    rows_of: &'static str,
    rows: Rows,
    /// Numbers below 0 stand for no row.
    skips: bool,
    order: Order,
}

/// How numbers of rows follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Any,
    /// No row has two: each is written by one.
    Once,
    /// None is lower than the one before it.
    Rising,
}

/// The pages in which rows of sequences lie: a row of a table names those of a sequence in order, and each sequence has so many rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    pub(crate) table: &'static str,
    pub(crate) lengths: &'static str,
    /// The array of pages: its first axis counts them, its second the rows of each.
    pub(crate) pages_of: &'static str,
}

impl Pages {
    /// A sequence is no longer than its pages, and these are there. What a row of the table holds behind them is nobody's page.
    fn refuse<'t>(&self, find: &impl Fn(&str) -> Option<&'t Tensor>) -> Result<(), CallError> {
        let &Pages { table: name, lengths: lengths_name, pages_of } = self;
        let near = |name: &str| find(name).filter(is_near);
        let (Some(table), Some(lengths), Some(of)) = (near(name), near(lengths_name), find(pages_of)) else { return Ok(()) };
        // Arrays of other ranks are refused for that.
        let ([_, most], [pages, page, ..]) = (table.shape(), of.shape()) else { return Ok(()) };
        let read = |name, array: &Tensor| array.to_f64().map_err(|error| CallError::Memory { name, error });
        let (entries, lengths) = (read(name, table)?, read(lengths_name, lengths)?);
        for (sequence, &length) in lengths.iter().enumerate() {
            if !(0.0..=(most * page) as f64).contains(&length) {
                let why =
                    format!("{length} at place {sequence} is no length of a sequence, which has up to {most} pages of {page}");
                return Err(CallError::Values { name: lengths_name, why });
            }
            let own = &entries[sequence * most..][..(length as usize).div_ceil((*page).max(1))];
            if let Some(at) = own.iter().position(|entry| !(0.0..*pages as f64).contains(entry)) {
                let why = format!(
                    "{} at place {at} of row {sequence} is none of the {pages} pages of `{pages_of}`, which count from 0",
                    own[at]
                );
                return Err(CallError::Values { name, why });
            }
        }
        Ok(())
    }
}

/// The rows of an array, by its shape.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    /// Those along so many axes, the first ones.
    Leading(usize),
    /// The places along the last axis.
    Last,
    /// What lies between neighbours: one less than there are.
    Between,
}

impl Indices {
    /// Numbers of the rows along the first axis of an array.
    pub(crate) const fn of(name: &'static str, rows_of: &'static str) -> Indices {
        Indices { name, rows_of, rows: Rows::Leading(1), skips: false, order: Order::Any }
    }

    /// The same of other rows.
    pub(crate) const fn among(self, rows: Rows) -> Indices {
        Indices { rows, ..self }
    }

    /// The same where a number below 0 stands for none.
    pub(crate) const fn or_none(self) -> Indices {
        Indices { skips: true, ..self }
    }

    /// The same where no row may have two.
    pub(crate) const fn once(self) -> Indices {
        Indices { order: Order::Once, ..self }
    }

    /// The same where none is lower than the one before it.
    pub(crate) const fn rising(self) -> Indices {
        Indices { order: Order::Rising, ..self }
    }

    /// A row that is not there is read as zeros, or written nowhere: nobody would see it.
    fn refuse<'t>(&self, find: &impl Fn(&str) -> Option<&'t Tensor>) -> Result<(), CallError> {
        let &Indices { name, rows_of, rows, skips, order } = self;
        let (Some(indices), Some(of)) = (find(name).filter(is_near), find(rows_of)) else { return Ok(()) };
        let shape = of.shape();
        // An array without axes is refused for that.
        let (count, what) = match (rows, shape) {
            (_, []) => return Ok(()),
            (Rows::Leading(axes), shape) => (shape.iter().take(axes).product(), "rows"),
            (Rows::Last, [.., places]) => (*places, "places"),
            (Rows::Between, [bounds, ..]) => (bounds.saturating_sub(1), "groups"),
        };
        let values = indices.to_f64().map_err(|error| CallError::Memory { name, error })?;
        let is_row = |value: &f64| (0.0..count as f64).contains(value) || skips && *value < 0.0;
        if let Some(at) = values.iter().position(|value| !is_row(value)) {
            let why = format!("{} at place {at} is none of the {count} {what} of `{rows_of}`, which count from 0", values[at]);
            return Err(CallError::Values { name, why });
        }
        let why = match order {
            Order::Any => return Ok(()),
            Order::Once => {
                let mut places: Vec<usize> = (0..values.len()).filter(|&at| values[at] >= 0.0).collect();
                places.sort_by(|&one, &other| values[one].total_cmp(&values[other]));
                let Some(pair) = places.windows(2).find(|pair| values[pair[0]] == values[pair[1]]) else { return Ok(()) };
                let (first, at) = (pair[0], pair[1]);
                format!("{} stands at places {first} and {at}, and each of the {what} of `{rows_of}` is written once", values[at])
            }
            Order::Rising => {
                let Some(at) = values.windows(2).position(|pair| pair[0] > pair[1]) else { return Ok(()) };
                format!("{} stands before {} at places {at} and {}, and they rise", values[at], values[at + 1], at + 1)
            }
        };
        Err(CallError::Values { name, why })
    }
}

/// Whether an array is looked at before a launch.
fn is_near(tensor: &&Tensor) -> bool {
    match tensor.device() {
        Device::Cpu => true,
        Device::Driver(device) => device.is_emulated(),
    }
}

impl Signature {
    /// Refuses values that the operator cannot take, of arrays in the host's memory and of an emulated device. What lies on a GPU is not looked at: it
    /// would have to be waited for and fetched.
    ///
    /// # Errors
    /// Bounds that do not rise from 0 to the number of rows, labels that are no classes, numbers of rows that there are not or that stand twice, lengths
    /// beyond a sequence's pages, pages that there are not, and two places of four neighbours that do not rise.
    pub fn refuse_values<'t>(&self, scalars: &[(&str, f64)], find: impl Fn(&str) -> Option<&'t Tensor>) -> Result<(), CallError> {
        for &[name, rows_of] in self.bounds {
            if let (Some(bounds), Some(of)) = (find(name).filter(is_near), find(rows_of)) {
                refuse_bounds((name, bounds), (rows_of, of))?;
            }
        }
        if let Some((name, places)) = self.fours.and_then(|name| Some((name, find(name).filter(is_near)?))) {
            refuse_fours(name, places)?;
        }
        for indices in self.indices {
            indices.refuse(&find)?;
        }
        if let Some(pages) = &self.pages {
            pages.refuse(&find)?;
        }
        self.refuse_labels(scalars, &find)
    }

    /// A label that is no class has no logit: what stands for it would be taken from beyond the row.
    fn refuse_labels<'t>(&self, scalars: &[(&str, f64)], find: &impl Fn(&str) -> Option<&'t Tensor>) -> Result<(), CallError> {
        let Some(Labels { name, classes_of, axis, ignored: (number, usual) }) = self.labels else { return Ok(()) };
        let (Some(labels), Some(of)) = (find(name).filter(is_near), find(classes_of)) else {
            return Ok(());
        };
        let classes = match axis {
            ClassAxis::First => of.shape().first(),
            ClassAxis::Last => of.shape().last(),
        };
        // An array without axes is refused for that.
        let Some(&classes) = classes else { return Ok(()) };
        let ignored = scalars.iter().find(|(name, _)| *name == number).map_or(usual, |(_, value)| *value);
        let values = labels.to_f64().map_err(|error| CallError::Memory { name, error })?;
        let is_label = |value: &f64| *value == ignored || (0.0..classes as f64).contains(value);
        let Some(at) = values.iter().position(|value| !is_label(value)) else { return Ok(()) };
        let why =
            format!("{} at place {at} is no class of `{classes_of}`, which has {classes}, nor `{number}`, {ignored}", values[at]);
        Err(CallError::Values { name, why })
    }
}

/// Refuses bounds that do not rise from 0 to the number of rows.
fn refuse_bounds((name, bounds): (&'static str, &Tensor), (rows_of, of): (&str, &Tensor)) -> Result<(), CallError> {
    // An array without axes is refused for that.
    let Some(&rows) = of.shape().first() else { return Ok(()) };
    let values = bounds.to_f64().map_err(|error| CallError::Memory { name, error })?;
    let fall = values.windows(2).position(|pair| pair[0] > pair[1]);
    let why = match (fall, values.first(), values.last()) {
        (Some(at), ..) => {
            format!("{} stands before {} at places {at} and {}, and bounds of groups rise", values[at], values[at + 1], at + 1)
        }
        (None, Some(&first), _) if first != 0.0 => {
            format!("the first bound is {first}, and the first group begins with row 0")
        }
        (None, _, Some(&last)) if last != rows as f64 => format!("the last bound is {last}, and `{rows_of}` has {rows} rows"),
        (None, ..) => return Ok(()),
    };
    Err(CallError::Values { name, why })
}

/// Refuses two places of four neighbours of which the first is not the lower one: of what stands in one place only one number could be kept, and tensor
/// cores say nothing of places that fall.
fn refuse_fours(name: &'static str, places: &Tensor) -> Result<(), CallError> {
    let words = places.shape().last().copied().unwrap_or_default().max(1);
    let all = places.to_f64().map_err(|error| CallError::Memory { name, error })?;
    for (at, word) in all.iter().enumerate() {
        let falls = |four: &usize| {
            let [first, second] = pair_at(*word as i64 as u64, *four);
            first >= second
        };
        if let Some(four) = (0..FOURS).find(falls) {
            let ([first, second], number, row) = (pair_at(*word as i64 as u64, four), at % words * FOURS + four, at / words);
            let why = format!(
                "four neighbours number {number} of row {row} have the places {first} and {second}: the first of two is the lower one, and behind the last \
                 of a row stand 0 and 1"
            );
            return Err(CallError::Values { name, why });
        }
    }
    Ok(())
}

/// Fours whose places a word has.
const FOURS: usize = 8;

/// Where two of four neighbours stand, by the word that has them.
pub(crate) fn pair_at(word: u64, four: usize) -> [usize; 2] {
    let bits = word >> (four % FOURS * 4);
    [bits as usize & 3, bits as usize >> 2 & 3]
}

#[cfg(test)]
mod tests {
    use tessera_types::DType;

    use super::*;
    use crate::signature::Operand;

    #[test]
    fn bounds_rise_from_0_to_the_rows_there_are() {
        let signature = Signature::new(&[], &[Operand("C", "")]).bounds(&[["offsets", "A"]]);
        let rows = Tensor::ones(DType::F16, &[5, 2]).unwrap();
        let said = |bounds: &[i32]| {
            let bounds = Tensor::from_vec(&[bounds.len()], bounds.to_vec()).unwrap();
            let find = |name: &str| Some(if name == "A" { &rows } else { &bounds });
            signature.refuse_values(&[], find).map_err(|error| error.to_string())
        };
        assert_eq!(said(&[0, 2, 2, 5]), Ok(()));
        assert_eq!(
            said(&[0, 3, 2, 5]),
            Err("`offsets`: 3 stands before 2 at places 1 and 2, and bounds of groups rise".to_string())
        );
        assert_eq!(said(&[-1, 3, 5]), Err("`offsets`: the first bound is -1, and the first group begins with row 0".to_string()));
        assert_eq!(said(&[0, 3, 6]), Err("`offsets`: the last bound is 6, and `A` has 5 rows".to_string()));
    }

    #[test]
    fn labels_are_classes_or_the_one_to_ignore() {
        let signature =
            Signature::new(&[], &[Operand("loss", "")]).labels(Labels::of("x", ClassAxis::Last, ("ignore_index", -100.0)));
        let x = Tensor::ones(DType::F16, &[3, 4]).unwrap();
        let said = |labels: [i32; 3], scalars: &[(&str, f64)]| {
            let labels = Tensor::from_vec(&[3], labels.to_vec()).unwrap();
            let find = |name: &str| Some(if name == "x" { &x } else { &labels });
            signature.refuse_values(scalars, find).map_err(|error| error.to_string())
        };
        assert_eq!((said([0, 3, -100], &[]), said([0, 9, 3], &[("ignore_index", 9.0)])), (Ok(()), Ok(())));
        assert_eq!(
            said([0, 3, 4], &[]),
            Err("`labels`: 4 at place 2 is no class of `x`, which has 4, nor `ignore_index`, -100".to_string())
        );
        assert!(said([0, -1, 3], &[]).is_err() && said([0, -100, 3], &[("ignore_index", 9.0)]).is_err());
    }

    #[test]
    fn numbers_of_rows_are_those_there_are() {
        let said = |indices: Indices, values: [i32; 3]| {
            static OUTPUTS: &[Operand] = &[Operand("y", "")];
            let signature = Signature { indices: Box::leak(Box::new([indices])), ..Signature::new(&[], OUTPUTS) };
            let (table, ids) = (Tensor::ones(DType::F16, &[5, 2, 7]).unwrap(), Tensor::from_vec(&[3], values.to_vec()).unwrap());
            let find = |name: &str| Some(if name == "table" { &table } else { &ids });
            signature.refuse_values(&[], find).map_err(|error| error.to_string())
        };
        let ids = Indices::of("ids", "table");
        assert_eq!(said(ids, [0, 4, 1]), Ok(()));
        assert_eq!(
            said(ids, [0, 5, 1]),
            Err("`ids`: 5 at place 1 is none of the 5 rows of `table`, which count from 0".to_string())
        );
        let ends = |rows: Rows, last: i32| {
            said(ids.among(rows), [0, 0, last]).is_ok() && said(ids.among(rows), [0, 0, last + 1]).is_err()
        };
        assert!(ends(Rows::Leading(2), 9) && ends(Rows::Last, 6) && ends(Rows::Between, 3));
        assert!(said(ids, [0, 0, -1]).is_err() && said(ids.or_none(), [0, 0, -1]).is_ok());
        assert!(said(ids.once(), [4, 0, 1]).is_ok() && said(ids.or_none().once(), [-1, 0, -1]).is_ok());
        assert_eq!(
            said(ids.once(), [3, 0, 3]),
            Err("`ids`: 3 stands at places 0 and 2, and each of the rows of `table` is written once".to_string())
        );
        assert!(said(ids.rising(), [0, 0, 4]).is_ok());
        assert_eq!(said(ids.rising(), [0, 2, 1]), Err("`ids`: 2 stands before 1 at places 1 and 2, and they rise".to_string()));
    }

    #[test]
    fn pages_of_sequences_are_those_there_are() {
        let signature =
            Signature::new(&[], &[Operand("y", "")]).pages(Pages { table: "table", lengths: "lengths", pages_of: "cache" });
        let cache = Tensor::ones(DType::F16, &[3, 4, 2]).unwrap();
        let said = |table: [i32; 4], lengths: [i32; 2]| {
            let table = Tensor::from_vec(&[2, 2], table.to_vec()).unwrap();
            let lengths = Tensor::from_vec(&[2], lengths.to_vec()).unwrap();
            let find = |name: &str| {
                Some(if name == "table" {
                    &table
                } else if name == "lengths" {
                    &lengths
                } else {
                    &cache
                })
            };
            signature.refuse_values(&[], find).map_err(|error| error.to_string())
        };
        // Behind a sequence's last page nothing is looked at.
        assert_eq!((said([0, 2, 1, 9], [8, 4]), said([-1, 7, 9, 9], [0, 0])), (Ok(()), Ok(())));
        assert_eq!(
            said([0, 2, 1, 9], [8, 5]),
            Err("`table`: 9 at place 1 of row 1 is none of the 3 pages of `cache`, which count from 0".to_string())
        );
        assert!(said([-1, 2, 1, 0], [1, 5]).is_err());
        for length in [9, -1] {
            let wrong = format!("`lengths`: {length} at place 1 is no length of a sequence, which has up to 2 pages of 4");
            assert_eq!(said([0, 2, 1, 0], [8, length]), Err(wrong));
        }
    }
}
