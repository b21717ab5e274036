// What a learned cost model sees of a candidate kernel, whichever family and device it is for.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensor {

/// An analytic model's time of a kernel in microseconds, and what it is made of: each as long as it
/// would take were there nothing else.
struct TimeParts {
  double total = 0;
  double multiply = 0;  // what the processors calculate for the products
  double finish = 0;    // what follows the products: exchanged sums, the epilogue
  double memory = 0;    // each operand once
  double cache = 0;     // what tiles read from the last-level cache
};

/// The facts of a problem, a schedule and a machine; 0 where something has no meaning.
struct Features {
  // The problem: [batches, rows, depth] by [batches, depth, columns], then maybe by [batches,
  // columns, second].
  double batches = 1, rows = 1, columns = 1, depth = 1, second = 0;
  double flops = 0;                          // multiplications and additions
  double memory_bytes = 0;                   // each operand and result once
  double item_bytes = 0;                     // of the operands of the products
  double operations = 0;                     // of the epilogue, for each result
  double read_bytes = 0, written_bytes = 0;  // by the epilogue, for each result

  // The schedule.
  std::string sketch;
  double tile_rows = 0, tile_columns = 0, tile_depth = 0;
  double splits = 1;      // blocks that share a tile's depth
  double shares = 1;      // blocks that share what they read
  double groups = 1;      // of threads that multiply together
  double row_blocks = 1;  // of rows, a group
  double stages = 0, threads = 0;
  double registers = 0;     // a thread, of sums and operands
  double shared_bytes = 0;  // a block
  double band = 0;          // tiles before the next columns
  bool takes_turns = false, starts_late = false, has_second_kernel = false;

  // How they fit.
  double blocks = 1;         // of the grid
  double resident = 1;       // blocks of a processor
  double cache_bytes = 0;    // that all tiles read
  double operand_bytes = 0;  // that instructions read from shared memory, of all blocks
  TimeParts time;

  // The machine. A cost model is of one kind of device, GPUs or CPUs.
  double processors = 1;         // a GPU's multiprocessors; on a CPU, the threads that run it
  double most_threads = 1;       // resident, a processor
  double most_shared_bytes = 0;  // of a processor
  double peak_tflops = 0;        // of products: by Tensor Cores in 16 bits; on a CPU, in f32
  double memory_gbps = 0, cache_gbps = 0, clock_ghz = 0;

  /// As many as feature_names(): logarithms of extents, bytes and times, shares as they are, and
  /// for every sketch whether it is this one.
  std::vector<float> values() const;
};

/// Raised when a family calculates a value otherwise: cost models that have learned from the former
/// values are refused then. tests/tune/features.txt has the values of some schedules.
inline constexpr int kFeaturesVersion = 3;

/// What each value is: "log2 rows".
std::span<const std::string> feature_names();

}  // namespace tensor
