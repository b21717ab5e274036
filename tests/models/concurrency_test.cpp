// Sixteen threads on one executable: every result bit for bit that of a lone run. Lasts
// TENSOR_STRESS_SECONDS (1 by default) a case; built for ThreadSanitizer with the preset tsan.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "models/detr/detr_checkpoint.h"
#include "models/vit/vit_checkpoint.h"
#include "tensor/compile.h"
#include "tensor/creation.h"
#include "tensor/tensor.h"

namespace {

using Tensors = std::vector<tensor::Tensor>;

constexpr int kCallers = 16;

double seconds() {
  const char* text = std::getenv("TENSOR_STRESS_SECONDS");
  return text ? std::atof(text) : 1;
}

// libgomp is not built for ThreadSanitizer, which takes its barriers for races: there each call
// stays in its caller's thread, and the callers alone are watched.
#ifdef __SANITIZE_THREAD__
constexpr int kMostThreads = 1;
#else
constexpr int kMostThreads = 2;
#endif

bool same_bits(const tensor::Tensor& a, const tensor::Tensor& b) {
  return a.type() == b.type() &&
         std::memcmp(a.data<float>(), b.data<float>(), static_cast<std::size_t>(a.nbytes())) == 0;
}

/// Calls `run` with the inputs in turn from all threads at once, and counts the wrong results.
template <class Run>
void stress(const std::vector<Tensors>& inputs, const Run& run) {
  std::vector<Tensors> expected;
  for (const Tensors& in : inputs) expected.push_back(run(in));
  std::atomic<int> calls = 0, wrong = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds());
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < kCallers; ++caller)
    callers.emplace_back([&, caller] {
      for (std::size_t turn = caller; turn == caller || std::chrono::steady_clock::now() < end;
           ++turn) {
        const std::size_t i = turn % inputs.size();
        const Tensors got = run(inputs[i]);
        bool good = got.size() == expected[i].size();
        for (std::size_t k = 0; good && k < got.size(); ++k)
          good = same_bits(got[k], expected[i][k]);
        ++calls;
        wrong += !good;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0) << "of " << calls << " calls";
  EXPECT_GE(calls, kCallers);
  testing::Test::RecordProperty("calls", calls);
}

std::string pretrained(const std::string& folder) {
  return TENSOR_TEST_DATA "/../../models/" + folder;
}

std::vector<Tensors> random_inputs(const std::vector<tensor::Shape>& shapes) {
  std::vector<Tensors> result;
  tensor::Generator random(16);
  for (const tensor::Shape& shape : shapes) result.push_back({random.normal(shape)});
  return result;
}
std::vector<Tensors> images(std::int64_t height, std::int64_t width) {
  return random_inputs(std::vector<tensor::Shape>(5, {1, 3, height, width}));
}

TEST(Concurrency, OneVitExecutable) {
  const auto vit =
      models::vit::load_vit(models::open_checkpoint(pretrained("vit/pretrained/digits")));
  const tensor::TensorFunction f = [&](const Tensors& in) -> Tensors {
    return {vit.model(in[0]).logits};
  };
  const auto size = vit.model.embeddings.image;
  const auto inputs = images(size.height, size.width);
  for (const tensor::DType dtype : {tensor::f32, tensor::bf16})
    for (int threads = 1; threads <= kMostThreads; ++threads) {
      const tensor::Executable fast =
          tensor::compile(f, inputs[0], {.dtype = dtype, .threads = threads});
      stress(inputs, [&](const Tensors& in) { return fast(in); });
    }
}

TEST(Concurrency, OneDetrExecutable) {
  const models::detr::Detr detr = models::detr::load_detr(pretrained("detr/pretrained/scenes"));
  const tensor::TensorFunction f = [&](const Tensors& in) -> Tensors {
    const auto out = detr(in[0]);
    return {out.logits, out.pred_boxes};
  };
  const auto inputs = images(96, 128);
  for (int threads = 1; threads <= kMostThreads; ++threads) {
    const tensor::Executable fast = tensor::compile(f, inputs[0], {.threads = threads});
    stress(inputs, [&](const Tensors& in) { return fast(in); });
  }
}

TEST(Concurrency, OneCompiledFunctionForManyShapes) {
  const auto weights = random_inputs({{16, 32}, {32, 16}});
  // More shapes than it keeps executables: compiling, looking up and dropping meet.
  const tensor::Compiled f(
      [&](const Tensors& in) -> Tensors {
        return {tensor::softmax(
            tensor::matmul(tensor::gelu(tensor::matmul(in[0], weights[0][0])), weights[1][0]))};
      },
      {.threads = 1}, 2);
  stress(random_inputs({{1, 16}, {7, 16}, {3, 5, 16}, {64, 16}}),
         [&](const Tensors& in) { return f(in); });
}

// All sizes are new at first, some are prepared meanwhile, and one arena grows.
TEST(Concurrency, NewSizesOfOneFunction) {
  const auto weights = random_inputs({{32, 512}, {512, 600}});
  std::vector<tensor::Shape> shapes;
  for (std::int64_t rows = 1; rows <= 24; ++rows) shapes.push_back({rows * rows, 32});
  const auto inputs = random_inputs(shapes);
  const auto function = [&](const Tensors& in) -> Tensors {
    return {tensor::softmax(
        tensor::matmul(tensor::exp(tensor::matmul(in[0], weights[0][0]) * 0.125), weights[1][0]))};
  };
  std::vector<Tensors> expected;
  for (const Tensors& in : inputs)
    expected.push_back(tensor::compile(function, in, {.threads = 1})(in));
  for (const std::size_t capacity : {4, 32}) {
    const tensor::Compiled f(function, {.threads = 1}, capacity);
    f.prepare({{inputs[3][0].type()}, {inputs[7][0].type()}, {inputs[11][0].type()}},
              tensor::When::in_background);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> callers;
    for (unsigned caller = 0; caller < kCallers; ++caller)
      callers.emplace_back([&, caller] {
        std::minstd_rand random(caller + 1);
        for (int call = 0; call < 30; ++call) {
          const std::size_t i = random() % inputs.size();
          wrong += !same_bits(f(inputs[i])[0], expected[i][0]);
        }
      });
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(wrong, 0) << capacity;
  }
}

}  // namespace
