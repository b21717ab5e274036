// The family depthwise: convolutions with a filter, or a few, for every channel. Sums of
// neighbouring pixels by 16 channels are made in registers; where filters reach beyond the image,
// pixels whose filters lie on it with the same part are done together.
#include <algorithm>
#include <array>
#include <cstring>

#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/core/storage.h"
#include "src/kernels/cpu/families.h"
#include "src/kernels/cpu/product/result.h"
#include "src/kernels/cpu/product/rows.h"
#include "src/kernels/elementwise.h"
#include "src/ops/pair.h"
#include "src/trace/derived.h"
#include "tensor/creation.h"

namespace tensor::cpu {
namespace {

constexpr std::int64_t kBlock = 16;        // channels
constexpr std::int64_t kLargeFilter = 25;  // whose image is copied, which costs little beside it
constexpr std::int64_t kLineBytes = 256 << 10;  // of the image, that stay in the second-level cache
constexpr std::int64_t kFarBytes = 1 << 20;     // of an image that leaves the second-level cache
constexpr std::int64_t kMostBlocks = 4;         // at a time: neighbours come from memory together
constexpr std::int64_t kSums = 4096;            // that a program finishes, 16 KiB
constexpr std::int64_t kLeastLines = 8;         // of a task, which reads those around them, too
constexpr std::int64_t kTasks = 4;              // for every thread
constexpr double kLeastParallel = 1 << 18;      // multiplications

// Pixels of the result along an axis whose filters lie on the image with the same numbers.
struct Stretch {
  Range pixels, numbers;
};
std::vector<Stretch> stretches_of(std::int64_t results, std::int64_t size, std::int64_t kernel,
                                  std::int64_t step, std::int64_t padding, std::int64_t dilation) {
  std::vector<Stretch> all;
  for (std::int64_t i = 0; i < results; ++i) {
    const std::int64_t first = i * step - padding;
    const std::int64_t begin = std::min(first < 0 ? ceil_div(-first, dilation) : 0, kernel);
    const std::int64_t inside = first < size ? ceil_div(size - first, dilation) : 0;
    const std::int64_t end = std::max(begin, std::min(inside, kernel));
    if (!all.empty() && all.back().numbers.begin == begin && all.back().numbers.end == end)
      ++all.back().pixels.end;
    else
      all.push_back({{i, i + 1}, {begin, end}});
  }
  return all;
}

class DepthwiseKernel : public Kernel {
 public:
  DepthwiseKernel(const LaidOutGraph& laid, const Group& group, const AnchoredProduct& product,
                  const Machine& machine)
      : DepthwiseKernel(laid, group, product, laid.graph[product.anchor]) {
    choose_tasks(machine);
    result_.plan(laid, is_direct_ ? finished_pixels() : sum_lines_ * out_.w,
                 is_direct_ ? channels_ : pitch());
    if (product.bias >= 0) first_ = in_blocks(laid.graph, product.bias, 0);
    if (result_.has_scale()) {
      scales_ = in_blocks(laid.graph, product.scale, 1);
      shifts_ = in_blocks(laid.graph, product.shift, 0);
    }
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
    filters_ = channels_ / image_.shape[1];
    down_ = stretches_of(out_.h, image_.shape[2], kernel_.h, step_.h, padding_.h, dilation_.h);
    across_ = stretches_of(out_.w, image_.shape[3], kernel_.w, step_.w, padding_.w, dilation_.w);
    // Pixels as far apart as that lie in the same lines of the first-level cache.
    in_place_ = dtype_ == f32 && filters_ == 1 && image_.strides[1] == 1 &&
                image_.strides[3] % 1024 != 0 && channels_ % simd::table().lanes == 0 &&
                kernel_.h * kernel_.w < kLargeFilter;
    // With zeros on both sides all filters lie on the same numbers.
    if (!in_place_) across_ = {{{0, out_.w}, {0, kernel_.w}}};
    width_ = (out_.w - 1) * step_.w + (kernel_.w - 1) * dilation_.w + 1;
    // A program goes over whole pixels, of which only what is in place makes all channels.
    is_direct_ = result_.row_stride() &&
                 (!result_.has_program() || (in_place_ && *result_.row_stride() == channels_));
    packed_ = packed_filters(laid.graph, laid.graph[node.inputs[1]].constant);
  }

