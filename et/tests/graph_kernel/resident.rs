//! Mode 1: a hart is the scheduler.

use std::time::Duration;

use super::{
    FOUND, Image, LONG, Plan, Random, Rig, State, elf, random_graphs, random_plan, rmw, run, start,
    until,
};

#[test]
fn an_empty_graph_ends_at_once_also_without_workers() {
    let rig = Rig::new("shires=1,dram=1GiB");
    for workers in [0, 1, 63] {
        let (_, progress) = run(&rig, &Plan::default(), workers, 0, 1);
        assert_eq!(progress.dispatched, 0);
    }
}

#[test]
fn a_chain_runs_in_order_on_one_worker_and_on_many() {
    let rig = Rig::new("shires=1,dram=1GiB");
    for workers in [1, 2, 63] {
        let mut plan = Plan::default();
        let data = rig.words(&[0; 8]);
        for key in 0..50 {
            let task = plan.task(&rig.rmw, &[data.addr().as_u64(), key % 8, 1, key, 0, 8]);
            if task > 0 {
                plan.edge(task - 1, task);
            }
        }
        let (outcomes, _) = run(&rig, &plan, workers, 0, 1);
        let mut memory = [0; 8];
        for task in &plan.tasks {
            rmw(&mut memory, &task.args);
        }
        assert_eq!(rig.read(&data), memory);
        // The most recently used worker is preferred.
        assert!(outcomes.iter().all(|outcome| outcome.worker == outcomes[0].worker));
        assert!(outcomes.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
}

#[test]
fn independent_tasks_use_all_workers_before_any_gets_two() {
    let rig = Rig::new("shires=1,dram=1GiB");
    for workers in [1u64, 2, 3, 24, 63] {
        let release = rig.words(&[0]);
        let mut plan = Plan::default();
        for _ in 0..workers {
            plan.task(&rig.hang, &[1, release.addr().as_u64()]);
        }
        for _ in 0..workers {
            plan.task(&rig.nop, &[]);
        }
        for depth in [1, 2] {
            rig.poke(&release, 0, 0);
            let image = plan.upload(&rig, depth);
            let (event, _cells) = start(&rig, 1, workers, 1, &image);
            until(&format!("dispatch to {workers}, {depth}"), || {
                image.progress(&rig).dispatched == depth * workers
            });
            rig.poke(&release, 0, 1);
            event.wait(LONG).unwrap();
            let outcomes = image.outcomes(&rig);
            assert!(outcomes.iter().all(|outcome| outcome.state == State::Complete));
            let mut used: Vec<_> =
                outcomes.iter().take(plan.tasks.len() / 2).map(|outcome| outcome.worker).collect();
            used.sort_unstable();
            assert!(used.into_iter().eq(1..=workers), "one each");
        }
    }
}

#[test]
fn one_task_releases_many_and_many_release_one() {
    let rig = Rig::new("shires=1,dram=1GiB");
    for workers in [1, 3, 63] {
        let mut plan = Plan::default();
        let data = rig.words(&[7; 8 * 34]);
        let base = data.addr().as_u64();
        let first = plan.task(&rig.rmw, &[base, 0, 8, 1, 0, 8]);
        let middle: Vec<u32> = (1..33)
            .map(|i| {
                let task = plan.task(&rig.rmw, &[base, 8 * i, 8, i, 0, 8]);
                plan.edge(first, task);
                task
            })
            .collect();
        let last = plan.task(&rig.rmw, &[base, 8 * 33, 8, 99, 0, 8 * 33]);
        for task in middle {
            plan.edge(task, last);
        }
        let _ = run(&rig, &plan, workers, 0, 1);
        let mut memory = [7; 8 * 34];
        for task in &plan.tasks {
            rmw(&mut memory, &task.args);
        }
        assert_eq!(rig.read(&data), memory);
    }
}

#[test]
fn random_graphs_leave_what_a_sequential_execution_leaves() {
    let rig = Rig::new("shires=1,dram=1GiB");
    random_graphs(&rig, 1, 220, &[1, 2, 3, 24, 63], 1);
}

#[test]
fn random_graphs_run_across_shires() {
    let rig = Rig::new("shires=4,dram=1GiB");
    random_graphs(&rig, 2, 60, &[3, 64, 65, 127], 0b1010);
    random_graphs(&rig, 3, 10, &[200, 255], 0b1111);
}

#[test]
fn caches_and_late_stores_do_not_matter() {
    for seed in 0..100 {
        let rig = Rig::new(&format!("memory=weak,seed={seed},shires=1,dram=1GiB"));
        random_graphs(&rig, seed, 4, &[1, 2, 3, 24, 63], 1);
    }
}

#[test]
fn caches_of_shires_do_not_matter() {
    for seed in 0..40 {
        let rig = Rig::new(&format!("memory=weak,seed={seed},shires=2,dram=1GiB"));
        random_graphs(&rig, seed, 3, &[2, 63, 64, 100], 0b11);
    }
}

/// Runs a random graph with one instruction missing; returns `true` if that shows: in the data, in
/// the outcomes, or because the graph does not end.
fn shows(mutant: &[u8], seed: u64) -> bool {
    let rig = Rig::with_graph(&format!("memory=weak,seed={seed},shires=2,dram=1GiB"), mutant);
    let mut random = Random(seed);
    let lines = 2 + random.below(8);
    let mut memory: Vec<u64> = (0..8 * lines).map(|_| random.next()).collect();
    let data = rig.words(&memory);
    let plan = random_plan(&rig, &mut random, data.addr().as_u64(), lines, 30);
    // On one shire or across two.
    let (workers, shires) = if seed.is_multiple_of(2) { (7, 1) } else { (100, 0b11) };
    let image = plan.upload(&rig, 2);
    let (event, _cells) = start(&rig, 1, workers, shires, &image);
    if event.wait(Duration::from_secs(2)).is_err() {
        return true;
    }
    let outcomes = image.outcomes(&rig);
    for task in &plan.tasks {
        rmw(&mut memory, &task.args);
    }
    !outcomes.iter().all(|outcome| outcome.state == State::Complete) || rig.read(&data) != memory
}

/// Fences and environment calls of the scheduler on the device and its workers, one missing at a
/// time. Found within so many seeds: the fences between dispatch and credit and between dismissal
/// and credit, the eviction after a task, the end of the kernel.
#[test]
fn missing_fences_and_evictions_show_in_weak_memory() {
    const SEEDS: u64 = 5;
    const NOP: [u8; 4] = 0x13_u32.to_le_bytes();
    let kernel = elf("graph");
    // The code starts at this offset of the file (kernel.ld), and its last fence is near its end.
    let code = 0x1000..kernel.len() - 4;
    let places = |word: u32| -> Vec<usize> {
        code.clone().step_by(2).filter(|&at| kernel[at..at + 4] == word.to_le_bytes()).collect()
    };
    let fences = places(0x0ff0_000f);
    let end = fences.last().unwrap() + 64;
    let calls: Vec<usize> = places(0x73).into_iter().filter(|&at| at < end).collect();
    assert!((0..SEEDS).all(|seed| !shows(&kernel, seed)), "the kernel itself");
    let mut found = [0; 2];
    for (kind, places) in [&fences, &calls].into_iter().enumerate() {
        for &at in places {
            let mut mutant = kernel.clone();
            mutant[at..at + 4].copy_from_slice(&NOP);
            let seed = (0..SEEDS).find(|&seed| shows(&mutant, seed));
            found[kind] += usize::from(seed.is_some());
            eprintln!("{} at {at:#x}: {seed:?}", ["fence", "call"][kind]);
        }
    }
    let counts = [fences.len(), calls.len()];
    eprintln!("found {found:?} of {counts:?}");
    assert_eq!((counts, found), FOUND, "the kernel is another one: look what is found now");
}

#[test]
fn successors_of_a_failed_task_do_not_run_and_all_others_do() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let mut plan = Plan::default();
    let good = plan.task(&rig.fail, &[5]);
    let bad = plan.task(&rig.fail, &[(-5i64).cast_unsigned()]);
    let after_good = plan.task(&rig.nop, &[]);
    let after_bad = plan.task(&rig.nop, &[]);
    let after_both = plan.task(&rig.nop, &[]);
    let after_after_bad = plan.task(&rig.nop, &[]);
    for (from, to) in [
        (good, after_good),
        (bad, after_bad),
        (good, after_both),
        (bad, after_both),
        (after_bad, after_after_bad),
    ] {
        plan.edge(from, to);
    }
    for workers in [1, 3] {
        let (outcomes, progress) = run(&rig, &plan, workers, 0, 1);
        let states: Vec<_> = outcomes.iter().map(|outcome| outcome.state).collect();
        use State::{Complete, Failed, NotRun};
        assert_eq!(states, [Complete, Failed, Complete, NotRun, NotRun, NotRun]);
        assert_eq!((outcomes[0].value, outcomes[1].value), (5, -5));
        assert_eq!((progress.completed, progress.failed, progress.dispatched), (2, 1, 3));
    }
}

#[test]
fn after_a_cancellation_nothing_is_dispatched_and_the_rest_ends() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let release = rig.words(&[0]);
    let mut plan = Plan::default();
    let first = plan.task(&rig.hang, &[1, release.addr().as_u64()]);
    for _ in 0..20 {
        let task = plan.task(&rig.nop, &[]);
        if task % 2 == 0 {
            plan.edge(first, task);
        }
    }
    for depth in [1, 2] {
        rig.poke(&release, 0, 0);
        let image = plan.upload(&rig, depth);
        let (event, _cells) = start(&rig, 1, 1, 1, &image);
        until("dispatch", || image.progress(&rig).dispatched == depth);
        rig.poke(&image.buffer, 16, 1);
        rig.poke(&release, 0, 1);
        event.wait(LONG).unwrap();
        let progress = image.progress(&rig);
        assert_eq!((progress.state, progress.completed, progress.dispatched), (2, depth, depth));
        let ran = image.outcomes(&rig).iter().filter(|o| o.state == State::Complete).count();
        assert_eq!(ran as u64, depth);
    }
}

