// max_pool2d and avg_pool2d with PyTorch's meaning: one number of every window of an image.
#include "src/ops/pool.h"

#include <algorithm>

#include "src/core/dispatch.h"
#include "src/core/loop.h"
#include "src/ops/op.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// ---- Type rules. Attributes: kernel_size, stride, padding (height and width); ceil_mode and
// count_include_pad, which are left out where they are PyTorch's defaults.

// Rounded up, but every window begins on the image or on the padding before it.
std::int64_t windows(std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                     std::int64_t padding, bool rounds_up) {
  const std::int64_t room = extent + 2 * padding - kernel + (rounds_up ? stride - 1 : 0);
  if (room < 0) return 0;
  const std::int64_t count = room / stride + 1;
  return rounds_up && (count - 1) * stride >= extent + padding ? count - 1 : count;
}

TensorType infer_pool(const TensorType& x, const Attrs& attrs, std::string_view where) {
  check_images(x.shape, where);
  const Pool pool = pool_of(attrs, where);
  if (x.shape[2] == 0 || x.shape[3] == 0)
    fail(where, "got an input of the shape ", x.shape, ", need at least 1 x 1");
  const std::int64_t rows = windows(x.shape[2], pool.kernel.h, pool.stride.h, pool.padding.h,
                                    pool.rounds_up),
                     columns = windows(x.shape[3], pool.kernel.w, pool.stride.w, pool.padding.w,
                                       pool.rounds_up);
  if (rows <= 0 || columns <= 0)
    fail(where, "the kernel covers ", pool.kernel.h, " x ", pool.kernel.w,
         " elements, but the padded input has ", x.shape[2] + 2 * pool.padding.h, " x ",
         x.shape[3] + 2 * pool.padding.w);
  return {{x.shape[0], x.shape[1], rows, columns}, x.dtype};
}

TensorType infer_max_pool2d(std::span<const TensorType> in, const Attrs& attrs) {
  return infer_pool(in[0], attrs, "max_pool2d");
}

TensorType infer_avg_pool2d(std::span<const TensorType> in, const Attrs& attrs) {
  check_floating(in[0].dtype, "avg_pool2d");
  return infer_pool(in[0], attrs, "avg_pool2d");
}

// ---- Kernels.

// Every output element is fold(elements of the window), where fold gets the image's first element,
// its strides, the window's rows and columns, and how many places an average is over.
template <class T, class Fold>
void pool_images(const ConstView& x, const Pool& pool, const View& out, const Fold& fold) {
  const Strides steps{x.strides[2], x.strides[3]};
  const auto images = [](const Dims& dims) { return Dims{dims[0], dims[1]}; };
  const auto pool_image = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t oy = 0; oy < out.shape[2]; ++oy) {
      const Range rows = window_at(oy, pool.kernel.h, pool.stride.h, pool.padding.h, x.shape[2]);
      const std::int64_t height = counted_at(oy, pool.kernel.h, pool.stride.h, pool.padding.h,
                                             x.shape[2], pool.counts_padding);
      for (std::int64_t ox = 0; ox < out.shape[3]; ++ox) {
        const Range columns =
            window_at(ox, pool.kernel.w, pool.stride.w, pool.padding.w, x.shape[3]);
        const std::int64_t width = counted_at(ox, pool.kernel.w, pool.stride.w, pool.padding.w,
                                              x.shape[3], pool.counts_padding);
        out.as<T>()[to + oy * out.strides[2] + ox * out.strides[3]] =
            fold(x.as<T>() + from, steps, rows, columns, height * width);
      }
    }
  };
  for_each_index(images(x.shape), pool_image, images(x.strides), images(out.strides));
}

