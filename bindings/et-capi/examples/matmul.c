/* C = A B on all harts of a device, and the same on the host.
 *
 * matmul LOCATOR FOLDER, where the folder has the kernel matmul.elf. */
#include <stdio.h>
#include <stdlib.h>

#include <et.h>

#define M 48
#define N 64
#define K 32
#define SECOND UINT64_C(1000000000)

static float a[M][K], b[K][N], c[M][N];

static void check(et_status status, const char *what)
{
    if (status != ET_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, et_status_name((int32_t)status), et_last_error());
        exit(1);
    }
}

/* Small whole numbers, so that every order of sums is exact. */
static void set(float *to, int count, int seed)
{
    int i;

    for (i = 0; i < count; i++)
        to[i] = (float)(i * seed % 13 - 6);
}

static et_mem upload(et_device device, et_stream stream, const void *from, size_t bytes)
{
    et_mem mem;

    check(et_mem_alloc(device, bytes, 0, &mem), "allocating");
    check(et_copy_to_device(stream, from, bytes, mem, 0, NULL), "copying");
    return mem;
}

int main(int argc, char **argv)
{
    et_device device;
    et_stream stream;
    et_kernel kernel;
    et_launch launch;
    et_event event;
    et_mem da, db, dc;
    char path[1024];
    int row, column, i;

    if (argc != 3) {
        fprintf(stderr, "usage: matmul LOCATOR FOLDER\n");
        return 2;
    }
    check(et_init(ET_ABI_VERSION), "comparing versions");
    check(et_device_open(argv[1], NULL, &device), argv[1]);
    check(et_stream_create(device, &stream), "making a stream");
    snprintf(path, sizeof path, "%s/matmul.elf", argv[2]);
    check(et_kernel_load_file(device, path, &kernel), path);
    set(&a[0][0], M * K, 7);
    set(&b[0][0], K * N, 5);
    da = upload(device, stream, a, sizeof a);
    db = upload(device, stream, b, sizeof b);
    check(et_mem_alloc(device, sizeof c, 0, &dc), "allocating");

    check(et_launch_create(kernel, &launch), "describing");
    check(et_launch_arg_mem(launch, da, 0), "describing");
    check(et_launch_arg_mem(launch, db, 0), "describing");
    check(et_launch_arg_mem(launch, dc, 0), "describing");
    check(et_launch_arg_u64(launch, M), "describing");
    check(et_launch_arg_u64(launch, N), "describing");
    check(et_launch_arg_u64(launch, K), "describing");
    check(et_launch_submit(stream, launch, &event), "launching");
    check(et_event_wait(event, 60 * SECOND, NULL), "matmul");
    check(et_copy_to_host(stream, dc, 0, c, sizeof c, 60 * SECOND), "copying back");
    for (row = 0; row < M; row++)
        for (column = 0; column < N; column++) {
            float sum = 0;
            for (i = 0; i < K; i++)
                sum += a[row][i] * b[i][column];
            if (c[row][column] != sum) {
                fprintf(stderr, "element %d, %d is wrong\n", row, column);
                return 1;
            }
        }
    printf("%d elements are right\n", M * N);

    check(et_event_free(event), "freeing");
    check(et_launch_free(launch), "freeing");
    check(et_mem_free(da), "freeing");
    check(et_mem_free(db), "freeing");
    check(et_mem_free(dc), "freeing");
    check(et_kernel_free(kernel), "freeing");
    check(et_stream_free(stream), "freeing");
    check(et_device_close(device), "closing");
    return 0;
}
