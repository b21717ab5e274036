#include "src/runtime/device_memory.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "src/core/rounding.h"
#include "src/kernels/cuda/driver/graph.h"

namespace tensor::detail {
namespace {

// Freed blocks by size, kept because the driver takes long for new ones and stops the device to
// free old ones. Whoever frees a block has waited for the work on it.
class Blocks {
 public:
  explicit Blocks(cuda::Device& device) : device_(device) {}

  cuda::Buffer take(std::int64_t bytes) {
    const std::int64_t wanted = rounded(bytes);
    {
      const std::lock_guard lock(mutex_);
      const auto found = free_.lower_bound(wanted);
      if (found != free_.end() && found->first <= wanted + wanted / kMostWaste) {
        cuda::Buffer block = std::move(found->second);
        free_.erase(found);
        free_bytes_ -= block.bytes();
        return block;
      }
    }
    try {
      return cuda::Buffer(device_, wanted);
    } catch (const UserError&) {
      const bool forgot = forget_eager_programs();  // what they had comes here, if it is kept
      if (!release() && !forgot) throw;
    }
    return cuda::Buffer(device_, wanted);
  }

  void give_back(cuda::Buffer block) {
    const std::lock_guard lock(mutex_);
    if (free_bytes_ + block.bytes() > device_.info().memory_bytes / kMostKept) return;
    free_bytes_ += block.bytes();
    free_.emplace(block.bytes(), std::move(block));
  }

  /// Gives all of it to the driver. False if there was nothing.
  bool release() {
    std::multimap<std::int64_t, cuda::Buffer> freed;
    const std::lock_guard lock(mutex_);
    freed.swap(free_);
    free_bytes_ = 0;
    return !freed.empty();
  }

 private:
  static constexpr std::int64_t kMostWaste = 8;  // an eighth of a block
  static constexpr std::int64_t kMostKept = 4;   // a quarter of the device

  static std::int64_t rounded(std::int64_t bytes) {
    constexpr std::int64_t kSmall = 512, kLarge = 1 << 20;
    const std::int64_t unit = bytes < kLarge ? kSmall : kLarge / 8;
    return std::max(round_up(bytes, unit), unit);
  }

  cuda::Device& device_;
  std::mutex mutex_;
  std::multimap<std::int64_t, cuda::Buffer> free_;
  std::int64_t free_bytes_ = 0;
};

// Copies go through two pieces of page-locked memory in turn: one is filled or emptied while the
// device copies the other.
class Staging {
 public:
  explicit Staging(cuda::Device& device) : halves_{Half(device), Half(device)} {}

  void upload(cuda::Address to, std::span<const std::byte> from) {
    each(from.size(), [&](Half& half, std::size_t at, std::size_t bytes) {
      half.stream.synchronize();
      std::memcpy(half.memory.data(), from.data() + at, bytes);
      cuda::upload(half.stream, to + at, half.memory.data(), static_cast<std::int64_t>(bytes));
    });
    for (Half& half : halves_) half.stream.synchronize();
  }

  void download(std::span<std::byte> to, cuda::Address from) {
    std::span<std::byte> arriving[2];
    const auto take = [&](std::size_t i) {
      halves_[i].stream.synchronize();
      std::copy_n(halves_[i].memory.data(), arriving[i].size(), arriving[i].data());
      arriving[i] = {};
    };
    each(to.size(), [&](Half& half, std::size_t at, std::size_t bytes) {
      const auto i = static_cast<std::size_t>(&half - halves_);
      take(i);
      arriving[i] = to.subspan(at, bytes);
      cuda::download(half.stream, half.memory.data(), from + at, static_cast<std::int64_t>(bytes));
    });
    take(0), take(1);
  }

 private:
  static constexpr std::size_t kPiece = 2 << 20;
  struct Half {
    explicit Half(cuda::Device& device)
        : memory(device, static_cast<std::int64_t>(kPiece)), stream(device) {}
    cuda::PinnedBuffer memory;
    cuda::Stream stream;
  };

  template <class F>
  void each(std::size_t bytes, const F& piece) {
    for (std::size_t at = 0, i = 0; at < bytes; at += kPiece, i = 1 - i)
      piece(halves_[i], at, std::min(kPiece, bytes - at));
  }

  Half halves_[2];
};

struct Kept {
  explicit Kept(cuda::Device& device) : blocks(device) {}
  Blocks blocks;
  Pool<Staging> staging;
  Pool<cuda::Stream> streams;
};

// Never destroyed: tensors may outlive every other static object, and the driver ends before.
Kept& kept(cuda::Device& device) {
  static std::mutex mutex;
  static auto& all = *new std::map<const cuda::Device*, Kept>;
  const std::lock_guard lock(mutex);
  return all.try_emplace(&device, device).first->second;
}

}  // namespace

std::shared_ptr<Storage> allocate_on(const Device& where, std::int64_t bytes) {
  cuda::Device& device = cuda::Device::get(where.index());
  Kept& mine = kept(device);
  // The owner of the block gives it back.
  struct Owner {
    Blocks& blocks;
    cuda::Buffer block;
    ~Owner() { blocks.give_back(std::move(block)); }
  };
  const auto owner = std::shared_ptr<Owner>(
      new Owner{mine.blocks, mine.blocks.take(std::max(bytes, std::int64_t{1}))});
  auto storage = std::make_shared<Storage>();
  storage->data = pointer(owner->block.address());
  storage->owner = owner;
  storage->device = where;
  return storage;
}

void upload(const Device& where, std::byte* to, std::span<const std::byte> from) {
  cuda::Device& device = cuda::Device::get(where.index());
  kept(device)
      .staging.take([&] { return std::make_unique<Staging>(device); })
      ->upload(address_of(to), from);
}

void download(const Device& where, const std::byte* from, std::span<std::byte> to) {
  cuda::Device& device = cuda::Device::get(where.index());
  kept(device)
      .staging.take([&] { return std::make_unique<Staging>(device); })
      ->download(to, address_of(from));
}

Tensor device_tensor(const std::shared_ptr<Storage>& storage, cuda::Address data,
                     const Shape& shape, DType dtype, const Strides& strides) {
  auto moved = std::make_shared<Storage>();
  moved->owner = storage->owner;
  moved->device = storage->device;
  moved->data = pointer(data);
  TensorImpl impl;
  impl.type = {shape, dtype};
  impl.strides = strides;
  impl.storage = std::move(moved);
  return make_tensor(std::move(impl));
}

Pool<cuda::Stream>::Lease take_stream(cuda::Device& device) {
  return kept(device).streams.take([&] { return std::make_unique<cuda::Stream>(device); });
}

}  // namespace tensor::detail
