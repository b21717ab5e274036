// One function compiled for many sizes: weights and arena are there once, go when nobody needs
// them, and are never stale; no size waits for another.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <set>
#include <thread>

#include "src/runtime/program.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"
#include "tests/runtime/many_sizes.h"
#include "tests/seed.h"

namespace tn = tensor;
using tn::Tensor;
using tn::check::error_of;
using Tensors = std::vector<Tensor>;
using namespace many_sizes;

namespace {

// Folded scales, casts, products that run side by side, packed weights.
struct Network {
  Tensor query, key, value, scale, narrow, filters, filter_scale;
  Network() {
    tn::Generator random(3);
    for (Tensor* x : {&query, &key, &value}) *x = random.normal({512, 256}) * 0.05;
    scale = random.uniform({256}, 0.5, 2);
    narrow = (random.normal({256, 1024}) * 0.05).astype(tn::bf16);
    filters = random.normal({64, 32, 3, 3}) * 0.05;
    filter_scale = random.uniform({64, 1, 1}, 0.5, 2);
  }
  Tensors operator()(const Tensors& in) const {
    const Tensor& x = in[0];
    const Tensor eps = tn::full({}, 0.125, tn::f32);  // anew whenever it is traced
    const Tensor q = tn::matmul(x, query) * eps, k = tn::matmul(x, key), v = tn::matmul(x, value);
    const Tensor wide = tn::matmul((q + k * scale + v).astype(tn::bf16), narrow);
    const Tensor image = tn::reshape(tn::cos(x), {x.shape(0), 32, 4, 4});
    return {wide.astype(tn::f32), tn::conv2d(image, filters, {}, {.padding = 1}) * filter_scale};
  }
};

TEST(Sizes, WeightsAreThereOnce) {
  const Network network;
  for (const tn::DType dtype : {tn::f32, tn::bf16}) {
    const tn::Compiled f([&](const Tensors& in) { return network(in); }, {.dtype = dtype});
    const tn::Executable first = f.executable(random_rows(8));
    const auto made = derived_of(first);
    EXPECT_GE(made.size(), 3u);
    const std::int64_t alone = first.device_memory().own();
    EXPECT_GT(alone, 512 * 768 * 4);
    for (const std::int64_t count : {9, 12, 24}) {  // which are planned alike
      const tn::Executable other = f.executable(random_rows(count));
      std::int64_t more = 0;
      for (const auto* storage : derived_of(other)) more += !made.contains(storage);
      EXPECT_LE(more, 1) << count << " rows: oneDNN may like another order";
      EXPECT_LT(other.device_memory().own(), alone / 2) << count;
      EXPECT_GT(other.device_memory().shared, alone / 2) << count;
    }
    EXPECT_LT(first.device_memory().own(), alone / 2);
  }
}

TEST(Sizes, EqualFreshExecutablesBitForBit) {
  const Network network;
  const auto function = [&](const Tensors& in) { return network(in); };
  for (const tn::DType dtype : {tn::f32, tn::bf16})
    for (const bool fuse : {true, false}) {
      const tn::CompileOptions options{.dtype = dtype, .fuse = fuse};
      const tn::Compiled f(function, options, 2);
      for (const std::int64_t count : {1, 8, 33, 8, 1, 100}) {
        const Tensors in = random_rows(count);
        EXPECT_TRUE(same_bits(f(in), tn::compile(function, in, options)(in))) << count;
      }
    }
}

// A random chain of layers, of which weights are written between two sizes in any way.
class Layers {
 public:
  explicit Layers(std::uint64_t seed) : random_(seed) {
    tn::Generator numbers(seed);
    for (int layer = 0; layer < 5; ++layer) {
      const std::int64_t extent = below(3) == 0 ? 600 : 48;
      layers_.push_back({below(5), numbers.normal({width_, extent}) * 0.1,
                         numbers.uniform({extent}, 0.5, 2), numbers.normal({extent})});
      width_ = extent;
    }
  }
  Tensors operator()(const Tensors& in) const {
    Tensor x = in[0];
    for (const Layer& layer : layers_) {
      x = tn::matmul(x, layer.weight);
      if (layer.kind == 0) x = tn::gelu(x * layer.scale + layer.shift);
      if (layer.kind == 1) x = tn::exp(x * 0.25) * 0.125;
      if (layer.kind == 2) x = tn::layer_norm(x, layer.scale, layer.shift);
      if (layer.kind == 3) x = tn::relu(x + layer.shift) * layer.scale;
      if (layer.kind == 4)
        x = tn::matmul(x, tn::transpose(layer.weight)), x = tn::matmul(x, layer.weight * 0.5);
    }
    return {x};
  }
  void write() {
    Layer& layer = layers_[static_cast<std::size_t>(below(5))];
    Tensor x = below(2) == 0 ? layer.weight : layer.shift;
    const int how = below(4);
    if (how == 0) x *= 1.25;
    if (how == 1) x(0) = 0.5;
    if (how == 2) x.mutable_data<float>()[3] += 0.5f;
    if (how == 3 && x.rank() == 2) x.at<float>(1, 1) -= 0.75f;
  }
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

