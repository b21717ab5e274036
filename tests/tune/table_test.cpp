#include "src/tune/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tensor {
namespace {

Measurement record(const std::string& schedule, std::vector<double> us,
                   const std::string& problem = "p", const std::string& device = "H200") {
  Measurement m;
  m.problem = problem;
  m.family = "gemm";
  m.schedule = schedule;
  m.device = device;
  m.version = "0.9.0";
  m.microseconds = std::move(us);
  return m;
}

TEST(Table, TakesTheLeastMedianOfAllRepeats) {
  const std::vector<Measurement> log = {record("a", {5, 5, 50}), record("b", {1, 9, 9}),
                                        record("a", {4, 4}), record("c", {6})};
  const Table table(log);
  ASSERT_TRUE(table.find("H200", "p"));
  // a: 4 4 5 5 50; b: 1 9 9.
  EXPECT_EQ(*table.find("H200", "p"), (Table::Entry{"H200", "gemm", "a", 5}));
  EXPECT_FALSE(table.find("H200", "q"));
  EXPECT_FALSE(table.find("H100", "p"));
  EXPECT_TRUE(Table().entries().empty());
}

std::string product_of(int rows) {
  return "%0 = f16(1, " + std::to_string(rows) +
         ", 64); %1 = constant f16(64, 64); %2 = matmul(%0, %1); return %2";
}

TEST(Table, SizesOfAProblemHaveOneText) {
  EXPECT_EQ(sizeless(product_of(100)).text, sizeless(product_of(2000)).text);
  EXPECT_EQ(sizeless(product_of(100)).elements, 6400);
  EXPECT_NE(sizeless(product_of(100)).text, sizeless(product_of(1)).text);  // rows of one broadcast
  const std::string view = "%0 = f32(8, 50); %1 = reshape(%0, shape=[400]); return %1";
  EXPECT_EQ(sizeless(view).text, "%0 = f32(?, ?); %1 = reshape(%0, shape=[?]); return %1");
  const std::string conv =
      "%0 = f16(1, 64, 20, 30) lies 2 3 1; %1 = constant f16(32, 64, 3, 3); %2 = conv2d(%0, %1, "
      "stride=[2, 2], groups=1); return %2";
  EXPECT_EQ(sizeless(conv).text,
            "%0 = f16(1, ?, ?, ?) lies 2 3 1; %1 = constant f16(32, 64, 3, 3); %2 = conv2d(%0, %1, "
            "stride=[2, 2], groups=1); return %2");
}

TEST(Table, TakesFromNeighboursWhatTheyAgreeOnOrWhatIsNear) {
  const Table table(std::vector<Measurement>{
      record("a", {5}, product_of(100)), record("b", {9}, product_of(100)),
      record("a", {7}, product_of(1000)), record("b", {7}, product_of(4000))});
  const auto taken = [&](int rows) {
    const auto entry = table.neighbour("H200", product_of(rows));
    return entry ? entry->schedule : "";
  };
  EXPECT_EQ(taken(300), "a");
  EXPECT_EQ(taken(1100), "a");
  EXPECT_EQ(taken(3900), "b");
  EXPECT_EQ(taken(4500), "b");
  EXPECT_EQ(taken(2000), "");  // of which its neighbours think differently
  EXPECT_EQ(taken(50), "");
  EXPECT_FALSE(table.neighbour("H100", product_of(300)));
}

TEST(Table, NeverTakesWhatFailed) {
  std::vector<Measurement> log = {record("a", {1}), record("a", {}), record("b", {}),
                                  record("c", {3})};
  log[1].error = "wrong result";
  log[2].error = "does not compile";
  EXPECT_EQ(Table(log).find("H200", "p")->schedule, "c");
  log.pop_back();
  EXPECT_FALSE(Table(log).find("H200", "p"));
}

TEST(Table, KnowsWhatFailedAndWhatOthersMayUse) {
  std::vector<Measurement> log = {record("a", {1}), record("b", {}), record("c", {3}),
                                  record("d", {2})};
  log[1].error = "does not compile";
  const Table table(log);
  for (const char* schedule : {"a", "b", "c", "e"}) {
    const Table::Entry entry{"H200", "gemm", schedule};
    EXPECT_EQ(table.has_failed("H200", "p", entry), entry.schedule == "b") << schedule;
    EXPECT_FALSE(table.has_failed("H100", "p", entry));
    EXPECT_FALSE(table.has_failed("H200", "q", entry));
  }
  EXPECT_FALSE(table.has_failed("H200", "p", {"H200", "attention", "b"}));
  EXPECT_TRUE(table.has_failures("H200", "p"));
  EXPECT_FALSE(table.has_failures("H100", "p"));
  EXPECT_FALSE(table.has_failures("H200", "q"));

  const auto without = [&](const std::string& schedules) {
    return table.find("H200", "p", [&](const Table::Entry& entry) {
      return schedules.find(entry.schedule) == std::string::npos;
    });
  };
  EXPECT_EQ(without("a"), (Table::Entry{"H200", "gemm", "d", 2}));
  EXPECT_EQ(without("ad"), (Table::Entry{"H200", "gemm", "c", 3}));
  EXPECT_FALSE(without("acd"));
}

Measurement choice(const std::string& schedule, const std::string& time, double model_us = 450) {
  Measurement m = record(schedule, {});
  m.time = time;
  m.model_microseconds = {model_us};
  return m;
}

TEST(Table, WhatIsFastestInTheModelComesBeforeTheFastestAlone) {
  std::vector<Measurement> log = {record("a", {5}), record("b", {5.2}), record("c", {5.4}),
                                  record("d", {6.3}), choice("b", "2026-11-22T10:00:00Z")};
  const auto taken = [&] {
    const Table::Entry entry = *Table(log).find("H200", "p");
    std::reverse(log.begin(), log.end());
    EXPECT_EQ(*Table(log).find("H200", "p"), entry);
    std::reverse(log.begin(), log.end());
    EXPECT_EQ(entry.microseconds, 5) << "plans fuse as they did";
    return entry.schedule;
  };
  EXPECT_EQ(taken(), "b");
  log.push_back(choice("c", "2026-11-22T10:00:01Z", 460));
  EXPECT_EQ(taken(), "c") << "the newest";
  log.push_back(choice("b", "2026-11-22T10:00:01Z"));
  EXPECT_EQ(taken(), "b") << "of equally old ones the one with the faster model";
  log.push_back(choice("d", "2026-11-22T10:00:02Z"));
  EXPECT_EQ(taken(), "a") << "much slower alone: measured again since";
  log.back().schedule = "unknown";
  EXPECT_EQ(taken(), "a");
  log.back() = choice("d", "2026-11-22T10:00:02Z");
  const auto without = [&](const std::string& schedules) {
    return Table(log).find("H200", "p", [&](const Table::Entry& entry) {
      return schedules.find(entry.schedule) == std::string::npos;
    });
  };
  EXPECT_EQ(without("a"), (Table::Entry{"H200", "gemm", "b", 5.2})) << "6.3 is too much for 5.2";
  EXPECT_EQ(without("ab"), (Table::Entry{"H200", "gemm", "c", 5.4})) << "and for 5.4";
  log.back() = choice("c", "2026-11-22T10:00:02Z");
  EXPECT_EQ(without("a"), (Table::Entry{"H200", "gemm", "c", 5.2})) << "of those that can be used";
  EXPECT_EQ(without("c"), (Table::Entry{"H200", "gemm", "a", 5}));
  log.back() = choice("c", "2026-11-22T10:00:02Z");
  EXPECT_EQ(taken(), "c");
  log.push_back(record("c", {}));
  log.back().error = "wrong result";
  EXPECT_EQ(taken(), "a") << "what fails is never taken";
  EXPECT_FALSE(Table(std::vector{choice("a", "")}).find("H200", "p"));
}

TEST(Table, TheNewestVersionOfAProblemCounts) {
  std::vector<Measurement> log = {record("a", {1}), record("a", {7}), record("b", {5}),
                                  record("c", {}), record("d", {1}, "q")};
  log[1].version = "0.10.0";  // after 0.9.0: numbers, not letters
  log[3].error = "crashed";
  EXPECT_EQ(*Table(log).find("H200", "p"), (Table::Entry{"H200", "gemm", "a", 7}));
  EXPECT_EQ(Table(log).find("H200", "q")->schedule, "d");
  log.push_back(record("c", {8}));
  log.back().version = "1.0";  // mended since
  EXPECT_EQ(*Table(log).find("H200", "p"), (Table::Entry{"H200", "gemm", "c", 8}));
}

Measurement with(const std::string& kernels, Measurement m) {
  m.kernels = kernels;
  return m;
}

TEST(Table, TimesOfOtherKernelsCountWhereTheseHaveNone) {
  std::vector<Measurement> log = {record("a", {1}), with("old", record("b", {2})),
                                  with("old", record("a", {3})), record("d", {4}, "q")};
  const auto taken = [&](const std::string& kernels) {
    return *Table(log, kernels).find("H200", "p");
  };
  const Table::Entry mixed{"H200", "gemm", "a", 2};
  EXPECT_EQ(taken("new"), mixed);
  EXPECT_EQ(taken(""), mixed) << "where kernels are not told apart";
  EXPECT_EQ(taken("old"), (Table::Entry{"H200", "gemm", "b", 2}));
  log.push_back(with("new", record("a", {})));
  log.back().error = "wrong result";
  EXPECT_EQ(taken("new").schedule, "b") << "an error leaves the others' times";
  EXPECT_TRUE(Table(log, "new").has_failed("H200", "p", {"H200", "gemm", "a"}));
  log.push_back(with("new", record("c", {9})));
  EXPECT_EQ(taken("new"), (Table::Entry{"H200", "gemm", "c", 9}));
  EXPECT_EQ(taken("old").schedule, "b");
  EXPECT_EQ(Table(log, "new").find("H200", "q")->schedule, "d") << "of other problems they do";

  const std::vector<Measurement> kept = newest(log, "new");
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0].problem, "q");
  for (std::size_t i : {1, 2}) EXPECT_EQ(kept[i].kernels, "new");
}

