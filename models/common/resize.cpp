// Image resizing in the integer arithmetic of Pillow (Resample.c) and OpenCV (resize.cpp).
#include "models/common/resize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "tensor/creation.h"
#include "tensor/index.h"

namespace models {

using tensor::Tensor;

namespace {

constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;  // of a result, as of an image file

/// The sizes of a resize, checked.
struct Sizes {
  std::int64_t height, width, channels;
};

Sizes check(const char* where, const Tensor& image, std::int64_t height, std::int64_t width) {
  if (image.dtype() != tensor::u8 || image.rank() != 3)
    tensor::fail(where, "got ", image.type(), ", need an image u8(height, width, channels)");
  if (image.size() == 0) tensor::fail(where, "got an empty image of the shape ", image.shape());
  if (height < 1 || width < 1 || height > kMaxPixels || width > kMaxPixels / height)
    tensor::fail(where, "cannot make an image of ", height, " x ", width,
                 " pixels, need 1 x 1 up to ", kMaxPixels, " in all");
  return {image.shape(0), image.shape(1), image.shape(2)};
}

/// Its levels one behind the other, on the host.
Tensor packed(const Tensor& image) {
  const Tensor here = image.to("cpu");
  return here.is_contiguous() ? here : here.copy();
}

std::uint8_t clamp_to_byte(std::int64_t value) {
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(value, 0, 255));
}

// ---- Pillow

double sinc(double x) {
  if (x == 0) return 1;
  const double angle = x * std::numbers::pi;
  return std::sin(angle) / angle;
}

double filter_value(Filter filter, double x) {
  constexpr double kKeys = -0.5;  // the free parameter of Keys' cubic kernel
  const double distance = std::abs(x);
  switch (filter) {
    case Filter::box:
      return x > -0.5 && x <= 0.5 ? 1 : 0;
    case Filter::bilinear:
      return distance < 1 ? 1 - distance : 0;
    case Filter::hamming: {
      if (distance == 0) return 1;
      if (distance >= 1) return 0;
      const double angle = distance * std::numbers::pi;
      return std::sin(angle) / angle * (0.54f + 0.46f * std::cos(angle));
    }
    case Filter::bicubic:
      if (distance < 1) return ((kKeys + 2) * distance - (kKeys + 3)) * distance * distance + 1;
      if (distance < 2) return (((distance - 5) * distance + 8) * distance - 4) * kKeys;
      return 0;
    case Filter::lanczos:
      return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
    case Filter::nearest:
      break;
  }
  tensor::internal_error("resize_pillow", "nearest has no kernel");
}

double filter_support(Filter filter) {
  switch (filter) {
    case Filter::box:
      return 0.5;
    case Filter::bicubic:
      return 2;
    case Filter::lanczos:
      return 3;
    default:
      return 1;
  }
}

/// For one position of the result: the first input position and the fixed-point weights.
struct Window {
  std::int64_t first;
  std::vector<std::int32_t> weights;
};

constexpr int kPrecision = 22;  // bits behind the point: 32 less 8 of the level, 2 of overshoot

std::vector<Window> pillow_windows(std::int64_t in, std::int64_t out, Filter filter) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double stretch = std::max(scale, 1.0);
  const double support = filter_support(filter) * stretch;
  std::vector<Window> windows;
  std::vector<double> weights;
  for (std::int64_t position = 0; position < out; ++position) {
    const double centre = (static_cast<double>(position) + 0.5) * scale;
    const auto low = std::max<std::int64_t>(static_cast<std::int64_t>(centre - support + 0.5), 0);
    const auto high = std::min(static_cast<std::int64_t>(centre + support + 0.5), in);
    weights.clear();
    double total = 0;
    for (std::int64_t i = low; i < high; ++i) {
      weights.push_back(
          filter_value(filter, (static_cast<double>(i) - centre + 0.5) * (1 / stretch)));
      total += weights.back();
    }
    Window& window = windows.emplace_back(Window{low, {}});
    for (const double weight : weights) {
      const double share = total != 0 ? weight / total : weight;
      window.weights.push_back(
          static_cast<std::int32_t>(share * (1 << kPrecision) + (share < 0 ? -0.5 : 0.5)));
    }
  }
  return windows;
}

constexpr std::int32_t kHalf = 1 << (kPrecision - 1);

// Compiled for wider vectors, too. Sanitizers are not up yet when such a function is chosen.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FOR_ANY_PROCESSOR \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_ANY_PROCESSOR
#endif

