// Recording what a runtime does, by the original's interface.

#ifndef RT_IPROFILER_H
#define RT_IPROFILER_H

#include <ostream>

namespace rt {

class IProfiler {
public:
  enum class OutputType { Json, Binary };

  virtual ~IProfiler() = default;

  // Starts to record. The stream must last until `stop`, which writes to it.
  //
  // Throws if it records already. `Json` is the format of Chrome and Perfetto; `Binary`, which only
  // the original's own library can read, throws.
  virtual void start(std::ostream& outputStream, OutputType outputType) = 0;
  // Stops, and writes what was recorded; nothing if it did not record.
  virtual void stop() = 0;
};

} // namespace rt

#endif // RT_IPROFILER_H
