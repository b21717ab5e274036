// Graphs as deep and as wide as programs make them: nothing recurses over the depth of a graph.
#include <gtest/gtest.h>
#include <pthread.h>

#include <exception>
#include <functional>
#include <string>

#include "tensor/compile.h"
#include "tensor/creation.h"
#include "tensor/executable.h"
#include "tensor/ops.h"
#include "tests/temporary_folder.h"

namespace tn = tensor;
using tn::Tensor;

namespace {

// musl gives a thread 128 KB, and the sanitizers' frames are several times as large.
constexpr std::size_t kStack = 512 << 10;

void run_on_small_stack(const std::function<void()>& task) {
  struct Call {
    const std::function<void()>& task;
    std::exception_ptr error;
  } call{task, nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStack), 0);
  pthread_t thread;
  const auto body = [](void* argument) -> void* {
    auto& [run, error] = *static_cast<Call*>(argument);
    try {
      run();
    } catch (...) {
      error = std::current_exception();
    }
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, &call), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  if (call.error) std::rethrow_exception(call.error);
}

// f(x), f(f(x)), ... `depth` times: compiled, saved, loaded and destroyed.
void expect_goes_deep(int depth, const std::function<Tensor(const Tensor&)>& f) {
  const tn::check::TemporaryFolder folder;
  const tn::TensorFunction deep = [&](const std::vector<Tensor>& in) {
    Tensor y = in[0];
    for (int i = 0; i < depth; ++i) y = f(y);
    return std::vector<Tensor>{y + 1.0};
  };
  run_on_small_stack([&] {
    const Tensor x = tn::ones({4, 4});
    const tn::Executable compiled = tn::compile(deep, {x.type()}, {.threads = 1});
    const std::string file = folder.path() + "/deep.plan";
    compiled.save(file);
    const Tensor expected = deep({x})[0], got = tn::load_executable(file, 1)({x})[0];
    EXPECT_TRUE(tn::allclose(got, expected, 1e-5, 1e-5));
  });
}

TEST(Depth, ChainsOfProducts) {
  const Tensor weight = tn::full({4, 4}, 0.25, tn::f32);
  expect_goes_deep(4000, [&](const Tensor& x) { return tn::matmul(x, weight); });
}
TEST(Depth, ChainsOfElementwiseOperators) {
  expect_goes_deep(4000, [](const Tensor& x) { return tn::tanh(x) + 0.1; });
}
TEST(Depth, ChainsOfViews) {
  expect_goes_deep(4000, [](const Tensor& x) { return tn::transpose(tn::flip(x, 0)); });
}
TEST(Depth, ChainsOfCopies) {
  expect_goes_deep(2000, [](const Tensor& x) { return tn::reshape(tn::transpose(x), {4, 4}); });
}

TEST(Depth, ConcatenationsOfManyParts) {
  const tn::TensorFunction wide = [](const std::vector<Tensor>& in) {
    std::vector<Tensor> parts;
    for (int i = 0; i < 3000; ++i) parts.push_back(in[0] * (1.0 + i));
    return std::vector<Tensor>{tn::concatenate(parts, 0)};
  };
  const Tensor x = tn::ones({1, 4});
  EXPECT_TRUE(tn::array_equal(tn::compile(wide, {x.type()}, {.threads = 1})({x})[0], wide({x})[0]));
}

}  // namespace
