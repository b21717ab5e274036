// TENSOR_DUMP: what compile() prints of its stages.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"

namespace tn = tensor;

namespace {

class Dump : public testing::Test {
 protected:
  ~Dump() override { ::unsetenv("TENSOR_DUMP"); }

  // What compiling prints to stderr.
  static std::string printed(const char* words) {
    ::setenv("TENSOR_DUMP", words, 1);
    testing::internal::CaptureStderr();
    const tn::Tensor weight = tn::ones({3, 2});
    tn::compile(
        [&](const std::vector<tn::Tensor>& in) {
          return std::vector{tn::exp(tn::matmul(in[0], weight))};
        },
        {{{4, 3}, tn::f32}});
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(Dump, PrintsWhatIsAskedFor) {
  const std::pair<const char*, const char*> kMarks[] = {{"graph", "-- traced\n"},
                                                        {"plan", "-- plan\n"},
                                                        {"schedule", "-- schedules\n"},
                                                        {"time", "stage fuse: "},
                                                        {"dot", "digraph"}};
  EXPECT_EQ(printed(""), "");
  for (const auto& [word, own] : kMarks) {
    const std::string text = printed(word);
    for (const auto& [other, mark] : kMarks)
      EXPECT_EQ(text.find(mark) != std::string::npos, mark == own) << word << ":\n" << text;
  }
  const std::string both = printed("plan,time");
  EXPECT_NE(both.find("-- plan\n"), std::string::npos) << both;
  EXPECT_NE(both.find("stage fuse: "), std::string::npos) << both;
  EXPECT_NE(printed("graph").find("-- after "), std::string::npos);
}

TEST_F(Dump, RefusesOtherWords) {
  for (const char* words : {"plans", "graph,plans", "graph plans"}) {
    ::setenv("TENSOR_DUMP", words, 1);
    const std::string wrong = words == std::string("graph,plans") ? "plans" : words;
    EXPECT_EQ(
        tn::check::error_of([] {
          tn::compile([](const std::vector<tn::Tensor>& in) { return in; }, {{{2}, tn::f32}});
        }),
        "TENSOR_DUMP: got \"" + wrong +
            "\", need graph, dot, plan, schedule, source or time, or several with commas between "
            "them");
  }
}

}  // namespace
