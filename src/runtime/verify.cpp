// verify: every group's kernel against the reference kernels, from the reference's own inputs, so
// that the first kernel that is wrong is found and not what it spoils later.
#include <algorithm>
#include <iterator>

#include "src/core/loop.h"
#include "src/runtime/describe.h"
#include "src/runtime/program.h"
#include "src/runtime/rounding.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

using detail::Program;

// An uninitialised tensor whose elements lie as the layout says.
Tensor laid_out(const Layout& layout, DType dtype) {
  detail::TensorImpl impl = detail::impl(empty({num_elements(layout.shape)}, dtype));
  impl.type = {layout.shape, dtype};
  impl.strides = layout.strides;
  return detail::make_tensor(std::move(impl));
}

class Replay {
 public:
  Replay(const Program& program, const std::vector<Tensor>& inputs)
      : p_(program), graph_(program.laid.graph), values_(at(graph_.size())) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      values_[at(graph_.inputs()[i])] = inputs[i].to(Device()).copy();
    last_use_.resize(values_.size(), -1);
    for (int g = 0; g < static_cast<int>(p_.plan.groups.size()); ++g)
      for (const ValueId id : p_.plan.groups[static_cast<std::size_t>(g)].reads)
        last_use_[at(root(id))] = g;
  }

  std::vector<GroupCheck> run() {
    std::vector<GroupCheck> checks;
    for (std::size_t i = 0; i < p_.engine->steps().size(); ++i)
      if (p_.engine->steps()[i].group >= 0) checks.push_back(check(i));
    return checks;
  }

 private:
  ValueId root(ValueId id) const { return root_of(graph_, id); }

  // The reference value of any node whose root is known; views are made as they are needed.
  Tensor value(ValueId id) {
    const Node& node = graph_[id];
    if (node.kind == NodeKind::constant) return node.constant;
    if (node.kind == NodeKind::operation && !is_compute(graph_, id))
      return apply_op(node.op, {value(node.inputs[0])}, node.attrs);
    return values_[at(id)];
  }

  GroupCheck check(std::size_t index) {
    const detail::Step& step = p_.engine->steps()[index];
    const Group& group = p_.plan.groups[static_cast<std::size_t>(step.group)];
    for (const ValueId id : group.nodes) evaluate(id);
    std::vector<Tensor> operands;
    for (const ValueId id : group.reads) operands.push_back(value(id));
    for (const ValueId id : group.writes)
      operands.push_back(laid_out(p_.laid.layouts[at(id)], graph_.type(id).dtype));
    run_kernel(index, operands);

    GroupCheck result{detail::operators_of(graph_, group), detail::place_of(graph_, group),
                      step.description, 0,
                      rounding_bound(graph_, group, [this](ValueId id) { return value(id); })};
    for (std::size_t i = 0; i < group.writes.size(); ++i)
      result.error = std::max(
          result.error, relative_error(operands[group.reads.size() + i], value(group.writes[i]),
                                       rounding_step(graph_, group.writes[i])));
    for (const ValueId id : group.nodes)
      if (std::find(group.writes.begin(), group.writes.end(), id) == group.writes.end())
        values_[at(id)] = Tensor();
    for (const ValueId id : group.reads)
      if (last_use_[at(root(id))] == step.group) values_[at(root(id))] = Tensor();
    return result;
  }

  void evaluate(ValueId id) {
    std::vector<Tensor> inputs;
    for (const ValueId input : graph_[id].inputs) inputs.push_back(value(input));
    const Tensor plain = apply_op(graph_[id].op, inputs, graph_[id].attrs);
    values_[at(id)] = laid_out(p_.laid.layouts[at(id)], plain.dtype());
    const ConstView from = const_view(plain);
    info(Op::copy).eval(std::span(&from, 1), {}, mutable_view(values_[at(id)]));
  }

  void run_kernel(std::size_t step, const std::vector<Tensor>& operands) const {
    std::vector<std::byte*> addresses;
    for (const Tensor& x : operands) addresses.push_back(detail::stored(x).first());
    p_.engine->run_step(step, addresses);
  }

  const Program& p_;
  const Graph& graph_;
  std::vector<Tensor> values_;  // of roots, where they are still needed
  std::vector<int> last_use_;
};

}  // namespace

std::vector<GroupCheck> verify(const Executable& executable, const std::vector<Tensor>& inputs) {
  const Program& program = executable.program();
  check_inputs(program, inputs);
  std::vector<GroupCheck> checks;
  for (const detail::PartOfCall& part : detail::parts_of(program, inputs))
    std::ranges::move(Replay(*part.program, part.inputs).run(), std::back_inserter(checks));
  return checks;
}

}  // namespace tensor
