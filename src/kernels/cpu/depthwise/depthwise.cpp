// The family depthwise: convolutions with a filter for every channel. Lines of the image are copied
// to blocks of 16 channels with zeros around them, which stay in the first-level cache as long as a
// filter lies on them; sums of neighbouring pixels are made in registers.
#include <algorithm>
#include <cstring>

#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/core/storage.h"
#include "src/kernels/cpu/families.h"
#include "src/kernels/cpu/product/result.h"
#include "src/kernels/elementwise.h"
#include "src/ops/pair.h"
#include "src/trace/derived.h"
#include "tensor/creation.h"

namespace tensor::cpu {
namespace {

constexpr std::int64_t kBlock = 16;         // channels
constexpr std::int64_t kMostLines = 64;     // under a filter
constexpr std::int64_t kLeastLines = 4;     // of a task, which copies what its filters lie on anew
constexpr std::int64_t kTasks = 4;          // for every thread
constexpr double kLeastParallel = 1 << 18;  // multiplications

class DepthwiseKernel : public Kernel {
 public:
  DepthwiseKernel(const LaidOutGraph& laid, const Group& group, const AnchoredProduct& product,
                  const Machine& machine)
      : DepthwiseKernel(laid, group, product, laid.graph[product.anchor]) {
    const double work = static_cast<double>(num_elements(laid.graph[product.anchor].type.shape)) *
                        static_cast<double>(kernel_.h * kernel_.w);
    if (work < kLeastParallel || machine.threads == 1) return;
    threads_ = machine.threads;
    bands_ = std::clamp<std::int64_t>(ceil_div(kTasks * threads_, image_.shape[0] * blocks()), 1,
                                      std::max(out_.h / kLeastLines, std::int64_t{1}));
  }

  DepthwiseKernel(const LaidOutGraph& laid, const Group& group, const AnchoredProduct& product,
                  const Node& node)
      : result_(laid, group, product),
        x_(operand_of(group, node.inputs[0])),
        image_(laid.layouts[at(node.inputs[0])]),
        dtype_(laid.graph.type(node.inputs[0]).dtype),
        kernel_{laid.graph.type(node.inputs[1]).shape[2], laid.graph.type(node.inputs[1]).shape[3]},
        out_{node.type.shape[2], node.type.shape[3]},
        step_(pair_of(node.attrs, "stride", 0, "conv")),
        padding_(pair_of(node.attrs, "padding", 0, "conv")),
        dilation_(pair_of(node.attrs, "dilation", 0, "conv")) {
    channels_ = node.type.shape[1];
    span_ = (kernel_.h - 1) * dilation_.h + 1;
    const std::int64_t span_w = (kernel_.w - 1) * dilation_.w + 1;
    line_ = kBlock * std::max((out_.w - 1) * step_.w + span_w, padding_.w + 1);
    is_direct_ = result_.row_stride() && !result_.has_program();
    result_.plan(laid, out_.w, kBlock);
    if (product.bias >= 0) copy_bias(laid.graph[product.bias].constant);
    packed_ = packed_filters(laid.graph, laid.graph[node.inputs[1]].constant);
  }

  void run(std::span<std::byte* const> operands, std::byte* scratch) const override {
    parallel_for(threads_, image_.shape[0] * blocks() * bands_, [&](std::int64_t task, int thread) {
      const std::int64_t band = task % bands_, block = task / bands_ % blocks();
      const Part part{task / bands_ / blocks(), block * kBlock,
                      std::min(kBlock, channels_ - block * kBlock), out_.h * band / bands_,
                      out_.h * (band + 1) / bands_};
      run_part(operands, part, scratch + thread * thread_bytes());
    });
  }
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(thread_bytes() * threads_);
  }
  std::vector<Tensor> constants() const override { return {packed_}; }
  std::string description() const override {
    return "vectors, depthwise " + std::to_string(kernel_.h) + " x " + std::to_string(kernel_.w) +
           result_.description();
  }

 private:
  // Lines [begin, end) of one image in one block of channels.
  struct Part {
    std::int64_t image, channel, channels, begin, end;
  };

  std::int64_t blocks() const { return ceil_div(channels_, kBlock); }
  std::int64_t sum_bytes() const {
    return is_direct_ ? 0 : round_up(out_.w * kBlock * std::int64_t{sizeof(float)}, 64);
  }
  std::int64_t lines_bytes() const { return span_ * line_ * std::int64_t{sizeof(float)}; }
  std::int64_t thread_bytes() const {
    return lines_bytes() + sum_bytes() + round_up(result_.scratch_bytes(), 64);
  }

  void copy_bias(const Tensor& bias) {
    first_.assign(static_cast<std::size_t>(blocks() * kBlock), 0.0f);
    const std::vector<float> values = bias.to_vector<float>();
    std::copy(values.begin(), values.end(), first_.begin());
  }

  // [blocks, height, width, 16]
  Tensor packed_filters(const Graph& graph, const Tensor& filters) const {
    return derived(graph, "blocks of 16 filters", {filters}, [&] {
      const Tensor result = zeros({blocks(), kernel_.h * kernel_.w, kBlock}, f32);
      auto* to = reinterpret_cast<float*>(detail::stored(result).first());
      const std::vector<float> values = filters.to_vector<float>();
      const std::int64_t taps = kernel_.h * kernel_.w;
      for (std::int64_t c = 0; c < channels_; ++c)
        for (std::int64_t tap = 0; tap < taps; ++tap)
          to[(c / kBlock * taps + tap) * kBlock + c % kBlock] =
              values[static_cast<std::size_t>(c * taps + tap)];
      return result;
    });
  }

