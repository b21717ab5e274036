// Program: what an Executable runs. Kernels in order, and where each finds its operands.
#pragma once

#include <memory>
#include <vector>

#include "src/core/pool.h"
#include "src/kernels/cpu/kernel.h"
#include "src/runtime/memory_plan.h"
#include "tensor/compile.h"

namespace tensor::detail {

enum class Place : std::uint8_t { arena, input, output, constant };

/// The first element of an operand: byte `offset` of the arena, of an input or output, or of a
/// constant.
struct Location {
  Place place = Place::arena;
  std::size_t index = 0;  // which input, output or constant
  std::int64_t offset = 0;
};

struct Step {
  std::unique_ptr<cpu::Kernel> kernel;
  std::vector<Location> operands;
  int group = -1;  // in the plan; -1 for the copy of an output that is a view
};

/// The memory of one call at a time, kept for the next one.
struct Context {
  std::shared_ptr<Storage> arena;                // intermediate values, then the kernels' scratch
  std::vector<std::shared_ptr<Storage>> packed;  // of inputs that were not contiguous some time
  std::vector<std::byte*> inputs, outputs;       // their first elements
  std::vector<std::byte*> operands;              // of the step that runs
};

struct Program {
  LaidOutGraph laid;
  FusionPlan plan;
  cpu::Machine machine;
  MemoryPlan memory;
  std::vector<Step> steps;
  std::vector<const std::byte*> constants;  // of laid.graph's nodes, which keep them alive
  std::vector<TensorType> inputs, outputs;
  std::int64_t scratch_bytes = 0;

  mutable Pool<Context> contexts;
};

/// Lowers a plan: builds every group's kernel and lays out the arena.
std::shared_ptr<const Program> link(LaidOutGraph laid, FusionPlan plan,
                                    const cpu::Machine& machine);

/// Called before and after every step, with its number.
using StepObserver = std::function<void(std::size_t step, bool begins)>;

/// Runs a program; the tensors are checked against its types. Allocates nothing in a context that a
/// call has used before, but for kernels of the reference family and what libraries do inside.
void execute(const Program& program, const std::vector<Tensor>& inputs,
             std::vector<Tensor>& outputs, const StepObserver& observe = nullptr);

}  // namespace tensor::detail
