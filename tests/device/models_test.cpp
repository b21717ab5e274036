// The programs on a GPU, which takes the image's levels and gives classes: the same findings as on
// the host.
#include "models/common/session.h"
#include "models/depth/depth_program.h"
#include "models/detr/detr_program.h"
#include "models/setr/setr_inference.h"
#include "models/setr/setr_processing.h"
#include "models/setr/setr_program.h"
#include "models/vit/vit_program.h"
#include "tests/device/gpu.h"
#include "tests/models/golden.h"

namespace tensor {
namespace {

class ProgramsOnGpu : public OnGpu {
 protected:
  static models::ImageResult look(models::Program& program, const Tensor& image,
                                  const Device& device) {
    program.run_on(device);
    models::CompiledForward compiled([&](const nn::StateDict& inputs, const Sharing& sharing) {
      return models::compile_named(
          [&](const nn::StateDict& in) { return program.run(in, {}); }, inputs,
          models::with_names(program, {.device = device, .sharing = sharing}));
    });
    return program.look(image, false, [&](const nn::StateDict& inputs) {
      program.check(inputs);
      return compiled.executable(inputs)(inputs);
    });
  }

  void expect_same_findings(models::Program& program, const std::string& folder,
                            const Shape& size) {
    program.open(golden::folder(folder));
    const Tensor image = random_.randint(0, 256, size, u8);
    const models::ImageResult here = look(program, image, "cpu"),
                              there = look(program, image, gpu_);
    ASSERT_EQ(there.findings.size(), here.findings.size());
    for (std::size_t i = 0; i < here.findings.size(); ++i) {
      const models::Finding &got = there.findings[i], &want = here.findings[i];
      EXPECT_EQ(got.label, want.label) << i;
      EXPECT_NEAR(got.score, want.score, 1e-4) << i;
      ASSERT_EQ(got.box.has_value(), want.box.has_value());
      if (!want.box) continue;
      for (std::size_t k = 0; k < 4; ++k)  // in pixels
        EXPECT_NEAR((*got.box)[k], (*want.box)[k], 1e-2) << i;
    }
    if (!here.labels.defined()) return;
    // Two classes may be as good as each other.
    const double other = sum(there.labels != here.labels).item();
    EXPECT_LE(other, 0.001 * static_cast<double>(here.labels.size()));
  }