template <class T>
T maximum_in(const T* image, const Strides& steps, const Range& rows, const Range& columns,
             std::int64_t) {
  auto best = static_cast<Compute<T>>(image[rows.begin * steps[0] + columns.begin * steps[1]]);
  for (std::int64_t y = rows.begin; y < rows.end; ++y)
    for (std::int64_t x = columns.begin; x < columns.end; ++x) {
      const auto value = static_cast<Compute<T>>(image[y * steps[0] + x * steps[1]]);
      if (value > best || value != value) best = value;  // NaN wins, and nothing beats it
    }
  return convert<T>(best);
}

template <class T>
T average_of(const T* image, const Strides& steps, const Range& rows, const Range& columns,
             std::int64_t count) {
  double sum = 0;
  for (std::int64_t y = rows.begin; y < rows.end; ++y)
    for (std::int64_t x = columns.begin; x < columns.end; ++x)
      sum += static_cast<double>(static_cast<Compute<T>>(image[y * steps[0] + x * steps[1]]));
  return convert<T>(sum / static_cast<double>(count));
}

void eval_max_pool2d(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  dispatch(out.dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    pool_images<T>(in[0], pool_of(attrs, "max_pool2d"), out, maximum_in<T>);
  });
}

void eval_avg_pool2d(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  dispatch_floating(out.dtype, "avg_pool2d", [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    pool_images<T>(in[0], pool_of(attrs, "avg_pool2d"), out, average_of<T>);
  });
}

constexpr OpInfo kPoolRows[] = {
    {Op::max_pool2d, "max_pool2d", 1, 1, Pattern::reduction, infer_max_pool2d, eval_max_pool2d},
    {Op::avg_pool2d, "avg_pool2d", 1, 1, Pattern::reduction, infer_avg_pool2d, eval_avg_pool2d},
};

Tensor pooled(Op op, const Tensor& x, Pair kernel, Pair stride, Pair padding, bool ceil_mode,
              bool count_include_pad) {
  if (stride.h == 0 && stride.w == 0) stride = kernel;
  Attrs attrs{{"kernel_size", pair_value(kernel)},
              {"stride", pair_value(stride)},
              {"padding", pair_value(padding)}};
  if (ceil_mode) attrs.set("ceil_mode", true);
  if (!count_include_pad) attrs.set("count_include_pad", false);
  return apply_op(op, {x}, attrs);
}

}  // namespace

std::span<const OpInfo> pool_ops() { return kPoolRows; }

Pool pool_of(const Attrs& attrs, std::string_view where) {
  const Pool pool{pair_of(attrs, "kernel_size", 1, where), pair_of(attrs, "stride", 1, where),
                  pair_of(attrs, "padding", 0, where), attrs.flag("ceil_mode", false),
                  attrs.flag("count_include_pad", true)};
  // With this, every window holds at least one element of the image.
  if (pool.padding.h > pool.kernel.h / 2 || pool.padding.w > pool.kernel.w / 2)
    fail(where, "got the padding ", pool.padding.h, " x ", pool.padding.w, " for the kernel ",
         pool.kernel.h, " x ", pool.kernel.w, ", need at most half of it");
  return pool;
}

Range window_at(std::int64_t place, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                std::int64_t extent) {
  const std::int64_t begin = place * stride - padding;
  return {std::max<std::int64_t>(begin, 0), std::min(begin + kernel, extent)};
}

std::int64_t counted_at(std::int64_t place, std::int64_t kernel, std::int64_t stride,
                        std::int64_t padding, std::int64_t extent, bool counts_padding) {
  const std::int64_t begin = place * stride - padding, around = counts_padding ? padding : 0;
  return std::min(begin + kernel, extent + around) - std::max(begin, -around);
}

Tensor max_pool2d(const Tensor& x, Pair kernel_size, Pair stride, Pair padding, bool ceil_mode) {
  return pooled(Op::max_pool2d, x, kernel_size, stride, padding, ceil_mode, true);
}

Tensor avg_pool2d(const Tensor& x, Pair kernel_size, Pair stride, Pair padding, bool ceil_mode,
                  bool count_include_pad) {
  return pooled(Op::avg_pool2d, x, kernel_size, stride, padding, ceil_mode, count_include_pad);
}

}  // namespace tensor