/// to[i] = sum over k of weights[k] * from[k * step + i]: sums of levels stay below 31 bits.
FOR_ANY_PROCESSOR void sum_lines(const std::uint8_t* from, std::int64_t step,
                                 const std::vector<std::int32_t>& weights, std::uint8_t* to,
                                 std::int64_t count) {
  constexpr std::int64_t kPiece = 512;  // whose sums stay in the cache
  std::int32_t sums[kPiece];
  for (std::int64_t begin = 0; begin < count; begin += kPiece) {
    const std::int64_t size = std::min(kPiece, count - begin);
    std::fill_n(sums, size, kHalf);
    const std::uint8_t* line = from + begin;
    for (const std::int32_t weight : weights) {
      for (std::int64_t i = 0; i < size; ++i) sums[i] += line[i] * weight;
      line += step;
    }
    for (std::int64_t i = 0; i < size; ++i)
      to[begin + i] = static_cast<std::uint8_t>(std::clamp(sums[i] >> kPrecision, 0, 255));
  }
}

/// The same of a line of pixels with three channels, which come four at a time: the fourth, the
/// next pixel's first, is thrown away. One byte more than the line must be there.
FOR_ANY_PROCESSOR void sum_pixels(const std::uint8_t* line, const std::vector<Window>& windows,
                                  std::uint8_t* to) {
  typedef std::int32_t Sums __attribute__((vector_size(16)));
  typedef std::uint32_t Levels __attribute__((vector_size(16)));
  constexpr bool kLittle = std::endian::native == std::endian::little;
  constexpr Levels kPlaces = kLittle ? Levels{0, 8, 16, 24} : Levels{24, 16, 8, 0};
  for (const Window& window : windows) {
    const std::uint8_t* from = line + 3 * window.first;
    Sums sums = Sums{} + kHalf;
    for (const std::int32_t weight : window.weights) {
      std::uint32_t pixel;
      std::memcpy(&pixel, from, sizeof pixel);
      const Levels levels = ((Levels{} + pixel) >> kPlaces) & 255u;
      sums += __builtin_convertvector(levels, Sums) * weight;
      from += 3;
    }
    sums >>= kPrecision;
    sums = sums < 0 ? Sums{} : sums > 255 ? Sums{} + 255 : sums;
    for (int c = 0; c < 3; ++c) *to++ = static_cast<std::uint8_t>(sums[c]);
  }
}

/// Resizes the middle axis of [outer, in, inner].
std::vector<std::uint8_t> pillow_pass(const std::uint8_t* source, std::int64_t outer,
                                      std::int64_t in, std::int64_t inner,
                                      const std::vector<Window>& windows) {
  const auto out = static_cast<std::int64_t>(windows.size());
  std::vector<std::uint8_t> result(static_cast<std::size_t>(outer * out * inner));
  std::vector<std::uint8_t> line(static_cast<std::size_t>(in * inner + 1));
  std::uint8_t* target = result.data();
  for (std::int64_t o = 0; o < outer; ++o) {
    const std::uint8_t* from = source + o * in * inner;
    if (inner == 3) {
      std::copy_n(from, in * inner, line.data());
      sum_pixels(line.data(), windows, target);
      target += out * inner;
      continue;
    }
    for (const Window& window : windows) {
      sum_lines(from + window.first * inner, inner, window.weights, target, inner);
      target += inner;
    }
  }
  return result;
}

/// Pillow's nearest takes the pixel under the centre of the new one, found by repeated addition.
std::vector<std::int64_t> nearest_positions(std::int64_t in, std::int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  std::vector<std::int64_t> positions;
  double centre = scale * 0.5;
  for (std::int64_t i = 0; i < out; ++i, centre += scale)
    positions.push_back(std::min(static_cast<std::int64_t>(centre), in - 1));
  return positions;
}

std::vector<std::uint8_t> pillow_nearest(const std::uint8_t* source, const Sizes& size,
                                         std::int64_t height, std::int64_t width) {
  const std::vector<std::int64_t> columns = nearest_positions(size.width, width);
  std::vector<std::uint8_t> result;
  for (const std::int64_t y : nearest_positions(size.height, height))
    for (const std::int64_t x : columns) {
      const std::uint8_t* from = source + (y * size.width + x) * size.channels;
      result.insert(result.end(), from, from + size.channels);
    }
  return result;
}

/// Either way to save work (Image.resize of Pillow 12, ImagingResampleInner of Pillow 13).
bool is_vertical_first(const Sizes& size, std::int64_t height, std::int64_t width,
                       PassOrder order) {
  const std::int64_t rows = size.height - height, columns = size.width - width;  // that go away
  if (order == PassOrder::pillow_12) return size.height > 100 * size.width && rows > 0;
  return rows > 0 && rows > 2 * columns;
}

// ---- OpenCV

/// For one position of the result: two input positions and their 11-bit weights.
struct Tap {
  std::int64_t first, second;
  std::int32_t first_weight, second_weight;
};

