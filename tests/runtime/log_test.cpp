// What compiling tells in the log.
#include "tensor/log.h"

#include <gtest/gtest.h>

#include "tensor/compile.h"
#include "tensor/tensor.h"

namespace tn = tensor;

namespace {

TEST(LogOfCompiling, TellsOfEverySizeAndOfThoseThatAreLetGo) {
  std::vector<std::string> lines;
  tn::set_log([&](tn::LogLevel, std::string_view text) { lines.emplace_back(text); },
              tn::LogLevel::info);
  const tn::Compiled doubled(
      [](const std::vector<tn::Tensor>& in) { return std::vector{in[0] * 2.f}; }, {.threads = 1},
      1);
  doubled({tn::zeros({3})});
  doubled({tn::zeros({3})});
  doubled({tn::zeros({4})});
  tn::set_log(nullptr);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].rfind("compile: the inputs f32(3,) took ", 0), 0u) << lines[0];
  EXPECT_EQ(lines[1].rfind("compile: the inputs f32(4,) took ", 0), 0u) << lines[1];
  EXPECT_EQ(lines[2],
            "Compiled: let go of the inputs f32(3,), since it keeps 1 sizes: give it a larger "
            "capacity");
}

}  // namespace
