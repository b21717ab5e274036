// The rows of a convolution: what a filter lies on, copied run by run of numbers that lie side by
// side in the image.
#include <algorithm>
#include <cstring>

#include "src/core/rounding.h"
#include "src/kernels/cpu/blocks/access.h"
#include "src/kernels/cpu/product/rows.h"
#include "src/kernels/host/simd/table.h"

namespace tensor::cpu {
namespace {

class WindowRows : public ProductRows {
 public:
  WindowRows(const Layout& image, const Node& node, Pair kernel, std::int64_t channels,
             const Numbers& numbers, WindowOrder order)
      : numbers_(numbers),
        size_(numbers.stored_bytes()),
        gather_(size_ == 4   ? simd::table().gather
                : size_ == 2 ? simd::table().gather_halves
                             : simd::table().gather_bytes),
        order_(order),
        images_(image.shape[0]),
        channels_(channels),
        height_(image.shape[2]),
        width_(image.shape[3]),
        kernel_(kernel),
        out_{node.type.shape[2], node.type.shape[3]},
        step_(pair_of(node.attrs, "stride", 0, "conv")),
        padding_(pair_of(node.attrs, "padding", 0, "conv")),
        dilation_(pair_of(node.attrs, "dilation", 0, "conv")),
        image_(image.strides[0]),
        channel_(channels == 1 ? 1 : image.strides[1]),
        line_(image.strides[2]),
        pixel_(width_ == 1 ? 1 : image.strides[3]) {
    reach_ = (images_ - 1) * image_ + (channels_ - 1) * channel_ + (height_ - 1) * line_ +
             (width_ - 1) * pixel_ + 1;
    if (order == WindowOrder::channels_first)
      find_runs_of_lines();
    else
      find_runs_of_pixels();
    for (const Run& run : runs_) {
      offsets_.push_back(run.y * line_ + run.x * pixel_ + run.channel * channel_);
      last_ = std::max(last_, offsets_.back());
    }
    inside_y_ = inside(height_, kernel_.h, out_.h, step_.h, padding_.h, dilation_.h);
    inside_x_ = inside(width_, kernel_.w, out_.w, step_.w, padding_.w, dilation_.w);
  }

  std::int64_t k() const override { return kernel_.h * kernel_.w * channels_; }

  void gather(const std::byte* from, const Range& rows, const Range& k, std::byte* to,
              std::int64_t pitch) const override {
    std::int64_t x = rows.begin % out_.w, y = rows.begin / out_.w % out_.h,
                 n = rows.begin / (out_.w * out_.h);
    for (std::int64_t row = rows.begin, count; row < rows.end; row += count, to += count * pitch) {
      const Place at{n, y * step_.h - padding_.h, x * step_.w - padding_.w};
      count = quick_windows(at, {x, std::min(out_.w, x + rows.end - row)}, y);
      if (count > 0)
        gather_windows(from, at, count, k, to, pitch);
      else
        gather_window(from, at, k, to), count = 1;
      x += count;
      if (x < out_.w) continue;
      x = 0;
      if (++y < out_.h) continue;
      y = 0, ++n;
    }
  }

  // Lines of windows that lie beyond the image are zeros.
  Stretch stretch(const Range& rows) const override {
    if (order_ == WindowOrder::channels_first || padding_.h == 0) return {rows, {0, k()}};
    const auto lines_of = [&](std::int64_t row) {
      const std::int64_t first = row / out_.w % out_.h * step_.h - padding_.h;
      const std::int64_t begin = std::min(first < 0 ? ceil_div(-first, dilation_.h) : 0, kernel_.h);
      const std::int64_t inside = first < height_ ? ceil_div(height_ - first, dilation_.h) : 0;
      return Range{begin, std::clamp(inside, begin, kernel_.h)};
    };
    const Range lines = lines_of(rows.begin);
    std::int64_t end = (rows.begin / out_.w + 1) * out_.w;
    for (; end < rows.end; end += out_.w)
      if (const Range next = lines_of(end); next.begin != lines.begin || next.end != lines.end)
        break;
    const std::int64_t line = kernel_.w * channels_;
    return {{rows.begin, std::min(end, rows.end)}, {lines.begin * line, lines.end * line}};
  }

