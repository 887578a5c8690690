//! The description of one task.

use std::borrow::Cow;

use super::condition::{Condition, Test};
use super::{Access, Comparison, CoreSet, FunctionId, HostData, Region, TaskId, Word, WordType};
use crate::kernel::KernelArgs;
use crate::memory::DeviceSlice;

/// The description of one task, for [`GraphBuilder::add`](super::GraphBuilder::add).
///
/// What it declares orders it after the earlier tasks that it conflicts with; what it does not
/// declare is unordered.
#[derive(Clone, Debug)]
#[must_use]
pub struct Task {
    pub(super) function: FunctionId,
    pub(super) args: KernelArgs,
    /// Whether the arguments were made elsewhere, so that where the last one ends is unknown.
    is_foreign: bool,
    pub(super) declared: Vec<Declared>,
    pub(super) after: Vec<TaskId>,
    pub(super) extra: Option<Box<Extra>>,
}

/// What few tasks have.
#[derive(Clone, Debug, Default)]
pub(super) struct Extra {
    pub(super) name: Option<Cow<'static, str>>,
    pub(super) cores: Option<CoreSet>,
    pub(super) shires: Option<u64>,
    pub(super) parts: Option<u32>,
    pub(super) is_together: bool,
    pub(super) stages: Vec<Stage>,
    pub(super) is_recorded: bool,
    pub(super) condition: Option<Condition>,
    pub(super) retained: Vec<TaskId>,
}

/// A region with its use.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub(super) region: Region,
    pub(super) access: Access,
    /// Word of the arguments that holds the region's address.
    pub(super) word: Option<u32>,
}

impl Declared {
    pub(super) fn new(region: impl Into<Region>, access: Access) -> Self {
        Self { region: region.into(), access, word: None }
    }
}

/// A copy that comes with a task.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) is_in: bool,
    pub(super) data: HostData,
    pub(super) slice: DeviceSlice,
}

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {$(
        $(#[$doc])*
        pub fn $name(mut self, value: $type) -> Self {
            self.args = self.args.$name(value);
            self
        }
    )*};
}

impl Task {
    /// Describes a task that runs `function`, without arguments.
    pub fn new(function: FunctionId) -> Self {
        Self {
            function,
            args: KernelArgs::new(),
            is_foreign: false,
            declared: Vec::new(),
            after: Vec::new(),
            extra: None,
        }
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// Names the task, for exports and errors.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.extra().name = Some(name.into());
        self
    }

    /// Replaces the arguments, those of [`input`](Self::input), [`output`](Self::output) and
    /// [`in_out`](Self::in_out) too; what they declared stays.
    pub fn args(mut self, args: KernelArgs) -> Self {
        self.args = args;
        self.is_foreign = true;
        for declared in &mut self.declared {
            declared.word = None;
        }
        self
    }

    number! {
        /// Appends an argument, at its natural alignment, as C does.
        u32: u32,
        /// Appends an argument.
        u64: u64,
        /// Appends an argument.
        i32: i32,
        /// Appends an argument.
        i64: i64,
        /// Appends an argument.
        f32: f32,
        /// Appends an argument. The minions have no instructions for it.
        f64: f64,
    }

    fn declare(mut self, region: Region, access: Access) -> Self {
        self.declared.push(Declared { region, access, word: None });
        self
    }

    /// Declares that the task reads a region.
    pub fn reads(self, region: impl Into<Region>) -> Self {
        self.declare(region.into(), Access::Read)
    }

    /// Declares that the task writes a region, without reading it. A task that both reads and
    /// writes a region updates it.
    pub fn writes(self, region: impl Into<Region>) -> Self {
        self.declare(region.into(), Access::Write)
    }

    /// Declares that the task reads and writes a region.
    pub fn updates(self, region: impl Into<Region>) -> Self {
        self.declare(region.into(), Access::Update)
    }

