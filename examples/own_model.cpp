// A model of one's own: a struct whose members have names, saved to a checkpoint and loaded again.
#include <tensor/io.h>
#include <tensor/nn.h>
#include <tensor/tensor.h>

#include <cstdio>
#include <iostream>

namespace tn = tensor;
namespace nn = tensor::nn;

// A residual block: x + fc2(gelu(fc1(norm(x)))).
struct Block {
  nn::LayerNorm norm;
  nn::Linear fc1, fc2;

  static Block sized(std::int64_t width) {
    return {nn::LayerNorm::sized(width), nn::Linear::sized(width, 4 * width),
            nn::Linear::sized(4 * width, width)};
  }
  tn::Tensor operator()(const tn::Tensor& x) const { return x + fc2(tn::gelu(fc1(norm(x)))); }
  void members(auto&& visit) { visit("norm", norm), visit("fc1", fc1), visit("fc2", fc2); }
};

struct Classifier {
  nn::Sequential<Block> blocks;
  nn::Linear head;

  static Classifier sized(std::int64_t width, int depth, std::int64_t classes) {
    return {{std::vector<Block>(depth, Block::sized(width))}, nn::Linear::sized(width, classes)};
  }
  tn::Tensor operator()(const tn::Tensor& x) const { return tn::softmax(head(blocks(x)), -1); }
  void members(auto&& visit) { visit("blocks", blocks), visit("head", head); }
};

int main() {
  const std::string file = "own_model.safetensors";
  Classifier first = Classifier::sized(16, 2, 3);
  nn::randomize(first, 42);
  tn::save_safetensors(file, nn::state_dict(first));

  Classifier second = Classifier::sized(16, 2, 3);
  nn::load(second, tn::load_safetensors(file).tensors, {.file = file});

  const tn::Tensor x = tn::Generator(7).normal({2, 16});
  std::cout << nn::parameter_count(second) << " parameters, the same result: "
            << (tn::all(first(x) == second(x)).item<bool>() ? "yes" : "no") << '\n';

  // What a wrong checkpoint says: every problem at once, each with the closest name.
  auto state = nn::state_dict(first);
  state.insert({"blocks.0.fc1.weigth", state.at("blocks.0.fc1.weight")});
  state.erase("blocks.0.fc1.weight");
  state["head.bias"] = tn::zeros({4});
  try {
    nn::load(second, state, {.file = file});
  } catch (const tn::UserError& error) {
    std::cout << error.what() << '\n';
  }
  std::remove(file.c_str());
}
