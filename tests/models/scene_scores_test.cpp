// The models that ship, on their 48 exported test scenes: the scores that PyTorch got, through the
// preprocessing of this library, eager and compiled.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <numeric>
#include <vector>

#include "models/common/checkpoint.h"
#include "models/detr/detr_checkpoint.h"
#include "models/detr/detr_processing.h"
#include "models/setr/setr_checkpoint.h"
#include "models/setr/setr_inference.h"
#include "models/setr/setr_processing.h"
#include "tensor/compile.h"
#include "tensor/creation.h"
#include "tensor/index.h"
#include "tensor/io.h"
#include "tensor/nn.h"
#include "tests/models/golden.h"

namespace {

using tensor::Tensor;

constexpr double kSameScore = 0.005;  // a few borderline boxes or pixels may tip in f32
constexpr double kOfPyTorch = 1e-4;  // its outputs are of f32, too, and of images of its own making

std::string scenes(const std::string& model, const std::string& file = "") {
  return TENSOR_TEST_DATA "/../../models/" + model + "/pretrained/scenes" + file;
}

double recorded(const std::string& model, const char* score) {
  const tensor::Json training = tensor::Json::load(scenes(model, "/training.json"));
  return training["result"]["test_npz"][score].number();
}

using Box = std::array<double, 4>;  // left, top, right, bottom

double overlap(const Box& a, const Box& b) {
  const double width = std::max(std::min(a[2], b[2]) - std::max(a[0], b[0]), 0.0);
  const double height = std::max(std::min(a[3], b[3]) - std::max(a[1], b[1]), 0.0);
  const auto area = [](const Box& box) { return (box[2] - box[0]) * (box[3] - box[1]); };
  return width * height / (area(a) + area(b) - width * height);
}

struct Truth {
  Box box;
  bool taken = false;
};

struct Found {
  std::size_t scene;
  double score;
  Box box;
};

/// COCO's average precision of one class at IoU 0.5: precision, made to fall, at 101 recalls.
double average_precision(std::vector<Found> found, std::vector<std::vector<Truth>> truth) {
  std::size_t total = 0, hits = 0;
  for (const auto& scene : truth) total += scene.size();
  std::ranges::stable_sort(found, std::greater(), &Found::score);
  std::vector<double> precision, recall;
  for (const Found& object : found) {
    Truth* best = nullptr;
    for (Truth& t : truth[object.scene])
      if (!t.taken && (!best || overlap(object.box, t.box) > overlap(object.box, best->box)))
        best = &t;
    if (best && overlap(object.box, best->box) >= 0.5) best->taken = true, ++hits;
    precision.push_back(double(hits) / double(precision.size() + 1));
    recall.push_back(double(hits) / double(total));
  }
  for (std::size_t i = precision.size(); i-- > 1;)
    precision[i - 1] = std::max(precision[i - 1], precision[i]);
  double sum = 0;
  for (int step = 0; step <= 100; ++step) {
    const auto at = std::ranges::lower_bound(recall, step / 100.0) - recall.begin();
    if (at < std::ssize(precision)) sum += precision[static_cast<std::size_t>(at)];
  }
  return sum / 101;
}

enum class Mode { eager, compiled, eight_bits, static_scales };
constexpr double kLostInEightBits = 0.003;  // of the scores in f32
constexpr double kLostByOneScale = 0.01;    // with scales from three other pictures

/// A function as it is run, from one of a model with these parameters, and inputs that it may be
/// calibrated on.
using Names = std::vector<std::pair<std::string, Tensor>>;
using Runner = std::function<tensor::TensorFunction(const tensor::TensorFunction&, const Names&,
                                                    const std::vector<std::vector<Tensor>>&)>;

template <class Model>
Names parameters_of(Model& model) {
  Names names;
  for (const auto& parameter : tensor::nn::parameters(model))
    names.emplace_back(parameter.name, *parameter.tensor);
  return names;
}

/// Pictures that are none of the test scenes.
std::vector<Tensor> example_pictures() {
  std::vector<Tensor> pictures;
  for (const char* name : {"1", "2", "3"})
    pictures.push_back(tensor::load_image(TENSOR_TEST_DATA "/../../examples/images/scenes/scene-" +
                                          std::string(name) + ".png"));
  return pictures;
}

class SceneScores : public ::testing::TestWithParam<Mode> {
 protected:
  /// The function itself, or compiled.
  static tensor::TensorFunction mode(const tensor::TensorFunction& f, const Names& names,
                                     const std::vector<std::vector<Tensor>>& examples) {
    if (GetParam() == Mode::eager) return f;
    tensor::CompileOptions options{.dtype = is_exact() ? tensor::f32 : tensor::i8, .names = names};
    if (GetParam() == Mode::static_scales)
      for (const std::vector<Tensor>& inputs : examples)
        options.scales = tensor::calibrate(f, inputs, options);
    return
        [fast = tensor::Compiled(f, options)](const std::vector<Tensor>& in) { return fast(in); };
  }
  static bool is_exact() { return GetParam() < Mode::eight_bits; }
  static void expect_score(double score, double exact) {
    RecordProperty("score", std::to_string(score));
    if (is_exact()) {
      EXPECT_NEAR(score, exact, kSameScore);
    } else {
      const bool is_static = GetParam() == Mode::static_scales;
      EXPECT_GE(score, exact - (is_static ? kLostByOneScale : kLostInEightBits));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, SceneScores,
                         ::testing::Values(Mode::eager, Mode::compiled, Mode::eight_bits,
                                           Mode::static_scales),
                         [](const auto& it) {
                           return std::string(it.param == Mode::eager        ? "eager"
                                              : it.param == Mode::compiled   ? "compiled"
                                              : it.param == Mode::eight_bits ? "eight_bits"
                                                                             : "static_scales");
                         });

// DETR on all scenes, so bright and its pictures padded to multiples of so many pixels.
struct DetrScenes {
  Tensor logits, pred_boxes;
  double ap50 = 0;
};
DetrScenes detr_scenes(const Runner& mode, std::int64_t pad_multiple, double brightness = 1) {
  const auto data = tensor::load_npz(scenes("detr", "/test.npz"));
  const models::Checkpoint checkpoint = models::open_checkpoint(scenes("detr"));
  models::detr::Detr detr = models::detr::load_detr(checkpoint);
  models::Preprocessing rule =
      models::read_preprocessing(checkpoint.preprocessor.value(), models::detr::processors());
  rule.pad_multiple = pad_multiple;
  const auto inputs_of = [&](const Tensor& image) {
    const models::detr::Batch batch = models::detr::make_batch({image}, rule);
    EXPECT_EQ(batch.pixel_mask.defined(), pad_multiple > 0);
    std::vector<Tensor> inputs = {batch.pixel_values};
    if (batch.pixel_mask.defined()) inputs.push_back(batch.pixel_mask);
    return inputs;
  };
  std::vector<std::vector<Tensor>> examples;
  for (const Tensor& picture : example_pictures()) examples.push_back(inputs_of(picture));
  const tensor::TensorFunction net = mode(
      [&](const std::vector<Tensor>& in) {
        const models::detr::DetrOutput out = detr(in[0], in.size() > 1 ? in[1] : Tensor());
        return std::vector<Tensor>{out.logits, out.pred_boxes};
      },
      parameters_of(detr), examples);
  const Tensor images = data.at("images"), labels = data.at("labels"), boxes = data.at("boxes");
  const std::int64_t count = images.shape(0), classes = detr.class_head.weight.shape(0) - 1;
  EXPECT_EQ(count, 48);
  std::vector<std::vector<Found>> found(static_cast<std::size_t>(classes));
  std::vector<std::vector<std::vector<Truth>>> truth(
      found.size(), std::vector<std::vector<Truth>>(static_cast<std::size_t>(count)));
  std::vector<Tensor> logits, pred_boxes;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto scene = static_cast<std::size_t>(i);
    for (std::int64_t k = 0; k < labels.shape(1); ++k)
      if (const auto label = labels.item<std::int64_t>(i, k); label >= 0)
        truth[static_cast<std::size_t>(label)][scene].push_back(
            {{boxes.item(i, k, 0), boxes.item(i, k, 1), boxes.item(i, k, 2), boxes.item(i, k, 3)}});
    const Tensor levels = images(i).to(tensor::f32) * brightness;
    const std::vector<Tensor> out = net(inputs_of(tensor::clip(levels, 0, 255).to(tensor::u8)));
    logits.push_back(out[0](0)), pred_boxes.push_back(out[1](0));
    const models::Size size{images.shape(1), images.shape(2)};
    for (const auto& object :
         models::detr::find_objects(logits.back(), pred_boxes.back(), size, -1))
      found[static_cast<std::size_t>(object.label)].push_back({scene, object.score, object.box});
  }
  double sum = 0;
  for (std::size_t k = 0; k < found.size(); ++k) sum += average_precision(found[k], truth[k]);
  // The scenes show every class.
  return {tensor::stack(logits), tensor::stack(pred_boxes), sum / static_cast<double>(classes)};
}

tensor::TensorFunction compiled(const tensor::TensorFunction& f, const Names&,
                                const std::vector<std::vector<Tensor>>&) {
  return [fast = tensor::Compiled(f)](const std::vector<Tensor>& in) { return fast(in); };
}

// One object that tips moves the score of 48 scenes by half a point, either way: eight bits are
// judged by the mean over as many scenes as it takes to tell a loss from that.
constexpr double kBrightness[] = {0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15};
double mean_ap50(const Runner& mode) {
  double sum = 0;
  for (const double brightness : kBrightness) sum += detr_scenes(mode, 0, brightness).ap50;
  return sum / static_cast<double>(std::size(kBrightness));
}

TEST_P(SceneScores, DetrFindsWhatPyTorchFound) {
  if (!is_exact()) return expect_score(mean_ap50(mode), mean_ap50(compiled));
  const DetrScenes got = detr_scenes(mode, 0);
  const auto data = tensor::load_npz(scenes("detr", "/test.npz"));
  golden::expect_close(got.logits, data.at("logits"), "logits", kOfPyTorch);
  golden::expect_close(got.pred_boxes, data.at("pred_boxes"), "pred_boxes", kOfPyTorch);
  expect_score(got.ap50, recorded("detr", "ap50"));
}

// The mask keeps the attention off the padding, but convolutions near the border see a bias where
// without it they see zeros.
TEST(Buckets, CostLittleAccuracy) {
  const DetrScenes got = detr_scenes(compiled, 64);
  EXPECT_GT(got.ap50, recorded("detr", "ap50") - 0.02);
  std::cout << "AP50 " << got.ap50 << ", unpadded " << recorded("detr", "ap50") << "\n";
}

TEST_P(SceneScores, SetrColoursWhatPyTorchColoured) {
  const auto data = tensor::load_npz(scenes("setr", "/test.npz"));
  const models::Checkpoint checkpoint = models::setr::open_setr(scenes("setr"));
  models::setr::Setr setr = models::setr::load_setr(checkpoint);
  const models::setr::SetrPreprocessing rule =
      models::setr::read_preprocessing(checkpoint.preprocessor.value(), setr.config.image_size);
  const auto pixels = [&](const Tensor& image) {
    return models::setr::preprocess(image, rule, setr.config.flavour);
  };
  std::vector<std::vector<Tensor>> examples;
  for (const Tensor& picture : example_pictures()) examples.push_back({pixels(picture)});
  const tensor::TensorFunction net =
      mode([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{setr(in[0])}; },
           parameters_of(setr), examples);
  const Tensor images = data.at("images"), truth = data.at("classes").astype(tensor::i64);
  const Tensor few = data.at("logits_every_4th");
  ASSERT_EQ(images.shape(0), 48);
  const auto classes = static_cast<std::size_t>(setr.config.classes);
  std::vector<double> both(classes), either(classes);  // pixels
  std::int64_t differ = 0;
  for (std::int64_t i = 0; i < images.shape(0); ++i) {
    const Tensor logits = net({pixels(images(i))})[0];
    if (i < few.shape(0) && is_exact())
      golden::expect_close(logits["0, :, ::4, ::4"], few(i), "scene " + std::to_string(i),
                           kOfPyTorch);
    const Tensor counts = tensor::ones({1, 1, logits.shape(2), logits.shape(3)});
    const Tensor predicted =
        models::setr::class_map(logits, counts, {images.shape(1), images.shape(2)});
    const Tensor stored = data.at("predicted")(i).astype(tensor::i64);
    differ += tensor::sum(predicted != stored).item<std::int64_t>();
    for (std::size_t k = 0; k < classes; ++k) {
      const auto of_class = static_cast<std::int64_t>(k);
      const Tensor a = predicted == of_class, b = truth(i) == of_class;
      both[k] += tensor::sum(tensor::logical_and(a, b)).item();
      either[k] += tensor::sum(tensor::logical_or(a, b)).item();
    }
  }
  // A pixel whose two best logits agree to 1e-4 may go either way: less than one in ten thousand.
  if (is_exact()) {
    EXPECT_LE(differ, images.shape(0) * images.shape(1) * images.shape(2) / 10000);
  }
  double sum = 0;
  for (std::size_t k = 0; k < classes; ++k) sum += both[k] / either[k];
  const double mean_iou = sum / static_cast<double>(classes);
  expect_score(mean_iou, recorded("setr", "mean_iou"));
}

}  // namespace