  void run(std::span<std::byte* const> operands, std::byte* scratch) const override {
    parallel_for(threads_, image_.shape[0] * bands_ * chunks_, [&](std::int64_t task, int thread) {
      const std::int64_t chunk = task % chunks_, band = task / chunks_ % bands_;
      const Range blocks{this->blocks() * chunk / chunks_, this->blocks() * (chunk + 1) / chunks_};
      const std::int64_t end = out_.h * (band + 1) / bands_;
      for (Range lines{out_.h * band / bands_, 0}; lines.begin < end; lines.begin = lines.end) {
        lines.end = std::min(lines.begin + lines_at_once_, end);
        const std::int64_t step = in_place_ && is_direct_ ? blocks.size() : blocks_at_once();
        for (std::int64_t block = blocks.begin; block < blocks.end; block += step)
          run_part(operands,
                   {task / chunks_ / bands_, block * kBlock,
                    std::min(step * kBlock, channels_ - block * kBlock), lines.begin, lines.end},
                   scratch + thread * thread_bytes());
      }
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
  // That are copied, or whose sums are finished by themselves.
  std::int64_t blocks_at_once() const {
    return ceil_div(blocks(), ceil_div(blocks(), kMostBlocks));
  }
  std::int64_t pitch() const { return blocks_at_once() * kBlock; }  // of sums
  // The lines of the image that lines of the result need.
  std::int64_t lines_under(std::int64_t lines) const {
    return std::min(image_.shape[2], (lines - 1) * step_.h + (kernel_.h - 1) * dilation_.h + 1);
  }

  // In place, all channels of some lines are done while they are in the second-level cache; what is
  // copied is copied once.
  void choose_tasks(const Machine& machine) {
    const double work = static_cast<double>(result_.rows() * channels_) *
                        static_cast<double>(kernel_.h * kernel_.w);
    const std::int64_t most_bands = std::max(out_.h / kLeastLines, std::int64_t{1});
    if (work >= kLeastParallel && machine.threads > 1) {
      threads_ = machine.threads;
      const std::int64_t wanted = ceil_div(kTasks * threads_, image_.shape[0]);
      if (in_place_) bands_ = std::min(wanted, most_bands);
      if (!is_direct_ || !result_.has_program())
        chunks_ = std::min(ceil_div(wanted, bands_), blocks());
      if (!in_place_) bands_ = std::min(ceil_div(wanted, chunks_), most_bands);
    }
    const std::int64_t band = ceil_div(out_.h, bands_);
    lines_at_once_ = band;
    const std::int64_t least = in_place_ ? 1 : kLeastLines;
    while (lines_at_once_ > least && near_bytes() > kLineBytes)
      lines_at_once_ = ceil_div(lines_at_once_, 2);
    const std::int64_t pixels = is_direct_ ? finished_pixels() : kSums / pitch();
    sum_lines_ = is_direct_ && !result_.has_program()
                     ? lines_at_once_
                     : std::clamp<std::int64_t>(pixels / out_.w, 1, lines_at_once_);
  }

  // By a program that runs where the result lies.
  std::int64_t finished_pixels() const { return std::max(kSums / channels_, std::int64_t{1}); }
  // A copied block of channels has so many.
  std::int64_t block_floats() const { return lines_under(lines_at_once_) * width_ * kBlock; }
  std::int64_t copy_bytes() const {
    return in_place_ ? 0 : blocks_at_once() * block_floats() * std::int64_t{sizeof(float)};
  }
  // What some lines of results read.
  std::int64_t near_bytes() const {
    return in_place_ ? lines_under(lines_at_once_) * image_.shape[3] * channels_ *
                           std::int64_t{sizeof(float)}
                     : copy_bytes();
  }
  std::int64_t sum_bytes() const {
    return is_direct_ ? 0 : sum_lines_ * out_.w * pitch() * std::int64_t{sizeof(float)};
  }
  std::int64_t thread_bytes() const {
    return copy_bytes() + sum_bytes() + round_up(result_.scratch_bytes(), 64);
  }

  std::vector<float> in_blocks(const Graph& graph, ValueId constant, float otherwise) const {
    std::vector<float> values = column_numbers(graph, constant, channels_, otherwise);
    values.resize(static_cast<std::size_t>(blocks() * kBlock));
    return values;
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

  // Where numbers of an image's channels are read.
  struct Source {
    const float* at;  // of the first line and pixel, which may be far away
    std::int64_t line, pixel;
  };

  void run_part(std::span<std::byte* const> operands, const Part& part, std::byte* scratch) const {
    const Source source = source_of(operands[x_], part, reinterpret_cast<float*>(scratch));
    auto* const sums = reinterpret_cast<float*>(scratch + copy_bytes());
    const std::int64_t pitch = round_up(part.channels, kBlock);
    simd::DepthwiseRow row;
    row.first = first_.empty() ? nullptr : first_.data() + part.channel;
    row.bounds = result_.bounds(), row.adds_last = result_.adds_last();
    if (!scales_.empty())
      row.scales = scales_.data() + part.channel, row.shifts = shifts_.data() + part.channel;
    row.columns = part.channels;
    row.is_far = in_place_ && image_.shape[2] * source.line * 4 > kFarBytes;
    row.line = dilation_.h * source.line, row.number = dilation_.w * source.pixel;
    row.weights_line = kernel_.w * kBlock;
    row.weights_block = kernel_.h * row.weights_line;
    if (!in_place_) row.block = block_floats();
    for (Range lines{part.begin, 0}; lines.begin < part.end; lines.begin = lines.end) {
      lines.end = std::min(lines.begin + sum_lines_, part.end);
      const std::int64_t first = (part.image * out_.h + lines.begin) * out_.w;
      const Place place{result_.addend(operands, first, part.channel), result_.addend_stride(),
                        is_direct_ ? result_.at(operands, first, part.channel) : sums,
                        is_direct_ ? *result_.row_stride() : pitch};
      if (!is_direct_) clear_rest(sums, lines.size() * out_.w, part.channels);
      for (const Stretch& y : down_)
        for (const Stretch& x : across_)
          run_box({{std::max(y.pixels.begin, lines.begin), std::min(y.pixels.end, lines.end)},
                   y.numbers},
                  x, lines.begin, part.channel, source, place, row);
      const std::int64_t pixels = lines.size() * out_.w;
      std::byte* const room = scratch + copy_bytes() + sum_bytes();
      if (is_direct_) {
        if (result_.has_program()) finish(operands, first, pixels, place.to, room);
        continue;
      }
      const BlockProgram::Block block{first, pixels, part.channel, part.channels};
      result_.run_program(operands, block, pitch, sums, room);
      result_.store(operands, block, pitch, sums);
    }
  }

  // A program goes over whole blocks of channels: subnormal numbers beyond would take it long.
  static void clear_rest(float* sums, std::int64_t pixels, std::int64_t channels) {
    const std::int64_t pitch = round_up(channels, kBlock);
    for (; channels < pitch && pixels > 0; --pixels, sums += pitch)
      std::fill(sums + channels, sums + pitch, 0.0f);
  }

  // What follows the sums of some pixels, where they lie.
  void finish(std::span<std::byte* const> operands, std::int64_t first, std::int64_t pixels,
              float* sums, std::byte* room) const {
    for (std::int64_t done = 0; done < pixels; done += finished_pixels()) {
      const std::int64_t count = std::min(finished_pixels(), pixels - done);
      result_.run_program(operands, {first + done, count, 0, channels_}, channels_,
                          sums + done * channels_, room);
    }
  }

  // From where to where pixels go; the first one of the first line.
  struct Place {
    const float* add;
    std::int64_t add_pixel;
    float* to;
    std::int64_t to_pixel;
  };

  // All pixels of some lines and columns, along the longer side.
  void run_box(const Stretch& y, const Stretch& x, std::int64_t first_line, std::int64_t channel,
               const Source& source, const Place& place, simd::DepthwiseRow row) const {
    if (y.pixels.size() <= 0) return;
    const std::int64_t top = y.pixels.begin * step_.h - padding_.h + y.numbers.begin * dilation_.h;
    const std::int64_t left = x.pixels.begin * step_.w - padding_.w + x.numbers.begin * dilation_.w;
    const float* const from = source.at + top * source.line + left * source.pixel;
    const std::int64_t pixel = (y.pixels.begin - first_line) * out_.w + x.pixels.begin;
    row.line_count = y.numbers.size(), row.line_length = x.numbers.size();
    row.weights = reinterpret_cast<const float*>(detail::stored(packed_).first()) +
                  channel * kernel_.h * kernel_.w +
                  (y.numbers.begin * kernel_.w + x.numbers.begin) * kBlock;
    const bool is_flat = x.pixels.size() >= y.pixels.size();
    const std::int64_t down = step_.h * source.line, across = step_.w * source.pixel;
    const std::int64_t run = is_flat ? 1 : out_.w, next = is_flat ? out_.w : 1;
    row.step = is_flat ? across : down;
    row.count = is_flat ? x.pixels.size() : y.pixels.size();
    row.add_pixel = run * place.add_pixel, row.to_pixel = run * place.to_pixel;
    const std::int64_t runs = is_flat ? y.pixels.size() : x.pixels.size();
    for (std::int64_t i = 0; i < runs; ++i) {
      row.from = from + i * (is_flat ? down : across);
      if (place.add) row.add = place.add + (pixel + i * next) * place.add_pixel;
      row.to = place.to + (pixel + i * next) * place.to_pixel;
      simd::table().depthwise(row);
    }
  }

  // In place, or as blocks of channels in float32, side by side.
  Source source_of(const std::byte* image, const Part& part, float* copy) const {
    const Strides& strides = image_.strides;
    const std::int64_t size = item_size(dtype_);
    const std::byte* from = image + size * (part.image * strides[0] + part.channel * strides[1]);
    if (in_place_) return {reinterpret_cast<const float*>(from), strides[2], strides[3]};
    const std::int64_t top = std::max(part.begin * step_.h - padding_.h, std::int64_t{0});
    const std::int64_t end = std::min(
        (part.end - 1) * step_.h - padding_.h + (kernel_.h - 1) * dilation_.h + 1, image_.shape[2]);
    for (std::int64_t y = top; y < end; ++y)
      for (std::int64_t done = 0; done < part.channels; done += kBlock) {
        Part block = part;
        block.channel += done, block.channels = std::min(kBlock, part.channels - done);
        float* const to = copy + done / kBlock * block_floats() + (y - top) * width_ * kBlock;
        copy_line(image + size * (part.image * strides[0] + y * strides[2]), block, to);
      }
    return {copy + (padding_.w - top * width_) * kBlock, width_ * kBlock, kBlock};
  }

  // A block of channels of a line of the image, in float32, between zeros.
  void copy_line(const std::byte* line, const Part& part, float* to) const {
    const Strides& strides = image_.strides;
    const std::int64_t size = item_size(dtype_), first = part.channel / filters_;
    const std::byte* const from = line + size * first * strides[1];
    const std::int64_t count = std::clamp<std::int64_t>(width_ - padding_.w, 0, image_.shape[3]);
    const std::int64_t before = std::min(padding_.w, width_), after = width_ - before - count;
    std::fill_n(to, before * kBlock, 0.0f);
    to += before * kBlock;
    if (dtype_ == f32 && filters_ == 1 && (strides[1] == 1 || channels_ == 1)) {
      simd::table().copy_rows(to, kBlock, reinterpret_cast<const float*>(from), strides[3], count,
                              part.channels);
    } else {
      const auto load = simd::table().load[static_cast<int>(dtype_)];
      const std::int64_t read = (part.channel + part.channels - 1) / filters_ + 1 - first;
      for (std::int64_t x = 0; x < count; ++x)
        load(to + x * kBlock, from + size * x * strides[3], strides[1], read);
      if (filters_ > 1) repeat(to, count, part);
    }
    std::fill_n(to + count * kBlock, after * kBlock, 0.0f);
  }

  // Each channel as often as it has filters.
  void repeat(float* pixels, std::int64_t count, const Part& part) const {
    std::array<std::int64_t, kBlock> from{};
    for (std::int64_t i = 0; i < part.channels; ++i)
      from.begin()[i] = (part.channel + i) / filters_ - part.channel / filters_;
    std::array<float, kBlock> once{};
    for (; count > 0; --count, pixels += kBlock) {
      std::copy_n(pixels, kBlock, once.begin());
      std::transform(from.begin(), from.end(), pixels,
                     [&](std::int64_t channel) { return once.begin()[channel]; });
    }
  }

  ProductResult result_;
  std::size_t x_;  // operand
  Layout image_;
  DType dtype_;
  Pair kernel_, out_, step_, padding_, dilation_;
  std::int64_t channels_ = 0, filters_ = 1;  // of the result; of a channel of the image
  std::int64_t width_ = 1;                   // of what is copied
  std::int64_t bands_ = 1, chunks_ = 1;      // of lines and blocks; tasks of an image
  std::int64_t lines_at_once_ = 1, sum_lines_ = 1;
  std::vector<Stretch> down_, across_;
  int threads_ = 1;
  bool in_place_ = false, is_direct_ = false;
  Tensor packed_;
  std::vector<float> first_;  // the bias, or empty
  std::vector<float> scales_, shifts_;
};

bool is_depthwise(const Graph& graph, const Node& node) {
  if (node.op != Op::conv2d || !graph.is_constant(node.inputs[1])) return false;
  const Shape& filters = graph.type(node.inputs[1]).shape;
  return filters[1] == 1 && node.attrs.integer("groups") > 1;
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
  // Of AVX2's peak, measured: small filters are bound by what is read.
  const Shape& filters = graph.type(graph[product.anchor].inputs[1]).shape;
  const double share = filters[2] * filters[3] < kLargeFilter ? 0.5 : 0.62;
  return implementation(
      alone, machine,
      [=](const Machine& m) {
        const double compute = work.flops / (share * m.f32_gflops) + moved / (4 * m.simple_gops);
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
