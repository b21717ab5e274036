// The family of attention in float32 on the ordinary cores: two products and the softmax between
// them as one kernel, exact on every GPU.
#pragma once

#include <string>
#include <vector>

#include "src/kernels/cuda/attention/match.h"

namespace tensor::cuda {

/// See templates/attention_plain.h.
struct AttentionPlainSchedule {
  int rows = 16;   // queries of a warp
  int warps = 1;   // of a slice
  int slices = 4;  // of warps, which share the keys of a block
  int keys = 32;   // of a slice in a block
  int stages = 2;  // blocks in shared memory

  std::string name() const;  // "20x224_s1_w7": queries and keys of a block, stages, slices
  int threads() const { return 32 * warps * slices; }
  int queries() const { return rows * warps; }  // of a block
  int block() const { return keys * slices; }
};

/// What ptxas is held to, for a thread.
int attention_plain_registers(const AttentionProblem& problem,
                              const AttentionPlainSchedule& schedule);
/// How many blocks a multiprocessor holds: by registers, threads and shared memory.
std::int64_t resident_blocks(const AttentionProblem& problem,
                             const AttentionPlainSchedule& schedule, const Machine& machine);
/// Microseconds from the kernel's start to its end.
TimeParts model_attention_plain(const AttentionProblem& problem,
                                const AttentionPlainSchedule& schedule, const Machine& machine);
/// All schedules worth asking for, the one with the least time by the model first.
std::vector<AttentionPlainSchedule> attention_plain_schedules(const AttentionProblem& problem,
                                                              const Machine& machine);

/// All that may be tried (plain_space.cpp), and what one of its schedules stands for.
Space attention_plain_space(const AttentionProblem& problem, const Machine& machine);
AttentionPlainSchedule attention_plain_schedule_of(const Schedule& schedule);

/// Lowers a group that the family accepts with a schedule.
Lowered lower_attention_plain(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                              const AttentionPlainSchedule& schedule);

}  // namespace tensor::cuda
