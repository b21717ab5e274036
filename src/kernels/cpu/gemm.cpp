// The gemm family: one matmul with its epilogue as a oneDNN primitive. Weights are used where they
// lie, transposed or not (packing them would gain 3 % and double their memory).
#ifdef TENSOR_WITH_ONEDNN
#include <algorithm>

#include "src/kernels/cpu/families.h"
#include "src/kernels/cpu/onednn.h"

namespace tensor::cpu {
namespace {

using dnnl::memory;

// A tensor seen as [batch..., rows, columns] of the result's rank.
struct Matrix {
  Shape shape;
  Strides strides;
};

Matrix aligned(const Layout& layout, int rank) {
  Matrix m{layout.shape, layout.strides};
  while (m.shape.rank() < rank) m.shape.insert(0, 1), m.strides.insert(0, 0);
  return m;
}

// Whether axes 0 to rank-2 can be walked as one.
bool rows_merge(const Matrix& m) {
  for (int axis = 0; axis + 2 < m.shape.rank(); ++axis)
    if (m.shape[axis] != 1 && m.strides[axis] != m.strides[axis + 1] * m.shape[axis + 1])
      return false;
  return true;
}

Matrix merged_rows(const Matrix& m) {
  const int last = m.shape.rank() - 1;
  const std::int64_t rows = num_elements(m.shape) / m.shape[last];
  return {{rows, m.shape[last]}, {m.strides[last - 1], m.strides[last]}};
}

// Broadcast axes have extent 1 for oneDNN, and their strides must not be 0.
memory::desc describe_matrix(DType dtype, Matrix m) {
  for (int axis = m.shape.rank() - 1; axis >= 0; --axis)
    if (m.shape[axis] == 1 || m.strides[axis] == 0)
      m.strides[axis] = axis + 1 < m.shape.rank() ? m.strides[axis + 1] * m.shape[axis + 1] : 1;
  return describe(dtype, m.shape, m.strides);
}

bool is_broadcast(const Matrix& m) {
  for (int axis = 0; axis < m.shape.rank(); ++axis)
    if (m.shape[axis] > 1 && m.strides[axis] == 0) return true;
  return false;
}

class Builder {
 public:
  Builder(const LaidOutGraph& laid, const Group& group, const Anchored& anchored)
      : laid_(laid), group_(group), anchored_(anchored) {
    const Node& node = laid.graph[anchored.anchor];
    rank_ = node.type.shape.rank();
    a_ = matrix(node.inputs[0]);
    b_ = matrix(node.inputs[1]);
    out_ = matrix(anchored.result);
    flatten();
  }

  std::unique_ptr<Kernel> build() {
    const Node& node = laid_.graph[anchored_.anchor];
    std::vector<EpilogueStep> steps = anchored_.steps;
    std::vector<Argument> arguments = {argument(DNNL_ARG_SRC, node.inputs[0], a_),
                                       argument(DNNL_ARG_WEIGHTS, node.inputs[1], b_)};
    memory::desc bias;
    if (takes_bias(steps)) {
      Argument b = argument(DNNL_ARG_BIAS, steps.front().operand, view(steps.front().operand));
      bias = b.desc;
      arguments.push_back(std::move(b));
      steps.erase(steps.begin());
    }
    auto post = post_ops_of(steps, group_, [&](ValueId id) -> std::optional<memory::desc> {
      return describe_matrix(dtype(id), view(id));
    });
    arguments.insert(arguments.end(), post->arguments.begin(), post->arguments.end());
    const memory::desc out = describe_matrix(dtype(anchored_.result), out_);
    arguments.push_back({DNNL_ARG_DST, group_.reads.size(), out});

    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post->ops);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::desc desc =
        bias.data.ndims > 0 ? dnnl::matmul::desc(arguments[0].desc, arguments[1].desc, bias, out)
                            : dnnl::matmul::desc(arguments[0].desc, arguments[1].desc, out);
    const dnnl::matmul::primitive_desc primitive(desc, attributes, cpu_engine());
    return std::make_unique<OnednnKernel>(dnnl::matmul(primitive), std::move(arguments),
                                          primitive.scratchpad_desc(),
                                          std::string("onednn ") + primitive.impl_info_str());
  }

