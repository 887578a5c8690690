//! Random programs against slow and simple models.

use std::collections::HashSet;
use std::ops::Range;

use et_hal_sim::SimHal;
use et_runtime::Device;
use et_runtime::graph::{Access, GraphError, Resource, Task};
use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use proptest::{collection, prop_assert, prop_assert_eq};

use super::{Use, addresses, builder, declare, device, edges, id, ids};

/// A task of a random program: its accesses, and explicit edges from earlier tasks, counted back.
type Step = (Vec<Use>, Vec<usize>);

fn step() -> impl Strategy<Value = Step> {
    let access = prop_oneof![
        3 => any::<()>().prop_map(|()| Access::Read),
        1 => any::<()>().prop_map(|()| Access::Write),
        1 => any::<()>().prop_map(|()| Access::Update),
    ];
    let range = (0..40u64, 0..12u64).prop_map(|(start, len)| start..start + len);
    let accesses = collection::vec((access, range), 0..4).prop_map(|mut accesses| {
        let mut writes: Vec<Range<u64>> = Vec::new();
        accesses.retain(|(access, range)| {
            let fits = !access.writes() || !writes.iter().any(|other| overlap(other, range));
            if access.writes() && fits {
                writes.push(range.clone());
            }
            fits
        });
        accesses
    });
    (accesses, collection::vec(1..20usize, 0..2))
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

fn conflict(a: &Step, b: &Step) -> bool {
    a.0.iter().any(|(access, range)| {
        b.0.iter().any(|(other, with)| (access.writes() || other.writes()) && overlap(range, with))
    })
}

/// Returns what can be reached along `edges`, all of which lead upwards.
fn closure(tasks: usize, edges: &HashSet<(usize, usize)>) -> Vec<HashSet<usize>> {
    let mut reach = vec![HashSet::new(); tasks];
    for from in (0..tasks).rev() {
        for to in (from + 1..tasks).filter(|&to| edges.contains(&(from, to))) {
            let further = reach[to].clone();
            reach[from].extend(further);
            reach[from].insert(to);
        }
    }
    reach
}

proptest! {
    #[test]
    fn exactly_the_conflicts_are_ordered(steps in collection::vec(step(), 0..40)) {
        let (mut builder, function) = builder();
        let resource = Resource::new(64);
        let mut expected = HashSet::new();
        let mut explicit = HashSet::new();
        for (at, step) in steps.iter().enumerate() {
            builder.add(declare(Task::new(function), &resource, step.0.iter().cloned())).unwrap();
            expected.extend((0..at).filter(|&before| conflict(&steps[before], step)).map(|before| (before, at)));
            explicit.extend(step.1.iter().filter_map(|back| Some((at.checked_sub(*back)?, at))));
        }
        for &(before, after) in &explicit {
            builder.edge(id(before), id(after)).unwrap();
        }
        let graph = builder.build().unwrap();
        let found: HashSet<_> = edges(&graph).into_iter().map(|(from, to, _)| (from, to)).collect();
        prop_assert_eq!(found.len(), graph.edges());
        prop_assert!(explicit.is_subset(&found));
        // No edge without a reason of its own, and none missing that the others do not imply.
        prop_assert!(found.iter().all(|edge| expected.contains(edge) || explicit.contains(edge)));
        let all = expected.union(&explicit).copied().collect();
        prop_assert_eq!(closure(steps.len(), &found), closure(steps.len(), &all));
        for (from, to, reasons) in edges(&graph) {
            let conflicts = expected.contains(&(from, to)) && reasons != "explicit";
            prop_assert!(conflicts || explicit.contains(&(from, to)));
            prop_assert_eq!(reasons.ends_with("explicit"), explicit.contains(&(from, to)));
        }
    }

    #[test]
    fn orders_and_paths_of_any_graph(
        tasks in 1..9usize,
        pairs in collection::vec((0..8usize, 0..8usize), 0..14),
        weights in collection::vec(0..10u64, 8),
    ) {
        let (mut builder, function) = builder();
        for _ in 0..tasks {
            builder.add(Task::new(function)).unwrap();
        }
        let pairs: HashSet<_> = pairs.into_iter().filter(|&(a, b)| a != b && a.max(b) < tasks).collect();
        for &(before, after) in &pairs {
            builder.edge(id(before), id(after)).unwrap();
        }
        let graph = match builder.build() {
            Ok(graph) => graph,
            Err(GraphError::Cycle { path }) => {
                let path: Vec<_> = path.tasks().iter().map(|task| task.index()).collect();
                let next = path.iter().cycle().skip(1);
                prop_assert!(path.iter().zip(next).all(|(&a, &b)| pairs.contains(&(a, b))));
                prop_assert_eq!(path.iter().collect::<HashSet<_>>().len(), path.len());
                return Ok(());
            }
            Err(error) => panic!("{error}"),
        };
        let order = graph.topological_order();
        let place = |task: usize| order.iter().position(|at| at.index() == task).unwrap();
        prop_assert_eq!(order.len(), tasks);
        prop_assert!(pairs.iter().all(|&(before, after)| place(before) < place(after)));

        // The heaviest of all paths, found by trying them.
        fn heaviest(from: usize, pairs: &HashSet<(usize, usize)>, weights: &[u64]) -> u64 {
            let after = pairs.iter().filter(|pair| pair.0 == from);
            weights[from] + after.map(|pair| heaviest(pair.1, pairs, weights)).max().unwrap_or(0)
        }
        let expected = (0..tasks).map(|task| heaviest(task, &pairs, &weights)).max().unwrap();
        let (total, path) = graph.critical_path(|task| weights[task.index()]);
        prop_assert_eq!(total, expected);
        prop_assert_eq!(path.iter().map(|task| weights[task.index()]).sum::<u64>(), total);
        let steps = path.windows(2);
        prop_assert!(steps.map(|pair| (pair[0].index(), pair[1].index())).all(|pair| pairs.contains(&pair)));

        for task in graph.tasks() {
            let before: Vec<_> = (0..tasks).filter(|&other| pairs.contains(&(other, task.index()))).collect();
            prop_assert_eq!(graph.predecessors(task), ids(before.clone()));
            prop_assert_eq!(graph.fan_in(task), before.len());
            prop_assert_eq!(graph.fan_out(task), graph.successors(task).len());
        }
        let dot = graph.to_dot();
        let drawn: HashSet<_> = dot.lines().filter_map(|line| {
            let (from, to) = line.trim().strip_prefix('t')?.split_once(" -> t")?;
            Some((from.parse().ok()?, to.split(' ').next()?.parse().ok()?))
        }).collect();
        prop_assert_eq!(drawn, pairs);
    }
}

/// Tries to rebind, and says by looking at all pairs whether that may succeed.
fn rebinding_agrees_with_all_pairs(
    device: &Device<SimHal>,
    uses: &[Use],
    rebinds: &[(u64, u64, u64)],
) -> Result<(), proptest::test_runner::TestCaseError> {
    let buffer = device.alloc(64).unwrap();
    let base = buffer.addr().as_u64();
    let (mut builder, function) = builder();
    for (access, range) in uses {
        let slice = buffer.slice(range.clone()).unwrap();
        let task = Task::new(function);
        let added = match access {
            Access::Read => builder.add(task.input(&slice)),
            Access::Write => builder.add(task.output(&slice)),
            Access::Update => builder.add(task.in_out(&slice)),
        };
        added.unwrap();
    }
    let mut patch = builder.build().unwrap().patch();
    for &(old, new, len) in rebinds {
        let slice = |start| buffer.slice(start..start + len).unwrap();
        patch = patch.rebind(slice(old), slice(new));
    }

    let olds: Vec<_> = rebinds.iter().map(|&(old, _, len)| old..old + len).collect();
    let inside = |range: &Range<u64>| {
        olds.iter().position(|old| old.start <= range.start && range.end <= old.end)
    };
    let is_cut =
        |range: &Range<u64>| inside(range).is_none() && olds.iter().any(|old| overlap(old, range));
    let moved: Vec<_> = uses
        .iter()
        .map(|(access, range)| match inside(range) {
            None => (0, *access, range.clone()),
            Some(at) => {
                let (old, new, _) = rebinds[at];
                (at + 1, *access, range.start - old + new..range.end - old + new)
            }
        })
        .collect();
    let pairs = |a: usize| (0..a).map(move |b| (a, b));
    let is_ambiguous = (0..olds.len()).flat_map(pairs).any(|(a, b)| overlap(&olds[a], &olds[b]));
    let is_unused = (1..=olds.len()).any(|group| moved.iter().all(|other| other.0 != group));
    let collides = (0..moved.len()).flat_map(pairs).any(|(a, b)| {
        let (a, b) = (&moved[a], &moved[b]);
        a.0 != b.0 && overlap(&a.2, &b.2) && (a.1.writes() || b.1.writes())
    });
    let is_refused =
        is_ambiguous || is_unused || collides || uses.iter().any(|(_, range)| is_cut(range));
    match patch.build() {
        Ok(graph) => {
            prop_assert!(!is_refused);
            for (task, (_, _, range)) in graph.tasks().zip(&moved) {
                prop_assert_eq!(addresses(&graph, task), [base + range.start]);
                prop_assert_eq!(graph.args(task), [base + range.start]);
            }
        }
        Err(error) => prop_assert!(is_refused, "{}", error),
    }
    Ok(())
}

#[test]
fn rebinding_is_refused_exactly_where_edges_would_be_missing() {
    let device = device();
    let access = prop_oneof![
        2 => any::<()>().prop_map(|()| Access::Read),
        1 => any::<()>().prop_map(|()| Access::Write),
        1 => any::<()>().prop_map(|()| Access::Update),
    ];
    let range = (0..15u64, 1..3u64).prop_map(|(start, len)| start * 4..(start + len).min(16) * 4);
    let rebind = (0..4u64, 0..7u64).prop_map(|(old, new)| (old * 16, new * 8, 16));
    let strategy = (collection::vec((access, range), 1..8), collection::vec(rebind, 1..4));
    // A region that collides only with one that a longer one of its own group hides.
    let uses = [(Access::Read, 24..36), (Access::Read, 52..64), (Access::Write, 56..60)];
    rebinding_agrees_with_all_pairs(&device, &uses, &[(48, 24, 16)]).unwrap();
    let mut runner = proptest::test_runner::TestRunner::default();
    let result = runner.run(&strategy, |(uses, rebinds)| {
        rebinding_agrees_with_all_pairs(&device, &uses, &rebinds)
    });
    result.unwrap();
}
