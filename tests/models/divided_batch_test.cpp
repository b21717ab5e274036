// All models compute each image of a batch by itself, and the check of several devices sees it.
#include <gtest/gtest.h>

#include <filesystem>

#include "src/trace/items.h"
#include "src/trace/trace.h"
#include "tests/error_of.h"
#include "tests/models/golden.h"
#include "tests/models/programs.h"

namespace {

using tensor::Tensor;
using tensor::nn::StateDict;

TEST(DividedBatch, SuitsEveryReferenceCheckpoint) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden::folder(""))) {
    const std::string name = entry.path().filename().string();
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    const auto program = golden::program_of(name);
    program->take(models::Takes::tensors);
    program->open(entry.path().string());
    const tensor::Shape usual = program->usual_shape();
    const StateDict inputs = program->blank({2, {usual[1], usual[2]}});
    std::vector<std::string> names;
    std::vector<tensor::TensorType> types;
    for (const auto& [input, value] : inputs) names.push_back(input), types.push_back(value.type());
    const tensor::Graph graph = tensor::trace(
        [&](const std::vector<Tensor>& values) {
          StateDict given;
          for (std::size_t i = 0; i < names.size(); ++i) given.emplace(names[i], values[i]);
          std::vector<Tensor> results;
          for (const auto& [output, value] : program->run(given, {})) results.push_back(value);
          return results;
        },
        types);
    const std::string error = tensor::check::error_of(
        [&] { tensor::check_items(graph, std::vector<bool>(types.size(), true), 2); });
    EXPECT_EQ(error, "no error") << name;
    ++count;
  }
  EXPECT_GT(count, 10);
}

}  // namespace
