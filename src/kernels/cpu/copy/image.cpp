// The image family: pooling and resizing of images whose channels lie last. All of them are
// separable: every row of the result is folded from a few rows of the input, then every pixel of it
// from a few pixels of that row. A fold is a weighted sum or, for max_pool2d, a maximum.
#include <algorithm>

#include "src/core/parallel.h"
#include "src/kernels/cpu/families.h"
#include "src/kernels/host/simd/table.h"
#include "src/kernels/host/strided_copy.h"
#include "src/ops/pool.h"
#include "src/ops/resize.h"

namespace tensor::cpu {
namespace {

// What every place of an axis of the result is folded from, one after the other.
struct Axis {
  std::vector<std::int64_t> places;  // of the input
  std::vector<float> weights;
  std::vector<std::size_t> begins = {0};  // of every place of the result, and the end
  std::size_t longest = 0;

  void add(std::int64_t place, double weight) {
    places.push_back(place);
    weights.push_back(static_cast<float>(weight));
  }
  void end_place() {
    longest = std::max(longest, places.size() - begins.back());
    begins.push_back(places.size());
  }
  bool is_copy(std::size_t place) const {
    return begins[place + 1] == begins[place] + 1 && weights[begins[place]] == 1;
  }
};

Axis interpolated(std::int64_t from, std::int64_t to, const Attrs& attrs) {
  Axis axis;
  for (const Taps& taps : interpolation_taps(from, to, attrs)) {
    for (const Tap& tap : taps) axis.add(tap.place, tap.weight);
    axis.end_place();
  }
  return axis;
}

// The weight of a window's places is `total` by the number of places that an average counts, or 1
// where there is no total.
Axis pooled(std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t stride,
            std::int64_t padding, bool counts_padding, double total) {
  Axis axis;
  for (std::int64_t i = 0; i < to; ++i) {
    const Range window = window_at(i, kernel, stride, padding, from);
    const std::int64_t count = counted_at(i, kernel, stride, padding, from, counts_padding);
    const double weight = total > 0 ? total / static_cast<double>(count) : 1;
    for (std::int64_t place = window.begin; place < window.end; ++place) axis.add(place, weight);
    axis.end_place();
  }
  return axis;
}

// An operand, or its copy in scratch memory with the channels last.
struct Image {
  Shape shape;
  Strides strides;
  bool is_copied = false;
  StridedCopy copy;

  Image(const Layout& layout, std::int64_t item, bool is_result)
      : shape(layout.shape), strides(layout.strides) {
    const bool has_lines =
        (shape[1] == 1 || strides[1] == 1) && (shape[3] == 1 || strides[3] == shape[1]);
    if (has_lines) return;
    is_copied = true;
    strides = strides_in_order(shape, {0, 2, 3, 1});
    copy = is_result ? StridedCopy(shape, strides, layout.strides, item)
                     : StridedCopy(shape, layout.strides, strides, item);
  }
  std::int64_t line() const { return shape[3] * shape[1]; }  // elements of a row of pixels
};

std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

class ImageKernel : public Kernel {
 public:
  ImageKernel(const LaidOutGraph& laid, const Group& group, int threads)
      : dtype_(laid.graph[group.nodes.front()].type.dtype),
        item_(item_size(dtype_)),
        name_(info(laid.graph[group.nodes.front()].op).name),
        threads_(threads),
        in_(laid.layouts[static_cast<std::size_t>(group.reads.front())], item_, false),
        out_(laid.layouts[static_cast<std::size_t>(group.nodes.front())], item_, true) {
    const Node& node = laid.graph[group.nodes.front()];
    const auto type = static_cast<std::size_t>(dtype_);
    const bool is_largest = node.op == Op::max_pool2d;
    const auto& table = simd::table();
    fold_rows_ = is_largest ? table.largest[type] : table.weighted_sum[type];
    fold_pixels_ = (is_largest ? table.largest : table.weighted_sum)[static_cast<int>(f32)];
    if (node.op == Op::interpolate) {
      rows_ = interpolated(in_.shape[2], out_.shape[2], node.attrs);
      columns_ = interpolated(in_.shape[3], out_.shape[3], node.attrs);
    } else {
      const Pool p = pool_of(node.attrs, name_);
      const auto height = static_cast<double>(p.kernel.h);
      rows_ = pooled(in_.shape[2], out_.shape[2], p.kernel.h, p.stride.h, p.padding.h,
                     p.counts_padding, is_largest ? 0 : height);
      columns_ = pooled(in_.shape[3], out_.shape[3], p.kernel.w, p.stride.w, p.padding.w,
                        p.counts_padding, is_largest ? 0 : 1 / height);
    }
    place_scratch();
  }

  void run(std::span<std::byte* const> operands, std::byte* scratch) const override {
    const std::byte* in = operands[0];
    std::byte* out = operands[1];
    if (in_.is_copied) in_.copy.run(operands[0], scratch, threads_), in = scratch;
    if (out_.is_copied) out = scratch + copied_in_;
    std::byte* const own = scratch + copied_in_ + copied_out_;
    parallel_for(threads_, out_.shape[0] * out_.shape[2], [&](std::int64_t row, int thread) {
      const std::int64_t image = row / out_.shape[2], y = row % out_.shape[2];
      run_row(in + image * in_.strides[0] * item_, static_cast<std::size_t>(y),
              out + (image * out_.strides[0] + y * out_.strides[2]) * item_,
              own + static_cast<std::size_t>(thread) * thread_bytes_);
    });
    if (out_.is_copied) out_.copy.run(out, operands[1], threads_);
  }
  std::size_t scratch_bytes() const override {
    return copied_in_ + copied_out_ + static_cast<std::size_t>(threads_) * thread_bytes_;
  }
  std::string description() const override {
    return name_ + " " + simd::table().name + ", channels last";
  }

