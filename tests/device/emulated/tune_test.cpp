// Tuning on a pretended GPU: the child process that measures, kernels that are checked on the
// device, the log, and the program that is made from it. How long anything takes is made up.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <optional>

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

// In a process of its own. Returns what is wrong, empty if nothing is.
std::string tune_a_product(bool has_used_gpu) {
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
  Tensor kept;
  std::optional<Executable> older;
  if (has_used_gpu) {
    kept = a.to("cuda");
    older = compile(f, Tensors{a, b, bias}, how);
    (*older)({kept, b, bias});
  }
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
  if (cuda::Device::is_started() != has_used_gpu) return "the tuner's own process has used the GPU";
  if (older && !array_equal((*older)({kept, b, bias})[0].to("cpu"), (*older)({a, b, bias})[0]))
    return "what was compiled before the tuning is wrong after it";
  how.tune_logs = std::vector<std::string>{path};
  const Tensor got = compile(f, Tensors{a, b, bias}, how)({a, b, bias})[0],
               want = f({a, b, bias})[0];
  // Scores of the size of six, rounded to float16 before the exponential.
  const double error = max(abs(got - want)).item<double>();
  return error < 8 * 0x1p-10 ? "" : "the tuned program is wrong by " + std::to_string(error);
}

void expect_that_it_tunes(bool has_used_gpu) {
  const std::string style = GTEST_FLAG_GET(death_test_style);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end(tune_a_product(has_used_gpu)), testing::ExitedWithCode(0), "all is well");
  GTEST_FLAG_SET(death_test_style, style);
}

TEST(TuneOnGpu, MeasuresInAChildAndPlansFromItsLog) { expect_that_it_tunes(false); }
TEST(TuneOnGpu, MeasuresWhereTheGpuWasUsedBefore) { expect_that_it_tunes(true); }

// What a child of a process that uses the GPU says of it.
std::string said_in_a_child(bool starts_anew, const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    if (starts_anew) cuda::Device::start_anew();
    const std::string text = check::error_of<Error>(body);
    _exit(write(ends[1], text.data(), text.size()) < 0);
  }
  close(ends[1]);
  char text[1000];
  const ssize_t size = read(ends[0], text, sizeof text);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return {text, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

TEST(GpuAfterFork, IsOutOfReachInAChildButForWhatStartsAnew) {
  cuda::Device& parents = cuda::Device::get();
  const Tensor there = ones({4}).to("cuda");
  const std::string refused =
      "this process is a child of one that uses the GPU, and cannot use it itself: call fork() "
      "before the first use, or start a program in the child";
  const auto use = [] { ones({4}).to("cuda").to("cpu"); };
  EXPECT_EQ(said_in_a_child(false, [] { cuda::Device::count(); }), "the CUDA driver: " + refused);
  EXPECT_EQ(said_in_a_child(false, [&] { parents.enter(); }),
            "cuda:0: making it current: " + refused);
  EXPECT_EQ(said_in_a_child(true, use), "no error");
  EXPECT_EQ(said_in_a_child(true, [&] { parents.enter(); }),
            "cuda:0: is used by the parent of this process");
  EXPECT_EQ(array_equal(there.to("cpu"), ones({4})), true);
}

TEST(SharedLibrary, ACopyHasVariablesOfItsOwn) {
  const SharedLibrary library("zlib", {"libz.so.1"}, "install it");
  const SharedLibrary copy = library.copy("zlib", "do without");
  const auto one = library.function<const char*()>("zlibVersion");
  const auto other = copy.function<const char*()>("zlibVersion");
  EXPECT_NE(one, other);
  EXPECT_STREQ(one(), other());
  SharedLibrary::stand_in("libalone.so", [](const char*) -> void* { return nullptr; });
  const std::string text =
      check::error_of([] { SharedLibrary("it", {"libalone.so"}, "").copy("it", "do without"); });
  EXPECT_TRUE(text.starts_with("it: cannot be opened (copy of libalone.so: ")) << text;
  EXPECT_TRUE(text.ends_with("): do without")) << text;
}

}  // namespace
}  // namespace tensor
