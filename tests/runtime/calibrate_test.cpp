// Static scales: what calibrate finds, and what functions compiled with them compute.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>

#include "src/kernels/cpu/kernel.h"
#include "src/runtime/program.h"
#include "src/trace/passes/passes.h"
#include "src/trace/trace.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"
#include "tests/seed.h"
#include "tests/temporary_folder.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;
using Scales = std::map<std::string, float>;

namespace {

double length_of(const Tensor& x) {
  return std::sqrt(tn::sum(tn::square(x.astype(tn::f64))).item());
}

// Two products between a first one and a head.
struct ByScales {
  Tensor first, second, third, head;
  explicit ByScales(tn::Generator random)
      : first(random.normal({40, 64}) / 6),
        second(random.normal({64, 64}) / 8),
        third(random.normal({64, 64}) / 8),
        head(random.normal({64, 20}) / 8) {}
  Tensors operator()(const Tensors& in) const {
    const Tensor rows = tn::relu(tn::matmul(in[0], first));
    return {tn::matmul(tn::gelu(tn::matmul(tn::tanh(tn::matmul(rows, second)), third)), head)};
  }
  std::vector<std::pair<std::string, Tensor>> names() const {
    return {{"second.weight", second}, {"third.weight", third}};
  }
};

TEST(Calibrate, FindsTheLargestMagnitudes) {
  const ByScales f{tn::Generator(1)};
  const Tensors x = {tn::Generator(2).normal({50, 40})}, more = {x[0] * 2};
  const auto largest = [&](const Tensor& in) {
    return tn::max(tn::abs(tn::relu(tn::matmul(in, f.first)))).item<float>() / 127;
  };
  const Scales scales = tn::calibrate(f, x, {.names = f.names()});
  ASSERT_EQ(scales.size(), 2u);
  // Rows may be of products in bf16, and are stored in it.
  EXPECT_NEAR(scales.at("second"), largest(x[0]), 0.01 * largest(x[0]));
  EXPECT_NEAR(scales.at("third"), 1.0 / 127, 0.1 / 127);
  EXPECT_LE(scales.at("third"), 1.0F / 127);
  const Scales both = tn::calibrate(f, more, {.scales = scales, .names = f.names()});
  EXPECT_NEAR(both.at("second"), largest(more[0]), 0.01 * largest(more[0]));
  EXPECT_EQ(tn::calibrate(f, x, {.scales = both, .names = f.names()}), both);
  EXPECT_EQ(tn::calibrate(f, x, {.exclude = {"second"}, .names = f.names()}).size(), 1u);
  EXPECT_EQ(tn::calibrate(f, {x[0] * 0}, {.names = f.names()}).at("second"), 0x1p-100F / 127);
}

TEST(Calibrate, ResultsAreNear) {
  const ByScales f{tn::Generator(3)};
  const Tensors x = {tn::Generator(4).normal({50, 40})};
  tn::CompileOptions options{.dtype = tn::i8, .names = f.names()};
  options.scales = tn::calibrate(f, x, options);
  const tn::Executable fast = tn::compile(f, x, options);
  const Tensor want = f(x)[0], got = fast(x)[0];
  EXPECT_LE(length_of(got - want), 0.02 * length_of(want));
  EXPECT_GT(length_of(got - want), 0.001 * length_of(want)) << "nothing was rounded";
  for (const tn::GroupCheck& check : tn::verify(fast, x))
    EXPECT_TRUE(check.ok()) << check.operators << " [" << check.kernel << "] " << check.error;
  std::ostringstream report;
  fast.report(report, x, 1);
  EXPECT_NE(report.str().find("; static eight bits add "), std::string::npos) << report.str();
  EXPECT_EQ(report.str().find("; dynamic"), std::string::npos) << report.str();
  options.scales.erase("third");
  std::ostringstream mixed;
  tn::compile(f, x, options).report(mixed, x, 1);
  EXPECT_NE(mixed.str().find("; static eight bits"), std::string::npos) << mixed.str();
  EXPECT_NE(mixed.str().find("; dynamic eight bits"), std::string::npos) << mixed.str();
}

TEST(Calibrate, Refusals) {
  const ByScales f{tn::Generator(5)};
  const Tensors x = {tn::Generator(6).normal({50, 40})};
  const auto error = [](auto&& call) { return tn::check::error_of(call); };
  EXPECT_EQ(error([&] { tn::calibrate(f, x); }),
            "calibrate: got a product by f32(50, 64) that has no name: need CompileOptions::names, "
            "such as nn::state_dict gives");
  EXPECT_EQ(error([&] { tn::calibrate(f, {x[0] * INFINITY}, {.names = f.names()}); }),
            "calibrate: got activations of second that are not finite: need examples for which "
            "they are, or exclude \"second\"");
  EXPECT_NE(error([&] {
              tn::compile(f, x, {.dtype = tn::i8, .scales = {{"fourth", 1}}, .names = f.names()});
            }).find("got a scale for \"fourth\", which no product"),
            std::string::npos);
}

TEST(Calibrate, PlansKeepTheScales) {
  const ByScales f{tn::Generator(7)};
  const Tensors x = {tn::Generator(8).normal({50, 40})};
  tn::CompileOptions options{.dtype = tn::i8, .names = f.names()};
  const tn::Executable dynamic = tn::compile(f, x, options);
  options.scales = tn::calibrate(f, x, options);
  const tn::Executable made = tn::compile(f, x, options);
  const tn::check::TemporaryFolder folder;
  made.save(folder / "model.plan");
  const tn::Executable loaded = tn::load_executable(folder / "model.plan");
  EXPECT_TRUE(tn::array_equal(loaded(x)[0], made(x)[0]));
  EXPECT_FALSE(tn::array_equal(loaded(x)[0], dynamic(x)[0]));
  for (const tn::GroupCheck& check : tn::verify(loaded, x))
    EXPECT_TRUE(check.ok()) << check.operators;
  // A plan by other scales is another one.
  tn::Plan plan = tn::Plan::load(folder / "model.plan");
  options.scales.at("second") *= 2;
  EXPECT_NE(tn::check::error_of([&] {
              tn::Compiled(plan, f, options);
            }).find("got options that compute i8 by the scales "),
            std::string::npos);
}

// ---- Random functions of integers, whose numbers float32 holds exactly: kernels have the bits of
// an independent definition in whatever order they add, and however operators are fused.

struct IntegerNet {
  std::mt19937 random;
  Scales scales = {};
  std::vector<std::pair<std::string, Tensor>> names = {};
  Tensors weights = {};

