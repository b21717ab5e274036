// Tensors that a function writes into while it is traced: the graph computes what the eager call
// does, whichever way they are written.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "src/trace/trace.h"
#include "tensor/compile.h"
#include "tensor/io.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"
#include "tests/seed.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

constexpr std::int64_t kFew = 8, kMany = 300'000;  // of a tensor; small and large for a trace
const char* const kUnseen = "after its first use, while the function was traced, where it is not";

// What a random function finds when it is called, and what it keeps until the next call.
struct World {
  Tensors tensors;
  std::vector<float*> pointers;
  std::deque<std::vector<float>> buffers;

  explicit World(bool has_large) {
    tensors = {tn::zeros({kFew}), tn::ones({kFew}), tn::zeros({2, kFew / 2})};
    adopt(tensors[0].mutable_data<float>());
    add_buffer(kFew, 3);
    if (has_large) {
      tensors.push_back(tn::zeros({kMany}));
      add_buffer(kMany, 5);
    }
  }
  void adopt(float* pointer) { pointers.push_back(pointer); }
  void add_buffer(std::int64_t size, float value) {
    buffers.emplace_back(static_cast<std::size_t>(size), value);
    tensors.push_back(
        tn::from_memory(static_cast<void*>(buffers.back().data()), {size}, tn::f32, nullptr));
    adopt(buffers.back().data());
  }
};

// One function: it does the same things whenever it is called, with whatever the world holds by
// then.
class RandomFunction {
 public:
  RandomFunction(std::uint64_t seed, World& world) : random_(seed), world_(world) {}

  Tensor operator()(const Tensor& x) {
    Tensor y = x;
    World& w = world_;
    const std::size_t first = w.tensors.size(), pointers = w.pointers.size();
    for (int step = 0; step < 14; ++step) {
      if (below(2) == 0) {
        y = used(y, pick());
      } else {
        write();
      }
    }
    w.tensors.resize(first);
    w.pointers.resize(pointers);  // others do not outlive the call
    return y;
  }

 private:
  std::size_t below(std::size_t count) { return random_() % count; }
  Tensor& pick() { return world_.tensors[below(world_.tensors.size())]; }
  float next() { return static_cast<float>(++count_); }

  Tensor used(const Tensor& y, const Tensor& t) {
    const Tensor row = t.rank() == 2 ? t(below(2)) : t;
    if (t.size() == kMany && below(2) == 0) return y + tn::max(row * y(0));
    if (below(4) == 0) return y * 0.5 + row(static_cast<int>(below(2)));
    const int from = static_cast<int>(below(static_cast<std::size_t>(row.size()) - 1));
    return y * 0.5 + row(tn::slice(from, from + 2));
  }

  void write() {
    World& w = world_;
    Tensor t = pick();
    if (t.is_read_only()) t = w.tensors[1];
    const Tensor small = t.size() < kMany ? t : w.tensors[2];
    switch (below(22)) {
      case 0:
        t(0) = next();
        break;
      case 1:
        t(tn::slice(0, 1)) += next();
        break;
      case 2:
        t(tn::ellipsis) = next();
        break;
      case 3:
        small(small > 2) = next();
        break;
      case 4:
        at(t) = next();
        break;
      case 5:
        t.mutable_data<float>()[below(2)] = next();
        break;
      case 6: {
        auto view = t(tn::slice(0, 2));
        view -= next();
        break;
      }
      case 7:
        for (auto row : small) row += next();
        break;
      case 8:
      case 9:
      case 10:
        w.pointers[below(w.pointers.size())][below(2)] = next();
        break;
      case 11:
        kept_.push_back(t), w.adopt(t.mutable_data<float>());
        break;
      case 12:
        w.tensors.push_back((t.rank() == 2 ? Tensor(t(0)) : t)(tn::slice(0, 2)));
        break;
      case 13:
        kept_.push_back(t), w.adopt(&at(t));
        break;
      case 14:
        std::thread([&] { t(-1) = next(); }).join();
        break;
      case 15:
        w.add_buffer(kFew, next());
        break;
      case 16: {
        const void* memory = w.buffers.front().data();
        w.tensors.push_back(tn::from_memory(memory, {kFew}, tn::f32, nullptr));
        break;
      }
      case 17:
        w.tensors.push_back(tn::from_dlpack(tn::to_dlpack(t)));
        break;
      case 18:
        small(tn::array({0, 1})) = next();
        break;
      case 19: {
        static const tn::Executable twice =
            tn::compile([](const Tensors& in) { return Tensors{in[0] * 2}; },
                        {tn::TensorType{{kFew}, tn::f32}});
        Tensors outputs = {w.tensors[below(2)]};
        twice.run({tn::full({kFew}, next(), tn::f32)}, outputs);
        break;
      }
      case 20:
        w.tensors.push_back(tn::zeros({kFew}) + next());
        break;
      default: {
        const tn::Graph inner = tn::trace(
            [&](const Tensors& in) -> Tensors {
              const Tensor before = in[0] + small;
              small(0) = next();
              return {before + small};
            },
            {small.type()});
        w.tensors.push_back(tn::interpret(inner, {small.copy()})[0]);
      }
    }
  }
  float& at(Tensor& t) { return t.rank() == 2 ? t.at<float>(0, 0) : t.at<float>(0); }

