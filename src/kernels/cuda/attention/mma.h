// The family of attention with mma.sync: two products and the softmax between them as one kernel,
// on every GPU with Tensor Cores but Hopper, which has a family of its own.
#pragma once

#include <string>
#include <vector>

#include "src/core/rounding.h"
#include "src/kernels/cuda/attention/match.h"

namespace tensor::cuda {

/// See templates/attention_mma.h.
struct AttentionMmaSchedule {
  int warps = 4;   // of a block
  int slabs = 1;   // of 16 queries, of a warp
  int block = 64;  // keys
  int stages = 2;  // blocks in shared memory

  std::string name() const;  // "64x64_s2", with "_w4" where a warp has several slabs
  int threads() const { return 32 * warps; }
  int queries() const { return 16 * warps * slabs; }  // of a block
  /// Why no kernel has such numbers for so many keys, empty if one may.
  std::string fault(std::int64_t keys, const Machine& machine) const;
};

/// Of a tile of 16-bit rows in shared memory (templates/attention_scores.h).
std::int64_t attention_tile_bytes(std::int64_t rows, std::int64_t width);
/// How many blocks a multiprocessor holds whose threads have so many registers: by these, threads
/// and shared memory.
double resident_blocks(const AttentionMmaSchedule& schedule, double registers,
                       std::int64_t shared_bytes, const DeviceInfo& device);
double resident_blocks(const AttentionProblem& problem, const AttentionMmaSchedule& schedule,
                       const Machine& machine);
/// A row or a column count filled up to whole tiles of mma.sync.
inline std::int64_t filled(std::int64_t extent) { return round_up(extent, 16); }
/// Whether queries stay in registers from block to block.
bool keeps_queries(const AttentionProblem& p, const AttentionMmaSchedule& s);
/// Microseconds from the kernel's start to its end.
TimeParts model_attention_mma(const AttentionProblem& problem, const AttentionMmaSchedule& schedule,
                              const Machine& machine);
/// All schedules that fit, the one with the least time by the model first.
std::vector<AttentionMmaSchedule> attention_mma_schedules(const AttentionProblem& problem,
                                                          const Machine& machine);

/// All that may be tried (attention_mma_space.cpp), and what one of its schedules stands for.
Space attention_mma_space(const AttentionProblem& problem, const Machine& machine);
AttentionMmaSchedule attention_mma_schedule_of(const Schedule& schedule);
/// The sketches for so many keys, of which a block has `most` at most where there are several; and
/// a schedule as one of theirs.
std::vector<Sketch> attention_mma_sketches(std::int64_t keys, int most, const Machine& machine);
Schedule named(const AttentionMmaSchedule& schedule, std::int64_t keys);

/// Lowers a group that the family accepts with a schedule.
Lowered lower_attention_mma(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                            const AttentionMmaSchedule& schedule);

}  // namespace tensor::cuda
