// ViT against the reference implementations' outputs, for every checkpoint flavour.
#include <map>

#include "models/vit/vit_checkpoint.h"
#include "tests/models/golden.h"

namespace {

using models::vit::load_vit;
using models::vit::LoadedVit;
using models::vit::VitOutput;
using tensor::Tensor;

/// Every output and hidden state of a folder's model for one input.
std::map<std::string, Tensor> outputs_of(const LoadedVit& vit, const Tensor& pixels) {
  std::map<std::string, Tensor> outputs;
  const VitOutput out = vit.model(
      pixels, [&](const std::string& name, const Tensor& value) { outputs[name] = value; });
  outputs["logits"] = out.logits;
  outputs["last_hidden_state"] = out.last_hidden_state;
  outputs["pooler_output"] = out.pooler_output;
  return outputs;
}

/// Compares all that the folder lists with the given prefix; returns how many that was.
int compare(const LoadedVit& vit, const std::string& name, const std::string& prefix = "") {
  const std::map<std::string, Tensor> io = golden::io(name);
  const std::map<std::string, Tensor> got = outputs_of(vit, io.at(prefix + "pixel_values"));
  int compared = 0;
  for (const auto& [key, want] : io) {
    if (!key.starts_with(prefix) || key.ends_with("pixel_values")) continue;
    const std::string plain = key.substr(prefix.size());
    if (prefix.empty() && plain.starts_with("interpolated.")) continue;
    golden::expect_close(got.at(plain), want, name + "_" + key);
    ++compared;
  }
  return compared;
}

LoadedVit open(const std::string& name, bool resize_position = false) {
  return load_vit(models::open_checkpoint(golden::folder(name)), resize_position);
}

TEST(VitGolden, HuggingFace) {
  EXPECT_EQ(compare(open("vit_hf"), "vit_hf"), 5);  // logits and 4 hidden states
}

TEST(VitGolden, HuggingFaceWithResizedPositions) {
  EXPECT_EQ(compare(open("vit_hf", true), "vit_hf", "interpolated."), 1);
}

TEST(VitGolden, HuggingFaceWithoutClassifier) {
  EXPECT_EQ(compare(open("vit_hf_headless"), "vit_hf_headless"), 2);
}

TEST(VitGolden, Timm) { EXPECT_EQ(compare(open("vit_timm"), "vit_timm"), 1); }

/// The folder's tensors under other names.
models::Checkpoint renamed(const std::string& folder,
                           const std::function<std::string(std::string)>& rename) {
  models::Checkpoint checkpoint = models::open_checkpoint(golden::folder(folder));
  tensor::nn::StateDict tensors;
  for (const auto& [name, value] : checkpoint.tensors) tensors[rename(name)] = value;
  checkpoint.tensors = tensors;
  return checkpoint;
}

std::string first_replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(VitGolden, NewerNamesOfTransformers) {
  const auto rename = [](std::string name) {
    const std::pair<const char*, const char*> kNewer[] = {
        {"encoder.layer.", "layers."},
        {"attention.attention.query", "attention.q_proj"},
        {"attention.attention.key", "attention.k_proj"},
        {"attention.attention.value", "attention.v_proj"},
        {"attention.output.dense", "attention.o_proj"},
        {"intermediate.dense", "mlp.fc1"},
        {"output.dense", "mlp.fc2"}};
    for (const auto& [from, to] : kNewer) name = first_replaced(name, from, to);
    return name;
  };
  const models::Checkpoint checkpoint = renamed("vit_hf", rename);
  ASSERT_TRUE(checkpoint.has("vit.layers.2.attention.o_proj.bias"));
  ASSERT_TRUE(checkpoint.has("vit.layers.2.mlp.fc2.bias"));
  EXPECT_EQ(compare(load_vit(checkpoint), "vit_hf"), 5);
}

TEST(VitGolden, AnyPrefix) {
  const auto rename = [](const std::string& name) {
    return name.starts_with("vit.") ? "backbone.encoder_model." + name.substr(4) : name;
  };
  EXPECT_EQ(compare(load_vit(renamed("vit_hf", rename)), "vit_hf"), 5);
}

TEST(VitGolden, PatchEmbeddingAsMatrix) {
  models::Checkpoint checkpoint = models::open_checkpoint(golden::folder("vit_timm"));
  Tensor& patch = checkpoint.tensors.at("patch_embed.proj.weight");
  patch = patch.reshape({patch.shape(0), -1});
  EXPECT_EQ(compare(load_vit(checkpoint), "vit_timm"), 1);
}

TEST(VitGolden, HalfPrecisionCheckpointsAreConverted) {
  models::Checkpoint checkpoint = models::open_checkpoint(golden::folder("vit_hf"));
  const LoadedVit exact = load_vit(checkpoint);
  for (const tensor::DType dtype : {tensor::f16, tensor::bf16, tensor::f64}) {
    models::Checkpoint stored = checkpoint;
    for (auto& [name, value] : stored.tensors) value = value.astype(dtype);
    LoadedVit vit = load_vit(stored);
    for (const tensor::nn::Parameter& p : tensor::nn::parameters(vit.model))
      EXPECT_EQ(p.tensor->dtype(), tensor::f32);
    const Tensor pixels = golden::io("vit_hf").at("pixel_values");
    const Tensor got = vit.model(pixels).logits, want = exact.model(pixels).logits;
    const double error = tensor::max(tensor::abs(got - want)).item();
    // The weights differ by half a unit of the last of 11 or 8 bits; it adds up over the layers.
    const double unit = dtype == tensor::f16 ? 0x1p-11 : dtype == tensor::bf16 ? 0x1p-8 : 0;
    EXPECT_LE(error, 20 * unit * tensor::max(tensor::abs(want)).item()) << dtype;
    EXPECT_EQ(error > 0, unit > 0) << dtype;
  }
}

}  // namespace
