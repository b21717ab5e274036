#include "src/runtime/common.h"

#include <algorithm>
#include <unordered_map>

#include "src/runtime/program.h"
#include "src/runtime/reach.h"

namespace tensor::detail {
namespace {

// Bytes by where they lie; those of files can be read again and count nothing.
using Held = std::unordered_map<const Storage*, std::int64_t>;

void add_held(Held& held, const Program& program) {
  for (const Tensor& x : program.engine->constants()) {
    const TensorImpl& t = placed(x);
    if (t.storage->in_file) continue;
    std::int64_t& bytes = held[t.storage.get()];
    bytes = std::max(bytes, reach_of(t.type.shape, t.strides, t.type.dtype).bytes);
  }
}

std::int64_t sum(const Held& held) {
  std::int64_t bytes = 0;
  for (const auto& [storage, own] : held) bytes += own;
  return bytes;
}

}  // namespace

CallMemory& Common::memory(const Device& device) {
  const std::lock_guard lock(mutex_);
  for (CallMemory& memory : memory_)
    if (memory.device == device) return memory;
  return memory_.emplace_back(device);
}

void Common::keep(const std::vector<std::shared_ptr<cuda::Kernel>>& kernels) {
  const std::lock_guard lock(mutex_);
  kernels_.insert(kernels.begin(), kernels.end());
}

void Common::add(const Program& program) {
  const std::lock_guard lock(mutex_);
  programs_.push_back(&program);
}

void Common::remove(const Program& program) {
  const std::lock_guard lock(mutex_);
  std::erase(programs_, &program);
}

DeviceMemory Common::memory_of(const Program& program) {
  const CallMemory& calls = memory(program.target.device);
  const bool is_arena_shared = calls.values.users() > 1;
  Held own, others;
  add_held(own, program);
  {
    const std::lock_guard lock(mutex_);
    for (const Program* other : programs_)
      if (other != &program) add_held(others, *other);
  }
  DeviceMemory result;
  result.weights = sum(own), result.arena = calls.values.bytes();
  result.other = calls.mirrors.bytes();
  // What the host has not derived is the function's own.
  const auto is_shared = [&](const Storage* storage) {
    return others.contains(storage) || (!storage->device.is_cuda() && !storage->origin);
  };
  for (const auto& [storage, bytes] : own)
    if (is_shared(storage)) result.shared += bytes;
  if (is_arena_shared) result.shared += result.arena + result.other;
  return result;
}

void Common::keep_within(std::int64_t limit, const Program& program,
                         const std::function<bool()>& make_room) {
  if (limit <= 0) return;
  const Device& device = program.target.device;
  CallMemory& calls = memory(device);
  for (;;) {
    Held held;
    {
      const std::lock_guard lock(mutex_);
      for (const Program* one : programs_)
        if (one->target.device == device) add_held(held, *one);
    }
    const std::int64_t weights = sum(held), arena = calls.values.bytes(true),
                       other = calls.mirrors.bytes();
    if (weights + arena + other <= limit) return calls.values.limit(limit - weights - other);
    if (make_room && make_room()) continue;
    fail("compile", "got memory_limit ", limit, " bytes, but executables that share on ", device,
         " hold ", weights, " bytes of weights, ", arena, " of arena and ", other,
         " of copies of inputs and outputs: allow them more, let go of other executables, or ",
         "compile for smaller inputs or in a narrower dtype");
  }
}

}  // namespace tensor::detail
