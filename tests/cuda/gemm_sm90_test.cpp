// The Hopper product: compiled for every schedule here, and on a GPU compared with sums in float64.
#include "src/kernels/cuda/gemm_sm90.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <regex>
#include <vector>

#include "src/kernels/cuda/device_headers.h"
#include "src/kernels/cuda/tensor_map.h"
#include "tensor/dtype.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

// A small set that covers: both orientations, one to three groups, odd numbers of column blocks.
const std::vector<GemmSchedule> kSchedules = {{104, 64, 4, 1, true},   {200, 64, 3, 1, true},
                                              {72, 128, 4, 2, true},   {8, 64, 2, 1, true},
                                              {144, 192, 3, 3, true},  {64, 64, 4, 1, false},
                                              {128, 128, 5, 2, false}, {128, 256, 3, 2, false},
                                              {192, 128, 3, 3, false}, {64, 256, 2, 1, false}};

const Epilogue kPlain = {"", "", "sum"};
const Epilogue kBias = {"bias", "const Element* bias;", "sum + float(bias[feature])"};
const Epilogue kBiasGelu = {
    "bias_gelu", "const Element* bias;",
    "gelu(sum + float(bias[feature])); }\n"
    "  static float gelu(float x) { return 0.5f * x * (1 + erff(x * 0.70710678f))"};
const Epilogue kBiasResidual = {
    "bias_residual", "const Element* bias; const Element* residual; int row;",
    "sum + float(bias[feature]) + float(residual[token * row + feature])"};

std::int64_t shared_bytes_of_h200() { return 232448; }

TEST(GemmSm90, SchedulesAreCheckedBeforeTheyAreBuilt) {
  for (const GemmSchedule& s : kSchedules) EXPECT_EQ(s.fault(shared_bytes_of_h200()), "");
  const auto fault = [](GemmSchedule s) { return s.fault(shared_bytes_of_h200()); };
  EXPECT_EQ(fault({128, 64, 4, 1, false}), "the side of the rows has 64 a group");
  EXPECT_EQ(fault({100, 64, 4, 1, true}), "8 to 256 columns in steps of 8");
  EXPECT_EQ(fault({64, 72, 4, 1, false}), "features in panels of 64");
  EXPECT_EQ(fault({64, 64, 1, 1, false}), "at least two stages");
  EXPECT_EQ(fault({128, 256, 5, 2, false}),
            "needs 312320 bytes of shared memory, a block has 232448");
}

