/*
 * graph: runs the tasks of a graph, with one hart for a scheduler or with the host for one.
 *
 *   uint64_t mode;  uint64_t cells;  uint64_t harts;  uint64_t image;
 *
 * mode is 0 if the host is the scheduler and 1 if the hart with rank 0 is. cells is the address of
 * `harts` cells of 128 bytes, 64-byte aligned and zero; cell i belongs to the hart with rank i, and
 * harts for which there is no cell return at once. image is for mode 1.
 *
 * Cells are those of the host's module et_devapi::handshake, which has the table of their bytes and
 * the reasons. They are only ever accessed with global atomics. A task word is the address of a
 * function `et_task`, the argument word that of its arguments; it is called for part 0 of 1, and
 * what it returns is the outcome. The functions must be in memory before the launch.
 *
 * Mode 0. Ranks 1 and up take tasks. They look at the dispatch word some hundred times, then they
 * park and sleep until they get a credit. Credits come from rank 0, the relay, which does not sleep:
 * its tasks have task word 1 and the rank to be woken as argument word. So it is told to quit last.
 *
 * Mode 1. Rank 0 runs the graph that `struct image` describes. Workers sleep while they have nothing
 * to do and never park: each store to a dispatch word is followed by a credit to the worker, each
 * completion by one to rank 0. The launch ends when nothing is outstanding and nothing is ready, or
 * nothing is outstanding after a cancellation. A task with a negative outcome has failed, and its
 * successors do not become ready.
 *
 * A worker that traps is never heard of again, and a task may never end. So rank 0 does not sleep
 * while tasks are outstanding: it looks for credits and at the control line, where the host asks it
 * to stop by an ordinary copy. Then it dismisses all workers, which leave when their task ends, and
 * leaves itself. Whoever sleeps for a credit may not hear of an abort of the launch; after this
 * nobody does but for a worker whose task goes on, and that one is awake.
 *
 * A task that is to run only if a condition holds, and one that is a part of several, has `et_task`
 * of this file for its function, and `struct guarded` for its arguments.
 *
 * Memory. Before and after each task a worker evicts its caches: the first-level cache if the launch
 * has one shire and the scheduler is in it, else the second-level cache too. So a task sees what the
 * tasks completed before its dispatch have written with plain stores, at any address. It must not
 * mix plain and global accesses to one line, and not share a line that it writes with a task that
 * may run at the same time.
 *
 * Rank 0 returns -1 if the image has a wrong magic number, and -2 if there are tasks but no workers.
 */
#include <et/cell.h>
#include <et/device.h>

struct args {
    uint64_t mode;
    uint64_t cells;
    uint64_t harts;
    uint64_t image;
};
_Static_assert(sizeof(struct args) == 32, "documented layout");

enum { MODE_HOST = 0, MODE_RESIDENT = 1 };

/* ---- cells --------------------------------------------------------------------------------- */

_Static_assert((int)ET_CELL_RUN == (int)ET_CELL_AWAKE, "dispatch and status words are compared");

/* Looks at the dispatch word before a worker parks. */
enum { PATIENCE = 256 };

/* Task word of the relay's tasks. */
enum { RELAY_CREDIT = 1 };

typedef uintptr_t cell_t;

ET_INLINE uint64_t cell_load(cell_t at)
{
    return et_load_g64((uint64_t *)at);
}

ET_INLINE void cell_store(cell_t at, uint64_t value)
{
    et_post_store_g64((uint64_t *)at, value);
}

ET_INLINE uint64_t cell_word(uint64_t high, uint32_t sequence)
{
    return high << 32 | sequence;
}

/* ---- image --------------------------------------------------------------------------------- */

/* "1ETGRAPH" as it lies in memory. */
#define MAGIC 0x4850415247544531

struct task {
    uint64_t function;
    uint64_t args;
    uint32_t first_successor; /* in `successors` */
    uint32_t successor_count;
    uint64_t reserved;
};
_Static_assert(sizeof(struct task) == 32, "documented layout");

enum { NOT_RUN = 0, DISPATCHED = 1, COMPLETE = 2, FAILED = 3 };

/* Written with global stores only, while the graph runs. */
struct outcome {
    uint64_t state; /* low half: above; high half: rank of the worker */
    uint64_t value;
    uint64_t start; /* cycles */
    uint64_t end;
};
_Static_assert(sizeof(struct outcome) == 32, "documented layout");

