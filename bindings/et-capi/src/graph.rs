//! Graphs of tasks.

#![expect(unsafe_code, reason = "exported names")]

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::null;
use std::sync::{Mutex, PoisonError};

use et::graph::{
    Comparison, FunctionId, Graph, GraphBuilder, Task, TaskContext, TaskError, TaskId, Word,
};

use crate::call::{Inside, Release, guard, inside};
use crate::device::{self, et_device};
use crate::host_data::et_host_data;
use crate::imports::et_released;
use crate::kernel::et_kernel;
use crate::launch::arguments;
use crate::memory::{self, et_mem};
use crate::raw::{self, User};
use crate::status::{Failure, et_status};
use crate::table::{self, handle};

/// What tasks and edges are given to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_graph_builder {
    /// A number to be looked up; 0 is no builder.
    pub id: u64,
}

/// A builder, and the functions registered with it.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    builder: GraphBuilder,
    functions: Vec<FunctionId>,
}

handle!(et_graph_builder, 11, Mutex<Option<Builder>>);

/// An immutable graph.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_graph {
    /// A number to be looked up; 0 is no graph.
    pub id: u64,
}

handle!(et_graph, 12, Graph);

/// The description of a task.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct et_task {
    /// A number to be looked up; 0 is no task.
    pub id: u64,
}

handle!(et_task, 15, Mutex<Option<Task>>);

/// A host function of a graph: gets its `user` pointer, the index of the task, and the arguments in
/// words of 8 bytes, which last until it returns. Returns 0 if it went well, else any other number,
/// which is in the message of the failure. It may wait, and must not throw.
pub type et_task_function = Option<
    unsafe extern "C" fn(user: *mut c_void, task: u32, args: *const u64, words: usize) -> i32,
>;

thread_local! {
    static CONTEXT: Cell<*const c_void> = const { Cell::new(null()) };
}

fn builder<R>(
    of: et_graph_builder,
    with: impl FnOnce(&mut Builder) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let builder = table::get(of)?;
    let mut builder = builder.lock().unwrap_or_else(PoisonError::into_inner);
    let was_built = || Failure::new(et_status::ET_BAD_HANDLE, "the graph is already built");
    with(builder.as_mut().ok_or_else(was_built)?)
}

fn index(id: TaskId) -> u32 {
    // Indices of tasks have 32 bits.
    u32::try_from(id.index()).unwrap_or(u32::MAX)
}

/// Makes a builder without tasks.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_builder_create(
    builder: Option<&mut MaybeUninit<et_graph_builder>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(builder, "builder")?;
        out.write(table::insert(Mutex::new(Some(Builder::default())))?);
        Ok(())
    })
}

/// Frees a builder.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_builder_free(builder: et_graph_builder) -> et_status {
    guard(|| table::remove(builder))
}

fn register(
    of: et_graph_builder,
    out: raw::Out<'_, u32>,
    make: impl FnOnce(&mut GraphBuilder) -> Result<FunctionId, Failure>,
) -> Result<(), Failure> {
    let out = raw::wanted(out, "function")?;
    builder(of, |builder| {
        let function = make(&mut builder.builder)?;
        builder.functions.push(function);
        out.write(u32::try_from(function.index()).unwrap_or(u32::MAX));
        Ok(())
    })
}

/// Registers a kernel, for any number of tasks.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_kernel(
    builder: et_graph_builder,
    kernel: et_kernel,
    function: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    guard(|| {
        let kernel = table::get(kernel)?;
        register(builder, function, |builder| Ok(builder.kernel(&kernel)))
    })
}

/// Registers a host function, for any number of tasks. It may be called on any thread until the
/// last run of the graph has ended, several times at once.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_function(
    builder: et_graph_builder,
    call: et_task_function,
    user: *mut c_void,
    function: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    guard(|| {
        let call = wanted(call)?;
        let user = User::new(user);
        register(builder, function, |builder| {
            Ok(builder.function(move |context| run(call, user, context)))
        })
    })
}

/// As `et_graph_function`; besides, `released` is called with `user`, exactly once, unless this
/// call fails: when the builder, the graph and its runs are gone, and the function is never called
/// again, also where a task went on behind the end of its run.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_function_owned(
    builder: et_graph_builder,
    call: et_task_function,
    user: *mut c_void,
    released: et_released,
    function: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    guard(|| {
        let call = wanted(call)?;
        register(builder, function, |builder| {
            let release = Release::new(released, user);
            Ok(builder.function(move |context| run(call, release.user(), context)))
        })
    })
}

