// How attention on the CPU is cut into blocks: as usual, and all that may be tried.
#pragma once

#include <cstdint>

#include "src/kernels/cpu/kernel.h"

namespace tensor::cpu {

struct AttentionExtents {
  std::int64_t batches = 1, queries = 1, keys = 1, depth = 1, features = 1;
  bool has_tiles = false;  // products by tile instructions, whose rows are 16
};

/// A batch in parts, which threads work on by themselves; a part in blocks of queries, the keys in
/// blocks, whose scores are a tile in the cache.
struct AttentionBlocks {
  std::int64_t parts = 1, queries = 1, keys = 1;
};

/// Blocks of nearly equal size; a batch is cut into parts, each of which packs all keys for itself,
/// only as far as the threads need it.
AttentionBlocks usual_blocks(const AttentionExtents& extents, int threads);

/// `usual_us`: what the usual blocks are estimated to take.
Space attention_space(const AttentionExtents& extents, const Machine& machine, double usual_us);
AttentionBlocks blocks_of(const Schedule& schedule);

}  // namespace tensor::cpu