#[test]
fn a_worker_that_traps_is_named_by_the_outcomes() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let mut plan = Plan::default();
    let trap = plan.task(&rig.trap, &[1]);
    let after = plan.task(&rig.nop, &[]);
    plan.edge(trap, after);
    for _ in 0..30 {
        plan.task(&rig.nop, &[]);
        plan.task(&rig.trap, &[0]);
    }
    let image = plan.upload(&rig, 1);
    let (event, _cells) = start(&rig, 1, 3, 1, &image);
    until("the others", || image.progress(&rig).completed == 60);
    assert!(!event.is_done());
    rig.device.abort(&event, LONG).unwrap();
    event.wait(LONG).unwrap_err();
    let outcomes = image.outcomes(&rig);
    assert_eq!(outcomes[0].state, State::Dispatched);
    assert_eq!(outcomes[1].state, State::NotRun);
    assert!(outcomes[2..].iter().all(|outcome| {
        outcome.state == State::Complete && outcome.worker != outcomes[0].worker
    }));
    // The next launch starts afresh.
    random_graphs(&rig, 4, 5, &[3], 1);
}

/// Has the scheduler stop, by an ordinary copy.
fn stop(rig: &Rig, image: &Image) {
    let control = image.buffer.slice(128..136).unwrap();
    rig.device.stream().copy_to_device(&[2_u64], control).unwrap().wait(LONG).unwrap();
}

