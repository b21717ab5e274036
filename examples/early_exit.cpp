// A ViT-B that stops at layer 3, 6 or 9 where a classifier there is sure, as one executable: what
// is not needed does not run.  early_exit [cpu|cuda]
#include <tensor/compile.h>
#include <tensor/nn.h>
#include <tensor/tensor.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <limits>

namespace tn = tensor;
namespace nn = tensor::nn;

constexpr std::int64_t kWidth = 768, kHeads = 12, kMlp = 3072, kTokens = 197, kClasses = 1000;
constexpr std::size_t kLayers = 12, kPart = 3;  // a classifier behind every third layer

struct Layer {
  nn::LayerNorm before = nn::LayerNorm::sized(kWidth), after = before;
  nn::MultiheadAttention attention = nn::MultiheadAttention::sized(kWidth, kHeads);
  nn::Linear fc1 = nn::Linear::sized(kWidth, kMlp), fc2 = nn::Linear::sized(kMlp, kWidth);

  tn::Tensor operator()(const tn::Tensor& x) const {
    const tn::Tensor normed = before(x), y = x + attention(normed, normed, normed);
    return y + fc2(tn::gelu(fc1(after(y))));
  }
  void members(auto&& visit) {
    visit("before", before), visit("after", after), visit("attention", attention);
    visit("fc1", fc1), visit("fc2", fc2);
  }
};

struct EarlyExit {
  nn::Sequential<Layer> layers{std::vector<Layer>(kLayers)};
  nn::Sequential<nn::Linear> classifiers{
      std::vector<nn::Linear>(kLayers / kPart, nn::Linear::sized(kWidth, kClasses))};

  // Tokens [1, kTokens, kWidth] to scores [1, kClasses]. The classifier behind layer (i + 1) kPart
  // is sure where its best class has a probability above sure[i].
  tn::Tensor operator()(const tn::Tensor& x, const tn::Tensor& sure) const {
    return from(0, x, sure);
  }
  tn::Tensor from(std::size_t part, tn::Tensor x, const tn::Tensor& sure) const {
    for (std::size_t i = part * kPart; i < (part + 1) * kPart; ++i) x = layers.modules[i](x);
    const tn::Tensor scores = classifiers.modules[part](x(tn::all_of_axis, 0));
    if (part + 1 == classifiers.modules.size()) return scores;
    const tn::Tensor best = tn::max(tn::softmax(scores));
    return tn::cond(
        best > sure(static_cast<std::int64_t>(part)), [&] { return scores; },
        [&] { return from(part + 1, x, sure); });
  }
  void members(auto&& visit) { visit("layers", layers), visit("classifiers", classifiers); }
};

double milliseconds(const tn::Executable& run, const std::vector<tn::Tensor>& inputs) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run(inputs);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  return best;
}

int main(int argc, char** argv) {
  const tn::Device device = argc > 1 ? argv[1] : "cpu";
  EarlyExit model;
  nn::randomize(model, 1);
  const auto function = [&](const std::vector<tn::Tensor>& in) {
    return std::vector{model(in[0], in[1])};
  };
  const tn::Tensor x = tn::Generator(2).normal({1, kTokens, kWidth});
  const tn::Tensor never = tn::full({3}, 2, tn::f32);
  const tn::Executable run =
      tn::compile(function, std::vector{x, never},
                  {.device = device, .dtype = device.is_cuda() ? tn::f16 : tn::f32});
  for (std::int64_t exit = 0; exit <= 3; ++exit) {
    tn::Tensor sure = never.copy();
    if (exit < 3) sure(exit) = 0;
    std::cout << "layer " << (exit + 1) * 3 << ": " << milliseconds(run, {x, sure}) << " ms\n";
  }
}
