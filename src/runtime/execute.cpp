// execute: one call of a program, in a context from its pool.
#include <algorithm>
#include <functional>

#include "src/kernels/cpu/strided_copy.h"
#include "src/runtime/program.h"

namespace tensor::detail {
namespace {

void check_types(std::string_view what, const std::vector<Tensor>& got,
                 const std::vector<TensorType>& need) {
  if (got.size() != need.size())
    fail("run", "got ", got.size(), ' ', what, "s, need ", need.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(got[i].type() == need[i]))
      fail("run", what, ' ', i, " is ", got[i].type(), ", this executable was compiled for ",
           need[i], ": compile it again for other types");
}

// From the first to the last byte of a tensor, whatever lies between its elements.
struct Extent {
  const std::byte *begin = nullptr, *end = nullptr;

  explicit Extent(const Tensor& x) {
    const TensorImpl& t = stored(x);
    if (x.size() == 0) return;
    std::int64_t first = 0, last = 0;
    for (int axis = 0; axis < t.type.shape.rank(); ++axis) {
      const std::int64_t reach = (t.type.shape[axis] - 1) * t.strides[axis];
      (reach < 0 ? first : last) += reach;
    }
    begin = t.first() + first * item_size(t.type.dtype);
    end = t.first() + (last + 1) * item_size(t.type.dtype);
  }
  bool meets(const Extent& other) const {
    constexpr std::less<const std::byte*> before;
    return before(begin, other.end) && before(other.begin, end);
  }
};

// Kernels write outputs while inputs and other outputs are still read.
void check_apart(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Extent extent(outputs[i]);
    const auto check = [&](std::string_view what, std::size_t index, const Tensor& other) {
      if (extent.meets(Extent(other)))
        fail("run", "output ", i, " lies in the memory of ", what, ' ', index,
             ", need memory of its own: use empty(shape, dtype)");
    };
    for (std::size_t k = 0; k < inputs.size(); ++k) check("input", k, inputs[k]);
    for (std::size_t k = 0; k < i; ++k) check("output", k, outputs[k]);
  }
}

std::unique_ptr<Context> new_context(const Program& program) {
  auto context = std::make_unique<Context>();
  context->arena = allocate(program.memory.bytes + program.scratch_bytes);
  context->packed.resize(program.inputs.size());
  context->inputs.resize(program.inputs.size());
  context->outputs.resize(program.outputs.size());
  std::size_t most = 0;
  for (const Step& step : program.steps) most = std::max(most, step.operands.size());
  context->operands.resize(most);
  return context;
}

// Kernels are compiled for contiguous inputs.
std::byte* contiguous(const Tensor& x, std::shared_ptr<Storage>& packed, int threads) {
  const TensorImpl& t = stored(x);
  if (x.is_contiguous()) return t.first();
  const std::int64_t item = item_size(t.type.dtype);
  if (!packed) packed = allocate(x.size() * item);
  cpu::StridedCopy(t.type.shape, t.strides, row_major(t.type.shape), item)
      .run(t.first(), packed->data, threads);
  return packed->data;
}

std::byte* address(const Program& program, const Context& context, const Location& location) {
  switch (location.place) {
    case Place::arena:
      return context.arena->data + location.offset;
    case Place::input:
      return context.inputs[location.index] + location.offset;
    case Place::output:
      return context.outputs[location.index] + location.offset;
    case Place::constant:
      return const_cast<std::byte*>(program.constants[location.index]) + location.offset;
  }
  return nullptr;
}

}  // namespace

void execute(const Program& program, const std::vector<Tensor>& inputs,
             std::vector<Tensor>& outputs, const StepObserver& observe) {
  check_types("input", inputs, program.inputs);
  check_types("output", outputs, program.outputs);
  for (const Tensor& x : outputs)
    if (!x.is_contiguous() || x.is_read_only())
      fail("run", "outputs must be contiguous and writable: use empty(shape, dtype)");
  check_apart(inputs, outputs);

  const auto context = program.contexts.take([&] { return new_context(program); });
  for (std::size_t i = 0; i < inputs.size(); ++i)
    context->inputs[i] = contiguous(inputs[i], context->packed[i], program.machine.threads);
  for (std::size_t i = 0; i < outputs.size(); ++i) context->outputs[i] = stored(outputs[i]).first();
  std::byte* const scratch = context->arena->data + program.memory.bytes;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    for (std::size_t k = 0; k < step.operands.size(); ++k)
      context->operands[k] = address(program, *context, step.operands[k]);
    if (observe) observe(i, true);
    step.kernel->run({context->operands.data(), step.operands.size()}, scratch);
    if (observe) observe(i, false);
  }
}

}  // namespace tensor::detail