type Call = unsafe extern "C" fn(*mut c_void, u32, *const u64, usize) -> i32;

fn wanted(call: et_task_function) -> Result<Call, Failure> {
    call.ok_or_else(|| Failure::new(et_status::ET_NULL_POINTER, "call is null"))
}

fn run(call: Call, user: User, context: &TaskContext<'_>) -> Result<(), TaskError> {
    let (args, task) = (context.args(), index(context.task()));
    let before = CONTEXT.replace(std::ptr::from_ref(context).cast());
    let code = inside(Inside::HostFunction, || {
        // SAFETY: the caller gave a function that may be called with this pointer on any thread;
        // the arguments outlive the call.
        unsafe { call(user.get(), task, args.as_ptr(), args.len()) }
    });
    CONTEXT.set(before);
    if code == 0 { Ok(()) } else { Err(format!("the host function returned {code}").into()) }
}

/// In a host function: returns whether its run was cancelled, so that a long function can return
/// early. Elsewhere `ET_INVALID`.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_is_cancelled(is_cancelled: Option<&mut MaybeUninit<bool>>) -> et_status {
    guard(|| {
        let out = raw::wanted(is_cancelled, "is_cancelled")?;
        let context = CONTEXT.get().cast::<TaskContext<'_>>();
        // SAFETY: `run` sets it for as long as the context lives, on the thread that has it, and
        // it is null otherwise.
        let context = unsafe { context.as_ref() };
        let no_task = || Failure::new(et_status::ET_INVALID, "this thread runs no host function");
        out.write(context.ok_or_else(no_task)?.is_cancelled());
        Ok(())
    })
}

/// Describes a task that runs a function, by its number from `et_graph_kernel` or
/// `et_graph_function`.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_create(
    builder: et_graph_builder,
    function: u32,
    task: Option<&mut MaybeUninit<et_task>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(task, "task")?;
        let function = self::builder(builder, |builder| {
            let known = builder.functions.get(function as usize).copied();
            known.ok_or_else(|| crate::device::no_such("function", function as usize))
        })?;
        out.write(table::insert(Mutex::new(Some(Task::new(function))))?);
        Ok(())
    })
}

/// Frees a description that was not added.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_free(task: et_task) -> et_status {
    guard(|| table::remove(task))
}

fn change(
    task: et_task,
    change: impl FnOnce(Task) -> Result<Task, Failure>,
) -> Result<(), Failure> {
    let task = table::get(task)?;
    let mut task = task.lock().unwrap_or_else(PoisonError::into_inner);
    let was_added = || Failure::new(et_status::ET_BAD_HANDLE, "the task was added");
    let changed = change(task.clone().ok_or_else(was_added)?)?;
    *task = Some(changed);
    Ok(())
}

/// How a task uses memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_access {
    /// It reads it.
    ET_READS = 1,
    /// It writes it without reading it.
    ET_WRITES = 2,
    /// It reads and writes it.
    ET_UPDATES = 3,
}

pub(crate) fn access(number: u32) -> Result<et_access, Failure> {
    let all = [et_access::ET_READS, et_access::ET_WRITES, et_access::ET_UPDATES];
    let found = all.into_iter().find(|access| *access as u32 == number);
    found.ok_or_else(|| Failure::new(et_status::ET_INVALID, format!("there is no access {number}")))
}

/// Appends the address of device memory to the arguments, and declares its use, an `et_access`.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_arg_mem(
    task: et_task,
    mem: et_mem,
    offset: u64,
    bytes: u64,
    access: u32,
) -> et_status {
    guard(|| {
        let access = self::access(access)?;
        let slice = memory::slice(mem, offset, bytes)?;
        change(task, |task| {
            Ok(match access {
                et_access::ET_READS => task.input(slice),
                et_access::ET_WRITES => task.output(slice),
                et_access::ET_UPDATES => task.in_out(slice),
            })
        })
    })
}

/// Declares the use of device memory, an `et_access`, whose address the task does not get.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_uses_mem(
    task: et_task,
    mem: et_mem,
    offset: u64,
    bytes: u64,
    access: u32,
) -> et_status {
    guard(|| {
        let access = self::access(access)?;
        let slice = memory::slice(mem, offset, bytes)?;
        change(task, |task| {
            Ok(match access {
                et_access::ET_READS => task.reads(&slice),
                et_access::ET_WRITES => task.writes(&slice),
                et_access::ET_UPDATES => task.updates(&slice),
            })
        })
    })
}

