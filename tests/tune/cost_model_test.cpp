#include "src/tune/cost_model.h"

#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "src/tune/sampler.h"
#include "src/tune/table.h"
#include "tests/io/io_testing.h"
#include "tests/tune/landscape.h"

namespace tensor {
namespace {

using testing::Product;

// Tests of what only a build with XGBoost can do.
class LearnedModel : public testing::FolderTest {
 protected:
  void SetUp() override {
    if (!CostModel::can_learn()) GTEST_SKIP() << "SKIPPED: this build has no XGBoost";
  }
};

TEST(RankMetrics, ByHand) {
  const std::vector<double> up = {1, 2, 3, 4}, down = {9, 5, 1, 0}, mixed = {2, 1, 4, 3};
  EXPECT_DOUBLE_EQ(rank_correlation(up, up), 1);
  EXPECT_DOUBLE_EQ(rank_correlation(up, down), -1);
  // 1 - 6 x (1 + 1 + 1 + 1) / (4 x 15).
  EXPECT_DOUBLE_EQ(rank_correlation(up, mixed), 0.6);
  EXPECT_DOUBLE_EQ(rank_correlation(up, std::vector<double>{7, 7, 7, 7}), 0);
  // Ranks 0, 1.5, 1.5, 3: 4.5 / sqrt(5 x 4.5).
  EXPECT_DOUBLE_EQ(rank_correlation(up, std::vector<double>{1, 2, 2, 3}), 4.5 / std::sqrt(22.5));
  const std::vector<double> us = {10, 20, 30, 40}, scores = {0.9, 0.1, 0.8, 0.3};
  EXPECT_DOUBLE_EQ(top_recall(scores, us, 1), 1);
  EXPECT_DOUBLE_EQ(top_recall(scores, us, 2), 0.5);
  EXPECT_DOUBLE_EQ(top_recall(scores, us), 1);  // fewer than eight
}

TEST(CostModel, SamplesOfALog) {
  Measurement m;
  m.problem = "p", m.device = "d", m.schedule = "a", m.features = {1, 2},
  m.microseconds = {4, 8, 9};
  std::vector<Measurement> log = {m, m, m, m};
  log[1].microseconds = {1, 2};
  log[2].schedule = "b", log[2].microseconds = {}, log[2].error = "failed";
  log[3].schedule = "c", log[3].features = {};
  const std::vector<Sample> samples = samples_of(log);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].microseconds, 4);
  EXPECT_EQ(samples[0].features, m.features);
  EXPECT_TRUE(std::isinf(samples[1].microseconds));
  log[1].kernels = "others";  // their times are compared with each other only
  EXPECT_EQ(samples_of(log).size(), 3u);
  EXPECT_EQ(samples_of(log)[0].microseconds, 8);
  EXPECT_NE(samples_of(log)[1].task, samples[0].task);
}

// Features as Search makes them.
std::vector<float> features(const Space& space, const Schedule& s) {
  std::vector<float> row = space.features(s);
  row.push_back(static_cast<float>(space.model_us(space.chosen) / space.model_us(s)));
  return row;
}

struct Data {
  std::vector<Sample> samples;
  std::vector<std::vector<float>> rows;
  std::vector<double> microseconds;
};

// Random schedules of a product, measured without noise.
Data draw(const Product& p, std::size_t count, std::uint64_t seed) {
  const Space space = testing::space_of(p);
  const Sampler sampler(space);
  Random random(seed);
  Data data;
  while (data.rows.size() < count) {
    const Schedule s = sampler.sample(random);
    const bool fails = testing::SyntheticMeasurer::fails(p, s);
    const double us = fails ? INFINITY : testing::true_us(p, s);
    data.samples.push_back({testing::name_of(p), features(space, s), us});
    data.rows.push_back(data.samples.back().features);
    data.microseconds.push_back(us);
  }
  return data;
}

double correlation(const std::vector<double>& scores, const std::vector<double>& microseconds) {
  return -rank_correlation(scores, microseconds);
}

double correlation(const CostModel& model, const Data& data) {
  return correlation(model.predict(data.rows), data.microseconds);
}

TEST(CostModel, RanksByTheAnalyticModelAtFirst) {
  CostModel model;
  const std::vector<std::vector<float>> rows = {{9, 0.5f}, {1, 1}, {3, 0.25f}};
  EXPECT_EQ(model.predict(rows), (std::vector<double>{0.5, 1, 0.25}));
  EXPECT_TRUE(model.predict({}).empty());
  model.train({});
  const std::vector<Sample> few = {{"a", {9, 0.5f}, 1}, {"a", {1, 1}, 2}};
  model.train(few);
  EXPECT_FALSE(model.is_trained());
  EXPECT_EQ(model.predict(rows), (std::vector<double>{0.5, 1, 0.25}));
}

TEST_F(LearnedModel, LossIsWeightedByThroughput) {
  // One vector of features with labels 1 and 0.5, as often: the minimum of the sum of y (f - y)^2
  // is at (1 + 0.25) / 1.5, not in the middle.
  std::vector<Sample> samples;
  for (int i = 0; i < 20; ++i) samples.push_back({"a", {3, 0.7f}, i % 2 ? 10. : 20.});
  CostModel model;
  model.train(samples);
  const std::vector<std::vector<float>> row = {{3, 0.7f}};
  EXPECT_NEAR(model.predict(row)[0], 1.25 / 1.5, 1e-3);
}

