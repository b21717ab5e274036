// What two devices that divide the products of a model compute is what the model does.
#include <filesystem>
#include <iostream>

#include "src/trace/trace.h"
#include "tests/models/golden.h"
#include "tests/models/programs.h"
#include "tests/seed.h"
#include "tests/trace/divided_graphs.h"

namespace {

using tensor::Tensor;
using tensor::nn::StateDict;

TEST(DividedProducts, ComputeEveryReferenceCheckpoint) {
  tensor::Generator random(tensor::check::seed());
  int models = 0, chains = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden::folder(""))) {
    const std::string name = entry.path().filename().string();
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    const auto program = golden::program_of(name);
    program->take(models::Takes::tensors);
    program->open(entry.path().string());
    const tensor::Shape usual = program->usual_shape();
    std::vector<std::string> names;
    std::vector<Tensor> values;
    std::vector<tensor::TensorType> types;
    for (const auto& [input, value] : program->blank({1, {usual[1], usual[2]}})) {
      const bool is_picture = value.dtype() == tensor::f32;
      names.push_back(input), types.push_back(value.type());
      values.push_back(is_picture ? random.normal(value.shape()) : value);
    }
    const tensor::Graph graph = tensor::trace(
        [&](const std::vector<Tensor>& in) {
          StateDict given;
          for (std::size_t i = 0; i < names.size(); ++i) given.emplace(names[i], in[i]);
          std::vector<Tensor> results;
          for (const auto& [output, value] : program->run(given, {})) results.push_back(value);
          return results;
        },
        types);
    const tensor::divided::Divided divided = tensor::divided::expect_same_divided(graph, values, 2);
    ASSERT_FALSE(HasFailure()) << name;
    const auto count = static_cast<int>(divided.chains.size()) - divided.whole();
    std::cout << name << ": " << count << " chains, whole " << divided.whole() << std::endl;
    models += count > 0, chains += count;
  }
  EXPECT_GT(models, 10);
  EXPECT_GT(chains, 30);
}

}  // namespace
