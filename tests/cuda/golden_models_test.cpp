// Whole models compiled for CUDA, every kernel run on the emulated GPU and compared with the
// reference operators.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iostream>

#include "src/compile.h"
#include "src/core/storage.h"
#include "src/runtime/cuda_engine.h"
#include "src/runtime/program.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/models/golden.h"
#include "tests/models/programs.h"

namespace tensor {
namespace {

// An operand as far from a multiple of 1,024 bytes as it is from the begin of its root, which is
// where blocks of device memory begin.
class OnDevice {
 public:
  OnDevice(const Layout& layout, std::int64_t item, const std::byte* from) {
    std::int64_t last = 0;
    for (int axis = 0; axis < layout.shape.rank(); ++axis) {
      if (layout.strides[axis] < 0) internal_error("emulator", "an operand that runs backwards");
      last += (layout.shape[axis] - 1) * layout.strides[axis];
    }
    constexpr std::size_t kAlignment = 1024;
    const auto skip = static_cast<std::size_t>(layout.offset * item);
    const auto size = static_cast<std::size_t>((last + 1) * item);
    storage_.resize(size + skip + kAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    bytes_ = {storage_.data() + (kAlignment - address % kAlignment) % kAlignment + skip, size};
    std::copy(from, from + size, bytes_.data());
  }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> storage_;
  std::span<std::byte> bytes_;
};

// Runs single steps only, which is what verify asks for.
class EmulatedEngine : public detail::Engine {
 public:
  EmulatedEngine(const detail::Program& program, std::vector<cuda::Lowered> lowered, int capability)
      : program_(program), capability_(capability), lowered_(std::move(lowered)) {
    for (std::size_t g = 0; g < lowered_.size(); ++g)
      steps_.push_back({static_cast<int>(g), lowered_[g].description});
  }

  void run_step(std::size_t step, std::span<std::byte* const> operands) const override {
    const Group& group = program_.plan.groups[step];
    const Wiring wires = wiring(program_.laid.graph);
    std::deque<OnDevice> copies;
    std::vector<emulator::Operand> memory;
    const auto add = [&](ValueId id, bool is_written) {
      OnDevice& copy = copies.emplace_back(program_.laid.layouts[static_cast<std::size_t>(id)],
                                           item_size(program_.laid.graph.type(id).dtype),
                                           operands[copies.size()]);
      memory.push_back({copy.bytes(),
                        program_.laid.graph.is_constant(wires.root[static_cast<std::size_t>(id)]),
                        is_written});
    };
    for (const ValueId id : group.reads) add(id, false);
    for (const ValueId id : group.writes) add(id, true);
    std::vector<Tensor> packed;
    for (const auto& packing : lowered_[step].packed) {
      std::vector<Tensor> constants;
      for (const int operand : packing.operands)
        constants.push_back(
            program_.laid.graph[group.reads[static_cast<std::size_t>(operand)]].constant);
      packed.push_back(packing.pack(constants));
    }
    emulator::emulate(lowered_[step], memory, packed, {.capability = capability_});
    for (std::size_t i = group.reads.size(); i < copies.size(); ++i)
      std::ranges::copy(copies[i].bytes(), operands[i]);
  }
  const std::vector<detail::Step>& steps() const override { return steps_; }

  void run(const std::vector<Tensor>&, std::vector<Tensor>&,
           const std::stop_token&) const override {
    refuse();
  }
  std::vector<std::vector<double>> time(const std::vector<Tensor>&, int) const override {
    return refuse();
  }
  std::vector<double> time_whole(const std::vector<Tensor>&, int) const override {
    refuse();
    return {};
  }

 private:
  static std::vector<std::vector<double>> refuse() {
    internal_error("emulator", "runs single steps only");
  }

  const detail::Program& program_;
  int capability_;
  std::vector<cuda::Lowered> lowered_;
  std::vector<detail::Step> steps_;
};

detail::Target emulated(int capability) {
  detail::Target target = detail::cuda_target(cuda::typical_device(capability));
  target.device = "cuda";
  target.roofline_us = [](const Graph&, const Group&) { return 0.0; };
  target.build = [capability](const detail::Program& program,
                              std::unique_ptr<detail::Kernels> kernels) {
    return std::make_unique<EmulatedEngine>(
        program, std::move(static_cast<detail::CudaKernels&>(*kernels).groups), capability);
  };
  return target;
}

struct Case {
  std::string name;
  DType dtype;
  int capability;
  bool tf32 = false, narrow_residuals = false;
};

class EmulatedModels : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedModels, EveryKernelIsAsExactAsItMustBe) {
  const auto& [name, dtype, capability, tf32, narrow_residuals] = GetParam();
  const auto program = golden::program_of(name);
  program->open(golden::folder(name));
  const Tensor pixels = golden::io(name).at("pixel_values")(slice(0, 1)).copy();
  const auto function = [&](const std::vector<Tensor>& in) {
    std::vector<Tensor> outputs;
    for (const auto& [key, value] : program->run({{"pixel_values", in[0]}}, {}))
      outputs.push_back(value);
    return outputs;
  };
  const Executable executable = detail::compile(
      function, {pixels.type()},
      {.dtype = dtype, .tf32 = tf32, .narrow_residuals = narrow_residuals}, emulated(capability));
  int on_host = 0;
  // What must be chosen: attention as one kernel, and products in tf32 where they may be.
  const std::string wanted = name == "convnextv2" ? "conv"
                             : tf32               ? "gemm_mma_tf32_"
                             : dtype == f32       ? "_attention_plain_"
                             : capability == 90   ? "_attention_"
                                                  : "_attention_mma_";
  bool is_chosen = false;
  for (const GroupCheck& check : verify(executable, {pixels})) {
    EXPECT_TRUE(check.ok()) << check.operators << " @ " << check.where << " [" << check.kernel
                            << "]: error " << check.error << " > " << check.bound;
    is_chosen |= check.kernel.find(wanted) != std::string::npos;
    on_host += check.kernel == "on the host";
  }
  EXPECT_TRUE(is_chosen) << wanted;
  std::cout << name << ": " << executable.group_count() << " groups, " << on_host
            << " on the host\n";
}

INSTANTIATE_TEST_SUITE_P(
    Golden, EmulatedModels,
    ::testing::Values(Case{"vit_hf", f16, 90}, Case{"vit_hf", bf16, 80}, Case{"vit_hf", f16, 75},
                      Case{"vit_hf", f32, 80, true}, Case{"vit_hf", f16, 90, false, true},
                      Case{"vit_hf", f32, 90}, Case{"detr_hf_hub", f32, 80}, Case{"swin", f32, 75},
                      Case{"detr_hf_hub", bf16, 80, false, true}, Case{"detr_hf_hub", f16, 90},
                      Case{"detr_hf_hub", f16, 80}, Case{"setr_fudan_pup", bf16, 90},
                      Case{"convnextv2", f16, 80}, Case{"swin", f16, 90},
                      Case{"dinov2_registers", bf16, 80}, Case{"dinov3", f16, 90},
                      Case{"siglip", f16, 90}, Case{"segformer", bf16, 80},
                      Case{"depth_anything", bf16, 80}, Case{"rt_detr", f16, 80},
                      Case{"sam", f16, 90}),
    [](const auto& it) {
      return it.param.name + "_sm" + std::to_string(it.param.capability) +
             (it.param.tf32           ? "_tf32"
              : it.param.dtype == f32 ? "_f32"
                                      : "") +
             (it.param.narrow_residuals ? "_narrow" : "");
    });

}  // namespace
}  // namespace tensor
