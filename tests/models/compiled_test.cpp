// The models compiled: against the same golden outputs as the eager run, kernel by kernel against
// the reference, and in bf16 on the digits that ship. Traced, they compute what the eager run does.
#include "tensor/compile.h"

#include <algorithm>
#include <cstring>

#include "models/detr/detr_checkpoint.h"
#include "models/setr/setr_checkpoint.h"
#include "models/vit/vit_checkpoint.h"
#include "src/trace/trace.h"
#include "tests/models/digits.h"
#include "tests/models/golden.h"
#include "tests/models/narrow.h"

namespace {

using Tensors = std::vector<tensor::Tensor>;
using golden::expect_verified;
using tensor::Tensor;

template <class Model>
std::vector<std::pair<std::string, Tensor>> names_of(Model& model) {
  const auto state = tensor::nn::state_dict(model);
  return {state.begin(), state.end()};
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

TEST(Compiled, TracedVitEqualsItsEagerRunBitForBit) {
  for (const std::string name : {"vit_hf", "vit_timm"}) {
    const models::vit::LoadedVit vit =
        models::vit::load_vit(models::open_checkpoint(golden::folder(name)));
    const Tensor pixels = golden::io(name).at("pixel_values");
    const auto f = [&](const Tensors& in) -> Tensors {
      const auto out = vit.model(in[0]);
      return {out.logits, out.last_hidden_state};
    };
    const tensor::Graph graph = tensor::trace(f, {pixels.type()});
    const Tensors got = tensor::interpret(graph, {pixels}), expected = f({pixels});
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].type(), expected[i].type());
      const auto a = got[i].to_vector<float>(), b = expected[i].to_vector<float>();
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << name << ' ' << i;
    }
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

TEST(Compiled, DetrEqualsGoldenOutputsWithAndWithoutAMask) {
  const std::string name = "detr_hf_no_timm";
  models::detr::Detr detr = models::detr::load_detr(golden::folder(name));
  const auto io = golden::io(name);
  const auto f = [&](const Tensors& in) -> Tensors {
    const auto out = detr(in[0], in.size() > 1 ? in[1] : Tensor());
    return {out.logits, out.pred_boxes, out.encoder_last_hidden_state, out.last_hidden_state};
  };
  const Tensors masked = {io.at("pixel_values"), io.at("pixel_mask")};
  const tensor::Executable fast = tensor::compile(f, masked, {.names = names_of(detr)});
  const Tensors got = fast(masked);
  const char* outputs[] = {"logits", "pred_boxes", "encoder_last_hidden_state",
                           "last_hidden_state"};
  for (std::size_t i = 0; i < 4; ++i) golden::expect_close(got[i], io.at(outputs[i]), outputs[i]);
  expect_verified(fast, masked);

  const Tensors plain = {tensor::copy(io.at("pixel_values")(tensor::slice(0, 1)))};
  const Tensors unmasked = tensor::compile(f, plain)(plain);
  golden::expect_close(unmasked[0], io.at("unmasked.logits"), "unmasked.logits");
  golden::expect_close(unmasked[1], io.at("unmasked.pred_boxes"), "unmasked.pred_boxes");
}

TEST(Compiled, SetrEqualsGoldenOutputs) {
  for (const std::string flavour : {"fudan", "mmseg"})
    for (const std::string head : {"naive", "pup", "mla"}) {
      const std::string name = "setr_" + flavour + "_" + head;
      models::setr::Setr setr =
          models::setr::load_setr(models::open_checkpoint(golden::folder(name)));
      const auto io = golden::io(name);
      const Tensors inputs = {io.at("pixel_values")};
      const tensor::Executable fast =
          tensor::compile([&](const Tensors& in) -> Tensors { return {setr(in[0])}; }, inputs,
                          {.names = names_of(setr)});
      golden::expect_close(fast(inputs)[0], io.at("logits"), name);
      expect_verified(fast, inputs);
    }
}

TEST(Compiled, DigitsInBf16HaveTheSameTopClass) {
  digits::expect_same_classes({.dtype = tensor::bf16});
  digits::expect_same_classes({.dtype = tensor::bf16, .narrow_residuals = true});
}

}  // namespace
