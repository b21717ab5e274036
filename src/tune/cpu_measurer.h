// Trials on the CPU: one group at a time on this machine's cores, its weights not in the cache
// unless it holds the whole model's.
#pragma once

#include <deque>

#include "src/kernels/cpu/kernel.h"
#include "src/tune/problem.h"
#include "src/tune/trial.h"

namespace tensor {

/// For a worker's process: `problems` are those of its candidates' tasks.
Measuring cpu_measuring(const cpu::Machine& machine, const std::deque<Problem>& problems);

}  // namespace tensor
