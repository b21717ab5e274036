// The gemm family: one matmul with its epilogue as a oneDNN primitive. A product with constant
// weights is a 1 x 1 convolution over an image one pixel high, its weights packed once: measured
// with oneDNN 2.6.3 on shapes of transformers, that is up to half faster than matmul on weights as
// they lie, and some 5 % faster than matmul on packed ones. Its fast convolution adds no operand as
// large as the result, but it adds to what the result is: with a copy of the residual there, it
// takes a quarter to a third less time than the convolution that reads residuals.
#include <algorithm>
#include <map>
#include <string_view>

#include "src/kernels/cpu/families.h"
#include "src/kernels/cpu/onednn.h"
#include "src/kernels/cpu/onednn_threads.h"

namespace tensor::cpu {
namespace {

using dnnl::memory;

// A tensor seen with the result's rank: [batch..., rows, columns].
struct Matrix {
  Shape shape;
  Strides strides;

  std::int64_t columns() const { return shape.back(); }
  std::int64_t rows() const { return columns() == 0 ? 0 : num_elements(shape) / columns(); }
  bool is_vector() const { return rows() == 1; }
};

Matrix aligned(const Layout& layout, int rank) {
  Matrix m{layout.shape, layout.strides};
  while (m.shape.rank() < rank) m.shape.insert(0, 1), m.strides.insert(0, 0);
  return m;
}

// Whether every row of every batch lies at the same distance from the one before.
bool rows_merge(const Matrix& m) {
  bool is_first = true;
  std::int64_t next = 0;  // the distance that the next axis must have
  for (int axis = m.shape.rank() - 2; axis >= 0; --axis) {
    if (m.shape[axis] == 1) continue;
    if (!is_first && m.strides[axis] != next) return false;
    is_first = false;
    next = m.strides[axis] * m.shape[axis];
  }
  return true;
}

Matrix merged_rows(const Matrix& m) {
  std::int64_t step = m.columns();
  for (int axis = 0; axis + 1 < m.shape.rank(); ++axis)
    if (m.shape[axis] != 1) step = m.strides[axis];
  return {{m.rows(), m.columns()}, {step, m.strides.back()}};
}

bool has_unit_stride(const Matrix& m, int axis) {
  return m.strides[axis] == 1 || m.shape[axis] == 1;
}

// Strides of axes of extent 1 mean nothing to us, but oneDNN checks them. Here they are what they
// would be without gaps, so that a row-major matrix stays one (with_outer_units moves them
// outside).
memory::desc describe_matrix(DType dtype, Matrix m) {
  std::int64_t reach = 1;
  for (int axis = m.shape.rank() - 1; axis >= 0; --axis) {
    if (m.shape[axis] == 1) m.strides[axis] = reach;
    reach = std::max(reach, m.strides[axis] * m.shape[axis]);
  }
  return describe(dtype, m.shape, m.strides);
}

// The same rows as the pixels of an image [1, columns, 1, rows], channels last.
memory::desc describe_image(DType dtype, std::int64_t rows, std::int64_t columns) {
  const std::int64_t all = rows * columns;
  return describe(dtype, {1, columns, 1, rows}, {all, 1, all, columns});
}

// How an operand of the epilogue fits the result: along its columns, or element by element.
bool fits(const Shape& operand, const Shape& result) {
  if (operand == result) return true;
  return num_elements(operand) == result.back() && operand.back() == result.back();
}

// The schedules, each on any number of threads.
constexpr std::string_view kAsConvolution = "as_convolution", kAsProduct = "as_product";

class GemmBuilder {
 public:
  GemmBuilder(const LaidOutGraph& laid, const Group& group, const Anchored& anchored)
      : laid_(laid),
        group_(group),
        anchored_(anchored),
        rank_(laid.graph.type(anchored.anchor).shape.rank()) {
    const Node& node = laid.graph[anchored.anchor];
    a_ = matrix(node.inputs[0]);
    b_ = matrix(node.inputs[1]);
    out_ = matrix(anchored.result);
    flatten();
  }

