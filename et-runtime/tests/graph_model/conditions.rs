//! Conditions: what they read, who may, and what a patch does with them.

use et_runtime::graph::{Access, Comparison, GraphBuilder, GraphError, HostData, Task, Word};
use et_runtime::memory::BufferOptions;

use super::{builder, device, edges, id, json, kernel};

#[test]
fn a_condition_is_a_read_of_its_word_and_of_nothing_else() {
    let device = device();
    let flags = device.alloc(64).unwrap();
    let (mut builder, function) = builder();
    for at in [0, 8] {
        let task = Task::new(function).writes(flags.slice(at..at + 8).unwrap());
        builder.add(task).unwrap();
    }
    let word = Word::<i32>::on_device(&flags, 12).unwrap();
    let task = Task::new(function).name("maybe").only_if(&word, Comparison::Less, -5);
    let maybe = builder.add(task).unwrap();
    builder.add(Task::new(function).writes(flags.slice(12..16).unwrap())).unwrap();
    let graph = builder.build().unwrap();
    assert_eq!(edges(&graph), [(1, 2, "raw".into()), (2, 3, "war".into())]);

    let at = flags.addr().as_u64() + 12;
    assert_eq!(graph.condition(maybe), Some(format!("if i32 at {at:#x} < -5")));
    assert_eq!(graph.condition(id(0)), None);
    assert!(graph.to_string().contains("\"maybe\": host if i32 at "), "{graph}");
    assert!(graph.to_dot().contains(&format!("host\\nif i32 at {at:#x} < -5")), "its node");
    let condition = &json(&graph)["tasks"][2]["if"];
    assert_eq!(condition["test"], "i32 < -5");
    let place = &condition["word"];
    assert_eq!((&place["kind"], &place["start"]), (&"device".into(), &at.into()));
    assert_eq!(place["end"], at + 4);
}

#[test]
fn the_last_condition_of_a_task_counts() {
    let (mut builder, function) = builder();
    let [first, second] = [(); 2].map(|()| HostData::zeroed(8));
    builder.add(Task::new(function).writes(&first)).unwrap();
    builder.add(Task::new(function).writes(&second)).unwrap();
    let word = |data| Word::<u64>::on_host(data, 0).unwrap();
    let task = Task::new(function).only_if(&word(&first), Comparison::Equal, 1);
    let task = builder.add(task.only_if(&word(&second), Comparison::NotEqual, 2)).unwrap();
    let graph = builder.build().unwrap();
    assert_eq!(graph.predecessors(task), [id(1)]);
    let text = "if u64 at byte 0 of host data != 2";
    assert_eq!(graph.condition(task).as_deref(), Some(text));
}

#[test]
fn a_word_must_be_there_and_may_be_read_by_all_who_schedule() {
    let device = device();
    let flags = device.alloc(64).unwrap();
    let part = flags.slice(4..64).unwrap();
    assert!(Word::<u64>::on_device(&part, 4).is_ok(), "addresses count");
    for (offset, len, refused) in [
        (0, 60, Word::<u64>::on_device(&part, 0).err()),
        (60, 60, Word::<u64>::on_device(&part, 60).err()),
        (u64::MAX - 3, 60, Word::<u64>::on_device(&part, u64::MAX - 3).err()),
    ] {
        assert_eq!(refused, Some(GraphError::NoWord { kind: "u64", offset, len }));
    }
    for options in [
        BufferOptions::new().no_host(),
        BufferOptions::new().host(Access::Write),
        BufferOptions::new().kernels(Access::Write),
    ] {
        let (mut builder, function) = builder();
        let secret = device.alloc_with(64, &options).unwrap();
        let word = Word::<u32>::on_device(&secret, 0).unwrap();
        let task = Task::new(function).only_if(&word, Comparison::Equal, 0);
        let refused = builder.add(task);
        assert!(matches!(refused, Err(GraphError::Usage { .. })), "{options:?}: {refused:?}");
        assert!(builder.is_empty());
    }
    let elsewhere = super::device().alloc(64).unwrap();
    let word = Word::<u32>::on_device(&elsewhere, 0).unwrap();
    let mut builder = GraphBuilder::new();
    let function = builder.kernel(&kernel(&device));
    let refused = builder.add(Task::new(function).only_if(&word, Comparison::Equal, 0));
    assert!(matches!(refused, Err(GraphError::BufferOfAnotherDevice { .. })), "{refused:?}");
}

#[test]
fn patches_move_the_words_of_conditions() {
    let device = device();
    let [old, new] = [(); 2].map(|()| device.alloc(64).unwrap());
    let (mut builder, function) = builder();
    let word = Word::<u64>::on_device(&old, 8).unwrap();
    let task = Task::new(function).only_if(&word, Comparison::Equal, 1);
    let task = builder.add(task).unwrap();
    let data = HostData::zeroed(16);
    let copy = builder.copy_in(&data, new.slice(..16).unwrap()).unwrap();
    let word = Word::<u32>::on_host(&data, 4).unwrap();
    let by_data = builder.add(Task::new(function).only_if(&word, Comparison::Less, 1)).unwrap();
    let graph = builder.build().unwrap();

    let third = device.alloc(64).unwrap();
    let other = HostData::zeroed(16);
    let patched = graph.patch().rebind(&old, &third).data(copy, &other).build().unwrap();
    let at = third.addr().as_u64() + 8;
    assert_eq!(patched.condition(task), Some(format!("if u64 at {at:#x} == 1")));
    assert_eq!(patched.condition(by_data), graph.condition(by_data));

    let refused = graph.patch().rebind(old.slice(..32).unwrap(), third.slice(4..36).unwrap());
    let expected = GraphError::NoWord { kind: "u64", offset: 8, len: 32 };
    assert_eq!(refused.build().unwrap_err(), expected);
    let secret = device.alloc_with(64, &BufferOptions::new().no_host()).unwrap();
    let refused = graph.patch().rebind(&old, &secret).build().unwrap_err();
    assert!(matches!(refused, GraphError::Usage { .. }), "{refused:?}");
}