TEST_F(LearnedModel, LearnsWhatTheAnalyticModelDoesNotKnow) {
  for (const Product& p : testing::products()) {
    const Data train = draw(p, 200, 1), test = draw(p, 500, 2);
    CostModel analytic, model(3);
    model.train(train.samples);
    EXPECT_GT(correlation(model, test), correlation(analytic, test) + 0.02) << testing::name_of(p);
  }
}

TEST_F(LearnedModel, TheSameSamplesMakeTheSameModel) {
  const Data train = draw(testing::products()[2], 150, 1),
             test = draw(testing::products()[2], 50, 2);
  CostModel one(7), other(7), third(8);
  one.train(train.samples);
  other.train(std::span(train.samples).first(80));
  other.train(train.samples);  // what it had learned before does not matter
  third.train(train.samples);
  EXPECT_EQ(one.predict(test.rows), other.predict(test.rows));
  EXPECT_NE(one.predict(test.rows), third.predict(test.rows));
  // Of other features it knows nothing.
  const std::vector<std::vector<float>> rows = {{1, 0.5f}};
  EXPECT_EQ(one.predict(rows), std::vector<double>{0.5});
}

TEST_F(LearnedModel, KeepsWhatWasLearned) {
  const Data train = draw(testing::products()[2], 100, 1),
             test = draw(testing::products()[2], 50, 2);
  CostModel model(7);
  EXPECT_NE(check::error_of([&] { model.save(path("m")); }).find("learned nothing yet"),
            std::string::npos);
  model.train(train.samples);
  model.save(path("m"));
  model.save(path("again"));
  const std::string bytes = testing::read_bytes(path("m"));
  EXPECT_EQ(bytes, testing::read_bytes(path("again")));
  const std::size_t columns = train.rows[0].size();
  const CostModel loaded = CostModel::load(path("m"), 7, columns);
  EXPECT_TRUE(loaded.is_trained());
  EXPECT_EQ(loaded.predict(test.rows), model.predict(test.rows));

  for (std::size_t i = 0; i < bytes.size(); i += 1 + i / 8) {
    std::string bad = bytes;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    testing::write_bytes(path("bad"), bad);
    EXPECT_THROW(CostModel::load(path("bad"), 0, columns), UserError) << i;
    testing::write_bytes(path("bad"), bytes.substr(0, i));
    EXPECT_THROW(CostModel::load(path("bad"), 0, columns), UserError) << i;
  }
  EXPECT_THROW(CostModel::load(path("absent")), UserError);
  EXPECT_THROW(CostModel::load(path("m")), UserError);  // of other features than Search gives
}

// What the library ships: a model of other problems, which a few measurements of a new one make
// better than they alone are, and better than it was.
TEST_F(LearnedModel, ALoadedModelIsAGoodStart) {
  double of_start = 0, of_few = 0, of_both = 0, of_analytic = 0;
  const std::vector<Product> products = testing::products();
  for (std::size_t left_out = 0; left_out < products.size(); ++left_out) {
    std::vector<Sample> others;
    for (std::size_t i = 0; i < products.size(); ++i) {
      if (i == left_out) continue;
      const Data data = draw(products[i], 150, i);
      others.insert(others.end(), data.samples.begin(), data.samples.end());
    }
    CostModel start(1);
    start.train(others);
    start.save(path("m"));
    const Data few = draw(products[left_out], 24, 100), test = draw(products[left_out], 500, 101);
    CostModel fresh(1), both = CostModel::load(path("m"), 1, test.rows[0].size());
    fresh.train(few.samples);
    both.train(few.samples);
    of_start += correlation(start, test) / static_cast<double>(products.size());
    of_few += correlation(fresh, test) / static_cast<double>(products.size());
    of_both += correlation(both, test) / static_cast<double>(products.size());
    of_analytic += correlation(CostModel(), test) / static_cast<double>(products.size());
  }
  std::cout << "rank correlation: analytic " << of_analytic << ", of other problems " << of_start
            << ", of 24 schedules " << of_few << ", both " << of_both << '\n';
  EXPECT_GT(of_start, of_analytic);
  EXPECT_GT(of_both, of_start);
  EXPECT_GT(of_both, of_few);
}

// What an H200 took for the schedules that the analytic model likes best: 30 products and
// attentions of vision transformers, five to seven schedules each.
TEST_F(LearnedModel, RanksProblemsOfAnH200ThatItHasNotSeen) {
  const LogContents log = read_log(TENSOR_TEST_DATA "/tune/h200.jsonl");
  EXPECT_EQ(log.damaged, 0);
  const std::vector<Sample> all = samples_of(log.measurements);
  ASSERT_GE(all.size(), 190u);
  std::set<std::string> problems;
  for (const Sample& s : all) problems.insert(s.task);
  EXPECT_EQ(problems.size(), 30u);
  double learned = 0, analytic = 0;
  for (const std::string& left_out : problems) {
    std::vector<Sample> others;
    Data test;
    for (const Sample& s : all) {
      if (s.task != left_out) {
        others.push_back(s);
        continue;
      }
      test.rows.push_back(s.features);
      test.microseconds.push_back(s.microseconds);
    }
    CostModel model(1);
    model.train(others);
    learned += correlation(model, test);
    analytic += correlation(CostModel(), test);
  }
  learned /= static_cast<double>(problems.size());
  analytic /= static_cast<double>(problems.size());
  std::cout << "mean rank correlation over " << problems.size() << " problems left out, "
            << all.size() << " schedules: learned " << learned << ", analytic " << analytic << '\n';
  // By chance 0, with a standard deviation of 1 / sqrt(30 x 5.5).
  EXPECT_GT(learned, 3 / std::sqrt(30 * 5.5));
}

}  // namespace
}  // namespace tensor