enum { STATE_NOT_STARTED = 0, STATE_RUNNING = 1, STATE_ENDED = 2 };

/* What the host wants: FINISH, dispatch nothing more; STOP, also wait for nothing that is dispatched. */
enum { GO_ON = 0, FINISH = 1, STOP = 2 };

/* Looks for a credit between two looks at the control line. */
enum { CONTROL_EVERY = 64 };

/* Each line is written by one side only, and each table starts at a line. */
struct image {
    /* By the host, before the launch. */
    uint64_t magic;
    uint64_t tasks; /* less than 2^27 */
    const struct task *task_table;
    const uint32_t *successors; /* task numbers */
    uint32_t *pending;          /* by task: predecessors that have not completed */
    uint32_t *ready;            /* tasks in the order in which they become ready */
    struct outcome *outcomes;   /* by task, zero */
    uint64_t roots;             /* tasks that are in `ready` already */

    /* Progress: by rank 0 with global stores. Counts are up to date whenever it sleeps. */
    uint64_t state;
    uint64_t completed; /* without those that failed */
    uint64_t failed;
    uint64_t dispatched;
    uint64_t started_cycles;
    uint64_t ended_cycles;
    uint64_t reserved1[2];

    /* Control: by the host at any time. */
    uint64_t cancel; /* GO_ON, FINISH or STOP; it only grows */
    uint64_t depth;  /* tasks a worker may have, 1 or 2; 0 means 2; read once, at the start */
    uint64_t reserved2[6];
};
_Static_assert(offsetof(struct image, state) == 64 && offsetof(struct image, cancel) == 128 &&
                   sizeof(struct image) == 192,
               "documented layout");

/* ---- workers ------------------------------------------------------------------------------- */

enum { MAX_RANKS = 32 * ET_HARTS_PER_SHIRE + 32, GROUPS = (MAX_RANKS + 63) / 64 };

/*
 * A bit for each rank that has completed something since rank 0 last looked. Global atomics only; a
 * credit to rank 0 follows each time.
 */
static uint64_t ET_ALIGN_LINE completions[(GROUPS + 7) / 8 * 8];

typedef int64_t task_function(const void *args, const struct kernel_environment *env, uint64_t part,
                              uint64_t parts);

/*
 * The task of a function that is to run only if a word is in a range, or is not. The word is extended
 * to 64 bits; one with a sign has its highest bit inverted then, so that one comparison is enough for
 * all. The worker looks at it: a task sees what those before it have written, and the scheduler goes
 * on. What it returns is that of the function if negative, else 0, or SKIPPED if it was not called.
 */
struct guarded {
    task_function *function;
    const void *word;
    uint64_t first;
    uint64_t span; /* the last one of the range minus the first */
    uint64_t flags;
    uint64_t constant; /* room for a word that does not change */
    uint64_t part;
    uint64_t parts;
    uint64_t args[];
};
_Static_assert(sizeof(struct guarded) == 64, "documented layout");

enum { OUTSIDE = 1, HALF = 2, SIGNED = 4 };
enum { SKIPPED = 1 };

int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    (void)part;
    (void)parts;
    const struct guarded *guarded = (const void *)args;
    uint64_t flags = guarded->flags;
    uint64_t key;
    if ((flags & HALF) == 0) {
        key = *(const uint64_t *)guarded->word;
    } else {
        uint32_t half = *(const uint32_t *)guarded->word;
        key = (flags & SIGNED) != 0 ? (uint64_t)(int64_t)(int32_t)half : half;
    }
    if ((flags & SIGNED) != 0)
        key ^= (uint64_t)1 << 63;
    if ((key - guarded->first <= guarded->span) == (flags & OUTSIDE))
        return SKIPPED;
    int64_t value = guarded->function(guarded->args, env, guarded->part, guarded->parts);
    return value < 0 ? value : 0;
}

/* Nothing to do in mode 0: looks again at once for a while, then sleeps. */
static ET_NOINLINE unsigned wait_or_park(cell_t cell, uint32_t done, unsigned looks)
{
    if (looks < PATIENCE)
        return looks + 1;

    /* Credits that came too late for the last time would add up. */
    while (et_fcc_available(0) != 0)
        et_fcc_consume(0);
    et_fence();
    cell_store(cell + ET_CELL_STATUS, cell_word(ET_CELL_PARKED, done));
    /* Between the store and the load; the scheduler has its own the other way round. */
    et_fence();
    uint64_t dispatch = cell_load(cell + ET_CELL_DISPATCH);
    if ((dispatch >> 32 == ET_CELL_RUN && (uint32_t)dispatch == done) ||
        dispatch >> 32 == ET_CELL_CLOSED)
        et_fcc_consume(0);
    cell_store(cell + ET_CELL_STATUS, cell_word(ET_CELL_AWAKE, done));
    return 0;
}

