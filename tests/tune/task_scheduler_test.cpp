// Equation 3 against what a pencil makes of it.
#include "src/tune/task_scheduler.h"

#include <gtest/gtest.h>

#include "tensor/error.h"

namespace tensor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(TaskScheduler, FirstEveryTaskGetsASlot) {
  TaskScheduler scheduler({{}, {}, {}});
  EXPECT_EQ(scheduler.objective_us(), kInfinity);
  for (const int task : {0, 1, 2}) {
    EXPECT_EQ(scheduler.next(), task);
    scheduler.report(task, 10);
  }
  EXPECT_EQ(scheduler.objective_us(), 30);
}

TEST(TaskScheduler, GradientByHand) {
  TaskScheduler scheduler({{.weight = 1, .kind = "a"}, {.weight = 12, .kind = "b"}});
  scheduler.report(0, 100);
  scheduler.report(1, 10);
  EXPECT_EQ(scheduler.objective_us(), 220);
  // After one slot there is no gain so far, and at best the time falls to nothing.
  EXPECT_DOUBLE_EQ(scheduler.gradient(0), 0.8 * -100);
  EXPECT_DOUBLE_EQ(scheduler.gradient(1), 12 * 0.8 * -10);
  EXPECT_EQ(scheduler.next(), 1);
  scheduler.report(1, 9);
  // It gained 1, and nine microseconds in two slots leave 4.5 for the next.
  EXPECT_DOUBLE_EQ(scheduler.gradient(1), 12 * (0.2 * -1 + 0.8 * -4.5));
  EXPECT_EQ(scheduler.next(), 0);
  for (const double us : {90., 60., 60., 54.}) scheduler.report(0, us);
  // Three slots back it was 90; five slots so far.
  EXPECT_DOUBLE_EQ(scheduler.gradient(0), 0.2 * (54 - 90) / 3. + 0.8 * (-54 / 5.));
  EXPECT_EQ(scheduler.slots(0), 5);
  EXPECT_EQ(scheduler.objective_us(), 54 + 12 * 9);
}

TEST(TaskScheduler, TasksOfAKindReachTheSameThroughput) {
  TaskScheduler scheduler({{.operations = 1000, .kind = "matmul"},
                           {.operations = 1000, .kind = "matmul"},
                           {.operations = 1000, .kind = "softmax"}},
                          {.patience = 0});
  for (int slot = 0; slot < 10; ++slot) {
    scheduler.report(0, 10);
    scheduler.report(1, 50);
    scheduler.report(2, 50);
  }
  // The fastest does 100 operations a microsecond, by which the second would take 10: half as fast
  // is believed of it, 20, which is more gain than a tenth of 50.
  EXPECT_DOUBLE_EQ(scheduler.gradient(0), 0.8 * -1);
  EXPECT_DOUBLE_EQ(scheduler.gradient(1), 0.8 * -30);
  EXPECT_DOUBLE_EQ(scheduler.gradient(2), 0.8 * -5);
  EXPECT_EQ(scheduler.next(), 1);
}

TEST(TaskScheduler, NothingBeatsTheBound) {
  TaskScheduler scheduler({{.bound_us = 98}, {.weight = 0.1}});
  scheduler.report(0, 100);
  scheduler.report(1, 100);
  EXPECT_DOUBLE_EQ(scheduler.gradient(0), 0.8 * -2);
  EXPECT_EQ(scheduler.next(), 1);
  scheduler.report(0, 98);
  EXPECT_EQ(scheduler.gradient(0), 0);
  EXPECT_EQ(scheduler.stopped(0), "nothing can be faster");
}

TEST(TaskScheduler, GoalsOfTasksAndOfTheModel) {
  TaskScheduler scheduler({{.weight = 2, .goal_us = 50}, {}}, {.goal_us = 130});
  scheduler.report(0, 60);
  scheduler.report(1, 40);
  EXPECT_EQ(scheduler.next(), 0);
  scheduler.report(0, 50);
  EXPECT_EQ(scheduler.stopped(0), "its goal is reached");
  EXPECT_EQ(scheduler.gradient(0), 0);
  EXPECT_EQ(scheduler.next(), 1);
  EXPECT_EQ(scheduler.objective_us(), 140);
  scheduler.report(1, 25);
  EXPECT_EQ(scheduler.objective_us(), 130);  // 125 in fact, but the goal is all that is wanted
  EXPECT_EQ(scheduler.stopped(1), "the model's goal is reached");
  EXPECT_EQ(scheduler.next(), TaskScheduler::kNone);
}

TEST(TaskScheduler, StopsWhereHistoryPromisesNothing) {
  TaskScheduler scheduler({{.weight = 100}, {}}, {.patience = 3, .least_gain = 0.01});
  for (const double us : {100., 90., 90., 89.5}) scheduler.report(0, us);
  scheduler.report(1, 5);
  EXPECT_EQ(scheduler.stopped(0), "");  // 10 % in the last three slots
  EXPECT_EQ(scheduler.next(), 0);
  scheduler.report(0, 89.4);  // from 90: less than 1 %
  EXPECT_EQ(scheduler.stopped(0), "the last slots gained nothing");
  EXPECT_EQ(scheduler.next(), 1);
  scheduler.report(1, 4, true);
  EXPECT_EQ(scheduler.stopped(1), "everything was measured");
  EXPECT_EQ(scheduler.next(), TaskScheduler::kNone);
}

TEST(TaskScheduler, TasksThatNeverRanComeFirstUntilPatienceEnds) {
  TaskScheduler scheduler({{}, {.weight = 1e6}}, {.patience = 2});
  scheduler.report(0, kInfinity);
  scheduler.report(1, 1);
  EXPECT_EQ(scheduler.next(), 0);
  scheduler.report(0, kInfinity);
  EXPECT_EQ(scheduler.next(), 0);
  scheduler.report(0, kInfinity);
  EXPECT_EQ(scheduler.stopped(0), "the last slots gained nothing");
  EXPECT_EQ(scheduler.next(), 1);
}

TEST(TaskScheduler, BestTimesNeverRise) {
  TaskScheduler scheduler(std::vector<Task>(1));
  for (const double us : {10., 12.}) scheduler.report(0, us);
  EXPECT_EQ(scheduler.objective_us(), 10);
  EXPECT_THROW(TaskScheduler(std::vector<Task>{{.weight = 0}}), UserError);
}

// Tasks that fall off as 1 / slots from different heights: slots go where they are worth most, and
// far more is gained than by taking turns.
TEST(TaskScheduler, BeatsTakingTurns) {
  const std::vector<double> height = {400, 50, 20, 5}, weight = {1, 12, 1, 1};
  const auto time = [&](int task, int slots) {
    const auto i = static_cast<std::size_t>(task);
    return height[i] * (1 + 1. / (1 + slots));
  };
  std::vector<Task> tasks;
  for (const double w : weight) tasks.push_back({.weight = w});
  for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i].kind = std::to_string(i);
  TaskScheduler scheduler(tasks, {.patience = 0}), turns(tasks, {.patience = 0});
  for (int slot = 0; slot < 40; ++slot) {
    const int task = scheduler.next();
    scheduler.report(task, time(task, scheduler.slots(task)));
    turns.report(slot % 4, time(slot % 4, turns.slots(slot % 4)));
  }
  EXPECT_LT(scheduler.objective_us(), turns.objective_us());
  EXPECT_GT(scheduler.slots(1), 15);
  EXPECT_LT(scheduler.slots(3), 4);
}

}  // namespace
}  // namespace tensor
