// Which schedules are tried in the whole model beside the one that was chosen.
#include "src/tune/rivals.h"

#include <gtest/gtest.h>

namespace tensor {
namespace {

// Two numbers of eight values each.
Space square() {
  Space space;
  space.sketches = {{"tiles", {{"rows", {1, 2, 3, 4}}, {"columns", {1, 2, 3, 4}}}}, {"other", {}}};
  space.fault = [](const Schedule&) { return std::string(); };
  space.model_us = [](const Schedule&) { return 1.; };
  space.features = [](const Schedule&) { return std::vector<float>(); };
  space.chosen = Schedule::parse("tiles rows=1 columns=1");
  return space;
}

// What remains when these have taken so long.
std::vector<std::string> rivals(const std::string& incumbent,
                                const std::vector<std::pair<const char*, double>>& times,
                                std::size_t most = 3) {
  Search search("p", "gemm", square());
  std::vector<Schedule> schedules;
  std::vector<Measured> measured;
  for (const auto& [text, us] : times) {
    schedules.push_back(Schedule::parse(text));
    measured.push_back({{us}, ""});
  }
  search.learn(schedules, measured);
  std::vector<std::string> texts;
  for (const Schedule& rival : rivals_of(Schedule::parse(incumbent), search, most))
    texts.push_back(rival.text());
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Rivals, AreAboutAsFastAndUnlikeEachOther) {
  const std::vector<std::pair<const char*, double>> times = {{"tiles rows=4 columns=4", 100},
                                                             {"tiles rows=4 columns=3", 101},
                                                             {"tiles rows=2 columns=2", 102},
                                                             {"other", 104},
                                                             {"tiles rows=3 columns=3", 106}};
  EXPECT_EQ(rivals("tiles rows=4 columns=4", times),
            (Texts{"other", "tiles rows=2 columns=2", "tiles rows=4 columns=3"}))
      << "another structure first, then what differs in two numbers; not what is 6 % slower";
  EXPECT_EQ(rivals("tiles rows=4 columns=4", times, 1), Texts{"other"});
}

TEST(Rivals, TheAnalyticModelsChoiceIsAllowedMore) {
  const std::vector<std::pair<const char*, double>> times = {{"tiles rows=4 columns=4", 100},
                                                             {"tiles rows=1 columns=1", 114}};
  EXPECT_EQ(rivals("tiles rows=4 columns=4", times), Texts{"tiles rows=1 columns=1"});
  EXPECT_EQ(rivals("tiles rows=1 columns=1", times), Texts{"tiles rows=4 columns=4"});
  EXPECT_EQ(rivals("tiles rows=4 columns=4",
                   {{"tiles rows=4 columns=4", 100}, {"tiles rows=1 columns=1", 116}}),
            Texts());
}

TEST(Rivals, AreNoneWhereNothingElseWasMeasured) {
  EXPECT_EQ(rivals("tiles rows=4 columns=4", {{"tiles rows=4 columns=4", 100}}), Texts());
  EXPECT_EQ(rivals("tiles rows=4 columns=4", {}), Texts());
}

}  // namespace
}  // namespace tensor
