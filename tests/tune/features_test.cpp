// The features of schedules, whose values cost models have learned from.
#include "src/kernels/features.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "src/kernels/cuda/family.h"
#include "src/runtime/target.h"
#include "src/trace/layout.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/families.h"

namespace tensor {
namespace {

using Tensors = std::vector<Tensor>;

constexpr const char* kPath = TENSOR_TEST_DATA "/../tune/features.txt";

struct Case {
  std::string name;
  TensorFunction function;
  std::vector<TensorType> inputs;
};

Tensor constant(const Shape& shape, DType dtype) { return broadcast_to(full({}, 1, dtype), shape); }

// What the families of the nine models' groups take.
std::vector<Case> cases() {
  const auto product = [](const Tensors& in) -> Tensors {
    const Tensor w = constant({3072, 768}, in[0].dtype()), bias = constant({3072}, f32);
    return {gelu(matmul(in[0], w.transpose()).astype(f32) + bias).astype(in[0].dtype())};
  };
  const auto residual = [](const Tensors& in) -> Tensors {
    const Tensor w = constant({256, 1024}, f16);
    return {matmul(in[0], w.transpose()).astype(f32) + in[1]};
  };
  const auto attention = [](const Tensors& in) -> Tensors {
    const Tensor scores = matmul(in[0], swapaxes(in[1], -1, -2)).astype(f32) * 0.125;
    return {matmul(softmax(scores, -1).astype(in[2].dtype()), in[2])};
  };
  const auto weights = [](const Tensors& in) -> Tensors {
    const Tensor scores = matmul(in[0], swapaxes(in[1], -1, -2)).astype(f32) * 0.125;
    return {softmax(scores, -1).astype(f16)};
  };
  const auto convolution = [](const Shape& filters, const Conv2dOptions& options) {
    return [=](const Tensors& in) -> Tensors {
      const DType dtype = in[0].dtype();
      const Tensor w = constant(filters, dtype), bias = constant({filters[0], 1, 1}, f32);
      return {relu(conv2d(in[0], w, {}, options).astype(f32) + bias).astype(dtype)};
    };
  };
  const TensorType heads{{1, 12, 197, 64}, f16}, long_heads{{2, 8, 1050, 32}, f16},
      exact_heads{{1, 12, 197, 64}, f32};
  return {
      {"product", product, {{{1, 197, 768}, f16}}},
      {"product of float32", product, {{{1, 197, 768}, f32}}},
      {"product with a residual", residual, {{{4200, 1024}, f16}, {{4200, 256}, f32}}},
      {"attention", attention, {heads, heads, heads}},
      {"long attention", attention, {long_heads, long_heads, long_heads}},
      {"attention in float32", attention, {exact_heads, exact_heads, exact_heads}},
      {"attention weights", weights, {heads, heads}},
      {"long attention weights", weights, {long_heads, long_heads}},
      {"3 x 3", convolution({128, 128, 3, 3}, {.padding = 1}), {{{1, 128, 100, 167}, f16}}},
      {"3 x 3 of float32", convolution({64, 64, 3, 3}, {.padding = 1}), {{{1, 64, 56, 56}, f32}}},
      {"strided 1 x 1", convolution({512, 256, 1, 1}, {.stride = 2}), {{{1, 256, 50, 84}, f16}}},
      {"stem", convolution({64, 3, 7, 7}, {.stride = 2, .padding = 3}), {{{1, 3, 224, 224}, f16}}},
  };
}

// What is not 0, in lines of a readable length.
std::string text_of(const std::vector<float>& features) {
  std::string text, line;
  for (std::size_t i = 0; i < features.size(); ++i) {
    if (features[i] == 0) continue;
    char number[32];
    std::snprintf(number, sizeof number, " %.5g", static_cast<double>(features[i]));
    const std::string word = feature_names()[i] + number + ';';
    if (line.size() + word.size() > 98) {
      text += line + '\n';
      line.clear();
    }
    line += ' ' + word;
  }
  return text + line + '\n';
}

// Features as text, by device, case, family and schedule: of every sketch the schedule in the
// middle of the valid ones.
std::map<std::string, std::string> features_by_schedule() {
  std::map<std::string, std::string> result;
  for (const int capability : {80, 90}) {
    const detail::Target target = detail::cuda_target(cuda::typical_device(capability));
    for (const Case& c : cases()) {
      const LaidOutGraph laid = lay_out(trace(c.function, c.inputs));
      std::vector<ValueId> nodes;
      for (ValueId id = 0; id < laid.graph.size(); ++id)
        if (is_compute(laid.graph, id)) nodes.push_back(id);
      const Group group = make_group(laid.graph, wiring(laid.graph), nodes);
      for (int family = 0; family < target.offers->families(); ++family) {
        const auto space = space_of(target, laid, group, family);
        if (!space) continue;
        std::map<std::string, std::vector<Schedule>> by_sketch;
        for (const Schedule& s : space->all()) by_sketch[s.sketch].push_back(s);
        for (const auto& [sketch, schedules] : by_sketch) {
          const Schedule& middle = schedules[schedules.size() / 2];
          result["sm_" + std::to_string(capability) + ", " + c.name + ": " +
                 std::string(target.offers->name(family)) + ' ' + middle.text()] =
              text_of(space->features(middle));
        }
      }
    }
  }
  return result;
}

struct Reviewed {
  int version = 0;
  std::map<std::string, std::string> features;
};

Reviewed read_reviewed() {
  Reviewed result;
  std::ifstream file(kPath);
  std::string line, schedule;
  std::getline(file, line);
  std::sscanf(line.c_str(), "# version %d", &result.version);
  while (std::getline(file, line))
    if (line.starts_with(' '))
      result.features[schedule] += line + '\n';
    else
      schedule = line;
  return result;
}

void write_reviewed(const std::map<std::string, std::string>& features) {
  std::ofstream file(kPath);
  file << "# version " << kFeaturesVersion
       << " of the features (src/kernels/features.h); of every sketch one schedule\n";
  for (const auto& [schedule, text] : features) file << schedule << '\n' << text;
  ASSERT_TRUE(file.flush()) << kPath;
}

// A model that has learned from other values ranks by chance, and nothing else would tell.
TEST(Features, AreThoseThatTheShippedModelHasLearnedFrom) {
  const std::map<std::string, std::string> got = features_by_schedule();
  const Reviewed reviewed = read_reviewed();
  std::string changed;
  for (const auto& [schedule, text] : got)
    if (const auto known = reviewed.features.find(schedule);
        known != reviewed.features.end() && known->second != text)
      changed += schedule + "\nwas\n" + known->second + "is\n" + text;
  if (reviewed.version == kFeaturesVersion) {
    ASSERT_EQ(changed, "") << "features changed: raise kFeaturesVersion (src/kernels/features.h), "
                           << "retrain the model with tune_model "
                           << "--save=src/tune/shipped/nvidia-h200.model LOG..., and renew "
                           << kPath << " with TENSOR_RENEW_PLANS=1";
  }
  if (std::getenv("TENSOR_RENEW_PLANS")) return write_reviewed(got);
  EXPECT_EQ(reviewed.version, kFeaturesVersion)
      << "renew " << kPath << " with TENSOR_RENEW_PLANS=1";
  EXPECT_TRUE(got == reviewed.features)
      << "spaces have other schedules than those of " << kPath << ": renew it with "
      << "TENSOR_RENEW_PLANS=1";
}

TEST(Features, OfAllSketchesOnGpusAreReviewed) {
  const std::set<std::string> on_cpus = {"is as_convolution", "is as_product", "is streamed"};
  std::string all;
  for (const auto& [schedule, text] : read_reviewed().features) all += text;
  for (const std::string& name : feature_names()) {
    if (!name.starts_with("is ") || on_cpus.contains(name)) continue;
    EXPECT_NE(all.find(' ' + name + " 1;"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace tensor
