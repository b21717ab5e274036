// Tuning on a pretended GPU: the child process that measures, kernels that are checked on the
// device, the log, and the program that is made from it. How long anything takes is made up.
#include <gtest/gtest.h>

#include <iostream>

#include "src/tune/gpu_measurer.h"
#include "src/tune/log.h"
#include "tensor/tensor.h"
#include "tensor/tune.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace tensor {
namespace {

using Tensors = std::vector<Tensor>;

[[noreturn]] void end(const std::string& fault) {
  std::cerr << (fault.empty() ? "all is well\n" : fault + "\n");
  std::exit(fault.empty() ? 0 : 1);
}

// In a process that has not used a GPU before. Returns what is wrong, empty if nothing is.
std::string tune_a_product() {
  const check::TemporaryFolder folder;
  const std::string path = folder / "tuned.jsonl";
  Generator random(5);
  const Tensor a = random.normal({24, 32}), b = random.normal({32, 16}), bias = random.normal({16});
  // No constants: of small ones hundreds of copies would be read in turn, as if from memory. The
  // softmax is that of columns, which no kernel makes together with the product.
  const TensorFunction f = [&](const Tensors& in) -> Tensors {
    return {softmax(matmul(in[0], in[1]), 0) + in[2]};
  };
  CompileOptions how{.device = "cuda", .dtype = f16, .tune_logs = std::vector<std::string>()};
  const TuneSummary summary =
      tune(f, {a.type(), b.type(), bias.type()}, how, {.seconds = 0, .trials = 8, .log = path});
  std::cerr << summary;
  const std::vector<Measurement> lines = read_log(path).measurements;
  if (summary.trials != 8)
    return "so many schedules were measured: " + std::to_string(summary.trials);
  for (const Measurement& m : lines) {
    if (!m.error.empty()) return m.family + ' ' + m.schedule + ": " + m.error;
    if (m.device != summary.device) return "the log names the device " + m.device;
  }
  if (cuda::Device::is_started()) return "the tuner's own process has used the GPU";
  how.tune_logs = std::vector<std::string>{path};
  const Tensor got = compile(f, Tensors{a, b, bias}, how)({a, b, bias})[0],
               want = f({a, b, bias})[0];
  // Scores of the size of six, rounded to float16 before the exponential.
  const double error = max(abs(got - want)).item<double>();
  return error < 8 * 0x1p-10 ? "" : "the tuned program is wrong by " + std::to_string(error);
}

TEST(TuneOnGpu, MeasuresInAChildAndPlansFromItsLog) {
  const std::string style = GTEST_FLAG_GET(death_test_style);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end(tune_a_product()), testing::ExitedWithCode(0), "all is well");
  GTEST_FLAG_SET(death_test_style, style);
}

// Children of a process that has started CUDA cannot use it.
TEST(TuneOnGpu, IsRefusedWhereTheGpuIsInUse) {
  cuda::Device::get();
  const TensorFunction f = [](const Tensors& in) -> Tensors { return {exp(in[0])}; };
  const std::string text = check::error_of([&] {
    tune(f, {{{4}, f32}}, {.device = "cuda"}, {.seconds = 1});
  });
  EXPECT_NE(text.find("uses the GPU already"), std::string::npos) << text;
}

}  // namespace
}  // namespace tensor
