// Single operators at the sizes they have in ViT, DETR (800 x 1333) and SETR (384 x 384), eager and
// compiled: bench_operators --benchmark_filter=conv2d

#include "bench/bench.h"
#include "tensor/creation.h"
#include "tensor/ops.h"
#include "tensor/text.h"

namespace {

using bench::Case;
using bench::Workload;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using Tensors = std::vector<Tensor>;

std::string joined(const Shape& shape) {
  tensor::TextWriter text;
  for (int axis = 0; axis < shape.rank(); ++axis) text << (axis > 0 ? "x" : "") << shape[axis];
  return text.str();
}

Tensors random(const std::vector<Shape>& shapes, DType dtype) {
  tensor::Generator generator(1);
  Tensors result;
  for (const Shape& shape : shapes) result.push_back(generator.normal(shape, 0, 1, dtype));
  return result;
}

/// An operator of activations alone.
Case plain(const std::string& name, const std::vector<Shape>& shapes,
           Tensor (*function)(const Tensors&), double flops = 0) {
  return {name, [=](DType dtype) {
            return Workload{[=](const Tensors& in) -> Tensors { return {function(in)}; },
                            random(shapes, dtype), flops};
          }};
}

/// [m, k] times a weight [k, n].
Case matmul(std::int64_t m, std::int64_t k, std::int64_t n) {
  return {"matmul/" + joined({m, k, n}), [=](DType dtype) {
            const Tensors made = random({{m, k}, {k, n}}, dtype);
            return Workload{[weight = made[1]](const Tensors& in) -> Tensors {
                              return {tensor::matmul(in[0], weight)};
                            },
                            {made[0]},
                            2.0 * static_cast<double>(m * k * n),
                            {{"weight", made[1]}}};
          }};
}

/// One image whose pixels lie channels last, as between the layers of a compiled model.
struct Convolution {
  std::int64_t channels, height, width, out, kernel, stride = 1;
};

Case conv2d(const Convolution& c) {
  tensor::TextWriter name;
  name << "conv2d/" << joined({c.channels, c.height, c.width}) << "/" << c.out << "k" << c.kernel
       << "s" << c.stride;
  return {name.str(), [c](DType dtype) {
            const Tensors made = random(
                {{1, c.height, c.width, c.channels}, {c.out, c.channels, c.kernel, c.kernel}},
                dtype);
            const auto run = [c, weight = made[1]](const Tensors& in) -> Tensors {
              const std::int64_t padding = c.kernel == c.stride ? 0 : c.kernel / 2;
              const Tensor map = tensor::conv2d(in[0].transpose({0, 3, 1, 2}), weight, {},
                                                {.stride = c.stride, .padding = padding});
              return {map.transpose({0, 2, 3, 1})};
            };
            const auto rows = (c.height - 1) / c.stride + 1, columns = (c.width - 1) / c.stride + 1;
            return Workload{run,
                            {made[0]},
                            2.0 * static_cast<double>(made[1].size() * rows * columns),
                            {{"weight", made[1]}}};
          }};
}

Case attention(std::int64_t heads, std::int64_t queries, std::int64_t keys, std::int64_t depth) {
  const Shape wide{heads, keys, depth};
  return plain(
      "attention/" + joined({heads, queries, keys, depth}), {{heads, queries, depth}, wide, wide},
      [](const Tensors& in) { return tensor::scaled_dot_product_attention(in[0], in[1], in[2]); },
      4.0 * static_cast<double>(heads * queries * keys * depth));
}

Case layer_norm(std::int64_t rows, std::int64_t width) {
  return plain("layer_norm/" + joined({rows, width}), {{rows, width}, {width}, {width}},
               [](const Tensors& in) { return tensor::layer_norm(in[0], in[1], in[2]); });
}

Case softmax(const Shape& shape) {
  return plain("softmax/" + joined(shape), {shape},
               [](const Tensors& in) { return tensor::softmax(in[0]); });
}

Case gelu(const Shape& shape) {
  return plain("gelu/" + joined(shape), {shape},
               [](const Tensors& in) { return tensor::gelu(in[0]); });
}

/// The pooling of ResNet's stem, channels last.
Case max_pool2d(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return plain(
      "max_pool2d/" + joined({channels, height, width}) + "/k3s2", {{1, height, width, channels}},
      [](const Tensors& in) {
        return tensor::max_pool2d(in[0].transpose({0, 3, 1, 2}), 3, 2, 1).transpose({0, 2, 3, 1});
      });
}

/// Bilinear to twice the size, channels last.
Case interpolate(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return plain("interpolate/" + joined({channels, height, width}) + "/x2",
               {{1, height, width, channels}}, [](const Tensors& in) {
                 const tensor::Pair size(2 * in[0].shape(1), 2 * in[0].shape(2));
                 return tensor::interpolate(in[0].transpose({0, 3, 1, 2}), size,
                                            {.mode = tensor::Interpolation::bilinear})
                     .transpose({0, 2, 3, 1});
               });
}

std::vector<Case> cases() {
  return {
      // ViT-B, -L and -H, SETR, DETR.
      matmul(197, 768, 768),
      matmul(197, 768, 3072),
      matmul(197, 3072, 768),
      matmul(197, 1024, 4096),
      matmul(197, 4096, 1024),
      matmul(257, 1280, 5120),
      matmul(257, 5120, 1280),
      matmul(577, 1024, 1024),
      matmul(577, 1024, 4096),
      matmul(577, 4096, 1024),
      matmul(1050, 256, 256),
      matmul(1050, 256, 2048),
      matmul(1050, 2048, 256),
      matmul(100, 256, 2048),
      // The patch embedding of ViT-B, then ResNet-50 stage by stage.
      conv2d({3, 224, 224, 768, 16, 16}),
      conv2d({3, 800, 1333, 64, 7, 2}),
      conv2d({64, 200, 334, 64, 1}),
      conv2d({64, 200, 334, 64, 3}),
      conv2d({64, 200, 334, 256, 1}),
      conv2d({256, 200, 334, 128, 1}),
      conv2d({128, 200, 334, 128, 3, 2}),
      conv2d({128, 100, 167, 128, 3}),
      conv2d({256, 100, 167, 256, 3, 2}),
      conv2d({256, 50, 84, 256, 3}),
      conv2d({256, 50, 84, 1024, 1}),
      conv2d({1024, 50, 84, 256, 1}),
      conv2d({512, 50, 84, 512, 3, 2}),
      conv2d({512, 25, 42, 512, 3}),
      conv2d({2048, 25, 42, 512, 1}),
      // The first and the last convolution of SETR-PUP.
      conv2d({1024, 24, 24, 256, 3}),
      conv2d({256, 192, 192, 256, 3}),
      attention(12, 197, 197, 64),
      attention(16, 257, 257, 80),
      attention(16, 577, 577, 64),
      attention(8, 1050, 1050, 32),
      attention(8, 100, 1050, 32),
      layer_norm(197, 768),
      layer_norm(577, 1024),
      layer_norm(1050, 256),
      softmax({12, 197, 197}),
      softmax({8, 1050, 1050}),
      gelu({197, 3072}),
      gelu({577, 4096}),
      max_pool2d(64, 400, 667),
      interpolate(256, 24, 24),
      interpolate(256, 96, 96),
      interpolate(19, 192, 192),
  };
}

void add_operators(const bench::Options& options) {
  for (const Case& c : cases()) {
    bench::add(c, tensor::f32, true, options);
    for (const DType dtype : {tensor::f32, tensor::bf16}) bench::add(c, dtype, false, options);
  }
}

}  // namespace

int main(int argc, char** argv) { return bench::run(argc, argv, add_operators); }