#[test]
fn a_scheduler_that_is_told_to_stop_needs_no_abort_when_a_worker_has_trapped() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let begun = rig.words(&[0]);
    let mut plan = Plan::default();
    // Stores to address 0.
    plan.task(&rig.race, &[begun.addr().as_u64(), 1, 0]);
    for _ in 0..30 {
        plan.task(&rig.nop, &[]);
    }
    let image = plan.upload(&rig, 1);
    // More workers than tasks: most of them sleep from start to end.
    let (event, _cells) = start(&rig, 1, 40, 1, &image);
    until("the others", || image.progress(&rig).completed == 30);
    until("the begin of the first", || rig.peek(&begun, 0) == 1);
    stop(&rig, &image);
    event.wait(LONG).unwrap_err();
    assert_eq!(image.progress(&rig).state, 2);
    assert_eq!(image.outcomes(&rig)[0].state, State::Dispatched);
    random_graphs(&rig, 5, 5, &[3], 1);
}

#[test]
fn a_scheduler_that_is_told_to_stop_leaves_and_what_is_staged_does_not_start() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let [begun, written] = [(); 2].map(|()| rig.words(&[0]));
    let memory = rig.words(&[7; 8]);
    let mut plan = Plan::default();
    let [begun_at, written_at, base] = [&begun, &written, &memory].map(|at| at.addr().as_u64());
    let endless = plan.task(&rig.race, &[begun_at, 2, written_at]);
    let behind = plan.task(&rig.rmw, &[0, base, 8, 3, base, 0]);
    let image = plan.upload(&rig, 2);
    let (event, _cells) = start(&rig, 1, 1, 1, &image);
    until("both tasks", || image.progress(&rig).dispatched == 2);
    until("the begin of the first", || rig.peek(&begun, 0) == 1);
    stop(&rig, &image);
    until("the scheduler", || image.progress(&rig).state == 2);
    assert!(!event.is_done(), "the endless task has not ended");
    rig.poke(&begun, 0, 2);
    event.wait(LONG).unwrap();
    let outcomes = image.outcomes(&rig);
    for task in [endless, behind] {
        assert_eq!(outcomes[task as usize].state, State::Dispatched, "its end is not waited for");
    }
    assert_eq!(rig.read(&memory), [7; 8], "it was staged");
}

