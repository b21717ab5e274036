// The rows of a convolution where they lie: where pixels with all their channels are neighbours, a
// line of the filter lies on one run, and the runs of a line of results are equally far apart.
// Lines that are padded, have more channels than are read, or consist of a few planes are copied,
// each once.
#pragma once

#include <algorithm>

#include "src/kernels/cpu/product/rows.h"

namespace tensor::cpu {

class WindowLines {
 public:
  /// The lines of the first `channels`; nullopt where a line of the filter lies on no single run,
  /// nor does in a copy that is worth while. The image is float32.
  static std::optional<WindowLines> of(const Layout& image, const Node& convolution, Pair kernel,
                                       std::int64_t channels);

  std::int64_t width() const { return out_.w; }                 // of a line of results
  std::int64_t words() const { return kernel_.w * channels_; }  // of a run
  std::int64_t row_bytes() const { return step_.w * channels_ * 4; }
  /// From a run to that of the filter's next line.
  std::int64_t next_words() const { return dilation_.h * pitch(); }

  /// Rows, of whole lines, that need no more than so many bytes of the image; at least a line.
  std::int64_t rows_within(std::int64_t bytes) const {
    const std::int64_t lines = bytes / (4 * pitch()) - (kernel_.h - 1) * dilation_.h - 1;
    return std::max<std::int64_t>(lines / step_.h + 1, 1) * out_.w;
  }

  /// The image's lines under some rows, with zeros on both sides, where they are copied.
  std::int64_t copy_bytes(std::int64_t rows) const;
  void copy(const float* image, const Range& rows, float* to) const;

  /// Rows of one line of results, whose filter's lines `taps` lie on the image.
  struct Segment {
    Range rows, taps;
    const float* run;  // of the first row and tap
  };
  /// Calls f(segment) for `rows`, a part of those that were copied.
  template <class F>
  void walk(const float* image, const float* copied, const Range& all, const Range& rows,
            F&& f) const {
    for (Range some{rows.begin, 0}; some.begin < rows.end; some.begin = some.end) {
      const std::int64_t line = some.begin / out_.w;
      some.end = std::min(rows.end, (line + 1) * out_.w);
      const Range taps = taps_of(line % out_.h);
      const float* from =
          is_copied_
              ? copied +
                    (first_line(line) - first_line(all.begin / out_.w) + taps.begin * dilation_.h) *
                        pitch()
              : image + line / out_.h * image_ +
                    (line % out_.h * step_.h + taps.begin * dilation_.h - padding_.h) * line_;
      f(Segment{some, taps, from + some.begin % out_.w * step_.w * channels_});
    }
  }

 private:
  WindowLines(const Layout& image, const Node& convolution, Pair kernel, std::int64_t channels);
  std::int64_t pitch() const { return is_copied_ ? padded_ * channels_ : line_; }
  /// Lines of all images, each as high as its filters reach, one below the other.
  std::int64_t first_line(std::int64_t line) const {
    return line / out_.h * padded_lines_ + line % out_.h * step_.h;
  }
  Range taps_of(std::int64_t line) const;

  std::int64_t channels_, height_, width_, image_, line_, pixel_, channel_;
  Pair kernel_, out_, step_, padding_, dilation_;
  std::int64_t padded_ = 1, padded_lines_ = 1;  // pixels of a line; lines of an image
  bool is_copied_ = false;
};

}  // namespace tensor::cpu
