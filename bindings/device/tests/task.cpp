// Doubles: a task kernel in C++, with everything included.
#include <et/device.h>

#include <string.h>

struct args {
    const uint32_t *x;
    uint32_t *z;
    uint64_t n;
};
ET_ARGUMENTS("x: in u32[], z: out u32[], n: u64");

template <typename T> static T twice(T value)
{
    return value + value;
}

int64_t et_task(const args *args, const kernel_environment *, uint64_t part, uint64_t parts)
{
    const et_range mine = et_part(args->z, sizeof *args->z, args->n, part, parts);
    for (uint64_t i = mine.begin; i < mine.end; i++)
        args->z[i] = twice(args->x[i]);
    return 0;
}

ET_TASK_ENTRY;