/* Every relay task is a credit to the worker of a cell. Identities are written before any status. */
static ET_NOINLINE int64_t relay(uint64_t task, uint64_t rank, const struct args *args)
{
    if (task != RELAY_CREDIT || rank >= args->harts)
        return -1;
    uint64_t hart = cell_load(args->cells + rank * ET_CELL_BYTES + ET_CELL_IDENTITY);
    et_fence();
    *et_credit_hart_register(hart, 0) = et_credit_hart_bit(hart);
    return 0;
}

/* Inlined twice, because the two modes have little in common in the end. */
ET_INLINE int64_t work(const struct args *args, const struct kernel_environment *env, uint64_t rank,
                       const int resident)
{
    const cell_t cell = args->cells + rank * ET_CELL_BYTES;
    uint64_t *const completion = &completions[rank / 64];
    const uint64_t bit = (uint64_t)1 << rank % 64;
    /* Rank 0 is the first hart of the lowest shire. */
    const unsigned lowest = et_popcount((env->shire_mask & -env->shire_mask) - 1);
    volatile uint64_t *const coordinator = et_credit_register(lowest, 0, 0);
    const uint64_t coordinator_bit = (uint64_t)1 << et_shire_first_minion(lowest);
    /* The slot of the next task and the word for its outcome. It has number 1. */
    cell_t slot = cell + ET_CELL_SLOT + 16;
    cell_t outcome = cell + ET_CELL_OUTCOME + 8;
    uint64_t status = cell_word(ET_CELL_AWAKE, 0);
    unsigned looks = 0;
    /*
     * Caches of others are not coherent with ours: before and after a task whatever is in them is
     * written back and dropped. One of the two calls takes a level, the other one no argument.
     */
    uint64_t evict = ET_CALL_EVICT_L1;
    if (!resident || et_popcount(env->shire_mask) != 1)
        evict = ET_CALL_EVICT_L1_L2;

    cell_store(cell + ET_CELL_IDENTITY, et_hart_id());
    et_fence();
    cell_store(cell + ET_CELL_STATUS, status);

    for (;;) {
        /* In mode 1 exactly one credit for each look, or those left over would add up. */
        if (resident)
            et_fcc_consume(0);
        uint64_t dispatch = cell_load(cell + ET_CELL_DISPATCH);
        /* One or two tasks more, if the numbers have not just wrapped around: the usual case. */
        if (dispatch - status - 1 > 1) {
            uint64_t control = dispatch >> 32;
            if ((uint32_t)dispatch == (uint32_t)status ||
                control - ET_CELL_RUN > ET_CELL_QUIT - ET_CELL_RUN) {
                if (control > ET_CELL_RUN)
                    break;
                if (!resident && rank != 0)
                    looks = wait_or_park(cell, (uint32_t)status, looks);
                continue;
            }
        }
        looks = 0;

        uint64_t task = cell_load(slot);
        uint64_t arg = cell_load(slot + 8);
        uint64_t start, end;
        int64_t value;
        if (resident || rank != 0) {
            (void)et_call(evict, 0, ET_TO_L2);
            start = et_cycles();
            value = ((task_function *)task)((const void *)arg, env, 0, 1);
            end = et_cycles();
            (void)et_call(evict, 0, ET_TO_L2);
        } else {
            start = et_cycles();
            value = relay(task, arg, args);
            end = et_cycles();
        }
        cell_store(slot + (ET_CELL_TIMES - ET_CELL_SLOT), start);
        cell_store(slot + (ET_CELL_TIMES - ET_CELL_SLOT + 8), end);
        cell_store(outcome, (uint64_t)value);
        status++;
        if ((uint32_t)status == 0)
            status = cell_word(ET_CELL_AWAKE, 0);
        /* ET_CELL_SLOT and ET_CELL_SLOT + 16 are 16 and 32. */
        slot ^= 16 ^ 32;
        outcome ^= 8;
        /* What the task has written, and what is above, before the status. */
        et_fence();
        cell_store(cell + ET_CELL_STATUS, status);
        if (resident) {
            et_fence();
            et_post_or_g64(completion, bit);
            et_fence();
            *coordinator = coordinator_bit;
        }
    }
    et_fence();
    cell_store(cell + ET_CELL_STATUS, cell_word(ET_CELL_EXITED, (uint32_t)status));
    et_fence();
    return 0;
}

