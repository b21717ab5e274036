// run() allocates nothing once a call has been made: a program of its own, because it replaces the
// C library's and C++'s allocation functions with ones that count.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <new>
#include <string>
#include <thread>

#include "src/core/parallel.h"
#include "src/runtime/program.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
constexpr bool kCounts = false;  // the allocation functions are somebody else's
#else
constexpr bool kCounts = true;
#endif
constexpr const char* kWhyNot =
    "a sanitizer, or a C library other than glibc, brings an allocator whose calls this test "
    "cannot count: run the optimised build";

namespace {

std::atomic<bool> counting = false;
std::atomic<std::size_t> count = 0;
std::array<std::atomic<const void*>, 4096> callers;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
void note(const void* caller) {
  if (!counting) return;
  const std::size_t i = count++;
  if (i < callers.size()) callers[i] = caller;
}
#endif

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

void* malloc(std::size_t size) {
  note(__builtin_return_address(0));
  return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) {
  note(__builtin_return_address(0));
  return __libc_calloc(number, size);
}
void* realloc(void* p, std::size_t size) {
  note(__builtin_return_address(0));
  return __libc_realloc(p, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  note(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  note(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** p, std::size_t alignment, std::size_t size) {
  note(__builtin_return_address(0));
  *p = __libc_memalign(alignment, size);
  return *p ? 0 : ENOMEM;
}
void free(void* p) { __libc_free(p); }
}

// The caller that counts is the caller of new, not libstdc++.
void* operator new(std::size_t size) {
  note(__builtin_return_address(0));
  if (void* p = __libc_malloc(size)) return p;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) {
  note(__builtin_return_address(0));
  if (void* p = __libc_malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { __libc_free(p); }
void operator delete[](void* p) noexcept { __libc_free(p); }
void operator delete(void* p, std::size_t) noexcept { __libc_free(p); }
void operator delete[](void* p, std::size_t) noexcept { __libc_free(p); }
#endif

namespace {

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

// oneDNN builds a table of its arguments at every execution, and its OpenMP starts threads: neither
// can be helped from here.
bool is_foreign(const void* caller) {
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || !info.dli_fname) return false;
  const std::string file = info.dli_fname;
  return file.find("libdnnl") != std::string::npos || file.find("libgomp") != std::string::npos;
}

// Allocations by our own code, and by the C++ library for it.
template <class Body>
std::size_t own_allocations(Body&& body) {
  count = 0;
  counting = true;
  body();
  counting = false;
  EXPECT_LE(count, callers.size()) << "more than can be told apart";
  std::size_t own = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(count, callers.size()); ++i) {
    const void* caller = callers[i];
    if (is_foreign(caller)) continue;
    ++own;
    Dl_info info{};
    dladdr(caller, &info);
    std::cout << "allocates: " << (info.dli_fname ? info.dli_fname : "?") << " at "
              << static_cast<const char*>(caller) - static_cast<const char*>(info.dli_fbase)
              << '\n';
  }
  return own;
}

bool uses_reference(const tn::Executable& executable) {
  for (const auto& step : executable.program().engine->steps())
    if (step.description == "reference") return true;
  return false;
}

bool has_onednn() {
  const auto families = tn::cpu::cpu_families();
  return std::any_of(families.begin(), families.end(),
                     [](const auto& family) { return family.name == "gemm"; });
}

struct Model {
  const char* name;
  tn::TensorFunction function;
  Tensors inputs;
};

std::vector<Model> models() {
  tn::Generator random(21);
  const Tensor w1 = random.normal({96, 32}), w2 = random.normal({32, 32}),
               w3 = random.normal({128, 32}), w4 = random.normal({32, 128}),
               gain = random.normal({32}), patch = random.normal({32, 3, 4, 4}),
               token = random.normal({1, 1, 32}), first = random.normal({32, 3, 3, 3}),
               second = random.normal({32, 32, 3, 3});
  const auto attention = [](const Tensor& q, const Tensor& k, const Tensor& v) {
    return tn::scaled_dot_product_attention(q, k, v);
  };
  const auto vit = [=](const Tensors& in) -> Tensors {
    const Tensor map = tn::conv2d(in[0], patch, {}, {.stride = 4});
    const Tensor x = tn::concatenate({token, map.reshape({1, 32, -1}).swapaxes(1, 2)}, 1);
    const Tensor qkv = tn::linear(tn::layer_norm(x, gain, gain, 1e-6), w1);
    const auto head = [&](std::int64_t begin) {
      return qkv(tn::ellipsis, tn::slice(begin, begin + 32))
          .reshape({1, x.shape(1), 4, 8})
          .transpose({0, 2, 1, 3});
    };
    const Tensor y =
        attention(head(0), head(32), head(64)).transpose({0, 2, 1, 3}).reshape({1, x.shape(1), 32});
    const Tensor z = x + tn::linear(y, w2);
    return {z + tn::linear(tn::gelu(tn::linear(tn::layer_norm(z, gain, gain, 1e-6), w3)), w4)};
  };
  const auto conv = [=](const Tensors& in) -> Tensors {
    const Tensor x = tn::relu(tn::conv2d(in[0], first, {}, {.padding = 1}));
    const Tensor y = tn::relu(tn::conv2d(x, second, {}, {.padding = 1}) + x);
    return {tn::interpolate(
        tn::max_pool2d(y, 3, 2, 1), {31, 29},
        {.mode = tn::Interpolation::bilinear, .align_corners = false, .antialias = false})};
  };
  const auto attend = [=](const Tensors& in) -> Tensors {
    return {attention(in[0], in[1], in[2])};
  };
  const Tensor image = random.normal({1, 3, 32, 32});
  return {{"vit", vit, {image}},
          {"conv", conv, {image}},
          {"attention",
           attend,
           {random.normal({4, 65, 16}), random.normal({4, 97, 16}), random.normal({4, 97, 16})}}};
}

TEST(Allocation, TheCounterCounts) {
  if (!kCounts) GTEST_SKIP() << kWhyNot;
  EXPECT_GE(own_allocations([] { tn::zeros({100}); }), 2u);  // the elements and the tensor
  EXPECT_EQ(own_allocations([] {}), 0u);
}

TEST(Allocation, RunAllocatesNothing) {
  if (!kCounts) GTEST_SKIP() << kWhyNot;
  for (const Model& model : models())
    for (const int threads : {1, 2}) {
      const tn::Executable fast = tn::compile(model.function, model.inputs, {.threads = threads});
      if (uses_reference(fast)) {  // allowed to allocate, but only for want of oneDNN
        EXPECT_FALSE(has_onednn()) << model.name;
        EXPECT_STRNE(model.name, "attention");
        continue;
      }
      Tensors outputs = fast(model.inputs), others;  // the warm-up
      for (const Tensor& x : model.inputs) others.push_back(tn::copy(x));
      EXPECT_EQ(own_allocations([&] { fast.run(model.inputs, outputs); }), 0u)
          << model.name << ", threads " << threads;
      EXPECT_EQ(own_allocations([&] { fast.run(others, outputs); }), 0u)
          << model.name << ", threads " << threads << ", other inputs";
    }
}

// A helper that is not running may be at a loop that has ended.
TEST(Allocation, LoopsAllocateNothingHoweverLateHelpersAre) {
  if (!kCounts) GTEST_SKIP() << kWhyNot;
  const auto loops = [](int count) {
    std::atomic<std::int64_t> sum = 0;
    for (int i = 0; i < count; ++i)
      tn::cpu::parallel_for(2, 8, [&](std::int64_t task, int) { sum += task; });
    EXPECT_EQ(sum, 28 * count);
  };
  loops(1);
  EXPECT_EQ(own_allocations([&] { loops(100'000); }), 0u);
}

TEST(Allocation, InputsWithGapsArePackedInMemoryThatIsKept) {
  if (!kCounts) GTEST_SKIP() << kWhyNot;
  const Tensor wide = tn::Generator(22).normal({40, 60});
  const Tensors inputs{wide(tn::ellipsis, tn::slice(tn::none, tn::none, 2))};
  const tn::Executable fast =
      tn::compile([](const Tensors& in) -> Tensors { return {tn::exp(in[0]) * 2.0}; }, inputs);
  Tensors outputs = fast(inputs);
  const Tensor expected = tn::copy(outputs[0]);
  EXPECT_EQ(own_allocations([&] { fast.run(inputs, outputs); }), 0u);
  EXPECT_TRUE(tn::all(outputs[0] == expected).item<bool>());
}

TEST(Allocation, ConcurrentCallersHaveContextsOfTheirOwn) {
  const Model model = models()[0];
  const tn::Executable fast = tn::compile(model.function, model.inputs, {.threads = 2});
  const Tensor expected = fast(model.inputs)[0];
  std::vector<std::thread> callers_at_a_time;
  for (int caller = 0; caller < 4; ++caller)
    callers_at_a_time.emplace_back([&] {
      Tensors outputs{tn::empty(expected.shape(), expected.dtype())};
      for (int repeat = 0; repeat < 25; ++repeat) {
        fast.run(model.inputs, outputs);
        EXPECT_TRUE(tn::all(outputs[0] == expected).item<bool>());
      }
    });
  for (std::thread& caller : callers_at_a_time) caller.join();
}

}  // namespace
