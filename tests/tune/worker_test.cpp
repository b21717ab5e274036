// Workers, whose items do all that a bad kernel can do to its process.
#include "src/tune/worker.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "src/core/parallel.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"

namespace tensor {
namespace {

using Items = std::vector<std::string>;

void misbehave(const std::string& item, Channel& channel) {
  if (item == "crash") std::raise(SIGSEGV);
  if (item == "abort") std::abort();
  if (item == "exit") _exit(3);
  if (item == "hang")
    while (true) pause();
  if (item == "throw") throw std::runtime_error("no such kernel");
  if (item == "garbage") {
    const char noise[] = "nothing that begins like a message, and it does not end like one";
    ::send(channel.descriptor(), noise, sizeof noise, MSG_NOSIGNAL);
    while (true) pause();
  }
  if (item == "half") {
    const char half[8] = {};
    ::send(channel.descriptor(), half, sizeof half, MSG_NOSIGNAL);
    _exit(0);
  }
}

// One item after the other.
void in_order(const Items& items, Channel& channel) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    channel.begin(i);
    try {
      misbehave(items[i], channel);
      channel.done(i, "did " + items[i]);
    } catch (const std::exception& error) {
      channel.failed(i, error.what());
    }
  }
}

constexpr Worker::Limits kShort{.item_seconds = 0.5, .idle_seconds = 2};

TEST(Worker, AnswersInTheOrderOfItsItems) {
  Worker worker(in_order, kShort);
  EXPECT_EQ(worker.starts(), 0);
  const auto answers = worker.run({"a", std::string("b\0c", 3), ""});
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0].result, "did a");
  EXPECT_EQ(answers[1].result, std::string("did b\0c", 7));
  EXPECT_EQ(answers[2].result, "did ");
  EXPECT_EQ(worker.run({"again"})[0].result, "did again");
  EXPECT_EQ(worker.starts(), 1);
  EXPECT_TRUE(worker.run({}).empty());
}

TEST(Worker, OneBadItemCostsItself) {
  const std::pair<const char*, const char*> bad[] = {
      {"crash", "Segmentation fault"}, {"abort", "Aborted"},        {"exit", "exit code 3"},
      {"hang", "longer than 0.5 s"},   {"throw", "no such kernel"}, {"garbage", "no message"},
      {"half", "exit code 0"}};
  for (const auto& [item, reason] : bad) {
    SCOPED_TRACE(item);
    Worker worker(in_order, kShort);
    const auto answers = worker.run({"a", item, "b", item, "c"});
    for (const std::size_t good : {0, 2, 4}) {
      EXPECT_EQ(answers[good].error, "");
      EXPECT_EQ(answers[good].result, "did " + std::string(1, "abc"[good / 2]));
    }
    for (const std::size_t i : {1, 3}) {
      EXPECT_EQ(answers[i].result, "");
      EXPECT_NE(answers[i].error.find(reason), std::string::npos) << answers[i].error;
    }
    EXPECT_EQ(worker.starts(), std::string(item) == "throw" ? 1 : 3);
  }
}

TEST(Worker, OfItemsUnderWayTogetherTheBadOneIsFound) {
  Worker worker(
      [](const Items& items, Channel& channel) {
        for (std::size_t i = 0; i < items.size(); ++i) channel.begin(i);
        channel.done(0, "early");
        channel.pause(1);
        for (std::size_t i = items.size(); i-- > 1;) misbehave(items[i], channel);
        for (std::size_t i = 1; i < items.size(); ++i) channel.done(i, "late");
      },
      kShort);
  // Alone an item is the first of its batch, which `early` answers.
  const auto answers = worker.run({"a", "b", "c", "crash", "d"});
  EXPECT_EQ(answers[0].result, "early");
  EXPECT_EQ(answers[1].result, "early");  // in a batch with nothing that crashes
  for (const std::size_t i : {2, 4}) EXPECT_EQ(answers[i].result, "early");
}

TEST(Worker, ABadItemAmongThoseUnderWayFailsAlone) {
  Worker worker(
      [](const Items& items, Channel& channel) {
        for (std::size_t i = 0; i < items.size(); ++i) channel.begin(i);
        for (const std::string& item : items) misbehave(item, channel);
        for (std::size_t i = 0; i < items.size(); ++i) channel.done(i, "good");
      },
      kShort);
  const auto answers = worker.run({"a", "hang", "b", "crash", "c"});
  for (const std::size_t good : {0, 2, 4}) EXPECT_EQ(answers[good].result, "good");
  EXPECT_NE(answers[1].error.find("longer"), std::string::npos) << answers[1].error;
  EXPECT_NE(answers[3].error.find("Segmentation"), std::string::npos) << answers[3].error;
}

TEST(Worker, WhatIsThrownAnswersTheRest) {
  Worker worker(
      [](const Items&, Channel& channel) {
        channel.done(0, "first");
        throw std::runtime_error("there is no GPU");
      },
      kShort);
  const auto answers = worker.run({"a", "b"});
  EXPECT_EQ(answers[0].result, "first");
  EXPECT_EQ(answers[1].error, "there is no GPU");
}

