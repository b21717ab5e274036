// verify: every group's kernel against the reference kernels, from the reference's own inputs, so
// that the first kernel that is wrong is found and not what it spoils later.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/core/loop.h"
#include "src/runtime/describe.h"
#include "src/runtime/program.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

using detail::Program;

std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }

// An uninitialised tensor whose elements lie as the layout says.
Tensor laid_out(const Layout& layout, DType dtype) {
  detail::TensorImpl impl = detail::impl(empty({num_elements(layout.shape)}, dtype));
  impl.type = {layout.shape, dtype};
  impl.strides = layout.strides;
  return detail::make_tensor(std::move(impl));
}

double relative_error(const Tensor& got, const Tensor& expected) {
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    if (a[i] == b[i] || std::isnan(b[i])) continue;
    error = std::max(error, std::abs(a[i] - b[i]));
    if (std::isfinite(b[i])) largest = std::max(largest, std::abs(b[i]));
  }
  for (const double value : b)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return error == 0 ? 0 : error / std::max(largest, std::numeric_limits<double>::min());
}

class Replay {
 public:
  Replay(const Program& program, const std::vector<Tensor>& inputs)
      : p_(program), graph_(program.laid.graph), values_(at(graph_.size())) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      values_[at(graph_.inputs()[i])] = inputs[i].copy();
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
  ValueId root(ValueId id) const {
    while (graph_[id].kind == NodeKind::operation && !is_compute(graph_, id))
      id = graph_[id].inputs[0];
    return id;
  }

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
                      step.description, 0, bound(group)};
    for (std::size_t i = 0; i < group.writes.size(); ++i)
      result.error = std::max(
          result.error, relative_error(operands[group.reads.size() + i], value(group.writes[i])));
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

  // What rounding explains: float32 sums of the longest length, 16 for the handful of operators of
  // a group, and a few roundings to the 16-bit type that the kernel may leave out or place
  // elsewhere, or of operands to tf32.
  double bound(const Group& group) {
    double longest = 1, narrow = 0;
    for (const ValueId id : group.nodes) {
      const Node& node = graph_[id];
      if (node.type.dtype == bf16) narrow = 0x1p-8;
      if (node.type.dtype == f16 || node.attrs.flag("tf32", false))
        narrow = std::max(narrow, 0x1p-11);
      longest = std::max(longest, terms(node));
    }
    return 16 * 0x1p-23 * std::sqrt(longest) + (4 + largest_score(group)) * narrow;
  }

  // The reference rounds scores to the 16-bit type before exp, a fused kernel does not: an error of
  // eps times the score, which softmax makes one of its weights. Scores that weigh nothing (those
  // behind a mask) do not count.
  double largest_score(const Group& group) {
    constexpr double kNoWeight = 0x1p-24;
    double largest = 0;
    for (const ValueId id : group.nodes) {
      if (graph_[id].op != Op::softmax) continue;
      const auto scores = value(graph_[id].inputs[0]).to_vector<double>(),
                 weights = value(id).to_vector<double>();
      for (std::size_t i = 0; i < scores.size(); ++i)
        if (weights[i] > kNoWeight) largest = std::max(largest, std::abs(scores[i]));
    }
    return largest;
  }

  // How many numbers an operator adds up for one result.
  double terms(const Node& node) const {
    const auto elements = [&](std::size_t i) {
      return static_cast<double>(num_elements(graph_.type(node.inputs[i]).shape));
    };
    const double out = std::max(1.0, static_cast<double>(num_elements(node.type.shape)));
    if (node.op == Op::matmul) return static_cast<double>(graph_.type(node.inputs[0]).shape.back());
    if (node.op == Op::conv2d)
      return elements(1) / static_cast<double>(std::max<std::int64_t>(1, node.type.shape[1]));
    if (info(node.op).pattern == Pattern::reduction)
      return std::max(elements(0) / out,
                      static_cast<double>(node.type.shape.empty() ? 1 : node.type.shape.back()));
    return 1;
  }

  const Program& p_;
  const Graph& graph_;
  std::vector<Tensor> values_;  // of roots, where they are still needed
  std::vector<int> last_use_;
};

}  // namespace

std::vector<GroupCheck> verify(const Executable& executable, const std::vector<Tensor>& inputs) {
  const Program& program = executable.program();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (i >= program.inputs.size() || !(inputs[i].type() == program.inputs[i]))
      fail("verify", "input ", i, " is ", inputs[i].type(),
           ", which the executable was not compiled for");
  return Replay(program, inputs).run();
}

}  // namespace tensor
