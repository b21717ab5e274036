// roi_align with torchvision's meaning: means of samples of the cells into which boxes on images
// are divided.
#include "src/ops/roi_align.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "src/core/dispatch.h"
#include "src/core/parallel.h"
#include "src/ops/op.h"
#include "src/ops/promote.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

constexpr const char* kRoiAlign = "roi_align";
constexpr std::int64_t kColumns = 5;  // of a box: its image, left, top, right, bottom

TensorType infer_roi_align(std::span<const TensorType> in, const Attrs& attrs) {
  const Shape &x = in[0].shape, &boxes = in[1].shape;
  check_images(x, kRoiAlign);
  check_floating(in[0].dtype, kRoiAlign);
  if (boxes.rank() != 2 || boxes[1] != kColumns)
    fail(kRoiAlign, "got boxes of the shape ", boxes,
         ", need (K, 5): the image of each, x1, y1, x2 ", "and y2");
  if (in[1].dtype != wide_type(in[0].dtype))
    fail(kRoiAlign, "got boxes of ", in[1].dtype, " for ", in[0], ", need ",
         wide_type(in[0].dtype));
  if (x[0] == 0 || x[2] == 0 || x[3] == 0)
    fail(kRoiAlign, "got an input of the shape ", x, ", need at least one image of 1 x 1");
  const RoiAlign roi = roi_align_of(attrs);
  return {{boxes[0], x[1], roi.cells.h, roi.cells.w}, in[0].dtype};
}

// ---- What a cell is made of: pixels and their weights, along an axis and of both.

template <class A>
struct WeightedPlace {
  std::int64_t place;  // along an axis, or of an element
  A weight;
};

// Neighbouring samples have pixels in common.
template <class A>
void add_tap(std::vector<WeightedPlace<A>>& taps, std::size_t first, std::int64_t place, A weight) {
  for (std::size_t i = taps.size(); i > first && i + 2 > taps.size(); --i)
    if (taps[i - 1].place == place) {
      taps[i - 1].weight += weight;
      return;
    }
  taps.push_back({place, weight});
}

template <class A>
struct CellTaps {
  std::vector<WeightedPlace<A>> taps;  // of all cells
  std::vector<std::size_t> ends;       // of each cell's
};

// Divides a box from `low` to `high`, which count pixels from the middle of the first one.
template <class A>
void divide_box(A low, A high, std::int64_t cells, std::int64_t extent, const RoiAlign& roi,
                CellTaps<A>& axis) {
  A length = high - low;
  if (!roi.is_aligned) length = std::max(length, A(1));
  const A cell = length / static_cast<A>(cells), end = static_cast<A>(extent);
  std::int64_t count = roi.samples;
  if (count == 0 && cell > 0)
    count = static_cast<std::int64_t>(std::ceil(std::min(cell, static_cast<A>(kMostSamples))));
  axis.taps.clear(), axis.ends.clear();
  for (std::int64_t k = 0; k < cells; ++k) {
    const std::size_t first_tap = axis.taps.size();
    const A begin = low + cell * static_cast<A>(k), step = cell / static_cast<A>(count);
    // Those that may meet the image, and one more on either side, which rounding may bring there.
    std::int64_t first = 0, last = std::isfinite(begin) && std::isfinite(cell) ? count : 0;
    if (step > 0 && last > 0) {
      const auto at_least = [&](A place) {
        return static_cast<std::int64_t>(
            std::clamp(std::ceil((place - begin) / step - A(0.5)), A(0), static_cast<A>(count)));
      };
      first = std::max<std::int64_t>(at_least(-1) - 1, 0);
      last = std::min(at_least(end) + 2, count);
    }
    for (std::int64_t i = first; i < last; ++i) {
      const A at = begin + (static_cast<A>(i) + A(0.5)) * step;
      if (!(at >= -1 && at <= end)) continue;
      const A inside = std::clamp(at, A(0), end - 1), below = std::floor(inside);
      const std::int64_t place = std::min(static_cast<std::int64_t>(below), extent - 1);
      const A rest = inside - below, weight = 1 / static_cast<A>(count);
      add_tap(axis.taps, first_tap, place, (1 - rest) * weight);
      if (rest > 0 && place + 1 < extent) add_tap(axis.taps, first_tap, place + 1, rest * weight);
    }
    axis.ends.push_back(axis.taps.size());
  }
}