TEST(Worker, AChildThatCannotStartEndsTheBatch) {
  Worker worker([](const Items&, Channel&) { _exit(7); }, kShort);
  for (const Answer& answer : worker.run({"a", "b", "c"}))
    EXPECT_NE(answer.error.find("exit code 7"), std::string::npos) << answer.error;
  EXPECT_EQ(worker.starts(), 2);
  Worker idle(
      [](const Items&, Channel&) {
        while (true) pause();
      },
      {.item_seconds = 0.2, .idle_seconds = 0.2});
  EXPECT_NE(idle.run({"a"})[0].error.find("nothing"), std::string::npos);
}

TEST(Worker, StopsAtOnceAndKeepsWhatIsDone) {
  bool stop = false;
  Worker worker(in_order, {.item_seconds = 60, .idle_seconds = 60}, [&] { return stop; });
  const auto answers =
      worker.run({"a", "hang", "b"}, [&](std::size_t, const Answer&) { stop = true; });
  EXPECT_EQ(answers[0].result, "did a");
  EXPECT_FALSE(answers[1].is_given());
  EXPECT_FALSE(answers[2].is_given());
}

// A log that cannot be written, say, while several items are under way.
TEST(Worker, WhatItsHearerThrowsIsNoFaultOfAnItem) {
  Worker worker(
      [](const Items& items, Channel& channel) {
        for (std::size_t i = 0; i < items.size(); ++i) channel.begin(i);
        for (std::size_t i = 0; i < items.size(); ++i) channel.done(i, "good");
      },
      {.item_seconds = 60, .idle_seconds = 60});
  std::vector<std::size_t> heard;
  const auto full = [&](std::size_t item, const Answer&) {
    heard.push_back(item);
    throw UserError("tuned.jsonl: No space left on device");
  };
  EXPECT_THROW(worker.run({"a", "b"}, full), UserError);
  EXPECT_EQ(heard, std::vector<std::size_t>{0});
  // The child that nobody listened to is gone, and another one serves the next batch.
  const auto answers = worker.run({"a", "b"});
  for (const Answer& answer : answers) EXPECT_EQ(answer.result, "good") << answer.error;
  EXPECT_EQ(worker.starts(), 2);
}

// Ctrl-C reaches every process of a terminal.
TEST(Worker, TheChildLeavesInterruptsToItsParent) {
  Worker worker(
      [](const Items&, Channel& channel) {
        std::raise(SIGINT);
        channel.done(0, "alive");
      },
      kShort);
  EXPECT_EQ(worker.run({"a"})[0].result, "alive");
}

TEST(Worker, AFreshChildKnowsWhatThisProcessKnows) {
  std::vector<std::string> names = {"first"};
  Worker worker(
      [&](const Items& items, Channel& channel) {
        for (std::size_t i = 0; i < items.size(); ++i) {
          const auto number = static_cast<std::size_t>(std::stoi(items[i]));
          if (number < names.size()) channel.done(i, names[number]);
        }
      },
      kShort);
  EXPECT_EQ(worker.run({"0"})[0].result, "first");
  names.push_back("second");
  EXPECT_EQ(worker.run({"1"})[0].error, "got no answer");
  worker.end();
  EXPECT_EQ(worker.run({"1"})[0].result, "second");
}

// A forked child has none of its parent's threads.
TEST(Worker, ChildrenRunParallelLoopsAfterTheirParentDid) {
  std::atomic<int> sum = 0;
  const auto add = [&] {
    sum = 0;
    cpu::parallel_for(2, 100, [&](std::int64_t i, int) { sum += static_cast<int>(i); });
    return std::to_string(sum);
  };
  ASSERT_EQ(add(), "4950");
  Worker worker(
      [&](const Items&, Channel& channel) {
        channel.begin(0);
        channel.done(0, add());
      },
      {.item_seconds = 10, .idle_seconds = 10});
  EXPECT_EQ(worker.run({"a"})[0].result, "4950");
  worker.end();
  EXPECT_EQ(worker.run({"a"})[0].result, "4950");
  EXPECT_EQ(add(), "4950");
}

// The same for oneDNN's loops, with kernels that the parent made and ran.
TEST(Worker, ChildrenRunWhatTheirParentCompiled) {
  Generator random(4);
  const Tensor filters = random.normal({32, 16, 3, 3}), x = random.normal({1, 16, 24, 24});
  const Executable fast = compile(
      [=](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        return {softmax(conv2d(in[0], filters), -1)};
      },
      std::vector<Tensor>{x}, {.threads = 2});
  const Tensor want = fast({x})[0];
  Worker worker(
      [&](const Items&, Channel& channel) {
        channel.begin(0);
        channel.done(0, all(fast({x})[0] == want).item<bool>() ? "equal" : "different");
      },
      {.item_seconds = 20, .idle_seconds = 20});
  EXPECT_EQ(worker.run({"a"})[0].result, "equal");
}

}  // namespace
}  // namespace tensor
