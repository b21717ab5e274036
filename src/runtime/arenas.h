// Arenas: the memory of calls, shared by programs of any sizes, and all that a device's calls take.
#pragma once

#include <condition_variable>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "src/core/storage.h"

namespace tensor::detail {

/// Blocks of one kind of memory, each for one call at a time, kept for the next one. There are as
/// many as calls were ever made at a time, whatever programs these are of: one that is too small
/// for a call is replaced. Taking one that fits, and giving it back, allocates nothing.
class Arenas {
 public:
  using Allocate = std::function<std::shared_ptr<Storage>(std::int64_t bytes)>;
  explicit Arenas(Allocate allocate) : allocate_(std::move(allocate)) {}

  /// A block until the end of the lease's life.
  class Lease {
   public:
    Lease(Arenas& arenas, std::shared_ptr<Storage> block, std::int64_t bytes)
        : arenas_(arenas), block_(std::move(block)), bytes_(bytes) {}
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (block_) arenas_.give_back(std::move(block_), bytes_);
    }
    const std::shared_ptr<Storage>& block() const { return block_; }

   private:
    Arenas& arenas_;
    std::shared_ptr<Storage> block_;
    std::int64_t bytes_;
  };
  /// Of at least so many bytes; the one that lies at `preferred`, if it is free and fits.
  Lease take(std::int64_t bytes, const std::byte* preferred = nullptr);

  /// Somebody whose calls need so much, as long as it lives. Blocks larger than anybody needs go.
  class Need {
   public:
    Need(Arenas& arenas, std::int64_t bytes);
    ~Need();
    Need(const Need&) = delete;
    Need& operator=(const Need&) = delete;

   private:
    Arenas& arenas_;
    std::int64_t bytes_;
  };

  /// Of all blocks; at least what one call of the program that needs most takes, if `at_least_one`.
  std::int64_t bytes(bool at_least_one = false) const;
  std::size_t users() const;
  /// Calls wait for each other rather than take more than this together.
  void limit(std::int64_t bytes);
  bool is_limited() const;

 private:
  struct Block {
    std::shared_ptr<Storage> storage;
    std::int64_t bytes = 0;
  };

  bool fits(std::int64_t bytes) const { return bytes_ + bytes <= most_ || blocks_ == 0; }
  std::size_t choose(std::int64_t bytes, const std::byte* preferred) const;
  void give_back(std::shared_ptr<Storage> storage, std::int64_t bytes);
  std::int64_t largest_need() const { return needs_.empty() ? 0 : *needs_.rbegin(); }
  void forget(std::int64_t bytes);

  const Allocate allocate_;
  mutable std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Block> free_;
  std::multiset<std::int64_t> needs_;
  std::size_t blocks_ = 0;  // free ones and those in use, and their bytes
  std::int64_t bytes_ = 0, most_ = std::numeric_limits<std::int64_t>::max();
};

/// What the calls of the programs of one device take.
struct CallMemory {
  explicit CallMemory(const Device& device);

  const Device device;
  Arenas values;   // what lies between the groups, and scratch
  Arenas mirrors;  // on a GPU, of the operands that the caller has on the host
  Arenas pinned;   // on the host, what copies to and from a GPU go through
};

}  // namespace tensor::detail