    fn pass(mut self, slice: DeviceSlice, access: Access) -> Self {
        let address = slice.addr();
        // Unless they were made elsewhere, arguments are aligned to at most 8 bytes, so the padding
        // ends no later than where the address goes.
        let start = if self.is_foreign {
            let probe = self.args.clone().u64(u64::MAX);
            let end = probe.as_bytes().iter().rposition(|&byte| byte != 0);
            end.map_or(0, |end| end - 7)
        } else {
            self.args.len().next_multiple_of(8)
        };
        self.args = self.args.addr(address);
        // Arguments of 32 GiB do not exist: `add` refuses far shorter ones for kernels, and memory
        // ends before for closures.
        let word = u32::try_from(start / 8).ok();
        self.declared.push(Declared { region: slice.into(), access, word });
        self
    }

    /// Appends the address of a buffer to the arguments and declares that the task reads it.
    pub fn input(self, buffer: impl Into<DeviceSlice>) -> Self {
        self.pass(buffer.into(), Access::Read)
    }

    /// Appends the address of a buffer to the arguments and declares that the task writes it.
    pub fn output(self, buffer: impl Into<DeviceSlice>) -> Self {
        self.pass(buffer.into(), Access::Write)
    }

    /// Appends the address of a buffer to the arguments and declares that the task reads and writes
    /// it.
    pub fn in_out(self, buffer: impl Into<DeviceSlice>) -> Self {
        self.pass(buffer.into(), Access::Update)
    }

    /// Runs the task after another one, whatever both declare.
    pub fn after(mut self, task: TaskId) -> Self {
        self.after.push(task);
        self
    }

    /// As [`after`](Self::after); besides, the
    /// [transient buffers](super::GraphBuilder::transient) that the other task writes live until
    /// this one has ended, although it does not declare them.
    pub fn after_and_retain(mut self, task: TaskId) -> Self {
        self.extra().retained.push(task);
        self.after(task)
    }

    /// Runs the task only if a word compares so with a value when everything before the task has
    /// ended. The task reads the word, and is ordered behind what writes it.
    ///
    /// If not, the task is [`Skipped`](crate::executor::TaskState::Skipped): what depends on it
    /// goes on, with what was in its outputs before. Copies that come with the task
    /// ([`stage_in`](Self::stage_in), [`stage_out`](Self::stage_out), [`recorded`](Self::recorded))
    /// are tasks of their own, without a condition. A second call replaces the first.
    ///
    /// Who schedules reads the word: the host, by a copy or a look, or a hart of the device. So a
    /// buffer must be [for](crate::Device::alloc_with) both to read.
    ///
    /// ```
    /// # use et_runtime::graph::{Comparison, GraphBuilder, HostData, Task, Word};
    /// # let mut builder = GraphBuilder::new();
    /// let left = HostData::zeroed(4);
    /// let its = left.clone();
    /// let count = builder.function(move |_| {
    ///     its.with_mut(|bytes| bytes.copy_from_slice(&7_u32.to_le_bytes()));
    ///     Ok(())
    /// });
    /// let more = builder.function(|_| Ok(()));
    /// builder.add(Task::new(count).writes(&left))?;
    /// let any_left = Word::<u32>::on_host(&left, 0)?;
    /// builder.add(Task::new(more).only_if(&any_left, Comparison::NotEqual, 0))?;
    /// # Ok::<(), et_runtime::graph::GraphError>(())
    /// ```
    pub fn only_if<T: WordType>(
        mut self,
        word: &Word<T>,
        comparison: Comparison,
        value: T,
    ) -> Self {
        let (place, test) = (word.place.clone(), Test::new(comparison, value));
        self.extra().condition = Some(Condition { place, test });
        self
    }

    /// Runs the task on these workers only.
    pub fn cores(mut self, cores: CoreSet) -> Self {
        self.extra().cores = Some(cores);
        self
    }

    /// Runs the kernel on these shires only, where tasks become launches.
    pub fn shires(mut self, mask: u64) -> Self {
        self.extra().shires = Some(mask);
        self
    }

