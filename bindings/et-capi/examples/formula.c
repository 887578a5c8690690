/* (a + b + 1) (a + b + 2) as a graph of four kernels.
 *
 * formula LOCATOR FOLDER [PROFILE], where the folder has the kernels add.elf, add_scalar.elf and
 * mul.elf. PROFILE is a file for Perfetto: when each kernel ran, and the memory in use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <et.h>

#define COUNT 16384
#define BYTES (4 * COUNT)
#define SECOND UINT64_C(1000000000)

static float values[COUNT];

static void check(et_status status, const char *what)
{
    if (status != ET_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, et_status_name((int32_t)status), et_last_error());
        exit(1);
    }
}

/* Registers a kernel with the graph, which keeps it. */
static uint32_t load(et_device device, et_graph_builder builder, const char *folder,
                     const char *name)
{
    et_kernel kernel;
    uint32_t function;
    char path[1024];

    snprintf(path, sizeof path, "%s/%s.elf", folder, name);
    check(et_kernel_load_file(device, path, &kernel), path);
    check(et_graph_kernel(builder, kernel, &function), name);
    check(et_kernel_free(kernel), "freeing");
    return function;
}

static et_mem array(et_device device)
{
    et_mem mem;

    check(et_mem_alloc(device, BYTES, 0, &mem), "allocating");
    return mem;
}

/* A task that reads one array and writes another, with a number between. */
static void add_number(et_graph_builder builder, uint32_t function, et_mem from, et_mem to,
                       float number)
{
    et_task task;

    check(et_task_create(builder, function, &task), "describing");
    check(et_task_arg_mem(task, from, 0, BYTES, ET_READS), "describing");
    check(et_task_arg_mem(task, to, 0, BYTES, ET_WRITES), "describing");
    check(et_task_arg_f32(task, number), "describing");
    check(et_task_arg_u64(task, COUNT), "describing");
    check(et_graph_add(builder, task, NULL), "adding");
}

/* A task that reads two arrays and writes a third. */
static void combine(et_graph_builder builder, uint32_t function, et_mem x, et_mem y, et_mem z)
{
    et_task task;

    check(et_task_create(builder, function, &task), "describing");
    check(et_task_arg_mem(task, x, 0, BYTES, ET_READS), "describing");
    check(et_task_arg_mem(task, y, 0, BYTES, ET_READS), "describing");
    check(et_task_arg_mem(task, z, 0, BYTES, ET_WRITES), "describing");
    check(et_task_arg_u64(task, COUNT), "describing");
    check(et_graph_add(builder, task, NULL), "adding");
}

static void fill(et_stream stream, et_mem mem, float value)
{
    check(et_fill_pattern(stream, mem, 0, BYTES, &value, sizeof value, NULL), "filling");
}

int main(int argc, char **argv)
{
    et_device device;
    et_stream stream;
    et_graph_builder builder;
    et_graph graph;
    et_executor executor;
    et_run_options options;
    et_profile recorded;
    et_run run;
    et_mem mem[6]; /* a, b, a + b, that + 1, that + 2, product */
    uint32_t add, add_scalar, mul;
    int i;

    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: formula LOCATOR FOLDER [PROFILE]\n");
        return 2;
    }
    check(et_init(ET_ABI_VERSION), "comparing versions");
    check(et_device_open(argv[1], NULL, &device), argv[1]);
    check(et_stream_create(device, &stream), "making a stream");
    for (i = 0; i < 6; i++)
        mem[i] = array(device);
    fill(stream, mem[0], 2);
    fill(stream, mem[1], 3);
    check(et_stream_synchronize(stream, 60 * SECOND), "filling");

    /* What tasks read and write gives the order: both sums wait for the first, the product waits
     * for both. */
    check(et_graph_builder_create(&builder), "making a graph");
    add = load(device, builder, argv[2], "add");
    add_scalar = load(device, builder, argv[2], "add_scalar");
    mul = load(device, builder, argv[2], "mul");
    combine(builder, add, mem[0], mem[1], mem[2]);
    add_number(builder, add_scalar, mem[2], mem[3], 1);
    add_number(builder, add_scalar, mem[2], mem[4], 2);
    combine(builder, mul, mem[3], mem[4], mem[5]);
    check(et_graph_build(builder, &graph), "making a graph");

    check(et_executor_create(device, NULL, &executor), "making an executor");
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.trace = argc == 4;
    check(et_profile_start(device), "recording");
    check(et_graph_launch(executor, graph, &options, &run), "launching");
    check(et_run_wait(run, 60 * SECOND), "the graph");
    check(et_profile_stop(device, &recorded), "recording");
    if (argc == 4)
        check(et_run_write_profile(run, ET_DETAIL_PHASES, recorded, argv[3]), argv[3]);
    check(et_profile_free(recorded), "freeing");
    check(et_copy_to_host(stream, mem[5], 0, values, BYTES, 60 * SECOND), "copying back");
    for (i = 0; i < COUNT; i++)
        if (values[i] != 42) {
            fprintf(stderr, "element %d is %g\n", i, (double)values[i]);
            return 1;
        }
    printf("%d elements are right\n", COUNT);

    check(et_run_free(run), "freeing");
    check(et_executor_free(executor), "freeing");
    check(et_graph_free(graph), "freeing");
    for (i = 0; i < 6; i++)
        check(et_mem_free(mem[i]), "freeing");
    check(et_stream_free(stream), "freeing");
    check(et_device_close(device), "closing");
    return 0;
}
