//! Tasks of several parts, as a graph has them.

use et_runtime::graph::{Comparison, GraphError, Task, Word};

use super::{builder, device, id, json};

#[test]
fn a_task_of_several_parts_is_one_task() {
    let device = device();
    let buffer = device.alloc(64).unwrap();
    let (mut builder, function) = builder();
    let fill = builder.add(Task::new(function).writes(&buffer).parts(3)).unwrap();
    let once = builder.add(Task::new(function).reads(&buffer).parts(1)).unwrap();
    let all = builder.add(Task::new(function).parts(9).parts_together(2)).unwrap();
    let graph = builder.build().unwrap();
    assert_eq!((graph.len(), graph.parts(fill), graph.parts(once)), (3, 3, 1));
    assert_eq!((graph.parts(all), graph.starts_together(all)), (2, true));
    assert!(!graph.starts_together(fill));
    assert_eq!(json(&graph)["tasks"][2]["together"], true);
    assert_eq!(graph.predecessors(once), [fill]);
    assert!(graph.to_string().contains("task 0: host in 3 parts → 1\ntask 1: host"), "{graph}");
    assert!(graph.to_dot().contains("t0 [label=\"0 host in 3 parts\"]"));
    let tasks = &json(&graph)["tasks"];
    assert_eq!((&tasks[0]["parts"], &tasks[1]["parts"]), (&3.into(), &serde_json::Value::Null));
    let patched = graph.patch().build().unwrap();
    assert_eq!(patched.parts(id(0)), 3);
}

/// Each part looks at the word where a hart of the device schedules.
#[test]
fn parts_must_not_write_the_word_of_their_condition() {
    let device = device();
    let flags = device.alloc(64).unwrap();
    let (mut builder, function) = builder();
    let word = Word::<u64>::on_device(&flags, 8).unwrap();
    let task = |parts| Task::new(function).only_if(&word, Comparison::Equal, 0).parts(parts);
    let (beside, on) = (flags.slice(16..64).unwrap(), flags.slice(12..20).unwrap());
    builder.add(task(2).writes(&beside).reads(&on)).unwrap();
    builder.add(task(1).updates(&on)).unwrap();
    let refused = builder.add(task(2).updates(&on)).unwrap_err();
    assert_eq!(refused, GraphError::PartsWriteCondition { task: id(2) });
}
