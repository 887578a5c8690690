/*
 * races: harts that hand something to one another, right or wrong.
 *
 *   uint64_t which;  uint64_t *cells;  uint64_t *sums;
 *
 * `cells` has a line of 64 bytes for each hart of the launch, and 24 times 64 KiB for case 15;
 * `sums` has a line for each hart. The harts of the launch are at least 66, of two shires. What `which` means stands at its function.
 */
#include <et/device.h>

struct args {
    uint64_t which;
    volatile uint64_t *cells;
    volatile uint64_t *sums;
};

/* One line each. */
#define CELL(index) (8 * (index))

struct self {
    volatile uint64_t *cells;
    volatile uint64_t *sums;
    const struct kernel_environment *env;
    uint64_t index;
    /* The hart whose cell this one reads: of another minion and of another shire. */
    uint64_t partner;
};

static void write(const struct self *self)
{
    self->cells[CELL(self->index)] = self->index + 1;
}

static void read(const struct self *self)
{
    self->sums[CELL(self->index)] += self->cells[CELL(self->partner)];
}

static void evict(const struct self *self, uint64_t index)
{
    et_evict((const void *)&self->cells[CELL(index)], 64, ET_TO_MEMORY);
}

/* 0: right: evicted by who writes, and by who reads. */
static void handed_over(const struct self *self)
{
    read(self);
    evict(self, self->partner);
    et_launch_barrier(self->env, 0);
    write(self);
    evict(self, self->index);
    et_launch_barrier(self->env, 1);
    read(self);
}

/* 1: no barrier between. */
static void unordered(const struct self *self)
{
    write(self);
    evict(self, self->index);
    read(self);
}

/* 2: the writer evicts nothing. */
static void kept(const struct self *self)
{
    write(self);
    et_launch_barrier(self->env, 0);
    read(self);
}

/* 3: the reader has a copy, and does not evict it. */
static void copied(const struct self *self)
{
    read(self);
    et_launch_barrier(self->env, 0);
    write(self);
    evict(self, self->index);
    et_launch_barrier(self->env, 1);
    read(self);
}

/* 4: right: a word counts, and the last to come reads what it has come to. */
static void counted(const struct self *self)
{
    et_amoadd_g64(&self->cells[0], 1);
    if (et_flb_join(0, et_shire_harts(et_shire())))
        self->sums[CELL(self->index)] = et_load_g64(&self->cells[0]);
}

/* 5: the same, and nothing waits for the posted addition. */
static void posted(const struct self *self)
{
    __asm__ volatile("amoaddg.d x0, %0, (%1)" : : "r"(1UL), "r"(&self->cells[0]) : "memory");
    if (et_flb_join(0, et_shire_harts(et_shire())))
        self->sums[CELL(self->index)] = et_load_g64(&self->cells[0]);
}

/* 6: right: rank 0 writes, and sets a flag that all others poll. */
static void flagged(const struct self *self)
{
    if (self->index == 0) {
        write(self);
        evict(self, 0);
        et_store_g64(&self->sums[0], 1);
        return;
    }
    while (et_load_g64(&self->sums[0]) == 0) {
    }
    self->sums[CELL(self->index)] = self->cells[0];
}

/* 7: the shires count by atomics that act in the L2 of each. */
static void local(const struct self *self)
{
    et_amoadd_l64(&self->cells[0], 1);
}

/* 8: right: harts write neighbouring words of a line, and read those of others. */
static void neighbours(const struct self *self)
{
    volatile uint64_t *line = &self->cells[self->index & ~7ul];
    self->cells[self->index] = 1;
    et_evict((const void *)line, 64, ET_TO_MEMORY);
    et_launch_barrier(self->env, 0);
    for (uint64_t i = 0; i < 8; i++)
        self->sums[CELL(self->index)] += line[i];
}

/* 9: all write the same word. */
static void together(const struct self *self)
{
    self->cells[0] = self->index;
}

/* 10: a word is read by all and then written by rank 0, with nothing between. */
static void overtaken(const struct self *self)
{
    if (self->index == 0)
        self->cells[0] = 1;
    else
        self->sums[CELL(self->index)] = self->cells[0];
}

/* 11: a cell is replaced, after a barrier, that its first writer still has in its cache. */
static void replaced(const struct self *self)
{
    write(self);
    et_launch_barrier(self->env, 0);
    self->cells[CELL(self->partner)] = 7;
}

/* 12: right: the two harts of a minion have one L1. */
static void minion(const struct self *self)
{
    write(self);
    et_minion_barrier(0);
    self->sums[CELL(self->index)] = self->cells[CELL(self->index ^ 1)];
}

/* 13: right: a word is written under a lock, past the caches. */
static void locked(const struct self *self)
{
    while (et_cmpswap_g64(&self->cells[0], 0, 1) != 0) {
    }
    self->sums[CELL(0)] += self->index;
    et_evict((const void *)&self->sums[0], 64, ET_TO_MEMORY);
    et_store_g64(&self->cells[0], 0);
}

/* 14: a hart stores a word by the L1, and looks for it in memory. */
static void own(const struct self *self)
{
    write(self);
    self->sums[CELL(self->index)] = et_load_g64(&self->cells[CELL(self->index)]);
}

