// A group of a kernel family on a real GPU, checked as on the emulator.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "src/core/storage.h"
#include "src/kernels/cuda/driver/load.h"
#include "tests/cuda/emulator/group_case.h"
#include "tests/families.h"

namespace tensor::emulator {

/// Why nothing can run on a GPU of this machine, empty if it can. `capability`: the least needed,
/// 90 for sm_90; `alone`: what only this one has is needed.
inline std::string no_device(int capability = 75, bool alone = false) {
  try {
    const cuda::DeviceInfo& info = cuda::Device::get().info();
    cuda::Compiler::get();
    if (info.capability < capability || (alone && info.capability != capability))
      return info.name + " is of capability " + std::to_string(info.capability) + ": need " +
             std::to_string(capability);
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

/// Operands of a group in memory of the device, at the same distance from multiples of 1,024 bytes
/// as on the host.
class OnDevice {
 public:
  OnDevice(cuda::Device& device, const cuda::Lowered& lowered, std::span<const Operand> operands,
           std::span<const Tensor> packed)
      : device_(device), operands_(operands.begin(), operands.end()), stream_(device) {
    for (const Operand& operand : operands) {
      const std::size_t off = reinterpret_cast<std::uintptr_t>(operand.memory.data()) % 1024;
      place(memory_, operand.memory, static_cast<std::int64_t>(off));
    }
    for (const Tensor& constant : packed) {
      const Tensor dense = constant.copy();
      std::vector<std::byte> bytes(static_cast<std::size_t>(dense.nbytes()));
      std::memcpy(bytes.data(), detail::stored(dense).first(), bytes.size());
      place(constants_, bytes, 0);
    }
    const std::vector<std::byte> scratch(static_cast<std::size_t>(lowered.scratch_bytes),
                                         std::byte{0xff});
    place(scratch_, scratch, 0);
  }

  void run(const std::vector<cuda::Call>& calls) {
    std::vector<const cuda::Call*> all;
    for (const cuda::Call& call : calls) all.push_back(&call);
    const auto kernels = cuda::load_kernels(device_, all);
    const auto resolve = [this](const cuda::Pointer& pointer) { return base(pointer); };
    for (std::size_t i = 0; i < calls.size(); ++i)
      cuda::start(stream_, *kernels[i], calls[i], resolve, i > 0);
    stream_.synchronize();
  }

  void download() {
    for (std::size_t i = 0; i < operands_.size(); ++i)
      if (operands_[i].is_written) memory_[i].buffer.download(operands_[i].memory, memory_[i].off);
  }

 private:
  struct Memory {
    cuda::Buffer buffer;
    std::int64_t off;
  };
  // In whole pieces of 16 bytes: of a copy_16 that asks for fewer compute-sanitizer counts all. The
  // emulator knows better.
  void place(std::deque<Memory>& list, std::span<const std::byte> bytes, std::int64_t off) {
    const std::int64_t room = (static_cast<std::int64_t>(bytes.size()) + off + 15) / 16 * 16;
    list.push_back({cuda::Buffer(device_, room), off});
    list.back().buffer.upload(bytes, off);
  }
  cuda::Address base(const cuda::Pointer& pointer) const {
    const std::deque<Memory>& list = pointer.base == cuda::Pointer::Base::operand  ? memory_
                                     : pointer.base == cuda::Pointer::Base::packed ? constants_
                                                                                   : scratch_;
    const Memory& memory = list.at(static_cast<std::size_t>(pointer.index));
    return memory.buffer.address() + static_cast<cuda::Address>(memory.off);
  }

  cuda::Device& device_;
  std::vector<Operand> operands_;
  cuda::Stream stream_;
  std::deque<Memory> memory_, constants_, scratch_;
};

/// GroupCase::Run on the machine's first GPU.
inline void run_on_device(const cuda::Lowered& lowered, std::span<const Operand> operands,
                          std::span<const Tensor> packed) {
  if (lowered.on_host) return emulate(lowered, operands, packed, {});
  OnDevice memory(cuda::Device::get(), lowered, operands, packed);
  memory.run(lowered.calls);
  memory.download();
}

inline cuda::Machine machine_of_device() { return cuda::machine_of(cuda::Device::get().info()); }

/// The case on that GPU.
inline void expect_on_device(GroupCase& group, const GroupCase::Lower& lower) {
  group.check(lower(group.laid(), group.group(), machine_of_device()), run_on_device);
}
inline void expect_on_device(GroupCase& group, const cuda::Family& family) {
  if (!group.accepted(family, machine_of_device()))
    ADD_FAILURE() << family.name << " declines\n" << group.laid().graph;
  else
    expect_on_device(group, GroupCase::Lower([&](const LaidOutGraph& laid, const Group& g,
                                                 const cuda::Machine& machine) {
                       return built_by(family, laid, g, machine);
                     }));
}
/// A function compiled for that GPU (Planned).
inline void expect_plan_on_device(const TensorFunction& function, const Tensors& inputs,
                                  const Precision& precision) {
  Planned plan(function, inputs, precision, machine_of_device());
  plan.groups.check(plan.lowered, run_on_device);
}

}  // namespace tensor::emulator