  // What the program computes of pictures as they come, here and there.
  void expect_same_detections(const std::string& folder, const nn::StateDict& in) {
    models::detr::DetrProgram program;
    program.open(golden::folder(folder));
    const auto run = [&](const nn::StateDict& from) { return program.run(from, {}); };
    const nn::StateDict want = run(in);
    const nn::StateDict got = models::compile_named(run, in, {.device = gpu_})(in);
    EXPECT_EQ(got.size(), 3u);
    expect_near(got.at("scores"), want.at("scores"), 1e-4);
    expect_near(got.at("pred_boxes"), want.at("pred_boxes"), 1e-4);
    expect_same(got.at("labels"), want.at("labels"));
  }
};

TEST_F(ProgramsOnGpu, VitOfHuggingFace) {
  expect_same_findings(*models::vit::make_program(), "vit_hf", {40, 50, 3});
}

TEST_F(ProgramsOnGpu, VitOfTimm) {
  expect_same_findings(*models::vit::make_program(), "vit_timm", {40, 50, 3});
}

TEST_F(ProgramsOnGpu, DetrReadsLevelsAndNamesTheBestClasses) {
  expect_same_detections("detr_hf_hub", {{"levels", random_.randint(0, 256, {1, 64, 96, 3}, u8)}});
}

TEST_F(ProgramsOnGpu, DetrLeavesThePaddingOfLevelsZero) {
  Tensor mask = zeros({1, 64, 96}, i64);
  mask(0, slice(0, 50), slice(0, 70)) = 1;
  expect_same_detections("detr_hf_hub", {{"levels", random_.randint(0, 256, {1, 64, 96, 3}, u8)},
                                         {"pixel_mask", mask}});
}

TEST_F(ProgramsOnGpu, Setr) {
  models::setr::SetrProgram program;
  expect_same_findings(program, "setr_fudan_naive", {40, 50, 3});
}

TEST_F(ProgramsOnGpu, SetrOfMmseg) {
  models::setr::SetrProgram program;
  expect_same_findings(program, "setr_mmseg_naive", {40, 50, 3});
}

TEST_F(ProgramsOnGpu, OtherClassifiers) {
  for (const char* folder : {"convnext", "swin"})
    expect_same_findings(*models::vit::make_program(), folder, {40, 50, 3});
}

TEST_F(ProgramsOnGpu, Segformer) {
  models::setr::SetrProgram program;
  expect_same_findings(program, "segformer", {40, 50, 3});
}

TEST_F(ProgramsOnGpu, Depth) {
  models::depth::DepthProgram program;
  expect_same_findings(program, "depth_anything", {40, 50, 3});
}

TEST_F(ProgramsOnGpu, RtDetrChoosesPairs) {
  expect_same_detections("rt_detr", {{"levels", random_.randint(0, 256, {1, 64, 64, 3}, u8)}});
}

// Normalizing is the same operation of each level as on the host: the same bits.
TEST_F(ProgramsOnGpu, SetrNormalizesToTheSameBits) {
  using models::setr::Flavour;
  const Tensor image = random_.randint(0, 256, {16, 17, 3}, u8);
  const models::setr::SetrPreprocessing rule = models::setr::default_preprocessing(512);
  for (const Flavour flavour : {Flavour::fudan, Flavour::mmseg}) {
    const auto f = [&](const Tensor& levels) {
      return models::setr::normalize_levels(levels, rule, flavour);
    };
    const Tensor want = models::setr::normalize_image(image, rule, flavour);
    expect_same(compile(f, {.device = gpu_})(image.expand_dims(0)), want);
  }
}

// Sums of windows and the choice of classes, in groups of two.
TEST_F(ProgramsOnGpu, SetrChoosesTheSameClasses) {
  using namespace models::setr;
  const std::vector<Window> windows = slide_windows(12, 19, 12, 8);
  const Tensor parts = random_.normal({std::ssize(windows), 5, 12, 12});
  const auto labels = [&](const Device& device) {
    std::int64_t i = 0;
    const auto add = [&](const Window&, const Tensor& sums) {
      const Tensor part = parts(slice(i, i + 1)).to(device);
      ++i;
      return sums + part;
    };
    models::CompiledForward compiled([&](const nn::StateDict& inputs, const Sharing& sharing) {
      return models::compile_named(better_classes, inputs, {.device = device, .sharing = sharing});
    });
    const Tensor sums = slide_sums(add, 5, {12, 19}, windows, device);
    return class_map(
               sums, count_windows({12, 19}, windows).to(device), {25, 21},
               [&](const nn::StateDict& in) { return compiled.executable(in)(in); }, 2 * 25 * 21)
        .to("cpu");
  };
  expect_same(labels(gpu_), labels("cpu"));
}

// A whole model, ViT-B where the GPU is real: the same bits however often it runs. The pretended
// GPU runs a small one, and as threads take the same turns each time, less often.
TEST_F(ProgramsOnGpu, AThousandRunsOfAVitGiveTheSameBits) {
  const models::vit::VitConfig small{
      .width = 64, .layers = 2, .heads = 2, .mlp = 128, .image = {48, 48}, .classes = 10};
  const bool pretends = is_pretended();
  const models::vit::VitConfig config = pretends ? small : models::vit::VitConfig{};
  auto vit = models::vit::Vit::sized(config);
  nn::randomize(vit, 12);
  const Tensor x = random_.normal({1, 3, config.image.height, config.image.width}).to(gpu_);
  const auto fast = compile([&](const Tensors& in) -> Tensors { return {vit(in[0]).logits}; },
                            Tensors{x}, {.device = gpu_, .dtype = f16});
  Tensors got{empty(fast.output_types()[0].shape, f32, gpu_)};
  fast.run({x}, got);
  const Tensor first = got[0].to("cpu");
  int different = 0;
  for (int i = 0; i < (pretends ? 20 : 1000); ++i) {
    got[0](ellipsis) = -1;
    fast.run({x}, got);
    different += !all(got[0].to("cpu") == first).item<bool>();
  }
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace tensor