  std::unique_ptr<Kernel> build() {
    if (is_projection() && !group_.schedule.starts_with(kAsProduct)) {
      is_image_ = true;
      for (const bool adds : {true, false}) {
        adds_ = adds;
        if (auto kernel = assemble()) return kernel;
        packings_.clear();
      }
      is_image_ = false;
    }
    return assemble();
  }

 private:
  // Rows without gaps times one constant matrix that oneDNN can read. Convolutions in bf16 (2.6.3)
  // multiply channels in pairs: behind an odd one they read the first of the next row, and multiply
  // it by 0, which is NaN where that is NaN or infinite.
  bool is_projection() const {
    const bool has_pairs = dtype(weights()) != bf16 || a_.columns() % 2 == 0;
    return has_pairs && laid_.graph.is_constant(weights()) && out_.shape.rank() == 2 &&
           a_.strides == row_major(a_.shape) && is_describable(b_.shape, b_.strides);
  }
  ValueId weights() const { return laid_.graph[anchored_.anchor].inputs[1]; }

  bool reads_operands() const {
    return std::any_of(anchored_.steps.begin(), anchored_.steps.end(),
                       [](const EpilogueStep& step) { return step.operand >= 0; });
  }
  // brg of 2.6.3 does not calculate where a vector's elements lie for results with axes in another
  // order than their own, but reads them.
  static bool lies_in_order(const Matrix& m) {
    return std::is_sorted(m.strides.begin(), m.strides.end(), std::greater<>());
  }

  // Null if oneDNN has no fast convolution for the image.
  std::unique_ptr<Kernel> assemble() {
    const bool unpacks = !has_unit_stride(out_, out_.shape.rank() - 1) ||
                         !is_describable(out_.shape, out_.strides) ||
                         (reads_operands() && !lies_in_order(out_)) ||
                         (is_image_ && !(out_.strides == row_major(out_.shape)));
    const Matrix target = unpacks ? Matrix{out_.shape, row_major(out_.shape)} : out_;
    std::vector<EpilogueStep> steps = anchored_.steps;
    arguments_ = {factor(DNNL_ARG_SRC, laid_.graph[anchored_.anchor].inputs[0], a_)};
    if (!is_image_) arguments_.push_back(factor(DNNL_ARG_WEIGHTS, weights(), b_));
    memory::desc bias;
    if (takes_bias(steps)) {
      arguments_.push_back(epilogue_operand(steps.front().operand, target));
      Argument& argument = arguments_.back();
      argument.id = DNNL_ARG_BIAS;
      if (is_image_)
        argument.desc = describe(dtype(steps.front().operand), {target.columns()}, {1});
      bias = argument.desc;
      steps.erase(steps.begin());
    }
    dnnl::post_ops first;
    std::optional<Packing> summand;
    if (adds_) {
      if (!begins_with_residual(steps)) return nullptr;
      summand = residual(steps.front().operand, target);
      first.append_sum(1);
      steps.erase(steps.begin());
    }
    PostOps post = post_ops_of(
        steps, [&](ValueId id) { return epilogue_operand(id, target); }, first);
    arguments_.insert(arguments_.end(), post.arguments.begin(), post.arguments.end());
    const memory::desc out = seen(dtype(anchored_.result), target);
    arguments_.push_back({DNNL_ARG_DST, group_.reads.size(), out});

    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post.ops);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    auto kernel = is_image_ ? convolution(bias, out, attributes) : product(bias, out, attributes);
    if (!kernel) return nullptr;
    kernel->pack_first(std::move(packings_));
    if (summand) kernel->add_to(std::move(*summand));
    if (unpacks)
      kernel->unpack_last({group_.reads.size(),
                           dtype(anchored_.result),
                           {out_.shape, target.strides, 0},
                           out_.strides});
    return kernel;
  }

