#include "src/core/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/seed.h"

namespace {

using tensor::detail::allocate_block;
using tensor::detail::kept_bytes;
using tensor::detail::kLargestKept;
using tensor::detail::kLeastKept;
using tensor::detail::kMostKept;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

// Whether this build keeps blocks at all.
bool keeps() {
  allocate_block(kMegabyte);
  return kept_bytes() > 0;
}

TEST(Memory, AFreedBlockServesTheNext) {
  if (!keeps()) GTEST_SKIP() << "AddressSanitizer sees the use of freed blocks: none are kept";
  const void* const first = allocate_block(kMegabyte).get();
  EXPECT_EQ(allocate_block(kMegabyte).get(), first);
  EXPECT_EQ(allocate_block(kMegabyte - kMegabyte / 8).get(), first) << "a little less";
  const auto taken = allocate_block(kMegabyte);
  EXPECT_EQ(taken.get(), first);
  EXPECT_NE(allocate_block(kMegabyte).get(), first) << "it is in use";
}

TEST(Memory, LittleLiesIdle) {
  std::vector<std::shared_ptr<void>> blocks;
  std::mt19937_64 random(tensor::check::seed());
  for (int i = 0; i < 100; ++i) blocks.push_back(allocate_block(kMegabyte * (1 + random() % 8)));
  blocks.clear();
  EXPECT_LE(kept_bytes(), kMostKept);
  const std::size_t before = kept_bytes();
  allocate_block(kLargestKept + 64);
  allocate_block(kLeastKept - 64);
  EXPECT_EQ(kept_bytes(), before) << "these are not kept";
}

TEST(Memory, MoreThanThereIs) {
  EXPECT_EQ(allocate_block(SIZE_MAX), nullptr);
  EXPECT_EQ(allocate_block(SIZE_MAX / 2), nullptr);
  EXPECT_NE(allocate_block(0), nullptr);
}

// Every block is one thread's alone, aligned, and as long as it must be.
TEST(Memory, ThreadsShareNone) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(tensor::check::seed() + static_cast<std::uint64_t>(t));
      const int mark = t + 1;
      for (int round = 0; round < 60; ++round) {
        const std::size_t bytes = kLeastKept / 2 + random() % (2 * kMegabyte);
        const auto block = allocate_block(bytes);
        auto* const p = static_cast<unsigned char*>(block.get());
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0u);
        std::memset(p, mark, bytes);
        std::this_thread::yield();
        ASSERT_TRUE(std::all_of(p, p + bytes, [&](unsigned char x) { return x == mark; }));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
