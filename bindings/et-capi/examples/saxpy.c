/* Adds two arrays on a device, and shows what a kernel that fails leaves.
 *
 * saxpy LOCATOR FOLDER, where the folder has the kernels saxpy.elf and trap_load.elf. */
#include <stdio.h>
#include <stdlib.h>

#include <et.h>

#define COUNT 1000
#define SECOND UINT64_C(1000000000)

static void check(et_status status, const char *what)
{
    if (status != ET_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, et_status_name((int32_t)status), et_last_error());
        exit(1);
    }
}

static et_kernel load(et_device device, const char *folder, const char *name)
{
    et_kernel kernel;
    char path[1024];

    snprintf(path, sizeof path, "%s/%s.elf", folder, name);
    check(et_kernel_load_file(device, path, &kernel), path);
    return kernel;
}

static void saxpy(et_device device, et_stream stream, et_kernel kernel)
{
    static float x[COUNT], y[COUNT];
    et_mem dx, dy;
    et_launch launch;
    et_event event;
    et_timeline times = {0};
    int i;

    for (i = 0; i < COUNT; i++) {
        x[i] = (float)i;
        y[i] = 1;
    }
    check(et_mem_alloc(device, sizeof x, 0, &dx), "allocating");
    check(et_mem_alloc(device, sizeof y, 0, &dy), "allocating");
    check(et_copy_to_device(stream, x, sizeof x, dx, 0, NULL), "copying");
    check(et_copy_to_device(stream, y, sizeof y, dy, 0, NULL), "copying");

    check(et_launch_create(kernel, &launch), "describing");
    check(et_launch_arg_mem(launch, dx, 0), "describing");
    check(et_launch_arg_mem(launch, dy, 0), "describing");
    check(et_launch_arg_f32(launch, 2), "describing");
    check(et_launch_arg_u64(launch, COUNT), "describing");
    check(et_launch_submit(stream, launch, &event), "launching");
    times.size = sizeof times;
    check(et_event_wait(event, 60 * SECOND, &times), "saxpy");
    check(et_copy_to_host(stream, dy, 0, y, sizeof y, 60 * SECOND), "copying back");
    for (i = 0; i < COUNT; i++)
        if (y[i] != 2 * x[i] + 1) {
            fprintf(stderr, "element %d is %g\n", i, (double)y[i]);
            exit(1);
        }
    printf("%d elements are right\n", COUNT);
    check(et_event_free(event), "freeing");
    check(et_launch_free(launch), "freeing");
    check(et_mem_free(dx), "freeing");
    check(et_mem_free(dy), "freeing");
    if (et_mem_free(dy) != ET_BAD_HANDLE)
        exit(1);
    printf("freed twice: %s\n", et_last_error());
}

static void trap(et_stream stream, et_kernel kernel)
{
    et_launch launch;
    et_event event;
    et_failure failure;
    et_hart hart;
    size_t harts, needed;
    char *text;

    check(et_launch_create(kernel, &launch), "describing");
    check(et_launch_arg_u64(launch, 0), "describing");
    check(et_launch_shires(launch, 1), "describing");
    check(et_launch_submit(stream, launch, &event), "launching");
    if (et_event_wait(event, 60 * SECOND, NULL) != ET_LAUNCH_FAILED) {
        fprintf(stderr, "the kernel did not trap: %s\n", et_last_error());
        exit(1);
    }
    check(et_event_failure(event, &failure), "asking for the failure");
    check(et_failure_harts(failure, &harts, NULL), "asking for harts");
    hart.size = sizeof hart;
    check(et_failure_hart(failure, 0, &hart), "asking for a hart");
    printf("%d harts failed, the first by a trap of cause %d\n", (int)harts, (int)hart.cause);
    et_failure_text(failure, NULL, 0, &needed);
    text = malloc(needed);
    check(et_failure_text(failure, text, needed, NULL), "asking for the report");
    puts(text);
    free(text);
    check(et_failure_free(failure), "freeing");
    check(et_event_free(event), "freeing");
    check(et_launch_free(launch), "freeing");
}

int main(int argc, char **argv)
{
    et_device device;
    et_stream stream;
    et_kernel kernel;
    et_properties properties;

    if (argc != 3) {
        fprintf(stderr, "usage: saxpy LOCATOR FOLDER\n");
        return 2;
    }
    check(et_init(ET_ABI_VERSION), "comparing versions");
    check(et_device_open(argv[1], NULL, &device), argv[1]);
    properties.size = sizeof properties;
    check(et_device_properties(device, &properties), "asking for properties");
    printf("library %s, %d shires\n", et_version(), (int)properties.shires);
    check(et_stream_create(device, &stream), "making a stream");

    kernel = load(device, argv[2], "saxpy");
    saxpy(device, stream, kernel);
    check(et_kernel_free(kernel), "freeing");
    kernel = load(device, argv[2], "trap_load");
    trap(stream, kernel);
    check(et_kernel_free(kernel), "freeing");

    check(et_stream_free(stream), "freeing");
    check(et_device_close(device), "closing");
    return 0;
}
