// Runs every case of a file of reference cases (NumPy's and PyTorch's results) through
// tensor::call. The file is named by TENSOR_OPS_GOLDEN, tests/data/ops.safetensors when that is not
// set; its metadata entry "cases" lists the cases. Those of composed.safetensors, which
// scripts/make_composed_cases.py writes, run compiled as well.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tensor/compile.h"
#include "tensor/io.h"
#include "tensor/json.h"
#include "tensor/tensor.h"

namespace tn = tensor;

namespace {

struct GoldenCase {
  std::string id, op;
  tn::Attrs attrs;
  std::int64_t inputs = 0, outputs = 0;
  double tolerance = 0;
};

std::vector<GoldenCase> read_cases(const tn::Safetensors& file) {
  const tn::Json list = tn::Json::parse(file.metadata.at("cases"), "cases");
  std::vector<GoldenCase> cases;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const tn::Json entry = list[i];
    GoldenCase golden{entry["id"].text(),        entry["op"].text(),         {},
                      entry["inputs"].integer(), entry["outputs"].integer(), entry["tol"].number()};
    const tn::Json attrs = entry["attrs"];
    for (const std::string& key : attrs.keys())
      if (key != "mask")  // says that there is an input more
        golden.attrs.set(key, attrs[key].attribute());
    cases.push_back(std::move(golden));
  }
  return cases;
}

// The file's writer stores 0-d arrays as (1,).
tn::Shape stored_shape(const tn::Tensor& x) { return x.rank() == 0 ? tn::Shape{1} : x.shape(); }

// What is wrong with `got`, if anything: |got - expected| <= tolerance * max(1, |expected|)
// everywhere, NaN equals NaN, infinities equal themselves, integers and booleans are equal.
// Floating results were stored as f32.
std::optional<std::string> difference(const tn::Tensor& got, const tn::Tensor& expected,
                                      double tolerance) {
  std::ostringstream text;
  if (!(stored_shape(got) == stored_shape(expected)) ||
      tn::kind_of(got.dtype()) != tn::kind_of(expected.dtype())) {
    text << "got " << got.type() << ", expected " << expected.type();
    return text.str();
  }
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    const bool near = tn::is_floating(expected.dtype()) && std::isfinite(b[i]) &&
                      std::fabs(a[i] - b[i]) <= tolerance * std::max(1.0, std::fabs(b[i]));
    if (same || near) continue;
    text << "element " << i << " of " << got.type() << " is " << a[i] << ", expected " << b[i]
         << ", tolerance " << tolerance;
    return text.str();
  }
  return std::nullopt;
}

using Run = std::vector<tn::Tensor> (*)(const GoldenCase&, const std::vector<tn::Tensor>&);

std::vector<tn::Tensor> run_eagerly(const GoldenCase& golden, const std::vector<tn::Tensor>& in) {
  return tn::call(golden.op, in, golden.attrs);
}

// The range of a histogram is no tensor in C++, and not traced.
std::vector<tn::Tensor> run_compiled(const GoldenCase& golden, const std::vector<tn::Tensor>& in) {
  const std::size_t traced = golden.op == "histogram" ? 1 : in.size();
  const std::vector<tn::Tensor> given(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(traced));
  std::vector<tn::TensorType> types;
  for (const tn::Tensor& x : given) types.push_back(x.type());
  return tn::compile(
      [&](const std::vector<tn::Tensor>& x) {
        std::vector<tn::Tensor> all = x;
        all.insert(all.end(), in.begin() + static_cast<std::ptrdiff_t>(traced), in.end());
        return tn::call(golden.op, all, golden.attrs);
      },
      types)(given);
}

void run_case(const tn::Safetensors& file, const GoldenCase& golden, Run run) {
  std::vector<tn::Tensor> inputs;
  for (std::int64_t k = 0; k < golden.inputs; ++k)
    inputs.push_back(file.tensors.at(golden.id + ".in" + std::to_string(k)));
  const std::vector<tn::Tensor> outputs = run(golden, inputs);
  ASSERT_EQ(static_cast<std::int64_t>(outputs.size()), golden.outputs) << golden.id;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const std::string name = golden.id + ".out" + std::to_string(k);
    if (const auto wrong = difference(outputs[k], file.tensors.at(name), golden.tolerance))
      ADD_FAILURE() << name << " (" << golden.attrs << "): " << *wrong;
  }
}

// Runs all cases but those of some operators.
void expect_passes(const std::string& path, Run run, const std::set<std::string>& but = {}) {
  const tn::Safetensors file = tn::load_safetensors(path);
  const std::vector<GoldenCase> cases = read_cases(file);
  const auto stored =
      std::count_if(file.tensors.begin(), file.tensors.end(),
                    [](const auto& entry) { return entry.first.ends_with(".out0"); });
  ASSERT_GT(cases.size(), 0u) << "no case in " << path;
  EXPECT_EQ(static_cast<std::int64_t>(cases.size()), stored) << "results that no case claims";
  const auto* const result = ::testing::UnitTest::GetInstance()->current_test_info()->result();
  std::size_t passed = 0, ran = 0;
  for (const GoldenCase& golden : cases) {
    if (but.contains(golden.op)) continue;
    ++ran;
    const int before = result->total_part_count();
    try {
      run_case(file, golden, run);
    } catch (const std::exception& error) {
      ADD_FAILURE() << golden.id << " threw: " << error.what();
    }
    passed += result->total_part_count() == before;
  }
  std::cout << "golden operators: " << passed << " of " << ran << " passed\n";
  EXPECT_EQ(passed, ran);
}

std::string golden_path() {
  const char* path = std::getenv("TENSOR_OPS_GOLDEN");
  return path ? path : TENSOR_TEST_DATA "/ops.safetensors";
}

}  // namespace

TEST(Golden, EveryCaseOfTheFile) { expect_passes(golden_path(), run_eagerly); }

constexpr const char* kComposed = TENSOR_TEST_DATA "/composed.safetensors";

TEST(Golden, ComposedOperators) { expect_passes(kComposed, run_eagerly); }

// How many results these have depends on the elements.
TEST(Golden, ComposedOperatorsCompiled) {
  expect_passes(kComposed, run_compiled, {"nonzero", "unique", "nms"});
}

TEST(Golden, ComparisonNoticesDifferences) {
  const tn::Tensor one = tn::array({1.0f, 2.0f});
  EXPECT_FALSE(difference(one, tn::array({1.0f, 2.0f + 1e-6f}), 1e-6));
  EXPECT_TRUE(difference(one, tn::array({1.0f, 2.1f}), 1e-6));
  EXPECT_TRUE(difference(one, tn::array({1.0f}), 1e-6));
  EXPECT_TRUE(difference(one, tn::array({1, 2}), 1e-6));
  EXPECT_TRUE(difference(tn::array({1, 2}), tn::array({1, 3}), 10));
  EXPECT_TRUE(difference(tn::array({NAN}), tn::array({1.0f}), 10));
  EXPECT_TRUE(difference(tn::array({1e38f}), tn::array({INFINITY}), 10));
  EXPECT_FALSE(difference(tn::array({NAN, INFINITY}), tn::array({NAN, INFINITY}), 0));
}
