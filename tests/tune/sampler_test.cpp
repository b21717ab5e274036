#include "src/tune/sampler.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tensor/error.h"
#include "tests/tune/landscape.h"

namespace tensor {
namespace {

// 6 x 4 + 3 combinations, of which a + b odd, and c = 1, are valid: 12 + 1.
Space small() {
  Space space;
  space.sketches = {{"plain", {{"a", {0, 1, 2, 3, 4, 5}}, {"b", {0, 1, 2, 3}}}},
                    {"split", {{"c", {0, 1, 2}}}}};
  space.fault = [](const Schedule& s) -> std::string {
    const bool is_valid =
        s.sketch == "split" ? *s.value("c") == 1 : (*s.value("a") + *s.value("b")) % 2 == 1;
    return is_valid ? "" : "even";
  };
  return space;
}

TEST(Sampler, EveryValidScheduleIsAsLikely) {
  const Space space = small();
  const std::size_t valid = 13;
  for (const std::int64_t most : {std::int64_t{1000}, std::int64_t{0}}) {  // listed, and drawn
    const Sampler sampler(space, most);
    EXPECT_EQ(sampler.all().has_value(), most > 0);
    Random random(1);
    std::map<std::string, int> counts;
    constexpr int kDraws = 13000;
    for (int i = 0; i < kDraws; ++i) {
      const Schedule s = sampler.sample(random);
      ASSERT_TRUE(space.has(s)) << s.text();
      ++counts[s.text()];
    }
    ASSERT_EQ(counts.size(), valid);
    // Chi squared of 12 degrees of freedom is above 39.1 in one of 10,000 cases.
    double chi = 0;
    for (const auto& [text, count] : counts) chi += (count - 1000.) * (count - 1000.) / 1000;
    EXPECT_LT(chi, 39.1);
  }
}

TEST(Sampler, TheSeedDecides) {
  const Space space = testing::space_of(testing::products()[0]);
  const Sampler sampler(space);
  const auto draws = [&](std::uint64_t seed) {
    Random random(seed);
    std::vector<std::string> texts;
    for (int i = 0; i < 50; ++i) {
      const Schedule one = sampler.sample(random), other = sampler.sample(random);
      texts.push_back(one.text());
      if (const auto child = sampler.mutate(one, random)) texts.push_back(child->text());
      if (const auto child = sampler.cross(one, other, random)) texts.push_back(child->text());
    }
    return texts;
  };
  EXPECT_EQ(draws(7), draws(7));
  EXPECT_NE(draws(7), draws(8));
}

TEST(Sampler, ChildrenAreValidAndNew) {
  const Space space = testing::space_of(testing::products()[1]);
  const Sampler sampler(space);
  Random random(2);
  int mutated = 0, crossed = 0, other_sketch = 0;
  for (int i = 0; i < 1000; ++i) {
    const Schedule one = sampler.sample(random), other = sampler.sample(random);
    if (const auto child = sampler.mutate(one, random)) {
      ++mutated;
      ASSERT_TRUE(space.has(*child)) << child->text();
      ASSERT_NE(*child, one);
      other_sketch += child->sketch != one.sketch;
    }
    if (const auto child = sampler.cross(one, other, random)) {
      ++crossed;
      ASSERT_TRUE(space.has(*child)) << child->text();
      ASSERT_TRUE(*child != one && *child != other);
      ASSERT_TRUE(child->sketch == one.sketch || child->sketch == other.sketch);
      if (one.sketch != other.sketch) continue;
      for (const auto& [name, value] : child->values)  // each a parent's
        ASSERT_TRUE(one.value(name) == value || other.value(name) == value) << name;
    }
  }
  EXPECT_GT(mutated, 900);
  EXPECT_GT(crossed, 500);
  EXPECT_GT(other_sketch, 50);
}

TEST(Sampler, MutationReachesEverything) {
  const Space space = small();
  const Sampler sampler(space);
  Random random(3);
  Schedule at = sampler.all()->front();
  std::set<std::string> seen;
  for (int i = 0; i < 3000; ++i)
    if (const auto child = sampler.mutate(at, random)) {
      at = *child;
      seen.insert(at.text());
    }
  EXPECT_EQ(seen.size(), 13u);
}

TEST(Sampler, SaysThatNothingIsValid) {
  Space space = small();
  space.fault = [](const Schedule&) { return "no"; };
  EXPECT_THROW(Sampler{space}, UserError);
  Random random(1);
  EXPECT_THROW(Sampler(space, 0).sample(random), UserError);
  space = small();
  space.sketches = {{"empty", {{"a", {}}}}};
  EXPECT_THROW(Sampler{space}, UserError);
}

TEST(Sampler, OneWayOnlyHasNoChildren) {
  Space space;
  space.sketches = {{"only", {{"a", {1}}}}};
  space.fault = [](const Schedule&) { return ""; };
  const Sampler sampler(space);
  Random random(1);
  const Schedule only = sampler.sample(random);
  EXPECT_EQ(only.text(), "only a=1");
  EXPECT_EQ(sampler.mutate(only, random), std::nullopt);
  EXPECT_EQ(sampler.cross(only, only, random), std::nullopt);
}

}  // namespace
}  // namespace tensor
