//! Task graphs: what their builder refuses, and what it derives, against slow and simple models.
#![expect(clippy::unwrap_used, reason = "the helpers of the tests are tests too")]

mod building;
mod conditions;
mod parts;
mod patching;
mod random;
mod transients;

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use et_hal_sim::{BoardConfig, SimHal};
use et_runtime::graph::{Access, FunctionId, Graph, GraphBuilder, Resource, Task, TaskId};
use et_runtime::{Device, Kernel};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(120);

fn device() -> Device<SimHal> {
    let config = "dram=256MiB,compute=null".parse::<BoardConfig>().unwrap();
    Device::open(SimHal::open(config).unwrap()).unwrap()
}

fn kernel(device: &Device<SimHal>) -> Kernel {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/kernels/elf/memset.elf");
    device.load_kernel("memset", &std::fs::read(file).unwrap()).unwrap()
}

fn builder() -> (GraphBuilder, FunctionId) {
    let mut builder = GraphBuilder::new();
    let function = builder.function(|_| Ok(()));
    (builder, function)
}

fn id(index: usize) -> TaskId {
    TaskId::from_index(index.try_into().unwrap())
}

fn ids(indices: impl IntoIterator<Item = usize>) -> Vec<TaskId> {
    indices.into_iter().map(id).collect()
}

fn json(graph: &Graph) -> Value {
    serde_json::from_str(&graph.to_json()).unwrap()
}

/// Returns all edges with their reasons, as the JSON export has them.
fn edges(graph: &Graph) -> Vec<(usize, usize, String)> {
    let document = json(graph);
    let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let edges = document["edges"].as_array().unwrap().iter().map(|edge| {
        let reasons = edge["reasons"].as_array().unwrap().iter();
        let reasons: Vec<_> = reasons.map(|reason| reason.as_str().unwrap()).collect();
        (number(&edge["from"]), number(&edge["to"]), reasons.join(" "))
    });
    edges.collect()
}

type Use = (Access, Range<u64>);

/// Builds one task for each list of accesses to one resource of 100 units.
fn program(tasks: &[&[Use]]) -> Graph {
    let (mut builder, function) = builder();
    let resource = Resource::new(100);
    for accesses in tasks {
        builder.add(declare(Task::new(function), &resource, accesses.iter().cloned())).unwrap();
    }
    builder.build().unwrap()
}

fn declare(task: Task, resource: &Resource, accesses: impl IntoIterator<Item = Use>) -> Task {
    accesses.into_iter().fold(task, |task, (access, range)| match access {
        Access::Read => task.reads(resource.range(range)),
        Access::Write => task.writes(resource.range(range)),
        Access::Update => task.updates(resource.range(range)),
    })
}

fn addresses(graph: &Graph, task: TaskId) -> Vec<u64> {
    graph.accesses(task).map(|(_, range, _)| range.start).collect()
}