/// Declares the use of host data, an `et_access`.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_uses_host_data(
    task: et_task,
    data: et_host_data,
    access: u32,
) -> et_status {
    guard(|| {
        let access = self::access(access)?;
        let data = table::get(data)?;
        change(task, |task| {
            Ok(match access {
                et_access::ET_READS => task.reads(&*data),
                et_access::ET_WRITES => task.writes(&*data),
                et_access::ET_UPDATES => task.updates(&*data),
            })
        })
    })
}

/// Replaces the arguments by bytes, as `et_launch_args`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_task_args(
    task: et_task,
    args: *const c_void,
    bytes: usize,
    align: usize,
) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let args = unsafe { arguments(args, bytes, align) }?;
        change(task, |task| Ok(task.args(args)))
    })
}

/// Appends a number to the arguments, at its natural alignment, as C does.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_arg_u32(task: et_task, value: u32) -> et_status {
    guard(|| change(task, |task| Ok(task.u32(value))))
}

/// Appends a number to the arguments.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_arg_u64(task: et_task, value: u64) -> et_status {
    guard(|| change(task, |task| Ok(task.u64(value))))
}

/// Appends a number to the arguments.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_arg_f32(task: et_task, value: f32) -> et_status {
    guard(|| change(task, |task| Ok(task.f32(value))))
}

/// Names a task, for messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn et_task_name(task: et_task, name: *const c_char) -> et_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let name = unsafe { raw::text(name, "name") }?.to_owned();
        change(task, |task| Ok(task.name(name)))
    })
}

/// Runs the kernel on these shires only, where tasks become launches.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_shires(task: et_task, mask: u64) -> et_status {
    guard(|| change(task, |task| Ok(task.shires(mask))))
}

/// Splits the task into so many parts, which run on different harts at the same time as far as
/// there are any. It is complete when all are. A launch on a stream has one for each of its harts
/// instead.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_parts(task: et_task, parts: u32) -> et_status {
    guard(|| change(task, |task| Ok(task.parts(parts))))
}

/// Type of a word of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_word {
    /// `uint32_t`
    ET_WORD_U32 = 1,
    /// `uint64_t`
    ET_WORD_U64 = 2,
    /// `int32_t`
    ET_WORD_I32 = 3,
    /// `int64_t`
    ET_WORD_I64 = 4,
}

/// How a word is compared with a value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum et_comparison {
    /// `==`
    ET_EQUAL = 1,
    /// `!=`
    ET_NOT_EQUAL = 2,
    /// `<`
    ET_LESS = 3,
    /// `<=`
    ET_LESS_OR_EQUAL = 4,
    /// `>`
    ET_GREATER = 5,
    /// `>=`
    ET_GREATER_OR_EQUAL = 6,
}

fn comparison(number: u32) -> Result<Comparison, Failure> {
    Ok(match number {
        1 => Comparison::Equal,
        2 => Comparison::NotEqual,
        3 => Comparison::Less,
        4 => Comparison::LessOrEqual,
        5 => Comparison::Greater,
        6 => Comparison::GreaterOrEqual,
        _ => {
            let text = format!("there is no comparison {number}");
            return Err(Failure::new(et_status::ET_INVALID, text));
        }
    })
}

/// Runs the task only if the word at `offset`, an `et_word` aligned to its length, compares so, an
/// `et_comparison`, with `value` when everything before the task has ended. If not, the task is
/// skipped: those behind it go on. A value with a sign is one that was converted to `uint64_t`.
#[unsafe(no_mangle)]
pub extern "C" fn et_task_only_if(
    task: et_task,
    mem: et_mem,
    offset: u64,
    word: u32,
    comparison: u32,
    value: u64,
) -> et_status {
    guard(|| {
        let comparison = self::comparison(comparison)?;
        let out_of_range = |_| {
            let text = format!("{value:#x} is no value of such a word");
            Failure::new(et_status::ET_INVALID, text)
        };
        let bytes = if word == 1 || word == 3 { 4 } else { 8 };
        let slice = memory::slice(mem, offset, bytes)?;
        change(task, |task| {
            Ok(match word {
                1 => {
                    let value = u32::try_from(value).map_err(out_of_range)?;
                    task.only_if(&Word::on_device(slice, 0)?, comparison, value)
                }
                2 => task.only_if(&Word::on_device(slice, 0)?, comparison, value),
                3 => {
                    let value = i32::try_from(value.cast_signed()).map_err(out_of_range)?;
                    task.only_if(&Word::on_device(slice, 0)?, comparison, value)
                }
                4 => task.only_if(&Word::on_device(slice, 0)?, comparison, value.cast_signed()),
                _ => {
                    let text = format!("there is no type of word {word}");
                    return Err(Failure::new(et_status::ET_INVALID, text));
                }
            })
        })
    })
}

