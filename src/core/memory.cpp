#include "src/core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <vector>

namespace tensor::detail {
namespace {

constexpr std::size_t kAlignment = 64, kHugePage = std::size_t{2} << 20;

struct Block {
  void* memory;
  std::size_t bytes;
};

// Of at least a huge page: aligned to such, and asks for them. Rows that lie far apart would need
// an entry of the address cache each, and the prefetcher stops at the end of a page.
Block fresh(std::size_t bytes) {
  const bool is_large = bytes >= kHugePage;
  // Not aligned_alloc, which need not take sizes that are no multiple of the alignment.
  void* memory = nullptr;
  if (posix_memalign(&memory, is_large ? kHugePage : kAlignment, std::max(bytes, kAlignment)))
    return {nullptr, 0};
  // Whole ones only: what follows may be another block's. Without them all works as well.
  if (is_large) madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return {memory, bytes};
}

// The blocks that lie idle, the latest last. Nobody waits for its lock, which another thread may
// hold while this one forks: who does not get it does without.
class Kept {
 public:
  /// One that is large enough, and by a quarter at most too large.
  Block take(std::size_t bytes) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return {nullptr, 0};
    const auto fits = [&](const Block& block) {
      return block.bytes >= bytes && block.bytes <= bytes + bytes / 4;
    };
    const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), fits);
    if (found == blocks_.rend()) return {nullptr, 0};
    const Block block = *found;
    blocks_.erase(std::next(found).base());
    total_ -= block.bytes;
    return block;
  }

  /// Whether it is kept; those that lay idle longest make room.
  bool keep(Block block) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    blocks_.push_back(block);
    total_ += block.bytes;
    std::size_t gone = 0;
    for (; total_ > kMostKept; ++gone) {
      total_ -= blocks_[gone].bytes;
      std::free(blocks_[gone].memory);
    }
    blocks_.erase(blocks_.begin(), blocks_.begin() + static_cast<std::ptrdiff_t>(gone));
    return true;
  }

  std::size_t total() {
    const std::unique_lock lock(mutex_);
    return total_;
  }

 private:
  std::mutex mutex_;
  std::vector<Block> blocks_ = [] {
    std::vector<Block> none;
    none.reserve(kMostKept / kLeastKept + 1);  // so that keep() allocates nothing
    return none;
  }();
  std::size_t total_ = 0;
};

// Never destroyed: tensors that are global variables are freed when the process ends.
Kept& kept() {
  static auto& result = *new Kept;
  return result;
}

// AddressSanitizer is to see the use of what was freed.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif

bool is_kept(std::size_t bytes) { return kKeeps && bytes >= kLeastKept && bytes <= kLargestKept; }

}  // namespace

std::shared_ptr<void> allocate_block(std::size_t bytes) {
  if (bytes > SIZE_MAX - kAlignment) return nullptr;
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  Block block = is_kept(bytes) ? kept().take(bytes) : Block{nullptr, 0};
  if (!block.memory) block = fresh(bytes);
  if (!block.memory) return nullptr;
  return {block.memory, [bytes = block.bytes](void* memory) {
            if (!is_kept(bytes) || !kept().keep({memory, bytes})) std::free(memory);
          }};
}

std::size_t kept_bytes() { return kept().total(); }

}  // namespace tensor::detail
