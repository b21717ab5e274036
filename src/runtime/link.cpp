// link: from a fusion plan to a program on its device; execute: one call of it.
#include <functional>

#include "src/core/storage.h"
#include "src/runtime/program.h"
#include "tensor/creation.h"

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

}  // namespace

std::shared_ptr<const Program> link(LaidOutGraph laid, FusionPlan plan, Target target) {
  const auto program = std::make_shared<Program>();
  program->laid = std::move(laid);
  program->plan = std::move(plan);
  program->target = std::move(target);
  program->placement = place_values(program->laid, program->plan);
  const Graph& graph = program->laid.graph;
  for (const ValueId id : graph.inputs()) program->inputs.push_back(graph.type(id));
  for (const ValueId id : graph.outputs()) program->outputs.push_back(graph.type(id));
  program->engine = program->target.build(*program);
  return program;
}

void execute(const Program& program, const std::vector<Tensor>& inputs,
             std::vector<Tensor>& outputs) {
  check_types("input", inputs, program.inputs);
  check_types("output", outputs, program.outputs);
  for (const Tensor& x : outputs)
    if (!x.is_contiguous() || x.is_read_only())
      fail("run", "outputs must be contiguous and writable: use empty(shape, dtype)");
  check_apart(inputs, outputs);
  program.engine->run(inputs, outputs);
}

std::vector<Tensor> fresh_outputs(const Program& program) {
  std::vector<Tensor> outputs;
  for (const TensorType& type : program.outputs) outputs.push_back(empty(type.shape, type.dtype));
  return outputs;
}

}  // namespace tensor::detail