  std::unique_ptr<OnednnKernel> product(const memory::desc& bias, const memory::desc& out,
                                        const dnnl::primitive_attr& attributes) {
    const memory::desc &a = arguments_[0].desc, &b = arguments_[1].desc;
    const dnnl::matmul::desc desc =
        bias.data.ndims > 0 ? dnnl::matmul::desc(a, b, bias, out) : dnnl::matmul::desc(a, b, out);
    dnnl::matmul::primitive_desc primitive(desc, attributes, cpu_engine());
    while (misreads_operands(primitive.impl_info_str(), attributes) && primitive.next_impl()) {
    }
    return kernel_of<dnnl::matmul>(primitive);
  }

  // gemm:jit of 2.6.3 reads the operands of its epilogue at wrong addresses when factors are bf16.
  bool misreads_operands(std::string_view implementation,
                         const dnnl::primitive_attr& attributes) const {
    const dnnl::post_ops post = attributes.get_post_ops();
    bool has_operand = false;
    for (int i = 0; i < post.len(); ++i)
      has_operand = has_operand || post.kind(i) == dnnl::primitive::kind::binary;
    return has_operand && implementation.starts_with("gemm") && dtype(weights()) == bf16;
  }

  std::unique_ptr<OnednnKernel> convolution(const memory::desc& bias, const memory::desc& out,
                                            const dnnl::primitive_attr& attributes) {
    using Convolution = dnnl::convolution_forward;
    const auto kind = dnnl::prop_kind::forward_inference;
    const auto method = dnnl::algorithm::convolution_direct;
    const memory::desc given = describe_filters();
    const memory::desc any(given.dims(), given.data_type(), memory::format_tag::any);
    const memory::desc& in = arguments_[0].desc;
    const memory::dims one = {1, 1}, none = {0, 0};
    const Convolution::desc desc =
        bias.data.ndims > 0 ? Convolution::desc(kind, method, in, any, bias, out, one, none, none)
                            : Convolution::desc(kind, method, in, any, out, one, none, none);
    const Convolution::primitive_desc primitive(desc, attributes, cpu_engine(), true);
    if (!primitive) return nullptr;
    // Not the reference, and not the one through a product, which reads residuals wrongly (2.6.3).
    const std::string_view name = primitive.impl_info_str();
    if (!name.starts_with("brg") && (adds_ || !name.starts_with("jit"))) return nullptr;
    auto kernel = kernel_of<Convolution>(primitive);
    kernel->own(DNNL_ARG_WEIGHTS, packed(laid_.graph, weights(), given, primitive.weights_desc()),
                primitive.weights_desc());
    return kernel;
  }

  template <class Primitive>
  std::unique_ptr<OnednnKernel> kernel_of(const typename Primitive::primitive_desc& desc) {
    return std::make_unique<OnednnKernel>(Primitive(desc), std::move(arguments_),
                                          desc.scratchpad_desc(),
                                          std::string("onednn ") + desc.impl_info_str());
  }

  // The weights [inputs, outputs] as filters [outputs, inputs, 1, 1].
  memory::desc describe_filters() const {
    const Shape filters{b_.shape[1], b_.shape[0], 1, 1};
    return describe(dtype(weights()), filters,
                    with_outer_units(filters, {b_.strides[1], b_.strides[0], 1, 1}));
  }

  memory::desc seen(DType dtype, const Matrix& m) const {
    return is_image_ ? describe_image(dtype, m.rows(), m.columns()) : describe_matrix(dtype, m);
  }

  DType dtype(ValueId id) const { return laid_.graph.type(id).dtype; }
  Matrix matrix(ValueId id) const { return aligned(laid_.layouts[at(id)], rank_); }
  std::size_t operand(ValueId id) const {
    return static_cast<std::size_t>(std::find(group_.reads.begin(), group_.reads.end(), id) -
                                    group_.reads.begin());
  }