/* 15: right: own words, in so many lines of one set that both caches write some back. */
static void crowded(const struct self *self)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 24; i++)
        self->cells[8192 * i + CELL(self->index)] = i;
    for (uint64_t i = 0; i < 24; i++)
        sum += self->cells[8192 * i + CELL(self->index)];
    self->sums[CELL(self->index)] = sum;
}

static void load_line(const struct self *self)
{
    et_tensor_load((struct et_tensor_load_args){
        .from = (const void *)self->cells, .stride = 64, .rows = 1});
    et_tensor_wait(ET_WAIT_LOAD_0);
}

/* 16: right: two harts of two shires write a half of a line each, and load all of it. */
static void halves(const struct self *self)
{
    uint64_t half = self->index / 64;
    if (self->index % 64 != 0 || half > 1)
        return;
    for (uint64_t i = 0; i < 4; i++)
        self->cells[4 * half + i] = i;
    evict(self, 0);
    load_line(self);
}

/* 17: one writes the whole line, which the other loads. */
static void whole(const struct self *self)
{
    if (self->index == 0) {
        for (uint64_t i = 0; i < 8; i++)
            self->cells[i] = i;
        evict(self, 0);
    }
    /* At most one of the shires has so much time. */
    for (uint64_t turn = 0; self->index == 64 && turn < 2000; turn++)
        __asm__ volatile("" : "+r"(turn));
    if (self->index == 64)
        load_line(self);
}

/* 18: right: minions of a shire hand over by its L2, and replace what they were given. */
static void by_l2(const struct self *self)
{
    volatile uint64_t *given = &self->cells[CELL(self->index ^ 2)];
    write(self);
    et_evict((const void *)&self->cells[CELL(self->index)], 64, ET_TO_L2);
    et_shire_barrier(0);
    self->sums[CELL(self->index)] = *given;
    *given = 0;
}

/* 19: rank 0 writes what all others have read long before, with nothing between. */
static void late(const struct self *self)
{
    if (self->index != 0) {
        self->sums[CELL(self->index)] = self->cells[0];
        return;
    }
    for (uint64_t turn = 0; turn < 20000; turn++)
        __asm__ volatile("" : "+r"(turn));
    self->cells[0] = 1;
}

/* The first hart of the second shire takes what the first of all has put into its scratchpad. */
static void scratchpad(const struct self *self, int is_evicted)
{
    volatile uint64_t *cell = et_l2_scratchpad(0, 0);
    if (self->index == 0) {
        *cell = 7;
        if (is_evicted)
            et_evict((const void *)cell, 8, ET_TO_L2);
    }
    et_launch_barrier(self->env, 0);
    if (self->index == 64)
        self->sums[CELL(64)] = *cell;
}

/* 20: right. */
static void scratchpad_evicted(const struct self *self)
{
    scratchpad(self, 1);
}

/* 21: it is still in the L1 of who wrote it. */
static void scratchpad_kept(const struct self *self)
{
    scratchpad(self, 0);
}

/* The same by memory and a message. */
static void message(const struct self *self, int is_awaited)
{
    if (self->index == 0) {
        write(self);
        evict(self, 0);
        et_tensor_reduce((struct et_tensor_reduce_args){
            .role = ET_SEND, .partner = 32, .function = ET_REDUCE_MOVE, .count = 1});
    }
    if (self->index == 64) {
        if (!is_awaited)
            self->sums[CELL(64)] = self->cells[0];
        et_tensor_reduce((struct et_tensor_reduce_args){
            .role = ET_RECEIVE, .partner = 0, .function = ET_REDUCE_MOVE, .count = 1});
        if (is_awaited)
            self->sums[CELL(64)] = self->cells[0];
        ET_TENSOR_CLOBBER();
    }
}

/* 22: right: read after the message. */
static void message_awaited(const struct self *self)
{
    message(self, 1);
}

/* 23: read before it. */
static void message_ignored(const struct self *self)
{
    message(self, 0);
}

/* 24: right: data that replaces data past the caches, one after the other. */
static void stored_twice(const struct self *self)
{
    for (int times = 0; times < 2; times++)
        __asm__ volatile("fswg.ps ft0, (%0)"
                         :
                         : "r"(&self->cells[CELL(self->index)])
                         : "memory");
}

/* 25: all write the same word, and trap. */
static void together_and_lost(const struct self *self)
{
    together(self);
    __asm__ volatile("ld zero, (zero)" : : : "memory");
}

int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    static void (*const cases[])(const struct self *) = {
        handed_over, unordered, kept,     copied,    counted,  posted, flagged, local,
        neighbours,  together,  overtaken, replaced, minion,  locked, own,     crowded,
        halves,      whole,    by_l2,  late,
        scratchpad_evicted, scratchpad_kept, message_awaited, message_ignored,
        stored_twice, together_and_lost,
    };
    uint64_t harts = 0;
    for (uint64_t mask = env->shire_mask; mask != 0; mask &= mask - 1)
        harts += 64;
    uint64_t index = et_index(env);
    struct self self = { args->cells, args->sums, env, index, (index + 66) % harts };
    if (args->which >= sizeof cases / sizeof cases[0])
        return -1;
    cases[args->which](&self);
    return 0;
}
