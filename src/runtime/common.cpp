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

Arenas& Common::arenas(const Device& device) {
  const std::lock_guard lock(mutex_);
  for (Arenas& arenas : arenas_)
    if (arenas.device() == device) return arenas;
  return arenas_.emplace_back(device);
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
  const Arenas& memory = arenas(program.target.device);
  const bool is_arena_shared = memory.users() > 1;
  Held own, others;
  add_held(own, program);
  {
    const std::lock_guard lock(mutex_);
    for (const Program* other : programs_)
      if (other != &program) add_held(others, *other);
  }
  DeviceMemory result;
  result.weights = sum(own), result.arena = memory.bytes();
  result.other = program.engine->other_bytes();
  // What the host has not derived is the function's own.
  const auto is_shared = [&](const Storage* storage) {
    return others.contains(storage) || (!storage->device.is_cuda() && !storage->origin);
  };
  for (const auto& [storage, bytes] : own)
    if (is_shared(storage)) result.shared += bytes;
  if (is_arena_shared) result.shared += result.arena;
  return result;
}

void Common::keep_within(std::int64_t limit, const Program& program,
                         const std::function<bool()>& make_room) {
  if (limit <= 0) return;
  const Device& device = program.target.device;
  Arenas& memory = arenas(device);
  for (;;) {
    Held held;
    std::int64_t other = 0;
    {
      const std::lock_guard lock(mutex_);
      for (const Program* one : programs_) {
        if (!(one->target.device == device)) continue;
        add_held(held, *one);
        other += one->engine->other_bytes();
      }
    }
    const std::int64_t weights = sum(held), arena = memory.bytes(true);
    if (weights + arena + other <= limit) return memory.limit(limit - weights - other);
    if (make_room && make_room()) continue;
    fail("compile", "got memory_limit ", limit, " bytes, but executables that share on ", device,
         " hold ", weights, " bytes of weights, ", arena, " of arena and ", other,
         " of copies of inputs and outputs: allow them more, let go of other executables, or ",
         "compile for smaller inputs or in a narrower dtype");
  }
}

}  // namespace tensor::detail
