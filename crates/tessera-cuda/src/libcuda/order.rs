//! Streams, events and graphs.

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::c_uint;
use std::ptr;
use std::sync::Arc;

use tessera_driver::{DriverCode, DriverTable, EventHandle, GraphHandle, StreamHandle};

use super::{Symbols, handle, number};

pub(super) fn fill(table: &mut DriverTable, symbols: &Arc<Symbols>) {
    slot!(table, symbols, stream_create, [stream_create], |cu| {
        const NON_BLOCKING: c_uint = 1;
        let mut stream = ptr::null_mut();
        // SAFETY: writes one handle.
        cu.check("cuStreamCreate", unsafe { stream_create(&mut stream, NON_BLOCKING) })?;
        Ok(StreamHandle(number(stream)))
    });
    slot!(table, symbols, stream_destroy, [stream_destroy], |cu, stream| {
        // SAFETY: the handle came from this driver.
        cu.check("cuStreamDestroy", unsafe { stream_destroy(handle(stream.0)) })
    });
    slot!(table, symbols, stream_synchronize, [stream_synchronize], |cu, stream| {
        // SAFETY: the handle came from this driver.
        cu.check("cuStreamSynchronize", unsafe { stream_synchronize(handle(stream.0)) })
    });
    slot!(table, symbols, stream_query, [stream_query], |cu, stream| {
        // SAFETY: the handle came from this driver.
        let status = unsafe { stream_query(handle(stream.0)) };
        if status == DriverCode::NOT_READY.0 { Ok(false) } else { cu.check("cuStreamQuery", status).map(|()| true) }
    });
    slot!(table, symbols, stream_wait_event, [stream_wait_event], |cu, stream, event| {
        // SAFETY: the handles came from this driver.
        cu.check("cuStreamWaitEvent", unsafe { stream_wait_event(handle(stream.0), handle(event.0), 0) })
    });
    slot!(table, symbols, event_create, [event_create], |cu| {
        let mut event = ptr::null_mut();
        // SAFETY: writes one handle.
        cu.check("cuEventCreate", unsafe { event_create(&mut event, 0) })?;
        Ok(EventHandle(number(event)))
    });
    slot!(table, symbols, event_destroy, [event_destroy], |cu, event| {
        // SAFETY: the handle came from this driver.
        cu.check("cuEventDestroy", unsafe { event_destroy(handle(event.0)) })
    });
    slot!(table, symbols, event_record, [event_record], |cu, event, stream| {
        // SAFETY: the handles came from this driver.
        cu.check("cuEventRecord", unsafe { event_record(handle(event.0), handle(stream.0)) })
    });
    slot!(table, symbols, event_synchronize, [event_synchronize], |cu, event| {
        // SAFETY: the handle came from this driver.
        cu.check("cuEventSynchronize", unsafe { event_synchronize(handle(event.0)) })
    });
    slot!(table, symbols, event_query, [event_query], |cu, event| {
        // SAFETY: the handle came from this driver.
        let status = unsafe { event_query(handle(event.0)) };
        if status == DriverCode::NOT_READY.0 { Ok(false) } else { cu.check("cuEventQuery", status).map(|()| true) }
    });
    slot!(table, symbols, event_elapsed_ms, [event_elapsed], |cu, start, end| {
        let mut milliseconds = 0.0;
        // SAFETY: writes one float; the handles came from this driver.
        let status = unsafe { event_elapsed(&mut milliseconds, handle(start.0), handle(end.0)) };
        cu.check("cuEventElapsedTime", status)?;
        Ok(milliseconds)
    });
    slot!(table, symbols, capture_begin, [capture_begin], |cu, stream| {
        const THREAD_LOCAL: c_uint = 1;
        // SAFETY: the handle came from this driver.
        cu.check("cuStreamBeginCapture", unsafe { capture_begin(handle(stream.0), THREAD_LOCAL) })
    });
    slot!(table, symbols, capture_end, [capture_end, graph_instantiate, graph_free], |cu, stream| {
        let (mut graph, mut ready) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: writes one handle.
        cu.check("cuStreamEndCapture", unsafe { capture_end(handle(stream.0), &mut graph) })?;
        // SAFETY: the graph came from the call above.
        let status = unsafe { graph_instantiate(&mut ready, graph, 0) };
        // SAFETY: an instantiated graph does not need its template any more.
        cu.check("cuGraphDestroy", unsafe { graph_free(graph) })?;
        cu.check("cuGraphInstantiate", status)?;
        Ok(GraphHandle(number(ready)))
    });
    slot!(table, symbols, graph_launch, [graph_launch], |cu, graph, stream| {
        // SAFETY: the handles came from this driver.
        cu.check("cuGraphLaunch", unsafe { graph_launch(handle(graph.0), handle(stream.0)) })
    });
    slot!(table, symbols, graph_destroy, [graph_destroy], |cu, graph| {
        // SAFETY: the handle came from this driver.
        cu.check("cuGraphExecDestroy", unsafe { graph_destroy(handle(graph.0)) })
    });
    slot!(table, symbols, stream_wait_value, [stream_wait_value], |cu, stream, at, value| {
        const AT_LEAST: c_uint = 0;
        // SAFETY: the address is checked by the driver; the handle came from it.
        let status = unsafe { stream_wait_value(handle(stream.0), at.0, value, AT_LEAST) };
        cu.check("cuStreamWaitValue32", status)
    });
    slot!(table, symbols, stream_write_value, [stream_write_value], |cu, stream, at, value| {
        // With a fence of the whole system before it.
        const DEFAULT: c_uint = 0;
        // SAFETY: the address is checked by the driver; the handle came from it.
        let status = unsafe { stream_write_value(handle(stream.0), at.0, value, DEFAULT) };
        cu.check("cuStreamWriteValue32", status)
    });
}
