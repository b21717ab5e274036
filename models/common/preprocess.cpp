// Preprocessing in the arithmetic of Hugging Face's and torchvision's reference code.
#include "models/common/preprocess.h"

#include <algorithm>
#include <cmath>

#include "tensor/creation.h"
#include "tensor/ops.h"

namespace models {

using tensor::Tensor;

namespace {

/// The order of the operations and the rounding to even are the reference's.
Size nearest_multiples(double height, double width, const SizeRule& rule) {
  double tall = static_cast<double>(rule.size.height) / height;
  double wide = static_cast<double>(rule.size.width) / width;
  if (rule.keeps_aspect) tall = wide = std::abs(1 - wide) < std::abs(1 - tall) ? wide : tall;
  const auto near = [&](double extent) {
    return std::llrint(extent / static_cast<double>(rule.multiple)) * rule.multiple;
  };
  return {near(tall * height), near(wide * width)};
}

}  // namespace

Size SizeRule::of(Size image) const {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  if (kind == Kind::exact) return size;
  if (kind == Kind::multiples) return nearest_multiples(height, width, *this);
  if (kind == Kind::longest_edge) {
    const double scale = static_cast<double>(longest) / std::max(height, width);
    return {static_cast<std::int64_t>(height * scale + 0.5),
            static_cast<std::int64_t>(width * scale + 0.5)};
  }
  if (kind == Kind::within) {
    const double scale = std::min(static_cast<double>(size.height) / height,
                                  static_cast<double>(size.width) / width);
    return {static_cast<std::int64_t>(height * scale), static_cast<std::int64_t>(width * scale)};
  }
  // The order of the operations, the truncation and the unrounded edge are the reference's.
  const double small = std::min(height, width), large = std::max(height, width);
  auto edge = static_cast<double>(shortest);
  double raw = edge;
  if (longest > 0 && large / small * edge > static_cast<double>(longest)) {
    raw = static_cast<double>(longest) * small / large;
    edge = std::nearbyint(raw);
  }
  if (small == edge) return image;
  const auto short_side = static_cast<std::int64_t>(edge);
  const auto long_side = static_cast<std::int64_t>(raw * large / small);
  return width < height ? Size{long_side, short_side} : Size{short_side, long_side};
}

Tensor normalize(const Tensor& image, const Normalization& rule) {
  if (image.dtype() != tensor::u8 || image.rank() != 3 || image.shape(2) != 3)
    tensor::fail("normalize", "got ", image.type(), ", need an image u8(height, width, 3)");
  const std::int64_t pixels = image.shape(0) * image.shape(1);
  const Tensor rows = image.copy();
  const std::uint8_t* levels = rows.data<std::uint8_t>();
  Tensor result = tensor::empty({3, image.shape(0), image.shape(1)});
  float* target = result.mutable_data<float>();
  for (std::size_t channel = 0; channel < 3; ++channel) {
    std::array<float, 256> values;
    for (std::size_t level = 0; level < 256; ++level) {
      auto value = static_cast<float>(level);
      if (rule.rescale == Normalization::Rescale::multiply)
        value = static_cast<float>(static_cast<double>(level) * rule.factor);
      if (rule.rescale == Normalization::Rescale::divide_255) value /= 255.0f;
      values[level] = rule.normalize ? (value - rule.mean[channel]) / rule.std[channel] : value;
    }
    for (std::int64_t i = 0; i < pixels; ++i)
      *target++ = values[levels[i * 3 + static_cast<std::int64_t>(channel)]];
  }
  return result;
}

Tensor normalize_levels(const Tensor& levels, const Normalization& rule) {
  if (levels.dtype() != tensor::u8 || levels.rank() != 4 || levels.shape(3) != 3)
    tensor::fail("normalize", "got ", levels.type(), ", need images u8(batch, height, width, 3)");
  const auto channels = [](const std::array<float, 3>& numbers) {
    return tensor::array(std::span<const float>(numbers), {3, 1, 1});
  };
  Tensor x = levels.transpose({0, 3, 1, 2});
  if (rule.rescale == Normalization::Rescale::multiply)
    x = (x.astype(tensor::f64) * rule.factor).astype(tensor::f32);
  else
    x = x.astype(tensor::f32);
  if (rule.rescale == Normalization::Rescale::divide_255) x = x / 255;
  if (!rule.normalize) return x;
  const tensor::Device device = levels.device();
  return (x - channels(rule.mean).to(device)) / channels(rule.std).to(device);
}

Size preprocessed_size(Size image, const Preprocessing& rule) {
  if (rule.crop) return *rule.crop;
  return rule.resize ? rule.size.of(image) : image;
}

void check_resized(Size image, Size resized, std::string_view mending) {
  const auto& [height, width] = resized;
  if (height > 0 && width > 0 && width <= kMostPixels / height) return;
  tensor::fail(kImage, "is ", image.width, " x ", image.height,
               " pixels: resized for the model it would be ", width, " x ", height,
               ", need 1 x 1 up to ", kMostPixels, " in all: ", mending);
}

Tensor fit_levels(const Tensor& image, const Preprocessing& rule) {
  Tensor pixels = image;
  if (rule.resize) {
    const Size given{image.shape(0), image.shape(1)}, size = rule.size.of(given);
    check_resized(given, size);
    pixels = resize_pillow(pixels, size.height, size.width, rule.filter, rule.order);
  }
  if (rule.crop)
    pixels = center_crop(pixels, rule.crop->height, rule.crop->width, rule.crop_rounding);
  return pixels;
}

Tensor preprocess(const Tensor& image, const Preprocessing& rule) {
  return normalize(fit_levels(image, rule), rule.normalization);
}

}  // namespace models
