#include "bench/mobilenet_v3.h"

#include "models/common/info.h"
#include "tensor/ops.h"

namespace bench {
namespace {

namespace nn = tensor::nn;
using models::ConvNorm;
using tensor::Tensor;

constexpr double kEps = 1e-3;  // of the norms

ConvNorm conv_norm(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1,
                   std::int64_t groups = 1) {
  ConvNorm made = ConvNorm::sized(in, out, kernel, stride);
  if (groups > 1) {
    made.conv.options.groups = groups;
    made.conv.weight = nn::parameter({out, in / groups, kernel, kernel});
  }
  made.norm.eps = kEps;
  return made;
}

/// A quarter of the channels, to the nearest multiple of eight, but not less than nine tenths.
std::int64_t squeezed(std::int64_t channels) {
  const std::int64_t quarter = channels / 4, eights = (quarter + 4) / 8 * 8;
  return 10 * eights < 9 * quarter ? eights + 8 : eights;
}

struct Row {
  std::int64_t kernel, wide, out;
  bool is_excited, is_hardswish;
  std::int64_t stride;
};

/// Table 1 of the paper.
constexpr Row kLarge[] = {
    {3, 16, 16, false, false, 1}, {3, 64, 24, false, false, 2}, {3, 72, 24, false, false, 1},
    {5, 72, 40, true, false, 2},  {5, 120, 40, true, false, 1}, {5, 120, 40, true, false, 1},
    {3, 240, 80, false, true, 2}, {3, 200, 80, false, true, 1}, {3, 184, 80, false, true, 1},
    {3, 184, 80, false, true, 1}, {3, 480, 112, true, true, 1}, {3, 672, 112, true, true, 1},
    {5, 672, 160, true, true, 2}, {5, 960, 160, true, true, 1}, {5, 960, 160, true, true, 1}};

InvertedResidual block(std::int64_t in, const Row& row) {
  InvertedResidual made;
  if (row.wide != in) made.widen = conv_norm(in, row.wide, 1);
  made.filter = conv_norm(row.wide, row.wide, row.kernel, row.stride, row.wide);
  made.narrow = conv_norm(row.wide, row.out, 1);
  const std::int64_t few = squeezed(row.wide);
  if (row.is_excited)
    made.excitation = {nn::Conv2d::sized(row.wide, few, 1), nn::Conv2d::sized(few, row.wide, 1)};
  made.is_hardswish = row.is_hardswish;
  made.is_residual = row.stride == 1 && in == row.out;
  return made;
}

}  // namespace

Tensor SqueezeExcitation::operator()(const Tensor& x) const {
  return x * tensor::hardsigmoid(fc2(tensor::relu(fc1(tensor::mean(x, {2, 3}, true)))));
}

Tensor InvertedResidual::operator()(const Tensor& x) const {
  const auto activation = is_hardswish ? tensor::hardswish : tensor::relu;
  Tensor y = widen.present() ? activation(widen(x)) : x;
  y = activation(filter(y));
  if (excitation.fc1.weight.defined()) y = excitation(y);
  y = narrow(y);
  return is_residual ? x + y : y;
}

MobileNetV3 MobileNetV3::large() {
  MobileNetV3 net{.stem = conv_norm(3, 16, 3, 2),
                  .blocks = {},
                  .last = conv_norm(160, 960, 1),
                  .fc1 = nn::Linear::sized(960, 1280),
                  .fc2 = nn::Linear::sized(1280, 1000)};
  std::int64_t in = 16;
  for (const Row& row : kLarge) {
    net.blocks.push_back(block(in, row));
    in = row.out;
  }
  return net;
}

Tensor MobileNetV3::operator()(const Tensor& pixels) const {
  Tensor x = tensor::hardswish(stem(pixels));
  for (const InvertedResidual& each : blocks) x = each(x);
  x = tensor::mean(tensor::hardswish(last(x)), {2, 3});
  return fc2(tensor::hardswish(fc1(x)));
}

std::int64_t macs(const MobileNetV3& net, models::Size image) {
  models::InfoRow row;
  models::Size size = add_conv(row, net.stem.conv, image);
  for (const InvertedResidual& each : net.blocks) {
    if (each.widen.present()) add_conv(row, each.widen.conv, size);
    size = add_conv(row, each.filter.conv, size);
    if (each.excitation.fc1.weight.defined())
      row.macs += each.excitation.fc1.weight.size() + each.excitation.fc2.weight.size();
    add_conv(row, each.narrow.conv, size);
  }
  add_conv(row, net.last.conv, size);
  return row.macs + net.fc1.weight.size() + net.fc2.weight.size();
}

}  // namespace bench