  // With one matrix on the right, every row of every batch is a row of one product, if the memory
  // allows it.
  void flatten() {
    bool flat = rank_ > 2 && b_.shape[rank_ - 2] * b_.columns() == num_elements(b_.shape) &&
                a_.rows() == out_.rows() && rows_merge(a_) && rows_merge(out_);
    for (const EpilogueStep& step : anchored_.steps)
      if (step.operand >= 0 && !matrix(step.operand).is_vector())
        flat = flat && rows_merge(matrix(step.operand));
    if (!flat) return;
    a_ = merged_rows(a_);
    out_ = merged_rows(out_);
    b_ = {{b_.shape[rank_ - 2], b_.columns()}, {b_.strides[rank_ - 2], b_.strides[rank_ - 1]}};
  }

  // Reads the operand through a copy with these strides.
  int pack(ValueId id, Matrix& m, const Strides& strides) {
    packings_.push_back({operand(id), dtype(id), {m.shape, m.strides, 0}, strides});
    m.strides = strides;
    return static_cast<int>(packings_.size()) - 1;
  }

  // Either rows or columns need a unit stride.
  Argument factor(int argument, ValueId id, Matrix m) {
    const int last = m.shape.rank() - 1;
    int packing = -1;
    if (!is_describable(m.shape, m.strides) ||
        (!has_unit_stride(m, last) && !has_unit_stride(m, last - 1)))
      packing = pack(id, m, row_major(m.shape));
    return {argument, operand(id), seen(dtype(id), m), packing};
  }

  // A vector along the columns, or a tensor that lies exactly like the result.
  Argument epilogue_operand(ValueId id, const Matrix& target) {
    Matrix m = matrix(id);
    int packing = -1;
    if (m.is_vector()) {
      m.shape = Shape::filled(target.shape.rank(), 1);
      m.shape[target.shape.rank() - 1] = target.columns();
      m.strides = Strides::filled(target.shape.rank(), matrix(id).strides.back());
      if (!has_unit_stride(m, target.shape.rank() - 1)) packing = pack(id, m, row_major(m.shape));
    } else {
      if (target.shape.rank() != rank_) m = merged_rows(m);
      if (!(m.strides == target.strides)) packing = pack(id, m, target.strides);
    }
    return {0, operand(id), seen(dtype(id), m), packing};
  }

  // Whether what comes first is to add a tensor that lies, and is stored, like the result; and only
  // functions of one number follow, as far as this has been tried out with oneDNN.
  bool begins_with_residual(const std::vector<EpilogueStep>& steps) const {
    for (std::size_t i = 1; i < steps.size(); ++i)
      if (steps[i].operand >= 0) return false;
    return !steps.empty() && steps.front().op == Op::add && steps.front().operand >= 0 &&
           !matrix(steps.front().operand).is_vector() &&
           dtype(steps.front().operand) == dtype(anchored_.result);
  }
  Packing residual(ValueId id, const Matrix& target) const {
    Matrix m = matrix(id);
    if (target.shape.rank() != rank_) m = merged_rows(m);
    return {operand(id), dtype(id), {m.shape, m.strides, 0}, target.strides};
  }

