//! What a kernel was read from, see `tessera/_live.py`: names that still have to stand for what they stood for. Each launch asks, so it is asked here.

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// Where a name stands.
enum Place {
    /// A module's names, or a class's.
    Names(Py<PyDict>),
    /// A variable of a function around the kernel's.
    Cell(Py<PyAny>),
    /// What a function says.
    Read(Py<PyAny>),
}

/// A name that was read, where it stands, and what it stood for.
pub(crate) struct Guard {
    place: Place,
    name: Py<PyAny>,
    value: Py<PyAny>,
    /// Whether the name stood for nothing.
    is_absent: bool,
}

impl Guard {
    /// From a `Guard` of `tessera/_live.py`.
    pub(crate) fn of(guard: &Bound<'_, PyAny>) -> PyResult<Guard> {
        let place = guard.getattr("place")?;
        let is_cell = place.get_type().name()? == "cell";
        let place = match place.cast::<PyDict>() {
            Ok(names) => Place::Names(names.clone().unbind()),
            Err(_) if is_cell => Place::Cell(place.unbind()),
            Err(_) => Place::Read(guard.getattr("read")?.unbind()),
        };
        let is_absent = guard.getattr("is_absent")?.is_truthy()?;
        Ok(Guard { place, name: guard.getattr("name")?.unbind(), value: guard.getattr("value")?.unbind(), is_absent })
    }

    /// Whether the name still stands for that.
    pub(crate) fn holds(&self, py: Python<'_>) -> PyResult<bool> {
        let found = match &self.place {
            Place::Names(names) => match names.bind(py).get_item(self.name.bind(py).cast::<PyString>()?)? {
                Some(found) => found,
                None => return Ok(self.is_absent),
            },
            Place::Cell(cell) => {
                match cell.bind(py).getattr(intern!(py, "cell_contents")) {
                    Ok(found) => found,
                    // It is empty.
                    Err(error) if error.is_instance_of::<PyValueError>(py) => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            Place::Read(read) => read.bind(py).call1((self.name.bind(py),))?,
        };
        Ok(found.is(self.value.bind(py)))
    }
}
