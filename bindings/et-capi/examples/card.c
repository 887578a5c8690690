/* Asks a card how it is and a kernel what it takes; then adds two arrays in one operation, from
 * memory of this program that the device reads itself.
 *
 * card LOCATOR FOLDER, where the folder has the kernel saxpy.elf. */
#define _POSIX_C_SOURCE 200112L

#include <stdio.h>
#include <stdlib.h>

#include <et.h>

#define COUNT 1024
#define SECOND UINT64_C(1000000000)

static void check(et_status status, const char *what)
{
    if (status != ET_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, et_status_name((int32_t)status), et_last_error());
        exit(1);
    }
}

static void card(et_device device)
{
    et_management management;
    et_temperatures temperatures = {0};
    et_frequencies clocks = {0};
    char serial[64];
    uint32_t power;

    temperatures.size = sizeof temperatures;
    clocks.size = sizeof clocks;
    check(et_device_management(device, 10 * SECOND, &management), "opening");
    check(et_management_asset(management, ET_ASSET_SERIAL_NUMBER, serial, sizeof serial, NULL),
          "asking");
    check(et_management_temperatures(management, &temperatures), "asking");
    check(et_management_frequencies(management, &clocks), "asking");
    check(et_management_power_mw(management, &power), "asking");
    printf("card %s: %d C, %u MHz, %u mW\n", serial, (int)temperatures.minion_average_c,
           (unsigned)clocks.minion_mhz, (unsigned)power);
    check(et_management_free(management), "freeing");
}

static void parameters(et_kernel kernel)
{
    size_t count, i;
    uint32_t is_stated;

    check(et_kernel_parameter_count(kernel, &count, &is_stated), "asking");
    printf("the file %s what the kernel takes:", is_stated ? "states" : "does not state");
    for (i = 0; i < count; i++) {
        et_parameter parameter = {0};
        char name[32];

        parameter.size = sizeof parameter;
        check(et_kernel_parameter(kernel, i, &parameter, name, sizeof name, NULL), "asking");
        printf(" %s%s", name, parameter.access ? "[]" : "");
    }
    printf("\n");
}

static void released(void *user)
{
    *(int *)user = 1;
}

static void saxpy(et_device device, et_kernel kernel)
{
    et_stream_options options = {0};
    et_stream stream;
    et_mem x, y;
    et_launch launch;
    et_event event;
    et_host_buffer lent, result;
    et_copy input = {0};
    et_part output = {0};
    size_t granule, bytes = COUNT * sizeof(float);
    void *memory;
    float *values, sums[COUNT];
    int i, is_released = 0;

    options.size = sizeof options;
    options.priority = ET_PRIORITY_HIGH;
    check(et_stream_create_with(device, &options, &stream), "making a stream");
    check(et_mem_alloc(device, bytes, 0, &x), "allocating");
    check(et_mem_alloc(device, bytes, 0, &y), "allocating");

    /* x comes from whole pages, which the device reads where they are. */
    check(et_device_import_granule(device, &granule), "asking");
    if (granule == 0 || bytes % granule != 0 || posix_memalign(&memory, granule, bytes) != 0) {
        fprintf(stderr, "no pages of %lu bytes\n", (unsigned long)granule);
        exit(1);
    }
    values = memory;
    for (i = 0; i < COUNT; i++)
        values[i] = (float)i;
    check(et_host_buffer_import(device, memory, bytes, ET_READS, released, &is_released, &lent),
          "lending");
    check(et_upload(stream, lent, x, 0, bytes, &event), "copying");
    check(et_event_wait(event, 10 * SECOND, NULL), "copying");
    check(et_event_free(event), "freeing");
    check(et_host_buffer_free(lent), "freeing");

    /* y, the launch and the result are one operation. */
    for (i = 0; i < COUNT; i++)
        sums[i] = 1;
    input.from = sums;
    input.to = y;
    input.bytes = bytes;
    output.mem = y;
    output.bytes = bytes;
    check(et_host_buffer_alloc(device, bytes, &result), "allocating");
    check(et_launch_create(kernel, &launch), "describing");
    check(et_launch_arg_mem(launch, x, 0), "describing");
    check(et_launch_arg_mem(launch, y, 0), "describing");
    check(et_launch_arg_f32(launch, 2), "describing");
    check(et_launch_arg_u64(launch, COUNT), "describing");
    check(et_launch_staged(stream, &input, 1, launch, &output, 1, result, &event), "launching");
    check(et_event_wait(event, 10 * SECOND, NULL), "waiting");
    check(et_host_buffer_read(result, 0, sums, bytes), "reading");
    for (i = 0; i < COUNT; i++)
        if (sums[i] != 2 * (float)i + 1)
            exit(1);
    printf("%d elements are right, the memory is %s\n", COUNT, is_released ? "back" : "gone");

    free(memory);
    check(et_event_free(event), "freeing");
    check(et_launch_free(launch), "freeing");
    check(et_host_buffer_free(result), "freeing");
    check(et_mem_free(x), "freeing");
    check(et_mem_free(y), "freeing");
    check(et_stream_free(stream), "freeing");
}

int main(int argc, char **argv)
{
    et_device device;
    et_kernel kernel;
    char path[1024];

    if (argc < 3) {
        fprintf(stderr, "%s LOCATOR FOLDER\n", argv[0]);
        return 1;
    }
    snprintf(path, sizeof path, "%s/saxpy.elf", argv[2]);
    check(et_init(ET_ABI_VERSION), "starting");
    check(et_device_open(argv[1], NULL, &device), argv[1]);
    check(et_kernel_load_file(device, path, &kernel), path);
    card(device);
    parameters(kernel);
    saxpy(device, kernel);
    check(et_kernel_free(kernel), "freeing");
    check(et_device_close(device), "closing");
    return 0;
}
