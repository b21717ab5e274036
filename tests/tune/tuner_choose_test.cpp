// The last choice, by the time of whole models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

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
      [&](const LaidOutGraph& laid, auto) -> TimePlans {
        return [&, laid](std::span<const FusionPlan> plans) {
          std::vector<std::vector<double>> times;
          for (const FusionPlan& plan : plans) times.emplace_back(9, time_in_model(laid, plan));
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
    return merge_parallel(vit(), tuned_fusion(vit().graph, h200(), table));
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

TEST(PlanTimer, TimesWholePlansInAChild) {
  const Tensor weight = Generator(2).normal({32, 32});
  const detail::Target target = detail::target_of("cpu", 1);
  const LaidOutGraph laid = detail::prepare(
      [&](const std::vector<Tensor>& in) { return std::vector{relu(matmul(in[0], weight))}; },
      {{{16, 32}, f32}}, {}, target);
  const FusionPlan plan = fuse(laid.graph, target.cost);
  FusionPlan bad = plan;
  bad.groups[0].schedule = "no schedule!";
  bool is_stopped = false;
  const TimePlans time = plan_timer(laid, target, [&] { return is_stopped; });
  const auto times = time(std::vector{plan, bad, plan});
  ASSERT_EQ(times.size(), 3u);
  EXPECT_TRUE(times[1].empty()) << "cannot be built";
  for (const std::size_t i : {0, 2}) {
    EXPECT_EQ(times[i].size(), 9u);
    for (const double us : times[i]) EXPECT_GT(us, 0);
  }
  EXPECT_TRUE(time(std::vector{bad})[0].empty());
  is_stopped = true;
  EXPECT_TRUE(time(std::vector{plan})[0].empty());
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
}

}  // namespace
}  // namespace tensor
