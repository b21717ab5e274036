// Memory of the emulated driver: blocks of the GPU, copies, and page-locked memory of the host.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tests/cuda/emulator/driver_state.h"

namespace tensor::emulator {

int copy_in(Address to, const void* from, std::size_t bytes) {
  for (cuda::Context& device : state().devices)
    if (cuda::Context::Block* block = device.holding(to, bytes)) {
      const Unprotected access(device);
      std::memcpy(reinterpret_cast<void*>(to), from, bytes);
      block->is_uploaded = true;
      state().counts.uploaded_bytes += static_cast<std::int64_t>(bytes);
      return 0;
    }
  return kInvalid;
}
int copy_out(void* to, Address from, std::size_t bytes) {
  for (cuda::Context& device : state().devices)
    if (device.holding(from, bytes)) {
      const Unprotected access(device);
      std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
      state().counts.downloaded_bytes += static_cast<std::int64_t>(bytes);
      return 0;
    }
  return kInvalid;
}
void finish_copies(cuda::Context& device) {
  for (; !device.copies.empty(); device.copies.pop_front()) device.copies.front()();
}
void check_pinned(const void* memory, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(memory);
  auto after = state().pinned.upper_bound(begin);
  if (after == state().pinned.begin() ||
      begin + bytes > std::prev(after)->first + std::prev(after)->second)
    complain("an asynchronous copy from or to memory that is not page-locked");
}

namespace {

int memory_info(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(state().mutex);
  if (const int why = trouble()) return why;
  *free = static_cast<std::size_t>(current->limit - current->taken);
  *total = static_cast<std::size_t>(current->limit);
  return 0;
}

// Addresses are not used twice. A page that is nobody's lies behind every block, and blocks begin
// where they are aligned no better than the driver promises.
int allocate(Address* address, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (const int why = trouble()) return why;
  if (bytes == 0) return kInvalid;
  if (static_cast<std::int64_t>(bytes) > current->limit - current->taken) return cuda::kOutOfMemory;
  constexpr std::size_t kAlignment = 256;
  const std::size_t room = (kAlignment + bytes + 2 * kPage - 1) / kPage * kPage;
  if (current->next + room > current->end) return cuda::kOutOfMemory;
  std::byte* const begin = current->next + kAlignment;
  current->next += room;
  current->taken += static_cast<std::int64_t>(bytes);
  *address = reinterpret_cast<Address>(begin);
  current->blocks[*address].bytes = bytes;
  const Unprotected access(*current);
  std::memset(begin, 0xff, bytes);  // NaN
  ++state().counts.allocations;
  state().counts.allocated_bytes += static_cast<std::int64_t>(bytes);
  return 0;
}

int free_block(Address address) {
  const std::lock_guard lock(state().mutex);
  if (!current) complain("memory is freed without a current context");
  for (cuda::Context& device : state().devices)
    if (const auto found = device.blocks.find(address); found != device.blocks.end()) {
      for (const cuda::StreamHandle* stream : state().streams)
        if (stream->device == &device && !stream->work.empty())
          complain("memory is freed while work is queued");
      finish_copies(device);
      const std::size_t bytes = found->second.bytes;
      device.taken -= static_cast<std::int64_t>(bytes);
      state().counts.allocated_bytes -= static_cast<std::int64_t>(bytes);
      device.blocks.erase(found);
      const Address first = (address + kPage - 1) / kPage * kPage, last = (address + bytes) / kPage;
      if (last * kPage > first)
        madvise(reinterpret_cast<void*>(first), last * kPage - first, MADV_DONTNEED);
      return 0;
    }
  complain("memory is freed that was not taken");
  return kInvalid;
}

// As the driver's documentation allows: the call returns once the bytes have been read, and they
// arrive when somebody waits for the default stream. Streams of their own do not.
int upload(Address to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (const int why = trouble()) return why;
  if (!current->holding(to, bytes)) return kInvalid;
  const auto* first = static_cast<const std::byte*>(from);
  current->copies.push_back([to, read = std::vector<std::byte>(first, first + bytes)] {
    copy_in(to, read.data(), read.size());
  });
  return 0;
}
int copy(Address to, Address from, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (const int why = trouble()) return why;
  if (!current->holding(to, bytes) || !current->holding(from, bytes)) return kInvalid;
  current->copies.push_back([=] { copy_in(to, reinterpret_cast<const void*>(from), bytes); });
  return 0;
}
int fill(Address to, unsigned char byte, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (const int why = trouble()) return why;
  if (!current->holding(to, bytes)) return kInvalid;
  current->copies.push_back([=] {
    const std::vector<unsigned char> filled(bytes, byte);
    copy_in(to, filled.data(), bytes);
  });
  return 0;
}
int download(void* to, Address from, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (const int why = trouble()) return why;
  finish_copies(*current);
  return copy_out(to, from, bytes);
}

int allocate_pinned(void** memory, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (const int why = trouble()) return why;
  *memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  std::memset(*memory, 0xff, bytes);
  state().pinned[static_cast<std::byte*>(*memory)] = bytes;
  state().counts.pinned_bytes += static_cast<std::int64_t>(bytes);
  return 0;
}
int free_pinned(void* memory) {
  const std::lock_guard lock(state().mutex);
  const auto known = state().pinned.find(static_cast<std::byte*>(memory));
  if (known == state().pinned.end()) {
    complain("page-locked memory is freed that was not taken");
    return kInvalid;
  }
  state().counts.pinned_bytes -= static_cast<std::int64_t>(known->second);
  state().pinned.erase(known);
  std::free(memory);
  return 0;
}

}  // namespace

Functions memory_functions() {
  return {
      {"cuMemGetInfo_v2", pointer_to(memory_info)},
      {"cuMemAlloc_v2", pointer_to(allocate)},
      {"cuMemFree_v2", pointer_to(free_block)},
      {"cuMemcpyHtoD_v2", pointer_to(upload)},
      {"cuMemcpyDtoD_v2", pointer_to(copy)},
      {"cuMemsetD8_v2", pointer_to(fill)},
      {"cuMemcpyDtoH_v2", pointer_to(download)},
      {"cuMemAllocHost_v2", pointer_to(allocate_pinned)},
      {"cuMemFreeHost", pointer_to(free_pinned)},
  };
}

}  // namespace tensor::emulator
