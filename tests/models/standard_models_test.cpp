// The nine standard models with random weights: every kernel of the compiled model against the
// reference operators, and for one of each kind the outputs against the eager run.
//
// TENSOR_MODELS_UP_TO is the largest size to run, in millions of parameters; others are reported as
// skipped. scripts/test sets it where the sanitizers make the large ones take minutes.
#include <cstdlib>

#include "tests/models/golden.h"
#include "tests/models/standard.h"

namespace {

using tensor::Tensor;
using tensor::nn::StateDict;

class StandardModels : public ::testing::TestWithParam<standard::Case> {};

TEST_P(StandardModels, EveryKernelIsAsExactAsItMustBe) {
  const standard::Case& c = GetParam();
  const standard::Model model = standard::model(c);
  std::int64_t count = 0;
  for (const auto& p : model.parameters) count += p.tensor->size();
  if (const char* most = std::getenv("TENSOR_MODELS_UP_TO");
      most && count > std::atoll(most) * 1000000)
    GTEST_SKIP() << count << " parameters, and TENSOR_MODELS_UP_TO is " << most << " million";
  tensor::nn::randomize(model.parameters, 20);
  tensor::CompileOptions options;
  for (const auto& p : model.parameters) options.names.emplace_back(p.name, *p.tensor);
  const StateDict inputs = {
      {"pixel_values", tensor::Generator(21).normal({1, 3, c.height, c.width})}};
  const models::NamedExecutable fast = models::compile_named(model.run, inputs, options);
  const auto checks = tensor::verify(fast.executable, fast.arguments(inputs));
  EXPECT_GE(checks.size(), 50u);
  double worst = 0;
  for (const tensor::GroupCheck& check : checks) {
    EXPECT_TRUE(check.ok()) << check.operators << " @ " << check.where << " [" << check.kernel
                            << "]: " << check.error << " > " << check.bound;
    worst = std::max(worst, check.error / check.bound);
  }
  RecordProperty("worst_share_of_bound", std::to_string(worst));
  const StateDict got = fast(inputs);
  for (const auto& [name, value] : got)
    EXPECT_TRUE(tensor::all(tensor::isfinite(value)).item<bool>()) << name;
  if (!c.whole) return;
  for (const auto& [name, want] : model.run(inputs)) golden::expect_close(got.at(name), want, name);
}

INSTANTIATE_TEST_SUITE_P(Nine, StandardModels, ::testing::ValuesIn(standard::cases()),
                         [](const auto& it) { return standard::word(it.param); });

}  // namespace