TEST(GemmSm90, NamesFollowTheGrammar) {
  const std::regex grammar("sm90a_gemm_(f16|bf16)_f32_[0-9]+x[0-9]+x64t?_s[0-9]+(_[a-z_]+)?");
  std::vector<std::string> names;
  for (const GemmSchedule& s : kSchedules)
    for (const Epilogue& e : {kPlain, kBias}) names.push_back(gemm_sm90(s, Element::bf16, e).name);
  for (const std::string& name : names) EXPECT_TRUE(std::regex_match(name, grammar)) << name;
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(GemmSm90, CompilesWithoutSpills) {
  const Compiler* compiler = nullptr;
  try {
    compiler = &Compiler::get();
  } catch (const UserError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto compile = [&](const GemmSchedule& s, const Epilogue& e) {
    const GemmKernel kernel = gemm_sm90(s, Element::f16, e);
    const std::string log = compiler->compile(kernel.source, "sm_90a").log;
    EXPECT_NE(log.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
        << kernel.name << '\n'
        << log;
    EXPECT_EQ(log.find("C75"), std::string::npos) << kernel.name << '\n' << log;
  };
  for (const GemmSchedule& s : kSchedules) compile(s, kBias);
  // The heavier epilogues where most registers are taken. A residual with 128 x 256 is not among
  // them: two registers of it spill.
  for (const GemmSchedule& s : {kSchedules[1], kSchedules[7], kSchedules[8]}) compile(s, kBiasGelu);
  for (const GemmSchedule& s : {kSchedules[1], kSchedules[6], kSchedules[8]})
    compile(s, kBiasResidual);
}

class GemmOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = &Device::get();
      Compiler::get();
    } catch (const UserError& error) {
      GTEST_SKIP() << error.what();
    }
    if (device_->info().capability != 90)
      GTEST_SKIP() << device_->info().name
                   << " has no wgmma instructions: need a Hopper GPU (sm_90)";
  }

  struct Matrix {
    std::int64_t rows, columns;
    std::vector<std::uint16_t> bits;
    std::vector<float> values;  // what the bits say
  };

  template <class T>
  Matrix random_matrix(std::int64_t rows, std::int64_t columns, float scale) {
    Matrix m{rows, columns, {}, {}};
    std::normal_distribution<float> normal(0, scale);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const T value(normal(random_));
      m.bits.push_back(value.bits);
      m.values.push_back(static_cast<float>(value));
    }
    return m;
  }

  Buffer on_device(const Matrix& m) {
    Buffer buffer(*device_, std::ssize(m.bits) * 2);
    buffer.upload(std::as_bytes(std::span(m.bits)));
    return buffer;
  }

  template <class T>
  void check(const GemmSchedule& s, Element element, const Epilogue& e, int tokens, int features,
             int depth) {
    SCOPED_TRACE(gemm_sm90(s, element, e).name + " " + std::to_string(tokens) + "x" +
                 std::to_string(features) + "x" + std::to_string(depth));
    const Matrix x = random_matrix<T>(tokens, depth, 1),
                 w = random_matrix<T>(features, depth, 0.1f),
                 bias = random_matrix<T>(1, features, 1),
                 residual = random_matrix<T>(tokens, features, 1);
    std::vector<std::uint16_t> got(static_cast<std::size_t>(tokens * features), 0xffff);  // NaN
    Buffer on_x = on_device(x), on_w = on_device(w), on_bias = on_device(bias),
           on_residual = on_device(residual), on_out(*device_, std::ssize(got) * 2);
    on_out.upload(std::as_bytes(std::span(got)));
    struct Members {
      Address bias, residual;
      int row;
    } members{on_bias.address(), on_residual.address(), features};
    const auto boxes = [&](const Buffer& b, std::int64_t rows, std::int64_t columns, int box) {
      const DType dtype = element == Element::f16 ? f16 : bf16;
      return encode(*device_, swizzled_boxes(dtype, rows, columns, box), b.address());
    };
    const GemmKernel text = gemm_sm90(s, element, e);
    Kernel kernel(*device_, Compiler::get().compile(text.source, "sm_90a"), text.name);
    const auto shared = static_cast<unsigned>(s.needed_shared_bytes());
    const int tiles =
        (tokens + s.tokens - 1) / s.tokens * ((features + s.features - 1) / s.features);
    Stream stream(*device_);
    // Fewer blocks than tiles, so that some have several.
    const Kernel::Launch launch{.grid = {static_cast<unsigned>(std::min(tiles, 100))},
                                .block = {static_cast<unsigned>(s.threads())},
                                .shared_bytes = shared};
    const auto run = [&](auto... epilogue) {
      kernel(stream, launch, boxes(on_w, features, depth, s.features),
             boxes(on_x, tokens, depth, s.tokens), boxes(on_out, tokens, features, s.tokens),
             epilogue..., tokens, features, depth);
    };
    if (e.name.empty())
      run(char{});
    else if (e.name == "bias_residual")
      run(members);
    else
      run(members.bias);
    stream.synchronize();
    on_out.download(std::as_writable_bytes(std::span(got)));

    // Sums of `depth` products in float32 are off by sqrt(depth) roundings of their magnitude, a
    // few times; the result is rounded to the element once.
    const double step = element == Element::f16 ? std::ldexp(1, -11) : std::ldexp(1, -8);
    int wrong = 0;
    for (int t = 0; t < tokens; ++t)
      for (int f = 0; f < features; ++f) {
        double sum = 0, magnitude = 0;
        for (int k = 0; k < depth; ++k) {
          const double product = double(x.values[static_cast<std::size_t>(t * depth + k)]) *
                                 w.values[static_cast<std::size_t>(f * depth + k)];
          sum += product;
          magnitude += std::abs(product);
        }
        const auto at = static_cast<std::size_t>(t * features + f);
        if (!e.name.empty()) sum += bias.values[static_cast<std::size_t>(f)];
        if (e.name == "bias_gelu") sum *= 0.5 * (1 + std::erf(sum / std::sqrt(2.)));
        if (e.name == "bias_residual") sum += residual.values[at];
        T stored;
        stored.bits = got[at];
        const double error = std::abs(static_cast<float>(stored) - sum);
        const double bound = step * std::abs(sum) + 4 * std::ldexp(1, -23) * (1 + magnitude);
        if (!(error <= bound) && ++wrong < 4)
          ADD_FAILURE() << t << ", " << f << ": " << error << " > " << bound;
      }
    EXPECT_EQ(wrong, 0);
  }

  std::mt19937 random_{2026};
  Device* device_ = nullptr;
};

TEST_F(GemmOnGpu, EverySchedule) {
  for (const GemmSchedule& s : kSchedules) check<Float16>(s, Element::f16, kBias, 197, 320, 192);
}

TEST_F(GemmOnGpu, AwkwardSizes) {
  for (const int tokens : {1, 7, 63, 65, 197, 257})
    for (const int depth : {8, 64, 72, 200})
      for (const GemmSchedule& s : {kSchedules[0], kSchedules[6]})
        check<BFloat16>(s, Element::bf16, kPlain, tokens, 136, depth);
}

TEST_F(GemmOnGpu, EveryEpilogue) {
  for (const Epilogue& e : {kPlain, kBias, kBiasGelu, kBiasResidual})
    for (const GemmSchedule& s : {kSchedules[0], kSchedules[2], kSchedules[6]}) {
      check<Float16>(s, Element::f16, e, 197, 768, 256);
      check<BFloat16>(s, Element::bf16, e, 197, 768, 256);
    }
}

}  // namespace
}  // namespace tensor::cuda
