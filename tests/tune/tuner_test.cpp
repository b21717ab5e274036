// The whole loop of tuning without a GPU: on the plans of an H200 as its data sheet describes it,
// measured by a table of made-up times.
#include "src/tune/tuner.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "src/compile.h"
#include "src/kernels/cuda/family.h"
#include "src/runtime/describe.h"
#include "src/trace/parallel.h"
#include "src/tune/tuned_cost.h"
#include "tensor/tensor.h"
#include "tests/plans/nine_models.h"

namespace tensor {
namespace {

namespace fs = std::filesystem;

// A number from 0 to 1 that looks random and is the same for the same text.
double chance(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  hash ^= hash >> 29;
  return static_cast<double>(hash * 0x9e3779b97f4a7c15u >> 11) * 0x1p-53;
}

// Every schedule takes 0.6 to 1.6 times as long as the model of its family says; one of twelve
// fails.
Measured made_up(const Problem& problem, const Schedule& schedule) {
  const double luck = chance(problem.text() + schedule.text());
  if (luck < 1.0 / 12) return {{}, "wrong result"};
  const double time = problem.space().model_us(schedule) * (0.6 + luck);
  return {{time * 0.99, time, time * 1.02}, ""};
}

using Answer = std::function<Measured(const Problem&, const Schedule&)>;

class FakeGpu : public Measurer {
 public:
  FakeGpu(const std::deque<Problem>& problems, Answer answer)
      : problems_(problems), answer_(std::move(answer)) {}
  std::vector<Measured> measure(std::span<const Candidate> candidates) override {
    std::vector<Measured> result;
    for (const Candidate& c : candidates)
      result.push_back(answer_(problems_.at(static_cast<std::size_t>(c.task)), c.schedule));
    return result;
  }

 private:
  const std::deque<Problem>& problems_;
  Answer answer_;
};

class Tuning : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "tensor_tuner_" + std::to_string(getpid()) + ".jsonl";
    fs::remove(path_);
  }
  void TearDown() override { fs::remove(path_); }

  static detail::Target h200() { return detail::cuda_target(cuda::typical_device(90)); }
  // ViT-B with three of its twelve layers.
  static const LaidOutGraph& vit() {
    using models::vit::Vit;
    static const LaidOutGraph laid =
        nine::laid_out<Vit>(Vit::sized([] {
                              models::vit::VitConfig config;
                              config.layers = kLayers;
                              return config;
                            }()),
                            {1, 3, 224, 224}, f16,
                            [](const Vit& m, const Tensor& x) { return std::vector{m(x).logits}; });
    return laid;
  }
  static constexpr int kLayers = 3;

  TuneSummary tune(TuneOptions options, const Answer& answer = made_up,
                   std::vector<Measurement> known = {}, const LaidOutGraph& laid = vit()) {
    return tune_with(options, known, laid, [&](const auto& problems, auto) {
      return std::make_unique<FakeGpu>(problems, answer);
    });
  }
  TuneSummary tune_with(TuneOptions options, std::vector<Measurement> known,
                        const LaidOutGraph& laid, const Tuner::MakeMeasurer& make,
                        const Tuner::MakeTimer& make_timer = nullptr) {
    options.seconds = 0;
    if (options.trials == 0) options.trials = 500;
    Log log(path_);
    std::vector<Measurement> own = read_log(path_).measurements;
    known.insert(known.end(), own.begin(), own.end());
    detail::Target target = h200();
    if (!device_.empty()) target.tuned_as = device_;
    return Tuner(laid, std::move(target), options, {.first = 3, .slot = 4, .side_by_side = 2},
                 known, log, make, make_timer)
        .run();
  }
  std::vector<Measurement> lines() const { return read_log(path_).measurements; }
  static std::string plan_of(const LaidOutGraph& laid, const std::vector<Measurement>& known) {
    const auto table = known.empty() ? nullptr : std::make_shared<const Table>(known);
    const FusionPlan plan = tuned_fusion(laid.graph, h200(), table);
    std::string text = detail::plan_text(laid.graph, plan, h200());
    for (const Group& group : plan.groups) text += std::to_string(group.nodes[0]) + group.schedule;
    return text;
  }

