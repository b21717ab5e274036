#include "src/kernels/features.h"

#include <algorithm>
#include <cmath>

namespace tensor {
namespace {

struct Row {
  std::string_view name;
  double (*value)(const Features&);
};

// Of what is never negative; 0 for 0.
double log2_of(double x) { return std::log2(1 + std::max(x, 0.)); }

// Of times, which may be less than a microsecond.
double log2_us(double us) { return std::log2(0.01 + std::max(us, 0.)); }

double along(double extent, double tile) { return tile > 0 ? std::ceil(extent / tile) : 1; }

// The share of the tiles' extent that the problem fills.
double fill(double extent, double tile) {
  return tile > 0 ? extent / (along(extent, tile) * tile) : 1;
}

// Rounds of blocks, as many at a time as the processors hold.
double waves(const Features& f) { return f.blocks / (f.processors * f.resident); }

double steps(const Features& f) { return along(f.depth, f.tile_depth) / f.splits; }

constexpr Row kRows[] = {
    {"log2 batches", [](const Features& f) { return log2_of(f.batches); }},
    {"log2 rows", [](const Features& f) { return log2_of(f.rows); }},
    {"log2 columns", [](const Features& f) { return log2_of(f.columns); }},
    {"log2 depth", [](const Features& f) { return log2_of(f.depth); }},
    {"log2 second", [](const Features& f) { return log2_of(f.second); }},
    {"log2 flops", [](const Features& f) { return log2_of(f.flops); }},
    {"log2 memory bytes", [](const Features& f) { return log2_of(f.memory_bytes); }},
    {"log2 intensity",
     [](const Features& f) { return f.memory_bytes > 0 ? log2_of(f.flops / f.memory_bytes) : 0; }},
    {"item bytes", [](const Features& f) { return f.item_bytes; }},
    {"epilogue operations", [](const Features& f) { return f.operations; }},
    {"epilogue read bytes", [](const Features& f) { return f.read_bytes; }},
    {"epilogue written bytes", [](const Features& f) { return f.written_bytes; }},

    {"log2 tile rows", [](const Features& f) { return log2_of(f.tile_rows); }},
    {"log2 tile columns", [](const Features& f) { return log2_of(f.tile_columns); }},
    {"log2 tile depth", [](const Features& f) { return log2_of(f.tile_depth); }},
    {"log2 tile elements", [](const Features& f) { return log2_of(f.tile_rows * f.tile_columns); }},
    {"splits", [](const Features& f) { return f.splits; }},
    {"shares", [](const Features& f) { return f.shares; }},
    {"groups", [](const Features& f) { return f.groups; }},
    {"row blocks", [](const Features& f) { return f.row_blocks; }},
    {"stages", [](const Features& f) { return f.stages; }},
    {"threads", [](const Features& f) { return f.threads; }},
    {"registers", [](const Features& f) { return f.registers; }},
    {"shared KiB", [](const Features& f) { return f.shared_bytes / 1024; }},
    {"band", [](const Features& f) { return f.band; }},
    {"takes turns", [](const Features& f) { return f.takes_turns ? 1. : 0.; }},
    {"starts late", [](const Features& f) { return f.starts_late ? 1. : 0.; }},
    {"second kernel", [](const Features& f) { return f.has_second_kernel ? 1. : 0.; }},

    {"log2 blocks", [](const Features& f) { return log2_of(f.blocks); }},
    {"log2 steps", [](const Features& f) { return log2_of(steps(f)); }},
    {"steps a stage", [](const Features& f) { return f.stages > 0 ? steps(f) / f.stages : 0; }},
    {"resident blocks", [](const Features& f) { return f.resident; }},
    {"waves", [](const Features& f) { return waves(f); }},
    {"rounds", [](const Features& f) { return std::ceil(waves(f)); }},
    {"fill of the rounds", [](const Features& f) { return waves(f) / std::ceil(waves(f)); }},
    {"fill of rows", [](const Features& f) { return fill(f.rows, f.tile_rows); }},
    {"fill of columns", [](const Features& f) { return fill(f.columns, f.tile_columns); }},
    {"fill of depth", [](const Features& f) { return fill(f.depth, f.tile_depth); }},
    {"occupancy", [](const Features& f) { return f.resident * f.threads / f.most_threads; }},
    {"share of shared memory",
     [](const Features& f) {
       return f.most_shared_bytes > 0 ? f.resident * f.shared_bytes / f.most_shared_bytes : 0;
     }},
    {"log2 cache bytes", [](const Features& f) { return log2_of(f.cache_bytes); }},
    {"log2 operand bytes", [](const Features& f) { return log2_of(f.operand_bytes); }},
    {"log2 flops a cache byte",
     [](const Features& f) { return f.cache_bytes > 0 ? log2_of(f.flops / f.cache_bytes) : 0; }},
    {"log2 flops an operand byte",
     [](const Features& f) {
       return f.operand_bytes > 0 ? log2_of(f.flops / f.operand_bytes) : 0;
     }},
    {"log2 flops a block", [](const Features& f) { return log2_of(f.flops / f.blocks); }},

    {"log2 model us", [](const Features& f) { return log2_us(f.time.total); }},
    {"log2 multiply us", [](const Features& f) { return log2_us(f.time.multiply); }},
    {"log2 finish us", [](const Features& f) { return log2_us(f.time.finish); }},
    {"log2 memory us", [](const Features& f) { return log2_us(f.time.memory); }},
    {"log2 cache us", [](const Features& f) { return log2_us(f.time.cache); }},
    {"model us", [](const Features& f) { return f.time.total; }},

    // These names are a GPU's: models that were trained carry a checksum of them.
    {"multiprocessors", [](const Features& f) { return f.processors; }},
    {"tensor TFLOP/s", [](const Features& f) { return f.peak_tflops; }},
    {"memory GB/s", [](const Features& f) { return f.memory_gbps; }},
    {"cache GB/s", [](const Features& f) { return f.cache_gbps; }},
    {"clock GHz", [](const Features& f) { return f.clock_ghz; }},
};

// Of all families. A new one comes last: models that were trained before know it not.
constexpr std::string_view kSketches[] = {
    "cooperative",    "turns",       "swapped",        "split",      "shared_weights",
    "whole_rows",     "online",      "window_tma",     "window_mma", "window_plain",
    "register_tiles", "plain_tiles", "whole_rows_mma", "online_mma", "as_convolution",
    "as_product",     "streamed"};

}  // namespace

std::vector<float> Features::values() const {
  std::vector<float> result;
  for (const Row& row : kRows) result.push_back(static_cast<float>(row.value(*this)));
  for (const std::string_view name : kSketches) result.push_back(sketch == name ? 1.f : 0.f);
  return result;
}

std::span<const std::string> feature_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const Row& row : kRows) result.emplace_back(row.name);
    for (const std::string_view name : kSketches) result.push_back("is " + std::string(name));
    return result;
  }();
  return names;
}

}  // namespace tensor
