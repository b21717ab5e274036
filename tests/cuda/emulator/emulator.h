// emulate: runs a group's kernels on host memory, without a GPU. The kernels' own text is compiled
// for the host, and every load, store, barrier, copy and product is checked as it happens.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/kernels/cuda/family.h"
#include "tensor/tensor.h"
#include "tests/cuda/emulator/engine.h"

namespace tensor::emulator {

/// Memory of one operand: from its first element to behind its last.
struct Operand {
  std::span<std::byte> memory;
  bool is_constant = false;  // kernels may read it before wait_for_previous()
  bool is_written = false;
};

struct Options {
  int capability = 90;
  EngineOptions engine = {};
};

/// Runs the calls in order. `packed` are the constants that lowered.packed asks for. Throws Fault
/// where a kernel does what it must not: reads or writes outside of its operands, packed constants
/// and scratch; writes an operand that is only read; touches what the kernel ahead may still write
/// before wait_for_previous(); reads shared memory that was never written, or while a copy is under
/// way; goes through a misaligned pointer; waits for what cannot come; arrives too often.
void emulate(const cuda::Lowered& lowered, std::span<const Operand> operands,
             std::span<const Tensor> packed, const Options& options);

/// One launch, of memory that the arguments' pointers find by `base` (a pointer's address without
/// its bytes).
void emulate_call(const cuda::Call& call, const std::vector<Region>& regions,
                  const std::function<std::byte*(const cuda::Pointer&)>& base,
                  const Options& options);

}  // namespace tensor::emulator