  std::string path_;
  std::string device_;  // another name than the data sheet's
};

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
  for (const TunedGroup& group : summary.groups) {
    sum += group.count * group.after_us;
    groups += group.count;
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

TEST_F(Tuning, TheLogTellsWhatWasMeasuredAndFailuresAreNeverChosen) {
  const TuneSummary summary = tune({});
  std::int64_t failures = 0;
  std::map<std::pair<std::string, std::string>, int> count;
  for (const Measurement& m : lines()) {
    EXPECT_EQ(m.device, h200().tuned_as);
    EXPECT_FALSE(m.family.empty());
    EXPECT_FALSE(m.version.empty());
    EXPECT_EQ(m.time.size(), 20u);
    failures += !m.error.empty();
    EXPECT_EQ(++count[std::pair(m.problem, m.family + "." + m.schedule)], 1) << m.schedule;
  }
  EXPECT_EQ(failures, summary.failures);
  EXPECT_GT(failures, 0);
  const Table table(lines());
  for (const auto& [key, entry] : table.entries())
    for (const Measurement& m : lines())
      if (m.problem == key.first && m.family == entry.family && m.schedule == entry.schedule) {
        EXPECT_EQ(m.error, "");
      }
  // The plan has the best of the table.
  const auto shared = std::make_shared<const Table>(lines());
  for (const Group& group : tuned_fusion(vit().graph, h200(), shared).groups) {
    if (!run_of(vit().graph, group).empty()) continue;
    const Table::Entry* best = shared->find(h200().tuned_as, problem_text(vit().graph, group));
    ASSERT_NE(best, nullptr);
    EXPECT_EQ(group.schedule, best->schedule);
    EXPECT_EQ(group.microseconds, best->microseconds);
    EXPECT_EQ(h200().family_name(group.family), best->family);
  }
}

// What searches are compared on: nothing that a search has chosen.
TEST_F(Tuning, RecordsTheHeaviestProblemsAtRandom) {
  TuneOptions options;
  options.record = 2;
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
  EXPECT_EQ(recorded, options.record);

  options.trials = 80;  // goes on
  EXPECT_EQ(tune(options).trials, 20);
  options.record_only = "no such operator";
  EXPECT_EQ(tune(options).trials, 0);
}

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

TEST_F(Tuning, TheSameLogMakesTheSamePlan) {
  tune({});
  std::vector<Measurement> known = lines();
  const std::string want = plan_of(vit(), known);
  EXPECT_NE(want, plan_of(vit(), {}));
  std::mt19937 random(1);
  for (int round = 0; round < 3; ++round) {
    std::shuffle(known.begin(), known.end(), random);
    EXPECT_EQ(plan_of(vit(), known), want);
  }
}

TEST_F(Tuning, TheSameSeedMeasuresTheSame) {
  const auto schedules = [&](std::uint64_t seed) {
    fs::remove(path_);
    tune({.trials = 120, .seed = seed});
    std::vector<std::string> result;
    for (const Measurement& m : lines()) result.push_back(m.problem + m.family + m.schedule);
    return result;
  };
  const auto first = schedules(3);
  EXPECT_EQ(schedules(3), first);
}

// The model that ships for this device chooses what is tried, the same each time: of the same seed,
// and of the same log.
TEST_F(Tuning, StartsFromWhatShips) {
  const auto schedules = [&](const std::string& device) {
    fs::remove(path_);
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

TEST_F(Tuning, GoesOnWhereTheLogEnds) {
  const TuneSummary first = tune({.trials = 60});
  EXPECT_EQ(first.trials, std::ssize(lines()));
  const TuneSummary second = tune({.trials = 60});
  EXPECT_EQ(first.trials + second.trials, std::ssize(lines()));
  EXPECT_LE(second.after_us, first.after_us * (1 + 1e-9));
  std::map<std::string, int> count;
  for (const Measurement& m : lines())
    EXPECT_EQ(++count[m.problem + m.family + "." + m.schedule], 1);
}

TEST_F(Tuning, AnotherGpusLogIsAHint) {
  tune({});
  std::vector<Measurement> others = lines();
  for (Measurement& m : others) m.device = "NVIDIA L4";
  fs::remove(path_);
  EXPECT_EQ(plan_of(vit(), others), plan_of(vit(), {}));
  // What was best there is among the first that are measured here.
  tune({.trials = 1000}, made_up, others);
  const Table there(others);
  std::size_t found = 0;
  for (const auto& [key, entry] : there.entries())
    for (const Measurement& m : lines())
      found += m.problem == key.first && m.family == entry.family && m.schedule == entry.schedule;
  EXPECT_GT(found, 0u);
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
  fs::remove(path_);
  EXPECT_TRUE(tune({.use_partition = false}, slow_attention).overturned.empty());
}

// A kernel that was never measured is not taken because it was estimated too well.
TEST_F(Tuning, EstimatesAreNotTrustedMoreThanTimes) {
  const LaidOutGraph& laid = vit();
  const detail::Target target = h200();
  const FusionPlan plan = fuse(laid.graph, target.cost);
  std::vector<Measurement> slow;  // all groups of the plan take twice their estimate
  for (const Group& group : merge_parallel(laid, plan).second.groups) {
    Measurement m;
    const LaidOutGraph& merged = merge_parallel(laid, plan).first;
    m.problem = problem_text(merged.graph, group);
    m.family = target.family_name(group.family);
    m.device = target.tuned_as;
    m.version = "1.0.0";
    m.microseconds = {2 * group.microseconds};
    slow.push_back(m);
  }
  const auto table = std::make_shared<const Table>(slow);
  const FusionPlan careful = tuned_fusion(laid.graph, target, table);
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
  tune({.trials = 400, .use_sketches = false},
       [&](const Problem& problem, const Schedule& schedule) {
         EXPECT_EQ(schedule.sketch, problem.space().chosen.sketch);
         return made_up(problem, schedule);
       });
}

TEST_F(Tuning, ReachesItsGoalAndEnds) {
  const double untuned = tune({.trials = 30}).before_us;
  fs::remove(path_);
  const TuneSummary summary = tune({.trials = 100000, .goal_us = 2 * untuned});
  EXPECT_LT(summary.trials, 1000);
}

// Tells of two times at once, and of the third when the batch is done.
class TellingGpu : public FakeGpu {
 public:
  TellingGpu(const std::deque<Problem>& problems, std::function<void()> told)
      : FakeGpu(problems, made_up), told_(std::move(told)) {}
  std::vector<Measured> measure_telling(std::span<const Candidate> candidates,
                                        const Hear& hear) override {
    std::vector<Measured> all = measure(candidates);
    for (std::size_t i = 0; i < all.size(); ++i) {
      Measured some = all[i];
      if (some.error.empty()) some.microseconds.pop_back();
      hear(i, some);
      told_();
    }
    return all;
  }

 private:
  std::function<void()> told_;
};

TEST_F(Tuning, WhatIsMeasuredIsInTheLogAtOnce) {
  std::size_t told = 0;
  const auto check = [&] { EXPECT_GE(lines().size(), ++told); };
  const TuneSummary summary = tune_with(
      {.trials = 200}, {}, vit(),
      [&](const auto& problems, auto) { return std::make_unique<TellingGpu>(problems, check); });
  EXPECT_EQ(summary.trials, static_cast<std::int64_t>(told));
  std::map<std::string, std::vector<double>> times;
  std::int64_t failures = 0;
  for (const Measurement& m : lines()) {
    auto& of = times[m.problem + m.family + "." + m.schedule];
    of.insert(of.end(), m.microseconds.begin(), m.microseconds.end());
    failures += !m.error.empty();
  }
  EXPECT_EQ(times.size(), told);
  EXPECT_EQ(summary.failures, failures);
  for (const auto& [schedule, of] : times)
    EXPECT_TRUE(of.size() == 3 || of.empty()) << schedule << " has " << of.size();
  // The log tells what the tuner believed.
  EXPECT_NEAR(tune({.trials = 1}).before_us, summary.before_us, 1e-6 * summary.before_us);
}

// Whatever the moment: all lines but the one that is being written are there.
TEST_F(Tuning, NothingIsLostWhenItIsKilled) {
  constexpr int kKills = 50;
  vit();
  std::mt19937 random(std::random_device{}());
  std::size_t before = 0;
  int grown = 0;
  using std::chrono::milliseconds, std::chrono::steady_clock;
  milliseconds needed{0};  // to the first line
  for (int round = 0; round < kKills; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      // In a thread of its own, since this process may have used OpenMP (src/tune/worker.cpp).
      std::thread([&] {
        try {
          tune({.trials = 100000, .seed = static_cast<std::uint64_t>(round)});
        } catch (...) {
          _exit(1);
        }
      }).join();
      _exit(0);
    }
    if (round == 0) {
      const auto begin = steady_clock::now();
      while (!fs::exists(path_) || fs::file_size(path_) == 0)
        std::this_thread::sleep_for(milliseconds(1));
      needed = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin);
    } else {
      const auto most = static_cast<unsigned>(2 * needed.count() + 100);
      std::this_thread::sleep_for(milliseconds(random() % most));
    }
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself: " << status;
    if (!fs::exists(path_)) continue;
    const LogContents contents = read_log(path_);
    EXPECT_GE(contents.measurements.size(), before);
    EXPECT_LE(contents.damaged, round + 1);
    grown += contents.measurements.size() > before;
    before = contents.measurements.size();
  }
  EXPECT_GT(grown, 0);
  const TuneSummary summary = tune({.trials = 10});
  EXPECT_EQ(lines().size(), before + static_cast<std::size_t>(summary.trials));
}

}  // namespace
}  // namespace tensor