  void run_part(std::span<std::byte* const> operands, const Part& part, std::byte* scratch) const {
    auto* const lines = reinterpret_cast<float*>(scratch);
    auto* const sums = reinterpret_cast<float*>(scratch + lines_bytes());
    std::memset(lines, 0, static_cast<std::size_t>(lines_bytes()));
    simd::DepthwiseRow row;
    const float* under[kMostLines];
    row.lines = under;
    row.kernel_width = kernel_.w;
    row.step = step_.w * kBlock, row.dilation = dilation_.w * kBlock;
    row.first = first_.empty() ? nullptr : first_.data() + part.channel;
    row.is_positive = result_.is_positive();
    row.count = out_.w, row.columns = part.channels;
    row.add_pixel = result_.addend_stride();
    row.to_pixel = is_direct_ ? *result_.row_stride() : kBlock;
    const auto* const filters = reinterpret_cast<const float*>(detail::stored(packed_).first()) +
                                part.channel * kernel_.h * kernel_.w;
    std::int64_t copied = part.begin * step_.h - padding_.h;  // lines before this one
    for (std::int64_t y = part.begin; y < part.end; ++y) {
      const std::int64_t top = y * step_.h - padding_.h;
      for (copied = std::max(copied, top); copied < top + span_; ++copied)
        if (copied >= 0 && copied < image_.shape[2])
          copy_line(operands[x_], part, copied, lines + copied % span_ * line_);
      // Beyond the image nothing is added.
      row.line_count = 0;
      for (std::int64_t k = 0; k < kernel_.h; ++k) {
        const std::int64_t line = top + k * dilation_.h;
        if (line < 0 || line >= image_.shape[2]) continue;
        if (row.line_count == 0) row.weights = filters + k * kernel_.w * kBlock;
        under[row.line_count++] = lines + line % span_ * line_;
      }
      const std::int64_t first = (part.image * out_.h + y) * out_.w;
      row.add = result_.addend(operands, first, part.channel);
      row.to = is_direct_ ? result_.at(operands, first, part.channel) : sums;
      simd::table().depthwise(row);
      if (is_direct_) continue;
      const BlockProgram::Block block{first, out_.w, part.channel, part.channels};
      result_.run_program(operands, block, kBlock, sums, scratch + lines_bytes() + sum_bytes());
      result_.store(operands, block, kBlock, sums);
    }
  }

  // The zeros on both sides stay.
  void copy_line(const std::byte* image, const Part& part, std::int64_t y, float* to) const {
    const Strides& strides = image_.strides;
    const std::int64_t size = item_size(dtype_);
    const std::int64_t count = std::min(image_.shape[3], line_ / kBlock - padding_.w);
    const std::byte* from =
        image + size * (part.image * strides[0] + part.channel * strides[1] + y * strides[2]);
    to += padding_.w * kBlock;
    if (dtype_ == f32 && (strides[1] == 1 || channels_ == 1)) {
      simd::table().copy_blocks(to, reinterpret_cast<const float*>(from), strides[3], count,
                                part.channels);
      return;
    }
    for (std::int64_t x = 0; x < count; ++x)
      simd::table().load[static_cast<int>(dtype_)](to + x * kBlock, from + size * x * strides[3],
                                                   strides[1], part.channels);
  }

  ProductResult result_;
  std::size_t x_;  // operand
  Layout image_;
  DType dtype_;
  Pair kernel_, out_, step_, padding_, dilation_;
  std::int64_t channels_ = 0, span_ = 1, line_ = 0;  // lines under a filter; floats of a line
  std::int64_t bands_ = 1;
  int threads_ = 1;
  bool is_direct_ = false;
  Tensor packed_;
  std::vector<float> first_;  // the bias, or empty
};

bool is_depthwise(const Graph& graph, const Node& node) {
  if (node.op != Op::conv2d || !graph.is_constant(node.inputs[1])) return false;
  const Shape& filters = graph.type(node.inputs[1]).shape;
  return filters[1] == 1 && filters[0] > 1 && node.attrs.integer("groups") == filters[0] &&
         filters[2] <= kMostLines;
}

std::optional<Implementation> consider_depthwise(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  const auto matched = match_product(graph, alone.group);
  if (!matched || !is_depthwise(graph, graph[matched->anchor])) return std::nullopt;
  const AnchoredProduct product = with_sums_finished(alone.laid, *matched);
  const Work work = work_of(graph, alone.group);
  const auto elements = [&](ValueId id) {
    return static_cast<double>(num_elements(graph.type(id).shape));
  };
  // Numbers are copied once, and results go once through every operator.
  const double moved =
      elements(graph[product.anchor].inputs[0]) +
      elements(product.result) * static_cast<double>(operator_count(graph, product.epilogue.nodes));
  return implementation(
      alone, machine,
      [=](const Machine& m) {
        constexpr double kShare = 0.7;  // of the peak
        const double compute = work.flops / (kShare * m.f32_gflops) + moved / (4 * m.simple_gops);
        const double bandwidth = work.bytes > m.cache_bytes ? m.memory_gbps : m.cache_gbps;
        return m.dispatch_us + std::max(compute, work.bytes / bandwidth) / 1e3;
      },
      [=](const Isolated& one, const Machine& m) {
        return std::make_unique<DepthwiseKernel>(one.laid, one.group, product, m);
      });
}

}  // namespace

const Family kDepthwise = {"depthwise", consider_depthwise};

}  // namespace tensor::cpu
