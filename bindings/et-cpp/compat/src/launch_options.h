#ifndef RT_LAUNCH_OPTIONS_H
#define RT_LAUNCH_OPTIONS_H

#include <runtime/Types.h>

#include <string>

namespace rt {

struct KernelLaunchOptionsImp {
  std::optional<std::uint64_t> shireMask;
  bool flushL3 = false;
  std::optional<UserTrace> trace;
  // Bytes for the harts of all shires of the mask.
  std::optional<std::uint64_t> stackBytes;
  // Empty for none.
  std::string coreDumpFilePath;
};

} // namespace rt

#endif // RT_LAUNCH_OPTIONS_H
