#include "bench/unet.h"

#include "models/common/info.h"
#include "tensor/ops.h"

namespace bench {
namespace {

namespace nn = tensor::nn;
using tensor::Tensor;

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1) {
  return nn::Conv2d::sized(in, out, kernel, {.stride = stride, .padding = kernel / 2});
}

void add_block(models::InfoRow& row, const UnetBlock& block, models::Size size) {
  add_conv(row, block.conv1, size);
  add_conv(row, block.conv2, size);
  if (block.shortcut.weight.defined()) add_conv(row, block.shortcut, size);
}

}  // namespace

Tensor ActivatedNorm::operator()(const Tensor& x) const {
  constexpr std::int64_t kGroups = 32;
  return tensor::silu(tensor::group_norm(x, kGroups, weight, bias));
}

UnetBlock UnetBlock::sized(std::int64_t in, std::int64_t out) {
  return {.norm1 = {nn::parameter({in}), nn::parameter({in})},
          .norm2 = {nn::parameter({out}), nn::parameter({out})},
          .conv1 = conv(in, out, 3),
          .conv2 = conv(out, out, 3),
          .shortcut = in != out ? conv(in, out, 1) : nn::Conv2d()};
}

Tensor UnetBlock::operator()(const Tensor& x) const {
  const Tensor y = conv2(norm2(conv1(norm1(x))));
  return (shortcut.weight.defined() ? shortcut(x) : x) + y;
}

Unet Unet::standard() {
  const std::vector<std::int64_t> widths = {64, 128, 256};
  std::int64_t in = widths.front();
  Unet net{.first = conv(3, in, 3),
           .last = conv(in, 3, 3),
           .down = {},
           .halve = {},
           .middle = UnetBlock::sized(widths.back(), widths.back()),
           .up = {}};
  for (const std::int64_t width : widths) {
    net.down.push_back(UnetBlock::sized(in, width));
    net.halve.push_back(conv(width, width, 3, 2));
    in = width;
  }
  for (std::size_t i = widths.size(); i-- > 0;) {
    net.up.push_back(UnetBlock::sized(in + widths[i], widths[i]));
    in = widths[i];
  }
  return net;
}

Tensor Unet::operator()(const Tensor& pixels) const {
  Tensor x = first(pixels);
  std::vector<Tensor> kept;
  for (std::size_t i = 0; i < down.size(); ++i) {
    kept.push_back(down[i](x));
    x = halve[i](kept.back());
  }
  x = middle(x);
  for (const UnetBlock& block : up) {
    const Tensor& skip = kept.back();
    const Tensor enlarged = tensor::interpolate(x, {skip.shape(2), skip.shape(3)});
    x = block(tensor::concatenate({enlarged, skip}, 1));
    kept.pop_back();
  }
  return last(x);
}

std::int64_t macs(const Unet& net, models::Size image) {
  models::InfoRow row;
  std::vector<models::Size> sizes = {add_conv(row, net.first, image)};
  for (std::size_t i = 0; i < net.down.size(); ++i) {
    add_block(row, net.down[i], sizes.back());
    sizes.push_back(add_conv(row, net.halve[i], sizes.back()));
  }
  add_block(row, net.middle, sizes.back());
  for (std::size_t i = 0; i < net.up.size(); ++i)
    add_block(row, net.up[i], sizes[net.up.size() - 1 - i]);
  add_conv(row, net.last, image);
  return row.macs;
}

}  // namespace bench
