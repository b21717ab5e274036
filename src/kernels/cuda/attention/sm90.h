// The family of attention on Hopper: two products and the softmax between them as one kernel.
#pragma once

#include <string>
#include <vector>

#include "src/kernels/cuda/attention/match.h"

namespace tensor::cuda {

/// See templates/attention_sm90.h.
struct AttentionSchedule {
  int groups = 1;  // of 128 threads, each with 64 queries at a time
  int tiles = 1;   // of 64 queries, that share what is copied of keys and values
  int block = 16;  // keys
  int stages = 1;  // blocks in shared memory
  int parts = 1;   // thread blocks that share the keys of the same queries, as a cluster

  std::string name() const;  // "128x208_s2"
  int threads() const { return 128 * groups + (groups > 1 ? 128 : 32); }
};

/// Microseconds from the kernel's start to its end.
TimeParts model_attention_sm90(const AttentionProblem& problem, const AttentionSchedule& schedule,
                               const Machine& machine);
/// All schedules that fit, the one with the least time by the model first.
std::vector<AttentionSchedule> attention_sm90_schedules(const AttentionProblem& problem,
                                                        const Machine& machine);

/// All that may be tried (attention_sm90_space.cpp), and what one of its schedules stands for.
Space attention_sm90_space(const AttentionProblem& problem, const Machine& machine);
AttentionSchedule attention_schedule_of(const Schedule& schedule);

/// Lowers a group that the family accepts with a schedule.
Lowered lower_attention_sm90(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                             const AttentionSchedule& schedule);

}  // namespace tensor::cuda