 private:
  void place_scratch() {
    const auto image_bytes = [&](const Image& image) {
      return image.is_copied ? padded(static_cast<std::size_t>(num_elements(image.shape) * item_))
                             : 0;
    };
    copied_in_ = image_bytes(in_);
    copied_out_ = image_bytes(out_);
    const auto take = [&](std::size_t bytes) {
      const std::size_t offset = thread_bytes_;
      thread_bytes_ += padded(bytes);
      return offset;
    };
    take(std::max(rows_.longest, columns_.longest) * sizeof(const void*));
    folded_ = take(static_cast<std::size_t>(in_.line()) * sizeof(float));
    result_ = take(static_cast<std::size_t>(out_.line()) * sizeof(float));
  }

  // `own` is the thread's scratch memory: addresses of lines, the folded row, the result.
  void run_row(const std::byte* image, std::size_t y, std::byte* out, std::byte* own) const {
    const auto** lines = reinterpret_cast<const void**>(own);
    const std::size_t begin = rows_.begins[y], count = rows_.begins[y + 1] - begin;
    for (std::size_t k = 0; k < count; ++k)
      lines[k] = image + rows_.places[begin + k] * in_.strides[2] * item_;
    const float* row = reinterpret_cast<const float*>(lines[0]);
    if (dtype_ != f32 || !rows_.is_copy(y)) {
      auto* folded = reinterpret_cast<float*>(own + folded_);
      fold_rows_(folded, lines, rows_.weights.data() + begin, static_cast<std::int64_t>(count),
                 in_.line());
      row = folded;
    }
    float* result =
        dtype_ == f32 ? reinterpret_cast<float*>(out) : reinterpret_cast<float*>(own + result_);
    const std::int64_t channels = in_.shape[1];
    for (std::size_t x = 0; x + 1 < columns_.begins.size(); ++x) {
      const std::size_t first = columns_.begins[x], pixels = columns_.begins[x + 1] - first;
      for (std::size_t k = 0; k < pixels; ++k)
        lines[k] = row + columns_.places[first + k] * channels;
      fold_pixels_(result + static_cast<std::int64_t>(x) * channels, lines,
                   columns_.weights.data() + first, static_cast<std::int64_t>(pixels), channels);
    }
    if (dtype_ != f32) simd::table().store[static_cast<int>(dtype_)](out, 1, result, out_.line());
  }

  DType dtype_;
  std::int64_t item_;
  std::string name_;
  int threads_;
  Image in_, out_;
  Axis rows_, columns_;
  simd::Table::Fold fold_rows_ = nullptr, fold_pixels_ = nullptr;
  std::size_t copied_in_ = 0, copied_out_ = 0;              // bytes of scratch memory
  std::size_t thread_bytes_ = 0, folded_ = 0, result_ = 0;  // of one thread, and where they begin
};

// What the kernel lists of an axis: places of the input, a few for each of the result, or the
// window of a pool. Lists longer than an image deserves would fill the memory.
bool has_short_lists(const Graph& graph, const Node& node) {
  constexpr double kMost = 1 << 22;
  const Shape &in = graph.type(node.inputs[0]).shape, &out = node.type.shape;
  for (const int axis : {2, 3}) {
    const auto from = static_cast<double>(in[axis]), to = static_cast<double>(out[axis]);
    double places = 4 * (from + to);  // of a cubic kernel, widened or not
    if (node.op != Op::interpolate) {
      const Pool pool = pool_of(node.attrs, "image");
      places = to * std::min(from, static_cast<double>(axis == 2 ? pool.kernel.h : pool.kernel.w));
    }
    if (places > kMost) return false;
  }
  return true;
}

std::optional<Implementation> consider_image(const Isolated& alone, const Machine& machine) {
  const Graph& graph = alone.laid.graph;
  if (alone.group.nodes.size() != 1) return std::nullopt;
  const Node& node = graph[alone.group.nodes.front()];
  if (node.op != Op::max_pool2d && node.op != Op::avg_pool2d && node.op != Op::interpolate)
    return std::nullopt;
  const DType dtype = node.type.dtype;
  if (dtype != f32 && dtype != bf16 && dtype != f16) return std::nullopt;
  if (num_elements(node.type.shape) == 0 || !has_short_lists(graph, node)) return std::nullopt;
  // Rows and pixels of a window, or of the taps on either side.
  double taps = 2;
  if (node.op != Op::interpolate) {
    const Pool pool = pool_of(node.attrs, "image");
    taps = static_cast<double>(std::max(pool.kernel.h, pool.kernel.w));
  } else if (node.attrs.text("mode") == "bicubic") {
    taps = 4;
  }
  const Work work = work_of(graph, alone.group);
  return implementation(
      alone, machine,
      [=](const Machine& m) {
        const double rate = work.bytes > m.cache_bytes ? m.memory_gbps : m.cache_gbps;
        return m.dispatch_us + (2 * taps * work.flops / m.simple_gops + work.bytes / rate) / 1e3;
      },
      [](const Isolated& one, const Machine& m) {
        return std::make_unique<ImageKernel>(one.laid, one.group, m.threads);
      });
}

}  // namespace

const Family kImage = {"image", consider_image};

}  // namespace tensor::cpu
