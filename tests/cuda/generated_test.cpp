// Kernels whose text is generated, operator by operator (pointwise, copy, image, row and reduce):
// compiled by NVRTC, and run on the emulator against the reference, in the planned layouts and in
// any.
#include <gtest/gtest.h>

#include "src/kernels/cuda/families.h"
#include "tensor/error.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/emulator/group_case.h"
#include "tests/cuda/generated_cases.h"
#include "tests/cuda/on_device.h"
#include "tests/families.h"

namespace tensor::cuda {
namespace {

using testing::GeneratedCase;

const Family& family_of(const GeneratedCase& c) {
  for (const Family& family : cuda_families())
    if (family.name == c.family) return family;
  internal_error("test", "no family ", c.family);
}

TEST(GeneratedKernels, CompileForEveryArchitecture) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr int kCapabilities[] = {90, 75, 80, 120};
  std::size_t turn = 0;
  for (const GeneratedCase& c : testing::generated_cases()) {
    const int capability = kCapabilities[turn++ % std::size(kCapabilities)];
    Machine machine = machine_of(typical_device(capability));
    machine.device.multiprocessors = c.multiprocessors;
    const emulator::GroupCase group_case(c.function, testing::inputs_of(c));
    const LaidOutGraph& laid = group_case.laid();
    const Group& group = group_case.group();
    const Family& family = family_of(c);
    const auto time = estimate_of(family, laid, group, machine);
    ASSERT_TRUE(time) << c.name << '\n' << laid.graph;
    EXPECT_GT(*time, 0) << c.name;
    const std::string architecture = machine.device.architecture();
    for (const Call& call : built_by(family, laid, group, machine).calls) {
      if (!is_drawn(call.source, architecture)) continue;
      SCOPED_TRACE(c.name + "\n" + call.source.text);
      const std::string log = Compiler::get().compile(call.source, architecture).log;
      EXPECT_EQ(trouble(log), "");
      EXPECT_EQ(log.find("warning"), std::string::npos) << log;
    }
    if (HasFailure()) return;
  }
}

void expect_right(const testing::GeneratedCase& c, int capability, std::mt19937* random) {
  SCOPED_TRACE(c.name);
  emulator::GroupCase group(c.function, testing::inputs_of(c), random);
  const auto lower = [&](const LaidOutGraph& laid, const Group& one, Machine machine) {
    machine.device.multiprocessors = c.multiprocessors;
    return built_by(family_of(c), laid, one, machine);
  };
  emulator::expect_emulated(group, lower, capability);
}

TEST(GeneratedKernels, AgreeWithTheReference) {
  for (const auto& c : testing::generated_cases()) {
    expect_right(c, 90, nullptr);
    if (HasFailure()) return;
  }
}

TEST(GeneratedKernels, TakeAnyLayout) {
  std::mt19937 random(11);
  for (const auto& c : testing::generated_cases()) {
    expect_right(c, 80, &random);
    if (HasFailure()) return;
  }
}

TEST(GeneratedKernelsOnGpu, AgreeWithTheReference) {
  if (const std::string reason = emulator::no_device(); !reason.empty()) GTEST_SKIP() << reason;
  std::mt19937 random(13);
  for (const auto& c : testing::generated_cases())
    for (std::mt19937* layouts : {static_cast<std::mt19937*>(nullptr), &random}) {
      SCOPED_TRACE(c.name);
      emulator::GroupCase group(c.function, testing::inputs_of(c), layouts);
      emulator::expect_on_device(group, family_of(c));
    }
}

}  // namespace
}  // namespace tensor::cuda
