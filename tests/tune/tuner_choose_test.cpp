// The last choice, by the time of whole models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "src/compile.h"
#include "src/trace/parallel.h"
#include "src/tune/plan_timer.h"
#include "tensor/tensor.h"
#include "tests/tune/tuning.h"

namespace tensor {
namespace {

// A model that takes other times than its groups alone, of which all schedules are about as fast.
double time_in_model(const LaidOutGraph& laid, const FusionPlan& plan) {
  double sum = 0;
  for (const Group& group : plan.groups)
    sum += 9 + 2 * chance(problem_text(laid.graph, group) + group.schedule);
  return sum;
}

TEST_F(Tuning, ChoosesAmongTheFastestByTheTimeOfTheWholeModel) {
  const auto close = [](const Problem& problem, const Schedule& schedule) -> Measured {
    const double luck = chance(schedule.text() + "alone");
    return {{problem.space().model_us(problem.space().chosen) * (1 + luck / 20)}, ""};
  };
  int asked = 0;
  double now = HUGE_VAL;
  TuneOptions options;
  options.trials = 150;
  const TuneSummary summary = tune_with(
      options, {}, vit(),
      [&](const auto& problems, auto) { return std::make_unique<FakeGpu>(problems, close); },
      [&](const Partitions& partitions, auto) -> TimePlans {
        return [&, partitions](std::span<const Variant> variants) {
          std::vector<std::vector<double>> times;
          for (const Variant& v : variants)
            times.emplace_back(9, time_in_model(partitions.at(v.partition).first, v.plan));
          EXPECT_LE(times[0][0], now) << "what was chosen before stays";
          now = times[0][0];
          if (++asked % 2 == 0) times[1].clear();  // failed
          return times;
        };
      });
  EXPECT_GT(asked, 2);
  EXPECT_FALSE(summary.chosen.empty());

  std::vector<Measurement> alone = lines(), all = alone;
  EXPECT_EQ(std::erase_if(alone, [](const auto& m) { return !m.model_microseconds.empty(); }),
            summary.chosen.size());
  const auto planned = [&](const std::vector<Measurement>& known) {
    const auto table = std::make_shared<const Table>(known);
    return merge_parallel(vit(), tuned_fusion(propose_parallel(vit()), h200(), table));
  };
  const auto [laid, plan] = planned(all);
  const auto [laid_alone, plan_alone] = planned(alone);
  EXPECT_LT(time_in_model(laid, plan), time_in_model(laid_alone, plan_alone));
  ASSERT_EQ(plan.groups.size(), plan_alone.groups.size());
  for (std::size_t i = 0; i < plan.groups.size(); ++i)
    EXPECT_EQ(plan.groups[i].nodes, plan_alone.groups[i].nodes);
  const std::string want = plan_of(vit(), all);
  std::shuffle(all.begin(), all.end(), std::mt19937(1));
  EXPECT_EQ(plan_of(vit(), all), want);
}

// Of so many plans; all others take 100.
std::vector<std::vector<double>> second_takes(double us, std::size_t plans) {
  std::vector<std::vector<double>> times(plans, std::vector<double>(9, 100));
  times[1].assign(9, us);
  return times;
}

TEST_F(Tuning, ChoosesNothingThatIsFasterOnceOnly) {
  int asked = 0;
  const TuneSummary summary = tune_timed({.trials = 100}, [&](std::span<const Variant> variants) {
    const bool is_first = ++asked % 2 == 1;
    EXPECT_TRUE(is_first || variants.size() == 2);
    return second_takes(is_first ? 90 : 100, variants.size());
  });
  EXPECT_GT(asked, 2);
  EXPECT_TRUE(summary.chosen.empty());
}

TEST_F(Tuning, TimesNoWholeModelWhenThatIsOff) {
  int asked = 0;
  const auto summary = [&](bool use_whole) {
    std::filesystem::remove(path_);
    ablation_.use_whole = use_whole;
    return tune_with(
        {.trials = 100}, {}, vit(),
        [](const auto& problems, auto) { return std::make_unique<FakeGpu>(problems, made_up); },
        [&](const Partitions& partitions, auto) -> TimePlans {
          return [&, partitions](std::span<const Variant> variants) {
            ++asked;
            std::vector<std::vector<double>> times;
            for (const Variant& v : variants)
              times.emplace_back(9, time_in_model(partitions.at(v.partition).first, v.plan));
            return times;
          };
        });
  };
  EXPECT_TRUE(summary(false).chosen.empty());
  EXPECT_EQ(asked, 0);
  summary(true);
  EXPECT_GT(asked, 0);
}

// Times alone add up there, as far as they are right.
TEST_F(Tuning, WhereKernelsDoNotOverlapOnlyTheWholeIsCompared) {
  overlap_ = false;
  int asked = 0;
  const TuneSummary summary = tune_timed({.trials = 100}, [&](std::span<const Variant> variants) {
    ++asked;
    return second_takes(90, variants.size());  // by what the analytic model takes
  });
  EXPECT_EQ(asked, 2) << "once more beside the first alone";
  EXPECT_FALSE(summary.chosen.empty());
}

TEST_F(Tuning, ComparesWithTheUntunedModelHoweverLateItIs) {
  const auto model = [](const Problem& problem, const Schedule& schedule) -> Measured {
    return {{problem.space().model_us(schedule)}, ""};
  };
  for (const bool is_stopped : {false, true}) {
    TuneOptions options;
    options.seconds = 1e-3;
    options.stop = [=] { return is_stopped; };
    int asked = 0;
    tune_with(
        options, {}, vit(),
        [&](const auto& problems, auto) { return std::make_unique<FakeGpu>(problems, model); },
        [&](const Partitions&, auto stop) -> TimePlans {
          return [&, stop](std::span<const Variant> variants) {
            EXPECT_EQ(stop(), is_stopped);
            ++asked;
            return std::vector(variants.size(), std::vector<double>(9, 100));
          };
        });
    EXPECT_EQ(asked, 1) << "nothing else is compared so late";
  }
}

// What ships are the best schedules alone: what they gain over level 0's nobody knows until it is
// measured here.
TEST_F(Tuning, MeasuresLevel0WhereTheLogHasTheBestOnly) {
  std::map<std::string, std::string> level0;  // schedules by problem
  const auto close = [&](const Problem& problem, const Schedule& schedule) -> Measured {
    const Schedule& chosen = problem.space().chosen;
    level0[problem.text()] = chosen.text();
    const double best = problem.space().model_us(chosen);
    return {{schedule == chosen ? 1.03 * best : best * (1 + chance(schedule.text()) / 50)}, ""};
  };
  tune({.trials = 200}, close);
  const Table table(lines());
  std::vector<Measurement> best;
  for (const Measurement& m : lines())
    if (const auto entry = table.find(m.device, m.problem);
        entry->family == m.family && entry->schedule == m.schedule)
      best.push_back(m);
  std::filesystem::remove(path_);
  int asked = 0, compared = 0;
  const TuneSummary summary = tune_with(
      {.trials = 60}, best, vit(),
      [&](const auto& problems, auto) { return std::make_unique<FakeGpu>(problems, close); },
      [&](const Partitions& partitions, auto) -> TimePlans {
        return [&, partitions](std::span<const Variant> variants) {
          const Variant& second = variants[1];  // of the first comparison that by level 0
          for (const Group& group : second.plan.groups) {
            const auto chosen =
                level0.find(problem_text(partitions[second.partition].first.graph, group));
            if (asked > 0 || chosen == level0.end()) continue;
            const std::string family(h200().offers->name(group.family));
            EXPECT_EQ(Problem::joined(family, group.schedule), chosen->second);
            ++compared;
          }
          std::vector<std::vector<double>> times(variants.size(), std::vector<double>(9, 100));
          if (++asked <= 2) times[1].assign(9, 90);  // and again beside the first alone
          return times;
        };
      });
  EXPECT_GE(compared, kLayers * 4);
  for (const TunedGroup& group : summary.groups) EXPECT_GT(group.before_us, 0) << group.operators;
  EXPECT_FALSE(summary.chosen.empty()) << "level 0 was faster in the model";
  // Of what the log tells nothing else was measured before.
  std::set<std::string> first;
  for (const Measurement& m : lines())
    if (m.model_microseconds.empty() && first.insert(m.problem).second) {
      EXPECT_EQ(Problem::joined(m.family, m.schedule), level0.at(m.problem));
    }
  EXPECT_GE(first.size(), 4u);
}

using Nodes = std::vector<std::vector<ValueId>>;

Nodes nodes_of(const FusionPlan& plan) {
  Nodes nodes;
  for (const Group& group : plan.groups) nodes.push_back(group.nodes);
  return nodes;
}

TEST_F(Tuning, ChoosesTheEstimatedFusionWhereTheWholeModelIsFasterByIt) {
  // Alone every group of several operators is slow, so that measurements fuse less.
  const auto slow = [](const Problem& problem, const Schedule& schedule) -> Measured {
    const double us = problem.space().model_us(schedule);
    return {{problem.alone().group.nodes.size() > 2 ? 3 * us : us}, ""};
  };
  const LaidOutGraph bf16_vit = vit_in(bf16);
  const auto estimated = [](const LaidOutGraph& laid) {
    return nodes_of(fuse(propose_parallel(laid), h200().cost()));
  };
  const auto planned = [&](const LaidOutGraph& laid) {
    return nodes_of(
        tuned_fusion(propose_parallel(laid), h200(), std::make_shared<const Table>(lines())));
  };
  const Nodes fast =
      nodes_of(merge_parallel(vit(), fuse(propose_parallel(vit()), h200().cost())).second);
  bool is_fast = true;  // that by estimates, in the whole model
  const auto tune_again = [&] {
    TuneOptions options;
    options.trials = 200;
    int timers = 0;
    return tune_with(
        options, {}, vit(),
        [&](const auto& problems, auto) { return std::make_unique<FakeGpu>(problems, slow); },
        [&](const Partitions& partitions, auto) -> TimePlans {
          if (timers++ == 0) {
            EXPECT_EQ(partitions.size(), 2u);
          }
          return [&](std::span<const Variant> variants) {
            std::vector<std::vector<double>> times;
            for (const Variant& v : variants)
              times.emplace_back(9, (nodes_of(v.plan) == fast) == is_fast ? 90.0 : 100.0);
            return times;
          };
        });
  };
  TuneSummary summary = tune_again();
  ASSERT_FALSE(summary.chosen.empty());
  EXPECT_EQ(summary.chosen[0], "fusion, measured -> estimated: 100.0 -> 90.0 us");
  EXPECT_TRUE(summary.overturned.empty());
  EXPECT_EQ(planned(vit()), estimated(vit()));
  EXPECT_EQ(planned(bf16_vit), estimated(bf16_vit)) << "what holds for f16 holds for bf16";

  EXPECT_TRUE(tune_again().chosen.empty()) << "it stays";
  EXPECT_EQ(planned(vit()), estimated(vit()));

  is_fast = false;
  summary = tune_again();
  ASSERT_FALSE(summary.chosen.empty());
  EXPECT_EQ(summary.chosen[0], "fusion, estimated -> measured: 100.0 -> 90.0 us");
  EXPECT_FALSE(summary.overturned.empty());
  EXPECT_NE(planned(vit()), estimated(vit()));
}

// Alone all groups are as fast as estimated, but two of them slow the whole model down.
TEST_F(Tuning, LeavesOutFusionsThatSlowTheWholeModelDown) {
  std::set<std::string> slow, seen;  // the residual connections and activations of all layers
  const FusionPlan estimated = fuse(propose_parallel(vit()), h200().cost());
  for (const Group& group : estimated.groups)
    if (const std::string operators = detail::operators_of(vit().graph, group),
        text = problem_text(vit().graph, group);
        !seen.insert(text).second && (operators == "astype, add, add, layer_norm, astype" ||
                                      operators == "matmul, astype, add, gelu, astype"))
      slow.insert(text);
  ASSERT_EQ(slow.size(), 2u);
  const auto count_slow = [&](const LaidOutGraph& laid, const FusionPlan& plan) {
    return std::count_if(plan.groups.begin(), plan.groups.end(), [&](const Group& group) {
      const std::string text = problem_text(laid.graph, group);
      return slow.contains(text) || slow.contains(twin_text(text));
    });
  };
  ASSERT_GE(count_slow(vit(), estimated), 2 * kLayers);
  const auto as_estimated = [](const Problem& problem, const Schedule& schedule) -> Measured {
    return {{problem.space().model_us(schedule)}, ""};
  };
  const auto tune_again = [&] {
    TuneOptions options;
    options.trials = 300;
    return tune_with(
        options, {}, vit(),
        [&](const auto& problems, auto) {
          return std::make_unique<FakeGpu>(problems, as_estimated);
        },
        [&](const Partitions& partitions, auto) -> TimePlans {
          return [&, partitions](std::span<const Variant> variants) {
            std::vector<std::vector<double>> times;
            for (const Variant& v : variants)
              times.emplace_back(9, 100.0 + count_slow(partitions.at(v.partition).first, v.plan));
            return times;
          };
        });
  };
  const TuneSummary summary = tune_again();
  ASSERT_FALSE(summary.chosen.empty());
  EXPECT_TRUE(summary.chosen[0].starts_with("fusion, measured -> measured.without "))
      << summary.chosen[0];
  const auto planned = [&](const LaidOutGraph& laid) {
    return tuned_fusion(propose_parallel(laid), h200(), std::make_shared<const Table>(lines()));
  };
  EXPECT_EQ(count_slow(vit(), planned(vit())), 0);
  const LaidOutGraph bf16_vit = vit_in(bf16);
  EXPECT_EQ(count_slow(bf16_vit, planned(bf16_vit)), 0) << "what holds for f16 holds for bf16";
  const Nodes chosen = nodes_of(planned(vit()));

  EXPECT_TRUE(tune_again().chosen.empty());
  EXPECT_EQ(nodes_of(planned(vit())), chosen) << "it stays";

  slow.clear();
  for (const Group& group : planned(vit()).groups)
    if (group.nodes.size() > 1) slow.insert(problem_text(vit().graph, group));
  tune_again();
  EXPECT_NE(nodes_of(planned(vit())), chosen) << "a choice can be taken back";
}

TEST_F(Tuning, EndsWithNoSlowerFusionThanItBeganWith) {
  std::map<std::string, std::string> level0;  // schedules by problem
  const auto answer = [&](double fused) {
    return [&, fused](const Problem& problem, const Schedule& schedule) -> Measured {
      level0[problem.text()] = problem.space().chosen.text();
      const double us = problem.space().model_us(schedule);
      return {{problem.alone().group.nodes.size() > 2 ? fused * us : us}, ""};
    };
  };
  tune({.trials = 200}, answer(3));
  const auto planned = [&](const std::vector<Measurement>& known) {
    return tuned_fusion(propose_parallel(vit()), h200(), std::make_shared<const Table>(known));
  };
  // Level 0's schedules are measured again, and now those of what was not fused are fast.
  std::vector<Measurement> known = lines();
  std::erase_if(known, [&](const Measurement& m) {
    return Problem::joined(m.family, m.schedule) == level0.at(m.problem);
  });
  const FusionPlan began = planned(known);
  const Nodes fast = nodes_of(merge_parallel(vit(), began).second);
  std::filesystem::remove(path_);
  const TuneSummary summary = tune_with(
      {.trials = 200}, known, vit(),
      [&](const auto& problems, auto) { return std::make_unique<FakeGpu>(problems, answer(0.5)); },
      [&](const Partitions&, auto) -> TimePlans {
        return [&](std::span<const Variant> variants) {
          std::vector<std::vector<double>> times;
          for (const Variant& v : variants)
            times.emplace_back(9, nodes_of(v.plan) == fast ? 90.0 : 100.0);
          return times;
        };
      });
  ASSERT_FALSE(summary.chosen.empty()) << "measurements alone would fuse otherwise";
  EXPECT_TRUE(summary.chosen[0].starts_with("fusion, measured -> measured.without "))
      << summary.chosen[0];
  const std::vector<Measurement> more = lines();
  known.insert(known.end(), more.begin(), more.end());
  EXPECT_EQ(nodes_of(planned(known)), nodes_of(began));
}

TEST(PlanTimer, TimesWholePlansInAChild) {
  const Tensor weight = Generator(2).normal({32, 32});
  const detail::Target target = detail::target_of("cpu", 1);
  const LaidOutGraph laid =
      detail::prepare(
          [&](const std::vector<Tensor>& in) { return std::vector{relu(matmul(in[0], weight))}; },
          {{{16, 32}, f32}}, {}, target)
          .laid;
  const FusionPlan plan = fuse(propose_parallel(laid), target.cost());
  FusionPlan bad = plan;
  bad.groups[0].schedule = "no schedule!";
  bool is_stopped = false;
  const FusionPlan apart = no_fusion(laid, target.cost());
  ASSERT_GT(apart.groups.size(), plan.groups.size());
  const TimePlans time =
      plan_timer({{laid, plan}, {laid, apart}}, target, [&] { return is_stopped; });
  const auto times = time(std::vector<Variant>{{0, plan}, {0, bad}, {0, plan}, {1, apart}});
  ASSERT_EQ(times.size(), 4u);
  EXPECT_TRUE(times[1].empty()) << "cannot be built";
  for (const std::size_t i : {0, 2, 3}) {
    EXPECT_EQ(times[i].size(), 9u);
    for (const double us : times[i]) EXPECT_GT(us, 0);
  }
  EXPECT_TRUE(time(std::vector<Variant>{{0, bad}})[0].empty());
  is_stopped = true;
  EXPECT_TRUE(time(std::vector<Variant>{{0, plan}})[0].empty());
}

TEST(SlowsDown, WhereTheLastRunsTakeLonger) {
  std::vector<double> times(40, 100);
  EXPECT_FALSE(slows_down(times));
  std::fill(times.begin() + 10, times.end(), 104);
  EXPECT_TRUE(slows_down(times));
  std::reverse(times.begin(), times.end());
  EXPECT_FALSE(slows_down(times)) << "it became faster";
  times.assign(40, 100);
  times[38] = 130;
  EXPECT_FALSE(slows_down(times)) << "disturbed once";
  EXPECT_TRUE(slows_down(std::vector<double>{100, 100, 110}));
  EXPECT_FALSE(slows_down(std::vector<double>{100}));
  EXPECT_FALSE(slows_down({}));
}

TEST(IsFaster, NeedsMoreThanChance) {
  const std::vector<double> slow = {10, 11, 12, 10, 11}, fast = {9, 10, 11, 9, 10};
  EXPECT_TRUE(is_faster(fast, slow));
  EXPECT_FALSE(is_faster(slow, fast));
  EXPECT_FALSE(is_faster(slow, slow));
  EXPECT_TRUE(is_faster(std::vector<double>{9, 10, 13, 9, 10}, slow)) << "disturbed once";
  EXPECT_FALSE(is_faster(std::vector<double>{9, 12, 13, 9, 10}, slow));
  EXPECT_FALSE(is_faster(std::vector<double>{9.99, 10.99, 11.99, 9.99, 10.99}, slow)) << "hardly";
  EXPECT_FALSE(is_faster({}, slow));
  const std::span few(slow.data(), 4);
  EXPECT_TRUE(is_faster(std::vector<double>{9, 10, 11, 9}, few));
  EXPECT_FALSE(is_faster(std::vector<double>{9, 10, 13, 9}, few)) << "of few rounds all";
}

}  // namespace
}  // namespace tensor
