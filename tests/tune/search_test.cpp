// The search on landscapes (landscape.h): what it promises, and how many trials it takes.
#include "src/tune/search.h"

#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "bench/curve.h"
#include "bench/recording.h"
#include "src/tune/table.h"
#include "tests/tune/landscape.h"

namespace tensor {
namespace {

using testing::Product;
using testing::SyntheticMeasurer;

constexpr SearchOptions kRandom{.use_model = false, .use_evolution = false},
    kEvolution{.use_model = false}, kFull{};

SearchOptions seeded(SearchOptions options, std::uint64_t seed) {
  options.seed = seed;
  return options;
}

// The true time of the best so far, after each trial; no more once it is down to `enough`.
std::vector<double> curve_of(const Product& p, const SearchOptions& options, std::size_t trials,
                             double enough = 0) {
  Search search(testing::name_of(p), "gemm", testing::space_of(p), options);
  SyntheticMeasurer measurer({p}, options.seed + 100);
  CostModel model(options.seed);
  const auto true_us = [&](const Search::Best& best) {
    return std::isinf(best.microseconds) ? best.microseconds : testing::true_us(p, best.schedule);
  };
  std::vector<double> curve;
  for (const Search::Best& best :
       search_curve(search, 0, measurer, model, trials, 16,
                    [&](const Search::Best& best) { return true_us(best) <= enough; }))
    curve.push_back(true_us(best));
  return curve;
}

std::vector<Measured> measure(SyntheticMeasurer& measurer, const std::vector<Schedule>& schedules) {
  std::vector<Candidate> candidates;
  for (const Schedule& s : schedules) candidates.push_back({0, s});
  return measurer.measure(candidates);
}

TEST(Search, BatchesAreNewValidAndBeginWithLevelZero) {
  const Product p = testing::products()[0];
  for (const SearchOptions& options : {kRandom, kEvolution, kFull}) {
    Search search("p", "gemm", testing::space_of(p), options);
    search.hint("swapped rows=128 columns=40 stages=4 groups=1 splits=2");
    search.hint("swapped rows=129 columns=40 stages=4 groups=1 splits=2");  // not of this space
    search.hint("no schedule!");
    SyntheticMeasurer measurer({p}, 1);
    CostModel model;
    std::set<std::string> seen;
    for (int round = 0; round < 12; ++round) {
      const auto batch = search.propose(10, model);
      ASSERT_EQ(batch.size(), 10u);
      for (const Schedule& s : batch) {
        ASSERT_TRUE(search.space().has(s));
        ASSERT_TRUE(seen.insert(s.text()).second) << s.text();
      }
      if (round == 0) {
        EXPECT_EQ(batch[0], search.space().chosen);
        EXPECT_EQ(batch[1].text(), "swapped rows=128 columns=40 stages=4 groups=1 splits=2");
      }
      search.learn(batch, measure(measurer, batch));
      model.train(search.samples());
    }
    EXPECT_EQ(search.trials(), 120u);
    EXPECT_FALSE(search.is_exhausted());
  }
}

TEST(Search, FindsEverythingInTheEnd) {
  const Product p = testing::products()[6];
  Space space = testing::space_of(p);
  const auto fault = space.fault;  // a small part of it
  const Schedule chosen = space.chosen;
  space.fault = [=](const Schedule& s) {
    const bool is_small = s.sketch == "rows" && *s.value("band") == 8 && *s.value("stages") == 4;
    return is_small || s == chosen ? fault(s) : "left out";
  };
  const std::int64_t size = space.size();
  ASSERT_GT(size, 20);
  for (const SearchOptions& options : {kRandom, kEvolution, kFull}) {
    Search search("p", "gemm", space, options);
    SyntheticMeasurer measurer({p}, 1);
    CostModel model;
    while (!search.is_exhausted()) {
      const auto batch = search.propose(16, model);
      search.learn(batch, measure(measurer, batch));
    }
    EXPECT_EQ(static_cast<std::int64_t>(search.trials()), size);
    EXPECT_TRUE(search.propose(4, model).empty());
  }
}

TEST(Search, NeverChoosesWhatFailed) {
  const Product p = testing::products()[0];
  Search search("p", "gemm", testing::space_of(p));
  const CostModel model;
  const auto batch = search.propose(4, model);
  const std::vector<Measured> measured = {
      {{1}, "wrong result"}, {{9, 7, 8}, ""}, {{}, "crashed"}, {{}, ""}};
  const auto log = search.learn(batch, measured);
  ASSERT_TRUE(search.best());
  EXPECT_EQ(search.best()->schedule, batch[1]);
  EXPECT_EQ(search.best()->microseconds, 8);
  ASSERT_EQ(log.size(), 4u);
  EXPECT_EQ(log[0].error, "wrong result");
  EXPECT_EQ(log[1].schedule, batch[1].text());
  EXPECT_EQ(log[1].features, search.features(batch[1]));
  EXPECT_EQ(log[1].problem, "p");
  EXPECT_EQ(log[3].error, "was not measured");
  for (const Measurement& m : log) EXPECT_EQ(parse_log(log_line(m), "log").damaged, 0);
  EXPECT_FLOAT_EQ(search.features(search.space().chosen).back(), 1);
}

TEST(Search, ResumesFromItsLog) {
  const Product p = testing::products()[3];
  SyntheticMeasurer measurer({p}, 1);
  std::vector<Measurement> log;
  CostModel model(1);
  Search first("p", "gemm", testing::space_of(p));
  for (int round = 0; round < 4; ++round) {
    const auto batch = first.propose(16, model);
    for (Measurement& m : first.learn(batch, measure(measurer, batch))) log.push_back(std::move(m));
    model.train(first.samples());
  }
  // Others' lines, and lines of schedules that there are no more, are passed over.
  std::vector<Measurement> all = log;
  for (int i = 0; i < 3; ++i) all.insert(all.begin(), log[0]);
  all[0].problem = "q", all[0].microseconds = {0.001};
  all[1].family = "other", all[1].microseconds = {0.001};
  all[2].schedule = "gone a=1", all[2].microseconds = {0.001};
  Search second("p", "gemm", testing::space_of(p));
  second.resume(all);
  EXPECT_EQ(second.trials(), first.trials());
  ASSERT_TRUE(second.best());
  EXPECT_EQ(second.best()->schedule, first.best()->schedule);
  EXPECT_EQ(second.best()->microseconds, first.best()->microseconds);
  std::set<std::string> measured;
  for (const Measurement& m : log) measured.insert(m.schedule);
  for (const Schedule& s : second.propose(200, model)) EXPECT_FALSE(measured.contains(s.text()));
}

TEST(Search, TheSameMeasurementsGiveTheSameSearch) {
  const Product p = testing::products()[1];
  for (const SearchOptions& options : {kRandom, kEvolution, kFull}) {
    const auto lines = [&](std::uint64_t seed) {
      Search search("p", "gemm", testing::space_of(p), seeded(options, seed));
      SyntheticMeasurer measurer({p}, 5);
      CostModel model(seed);
      std::string text;
      for (int round = 0; round < 6; ++round) {
        const auto batch = search.propose(12, model);
        for (const Measurement& m : search.learn(batch, measure(measurer, batch)))
          text += log_line(m);
        model.train(search.samples());
      }
      return text;
    };
    EXPECT_EQ(lines(3), lines(3));
    EXPECT_NE(lines(3), lines(4));
  }
}

// The best of random search's 1,000 trials, in a third of them: the median over problems and seeds.
TEST(Search, TakesAThirdOfTheTrialsOfRandomSearch) {
  std::vector<double> of_evolution, of_full;
  for (const Product& p : testing::products()) {
    double best = INFINITY;
    const Space space = testing::space_of(p);
    const auto all = space.all();
    for (const Schedule& s : all)
      if (!SyntheticMeasurer::fails(p, s)) best = std::min(best, testing::true_us(p, s));
    std::cout << testing::name_of(p) << ": " << all.size() << " schedules, best " << best
              << " us, level 0 " << testing::true_us(p, space.chosen) << '\n';
    for (const std::uint64_t seed : {1, 2, 3}) {
      const auto random = curve_of(p, seeded(kRandom, seed), 1000);
      const auto evolution = curve_of(p, seeded(kEvolution, seed), 1000, random.back());
      const auto full = curve_of(p, seeded(kFull, seed), 400, random.back());
      of_evolution.push_back(static_cast<double>(trials_to(evolution, random.back())));
      of_full.push_back(static_cast<double>(trials_to(full, random.back())));
      std::cout << "  seed " << seed << ": random " << random.back() << " us; evolution after "
                << of_evolution.back() << ", full after " << of_full.back() << " trials\n";
    }
  }
  std::cout << "median: evolution " << median(of_evolution) << ", full " << median(of_full) << '\n';
  if (!CostModel::can_learn()) GTEST_SKIP() << "SKIPPED: this build has no XGBoost";
  EXPECT_LE(median(of_full), 333);
  EXPECT_LT(median(of_full), median(of_evolution));
}

TEST(Recording, AnswersAsItsLog) {
  const Product p = testing::products()[6];
  SyntheticMeasurer measurer({p}, 2);
  Search search(testing::name_of(p), "gemm", testing::space_of(p), kRandom);
  const auto schedules = search.propose(200, CostModel());
  std::vector<Measurement> log = search.learn(schedules, measure(measurer, schedules));
  for (Measurement& m : log) m.device = "synthetic";
  const std::vector<Recording> all = recordings(log);
  ASSERT_EQ(all.size(), 1u);
  const Space space = all[0].space();
  EXPECT_EQ(space.size(), 200);
  EXPECT_EQ(space.chosen, testing::space_of(p).chosen);
  EXPECT_EQ(all[0].best_us(), search.best()->microseconds);
  Search again(testing::name_of(p), "gemm", space, kFull);
  RecordedMeasurer recorded(all);
  CostModel model;
  const auto curve = search_curve(again, 0, recorded, model, 1000, 16);
  EXPECT_EQ(curve.size(), 200u);
  EXPECT_EQ(curve.back().schedule, search.best()->schedule);
  EXPECT_EQ(curve.back().microseconds, search.best()->microseconds);
  EXPECT_EQ(again.features(schedules[3]), search.features(schedules[3]));
  EXPECT_EQ(all[0].measured(Schedule::parse("other a=1")).error, "was not recorded");
  EXPECT_TRUE(recordings(log, 201).empty());
}

}  // namespace
}  // namespace tensor
