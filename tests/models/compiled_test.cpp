// The models compiled: against the same golden outputs as the eager run, kernel by kernel against
// the reference, and in bf16 on the digits that ship.
#include "tensor/compile.h"

#include <algorithm>

#include "models/vit/vit_checkpoint.h"
#include "tests/models/golden.h"

namespace {

using Tensors = std::vector<tensor::Tensor>;
using tensor::Tensor;

std::vector<std::pair<std::string, Tensor>> names_of(models::vit::Vit& model) {
  const auto state = tensor::nn::state_dict(model);
  return {state.begin(), state.end()};
}

void expect_verified(const tensor::Executable& executable, const Tensors& inputs) {
  for (const tensor::GroupCheck& check : tensor::verify(executable, inputs))
    EXPECT_TRUE(check.ok()) << check.operators << " @ " << check.where << " [" << check.kernel
                            << "]: " << check.error << " > " << check.bound;
}

TEST(Compiled, VitEqualsGoldenOutputs) {
  for (const std::string name : {"vit_hf", "vit_timm"}) {
    models::vit::LoadedVit vit =
        models::vit::load_vit(models::open_checkpoint(golden::folder(name)));
    const auto io = golden::io(name);
    const Tensors inputs = {io.at("pixel_values")};
    const tensor::Executable fast =
        tensor::compile([&](const Tensors& in) -> Tensors { return {vit.model(in[0]).logits}; },
                        inputs, {.names = names_of(vit.model)});
    golden::expect_close(fast(inputs)[0], io.at("logits"), name + "_compiled");
    expect_verified(fast, inputs);
  }
}

TEST(Compiled, HeadlessVitHasItsTwoOutputs) {
  models::vit::LoadedVit vit =
      models::vit::load_vit(models::open_checkpoint(golden::folder("vit_hf_headless")));
  const auto io = golden::io("vit_hf_headless");
  const Tensors inputs = {io.at("pixel_values")};
  const auto f = [&](const Tensors& in) -> Tensors {
    const auto out = vit.model(in[0]);
    return {out.last_hidden_state, out.pooler_output};
  };
  const Tensors got = tensor::compile(f, inputs)(inputs);
  golden::expect_close(got[0], io.at("last_hidden_state"), "last_hidden_state");
  golden::expect_close(got[1], io.at("pooler_output"), "pooler_output");
}

TEST(Compiled, DigitsInBf16HaveTheSameTopClass) {
  const std::string folder = TENSOR_TEST_DATA "/../../models/vit/pretrained/digits";
  models::vit::LoadedVit vit = models::vit::load_vit(models::open_checkpoint(folder));
  const auto test = tensor::load_npz(folder + "/test.npz");
  const Tensor images = test.at("images");
  const std::int64_t count = images.shape(0);
  Tensors pixels;
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor grey = images(i).expand_dims(2);
    pixels.push_back(models::preprocess(
        tensor::copy(tensor::broadcast_to(grey, {grey.shape(0), grey.shape(1), 3})),
        vit.preprocessing));
  }
  const Tensors inputs = {tensor::stack(pixels)};
  const auto f = [&](const Tensors& in) -> Tensors { return {vit.model(in[0]).logits}; };
  const Tensor exact = f(inputs)[0];
  const Tensor narrow = tensor::compile(f, inputs, {.dtype = tensor::bf16})(inputs)[0];
  // An image whose two best classes are nearer than bf16 resolves may go either way; count those.
  const auto [best, order] = tensor::topk(exact, 2);
  const Tensor margin = best(tensor::ellipsis, 0) - best(tensor::ellipsis, 1);
  const double resolution = 0x1p-8 * tensor::max(tensor::abs(exact)).item() * 4;
  const Tensor differs = tensor::argmax(narrow, 1) != order(tensor::ellipsis, 0);
  EXPECT_FALSE(tensor::any(differs & (margin > resolution)).item<bool>());
  EXPECT_LE(tensor::sum(differs).item<int>(), 1) << "of " << count;
}

}  // namespace