std::vector<Tap> opencv_taps(std::int64_t in, std::int64_t out, bool horizontal) {
  constexpr float kOne = 2048;
  const double scale = 1 / (static_cast<double>(out) / static_cast<double>(in));
  std::vector<Tap> taps;
  for (std::int64_t i = 0; i < out; ++i) {
    float fraction = static_cast<float>((static_cast<double>(i) + 0.5) * scale - 0.5);
    auto position = static_cast<std::int64_t>(std::floor(fraction));
    fraction -= static_cast<float>(position);
    // Columns beyond the border lose their fraction, rows keep it and are clamped.
    if (horizontal && (position < 0 || position >= in - 1)) {
      fraction = 0;
      position = std::clamp<std::int64_t>(position, 0, in - 1);
    }
    taps.push_back({std::clamp<std::int64_t>(position, 0, in - 1),
                    std::clamp<std::int64_t>(position + 1, 0, in - 1),
                    static_cast<std::int32_t>(std::nearbyint((1 - fraction) * kOne)),
                    static_cast<std::int32_t>(std::nearbyint(fraction * kOne))});
  }
  return taps;
}

}  // namespace

Tensor resize_pillow(const Tensor& image, std::int64_t height, std::int64_t width, Filter filter,
                     PassOrder order) {
  const Sizes size = check("resize_pillow", image, height, width);
  const Tensor levels = packed(image);
  const std::uint8_t* now = levels.data<std::uint8_t>();
  std::vector<std::uint8_t> pixels;
  if (filter == Filter::nearest)
    return tensor::array(pillow_nearest(now, size, height, width), {height, width, size.channels});
  if (height == size.height && width == size.width) return levels.copy();
  const auto horizontal = [&](std::int64_t rows) {
    if (width != size.width)
      pixels = pillow_pass(now, rows, size.width, size.channels,
                           pillow_windows(size.width, width, filter));
    if (!pixels.empty()) now = pixels.data();
  };
  const auto vertical = [&](std::int64_t columns) {
    if (height != size.height)
      pixels = pillow_pass(now, 1, size.height, columns * size.channels,
                           pillow_windows(size.height, height, filter));
    if (!pixels.empty()) now = pixels.data();
  };
  if (is_vertical_first(size, height, width, order))
    vertical(size.width), horizontal(height);
  else
    horizontal(size.height), vertical(width);
  return tensor::array(pixels, {height, width, size.channels});
}

Tensor resize_opencv(const Tensor& image, std::int64_t height, std::int64_t width) {
  const Sizes size = check("resize_opencv", image, height, width);
  if (height == size.height && width == size.width) return image.copy();
  const Tensor levels = packed(image);
  const std::uint8_t* const pixels = levels.data<std::uint8_t>();
  const std::vector<Tap> rows = opencv_taps(size.height, height, false);
  const std::vector<Tap> columns = opencv_taps(size.width, width, true);
  Tensor result = tensor::empty({height, width, size.channels}, tensor::u8);
  std::uint8_t* target = result.mutable_data<std::uint8_t>();
  for (const Tap& row : rows)
    for (const Tap& column : columns)
      for (std::int64_t c = 0; c < size.channels; ++c) {
        const auto along = [&](std::int64_t y) {
          const std::uint8_t* line = pixels + y * size.width * size.channels + c;
          return line[column.first * size.channels] * column.first_weight +
                 line[column.second * size.channels] * column.second_weight;
        };
        const std::int32_t above = (row.first_weight * (along(row.first) >> 4)) >> 16;
        const std::int32_t below = (row.second_weight * (along(row.second) >> 4)) >> 16;
        *target++ = clamp_to_byte((above + below + 2) >> 2);
      }
  return result;
}

Tensor center_crop(const Tensor& image, std::int64_t height, std::int64_t width, CropRounding odd) {
  const Sizes size = check("center_crop", image, height, width);
  // Both pad first where the image is too small, then cut; they differ where the rest is odd.
  const bool even = odd == CropRounding::half_to_even;
  const auto before = [&](std::int64_t have, std::int64_t want) {
    return want <= have ? 0 : (want - have + (even ? 0 : 1)) / 2;
  };
  const auto offset = [&](std::int64_t have, std::int64_t want) {
    const std::int64_t rest = std::max<std::int64_t>(have - want, 0);
    return even ? static_cast<std::int64_t>(std::nearbyint(static_cast<double>(rest) / 2))
                : rest / 2;
  };
  Tensor result = tensor::zeros({height, width, size.channels}, tensor::u8);
  const std::int64_t top = offset(size.height, height), left = offset(size.width, width);
  const std::int64_t y = before(size.height, height), x = before(size.width, width);
  const std::int64_t rows = std::min(height, size.height), columns = std::min(width, size.width);
  result(tensor::slice(y, y + rows), tensor::slice(x, x + columns)) =
      image(tensor::slice(top, top + rows), tensor::slice(left, left + columns));
  return result;
}

}  // namespace models