  bool takes_bias(const std::vector<EpilogueStep>& steps) const {
    return !steps.empty() && steps.front().op == Op::add && steps.front().operand >= 0 &&
           matrix(steps.front().operand).is_vector();
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  const Anchored& anchored_;
  const int rank_;
  Matrix a_, b_, out_;
  bool is_image_ = false;  // as a convolution
  bool adds_ = false;      // to a copy of a residual, in place of reading it beside the result
  std::vector<Argument> arguments_;
  std::vector<Packing> packings_;
};

std::optional<Anchored> match(const Graph& graph, const Group& group, const Machine& machine) {
  auto anchored = match_anchored(graph, group, Op::matmul);
  if (!anchored || !has_post_ops(anchored->steps)) return std::nullopt;
  const Node& node = graph[anchored->anchor];
  if (node.type.shape.rank() > DNNL_MAX_NDIMS) return std::nullopt;
  if (num_elements(node.type.shape) == 0 || graph.type(node.inputs[0]).shape.back() == 0)
    return std::nullopt;
  for (const EpilogueStep& step : anchored->steps)
    if (step.operand >= 0 && !fits(graph.type(step.operand).shape, node.type.shape))
      return std::nullopt;
  for (const ValueId id : group.reads)
    if (!onednn_supports(graph.type(id).dtype)) return std::nullopt;
  const DType factor = graph.type(node.inputs[0]).dtype,
              result = graph.type(anchored->result).dtype;
  // oneDNN rounds no result of float32 factors.
  if (!onednn_supports(result) || (factor == f32 && result != f32)) return std::nullopt;
  if (factor == bf16 && !machine.has_bf16) return std::nullopt;
  return anchored;
}

// A product with one constant matrix may be a convolution or a product.
Space space_of(const TensorType& left, const TensorType& right, const Work& work,
               const Machine& machine, const Estimate& microseconds) {
  Space space;
  const Sketch::Knob threads = threads_knob(machine);
  space.sketches = {{std::string(kAsConvolution), {threads}}, {std::string(kAsProduct), {threads}}};
  space.fault = [](const Schedule&) { return std::string(); };
  std::map<int, double> usual;
  for (const int n : threads.values) usual[n] = microseconds(with_threads(machine, n));
  constexpr double kUnpacked = 1.2;  // weights as they lie take so much longer, more or less
  space.model_us = [=](const Schedule& s) {
    const double time = usual.at(threads_of(s).value_or(machine.threads));
    return s.sketch == kAsProduct ? kUnpacked * time : time;
  };
  Features f;
  f.rows = static_cast<double>(num_elements(left.shape) / left.shape.back());
  f.columns = static_cast<double>(right.shape[1]), f.depth = static_cast<double>(right.shape[0]);
  f.flops = work.flops, f.memory_bytes = work.bytes;
  f.item_bytes = static_cast<double>(item_size(left.dtype));
  f.memory_gbps = machine.memory_gbps, f.cache_gbps = machine.cache_gbps;
  f.peak_tflops = machine.f32_gflops / 1e3;
  space.features = [=, model = space.model_us](const Schedule& s) {
    Features own = f;
    own.sketch = s.sketch;
    own.threads = own.processors = threads_of(s).value_or(machine.threads);
    own.time.total = model(s);
    return own.values();
  };
  space.choose({std::string(kAsConvolution), {{threads.name, machine.threads}}});
  return space;
}

std::optional<Implementation> consider_gemm(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  const auto anchored = match(graph, alone.group, machine);
  if (!anchored || !counts_in_32_bits(graph, alone.group)) return std::nullopt;
  const Node& product = graph[anchored->anchor];
  const TensorType left = graph.type(product.inputs[0]), right = graph.type(product.inputs[1]);
  const Work work = work_of(graph, alone.group);
  const Estimate microseconds = [=](const Machine& m) {
    const double rate = left.dtype == bf16 ? m.bf16_gflops : m.f32_gflops;
    return m.dispatch_us + std::max(work.flops / (rate * 1e3), work.bytes / (m.cache_gbps * 1e3));
  };
  std::function<Space()> space;
  if (graph.is_constant(product.inputs[1]) && right.shape.rank() == 2)
    space = [=] { return space_of(left, right, work, machine, microseconds); };
  return implementation(
      alone, machine, microseconds,
      [=](const Isolated& one, const Machine& m) {
        const ThreadLimit limit(m.threads);
        return GemmBuilder(one.laid, one.group, *anchored).build();
      },
      space);
}

}  // namespace

const Family kGemm = {"gemm", consider_gemm};

}  // namespace tensor::cpu