static ET_NOINLINE int64_t work_for_host(const struct args *args,
                                         const struct kernel_environment *env, uint64_t rank)
{
    return work(args, env, rank, 0);
}

static ET_NOINLINE int64_t work_for_rank_0(const struct args *args,
                                           const struct kernel_environment *env, uint64_t rank)
{
    return work(args, env, rank, 1);
}

/* ---- scheduler ----------------------------------------------------------------------------- */

/*
 * What rank 0 knows of a worker. Dispatch and status words are kept as they are in the cell, where
 * Run and Awake are the same number; a worker gets less than 2^32 tasks.
 *
 * One that has no task is on the stack of idle workers, and one that has got one stays in the list
 * of those with room until it gets a second one, also if it becomes idle meanwhile. So there may be
 * workers without a task in that list, but not when it is looked at: that is when none is idle.
 */
struct worker {
    cell_t cell;
    volatile uint64_t *credit;
    struct worker *next_room; /* itself if it could be in the list and is not */
    uint64_t mark;            /* state of the outcome of a task dispatched to it */
    /* By the low bit of the sequence number, at the distance of slots in cells. */
    struct {
        uint32_t task;       /* offset in the tables of tasks and outcomes */
        uint32_t credit_bit; /* in the first */
        uint64_t word;       /* in the first the last dispatch, in the second the last status */
    } slot[2];
};
_Static_assert(sizeof(struct worker) == 64, "one cache line");
_Static_assert(sizeof(struct task) == sizeof(struct outcome), "the same offset in both");

/* Workers by rank. Rank 0, which is none, is the head of the list of those with room. */
static struct worker ET_ALIGN_LINE workers[GROUPS * 64];
/* In the place of rank 0, at the bottom of the stack, is no worker. */
static struct worker *idle_workers[GROUPS * 64] ET_ALIGN_LINE;
ET_BSS_ANCHOR;

/* Where the task of a sequence number is in a cell or a worker, relative to even ones. */
ET_INLINE uint64_t odd_bytes(uint64_t word)
{
    return (word & 1) << 4;
}

ET_INLINE uint32_t *task_of(struct worker *worker, uint64_t odd)
{
    return (uint32_t *)((uintptr_t)&worker->slot[0].task + odd);
}

/* Number of the one bit that is set: a product with a de Bruijn sequence has it in its high bits. */
#define DE_BRUIJN 0x03f79d71b4cb0a89
static const uint8_t ET_ALIGN_LINE bit_numbers[64] = {
    0,  1,  48, 2,  57, 49, 28, 3,  61, 58, 50, 42, 38, 29, 17, 4,  62, 55, 59, 36, 53, 51,
    43, 22, 45, 39, 33, 30, 24, 18, 12, 5,  63, 47, 56, 27, 60, 41, 37, 16, 54, 35, 52, 21,
    44, 32, 23, 11, 46, 26, 40, 15, 34, 20, 31, 10, 25, 14, 19, 9,  13, 8,  7,  6,
};

/* Waits for all workers to announce themselves; all are idle then. Returns the top of the stack. */
static ET_NOINLINE struct worker **meet(cell_t cells, uint64_t harts, int has_depth_2)
{
    struct worker **idle = idle_workers;
    *idle = NULL;
    for (uint64_t group = 0; group < GROUPS; group++)
        et_post_store_g64(&completions[group], 0);

    /* Neighbours on one minion share its pipeline: first threads are taken before second ones. */
    for (uint64_t first = 1; first <= 2; first++)
        for (uint64_t rank = first; rank < harts; rank += 2) {
            struct worker *worker = &workers[rank];
            cell_t cell = cells + rank * ET_CELL_BYTES;
            /* No credit for this: harts that have not started yet may lose theirs. */
            while (cell_load(cell + ET_CELL_STATUS) >> 32 == ET_CELL_ABSENT)
                ;
            uint64_t hart = cell_load(cell + ET_CELL_IDENTITY);
            worker->cell = cell;
            worker->credit = et_credit_hart_register(hart, 0);
            worker->next_room = has_depth_2 ? worker : NULL;
            worker->mark = rank << 32 | DISPATCHED;
            worker->slot[0].credit_bit = (uint32_t)et_credit_hart_bit(hart);
            worker->slot[0].word = cell_word(ET_CELL_RUN, 0);
            worker->slot[1].word = cell_word(ET_CELL_AWAKE, 0);
            *++idle = worker;
        }
    et_fence();
    return idle;
}

