//! What the recorded tasks of a run got and left.

use crate::executor::run::RunShared;
use crate::executor::{RegionRecord, TaskRecord, TaskState};
use crate::graph::{Graph, HostData, Recorded, RecordedRegion, TaskId, Work};
use crate::memory::DeviceSlice;

/// Takes the records of a run that is over, before another run of its graph can begin.
pub(super) fn of(run: &RunShared) -> Vec<TaskRecord> {
    let (graph, view) = (&run.graph, run.graph.view());
    let record = |recorded: &Recorded| {
        let taken = |copy: Option<u32>| {
            let copy = copy.filter(|copy| run.state(*copy) == TaskState::Complete)?;
            Some(copied(graph, copy).1.to_vec())
        };
        let region = |region: &RecordedRegion| {
            let (before, after) = (region.before, region.after);
            let Some(copy) = before.or(after) else { unreachable!("there is one of them") };
            let slice = copied(graph, copy).0;
            RegionRecord {
                address: slice.addr().as_u64(),
                len_bytes: slice.len_bytes(),
                access: region.access,
                before: taken(before),
                after: taken(after),
            }
        };
        let (index, task) = (recorded.task, TaskId::from_index(recorded.task));
        let words = view.args(index).iter();
        let mut args: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        args.truncate(view.args_len(index));
        TaskRecord {
            task: task.index(),
            name: graph.name(task).map(str::to_owned),
            function: graph.function(task).to_owned(),
            state: run.state(index),
            shires: view.shires(index),
            parts: view.parts(index),
            starts_together: view.starts_together(index),
            args,
            regions: recorded.regions.iter().map(region).collect(),
        }
    };
    view.recorded().iter().map(record).collect()
}

fn copied(graph: &Graph, copy: u32) -> (&DeviceSlice, &HostData) {
    match graph.view().work(copy) {
        Work::CopyOut { from, to } => (from, to),
        _ => unreachable!("tasks are recorded by copies from the device"),
    }
}
