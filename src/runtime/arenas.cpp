#include "src/runtime/arenas.h"

#include <algorithm>
#include <tuple>

#include "src/core/device_seam.h"
#include "src/kernels/cuda/driver/graph.h"

namespace tensor::detail {
namespace {

Arenas::Allocate allocator(const Device& device) {
  return [=](std::int64_t bytes) {
    return device.is_cuda() ? allocate_on(device, bytes) : allocate(bytes);
  };
}

std::shared_ptr<Storage> allocate_pinned(const Device& device, std::int64_t bytes) {
  auto buffer = std::make_shared<cuda::PinnedBuffer>(cuda::Device::get(device.index()), bytes);
  auto storage = std::make_shared<Storage>();
  storage->data = buffer->data();
  storage->owner = std::move(buffer);
  return storage;
}

}  // namespace

CallMemory::CallMemory(const Device& on)
    : device(on),
      values(allocator(on)),
      mirrors(allocator(on)),
      pinned([on](std::int64_t bytes) { return allocate_pinned(on, bytes); }) {}

// The preferred one, else the smallest that fits, else the largest.
std::size_t Arenas::choose(std::int64_t bytes, const std::byte* preferred) const {
  const auto rank = [&](const Block& block) {
    const bool is_enough = block.bytes >= bytes;
    return std::tuple(is_enough, is_enough && block.storage->data == preferred,
                      is_enough ? -block.bytes : block.bytes);
  };
  const auto best =
      std::max_element(free_.begin(), free_.end(),
                       [&](const Block& a, const Block& b) { return rank(a) < rank(b); });
  return static_cast<std::size_t>(best - free_.begin());
}

Arenas::Lease Arenas::take(std::int64_t bytes, const std::byte* preferred) {
  {
    std::unique_lock lock(mutex_);
    do {
      freed_.wait(lock, [&] { return !free_.empty() || fits(bytes); });
      if (free_.empty()) break;
      const auto chosen = free_.begin() + static_cast<std::ptrdiff_t>(choose(bytes, preferred));
      const Block block = std::move(*chosen);
      free_.erase(chosen);
      if (block.bytes >= bytes) return Lease(*this, block.storage, block.bytes);
      forget(block.bytes);  // it goes before a larger one is made
    } while (!fits(bytes));
    ++blocks_, bytes_ += bytes;
    free_.reserve(blocks_);  // so that it can be given back
  }
  try {
    return Lease(*this, allocate_(bytes), bytes);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    forget(bytes);
    throw;
  }
}

void Arenas::forget(std::int64_t bytes) {
  --blocks_, bytes_ -= bytes;
  freed_.notify_all();
}

void Arenas::give_back(std::shared_ptr<Storage> storage, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > largest_need() || bytes_ > most_) {
    storage = nullptr;
    return forget(bytes);
  }
  free_.push_back({std::move(storage), bytes});
  freed_.notify_one();
}

Arenas::Need::Need(Arenas& arenas, std::int64_t bytes) : arenas_(arenas), bytes_(bytes) {
  const std::lock_guard lock(arenas_.mutex_);
  arenas_.needs_.insert(bytes_);
}

Arenas::Need::~Need() {
  const std::lock_guard lock(arenas_.mutex_);
  arenas_.needs_.erase(arenas_.needs_.find(bytes_));
  std::erase_if(arenas_.free_, [&](const Block& block) {
    const bool goes = block.bytes > arenas_.largest_need();
    if (goes) arenas_.forget(block.bytes);
    return goes;
  });
}

std::int64_t Arenas::bytes(bool at_least_one) const {
  const std::lock_guard lock(mutex_);
  return at_least_one ? std::max(bytes_, largest_need()) : bytes_;
}

std::size_t Arenas::users() const {
  const std::lock_guard lock(mutex_);
  return needs_.size();
}

void Arenas::limit(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  most_ = bytes;
  freed_.notify_all();
}

bool Arenas::is_limited() const {
  const std::lock_guard lock(mutex_);
  return most_ != std::numeric_limits<std::int64_t>::max();
}

}  // namespace tensor::detail