    /// Splits the task into parts, which run on different workers at the same time as far as there
    /// are any: the kernel, or the function, is called once for each, with the number of the part
    /// and the number of parts (in C `part` and `parts`, in Rust
    /// [`TaskContext::part`](super::TaskContext::part) and
    /// [`parts`](super::TaskContext::parts)).
    ///
    /// It remains one task: it is ready, cancelled and complete as a whole, and complete when all
    /// its parts are. If a part fails, those that have not begun are not run where the host
    /// schedules, and the task has failed with
    /// [`TaskFailure::Part`](crate::executor::TaskFailure::Part). Parts are not ordered; which of
    /// them run at the same time depends on the workers, so no part may wait for another one, and
    /// none may write what another one uses.
    ///
    /// This is for tasks on single harts and host threads. A launch on a stream has one part for
    /// each of its harts, whatever is asked for here, so the kernel must be right with any number.
    pub fn parts(mut self, parts: u32) -> Self {
        let extra = self.extra();
        (extra.parts, extra.is_together) = (Some(parts), false);
        self
    }

    /// As [`parts`](Self::parts), and all of them start together: each gets a worker of its own,
    /// which has nothing else at the time, so that they may wait for one another.
    ///
    /// So there must be as many workers, or the launch is refused with
    /// [`RunError::TooManyParts`](crate::executor::RunError::TooManyParts). The task waits until as
    /// many are idle, and what becomes ready after it waits behind it. If a part fails, those that
    /// wait for it must end by themselves, or the run at its deadline. The place
    /// [`Resident`](crate::executor::Place::Resident) does not take such kernels.
    pub fn parts_together(mut self, parts: u32) -> Self {
        let extra = self.extra();
        (extra.parts, extra.is_together) = (Some(parts), true);
        self
    }

    /// Records the task, for debugging: its arguments, each region of device memory that it reads
    /// as it is before the task, and each that it writes as it is after it.
    /// [`Outcome::records`](crate::executor::Outcome::records) has them.
    ///
    /// Copies from the device do that, which are tasks of their own, before and after this one. So
    /// the task runs where it would without, but the place
    /// [`Resident`](crate::executor::Place::Resident) does not take such graphs; launches of the
    /// graph follow one another; and host memory of the size of the regions is kept with it. Host
    /// data and [`Resource`](super::Resource)s are not recorded.
    pub fn recorded(mut self) -> Self {
        self.extra().is_recorded = true;
        self
    }

    /// Copies `data` to `slice` before the task, which thereby reads `slice`. The copy is a task of
    /// its own.
    pub fn stage_in(mut self, data: &HostData, slice: impl Into<DeviceSlice>) -> Self {
        let stage = Stage { is_in: true, data: data.clone(), slice: slice.into() };
        self.extra().stages.push(stage);
        self
    }

    /// Copies `slice` to `data` after the task, which thereby writes `slice`, unless it declares a
    /// write that overlaps it. The copy is a task of its own.
    pub fn stage_out(mut self, slice: impl Into<DeviceSlice>, data: &HostData) -> Self {
        let stage = Stage { is_in: false, data: data.clone(), slice: slice.into() };
        self.extra().stages.push(stage);
        self
    }
}

#[cfg(test)]
mod tests {
    use et_hal::DeviceAddr;

    use super::*;
    use crate::memory::DeviceMemory;

    #[test]
    fn addresses_are_where_the_arguments_have_them() {
        let memory = DeviceMemory::new(DeviceAddr::new(0x0080_0580_1000), 1 << 20, None).unwrap();
        let buffer = memory.alloc(64, 64).unwrap();
        let foreign = |align| KernelArgs::new().bytes(&[1; 3], align);
        let base = Task::new(FunctionId(0));
        for task in [
            base.clone().input(&buffer),
            base.clone().u32(7).output(&buffer),
            base.clone().u32(7).u32(8).in_out(&buffer),
            base.clone().args(foreign(1)).input(&buffer),
            base.clone().args(foreign(64)).u32(0).input(&buffer),
            base.clone().args(foreign(4096)).input(&buffer).u32(1),
        ] {
            let at = task.declared[0].word.unwrap() as usize * 8;
            assert_eq!(task.args.as_bytes()[at..at + 8], buffer.addr().as_u64().to_le_bytes());
        }
        let replaced = base.input(&buffer).args(KernelArgs::new());
        assert_eq!(replaced.declared[0].word, None);
    }
}