  explicit IntegerNet(unsigned seed) : random(seed) {}
  int pick(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }
  Tensor integers(std::int64_t least, std::int64_t most, const tn::Shape& shape) {
    return tn::Generator(random()).randint(least, most + 1, shape).astype(tn::f32);
  }
  // Filters of which each has a 127, so that their scales are 1.
  Tensor filters(const tn::Shape& shape) {
    Tensor w = integers(-3, 3, shape);
    for (std::int64_t n = 0; n < shape[0]; ++n)
      w.at<float>(n, n % shape[1], n % shape[2], n % shape[3]) = pick(2) ? 127.0F : -127.0F;
    return w;
  }
  // A power of two by which sums become some hundred, many of which saturate.
  float scale() { return std::ldexp(1.0F, -pick(3)); }
};

// As add_rounding rounds, in float64.
Tensor saturated_by(const Tensor& x, double scale) {
  return tn::clip(tn::round(x.astype(tn::f64) / scale), -127, 127) * scale;
}

// Images through a stem, some convolutions with residuals, and a head; `as` is what a convolution
// of that name reads of its activations.
template <class As>
Tensor run_integers(const IntegerNet& net, const Tensor& image, const std::vector<int>& kinds,
                    const As& as) {
  Tensor x = tn::relu(tn::conv2d(image, net.weights[0], {}, {.padding = 1}));
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const Tensor& w = net.weights[i + 1];
    const int padding = static_cast<int>(w.shape(2) / 2);
    // Small again, so that everything stays exact.
    Tensor y = tn::conv2d(as("conv" + std::to_string(i), x), w, {}, {.padding = padding}) * 0x1p-6;
    y = tn::floor(y);
    if (kinds[i] == 1) y = tn::relu(y + x);
    if (kinds[i] == 2) y = tn::maximum(y, -50.0) + tn::minimum(x, 100.0);
    x = kinds[i] == 0 ? tn::relu(y) : y;
  }
  return tn::conv2d(tn::clip(x, -100.0, 100.0), net.weights.back());
}

TEST(Calibrate, RandomNetsOfIntegersHaveTheBitsOfTheDefinition) {
  for (int round = 0; round < 40; ++round) {
    IntegerNet net(static_cast<unsigned>(tn::check::seed()) + static_cast<unsigned>(round));
    const std::int64_t channels = 16 + net.pick(40), height = 3 + net.pick(9),
                       width = 3 + net.pick(9);
    std::vector<int> kinds;
    // The stem and the head may be in bf16, and their numbers are.
    net.weights.push_back(net.integers(-1, 1, {channels, 2, 3, 3}));
    for (int i = 0; i < 1 + net.pick(4); ++i) {
      kinds.push_back(net.pick(3));
      const std::int64_t size = net.pick(2) ? 3 : 1;
      net.weights.push_back(net.filters({channels, channels, size, size}));
      const std::string name = "conv" + std::to_string(i);
      net.names.emplace_back(name + ".weight", net.weights.back());
      net.scales[name] = net.scale();
    }
    net.weights.push_back(tn::eye(channels)(tn::slice(0, 2)).copy().reshape({2, channels, 1, 1}));
    const Tensor image = net.integers(-3, 3, {1 + net.pick(2), 2, height, width});
    const auto f = [&](const Tensors& in) -> Tensors {
      return {
          run_integers(net, in[0], kinds, [](const std::string&, const Tensor& x) { return x; })};
    };
    const Tensor want =
        run_integers(net, image, kinds, [&](const std::string& name, const Tensor& x) {
          return saturated_by(x, net.scales.at(name)).astype(tn::f32);
        });
    for (const bool fuse : {true, false}) {
      const tn::CompileOptions options{
          .dtype = tn::i8, .exclude = {}, .scales = net.scales, .fuse = fuse, .names = net.names};
      const tn::Executable compiled = tn::compile(f, Tensors{image}, options);
      ASSERT_TRUE(tn::array_equal(compiled({image})[0], want))
          << "round " << round << (fuse ? ", fused\n" : "\n") << compiled.program().laid.graph;
    }
  }
}

}  // namespace