#[test]
fn a_bad_image_fails_the_launch() {
    let rig = Rig::new("shires=1,dram=1GiB");
    let mut plan = Plan::default();
    plan.task(&rig.nop, &[]);
    let image = plan.upload(&rig, 0);
    start(&rig, 1, 0, 1, &image).0.wait(LONG).unwrap_err();
    rig.poke(&image.buffer, 0, 1);
    start(&rig, 1, 5, 1, &image).0.wait(LONG).unwrap_err();
}

/// Instructions for each further task, from two graphs of different sizes.
fn cost(rig: &Rig, name: &str, workers: u64, shape: impl Fn(&mut Plan, u32)) -> u64 {
    let instructions = |tasks: u32| {
        let mut plan = Plan::default();
        for _ in 0..tasks {
            let task = plan.task(&rig.nop, &[]);
            shape(&mut plan, task);
        }
        let before = rig.device.hal().as_sim().unwrap().board().counters().instructions;
        let _ = run(rig, &plan, workers, 0, 1);
        rig.device.hal().as_sim().unwrap().board().counters().instructions - before
    };
    let (few, many) = (1000, 5000);
    let cost = (instructions(many) - instructions(few)) / u64::from(many - few);
    #[expect(clippy::print_stdout, reason = "a figure to read")]
    {
        println!("{name} on {workers} workers: {cost} instructions per task");
    }
    cost
}

#[test]
fn a_task_without_work_costs_less_than_200_instructions() {
    let rig = Rig::new("shires=1,dram=1GiB,timing=deterministic");
    for workers in [1, 3, 63] {
        let chain = cost(&rig, "chain", workers, |plan, task| {
            if task > 0 {
                plan.edge(task - 1, task);
            }
        });
        let independent = cost(&rig, "independent", workers, |_, _| {});
        let wide = cost(&rig, "two predecessors each", workers, |plan, task| {
            for distance in [40, 50] {
                if task >= distance {
                    plan.edge(task - distance, task);
                }
            }
        });
        assert!(chain.max(independent).max(wide) <= 200);
    }
}
