// What verify() refuses: graphs that a faulty pass might make. The Graph's own functions infer
// types and know only values that are there, so that faults are planted in finished nodes.
#include <gtest/gtest.h>

#include <functional>

#include "src/trace/graph.h"
#include "tensor/tensor.h"

namespace tn = tensor;
using tn::Graph;
using tn::ValueId;

namespace {

struct Ids {
  ValueId input, constant, sum, result;
};

// exp(input + constant), with a fault; the text of the error without its ending, or "no error".
std::string refused(const std::function<void(Graph&, const Ids&)>& plant) {
  Graph graph;
  Ids ids;
  ids.input = graph.add_input({{2, 3}, tn::f32});
  ids.constant = graph.add_constant(tn::ones({3}));
  ids.sum = graph.add(tn::Op::add, {ids.input, ids.constant});
  ids.result = graph.add(tn::Op::exp, {ids.sum});
  graph.set_outputs({ids.result});
  plant(graph, ids);
  try {
    tn::verify(graph, "a pass");
  } catch (const tn::InternalError& error) {
    const std::string text = error.what();
    return text.substr(0, text.find(" (a fault in tensor itself"));
  }
  return "no error";
}

// The graph is no constant, so its nodes may be written to.
tn::Node& node(Graph& graph, ValueId id) { return const_cast<tn::Node&>(graph[id]); }

TEST(Verify, AcceptsWhatGraphsAreMadeOf) {
  EXPECT_EQ(refused([](Graph&, const Ids&) {}), "no error");
  EXPECT_EQ(refused([](Graph& g, const Ids& ids) {
              g.set_outputs({ids.input, ids.constant, ids.sum, ids.sum});
            }),
            "no error");
}

TEST(Verify, RefusesTypesThatTheOperatorDoesNotInfer) {
  EXPECT_EQ(refused([](Graph& g, const Ids& ids) { node(g, ids.sum).type.dtype = tn::f16; }),
            "a pass: %2 is f16(2, 3), its operator infers f32(2, 3)");
  EXPECT_EQ(refused([](Graph& g, const Ids& ids) {
              node(g, ids.result).type.shape = {3, 2};
            }),
            "a pass: %3 is f32(3, 2), its operator infers f32(2, 3)");
  EXPECT_EQ(refused([](Graph& g, const Ids& ids) { node(g, ids.result).op = tn::Op::isnan; }),
            "a pass: %3 is f32(2, 3), its operator infers bool(2, 3)");
  // What reads a value is held to that value's type as well.
  EXPECT_EQ(refused([](Graph& g, const Ids& ids) {
              node(g, ids.input).type.shape = {4, 3};
            }),
            "a pass: %2 is f32(2, 3), its operator infers f32(4, 3)");
}

TEST(Verify, RefusesConstantsOfAnotherType) {
  EXPECT_EQ(refused([](Graph& g, const Ids& ids) {
              node(g, ids.constant).constant = tn::ones({3}, tn::f64);
            }),
            "a pass: constant %1 is f64(3,), its node says f32(3,)");
  EXPECT_EQ(refused([](Graph& g, const Ids& ids) { node(g, ids.constant).type.shape = {1}; }),
            "a pass: constant %1 is f32(3,), its node says f32(1,)");
}

TEST(Verify, RefusesInputsThatDoNotComeBefore) {
  for (const ValueId wrong : {2, 3, 4, 1000, -1, -1000})  // 2 is the node itself
    for (const std::size_t place : {0, 1})
      EXPECT_EQ(refused([=](Graph& g, const Ids& ids) { node(g, ids.sum).inputs[place] = wrong; }),
                "a pass: %2 reads %" + std::to_string(wrong) + ", which does not come before it");
}

TEST(Verify, RefusesWhatTheOperatorDoesNotTake) {
  EXPECT_EQ(refused([](Graph& g, const Ids& ids) {
              node(g, ids.constant).constant = tn::ones({4});
              node(g, ids.constant).type.shape = {4};
            }),
            "a pass: %2: broadcast: the shapes (2, 3) and (4,) do not broadcast: axes must be "
            "equal or 1, counted from the last");
}

TEST(Verify, RefusesInputsThatAreNone) {
  EXPECT_EQ(refused([](Graph& g, const Ids& ids) {
              node(g, ids.input) = node(g, ids.constant);
              node(g, ids.input).constant = tn::ones({3});
              node(g, ids.sum).type = node(g, ids.result).type = {{3}, tn::f32};
            }),
            "a pass: %0 is no input");
}

TEST(Verify, RefusesOutputsThatDoNotExist) {
  for (const ValueId wrong : {4, 1000, -1})
    EXPECT_EQ(refused([=](Graph& g, const Ids& ids) {
                g.set_outputs({ids.result, wrong});
              }),
              "a pass: output %" + std::to_string(wrong) + " does not exist");
}

}  // namespace
