// Every case of tests/cases against the references of this folder: the result, its type, and that
// the inputs and the memory around them are as before. One test an operator; a failure prints the
// line that runs its case alone.
//
// Environment: TENSOR_SEED (the values; random and printed otherwise), TENSOR_CASE (only the case
// of this name), TENSOR_CASES_EVERY=N (only every N-th case, for slow builds; the seed says which).
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>

#include "src/ops/op.h"
#include "tests/cases/all_cases.h"
#include "tests/generated/reference.h"

namespace tensor::generated {
namespace {

using cases::Case;
using cases::Cases;

const std::map<std::string, Cases>& cases_by_operator() {
  static const std::map<std::string, Cases> all = [] {
    std::map<std::string, Cases> result;
    for (const OpInfo& row : op_table())
      if (row.op != Op::all_reduce && row.op != Op::row_sums && row.op != Op::layer_norm_by_sums &&
          row.op != Op::quantized_matmul && row.op != Op::quantized_conv2d)
        result[std::string(row.name)];
    for (Case& c : cases::all_cases()) result[c.op].push_back(std::move(c));
    return result;
  }();
  return all;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::size_t cases_every() {
  const std::string text = environment("TENSOR_CASES_EVERY");
  return text.empty() ? 1 : std::stoul(text);
}

// FNV-1a: the values of a case depend on the seed and its name alone.
std::uint64_t hash(std::string_view text, std::uint64_t state) {
  for (const char letter : text)
    state = (state ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return state;
}

std::optional<std::string> run(const Case& c) {
  std::mt19937_64 random(hash(cases::id(c), seed() ^ 0xcbf29ce484222325u));
  Arrays inputs;
  std::vector<Block> blocks;
  std::vector<Tensor> tensors;
  for (const cases::Input& input : c.inputs) {
    inputs.push_back(make_values(input, random));
    blocks.emplace_back(inputs.back(), input.layout);
    tensors.push_back(blocks.back().tensor());
  }
  const Results expected = references().at(c.op)(inputs, c.attrs);
  try {
    const std::vector<Tensor> got = call(c.op, tensors, c.attrs);
    if (got.size() != expected.size())
      return "got " + std::to_string(got.size()) + " results, expected " +
             std::to_string(expected.size());
    for (std::size_t k = 0; k < got.size(); ++k)
      if (auto wrong = difference(read(got[k]), expected[k])) return wrong;
  } catch (const std::exception& error) {
    return std::string("threw: ") + error.what();
  }
  for (const Block& block : blocks)
    if (!block.unchanged()) return "wrote to an input or past it";
  return std::nullopt;
}

class Generated : public ::testing::TestWithParam<std::string> {};

TEST_P(Generated, Operator) {
  const Cases& all = cases_by_operator().at(GetParam());
  ASSERT_FALSE(all.empty()) << "no case in tests/cases for the operator " << GetParam();
  ASSERT_TRUE(references().contains(GetParam())) << "no reference for the operator " << GetParam();
  const std::string only = environment("TENSOR_CASE");
  const std::size_t every = std::min(cases_every(), all.size());  // some case of each operator
  std::size_t ran = 0, failed = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string name = cases::id(all[i]);
    if (only.empty() ? (i + seed()) % every != 0 : name != only) continue;
    ++ran;
    const auto wrong = run(all[i]);
    if (!wrong || ++failed > 10) continue;  // ten are enough to see a pattern
    ADD_FAILURE() << name << "\n  " << *wrong << "\n  run it alone: TENSOR_SEED=" << seed()
                  << " TENSOR_CASE='" << name << "' generated_tests --gtest_filter='*/"
                  << GetParam() << "'";
  }
  if (!only.empty() && ran == 0) GTEST_SKIP() << "TENSOR_CASE is not a case of " << GetParam();
  EXPECT_GT(ran, 0u);
  std::cout << GetParam() << ": " << ran << " cases, " << failed << " failed, seed " << seed()
            << '\n';
  EXPECT_EQ(failed, 0u);
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const auto& [name, all] : cases_by_operator()) result.push_back(name);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Cases, Generated, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

// The tables as a whole: enough of them, no name twice, every operator of the library's table with
// a case and every case with an operator. Compositions have golden cases, too (tests/ops).
TEST(GeneratedTables, CoverEveryOperator) {
  const auto operators = operator_names();
  std::set<std::string> seen;
  std::size_t total = 0;
  for (const auto& [name, all] : cases_by_operator()) {
    EXPECT_FALSE(all.empty()) << "no case for the operator " << name;
    EXPECT_TRUE(std::binary_search(operators.begin(), operators.end(), name))
        << "no operator for the cases of " << name;
    for (const Case& c : all)
      EXPECT_TRUE(seen.insert(cases::id(c)).second) << "twice: " << cases::id(c);
    std::cout << name << ' ' << all.size() << ", ";
    total += all.size();
  }
  std::cout << "in all " << total << " cases of " << operators.size() << " operators\n";
  EXPECT_GE(total, 10000u);
}

// Fresh memory is filled with a pattern, so that an element that a kernel forgets is seen (glibc;
// elsewhere it is not).
class Poison : public ::testing::Environment {
 public:
  void SetUp() override { mallopt(M_PERTURB, 0x5A); }
};
const auto* const kPoison = ::testing::AddGlobalTestEnvironment(new Poison);

}  // namespace
}  // namespace tensor::generated
