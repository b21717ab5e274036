// Counting multiply-adds, and the table that --info prints.
#include "models/common/info.h"

#include <algorithm>
#include <iomanip>
#include <ostream>

#include "tensor/text.h"

namespace models {

std::int64_t Info::parameters() const {
  std::int64_t count = 0;
  for (const InfoRow& row : rows) count += row.parameters;
  return count;
}

std::int64_t Info::macs() const {
  std::int64_t count = 0;
  for (const InfoRow& row : rows) count += row.macs;
  return count;
}

std::string shape_text(std::int64_t channels, Size image) {
  return "1 x " + std::to_string(channels) + " x " + std::to_string(image.height) + " x " +
         std::to_string(image.width);
}

std::int64_t linear_macs(std::int64_t tokens, std::int64_t in, std::int64_t out) {
  return tokens * in * out;
}

std::int64_t conv2d_macs(const tensor::Shape& kernel, std::int64_t out_h, std::int64_t out_w) {
  return tensor::num_elements(kernel) * out_h * out_w;
}

std::int64_t attention_macs(std::int64_t queries, std::int64_t keys, std::int64_t width) {
  return 2 * queries * keys * width;
}

std::int64_t transformer_macs(std::int64_t tokens, std::int64_t width, std::int64_t mlp_weights) {
  return tokens * (4 * width * width + mlp_weights) + attention_macs(tokens, tokens, width);
}

std::int64_t transformer_peak(std::int64_t tokens, std::int64_t width, std::int64_t heads,
                              std::int64_t inner) {
  const std::int64_t attention = 4 * tokens * width + 2 * heads * tokens * tokens;
  return 2 * tokens * width + std::max(attention, 2 * tokens * inner);
}

namespace {

/// 86567656 as "86,567,656".
std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto i = static_cast<std::int64_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

std::string fixed(double number, int decimals) {
  tensor::TextWriter text;
  text << std::fixed << std::setprecision(decimals) << number;
  return text.str();
}

std::string mebibytes(std::int64_t elements) {
  constexpr double kElementsPerMiB = (1 << 20) / 4.0;  // of f32
  return fixed(static_cast<double>(elements) / kElementsPerMiB, 1) + " MiB";
}

}  // namespace

Size add_conv(InfoRow& row, const tensor::nn::Conv2d& conv, Size in) {
  const tensor::Conv2dOptions& o = conv.options;
  const auto extent = [](std::int64_t x, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding, std::int64_t dilation) {
    return (x + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  };
  const tensor::Shape& kernel = conv.weight.shape();
  const Size out{extent(in.height, kernel[2], o.stride.h, o.padding.h, o.dilation.h),
                 extent(in.width, kernel[3], o.stride.w, o.padding.w, o.dilation.w)};
  row.parameters += conv.weight.size() + (conv.bias.defined() ? conv.bias.size() : 0);
  row.macs += conv2d_macs(kernel, out.height, out.width);
  return out;
}

void add_head(Info& info, tensor::nn::LayerNorm& norm, tensor::nn::Linear& classifier) {
  using tensor::nn::parameter_count;
  info.rows.push_back({"norm", 1, parameter_count(norm), 0});
  if (classifier.weight.defined())
    info.rows.push_back({"classifier", 1, parameter_count(classifier), classifier.weight.size()});
}

void print_info(std::ostream& out, const Info& info) {
  int part = 5;
  for (const InfoRow& row : info.rows) part = std::max(part, static_cast<int>(row.part.size()));
  const auto line = [&](const std::string& name, const std::string& layers,
                        const std::string& parameters, const std::string& gmacs) {
    out << "  " << std::left << std::setw(part) << name << std::right << std::setw(8) << layers
        << std::setw(15) << parameters << std::setw(10) << gmacs << "\n";
  };
  const auto giga = [](std::int64_t macs) { return fixed(static_cast<double>(macs) / 1e9, 2); };
  out << info.model << ", input " << info.input << "\n";
  line("part", "layers", "parameters", "GMACs");
  std::int64_t layers = 0;
  for (const InfoRow& row : info.rows) {
    layers += row.layers;
    line(row.part, std::to_string(row.layers), grouped(row.parameters), giga(row.macs));
  }
  line("total", std::to_string(layers), grouped(info.parameters()), giga(info.macs()));
  out << "  memory: weights " << mebibytes(info.parameters()) << ", activations about "
      << mebibytes(info.peak_activations) << " at their peak (f32, one image)\n";
}

}  // namespace models
