// What the tuner measures, what it makes faster, and when it ends.
#include "src/tune/tuner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "src/trace/isolate.h"
#include "src/trace/parallel.h"
#include "tests/tune/tuning.h"

namespace tensor {
namespace {

TEST_F(Tuning, MakesPlansFasterAndSaysHow) {
  const TuneSummary summary = tune({});
  EXPECT_EQ(summary.device, h200().tuned_as);
  EXPECT_GT(summary.before_us, 0);
  EXPECT_LT(summary.after_us, summary.before_us);
  EXPECT_EQ(summary.trials, std::ssize(lines()));
  EXPECT_LE(summary.trials, 500);
  EXPECT_FALSE(summary.is_stopped);
  double sum = 0;
  int groups = 0;
  std::set<std::string> measured;
  for (const Measurement& m : lines()) measured.insert(m.problem);
  for (const TunedGroup& group : summary.groups) {
    sum += group.count * group.after_us;
    groups += group.count;
    EXPECT_TRUE(measured.contains(group.problem)) << group.problem;
    EXPECT_GT(group.trials, 0) << group.operators;
    EXPECT_GE(group.space, group.trials) << group.operators;
    EXPECT_GT(group.after_us, 0) << group.operators;
    if (group.before_us > 0) {
      EXPECT_LE(group.after_us, group.before_us) << group.operators;
    }
  }
  EXPECT_NEAR(sum, summary.after_us, 1e-6 * sum);
  EXPECT_GE(groups, kLayers * 4);
  std::ostringstream text;
  text << summary;
  EXPECT_NE(text.str().find("all groups: "), std::string::npos) << text.str();
}

// What searches are compared on: nothing that a search has chosen.
TEST_F(Tuning, RecordsTheHeaviestProblemsAtRandom) {
  TuneOptions options;
  record_.problems = 2;
  options.trials = 70;
  const TuneSummary summary = tune(options);
  EXPECT_EQ(summary.trials, std::ssize(lines()));
  EXPECT_EQ(summary.end, "everything was measured");
  std::map<std::string, std::vector<Measurement>> problems;
  for (const Measurement& m : lines()) problems[m.problem].push_back(m);
  double least = HUGE_VAL, others = 0;  // the weight of problems that were recorded, or not
  for (const TunedGroup& group : summary.groups) {
    const double weight = group.count * group.before_us;
    EXPECT_TRUE(group.trials == 1 || group.trials == options.trials) << group.trials;
    if (group.trials > 1) {
      EXPECT_GE(group.space, 100);
      least = std::min(least, weight);
    } else if (group.space >= 100) {
      others = std::max(others, weight);
    }
  }
  EXPECT_GT(least, others);
  int recorded = 0;
  for (const auto& [problem, measured] : problems) {
    EXPECT_EQ(measured[0].features.back(), 1) << "level 0's comes first";
    if (measured.size() == 1) continue;
    ++recorded;
    std::set<std::string> schedules;
    for (const Measurement& m : measured) schedules.insert(m.family + m.schedule);
    EXPECT_EQ(std::ssize(schedules), options.trials);
  }
  EXPECT_EQ(recorded, record_.problems);

  options.trials = 80;  // goes on
  EXPECT_EQ(tune(options).trials, 20);
  record_.only = "no such operator";
  EXPECT_EQ(tune(options).trials, 0);

  // No hints: what older kernels did best does not come first.
  std::vector<Measurement> older = lines();
  for (Measurement& m : older) m.kernels = "older";
  std::filesystem::remove(path_);
  record_ = {.problems = 1};
  tune({.trials = 2}, made_up, older);
  std::set<std::string> seen;
  for (const Measurement& m : lines())
    if (seen.insert(m.problem).second) {
      EXPECT_EQ(m.features.back(), 1);
    }
}

TEST_F(Tuning, TheSameSeedMeasuresTheSame) {
  const auto schedules = [&](std::uint64_t seed) {
    std::filesystem::remove(path_);
    tune({.trials = 120, .seed = seed});
    std::vector<std::string> result;
    for (const Measurement& m : lines()) result.push_back(m.problem + m.family + m.schedule);
    return result;
  };
  const auto first = schedules(3);
  EXPECT_EQ(schedules(3), first);
}

class TellingGpu : public FakeGpu {
 public:
  using FakeGpu::FakeGpu;
  std::vector<Measured> measure_telling(std::span<const Candidate> candidates,
                                        const Hear& hear) override {
    std::vector<Measured> all = measure(candidates);
    for (std::size_t i = 0; i < all.size(); ++i) hear(i, all[i]);
    return all;
  }
};

// A sum that lacks a group would look like a gain.
TEST_F(Tuning, TellsSumsOfWholePlansOnly) {
  // The more operators the slower alone, so that the plan changes and new groups are measured.
  const auto slow = [](const Problem& problem, const Schedule& schedule) -> Measured {
    const double us = problem.space().model_us(schedule);
    return {{problem.alone().group.nodes.size() > 2 ? 3 * us : us}, ""};
  };
  std::vector<double> told;
  TuneOptions options{.trials = 200};
  options.progress = [&](const TuneProgress& p) {
    if (p.best_us > 0) told.push_back(p.best_us);
  };
  const TuneSummary summary = tune_with(options, {}, vit(), [&](const auto& problems, auto) {
    return std::make_unique<TellingGpu>(problems, slow);
  });
  EXPECT_GT(summary.overturned.size(), 0U);
  ASSERT_FALSE(told.empty());
  for (const double sum : told) EXPECT_GE(sum, summary.after_us * (1 - 1e-9));
}

// The model that ships for this device chooses what is tried, the same each time: of the same seed,
// and of the same log.
TEST_F(Tuning, StartsFromWhatShips) {
  const auto schedules = [&](const std::string& device) {
    std::filesystem::remove(path_);
    device_ = device;
    std::vector<std::string> result;
    for (int run = 0; run < 2; ++run) tune({.trials = 60, .seed = 5});  // the second goes on
    for (const Measurement& m : lines()) result.push_back(m.problem + m.family + m.schedule);
    return result;
  };
  const auto started = schedules("NVIDIA H200");
  EXPECT_EQ(started.size(), 120u);
  EXPECT_EQ(schedules("NVIDIA H200"), started);
  if (CostModel::can_learn()) {
    EXPECT_NE(schedules("of this name nothing ships"), started);
  }
}

// Attention is three times as slow as thought: the plan takes it apart, and the report says so.
TEST_F(Tuning, MeasurementsOverturnFusions) {
  const auto slow_attention = [](const Problem& problem, const Schedule& schedule) -> Measured {
    const bool is_fused = problem.text().find("softmax") != std::string::npos &&
                          problem.text().find("matmul") != std::string::npos;
    return {{problem.space().model_us(schedule) * (is_fused ? 1000 : 1)}, ""};
  };
  const TuneSummary summary = tune({}, slow_attention);
  ASSERT_FALSE(summary.overturned.empty());
  EXPECT_NE(summary.overturned[0].find("softmax"), std::string::npos) << summary.overturned[0];
  for (const TunedGroup& group : summary.groups)
    EXPECT_FALSE(group.operators.find("softmax") != std::string::npos &&
                 group.operators.find("matmul") != std::string::npos)
        << group.operators;
  EXPECT_LT(summary.after_us, summary.before_us);
  // The partition stays as it is when it is not tuned.
  std::filesystem::remove(path_);
  ablation_.use_partition = false;
  EXPECT_TRUE(tune({}, slow_attention).overturned.empty());
}

// A kernel that was never measured is not taken because it was estimated too well.
TEST_F(Tuning, EstimatesAreNotTrustedMoreThanTimes) {
  const LaidOutGraph& laid = vit();
  const detail::Target target = h200();
  const FusionPlan plan = fuse(propose_parallel(laid), target.cost());
  std::vector<Measurement> slow;  // all groups of the plan take twice their estimate
  for (const Group& group : merge_parallel(laid, plan).second.groups) {
    Measurement m;
    const LaidOutGraph& merged = merge_parallel(laid, plan).first;
    m.problem = problem_text(merged.graph, group);
    m.family = target.offers->name(group.family);
    m.device = target.tuned_as;
    m.version = "1.0.0";
    m.microseconds = {2 * group.microseconds};
    slow.push_back(m);
  }
  const auto table = std::make_shared<const Table>(slow);
  const FusionPlan careful = tuned_fusion(propose_parallel(laid), target, table);
  ASSERT_EQ(careful.groups.size(), plan.groups.size());
  for (std::size_t i = 0; i < plan.groups.size(); ++i)
    EXPECT_EQ(careful.groups[i].nodes, plan.groups[i].nodes);
}

TEST_F(Tuning, StopsWhenToldAndKeepsWhatItHas) {
  int batches = 0;
  TuneOptions options;
  options.trials = 100000;
  options.progress = [&](const TuneProgress& p) {
    ++batches;
    EXPECT_GT(p.trials, 0);
    EXPECT_GT(p.problems, 0u);
  };
  options.stop = [&] { return batches >= 2; };
  const TuneSummary summary = tune(options);
  EXPECT_TRUE(summary.is_stopped);
  EXPECT_EQ(summary.end, "it was stopped");
  EXPECT_GE(batches, 2);
  EXPECT_EQ(summary.trials, std::ssize(lines()));
  EXPECT_GT(summary.after_us, 0);
}

TEST_F(Tuning, OnlyTheSketchOfTheModelWhenSketchesAreOff) {
  ablation_.use_sketches = false;
  tune({.trials = 400}, [&](const Problem& problem, const Schedule& schedule) {
    EXPECT_EQ(schedule.sketch, problem.space().chosen.sketch);
    return made_up(problem, schedule);
  });
}

// In turns every problem is measured about as often as any other; else those that gain most.
TEST_F(Tuning, ProblemsTakeTurnsWhenTheSchedulerIsOff) {
  const auto spread = [&](bool use_scheduler) {
    std::filesystem::remove(path_);
    std::int64_t least = INT64_MAX, most = 0;
    ablation_ = {.use_scheduler = use_scheduler, .use_partition = false};
    const TuneSummary summary = tune({.trials = 300});
    for (const TunedGroup& group : summary.groups) {
      if (group.trials >= group.space) continue;  // nothing was left to measure
      least = std::min(least, group.trials), most = std::max(most, group.trials);
    }
    return most - least;
  };
  const std::int64_t in_turns = spread(false), by_gain = spread(true);
  EXPECT_LE(in_turns, 2 * 4);  // two slots
  EXPECT_GT(by_gain, in_turns);
}

// Not before every group of the plan has a time, and not long after.
TEST_F(Tuning, EndsWhenItsGoalIsReached) {
  const TuneSummary whole = tune({.trials = 2000});
  std::filesystem::remove(path_);
  ASSERT_LT(whole.after_us, 0.9 * whole.before_us);
  const double goal = (whole.before_us + whole.after_us) / 2;
  const TuneSummary summary = tune({.trials = 2000, .goal_us = goal});
  EXPECT_EQ(summary.end.find("the goal of "), 0u) << summary.end;
  EXPECT_LE(summary.after_us, goal * (1 + 1e-9));
  EXPECT_LT(summary.trials, whole.trials);
  for (const TunedGroup& group : summary.groups) EXPECT_GT(group.after_us, 0) << group.operators;
  // From the log it is reached at once; a lower one is not.
  EXPECT_EQ(tune({.trials = 2000, .goal_us = goal}).trials, 0);
  EXPECT_GT(tune({.trials = 50, .goal_us = 0.9 * whole.after_us}).trials, 0);
}

}  // namespace
}  // namespace tensor