 private:
  DType dtype(ValueId id) const { return laid_.graph.type(id).dtype; }
  Matrix matrix(ValueId id) const {
    return aligned(laid_.layouts[static_cast<std::size_t>(id)], rank_);
  }
  // A binary operand as the primitive sees it.
  Matrix view(ValueId id) const {
    const Matrix m = matrix(id);
    if (!flat_) return m;
    if (num_elements(m.shape) == m.shape.back())
      return {{1, m.shape.back()}, {0, m.strides.back()}};
    return merged_rows(m);
  }

  // With one matrix on the right every row of every batch is a row of one product, if the memory
  // allows it.
  void flatten() {
    const auto spans = [&](const Matrix& m) {
      return num_elements(m.shape) / m.shape.back() == num_elements(out_.shape) / out_.shape.back();
    };
    flat_ = rank_ > 2 && num_elements(b_.shape) == b_.shape[rank_ - 1] * b_.shape[rank_ - 2] &&
            spans(a_) && rows_merge(a_) && rows_merge(out_);
    for (const EpilogueStep& step : anchored_.steps) {
      if (step.operand < 0) continue;
      const Matrix m = matrix(step.operand);
      const bool vector = num_elements(m.shape) == m.shape.back();
      flat_ = flat_ && (vector || (spans(m) && rows_merge(m) && !is_broadcast(m)));
    }
    if (!flat_) return;
    a_ = merged_rows(a_);
    out_ = merged_rows(out_);
    b_ = {{b_.shape[rank_ - 2], b_.shape[rank_ - 1]},
          {b_.strides[rank_ - 2], b_.strides[rank_ - 1]}};
  }

  // A vector that is added first, along the columns.
  bool takes_bias(const std::vector<EpilogueStep>& steps) const {
    if (steps.empty() || steps.front().op != Op::add || steps.front().operand < 0) return false;
    const Matrix m = matrix(steps.front().operand);
    return num_elements(m.shape) == m.shape.back() && m.shape.back() == out_.shape.back();
  }

  Argument argument(int id, ValueId value, const Matrix& m) const {
    const auto operand =
        std::find(group_.reads.begin(), group_.reads.end(), value) - group_.reads.begin();
    return {id, static_cast<std::size_t>(operand), describe_matrix(dtype(value), m)};
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Anchored& anchored_;
  int rank_ = 0;
  Matrix a_, b_, out_;
  bool flat_ = false;
};

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  const auto anchored = match_anchored(graph, group, Op::matmul);
  if (!anchored || !has_post_ops(anchored->steps)) return std::nullopt;
  const Node& node = graph[anchored->anchor];
  if (num_elements(node.type.shape) == 0 || graph.type(node.inputs[0]).shape.back() == 0)
    return std::nullopt;
  for (const ValueId id : group.reads)
    if (!onednn_supports(graph.type(id).dtype)) return std::nullopt;
  if (!onednn_supports(graph.type(anchored->result).dtype)) return std::nullopt;
  const Work work = work_of(graph, group);
  const double rate =
      graph.type(node.inputs[0]).dtype == bf16 ? machine.bf16_gflops : machine.f32_gflops;
  const double compute = work.flops / (rate * 1e3),
               traffic = work.bytes / (machine.cache_gbps * 1e3);
  return machine.dispatch_us + std::max(compute, traffic);
}

std::unique_ptr<Kernel> build(const LaidOutGraph& laid, const Group& group, const Machine&) {
  const Anchored anchored = *match_anchored(laid.graph, group, Op::matmul);
  return Builder(laid, group, anchored).build();
}

}  // namespace

const Family kGemm = {"gemm", estimate, build};

}  // namespace tensor::cpu
#endif