/* `how` is ET_CELL_QUIT, or ET_CELL_ABORT for workers that shall not start what is staged. */
static ET_NOINLINE void dismiss(uint64_t harts, uint64_t how)
{
    for (uint64_t rank = 1; rank < harts; rank++)
        cell_store(workers[rank].cell + ET_CELL_DISPATCH,
                   cell_word(how, (uint32_t)workers[rank].slot[0].word));
    et_fence();
    for (uint64_t rank = 1; rank < harts; rank++)
        *workers[rank].credit = workers[rank].slot[0].credit_bit;
}

/* A fence without sets, which cores may take as a hint to let others go first. */
ET_INLINE void pause(void)
{
    __asm__ volatile(".insn i 0x0f, 0, x0, x0, 0x010");
}

/*
 * Waits for a credit without going to sleep, so that neither the host's word nor an abort of the
 * launch is missed. Returns false if the host wants no more waiting; no credit is taken then.
 */
ET_INLINE int await_credit(const struct image *image)
{
    do {
        unsigned looks = CONTROL_EVERY;
        do {
            /* First, because most of the time there is none yet. */
            pause();
            uint64_t both;
            __asm__ volatile("csrr %0, " ET_STR(ET_CSR_FCCNB) : "=r"(both) : : "memory");
            /* The counter is the lower half of the lower word. */
            if (both << 48 != 0) {
                et_fcc_consume(0);
                return 1;
            }
        } while (--looks != 0);
    } while (et_load_g64((uint64_t *)&image->cancel) != STOP);
    return 0;
}

