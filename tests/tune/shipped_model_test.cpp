// The cost models that ship with the library: that they load, rank what they have not seen, and are
// refused where they do not fit.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>

#include "src/kernels/features.h"
#include "src/tune/cost_model.h"
#include "src/tune/cost_model_file.h"
#include "tests/io/io_testing.h"

namespace tensor {
namespace {

constexpr const char* kDevice = "NVIDIA H200";

class ShippedModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CostModel::can_learn()) GTEST_SKIP() << "SKIPPED: this build has no XGBoost";
  }
  static std::string bytes() { return std::string(shipped_models().front().second); }
  static std::string refusal(const std::string& bytes) {
    return check::error_of([&] { CostModel::from_bytes(bytes, "some.model"); });
  }
};

TEST(ShippedModels, AreForTheirDevices) {
  ASSERT_EQ(shipped_models().size(), 1u);
  EXPECT_EQ(shipped_models().front().first, "nvidia-h200.model");
  EXPECT_LT(shipped_models().front().second.size(), 300u << 10);
  // In a build without XGBoost nothing is loaded, and nothing is wrong with that.
  EXPECT_EQ(CostModel::shipped(kDevice).is_trained(), CostModel::can_learn());
  for (const char* other : {"NVIDIA H200 NVL", "NVIDIA H100", "h200", "", "Intel(R) Xeon(R), 8"})
    EXPECT_FALSE(CostModel::shipped(other).is_trained()) << other;
}

// ViT-Huge with 64 images, of which the model has learned nothing: eleven problems, four schedules
// each, on the device that it is for.
TEST_F(ShippedModel, RanksAModelThatItHasNotSeen) {
  const LogContents log = read_log(TENSOR_TEST_DATA "/tune/h200-vit-huge-b64.jsonl");
  EXPECT_EQ(log.damaged, 0);
  std::map<std::string, std::vector<Sample>> problems;
  for (const Sample& s : samples_of(log.measurements)) problems[s.task].push_back(s);
  const CostModel model = CostModel::shipped(kDevice), analytic;
  double learned = 0, estimated = 0, variance = 0;
  std::size_t count = 0;
  for (const auto& [problem, samples] : problems) {
    if (samples.size() < 4) continue;  // one way only
    std::vector<std::vector<float>> rows;
    std::vector<double> microseconds;
    for (const Sample& s : samples) {
      ASSERT_EQ(s.features.size(), CostModel::feature_columns());
      rows.push_back(s.features);
      microseconds.push_back(s.microseconds);
    }
    learned -= rank_correlation(model.predict(rows), microseconds);
    estimated -= rank_correlation(analytic.predict(rows), microseconds);
    variance += 1 / static_cast<double>(samples.size() - 1);
    ++count;
  }
  ASSERT_GE(count, 11u);
  const auto mean = [&](double sum) { return sum / static_cast<double>(count); };
  std::cout << "mean rank correlation over " << count << " problems: shipped model "
            << mean(learned) << ", analytic " << mean(estimated) << '\n';
  // By chance each correlation is 0 on average with a variance of 1 / (n - 1): three standard
  // deviations of their mean.
  EXPECT_GT(mean(learned), 3 * std::sqrt(variance) / static_cast<double>(count));
  EXPECT_GT(learned, estimated);
}

TEST_F(ShippedModel, OfOtherFeaturesIsRefused) {
  const std::size_t columns = CostModel::feature_columns();
  EXPECT_EQ(columns, feature_names().size() + 1);
  const std::string trees(without_header(bytes(), "some.model", columns));
  EXPECT_EQ(refusal(with_header(trees, columns)), "no error");
  const std::string fewer = refusal(with_header(trees, columns - 1));
  EXPECT_NE(fewer.find("some.model: has learned from " + std::to_string(columns - 1)),
            std::string::npos)
      << fewer;
  EXPECT_NE(fewer.find("need one of " + std::to_string(columns)), std::string::npos) << fewer;
  EXPECT_NE(fewer.find("tune_model --save"), std::string::npos) << fewer;

  // As many features, but others, or with another meaning.
  const std::string own = with_header(trees, columns);
  const std::size_t begin = own.find("version "), end = own.find('\n', begin);
  const std::string list = own.substr(own.find(" list", begin), end - own.find(" list", begin));
  for (const std::string& definition :
       {std::string("version 1 list 0badcafe"), "version 0" + list}) {
    const std::string rest = std::to_string(columns) + '\n' + definition + '\n' + trees;
    char sum[9];
    std::snprintf(sum, sizeof sum, "%08x",
                  static_cast<unsigned>(
                      crc32_z(0, reinterpret_cast<const Bytef*>(rest.data()), rest.size())));
    const std::string others = refusal("tensor cost model 3\n" + std::string(sum) + '\n' + rest);
    EXPECT_NE(others.find('(' + definition + ')'), std::string::npos) << others;
    EXPECT_NE(others.find("features have changed, train it again with tune_model --save"),
              std::string::npos)
        << others;
  }
}

TEST_F(ShippedModel, DamagedIsRefused) {
  const std::string whole = bytes();
  EXPECT_EQ(refusal(whole), "no error");
  EXPECT_NE(refusal("tensor cost model 2\n" + whole).find("is not a cost model of this version"),
            std::string::npos);
  for (std::size_t i = 40; i < whole.size(); i += 1 + i / 2) {
    std::string bad = whole;
    bad[i] = static_cast<char>(bad[i] ^ 0x20);
    EXPECT_NE(refusal(bad).find("some.model: is damaged"), std::string::npos) << i;
    EXPECT_NE(refusal(whole.substr(0, i)).find("is damaged"), std::string::npos) << i;
  }
}

// What is measured counts more than what was learned before: where the times are the opposite of
// what the model says it comes to rank by the times.
TEST_F(ShippedModel, LearnsOn) {
  const LogContents log = read_log(TENSOR_TEST_DATA "/tune/h200-vit-huge-b64.jsonl");
  std::vector<Sample> samples = samples_of(log.measurements);
  std::vector<std::vector<float>> rows;
  for (const Sample& s : samples) rows.push_back(s.features);
  CostModel model = CostModel::shipped(kDevice, 1), same = CostModel::shipped(kDevice, 1);
  const std::vector<double> before = model.predict(rows);
  std::vector<double> microseconds;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].task = "one";
    samples[i].microseconds = 10 + 100 * std::max(before[i], 0.);
    microseconds.push_back(samples[i].microseconds);
  }
  EXPECT_GT(rank_correlation(before, microseconds), 0.9);
  model.train(samples);
  same.train(samples);
  EXPECT_LT(rank_correlation(model.predict(rows), microseconds),
            rank_correlation(before, microseconds) - 0.5);
  EXPECT_EQ(model.predict(rows), same.predict(rows));
}

}  // namespace
}  // namespace tensor
