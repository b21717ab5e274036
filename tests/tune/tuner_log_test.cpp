// What tuning writes to its log, takes from logs, and makes of them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "src/trace/isolate.h"
#include "src/trace/parallel.h"
#include "tests/seed.h"
#include "tests/tune/tuning.h"

namespace tensor {
namespace {

namespace fs = std::filesystem;

TEST_F(Tuning, TheLogTellsWhatWasMeasuredAndFailuresAreNeverChosen) {
  const TuneSummary summary = tune({});
  std::int64_t failures = 0;
  std::map<std::pair<std::string, std::string>, int> count;
  for (const Measurement& m : lines()) {
    EXPECT_EQ(m.device, h200().tuned_as);
    EXPECT_FALSE(m.family.empty());
    EXPECT_FALSE(m.version.empty());
    EXPECT_EQ(m.kernels, h200().kernels);
    EXPECT_EQ(m.kernels.size(), 8u);
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
  for (const Group& group : tuned_fusion(propose_parallel(vit()), h200(), shared).groups) {
    if (!run_of(vit().graph, group).empty()) continue;
    const auto best = shared->find(h200().tuned_as, problem_text(vit().graph, group));
    ASSERT_TRUE(best);
    EXPECT_EQ(group.schedule, best->schedule);
    EXPECT_EQ(group.microseconds, best->microseconds);
    EXPECT_EQ(h200().offers->name(group.family), best->family);
  }
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

// Logs that are hints only.
class Hints : public Tuning {
 protected:
  void measure_first_batch(const std::vector<Measurement>& known, const LaidOutGraph& laid) {
    bool is_over = false;
    TuneOptions options;
    options.progress = [&](const TuneProgress&) { is_over = true; };
    options.stop = [&] { return is_over; };
    tune(options, made_up, known, laid);
  }
  // What the hints say is the best of a problem was measured; `there` is how they name it.
  void expect_hinted(const std::vector<Measurement>& hints,
                     const std::function<std::string(const Measurement&)>& there) {
    const Table table(hints);
    std::set<std::string> problems, hinted;
    for (const Measurement& m : lines()) {
      const auto best = table.find(hints.front().device, there(m));
      if (!best) continue;  // its only schedule failed
      problems.insert(m.problem);
      if (best->family == m.family && best->schedule == m.schedule) hinted.insert(m.problem);
    }
    EXPECT_GE(problems.size(), 4u);
    EXPECT_EQ(hinted, problems);
  }
};

TEST_F(Hints, AnotherGpusLogIsOne) {
  tune({.trials = 300});
  std::vector<Measurement> others = lines();
  for (Measurement& m : others) m.device = "NVIDIA L4";
  fs::remove(path_);
  EXPECT_EQ(plan_of(vit(), others), plan_of(vit(), {}));
  // What was best there is among the first that are measured here.
  measure_first_batch(others, vit());
  expect_hinted(others, [](const Measurement& m) { return m.problem; });
}

TEST_F(Hints, TheLogOfOlderKernelsIsOne) {
  tune({.trials = 300});
  std::vector<Measurement> all = lines();
  const std::string want = plan_of(vit(), all);
  for (Measurement& m : all) m.kernels = "older";
  EXPECT_EQ(plan_of(vit(), all), want) << "as long as there is nothing else";
  fs::remove(path_);
  measure_first_batch(all, vit());
  expect_hinted(all, [](const Measurement& m) { return m.problem; });
  const Table old(all);
  std::set<std::string> problems;
  for (const Measurement& m : lines())
    if (const auto best = old.find(m.device, m.problem);
        best && problems.insert(m.problem).second) {
      EXPECT_EQ(m.schedule, best->schedule) << "it comes first";
    }
  // What was measured now counts, whatever it took before.
  const std::vector<Measurement> now = lines();
  all.insert(all.end(), now.begin(), now.end());
  const Table table(all, h200().kernels), today(now, h200().kernels);
  for (const auto& [problem, entry] : today.entries())
    EXPECT_EQ(table.find(problem.second, problem.first), entry);
}

// What is best in f16 is among the first that are measured in bf16, where nothing of it counts.
TEST_F(Hints, TheOtherNarrowTypesLogIsOne) {
  tune({.trials = 300});
  const std::vector<Measurement> known = lines();
  fs::remove(path_);
  measure_first_batch(known, vit_in(bf16));
  for (const Measurement& m : lines())
    EXPECT_EQ(m.problem.find(" f16"), std::string::npos) << m.problem;
  expect_hinted(known, [](const Measurement& m) { return twin_text(m.problem); });
}

// Tells of two times at once, and of the third when the batch is done.
class TwiceTellingGpu : public FakeGpu {
 public:
  TwiceTellingGpu(const std::deque<Problem>& problems, std::function<void()> told)
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
  const TuneSummary summary =
      tune_with({.trials = 200}, {}, vit(), [&](const auto& problems, auto) {
        return std::make_unique<TwiceTellingGpu>(problems, check);
      });
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
  std::mt19937 random(static_cast<unsigned>(check::seed()));
  std::size_t before = 0;
  int grown = 0;
  using std::chrono::milliseconds, std::chrono::steady_clock;
  milliseconds needed{0};  // to the first line
  for (int round = 0; round < kKills; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        tune({.trials = 100000, .seed = static_cast<std::uint64_t>(round)});
      } catch (...) {
        _exit(1);
      }
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