static ET_NOINLINE int64_t coordinate(const struct args *args, uint64_t harts)
{
    struct image *image = (struct image *)args->image;
    struct worker **idle = meet(args->cells, harts, et_load_g64(&image->depth) != 1);
    if (image->magic != MAGIC || (image->roots != 0 && harts < 2)) {
        dismiss(harts, ET_CELL_QUIT);
        return image->magic != MAGIC ? -1 : -2;
    }

    const uintptr_t tasks = (uintptr_t)image->task_table;
    const uintptr_t outcomes = (uintptr_t)image->outcomes;
    const uint32_t *const successors = image->successors;
    uint32_t *const pending = image->pending;

    /* The queue: those from `next` to `end` are ready, those before are dispatched. */
    uint32_t *next = image->ready;
    uint32_t *end = image->ready + image->roots;
    uint64_t how = ET_CELL_QUIT;
    uint64_t dispatched = 0;
    uint64_t ended = 0; /* how many have come back, with those that failed */
    volatile uint64_t failed = 0; /* rarely needed: not in a register */

    struct worker *room = &workers[0];
    __asm__("" : "+r"(room)); /* this one in a register */
    struct worker *last_room = room;
    room->next_room = NULL;

    /* Completions taken from word `group` and not yet looked at. */
    uint64_t bits = 0;
    uint64_t *group = completions;
    uint64_t *const last_group = &completions[(harts - 1) / 64];
    struct worker *group_workers = workers;

    et_store_g64(&image->started_cycles, et_cycles());
    et_store_g64(&image->state, STATE_RUNNING);

    for (;;) {
        /* Else the compiler computes all addresses in it beforehand, and has no room for them. */
        __asm__("" : "+r"(image));

        if (next != end && et_load_g64(&image->cancel) != 0)
            end = next;
        while (next != end) {
            struct worker *worker = *idle;
            if (worker != NULL) {
                idle--;
                if (worker->next_room == worker) {
                    worker->next_room = NULL;
                    last_room->next_room = worker;
                    last_room = worker;
                }
            } else {
                worker = room->next_room;
                if (worker == NULL)
                    break;
                struct worker *follower = worker->next_room;
                worker->next_room = worker;
                room->next_room = follower;
                if (follower == NULL)
                    last_room = room;
            }

            uint64_t offset = *next++;
            offset *= sizeof(struct task);
            __asm__("" : "+r"(offset)); /* the compiler would extend it to 64 bits once more */
            const struct task *task = (const struct task *)(tasks + offset);
            uint64_t word = ++worker->slot[0].word;
            uint64_t odd = odd_bytes(word);
            *task_of(worker, odd) = (uint32_t)offset;
            cell_t cell = worker->cell;
            cell_store(cell + odd + ET_CELL_SLOT, task->function);
            cell_store(cell + odd + ET_CELL_SLOT + 8, task->args);
            et_post_store_g64(&((struct outcome *)(outcomes + offset))->state, worker->mark);
            /* The slot, and all that is known here of what came before, before the number. */
            et_fence();
            cell_store(cell + ET_CELL_DISPATCH, word);
            et_fence();
            *worker->credit = worker->slot[0].credit_bit;
            dispatched++;
        }
        if (dispatched == ended)
            break;

        if (bits == 0) {
            et_post_store_g64(&image->dispatched, dispatched);
            et_post_store_g64(&image->completed, ended - failed);
        }
        /*
         * One credit for each task that comes back. When it is there, so is the bit of a worker
         * whose status says more than we know: here, or in memory.
         */
        if (__builtin_expect(!await_credit(image), 0)) {
            how = ET_CELL_ABORT;
            break;
        }
        struct worker *worker;
        cell_t cell;
        uint64_t done, status, bit;
        for (;;) {
            while (bits == 0) {
                if (group != last_group) {
                    group++;
                    group_workers += 64;
                } else if (group != completions) {
                    group = completions;
                    group_workers = workers;
                }
                bits = et_amoswap_g64(group, 0);
            }
            bit = bits & -bits;
            worker = &group_workers[bit_numbers[bit * DE_BRUIJN >> 58]];
            cell = worker->cell;
            done = worker->slot[1].word;
            status = cell_load(cell + ET_CELL_STATUS);
            if (status != done)
                break;
            /* We have seen this completion already, together with the one before. */
            bits ^= bit;
        }
        done++;
        worker->slot[1].word = done;
        if (done == worker->slot[0].word) {
            bits ^= bit;
            *++idle = worker;
        } else {
            /* Of two completions the second one is taken next time, with its own credit. */
            if (status == done)
                bits ^= bit;
            worker->next_room = NULL;
            last_room->next_room = worker;
            last_room = worker;
        }
        ended++;

        uint64_t odd = odd_bytes(done);
        uint64_t offset = *task_of(worker, odd);
        uint64_t mark = worker->mark;
        struct outcome *outcome = (struct outcome *)(outcomes + offset);
        uint64_t started_at = cell_load(cell + odd + ET_CELL_TIMES);
        uint64_t ended_at = cell_load(cell + odd + ET_CELL_TIMES + 8);
        uint64_t value = cell_load(cell + odd / 2 + ET_CELL_OUTCOME);
        et_post_store_g64(&outcome->start, started_at);
        et_post_store_g64(&outcome->end, ended_at);
        et_post_store_g64(&outcome->value, value);
        if ((int64_t)value < 0) {
            et_post_store_g64(&outcome->state, mark + (FAILED - DISPATCHED));
            uint64_t now = failed + 1;
            failed = now;
            et_post_store_g64(&image->failed, now);
            continue;
        }
        et_post_store_g64(&outcome->state, mark + (COMPLETE - DISPATCHED));

        const struct task *task = (const struct task *)(tasks + offset);
        const uint32_t *successor = &successors[task->first_successor];
        for (uint32_t left = task->successor_count; left != 0; left--) {
            uint64_t follower = *successor++;
            if (--pending[follower] == 0)
                *end++ = (uint32_t)follower;
        }
    }

    dismiss(harts, how);
    et_post_store_g64(&image->dispatched, dispatched);
    et_post_store_g64(&image->completed, ended - failed);
    et_post_store_g64(&image->ended_cycles, et_cycles());
    et_fence();
    et_post_store_g64(&image->state, STATE_ENDED);
    et_fence();
    return 0;
}

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    __asm__ volatile("" : : "r"(et_task)); /* only the host calls it: or the linker would drop it */
    uint64_t rank = et_index(env);
    uint64_t harts = et_harts(env);
    if (harts > args->harts)
        harts = args->harts;
    if (rank >= harts)
        return 0;
    if (args->mode != MODE_RESIDENT)
        return work_for_host(args, env, rank);
    return rank == 0 ? coordinate(args, harts) : work_for_rank_0(args, env, rank);
}