/// Declares memory of a device that the graph has for itself, at a multiple of `align` bytes, a
/// power of two; 0 is 64. Tasks of the graph use it as other memory; nothing else does, and it has
/// no address. It shares its bytes with other such memory if the order of the tasks allows. A task
/// may read only what earlier ones write.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_transient(
    builder: et_graph_builder,
    device: et_device,
    bytes: u64,
    align: u64,
    mem: Option<&mut MaybeUninit<et_mem>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(mem, "mem")?;
        let align = if align == 0 { 64 } else { align };
        let buffer = self::builder(builder, |builder| {
            device::with(device, |device| Ok(builder.builder.transient(device, bytes, align)?))
        })?;
        out.write(table::insert(buffer.into())?);
        Ok(())
    })
}

/// As `et_graph_edge`; besides, the memory of the graph that `before` writes lives until `after`
/// has ended.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_edge_and_retain(
    builder: et_graph_builder,
    before: u32,
    after: u32,
) -> et_status {
    guard(|| {
        let (before, after) = (TaskId::from_index(before), TaskId::from_index(after));
        self::builder(builder, |builder| Ok(builder.builder.edge_and_retain(before, after)?))
    })
}

/// Adds a task and frees its description, which stays if that fails. Gives the index of the task,
/// which may be null; tasks are in program order, and wait for earlier ones with whose use of
/// memory their own conflicts.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_add(
    builder: et_graph_builder,
    task: et_task,
    task_index: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    guard(|| {
        let shared = table::get(task)?;
        let mut description = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let was_added = || Failure::new(et_status::ET_BAD_HANDLE, "the task was added");
        let copy = description.clone().ok_or_else(was_added)?;
        let id = self::builder(builder, |builder| Ok(builder.builder.add(copy)?))?;
        raw::store(task_index, index(id));
        *description = None;
        drop(description);
        // Another thread may have freed it meanwhile, which is as good.
        let _ = table::remove(task);
        Ok(())
    })
}

/// Adds a copy of all of `from` to device memory. `task_index` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_copy_in(
    builder: et_graph_builder,
    from: et_host_data,
    to: et_mem,
    offset: u64,
    task_index: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    guard(|| {
        let from = table::get(from)?;
        let to = memory::slice(to, offset, from.len() as u64)?;
        let id = self::builder(builder, |builder| Ok(builder.builder.copy_in(&from, &to)?))?;
        raw::store(task_index, index(id));
        Ok(())
    })
}

/// Adds a copy from device memory to all of `to`. `task_index` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_copy_out(
    builder: et_graph_builder,
    from: et_mem,
    offset: u64,
    to: et_host_data,
    task_index: Option<&mut MaybeUninit<u32>>,
) -> et_status {
    guard(|| {
        let to = table::get(to)?;
        let from = memory::slice(from, offset, to.len() as u64)?;
        let id = self::builder(builder, |builder| Ok(builder.builder.copy_out(&from, &to)?))?;
        raw::store(task_index, index(id));
        Ok(())
    })
}

/// Runs one task after another, whatever they declare.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_edge(builder: et_graph_builder, before: u32, after: u32) -> et_status {
    guard(|| {
        let (before, after) = (TaskId::from_index(before), TaskId::from_index(after));
        self::builder(builder, |builder| Ok(builder.builder.edge(before, after)?))
    })
}

/// Makes the graph and frees the builder, also if that fails, for example because tasks wait for
/// each other in a circle.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_build(
    builder: et_graph_builder,
    graph: Option<&mut MaybeUninit<et_graph>>,
) -> et_status {
    guard(|| {
        let out = raw::wanted(graph, "graph")?;
        let shared = table::take(builder)?;
        let taken = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
        let was_built = || Failure::new(et_status::ET_BAD_HANDLE, "the graph is already built");
        let graph = taken.ok_or_else(was_built)?.builder.build()?;
        out.write(table::insert(graph)?);
        Ok(())
    })
}

/// Frees a graph. Its runs go on.
#[unsafe(no_mangle)]
pub extern "C" fn et_graph_free(graph: et_graph) -> et_status {
    guard(|| table::remove(graph))
}