// The same of both axes: of every cell the elements at which its pixels begin.
template <class A>
void unite_axes(const CellTaps<A>& rows, const CellTaps<A>& columns, std::int64_t row_step,
                std::int64_t column_step, CellTaps<A>& both) {
  both.taps.clear(), both.ends.clear();
  for (std::size_t i = 0, y0 = 0; i < rows.ends.size(); y0 = rows.ends[i++])
    for (std::size_t j = 0, z0 = 0; j < columns.ends.size(); z0 = columns.ends[j++]) {
      for (std::size_t y = y0; y < rows.ends[i]; ++y)
        for (std::size_t z = z0; z < columns.ends[j]; ++z)
          both.taps.push_back({rows.taps[y].place * row_step + columns.taps[z].place * column_step,
                               rows.taps[y].weight * columns.taps[z].weight});
      both.ends.push_back(both.taps.size());
    }
}

// ---- The reference.

// Images with their channels last, in the type that sums have: a pixel is a line of memory.
template <class T, class A>
Tensor with_channels_last(const ConstView& x, DType sums) {
  const std::int64_t channels = x.shape[1], height = x.shape[2], width = x.shape[3];
  Tensor result = empty({x.shape[0], height, width, channels}, sums);
  A* to = result.mutable_data<A>();
  constexpr std::int64_t kPixels = 16;  // as many as lie in a line of the cache
  for (std::int64_t n = 0; n < x.shape[0]; ++n)
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t begin = 0; begin < width; begin += kPixels) {
        const std::int64_t count = std::min(kPixels, width - begin);
        const T* from = x.as<T>() + n * x.strides[0] + y * x.strides[2] + begin * x.strides[3];
        for (std::int64_t c = 0; c < channels; ++c)
          for (std::int64_t i = 0; i < count; ++i)
            to[i * channels + c] = static_cast<A>(from[c * x.strides[1] + i * x.strides[3]]);
        to += count * channels;
      }
  return result;
}

// The weighted sums of pixels, channel by channel.
template <class A>
void sum_pixels(const A* image, std::span<const WeightedPlace<A>> taps, std::span<A> sums) {
  std::ranges::fill(sums, A(0));
  A* to = sums.data();
  const std::size_t channels = sums.size();
  std::size_t i = 0;
  for (; i + 4 <= taps.size(); i += 4) {  // sums come from memory and go there once for all four
    const A *p = image + taps[i].place, *q = image + taps[i + 1].place,
            *r = image + taps[i + 2].place, *s = image + taps[i + 3].place;
    const A a = taps[i].weight, b = taps[i + 1].weight, c = taps[i + 2].weight,
            d = taps[i + 3].weight;
    for (std::size_t k = 0; k < channels; ++k)
      to[k] += (a * p[k] + b * q[k]) + (c * r[k] + d * s[k]);
  }
  for (; i < taps.size(); ++i) {
    const A* p = image + taps[i].place;
    for (std::size_t k = 0; k < channels; ++k) to[k] += taps[i].weight * p[k];
  }
}

