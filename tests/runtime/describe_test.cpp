// How the places of several groups become one line of a plan or a report.
#include "src/runtime/describe.h"

#include <gtest/gtest.h>

using tensor::detail::merged_place;

namespace {

std::string merged(const std::vector<std::string>& places) {
  std::string result = places.front();
  for (const std::string& place : places) result = merged_place(result, place);
  return result;
}

TEST(Describe, PlacesAreMergedPartByPart) {
  EXPECT_EQ(merged({"layers.3.attention", "layers.4.attention"}), "layers.*.attention");
  EXPECT_EQ(merged({"layers.3.key", "layers.3.key"}), "layers.3.key");
  EXPECT_EQ(merged({"encoder.0.attention.value", "decoder.1.attention.key",
                    "decoder.5.cross_attention.value", "encoder.2.attention.key"}),
            "{encoder, decoder}.*.{attention, cross_attention}.{value, key}");
  EXPECT_EQ(merged({"a.key", "a.{key, query}", "a.value"}), "a.{key, query, value}");
}

TEST(Describe, WhatDiffersTooMuchBecomesAStar) {
  EXPECT_EQ(merged({"x.a", "x.b", "x.c", "x.d"}), "x.{a, b, c, d}");
  EXPECT_EQ(merged({"x.a", "x.b", "x.c", "x.d", "x.e"}), "x.*");
  EXPECT_EQ(merged({"x.a", "x.b", "x.c", "x.d", "x.e", "x.a"}), "x.*");
  EXPECT_EQ(merged({"x.a", "x.0"}), "x.*");
  EXPECT_EQ(merged({"layers.0.norm", "norm"}), "{layers, norm}");
  EXPECT_EQ(merged({"layers.0", ""}), "");
}

}  // namespace