  // A filter of one pixel that goes from pixel to pixel reads a matrix.
  std::optional<std::int64_t> row_bytes() const override {
    const bool is_one = kernel_.h == 1 && kernel_.w == 1 && padding_.h == 0 && padding_.w == 0 &&
                        step_.h == 1 && step_.w == 1 && channel_ == 1;
    const auto stride = Access({images_, height_, width_}, {image_, line_, pixel_}).stride();
    if (!is_one || !stride || !numbers_.are_same()) return std::nullopt;
    return numbers_.stored_bytes() * *stride;
  }

 private:
  // Where a window's first pixel is, and where a run begins from there; all runs are as long.
  struct Place {
    std::int64_t image, y, x;
  };
  struct Run {
    std::int64_t y, x, channel;
  };

  // Pixels of one channel that are neighbours.
  void find_runs_of_lines() {
    const bool is_line = dilation_.w == 1;
    pixels_ = is_line ? kernel_.w : 1, numbers_of_pixel_ = 1;
    for (std::int64_t c = 0; c < channels_; ++c)
      for (std::int64_t y = 0; y < kernel_.h; ++y)
        for (std::int64_t x = 0; x < kernel_.w; x += pixels_)
          runs_.push_back({y * dilation_.h, x * dilation_.w, c});
  }

  // Channels of one pixel, or of neighbours.
  void find_runs_of_pixels() {
    numbers_of_pixel_ = channel_ == 1 ? channels_ : 1;
    pixels_ = channel_ == 1 && dilation_.w == 1 && pixel_ == channels_ ? kernel_.w : 1;
    for (std::int64_t y = 0; y < kernel_.h; ++y)
      for (std::int64_t x = 0; x < kernel_.w; x += pixels_)
        for (std::int64_t c = 0; c < channels_; c += numbers_of_pixel_)
          runs_.push_back({y * dilation_.h, x * dilation_.w, c});
  }

  std::int64_t run_length() const { return pixels_ * numbers_of_pixel_; }

  // Pixels of the result whose windows lie inside of the image.
  static Range inside(std::int64_t size, std::int64_t kernel, std::int64_t results,
                      std::int64_t step, std::int64_t padding, std::int64_t dilation) {
    const std::int64_t last = size - 1 - (kernel - 1) * dilation + padding;  // begins there
    const std::int64_t end = last < 0 ? 0 : std::min(last / step + 1, results);
    return {std::min(ceil_div(padding, step), end), end};
  }

  std::int64_t offset_of(const Place& at) const {
    return at.image * image_ + at.y * line_ + at.x * pixel_;
  }

  // How many windows from the first of `xs` on can be copied by vectors, which read too much.
  std::int64_t quick_windows(const Place& at, const Range& xs, std::int64_t y) const {
    if (!numbers_.are_same()) return 0;
    if (y < inside_y_.begin || y >= inside_y_.end || xs.begin < inside_x_.begin) return 0;
    const std::int64_t room = reach_ - offset_of(at) - last_ - run_length() - kGatherSlack / size_;
    if (room < 0) return 0;
    return std::min(std::min(xs.end, inside_x_.end) - xs.begin, room / (step_.w * pixel_) + 1);
  }

