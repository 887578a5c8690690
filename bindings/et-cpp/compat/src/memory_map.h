#ifndef RT_MEMORY_MAP_H
#define RT_MEMORY_MAP_H

#include <runtime/Types.h>

#include <et.hpp>

#include <map>
#include <sstream>

namespace rt {

using Address = std::uint64_t;

inline Address addressOf(const std::byte* place) { return reinterpret_cast<Address>(place); }

// A part of an allocation, which stays while this does.
struct Piece {
  std::shared_ptr<et::Memory> memory;
  std::uint64_t offset;
  std::uint64_t bytes;
};

// The allocations of a device, by address.
class MemoryMap {
public:
  static constexpr std::uint64_t BLOCK = 4096;

  std::byte* add(et::Memory memory, std::uint64_t bytes) {
    const Address address = memory.address();
    blocks_[address] = Block{std::make_shared<et::Memory>(std::move(memory)), bytes};
    return reinterpret_cast<std::byte*>(address);
  }

  void remove(const std::byte* place) {
    if (blocks_.erase(addressOf(place)) == 0) {
      throw Exception(named(addressOf(place)) + " is not the start of allocated device memory");
    }
  }

  // Every allocation.
  std::vector<std::shared_ptr<et::Memory>> all() const {
    std::vector<std::shared_ptr<et::Memory>> all;
    for (const auto& [address, block] : blocks_) {
      all.push_back(block.memory);
    }
    return all;
  }

  // What a range of addresses is made of; it may go over several neighbours.
  std::vector<Piece> find(const std::byte* place, std::uint64_t bytes) const {
    std::vector<Piece> pieces;
    Address at = addressOf(place);
    for (std::uint64_t left = bytes; left != 0;) {
      auto block = blocks_.upper_bound(at);
      if (block == blocks_.begin()) {
        throw outside(place, bytes);
      }
      --block;
      const std::uint64_t offset = at - block->first;
      if (offset >= block->second.bytes) {
        throw outside(place, bytes);
      }
      const std::uint64_t here = std::min(left, block->second.bytes - offset);
      pieces.push_back(Piece{block->second.memory, offset, here});
      at += here;
      left -= here;
    }
    return pieces;
  }

private:
  struct Block {
    std::shared_ptr<et::Memory> memory;
    std::uint64_t bytes;
  };

  static std::string named(Address address) {
    std::ostringstream text;
    text << "0x" << std::hex << address;
    return text.str();
  }
  static Exception outside(const std::byte* place, std::uint64_t bytes) {
    return Exception(std::to_string(bytes) + " bytes at " + named(addressOf(place)) +
                     " are not all in allocated device memory");
  }

  std::map<Address, Block> blocks_;
};

} // namespace rt

#endif // RT_MEMORY_MAP_H
