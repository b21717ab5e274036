// The tuner's parts by themselves: when tuning has to end and what it tells, which problems a plan
// poses, whose turn it is, and what is kept.
#include "src/tune/progress.h"

#include <gtest/gtest.h>

#include "src/tune/plan_scheduler.h"
#include "tests/tune/tuning.h"

namespace tensor {
namespace {

class Parts : public Tuning {
 protected:
  // The tasks of the plan by estimates.
  std::vector<TuningTask*> adopt() {
    return tasks_.adopt(Planner(fusible_, target_, {}).hoped_for(nullptr));
  }
  static void learn(TuningTask& task, double us) {
    task.search->learn(std::vector{task.level0()}, std::vector<Measured>{{{us}, ""}});
    task.history.push_back(us);
  }

  const Fusible fusible_ = propose_parallel(vit());
  const detail::Target target_ = h200();
  Log log_{path_};
  Records records_{{}, target_, log_};
  TuningTasks tasks_{vit(), target_, records_, {}};
};

TEST_F(Parts, ProgressEndsByTrialsTimeOrWhenStopped) {
  const auto operators = [](const TuningTask& task) { return task.operators; };
  Progress free({.seconds = 0}, tasks_, operators);
  EXPECT_EQ(free.trials_left(), SIZE_MAX);
  EXPECT_EQ(free.over(), "");

  Progress counted({.seconds = 0, .trials = 2}, tasks_, operators);
  counted.count_trial();
  EXPECT_EQ(counted.trials_left(), 1u);
  EXPECT_EQ(counted.over(), "");
  counted.count_trial();
  counted.count_failure();
  EXPECT_EQ(counted.over(), "2 schedules were measured");
  EXPECT_EQ(counted.late(), "") << "there is time";

  Progress timed({.seconds = 1e6}, tasks_, operators);
  EXPECT_EQ(timed.late(), "");
  timed.set_share(0);
  EXPECT_EQ(timed.late(), "1e+06 s are over");
  timed.set_share(1);
  EXPECT_EQ(timed.late(), "");

  Progress stopped({.stop = [] { return true; }}, tasks_, operators);
  EXPECT_EQ(stopped.over(), "it was stopped");
}

TEST_F(Parts, ProgressTellsSumsOfWholePlans) {
  std::vector<TuneProgress> told;
  TuneOptions options{.seconds = 9, .trials = 7};
  options.progress = [&](const TuneProgress& p) { told.push_back(p); };
  Progress progress(options, tasks_, [](const TuningTask& task) { return "x" + task.operators; });
  adopt();
  progress.count_trial();
  progress.set_before(5);
  TuningTask& first = tasks_.all()[0];
  for (TuningTask& task : tasks_.all()) {
    if (&task != &first) learn(task, 2);
  }
  progress.tell(first);
  learn(first, 2);
  progress.tell(first);
  first.history.push_back(HUGE_VAL);
  progress.tell(first);
  ASSERT_EQ(told.size(), 3u);
  double weights = 0;
  for (const TuningTask& task : tasks_.all()) weights += task.weight;
  EXPECT_EQ(told[0].best_us, 0) << "one has no time";
  EXPECT_EQ(told[1].best_us, 2 * weights);
  EXPECT_EQ(told[2].best_us, 2 * weights) << "the last sum that was whole";
  EXPECT_EQ(told[0].what, "x" + first.operators);
  EXPECT_EQ(told[0].before_us, 5);
  EXPECT_EQ(told[0].trials, 1);
  EXPECT_EQ(told[0].limit_trials, 7);
  EXPECT_EQ(told[0].limit_seconds, 9);
  EXPECT_EQ(told[0].problems, tasks_.problems().size());
}

TEST_F(Parts, TasksAreFreshUntilLevel0AndATimeAreKnown) {
  const std::vector<TuningTask*> fresh = adopt();
  ASSERT_GT(fresh.size(), 2u);
  EXPECT_EQ(fresh.size(), tasks_.all().size());
  double weight = 0;
  for (const TuningTask* task : fresh) {
    EXPECT_EQ(&tasks_.problems()[static_cast<std::size_t>(task->index)], task->problem);
    weight += task->weight;
  }
  EXPECT_GE(weight, kLayers * 4);
  EXPECT_TRUE(std::isinf(tasks_.best_sum()));
  learn(*fresh[0], 1);
  std::vector<TuningTask*> again = adopt();
  EXPECT_EQ(again.size(), fresh.size() - 1);
  EXPECT_EQ(std::count(again.begin(), again.end(), fresh[0]), 0);
}

TEST_F(Parts, TheSchedulerTakesTurnsOrWhatGainsMost) {
  adopt();
  std::vector<TuningTask*> in_plan;
  for (TuningTask& task : tasks_.all())
    if (task.weight > 0) in_plan.push_back(&task);
  ASSERT_GT(in_plan.size(), 3u);
  PlanScheduler turns({.side_by_side = 2, .by_gain = false});
  EXPECT_EQ(turns.next(tasks_, target_), (std::vector{in_plan[0], in_plan[1]}));
  EXPECT_EQ(turns.next(tasks_, target_), (std::vector{in_plan[2], in_plan[3 % in_plan.size()]}));
  // The most is to be gained at the second.
  for (TuningTask* task : in_plan) learn(*task, task == in_plan[1] ? 1e6 : 1e3);
  PlanScheduler by_gain({.side_by_side = 1});
  EXPECT_EQ(by_gain.next(tasks_, target_), std::vector{in_plan[1]});
  PlanScheduler reached({.side_by_side = 1, .goal_us = 1e12});
  EXPECT_TRUE(reached.next(tasks_, target_).empty()) << "the goal is reached";
}

TEST_F(Parts, RecordsHaveWhatIsWrittenByTheTarget) {
  Measurement m;
  m.problem = "p", m.schedule = "gemm.tiles rows=4", m.microseconds = {3};
  records_.write(m);
  EXPECT_EQ(records_.table(), nullptr) << "not learned yet";
  records_.learn({m});
  Measurement choice;
  choice.problem = "p", choice.schedule = "gemm.tiles rows=8", choice.model_microseconds = {50};
  records_.choose(choice);
  ASSERT_EQ(lines().size(), 2u);
  ASSERT_EQ(records_.known().size(), 2u);
  for (const Measurement& line : lines()) {
    EXPECT_EQ(line.family, "gemm");
    EXPECT_EQ(line.device, target_.tuned_as);
    EXPECT_EQ(line.kernels, target_.kernels);
    EXPECT_TRUE(records_.is_own(line));
  }
  EXPECT_EQ(records_.known(), lines());
  EXPECT_EQ(records_.table()->find(target_.tuned_as, "p")->microseconds, 3);
  EXPECT_EQ(records_.table()->choice(target_.tuned_as, "p")->schedule, "tiles rows=8");
}

TEST_F(Parts, PlansFollowTheSwitches) {
  const ModelPlan apart = Planner(fusible_, target_, {.fuse = false}).plan(nullptr),
                  hoped = Planner(fusible_, target_, {}).hoped_for(nullptr),
                  estimated = Planner(fusible_, target_, {.by_times = false}).hoped_for(nullptr);
  for (const Group& group : apart.apart.groups) EXPECT_EQ(group.nodes.size(), 1u);
  EXPECT_TRUE(divide_alike(hoped.apart, estimated.apart));
  EXPECT_FALSE(divide_alike(hoped.apart, apart.apart));
  EXPECT_TRUE(has_division({apart, hoped}, estimated.apart));
  EXPECT_FALSE(hoped.alternatives.empty());
  EXPECT_TRUE(estimated.alternatives.empty()) << "nothing would come of their times";
}

}  // namespace
}  // namespace tensor