void eval_roi_align(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  if (num_elements(out.shape) == 0) return;
  const ConstView &x = in[0], &boxes = in[1];
  const RoiAlign roi = roi_align_of(attrs);
  dispatch_floating(x.dtype, kRoiAlign, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    using A = Compute<T>;
    const std::int64_t images = x.shape[0], channels = x.shape[1], height = x.shape[2],
                       width = x.shape[3];
    ConstView source = x;
    Tensor copied;
    if (x.strides[1] != 1 || x.dtype != boxes.dtype) {
      copied = with_channels_last<T, A>(x, boxes.dtype);
      source = const_view(transpose(copied, {0, 3, 1, 2}));
    }
    const Strides& steps = source.strides;
    const auto align = [&](std::int64_t r, CellTaps<A>& rows, CellTaps<A>& columns,
                           CellTaps<A>& cells, std::span<A> sums) {
      const auto number = [&](std::int64_t k) {
        return boxes.as<A>()[r * boxes.strides[0] + k * boxes.strides[1]];
      };
      const auto place = [&](std::int64_t k) {
        return number(k) * static_cast<A>(roi.scale) - A(roi.is_aligned ? 0.5 : 0);
      };
      divide_box(place(2), place(4), roi.cells.h, height, roi, rows);
      divide_box(place(1), place(3), roi.cells.w, width, roi, columns);
      unite_axes(rows, columns, steps[2], steps[3], cells);
      // Numbers that no image has are those of the nearest.
      const A last = static_cast<A>(images - 1);
      const auto n = static_cast<std::int64_t>(number(0) > 0 ? std::min(number(0), last) : A(0));
      const A* image = source.as<A>() + n * steps[0];
      T* to = out.as<T>() + r * out.strides[0];
      std::size_t first = 0;
      for (std::size_t k = 0; k < cells.ends.size(); first = cells.ends[k++]) {
        sum_pixels<A>(image, std::span(cells.taps).subspan(first, cells.ends[k] - first), sums);
        const auto cell = static_cast<std::int64_t>(k);
        T* there = to + cell / roi.cells.w * out.strides[2] + cell % roi.cells.w * out.strides[3];
        for (std::int64_t c = 0; c < channels; ++c)
          there[c * out.strides[1]] = convert<T>(sums[static_cast<std::size_t>(c)]);
      }
    };
    constexpr std::int64_t kBoxes = 8;  // of a piece, which share the memory of their taps
    cpu::for_pieces(boxes.shape[0], kBoxes, [&](std::int64_t begin, std::int64_t end) {
      CellTaps<A> rows, columns, cells;
      std::vector<A> sums(static_cast<std::size_t>(channels));
      for (std::int64_t r = begin; r < end; ++r) align(r, rows, columns, cells, sums);
    });
  });
}

constexpr OpInfo kRoiRows[] = {
    {Op::roi_align, "roi_align", 2, 2, Pattern::reduction, infer_roi_align, eval_roi_align},
};

}  // namespace

std::span<const OpInfo> roi_ops() { return kRoiRows; }

RoiAlign roi_align_of(const Attrs& attrs) {
  constexpr std::int64_t kMostRatio = 1 << 15;
  const RoiAlign roi{pair_of(attrs, "output_size", 1, kRoiAlign), attrs.number("spatial_scale"),
                     attrs.integer("sampling_ratio"), attrs.flag("aligned")};
  if (roi.samples < 0 || roi.samples > kMostRatio)
    fail(kRoiAlign, "got sampling_ratio=", roi.samples, ", need 1 to ", kMostRatio,
         ", or 0 for as many as there are pixels");
  if (!std::isfinite(roi.scale))
    fail(kRoiAlign, "got spatial_scale=", roi.scale, ", need a finite number");
  return roi;
}

Tensor roi_align(const Tensor& x, const Tensor& boxes, Pair size, const RoiAlignOptions& options) {
  return apply_op(Op::roi_align, {x, cast(boxes, wide_type(x.dtype()))},
                  {{"output_size", pair_value(size)},
                   {"spatial_scale", options.spatial_scale},
                   {"sampling_ratio", std::max<std::int64_t>(options.sampling_ratio, 0)},
                   {"aligned", options.aligned}});
}

}  // namespace tensor
