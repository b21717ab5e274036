#include "tests/cuda/emulator/memory.h"

#include <algorithm>
#include <cstring>

namespace tensor::emulator {
namespace {

constexpr unsigned bit(ByteState state) { return 1u << static_cast<unsigned>(state); }

std::uint32_t rounded_up(std::uint32_t n, std::uint32_t step) {
  return (n + step - 1) / step * step;
}

const char* complaint(ByteState state) {
  switch (state) {
    case ByteState::none:
      return "lies outside of what the kernel asked for";
    case ByteState::unwritten:
      return "was never written";
    case ByteState::written:
      return "was written by a thread that did not fence_for_copies() since";
    case ByteState::arriving:
      return "is still being copied to";
    case ByteState::leaving:
      return "is still being copied from";
    case ByteState::barrier:
      return "is an mbarrier";
    case ByteState::visible:
      break;
  }
  return "is as it should be";
}

}  // namespace

SharedMemory::SharedMemory(std::uint32_t dynamic_bytes)
    : storage_(new std::byte[kBytes + kFirst]), states_(kBytes, ByteState::none) {
  // The emulated addresses are aligned as those of the machine are.
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.get());
  base_ = storage_.get() + (kFirst - address % kFirst) % kFirst;
  std::memset(base_, 0xff, kBytes);
  set(kFirst, dynamic_bytes, ByteState::unwritten);
  used_ = kFirst + dynamic_bytes;
}

std::uint32_t SharedMemory::variable(const void* key, std::uint32_t bytes,
                                     std::uint32_t alignment) {
  const auto [place, is_new] = variables_.try_emplace(key, 0);
  if (is_new) {
    constexpr std::uint32_t kGap = 64;
    place->second = rounded_up(used_ + kGap, std::max(alignment, 16u));
    used_ = place->second + bytes;
    if (used_ <= kBytes) set(place->second, bytes, ByteState::unwritten);
  }
  return place->second;
}

void SharedMemory::set(std::uint32_t offset, std::uint32_t bytes, ByteState state) {
  std::fill_n(states_.begin() + offset, bytes, state);
}

std::string SharedMemory::fault(std::uint32_t offset, std::uint32_t bytes, unsigned allowed) const {
  if (offset > kBytes || bytes > kBytes - offset) return "shared memory ends before";
  for (std::uint32_t i = offset; i < offset + bytes; ++i)
    if ((allowed >> static_cast<unsigned>(states_[i]) & 1) == 0)
      return "byte " + std::to_string(i - kFirst) + " of shared memory " + complaint(states_[i]);
  return {};
}

std::string SharedMemory::read_fault(std::uint32_t offset, std::uint32_t bytes) const {
  return fault(offset, bytes,
               bit(ByteState::written) | bit(ByteState::visible) | bit(ByteState::leaving));
}
std::string SharedMemory::write_fault(std::uint32_t offset, std::uint32_t bytes) const {
  return fault(offset, bytes,
               bit(ByteState::unwritten) | bit(ByteState::written) | bit(ByteState::visible));
}
std::string SharedMemory::engine_read_fault(std::uint32_t offset, std::uint32_t bytes) const {
  return fault(offset, bytes, bit(ByteState::visible) | bit(ByteState::leaving));
}
std::string SharedMemory::engine_write_fault(std::uint32_t offset, std::uint32_t bytes) const {
  return write_fault(offset, bytes);
}

}  // namespace tensor::emulator
