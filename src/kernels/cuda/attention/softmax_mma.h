// The family of attention's weights with mma.sync, where they themselves are wanted: a batched
// product and the softmax over its rows as one kernel, on every GPU with Tensor Cores.
#pragma once

#include <optional>
#include <vector>

#include "src/kernels/cuda/attention/mma.h"
#include "src/kernels/cuda/gemm/sm90.h"

namespace tensor::cuda {

/// See templates/softmax_mma.h.
using SoftmaxSchedule = AttentionMmaSchedule;

struct SoftmaxProblem {
  std::int64_t batches = 1, queries = 1, keys = 1, depth = 1;
  EpilogueWork before, after;  // the softmax, for each score

  int passes(const SoftmaxSchedule& schedule) const { return keys > schedule.block ? 2 : 1; }
  std::int64_t shared_bytes(const SoftmaxSchedule& schedule) const;
  /// Why there is no such kernel, empty if there is.
  std::string fault(const SoftmaxSchedule& schedule, const Machine& machine) const;
};
/// Of a group that the family takes, nullopt of others.
std::optional<SoftmaxProblem> softmax_problem(const Graph& graph, const Group& group);

/// How many blocks a multiprocessor holds: by registers, threads and shared memory.
double resident_blocks(const SoftmaxProblem& problem, const SoftmaxSchedule& schedule,
                       const Machine& machine);
/// Whether queries stay in registers from block to block.
bool keeps_queries(const SoftmaxProblem& p, const SoftmaxSchedule& s);
/// Microseconds from the kernel's start to its end.
TimeParts model_softmax_mma(const SoftmaxProblem& problem, const SoftmaxSchedule& schedule,
                            const Machine& machine);
/// All schedules that fit, the one with the least time by the model first.
std::vector<SoftmaxSchedule> softmax_mma_schedules(const SoftmaxProblem& problem,
                                                   const Machine& machine);

/// All that may be tried (softmax_mma_space.cpp).
Space softmax_mma_space(const SoftmaxProblem& problem, const Machine& machine);

/// Lowers a group that the family accepts with a schedule.
Lowered lower_softmax_mma(const LaidOutGraph& laid, const Group& group, const Machine& machine,
                          const SoftmaxSchedule& schedule);

}  // namespace tensor::cuda