TEST(Table, AChoiceWithTheseKernelsComesBeforeALaterOne) {
  const std::vector<Measurement> log = {
      with("new", record("a", {5})), with("new", record("b", {5.1})),
      with("new", record("c", {5.2})), with("new", choice("c", "2026-11-22T10:00:00Z")),
      with("old", choice("b", "2026-11-22T10:00:01Z"))};
  EXPECT_EQ(Table(log, "new").find("H200", "p")->schedule, "c");
  EXPECT_EQ(Table(log).find("H200", "p")->schedule, "b");
  EXPECT_EQ(newest(log, "new"), log) << "an old choice may still hold";
}

TEST(Table, TextBreaksTies) {
  const std::vector<Measurement> log = {record("b", {2}), record("a", {2}), record("c", {2})};
  EXPECT_EQ(Table(log).find("H200", "p")->schedule, "a");
}

TEST(Table, OtherDevicesGiveHints) {
  const std::vector<Measurement> log = {record("a", {2}, "p", "H100"),
                                        record("b", {1}, "p", "A100"), record("c", {3}),
                                        record("d", {1}, "q", "H100")};
  const Table table(log);
  EXPECT_EQ(table.find("H200", "p")->schedule, "c");
  EXPECT_FALSE(table.find("H200", "q"));
  EXPECT_EQ(table.hints("H200", "p"),
            (std::vector<Table::Entry>{{"A100", "gemm", "b", 1}, {"H100", "gemm", "a", 2}}));
  EXPECT_EQ(table.hints("H200", "q").size(), 1u);
  EXPECT_TRUE(table.hints("H100", "q").empty());
}

TEST(Table, AnyOrderOfLinesGivesTheSame) {
  std::mt19937 random(3);
  std::vector<Measurement> log;
  for (int i = 0; i < 300; ++i) {
    std::vector<double> us(random() % 4);
    for (double& t : us) t = 1 + 0.1 * static_cast<double>(random() % 40);
    Measurement m = record("s" + std::to_string(random() % 20), us,
                           "p" + std::to_string(random() % 4), random() % 2 ? "H100" : "H200");
    m.family = random() % 2 ? "gemm" : "attention";
    m.version = random() % 3 ? "0.1.0" : "0.2.0";
    m.kernels = random() % 2 ? "these" : "";
    if (us.empty()) m.error = "failed";
    log.push_back(m);
  }
  const Table table(log, "these");
  ASSERT_GE(table.entries().size(), 8u);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(log.begin(), log.end(), random);
    ASSERT_EQ(Table(log, "these").entries(), table.entries());
  }
}

}  // namespace
}  // namespace tensor
