// Attributes: getters, defaults and messages.
#include "tensor/attrs.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;

const Attrs& sample() {
  static const Attrs attrs{{"axis", -1},          {"keepdims", true},      {"eps", 1e-5},
                           {"mode", "bilinear"},  {"size", Ints{2, 3}},    {"type", bf16},
                           {"shape", Dims{4, 5}}, {"nothing", AttrValue()}};
  return attrs;
}

TEST(Attrs, Getters) {
  EXPECT_EQ(sample().integer("axis"), -1);
  EXPECT_TRUE(sample().flag("keepdims"));
  EXPECT_EQ(sample().number("eps"), 1e-5);
  EXPECT_EQ(sample().number("axis"), -1);  // an integer where a number is wanted
  EXPECT_EQ(sample().text("mode"), "bilinear");
  EXPECT_EQ(sample().ints("size"), (Ints{2, 3}));
  EXPECT_EQ(sample().ints("axis"), (Ints{-1}));  // one integer where a list is wanted
  EXPECT_EQ(sample().dims("shape"), (Dims{4, 5}));
  EXPECT_EQ(sample().dtype("type"), bf16);
}

TEST(Attrs, Defaults) {
  EXPECT_TRUE(sample().has("axis"));
  EXPECT_FALSE(sample().has("nothing"));  // None counts as absent
  EXPECT_FALSE(sample().has("absent"));
  EXPECT_EQ(sample().integer("nothing", 7), 7);
  EXPECT_EQ(sample().integer("axis", 7), -1);
  EXPECT_EQ(sample().number("absent", 0.5), 0.5);
  EXPECT_EQ(sample().text("absent", "none"), "none");
  EXPECT_TRUE(sample().flag("absent", true));
  EXPECT_EQ(sample().ints("absent", {1}), (Ints{1}));
}

TEST(Attrs, SetReplacesOrAppends) {
  Attrs attrs{{"a", 1}};
  attrs.set("a", 2);
  attrs.set("b", 3);
  EXPECT_EQ(attrs, (Attrs{{"a", 2}, {"b", 3}}));
  EXPECT_FALSE(attrs == (Attrs{{"a", 2}}));
  EXPECT_EQ(attrs.entries().size(), 2u);
}

TEST(Attrs, Prints) {
  std::ostringstream text;
  text << sample();
  EXPECT_EQ(text.str(),
            "axis=-1, keepdims=true, eps=1e-05, mode=\"bilinear\", size=[2, 3], type=\"bf16\", "
            "shape=[4, 5], nothing=none");
}

// Texts of attributes tell operators apart.
TEST(Attrs, PrintsAllDigitsThatThereAre) {
  const auto text_of = [](double value) {
    std::ostringstream text;
    text << AttrValue(value);
    return text.str();
  };
  EXPECT_EQ(text_of(0.1), "0.1");
  EXPECT_EQ(text_of(0.0001), "0.0001");
  EXPECT_EQ(text_of(1e6), "1e+06");
  EXPECT_EQ(text_of(1.0000014e-5), "1.0000014e-05");
  EXPECT_EQ(text_of(1234567), "1234567");
  EXPECT_EQ(text_of(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(text_of(-INFINITY), "-inf");
  EXPECT_EQ(text_of(NAN), "nan");
}

TEST(Attrs, Messages) {
  EXPECT_EQ(error_of([] { sample().integer("absent"); }),
            "attribute: absent is missing and has no default");
  EXPECT_EQ(error_of([] { sample().flag("nothing"); }),
            "attribute: nothing is missing and has no default");
  EXPECT_EQ(error_of([] { sample().number("absent"); }),
            "attribute: absent is missing and has no default");
  EXPECT_EQ(error_of([] { sample().text("absent"); }),
            "attribute: absent is missing and has no default");
  EXPECT_EQ(error_of([] { sample().ints("absent"); }),
            "attribute: absent is missing and has no default");
  EXPECT_EQ(error_of([] { sample().integer("mode"); }),
            "attribute: mode is \"bilinear\", need an integer");
  EXPECT_EQ(error_of([] { sample().integer("eps", 1); }),
            "attribute: eps is 1e-05, need an integer");
  EXPECT_EQ(error_of([] { sample().flag("axis"); }), "attribute: axis is -1, need true or false");
  EXPECT_EQ(error_of([] { sample().number("keepdims"); }),
            "attribute: keepdims is true, need a number");
  EXPECT_EQ(error_of([] { sample().text("size"); }), "attribute: size is [2, 3], need a text");
  EXPECT_EQ(error_of([] { sample().ints("eps"); }),
            "attribute: eps is 1e-05, need a list of integers");
}

}  // namespace
}  // namespace tensor
