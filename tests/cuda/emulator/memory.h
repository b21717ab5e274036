// Memory of the emulated GPU: what kernels may read and write, and the shared memory of a block
// with a state for every byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tensor::emulator {

/// A piece of global memory that a launch knows of.
struct Region {
  std::string name;  // "operand 2"
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  bool is_constant = false;  // there before any kernel, so read without waiting
  bool is_written = false;   // by these kernels
};

enum class ByteState : std::uint8_t {
  none,       // nobody asked for it
  unwritten,  // asked for, never written
  written,    // by a thread, not yet fenced for the copy engine and wgmma
  visible,    // to those as well
  arriving,   // an asynchronous copy to here is under way
  leaving,    // an asynchronous copy from here is under way
  barrier,    // an mbarrier lies here
};

/// Shared memory of one block: the dynamic part begins at kFirst, variables follow, with a gap.
class SharedMemory {
 public:
  static constexpr std::uint32_t kBytes = 1 << 18;  // what a matrix descriptor reaches
  static constexpr std::uint32_t kFirst = 1024;     // the system has those before

  explicit SharedMemory(std::uint32_t dynamic_bytes);

  bool holds(const void* address) const {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= base_ && byte < base_ + kBytes;
  }
  std::uint32_t offset(const void* address) const {
    return static_cast<std::uint32_t>(static_cast<const std::byte*>(address) - base_);
  }
  std::byte* at(std::uint32_t offset) const { return base_ + offset; }

  /// The variable of a key, made when it is first asked for.
  std::uint32_t variable(const void* key, std::uint32_t bytes, std::uint32_t alignment);
  /// All that was asked for, the system's part included.
  std::uint32_t used_bytes() const { return used_; }

  /// Empty, or why a thread may not read or write these bytes.
  std::string read_fault(std::uint32_t offset, std::uint32_t bytes) const;
  std::string write_fault(std::uint32_t offset, std::uint32_t bytes) const;
  /// The same for the copy engine and wgmma.
  std::string engine_read_fault(std::uint32_t offset, std::uint32_t bytes) const;
  std::string engine_write_fault(std::uint32_t offset, std::uint32_t bytes) const;

  void set(std::uint32_t offset, std::uint32_t bytes, ByteState state);
  ByteState state(std::uint32_t offset) const { return states_[offset]; }

 private:
  std::string fault(std::uint32_t offset, std::uint32_t bytes, unsigned allowed) const;
  std::unique_ptr<std::byte[]> storage_;
  std::vector<ByteState> states_;
  std::byte* base_ = nullptr;
  std::map<const void*, std::uint32_t> variables_;
  std::uint32_t used_ = 0;
};

}  // namespace tensor::emulator
