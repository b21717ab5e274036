// Runs every case of a file of reference cases (NumPy's and PyTorch's results) through
// tensor::call. The file is named by TENSOR_OPS_GOLDEN, tests/data/ops.safetensors when that is not
// set; its metadata entry "cases" lists the cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

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

void run_case(const tn::Safetensors& file, const GoldenCase& golden) {
  std::vector<tn::Tensor> inputs;
  for (std::int64_t k = 0; k < golden.inputs; ++k)
    inputs.push_back(file.tensors.at(golden.id + ".in" + std::to_string(k)));
  const std::vector<tn::Tensor> outputs = tn::call(golden.op, inputs, golden.attrs);
  ASSERT_EQ(static_cast<std::int64_t>(outputs.size()), golden.outputs) << golden.id;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const std::string name = golden.id + ".out" + std::to_string(k);
    if (const auto wrong = difference(outputs[k], file.tensors.at(name), golden.tolerance))
      ADD_FAILURE() << name << " (" << golden.attrs << "): " << *wrong;
  }
}

std::string golden_path() {
  const char* path = std::getenv("TENSOR_OPS_GOLDEN");
  return path ? path : TENSOR_TEST_DATA "/ops.safetensors";
}

}  // namespace

TEST(Golden, EveryCaseOfTheFile) {
  const tn::Safetensors file = tn::load_safetensors(golden_path());
  const std::vector<GoldenCase> cases = read_cases(file);
  const auto stored =
      std::count_if(file.tensors.begin(), file.tensors.end(),
                    [](const auto& entry) { return entry.first.ends_with(".out0"); });
  ASSERT_GT(cases.size(), 0u) << "no case in " << golden_path();
  EXPECT_EQ(static_cast<std::int64_t>(cases.size()), stored) << "results that no case claims";
  std::size_t passed = 0;
  for (const GoldenCase& golden : cases) {
    const int before =
        ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
    try {
      run_case(file, golden);
    } catch (const std::exception& error) {
      ADD_FAILURE() << golden.id << " threw: " << error.what();
    }
    passed +=
        ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count() ==
        before;
  }
  std::cout << "golden operators: " << passed << " of " << cases.size() << " passed\n";
  EXPECT_EQ(passed, cases.size());
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