  void gather_windows(const std::byte* from, const Place& at, std::int64_t count, const Range& k,
                      std::byte* to, std::int64_t pitch) const {
    const std::int64_t to_row = pitch / size_;
    // Pixels that are neighbours in each channel are transposed.
    if (size_ == 4 && kernel_.h == 1 && kernel_.w == 1 && pixel_ == 1 && step_.w == 1 &&
        run_length() == 1) {
      simd::table().pack_columns(
          reinterpret_cast<float*>(to), to_row,
          reinterpret_cast<const float*>(from) + offset_of(at) + k.begin * channel_, channel_,
          k.size(), count);
      return;
    }
    simd::Runs runs;
    runs.from_row = step_.w * pixel_;
    runs.rows = count;
    runs.to_row = to_row;
    for (std::int64_t begin = k.begin; begin < k.end; begin += runs.count * runs.length) {
      const std::int64_t run = begin / run_length(), skipped = begin % run_length();
      runs.count = skipped == 0 ? std::max((k.end - begin) / run_length(), std::int64_t{1}) : 1;
      runs.length = std::min(run_length() - skipped, k.end - begin);
      runs.from = from + size_ * (offset_of(at) + skipped);
      runs.offsets = &offsets_[at_run(run)];
      runs.to = to + size_ * (begin - k.begin);
      gather_(runs);
    }
  }

  void gather_window(const std::byte* from, const Place& at, const Range& k, std::byte* to) const {
    for (std::int64_t begin = k.begin, end; begin < k.end; begin = end) {
      const std::int64_t run = begin / run_length(), skipped = begin % run_length();
      end = std::min((run + 1) * run_length(), k.end);
      gather_run(from + numbers_.stored_bytes() * (offset_of(at) + offsets_[at_run(run)]), at,
                 runs_[at_run(run)], {skipped, skipped + end - begin}, to);
      to += (end - begin) * numbers_.taken_bytes();
    }
  }

  // A part of a run, of which some may lie beyond the image.
  void gather_run(const std::byte* run_from, const Place& at, const Run& run, const Range& part,
                  std::byte* to) const {
    const std::int64_t y = at.y + run.y, x = at.x + run.x, size = numbers_.taken_bytes();
    Range inside{0, 0};
    if (y >= 0 && y < height_)
      inside = {std::max(-x, std::int64_t{0}) * numbers_of_pixel_,
                std::min(pixels_, width_ - x) * numbers_of_pixel_};
    inside.begin = std::clamp(inside.begin, part.begin, part.end);
    inside.end = std::clamp(inside.end, inside.begin, part.end);
    std::memset(to, 0, static_cast<std::size_t>((inside.begin - part.begin) * size));
    if (inside.size() > 0)
      numbers_.copy(to + (inside.begin - part.begin) * size,
                    run_from + numbers_.stored_bytes() * inside.begin, 1, inside.size());
    std::memset(to + (inside.end - part.begin) * size, 0,
                static_cast<std::size_t>((part.end - inside.end) * size));
  }

  static std::size_t at_run(std::int64_t run) { return static_cast<std::size_t>(run); }

  Numbers numbers_;
  std::int64_t size_;  // of a number as it is stored, in bytes
  simd::Table::Gather gather_;
  WindowOrder order_;
  std::int64_t images_, channels_, height_, width_;
  Pair kernel_, out_, step_, padding_, dilation_;
  std::int64_t image_, channel_, line_, pixel_;  // strides
  std::int64_t reach_ = 0;                       // from the first element behind the last
  std::vector<Run> runs_;
  std::vector<std::int64_t> offsets_;  // of the runs, from a window's first element
  std::int64_t last_ = 0;              // of these
  Range inside_y_{0, 0}, inside_x_{0, 0};
  std::int64_t pixels_ = 1, numbers_of_pixel_ = 1;  // of a run
};

}  // namespace

WindowOrder window_order(const Layout& image) {
  const bool are_lines = image.shape[1] > 1 && image.strides[1] != 1 && image.strides[3] == 1;
  return are_lines ? WindowOrder::channels_first : WindowOrder::channels_last;
}

std::unique_ptr<ProductRows> window_rows(const Layout& image, const Node& convolution, Pair kernel,
                                         std::int64_t channels, const Numbers& numbers,
                                         WindowOrder order) {
  return std::make_unique<WindowRows>(image, convolution, kernel, channels, numbers, order);
}

}  // namespace tensor::cpu
