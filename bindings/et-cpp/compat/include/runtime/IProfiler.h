// Recording what a runtime does, by the original's interface.

#ifndef RT_IPROFILER_H
#define RT_IPROFILER_H

#include <ostream>
#include <string>
#include <utility>

namespace rt {

class IProfiler {
public:
  // The first two are the original's formats, a series of `ProfileEvent`s as its serialisation
  // library writes them. `Perfetto` is an addition: operations only, for Chrome and Perfetto; with a
  // document for each device, in their order, and a line break in between.
  enum class OutputType { Json, Binary, Perfetto };

  virtual ~IProfiler() = default;

  // Starts to record. The stream must last until `stop`, or the end of the runtime, which stops;
  // and nothing else may write to it.
  //
  // Throws if it records already.
  virtual void start(std::ostream& outputStream, OutputType outputType) = 0;
  // Stops; does nothing if it did not record. Throws if the stream did not take all.
  virtual void stop() = 0;
};

namespace profiling {

class ProfileEvent;

// Gets what a runtime does, event by event; see `IRuntime::setProfiler`.
class IProfilerRecorder : public IProfiler {
public:
  // Called on whichever thread does something, also on several at once. What it throws is lost.
  virtual void record(const ProfileEvent& event) = 0;
  // If it is true, no event is made.
  virtual bool isDummy() const { return false; }
  // Records an event; if recording has not started, when it does.
  virtual void recordNowOrAtStart(const ProfileEvent& event) = 0;

  static void setCurrentThreadName(std::string&& threadName) {
    threadName_ = "Host Runtime" + std::move(threadName);
  }

protected:
  // Empty for threads without one.
  static thread_local std::string threadName_;
};

} // namespace profiling

} // namespace rt

#endif // RT_IPROFILER_H