  std::mt19937_64 random_;
  World& world_;
  Tensors kept_;
  int count_ = 0;
};

Tensors call(std::uint64_t seed, World& world, const Tensors& in) {
  // The graph of the first call holds what the function keeps, as a function of a program would.
  return {RandomFunction(seed, world)(in[0])};
}

// Whether it was refused. Traces the function twice: it writes while another graph is there.
bool check(std::uint64_t seed, bool has_large) {
  SCOPED_TRACE("TENSOR_SEED=" + std::to_string(seed));
  const Tensor x = tn::array({0.5f, -1.0f});
  World called(has_large), traced(has_large);
  const auto function = [&](World& world) {
    return [&](const Tensors& in) { return call(seed, world, in); };
  };
  try {
    std::vector<tn::Graph> graphs;
    Tensors expected;
    for (int time = 0; time < 2; ++time) {
      expected.push_back(function(called)({x})[0]);
      graphs.push_back(tn::trace(function(traced), {x.type()}));
    }
    for (std::vector<float>& buffer : traced.buffers)
      if (buffer.size() < kMany) std::fill(buffer.begin(), buffer.end(), -77.0f);
    for (std::size_t time = 0; time < 2; ++time)
      EXPECT_EQ(tn::interpret(graphs[time], {x})[0].to_vector<float>(),
                expected[time].to_vector<float>())
          << "call " << time;
  } catch (const tn::UserError& error) {
    EXPECT_NE(std::string(error.what()).find(kUnseen), std::string::npos) << error.what();
    EXPECT_TRUE(has_large) << error.what();
    return true;
  }
  return false;
}