 private:
  struct Layer {
    int kind;
    Tensor weight, scale, shift;
  };
  std::mt19937_64 random_;
  std::int64_t width_ = 32;
  std::vector<Layer> layers_;
};

TEST(Sizes, RandomFunctionsThatAreWrittenBetweenSizesEqualFreshOnes) {
  for (std::uint64_t i = 0; i < 16 && !HasFailure(); ++i) {
    const std::uint64_t seed = tn::check::seed() + i;
    SCOPED_TRACE("TENSOR_SEED=" + std::to_string(seed));
    Layers layers(seed);
    const auto function = [&](const Tensors& in) { return layers(in); };
    const tn::CompileOptions options{.dtype = layers.below(2) ? tn::bf16 : tn::f32, .threads = 1};
    const tn::Compiled f(function, options, 3);
    for (std::int64_t count = 1; count < 8; ++count) {
      const Tensors in = random_rows(count, 32);
      EXPECT_TRUE(same_bits(f(in), tn::compile(function, in, options)(in))) << count;
      if (layers.below(2)) layers.write();
    }
  }
}

TEST(Sizes, AfterAnAssignmentOnlyNewSizesRun) {
  Tensor weight = tn::ones({512, 512});
  const tn::Compiled f([&](const Tensors& in) -> Tensors { return {tn::matmul(in[0], weight)}; });
  const Tensors one = {tn::ones({1, 512})}, two = {tn::ones({2, 512})};
  EXPECT_EQ(f(one)[0](0, 0).item(), 512);
  weight(tn::ellipsis) = 2;
  EXPECT_EQ(f(two)[0](0, 0).item(), 1024);
  EXPECT_NE(error_of([&] { f(one); }).find("was written into after the function was compiled"),
            std::string::npos);
}

TEST(Sizes, WhatOnlyDroppedExecutablesNeededGoes) {
  const Tensor weights[] = {tn::ones({512, 768}), tn::ones({512, 640})};
  const tn::Compiled f(
      [&](const Tensors& in) -> Tensors {
        return {tn::exp(tn::matmul(in[0], weights[in[0].shape(0) % 2]) * 0.5)};
      },
      {}, 1);
  std::vector<std::weak_ptr<tn::detail::Storage>> made;
  {
    const tn::Executable first = f.executable(random_rows(8));
    for (const Tensor& x : first.program().engine->constants())
      if (tn::detail::impl(x).storage->origin) made.push_back(tn::detail::impl(x).storage);
  }
  ASSERT_FALSE(made.empty());
  f(random_rows(9));
  for (const auto& storage : made) EXPECT_TRUE(storage.expired());
}

TEST(Sizes, ShareOneArena) {
  const tn::Compiled f(
      [](const Tensors& in) -> Tensors {
        return {tn::softmax(tn::sort(tn::sort(in[0], -1) + 1, -1), -1)};
      },
      {}, 2);
  const tn::Executable small = f.executable(random_rows(4));
  small(random_rows(4));
  const std::int64_t little = small.device_memory().arena;
  EXPECT_GE(little, small.arena_bytes());
  std::int64_t much = 0;
  {
    const tn::Executable large = f.executable(random_rows(400));
    large(random_rows(400));
    much = large.device_memory().arena;
    EXPECT_GE(much, 50 * little);
    for (int call = 0; call < 3; ++call) f(random_rows(4)), f(random_rows(400));
    EXPECT_EQ(large.device_memory().arena, much) << "grown by replacing, one for both";
    EXPECT_EQ(small.device_memory().arena, much);
    EXPECT_GE(small.device_memory().shared, much);
  }
  f(random_rows(5));  // the small one is used less recently
  f(random_rows(6));
  EXPECT_LT(small.device_memory().arena, 2 * little) << "nobody needs the large one any more";
}

TEST(Sizes, ExecutablesShareWithOneSharing) {
  const Tensor weight = tn::Generator(1).normal({512, 1024});
  const auto plain = [&](const Tensors& in) -> Tensors { return {tn::matmul(in[0], weight) * 2}; };
  const auto gelu = [&](const Tensors& in) -> Tensors {
    return {tn::gelu(tn::matmul(in[0], weight) * 2)};
  };
  const tn::CompileOptions options{.sharing = tn::Sharing()};
  const tn::Executable apart = tn::compile(plain, rows(3)),
                       one = tn::compile(plain, rows(3), options);
  EXPECT_EQ(one.device_memory().own(), apart.device_memory().own());
  const tn::Executable other = tn::compile(gelu, rows(5), options);
  EXPECT_LE(one.device_memory().own(), apart.device_memory().own() - weight.nbytes());
  EXPECT_TRUE(same_bits(other(random_rows(5)), tn::compile(gelu, rows(5))(random_rows(5))));
}

// ---- Who waits for whom

TEST(Sizes, NoSizeWaitsForAnother) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> traced = 0;
  const tn::Compiled f([&](const Tensors& in) -> Tensors {
    if (in[0].shape(0) == 7) ++traced, gone.wait();
    return {in[0] * 2};
  });
  const Tensors known = random_rows(2), slow = random_rows(7);
  f(known);
  std::vector<std::future<Tensors>> callers;
  for (int i = 0; i < 4; ++i)
    callers.push_back(std::async(std::launch::async, [&] { return f(slow); }));
  while (traced == 0) std::this_thread::yield();
  EXPECT_TRUE(same_bits(f(known), {known[0] * 2}));
  EXPECT_EQ(callers[0].wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  go.set_value();
  for (auto& caller : callers) EXPECT_TRUE(same_bits(caller.get(), {slow[0] * 2}));
  EXPECT_EQ(traced, 1) << "the others wait for the first";
}

TEST(Sizes, AnErrorIsEveryWaitersAndTheNextCallTriesAgain) {
  std::atomic<int> tries = 0;
  const tn::Compiled f([&](const Tensors& in) -> Tensors {
    if (++tries < 3) tn::fail("test", "not yet");
    return {in[0] + 1};
  });
  const Tensors in = random_rows(3);
  EXPECT_EQ(error_of([&] { f(in); }), "test: not yet");
  EXPECT_EQ(error_of([&] { f(in); }), "test: not yet");
  EXPECT_TRUE(same_bits(f(in), {in[0] + 1}));
}

TEST(Sizes, PrepareCompilesAhead) {
  std::atomic<int> traced = 0;
  const auto function = [&](const Tensors& in) -> Tensors {
    ++traced;
    if (in[0].shape(0) == 13) tn::fail("test", "no thirteen");
    return {in[0] - 1};
  };
  const tn::Compiled f(function, {}, 3);
  f.prepare({rows(1), rows(2)});
  EXPECT_EQ(traced, 2);
  f(random_rows(1)), f(random_rows(2));
  EXPECT_EQ(traced, 2);
  EXPECT_EQ(error_of([&] { f.prepare({rows(13)}); }), "test: no thirteen");
  EXPECT_NE(error_of([&] {
              f.prepare({rows(1), rows(2), rows(3), rows(4)});
            }).find("got 4 sizes for a function that keeps 3: give Compiled a larger capacity"),
            std::string::npos);
}

TEST(Sizes, PrepareInTheBackground) {
  std::atomic<int> traced = 0;
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  const auto function = [&](const Tensors& in) -> Tensors {
    ++traced;
    if (in[0].shape(0) == 1) gone.wait();
    if (in[0].shape(0) == 13) tn::fail("test", "no thirteen");
    return {in[0] - 1};
  };
  {
    const tn::Compiled f(function, {}, 4);
    f.prepare({rows(1), rows(13)}, tn::When::in_background);
    go.set_value();
    f(random_rows(1));
    while (traced < 2) std::this_thread::yield();
    EXPECT_EQ(error_of([&] { f(random_rows(13)); }), "test: no thirteen");
    EXPECT_EQ(traced, 2) << "the error of the background";
    EXPECT_EQ(error_of([&] { f(random_rows(13)); }), "test: no thirteen");
    EXPECT_EQ(traced, 3) << "tried again";
    f.prepare({rows(2), rows(3)}, tn::When::in_background);
    f(random_rows(3)), f(random_rows(2));
    EXPECT_EQ(traced, 5);
  }
  // Whoever goes while something is prepared waits for one size at most.
  for (int i = 0; i < 20; ++i) {
    const tn::Compiled f(function, {}, 4);
    f.prepare({rows(5), rows(6), rows(7), rows(8)}, tn::When::in_background);
  }
}

TEST(Sizes, CompiledFunctionsOfTensorsPrepareToo) {
  int traced = 0;
  const auto f = tn::compile([&](const Tensor& x) { return ++traced, x * 3; });
  f.prepare({rows(4)});
  f(random_rows(4)[0]);
  EXPECT_EQ(traced, 1);
}

// ---- The limit

TEST(Sizes, AMemoryLimitIsKept) {
  const Tensor weights[] = {tn::ones({512, 1024}), tn::ones({512, 1024})};
  const auto function = [&](const Tensors& in) -> Tensors {
    return {tn::exp(tn::matmul(in[0], weights[in[0].shape(0) % 2]) * 0.25)};
  };
  const std::int64_t one = tn::compile(function, random_rows(2)).device_memory().total();
  const std::string error =
      error_of([&] { tn::compile(function, random_rows(2), {.memory_limit = one / 2}); });
  EXPECT_NE(error.find("compile: got memory_limit " + std::to_string(one / 2) +
                       " bytes, but executables that share on cpu hold "),
            std::string::npos)
      << error;
  EXPECT_NE(error.find(" of arena and 0 of copies of inputs and outputs: allow them more"),
            std::string::npos)
      << error;
  // Both weights together are too much: the one that was used less recently goes.
  const tn::Compiled f(function, {.memory_limit = one + one / 2});
  std::weak_ptr<tn::detail::Storage> first;
  for (const Tensor& x : f.executable(random_rows(2)).program().engine->constants())
    if (tn::detail::impl(x).storage->origin) first = tn::detail::impl(x).storage;
  f(random_rows(4)), f(random_rows(2));
  EXPECT_FALSE(first.expired());
  f(random_rows(3));
  EXPECT_TRUE(first.expired());
  EXPECT_TRUE(same_bits(f(random_rows(2)), tn::compile(function, random_rows(2))(random_rows(2))));
}

TEST(Sizes, CallsWithinALimitWaitForEachOther) {
  const auto function = [](const Tensors& in) -> Tensors {
    return {tn::sort(tn::sort(in[0], -1) + 1, -1)};
  };
  const Tensors in = random_rows(64);
  const std::int64_t arena = [&] {
    const tn::Executable alone = tn::compile(function, in);
    alone(in);
    return alone.device_memory().total();
  }();
  const tn::Executable fast = tn::compile(function, in, {.memory_limit = arena + arena / 2});
  const Tensors expected = fast(in);
  std::vector<std::thread> callers;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 8; ++i)
    callers.emplace_back([&] {
      for (int call = 0; call < 5; ++call) wrong += !same_bits(fast(in), expected);
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(fast.device_memory().total(), arena + arena / 2);
}

}  // namespace
