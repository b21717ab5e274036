// Schedules and their texts; the sizes of spaces.
#include "src/kernels/schedule.h"

#include <gtest/gtest.h>

#include <set>

#include "tensor/error.h"
#include "tests/error_of.h"

namespace tensor {
namespace {

Space small_space() {
  Space space;
  space.sketches = {
      {"tiled", {{"rows", {64, 128}}, {"columns", {64, 96, 128}}, {"stages", {2, 4}}}},
      {"swapped", {{"tokens", {8, 16}}}},
      {"single", {}}};
  space.fault = [](const Schedule& s) -> std::string {
    const int rows = s.value("rows").value_or(0), columns = s.value("columns").value_or(0);
    return rows * columns > 128 * 96 ? "too many sums" : "";
  };
  return space;
}

TEST(Schedule, TextAndBack) {
  const Schedule s{"swapped", {{"tokens", 104}, {"splits", 4}, {"late", 0}}};
  EXPECT_EQ(s.text(), "swapped tokens=104 splits=4 late=0");
  EXPECT_EQ(Schedule::parse(s.text()), s);
  EXPECT_EQ(Schedule::parse("whole"), (Schedule{"whole", {}}));
  EXPECT_EQ(Schedule::parse("a b=-3").value("b"), -3);
  EXPECT_EQ(s.value("splits"), 4);
  EXPECT_EQ(s.value("stages"), std::nullopt);
}

TEST(Schedule, OtherTextsAreRefused) {
  for (const char* text : {"", " ", "Tiled", "tiled ", " tiled", "tiled  rows=1", "tiled rows",
                           "tiled rows=", "tiled =1", "tiled rows=1.5", "tiled rows=01",
                           "tiled rows=1 rows=2", "tiled rows=1\n", "tiled rows=99999999999",
                           "tiled rows=1,columns=2", "tiled rows=0x10", "tiled rows=+1"})
    EXPECT_THROW(Schedule::parse(text), UserError) << '"' << text << '"';
  const std::string text = check::error_of([] { Schedule::parse("tiled rows=many"); });
  EXPECT_NE(text.find("\"rows=many\" in \"tiled rows=many\""), std::string::npos) << text;
}

TEST(Schedule, SketchesCountTheirSchedules) {
  const Sketch sketch = small_space().sketches[0];
  ASSERT_EQ(sketch.combinations(), 12);
  std::set<std::string> texts;
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(sketch.contains(sketch.at(i)));
    texts.insert(sketch.at(i).text());
  }
  EXPECT_EQ(texts.size(), 12u);
  EXPECT_EQ(sketch.at(0).text(), "tiled rows=64 columns=64 stages=2");
  EXPECT_EQ(sketch.at(1).text(), "tiled rows=64 columns=64 stages=4");
  EXPECT_EQ(sketch.at(11).text(), "tiled rows=128 columns=128 stages=4");
}

TEST(Schedule, SpacesHoldWhatIsValid) {
  const Space space = small_space();
  EXPECT_EQ(space.size(), 10 + 2 + 1);
  ASSERT_EQ(space.all().size(), 13u);
  for (const Schedule& s : space.all()) EXPECT_TRUE(space.has(s)) << s.text();
  for (const char* text :
       {"tiled rows=128 columns=128 stages=2", "tiled rows=65 columns=64 stages=2",
        "tiled columns=64 rows=64 stages=2", "tiled rows=64 columns=64", "swapped tokens=24",
        "single rows=64", "other"})
    EXPECT_FALSE(space.has(Schedule::parse(text))) << text;
}

TEST(Schedule, WhatDoesNotFitFallsBack) {
  Space space = small_space();
  space.chosen = Schedule::parse("swapped tokens=8");
  EXPECT_EQ(space.of(""), space.chosen);
  EXPECT_EQ(space.of("swapped tokens=16").text(), "swapped tokens=16");
  EXPECT_EQ(space.of("swapped tokens=24"), space.chosen);
  EXPECT_EQ(space.of("tiled rows=128 columns=128 stages=2"), space.chosen);
  EXPECT_THROW(space.of("swapped tokens"), UserError);

  space.model_us = [](const Schedule& s) {
    return s.sketch == "tiled" ? 1000. / *s.value("rows") + *s.value("stages") : 50;
  };
  space.choose(Schedule::parse("swapped tokens=16"));
  EXPECT_EQ(space.chosen.text(), "swapped tokens=16");
  space.choose(Schedule::parse("swapped tokens=24"));
  EXPECT_EQ(space.chosen.text(), "tiled rows=128 columns=64 stages=2");
}

TEST(Schedule, KernelsOfOtherSizesRunWhereNothingForbidsIt) {
  Space space = small_space();
  for (Sketch& sketch : space.sketches)
    if (sketch.name == "swapped") sketch.knobs[0].is_of_size = true;
  const auto runs = [&](const char* text) { return space.runs(Schedule::parse(text)); };
  EXPECT_TRUE(runs("swapped tokens=24"));
  EXPECT_FALSE(space.has(Schedule::parse("swapped tokens=24"))) << "nobody would try it";
  EXPECT_EQ(space.of("swapped tokens=24").text(), "swapped tokens=24");
  EXPECT_FALSE(runs("swapped groups=24"));
  EXPECT_FALSE(runs("tiled rows=65 columns=64 stages=2")) << "it has these rows in any size";
  EXPECT_FALSE(runs("tiled rows=128 columns=128 stages=2"));
  space.impossible = [](const Schedule& s) {
    return s.value("tokens").value_or(0) > 32 ? "too many tokens" : "";
  };
  EXPECT_TRUE(runs("tiled rows=128 columns=128 stages=2")) << "it has a fault, but can be run";
  EXPECT_FALSE(runs("swapped tokens=40"));
  EXPECT_TRUE(runs("swapped tokens=32"));
}

}  // namespace
}  // namespace tensor
