// The emulated tensor memory accelerator, and copies by threads that arrive later.
#include <algorithm>
#include <cstring>

#include "src/kernels/cuda/tensor_map.h"
#include "tests/cuda/emulator/engine.h"

namespace tensor::emulator {
namespace {

constexpr u64 kMagic = 0x70616d726f736e65;
constexpr u32 kRowBytes = 128;

/// The 128-byte swizzle: 16-byte chunks of a row are exchanged by the row's number within eight.
u32 swizzled(u32 offset) { return offset ^ (offset >> 7 & 7) << 4; }

}  // namespace

cuda::TensorMapBytes map_bytes(const MapOnHost* map) {
  cuda::TensorMapBytes bytes{};
  bytes.words[0] = kMagic;
  bytes.words[1] = reinterpret_cast<std::uintptr_t>(map);
  return bytes;
}

const MapOnHost& Engine::map_of(const u64* words) {
  if (words[0] != kMagic) fault("uses a tensor map that is none");
  return *reinterpret_cast<const MapOnHost*>(words[1]);
}

void Engine::check_map(const u64* map) {
  called_from(__builtin_return_address(0));
  map_of(map);
}

void Engine::check_box(const MapOnHost& map, const emulated::BoxCopy& copy) {
  const cuda::TensorMapOf& view = map.view;
  if (static_cast<std::size_t>(copy.axes) != view.extents.size())
    fault("a box of " + std::to_string(copy.axes) + " axes of a tensor map of " +
          std::to_string(view.extents.size()));
  if (copy.is_image != view.im2col.has_value())
    fault(copy.is_image ? "load_pixels of a map without im2col" : "a box of an im2col map");
  const auto row = (view.im2col ? view.im2col->channels : view.box[0]) * item_size(view.dtype);
  if (view.swizzled && row != kRowBytes)
    fault("swizzled rows of " + std::to_string(row) + " bytes: need 128");
  if (copy.shared % kRowBytes != 0)
    fault("a box at byte " + std::to_string(copy.shared) +
          " of shared memory: need a multiple of 128");
}

void Engine::for_each_stretch(const MapOnHost& map, const emulated::BoxCopy& copy, u32 shared,
                              const Stretch& stretch) {
  const cuda::TensorMapOf& view = map.view;
  const std::int64_t item = item_size(view.dtype);
  const std::size_t rank = view.extents.size();
  const auto step = [&](std::size_t axis) { return view.steps.empty() ? 1 : view.steps[axis]; };
  std::vector<std::int64_t> at(copy.at, copy.at + rank);
  u32 offset = shared;
  // One row of a box along the first axis, in chunks of 16 bytes: what is outside has no memory.
  const auto row = [&](const std::vector<std::int64_t>& corner, std::int64_t elements) {
    std::byte* memory = map.memory;
    bool is_inside = true;
    for (std::size_t axis = 1; axis < rank; ++axis) {
      is_inside &= corner[axis] >= 0 && corner[axis] < view.extents[axis];
      memory += corner[axis] * view.stride_bytes[axis - 1];
    }
    for (std::int64_t byte = 0; byte < elements * item;
         byte += item, offset += static_cast<u32>(item)) {
      const std::int64_t column = corner[0] + byte / item;
      std::byte* element =
          is_inside && column >= 0 && column < view.extents[0] ? memory + column * item : nullptr;
      stretch(view.swizzled ? swizzled(offset) : offset, element, static_cast<u32>(item));
    }
  };
  if (!view.im2col) {
    std::vector<std::int64_t> count(rank), index(rank, 0);
    for (std::size_t axis = 0; axis < rank; ++axis)
      count[axis] = axis == 0 ? view.box[0] : (view.box[axis] + step(axis) - 1) / step(axis);
    for (bool more = true; more;) {
      std::vector<std::int64_t> corner = at;
      for (std::size_t axis = 1; axis < rank; ++axis) corner[axis] += index[axis] * step(axis);
      row(corner, count[0]);
      more = false;
      for (std::size_t axis = 1; axis < rank && !more; ++axis) {
        more = ++index[axis] < count[axis];
        if (!more) index[axis] = 0;
      }
    }
    return;
  }
  // Corners walk through the bounding box of every image, the fastest axis of space first.
  const cuda::TensorMapOf::Im2col& window = *view.im2col;
  const std::size_t space = rank - 2;
  for (int pixel = 0; pixel < window.pixels; ++pixel) {
    std::vector<std::int64_t> corner = at;
    for (std::size_t i = 0; i < space; ++i) corner[1 + i] += copy.shift[i];
    row(corner, window.channels);
    bool carries = true;
    for (std::size_t i = 0; i < space && carries; ++i) {
      at[1 + i] += step(1 + i);
      carries = at[1 + i] >= view.extents[1 + i] + window.upper[i];
      if (carries) at[1 + i] = window.lower[i];
    }
    if (carries) ++at[rank - 1];
  }
}

void Engine::load_box(const emulated::BoxCopy& copy) {
  called_from(__builtin_return_address(0));
  const MapOnHost& map = map_of(copy.map);
  check_box(map, copy);
  const auto bytes = static_cast<u32>(cuda::box_bytes(map.view));
  const Place to = resolve(copy.shared, "a box"), barrier = resolve(copy.barrier, "an mbarrier");
  for (const auto& block : blocks_) {
    if (copy.blocks == 0 ? block.get() != to.block : (copy.blocks >> block->rank & 1) == 0)
      continue;
    check_peer(*block, "a box");
    mbarrier_at({block.get(), barrier.offset});
    fault_if(block->shared.engine_write_fault(to.offset, bytes));
    block->shared.set(to.offset, bytes, ByteState::arriving);
    emulated::BoxCopy part = copy;
    part.shared = to.offset;
    part.barrier = barrier.offset;
    loads_.push_back({&map, part, block.get(), current_});
  }
  // The memory is looked at now, so that a fault names who asked.
  for_each_stretch(map, copy, to.offset, [&](u32, std::byte* element, u32 size) {
    if (element) check_global(element, size, false);
  });
}

void Engine::finish_load(const PendingLoad& load) {
  const MapOnHost& map = *load.map;
  SharedMemory& shared = load.block->shared;
  for_each_stretch(map, load.copy, load.copy.shared, [&](u32 to, std::byte* element, u32 size) {
    if (element)
      std::memcpy(shared.at(to), element, size);
    else
      std::memset(shared.at(to), 0, size);
  });
  const auto bytes = static_cast<u32>(cuda::box_bytes(map.view));
  shared.set(load.copy.shared, bytes, ByteState::visible);
  complete_bytes(load.block->mbarriers.at(load.copy.barrier), bytes);
}

void Engine::store_box(const emulated::BoxCopy& copy) {
  called_from(__builtin_return_address(0));
  const MapOnHost& map = map_of(copy.map);
  check_box(map, copy);
  if (copy.is_image || map.view.im2col) fault("stores of pixels are not emulated");
  const auto bytes = static_cast<u32>(cuda::box_bytes(map.view));
  SharedMemory& shared = current_->block->shared;
  // What is outside of the tensor goes nowhere, and need not have been written.
  for_each_stretch(map, copy, copy.shared, [&](u32 from, std::byte* element, u32 size) {
    if (!element) return;
    check_global(element, size, true);
    fault_if(shared.engine_read_fault(from, size));
  });
  shared.set(copy.shared, bytes, ByteState::leaving);
  current_->stores.push_back(copy);
}

void Engine::store_commit() {
  called_from(__builtin_return_address(0));
  current_->store_groups.push_back(std::move(current_->stores));
  current_->stores.clear();
}

void Engine::store_wait(u32 pending) {
  called_from(__builtin_return_address(0));
  SharedMemory& shared = current_->block->shared;
  auto& groups = current_->store_groups;
  for (; groups.size() > pending; groups.pop_front())
    for (const emulated::BoxCopy& copy : groups.front()) {
      const MapOnHost& map = map_of(copy.map);
      for_each_stretch(map, copy, copy.shared, [&](u32 from, std::byte* element, u32 size) {
        if (element) std::memcpy(element, shared.at(from), size);
      });
      shared.set(copy.shared, static_cast<u32>(cuda::box_bytes(map.view)), ByteState::visible);
    }
}

void Engine::fence_for_copies() {
  called_from(__builtin_return_address(0));
  SharedMemory& shared = current_->block->shared;
  for (const auto& [offset, bytes] : current_->unfenced)
    for (u32 i = offset; i < offset + bytes; ++i)
      if (shared.state(i) == ByteState::written) shared.set(i, 1, ByteState::visible);
  current_->unfenced.clear();
}

// ---- cp.async

void Engine::copy_later(u32 to, const void* from, u32 size, u32 bytes) {
  called_from(__builtin_return_address(0));
  if (bytes > size)
    fault("a copy of " + std::to_string(bytes) + " bytes into " + std::to_string(size));
  if (to % size != 0 || reinterpret_cast<std::uintptr_t>(from) % size != 0)
    fault("a copy of " + std::to_string(size) + " bytes that is not aligned to them");
  SharedMemory& shared = current_->block->shared;
  if (to >> 24 != 0) fault("a copy to another block");
  fault_if(shared.write_fault(to, size));
  Thread::LaterCopy copy{to, size, {}};
  if (bytes > 0) {
    check_global(from, bytes, false);
    std::memcpy(copy.data, from, bytes);
  }
  shared.set(to, size, ByteState::arriving);
  current_->copies.push_back(copy);
}

void Engine::copy_commit() {
  called_from(__builtin_return_address(0));
  current_->copy_groups.push_back(std::move(current_->copies));
  current_->copies.clear();
}

void Engine::copy_wait(u32 pending) {
  called_from(__builtin_return_address(0));
  SharedMemory& shared = current_->block->shared;
  for (; current_->copy_groups.size() > pending; current_->copy_groups.pop_front())
    for (const Thread::LaterCopy& copy : current_->copy_groups.front()) {
      std::memcpy(shared.at(copy.to), copy.data, copy.size);
      shared.set(copy.to, copy.size, ByteState::written);
      current_->unfenced.emplace_back(copy.to, copy.size);
    }
}

}  // namespace tensor::emulator
