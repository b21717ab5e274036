// How candidates are compiled, checked and timed, on a device that is made up: its kernels take as
// long as their schedules say, or fail as they say.
#include "src/tune/trial.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <stdexcept>
#include <thread>

#include "src/tune/table.h"
#include "tests/temporary_folder.h"

namespace tensor {
namespace {

// What the child's trials did, one line each.
class Diary {
 public:
  Diary() { std::ofstream(path_).flush(); }
  void write(const std::string& line) const { std::ofstream(path_, std::ios::app) << line + '\n'; }
  std::vector<std::string> lines() const {
    std::ifstream file(path_);
    std::vector<std::string> result;
    for (std::string line; std::getline(file, line);) result.push_back(line);
    return result;
  }

 private:
  const check::TemporaryFolder folder_;
  const std::string path_ = folder_ / "diary";
};

bool device_is_lost = false;

class FakeTrial : public Trial {
 public:
  FakeTrial(const Candidate& candidate, const Diary& diary)
      : schedule_(candidate.schedule), diary_(diary) {}

  void compile() override {
    misbehave("compile");
    if (schedule_.value("slow")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  void check() override {
    misbehave("check");
    if (schedule_.sketch == "loses_device") {
      device_is_lost = true;
      throw std::runtime_error("illegal address");
    }
    if (device_is_lost) throw std::runtime_error("the device is lost");
    if (schedule_.value("wrong")) throw std::runtime_error("wrong result");
  }
  double time() override {
    misbehave("time");
    diary_.write(schedule_.text());
    return schedule_.value("us").value_or(10);
  }

 private:
  void misbehave(const std::string& where) const {
    if (schedule_.sketch == where + "_crashes") std::raise(SIGSEGV);
    if (schedule_.sketch == where + "_hangs")
      while (true) pause();
    if (schedule_.sketch == where + "_throws") throw std::runtime_error(where + " failed");
  }
  Schedule schedule_;
  const Diary& diary_;
};

class Trials : public ::testing::TestWithParam<int> {
 protected:
  std::vector<Measured> measure(const std::vector<std::pair<int, std::string>>& candidates) {
    std::vector<Candidate> list;
    for (const auto& [task, text] : candidates) list.push_back({task, Schedule::parse(text)});
    Measuring how;
    how.make = [this](const Candidate& candidate) -> std::unique_ptr<Trial> {
      if (candidate.schedule.sketch == "unknown") throw std::runtime_error("no such sketch");
      return std::make_unique<FakeTrial>(candidate, diary_);
    };
    how.is_lost = [] { return device_is_lost; };
    how.compilers = GetParam();
    ChildMeasurer measurer(how, {.item_seconds = 0.5, .idle_seconds = 5});
    heard_.clear();
    return measurer.measure_telling(
        list, [this](std::size_t item, const Measured& m) { heard_[item].push_back(m); });
  }
  Diary diary_;
  std::map<std::size_t, std::vector<Measured>> heard_;
};

TEST_P(Trials, TimesAreThoseOfTheirCandidates) {
  const auto measured =
      measure({{0, "a us=30 slow=1"}, {1, "a us=20"}, {0, "b us=10"}, {2, "c us=7"}});
  ASSERT_EQ(measured.size(), 4u);
  const double want[] = {30, 20, 10, 7};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(measured[i].error, "");
    EXPECT_EQ(median(measured[i].microseconds), want[i]);
    EXPECT_EQ(measured[i].microseconds.size(), 5u);
  }
}

TEST_P(Trials, FailuresHaveTheirReasonsAndTheOthersTheirTimes) {
  const std::pair<const char*, const char*> bad[] = {
      {"unknown", "no such sketch"},       {"compile_throws", "compile failed"},
      {"compile_crashes", "Segmentation"}, {"compile_hangs", "longer than"},
      {"check_throws", "check failed"},    {"check_crashes", "Segmentation"},
      {"check_hangs", "longer than"},      {"time_throws", "time failed"},
      {"time_crashes", "Segmentation"},    {"time_hangs", "longer than"},
      {"loses_device", "illegal address"}, {"a wrong=1", "wrong result"}};
  std::vector<std::pair<int, std::string>> candidates;
  for (const auto& [text, reason] : bad) {
    candidates.emplace_back(0, text);
    candidates.emplace_back(1, "good us=" + std::to_string(candidates.size() + 100));
  }
  const auto measured = measure(candidates);
  for (std::size_t i = 0; i < std::size(bad); ++i) {
    SCOPED_TRACE(bad[i].first);
    EXPECT_TRUE(measured[2 * i].microseconds.empty());
    EXPECT_NE(measured[2 * i].error.find(bad[i].second), std::string::npos)
        << measured[2 * i].error;
    EXPECT_EQ(measured[2 * i + 1].error, "");
    ASSERT_FALSE(measured[2 * i + 1].microseconds.empty());
    EXPECT_EQ(measured[2 * i + 1].microseconds[0], static_cast<double>(2 * i + 101));
  }
}

TEST_P(Trials, TheFastestOfATaskAreTimedAgainByTurns) {
  const auto measured = measure({{0, "a us=100"},
                                 {0, "b us=103"},
                                 {1, "c us=50"},
                                 {0, "d us=109"},
                                 {0, "e us=108"},
                                 {0, "f us=200"},
                                 {1, "g us=90"}});
  for (const auto& [item, repeats] : {std::pair(0, 16), {1, 16}, {2, 5}, {3, 5}, {4, 16}, {5, 5}}) {
    const auto at = static_cast<std::size_t>(item);
    EXPECT_EQ(std::ssize(measured[at].microseconds), repeats) << item;
    // They are told of at once, and again when there are more.
    const std::vector<Measured>& heard = heard_[at];
    ASSERT_EQ(heard.size(), repeats > 5 ? 2u : 1u) << item;
    EXPECT_EQ(heard[0].microseconds.size(), 5u);
    EXPECT_EQ(heard.back().microseconds, measured[at].microseconds);
  }
  const std::vector<std::string> lines = diary_.lines();
  ASSERT_GE(lines.size(), 36u);
  for (std::size_t i = lines.size() - 36; i < lines.size(); i += 3)
    EXPECT_EQ(std::vector(lines.begin() + static_cast<std::ptrdiff_t>(i),
                          lines.begin() + static_cast<std::ptrdiff_t>(i + 3)),
              (std::vector<std::string>{"a us=100", "b us=103", "e us=108"}));
}

INSTANTIATE_TEST_SUITE_P(Compilers, Trials, ::testing::Values(0, 1, 4));

// Several compile at a time: this would take eight times as long.
TEST(Compilers, WorkBesideEachOther) {
  class Sleeper : public Trial {
    void compile() override { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }
    void check() override {}
    double time() override { return 1; }
  };
  Measuring how;
  how.make = [](const Candidate&) { return std::make_unique<Sleeper>(); };
  how.compilers = 8;
  ChildMeasurer measurer(how, {.item_seconds = 10, .idle_seconds = 10});
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Candidate> candidates(8, {0, Schedule::parse("a")});
  for (const Measured& m : measurer.measure(candidates)) EXPECT_EQ(m.error, "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500));
}

TEST(ChildMeasurer, NonsenseIsNoTime) {
  class Odd : public Trial {
    void compile() override {}
    void check() override {}
    double time() override { return -1; }
  };
  Measuring how;
  how.make = [](const Candidate&) { return std::make_unique<Odd>(); };
  ChildMeasurer measurer(how, {});
  const Candidate candidate{0, Schedule::parse("a")};
  const Measured measured = measurer.measure(std::span(&candidate, 1))[0];
  EXPECT_TRUE(measured.microseconds.empty());
  EXPECT_NE(measured.error.find("no times"), std::string::npos) << measured.error;
}

}  // namespace
}  // namespace tensor
