// What plan files do to resident memory: weights that lie in a mapped file are read, but not kept
// beside the copy that the plan holds.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <map>

#include "models/common/plan.h"
#include "tensor/io.h"
#include "tensor/nn.h"
#include "tensor/tensor.h"
#include "tests/temporary_folder.h"

namespace tn = tensor;

namespace {

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(PlanMemory, WeightsOfAMappedFileAreReadAndForgotten) {
  if (!std::ifstream("/proc/self/statm")) GTEST_SKIP() << "needs Linux's /proc/self/statm";
  constexpr std::int64_t kCount = 16, kElements = 1 << 20, kBytes = kCount * kElements * 4;
  const tensor::check::TemporaryFolder folder;
  const std::string path = folder / "weights.safetensors";
  {
    std::map<std::string, tn::Tensor> weights;
    for (int i = 0; i < kCount; ++i)
      weights["w" + std::to_string(i)] = tn::full({kElements}, i + 0.5, tn::f32);
    tn::save_safetensors(path, weights);
  }
  auto mapped = tn::load_safetensors(path).tensors;
  std::vector<tn::nn::Parameter> parameters;
  for (auto& [name, x] : mapped) parameters.push_back({name, &x});
  // What one weight needs while it is read, and some room for the allocator.
  constexpr std::int64_t kRoom = kBytes / 4;
  const std::int64_t before = resident_bytes();
  const std::string first = models::fingerprint("model", parameters);
  EXPECT_LT(resident_bytes() - before, kRoom) << "after the fingerprint";
  tn::save_safetensors(folder / "copy.safetensors", mapped);
  EXPECT_LT(resident_bytes() - before, kRoom) << "after writing them";
  EXPECT_EQ(models::fingerprint("model", parameters), first);
  // The measurement sees a weight that stays.
  for (const auto& [name, x] : mapped) tn::sum(x);
  EXPECT_GT(resident_bytes() - before, kBytes - kRoom);
}

}  // namespace
