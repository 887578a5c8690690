// The original's formats of profiles, which are those of cereal's archives.

#ifndef RT_PROFILE_WRITER_H
#define RT_PROFILE_WRITER_H

#include <runtime/IProfileEvent.h>

#include <ostream>
#include <type_traits>
#include <utility>

namespace rt::profiling {

// Writes an object whose members are numbered events, with all of an event on a line.
class JsonWriter {
public:
  explicit JsonWriter(std::ostream& stream) : stream_(stream) { stream_ << '{'; }

  void begin() {
    stream_ << (events_ == 0 ? "\n" : ",\n") << "\"value";
    number(events_++);
    stream_ << "\": ";
  }
  void end() { stream_ << "\n}\n"; }

  template <class Members>
  void object(Members members) {
    stream_ << '{';
    isFirst_ = true;
    members();
    stream_ << '}';
    isFirst_ = false;
  }
  template <class Value>
  void member(const char* name, Value value) {
    separate();
    text(name);
    stream_ << ": ";
    value();
  }
  template <class Map, class Item>
  void map(const Map& items, Item item) {
    stream_ << '[';
    isFirst_ = true;
    for (const auto& [key, value] : items) {
      separate();
      stream_ << "{\"key\": ";
      text(key);
      stream_ << ", \"value\": ";
      item(value);
      stream_ << '}';
    }
    stream_ << ']';
    isFirst_ = false;
  }

  void text(std::string_view text) {
    constexpr char DIGITS[] = "0123456789abcdef";
    stream_ << '"';
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        stream_ << '\\' << c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        stream_ << "\\u00" << DIGITS[c >> 4 & 15] << DIGITS[c & 15];
      } else {
        stream_ << c;
      }
    }
    stream_ << '"';
  }
  template <class Number>
  void number(Number number) {
    if constexpr (std::is_same_v<Number, bool>) {
      stream_ << (number ? "true" : "false");
    } else {
      // Without the format that the user may have set, and not as a character.
      stream_ << std::to_string(number);
    }
  }

private:
  void separate() {
    if (!std::exchange(isFirst_, false)) {
      stream_ << ", ";
    }
  }

  std::ostream& stream_;
  std::uint64_t events_ = 0;
  bool isFirst_ = true;
};

// Writes values one after the other, each least byte first, whatever the order of the host.
class BinaryWriter {
public:
  // The first byte says which order it is.
  explicit BinaryWriter(std::ostream& stream) : stream_(stream) { number(std::uint8_t{1}); }

  void begin() {}
  void end() {}

  template <class Members>
  void object(Members members) {
    members();
  }
  template <class Value>
  void member(const char*, Value value) {
    value();
  }
  template <class Map, class Item>
  void map(const Map& items, Item item) {
    number(std::uint64_t{items.size()});
    for (const auto& [key, value] : items) {
      text(key);
      item(value);
    }
  }

  void text(std::string_view text) {
    number(std::uint64_t{text.size()});
    stream_.write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  template <class Number>
  void number(Number number) {
    for (std::size_t byte = 0; byte < sizeof number; ++byte) {
      stream_.put(static_cast<char>(static_cast<std::uint64_t>(number) >> 8 * byte));
    }
  }

private:
  std::ostream& stream_;
};

template <class Writer>
void write(Writer& writer, const std::string& text) {
  writer.text(text);
}

template <class Writer, class Number>
std::enable_if_t<std::is_integral_v<Number>> write(Writer& writer, Number number) {
  writer.number(number);
}

template <class Writer, class Enum>
std::enable_if_t<std::is_enum_v<Enum>> write(Writer& writer, Enum value) {
  writer.number(static_cast<std::underlying_type_t<Enum>>(value));
}

template <class Writer, class Rep, class Period>
void write(Writer& writer, std::chrono::duration<Rep, Period> duration) {
  writer.object([&] { writer.member("count", [&] { writer.number(duration.count()); }); });
}

template <class Writer, class Clock, class Duration>
void write(Writer& writer, std::chrono::time_point<Clock, Duration> time) {
  writer.object([&] {
    writer.member("time_since_epoch", [&] { write(writer, time.time_since_epoch()); });
  });
}

template <class Writer>
void write(Writer& writer, const DeviceProperties& properties) {
  const auto member = [&](const char* name, auto value) {
    writer.member(name, [&] { write(writer, value); });
  };
  writer.object([&] {
    member("frequency", properties.frequency_);
    member("available_shires", properties.availableShires_);
    member("memory_bw", properties.memoryBandwidth_);
    member("memory_size", properties.memorySize_);
    member("l3_size", properties.l3Size_);
    member("l2_shire_size", properties.l2shireSize_);
    member("l2_scp_size", properties.l2scratchpadSize_);
    member("cache_line_size", properties.cacheLineSize_);
    member("l2_cache_banks", properties.l2CacheBanks_);
    member("compute_minion_shire_mask", properties.computeMinionShireMask_);
    member("spare_compute_minion_shire_id", properties.spareComputeMinionoShireId_);
    member("device_arch_rev", properties.deviceArch_);
    member("form_factor", properties.formFactor_);
    member("tdp", properties.tdp_);
  });
}

template <class Writer>
void write(Writer& writer, const ProfileEvent::ExtraValues& extra) {
  writer.object([&] {
    writer.member("index", [&] { writer.number(static_cast<std::int32_t>(extra.index())); });
    writer.member("data", [&] {
      std::visit([&](const auto& value) { write(writer, value); }, extra);
    });
  });
}

template <class Writer>
void write(Writer& writer, const ProfileEvent& event) {
  writer.begin();
  writer.object([&] {
    writer.member(ProfileEvent::kType, [&] { writer.text(getString(event.getType())); });
    writer.member(ProfileEvent::kClass, [&] { writer.text(getString(event.getClass())); });
    writer.member(ProfileEvent::kTimeStamp, [&] { write(writer, event.getTimeStamp()); });
    writer.member(ProfileEvent::kThreadId, [&] { writer.text(event.getThreadId()); });
    writer.member(ProfileEvent::kExtraMetadata, [&] {
      writer.map(event.getExtras(), [&](const auto& extra) { write(writer, extra); });
    });
  });
}

} // namespace rt::profiling

#endif // RT_PROFILE_WRITER_H
