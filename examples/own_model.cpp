// A model of one's own in 60 lines: a Vision Transformer that reads handwritten digits, with the
// weights that ship.  own_model models/vit/pretrained/digits/model.safetensors IMAGE...
#include <tensor/compile.h>
#include <tensor/io.h>
#include <tensor/nn.h>

#include <iostream>

namespace tn = tensor;
namespace nn = tensor::nn;

constexpr std::int64_t kWidth = 96, kHeads = 4, kMlp = 256, kPatch = 4, kSide = 32, kTokens = 65;

// x + attention(norm(x)), then x + mlp(norm(x)).
struct Layer {
  nn::LayerNorm before = nn::LayerNorm::sized(kWidth, 1e-12), after = before;
  nn::MultiheadAttention attention = nn::MultiheadAttention::sized(kWidth, kHeads);
  nn::Linear fc1 = nn::Linear::sized(kWidth, kMlp), fc2 = nn::Linear::sized(kMlp, kWidth);

  tn::Tensor operator()(const tn::Tensor& x) const {
    const tn::Tensor normed = before(x), y = x + attention(normed, normed, normed);
    return y + fc2(tn::gelu(fc1(after(y))));
  }
  void members(auto&& visit) {  // by the checkpoint's names
    visit("layernorm_before", before), visit("layernorm_after", after);
    visit("attention.attention.query", attention.query);
    visit("attention.attention.key", attention.key);
    visit("attention.attention.value", attention.value);
    visit("attention.output.dense", attention.output);
    visit("intermediate.dense", fc1), visit("output.dense", fc2);
  }
};

struct Digits {
  tn::Tensor cls = nn::parameter({1, 1, kWidth}), position = nn::parameter({1, kTokens, kWidth});
  nn::Conv2d patches = nn::Conv2d::sized(3, kWidth, kPatch, {.stride = kPatch});
  nn::Sequential<Layer> layers{std::vector<Layer>(5)};
  nn::LayerNorm norm = nn::LayerNorm::sized(kWidth, 1e-12);
  nn::Linear classifier = nn::Linear::sized(kWidth, 10);

  tn::Tensor operator()(const tn::Tensor& pixels) const {  // [batch, 3, 32, 32] to [batch, 10]
    const std::int64_t batch = pixels.shape(0);
    const tn::Tensor tokens = patches(pixels).reshape({batch, kWidth, -1}).swapaxes(1, 2);
    const tn::Tensor x = tn::concatenate({tn::broadcast_to(cls, {batch, 1, kWidth}), tokens}, 1);
    return tn::softmax(classifier(norm(layers(x + position)(tn::all_of_axis, 0))));
  }
  void members(auto&& visit) {
    visit("vit.embeddings.cls_token", cls), visit("vit.embeddings.position_embeddings", position);
    visit("vit.embeddings.patch_embeddings.projection", patches);
    visit("vit.encoder.layer", layers);
    visit("vit.layernorm", norm), visit("classifier", classifier);
  }
};

// A picture [height, width, 3] of levels 0 to 255 as the network saw pictures when it was trained.
tn::Tensor pixel_values(const tn::Tensor& image) {
  const tn::Tensor planes = image.astype(tn::f32).transpose({2, 0, 1}).expand_dims(0);
  return tn::interpolate(planes, kSide, {tn::Interpolation::bilinear, false, true}) / 127.5 - 1;
}

int main(int argc, char** argv) {
  Digits model;
  const char* file = argc > 1 ? argv[1] : "models/vit/pretrained/digits/model.safetensors";
  nn::load(model, tn::load_safetensors(file).tensors, {.file = file});
  const auto fast = tn::compile(model);
  for (int i = 2; i < argc; ++i) {
    const tn::Tensor pixels = pixel_values(tn::load_image(argv[i]));
    const tn::Tensor scores = model(pixels), difference = scores - fast(pixels);
    std::cout << argv[i] << ": " << tn::argmax(scores)
              << ", eager and compiled equal within 1e-5: " << tn::all(tn::abs(difference) < 1e-5)
              << "\n";
  }
}
