// Calls that run together: what each of them gets, and what goes wrong for whom.
#include "models/service/join.h"

#include <gtest/gtest.h>

#include <thread>

#include "tensor/creation.h"
#include "tensor/ops.h"

namespace models::service {
namespace {

using tensor::nn::StateDict;

StateDict rows(std::initializer_list<float> values) {
  return {{"x", tensor::array(std::vector<float>(values))}};
}

TEST(Join, AlikeCallsRunAsFewBatches) {
  const StateDict one = rows({1}), two = rows({2, 3});
  int runs = 0;
  const auto outcomes = run_joined({&one, &two}, Batches{{1, 2}}, [&](const StateDict& in) {
    ++runs;
    return StateDict{{"y", in.at("x") * 2}};
  });
  EXPECT_EQ(runs, 2);  // two rows, and one
  EXPECT_TRUE(tensor::array_equal(outcomes[0].outputs.at("y"), tensor::array({2.f})));
  EXPECT_TRUE(tensor::array_equal(outcomes[1].outputs.at("y"), tensor::array({4.f, 6.f})));
}

// The parts of a call do not fit together, which shows after the passes.
TEST(Join, WhoeverWaitsIsToldOfAnyError) {
  Meeting meeting(2);
  std::vector<std::string> errors(2);
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      try {
        meeting.ask(rows({1, 2}));
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
      meeting.leave();
    });
  int passes = 0;
  meeting.serve(Batches{}, [&](const StateDict& in) {
    return StateDict{{passes++ % 2 == 0 ? "y" : "z", in.at("x")}};
  });
  threads.clear();
  for (const std::string& error : errors) EXPECT_NE(error, "");
}

}  // namespace
}  // namespace models::service