// One in a hundred has large tensors, with which some are refused.
void check_many(int functions) {
  const int large = functions / 100;
  int refused = 0;
  for (int i = 0; i < functions && !::testing::Test::HasFailure(); ++i)
    refused += check(tn::check::seed() + static_cast<std::uint64_t>(i), i < large);
  EXPECT_LT(refused, large / 2 + 1);
}
TEST(Constants, RandomFunctionsThatWriteAgreeWithTheEagerCall) { check_many(1000); }
TEST(Constants, ManyRandomFunctionsThatWriteAgreeWithTheEagerCall) { check_many(20'000); }

void compare(const std::function<Tensor(const Tensor&)>& function) {
  const Tensor x = tn::zeros({2});
  const Tensor eager = function(x),
               compiled = tn::compile([&](const Tensors&in) { return Tensors{function(in[0])}; },
                                      Tensors{x})({x})[0];
  EXPECT_EQ(compiled.to_vector<float>(), eager.to_vector<float>());
}

TEST(Constants, CompiledFunctionsAgreeToo) {
  compare([](const Tensor& x) {
    Tensor t = tn::zeros({2}), y = x;
    for (int i = 0; i < 3; ++i) {
      y = y * 2 + t;
      t(0) = i, t.at<float>(1) += 1;
    }
    return y;
  });
  compare([](const Tensor& x) {
    Tensor t = tn::zeros({2});
    float* const to = t.mutable_data<float>();
    Tensor y = x;
    for (int i = 0; i < 3; ++i) y = y + t, to[i % 2] += 1;
    return y;
  });
  compare([](const Tensor& x) {
    std::vector<float> table = {1, 2};
    Tensor y = x;
    for (int i = 0; i < 3; ++i) {
      y = y + tn::from_memory(static_cast<const void*>(table.data()), {2}, tn::f32, nullptr);
      table[0] *= 3;
    }
    return y;  // the table is no more when the graph is run
  });
  compare([](const Tensor& x) {
    const Tensor t = tn::zeros({2}), y = x + t;
    t(tn::ellipsis) = 7;
    return y;
  });
}

TEST(Constants, ACompiledFunctionKeepsWhatItWroteForOtherTypes) {
  const Tensor scratch = tn::zeros({1});
  const auto size = tn::compile([&](const Tensor& x) {
    scratch(0) = x.size();
    return x + scratch;
  });
  for (const int extent : {2, 3, 2}) EXPECT_EQ(size(tn::zeros({extent})).item(0), extent);
}

TEST(Constants, CallsAreRefusedAfterAnAssignmentToWhatIsShared) {
  Tensor bias = tn::zeros({2});
  const Tensor x = tn::ones({2});
  const auto f = [&](const Tensors& in) -> Tensors { return {in[0] + bias}; };
  const tn::Executable plan = tn::compile(f, Tensors{x}, {.names = {{"head.bias", bias}}});
  static_cast<void>(bias.at<float>(0));  // reads
  EXPECT_EQ(plan({x})[0].item(0), 1);
  bias(0) = 5;
  const std::string text =
      "run: the constant head.bias (f32(2,)) was written into after the function was compiled, "
      "which computes with some old and some new values: compile it again, or write into a copy()";
  Tensors outputs = {tn::empty({2})};
  EXPECT_EQ(tn::check::error_of([&] { plan({x}); }), text);
  EXPECT_EQ(tn::check::error_of([&] { plan.run({x}, outputs); }), text);
  EXPECT_EQ(tn::compile(f, Tensors{x})({x})[0].item(0), 6);
}

TEST(Constants, WhatNobodyWritesIsShared) {
  const Tensor weight = tn::zeros({kMany});
  std::vector<float> memory(kMany);
  const Tensor foreign =
      tn::from_memory(static_cast<const void*>(memory.data()), {kMany}, tn::f32, nullptr);
  const tn::Graph graph = tn::trace(
      [&](const Tensors& in) -> Tensors {
        return {in[0] * weight + foreign, weight};
      },
      {weight.type()});
  for (const tn::Node& node : graph.nodes()) {
    if (node.kind != tn::NodeKind::constant) continue;
    EXPECT_TRUE(node.constant.shares_storage(weight) || node.constant.shares_storage(foreign));
  }
}

TEST(Constants, AWriteThatIsNotSeenIsRefused) {
  Tensor weight = tn::zeros({kMany});
  float* const pointer = weight.mutable_data<float>();
  const auto refused = [&](bool is_used_again) {
    return tn::check::error_of([&] {
      tn::trace(
          [&](const Tensors& in) -> Tensors {
            Tensor y = in[0] + weight;
            pointer[7] += 1;
            if (is_used_again) y = y + weight;
            return {y};
          },
          {weight.type()}, {{"head.weight", weight}});
    });
  };
  const std::string text =
      "trace: the constant head.weight (f32(300000,)) was written into after its first use, while "
      "the function was traced, where it is not seen: through a pointer or reference of "
      "mutable_data(), at() or DLPack from before, or in the memory that from_memory() was given. "
      "Assign with x(...) = value, ask for a new pointer before each write, or use a copy()";
  EXPECT_EQ(refused(true), text);
  EXPECT_EQ(refused(false), text);
}

TEST(Constants, ManyThreadsMayTraceWithTheSameOnes) {
  const Tensor shared = tn::ones({kFew});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        const Tensor own = tn::zeros({kFew}), x = tn::ones({kFew});
        const auto f = [&](const Tensors& in) -> Tensors {
          const Tensor y = in[0] + shared + own;
          own(0) += 1;
          return {y + own};
        };
        const tn::Graph graph = tn::trace(f, {x.type()});
        EXPECT_EQ(tn::interpret(graph, {x})[0].item(0), 2 + 1);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
