// A group of a kernel family on a real GPU, checked as on the emulator.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "src/core/storage.h"
#include "src/kernels/cuda/tensor_map.h"
#include "tests/cuda/emulator/group_case.h"

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

  void run(const cuda::Call& call) {
    std::deque<std::vector<std::byte>> values;
    std::vector<void*> addresses;
    std::deque<cuda::TensorMapBytes> maps;
    for (const cuda::Argument& argument : call.arguments) {
      if (const auto* pointer = std::get_if<cuda::Pointer>(&argument)) {
        const cuda::Address address = base(*pointer) + static_cast<cuda::Address>(pointer->bytes);
        const auto* bytes = reinterpret_cast<const std::byte*>(&address);
        addresses.push_back(values.emplace_back(bytes, bytes + sizeof address).data());
      } else if (const auto* view = std::get_if<cuda::TensorMapOf>(&argument)) {
        addresses.push_back(&maps.emplace_back(encode(device_, *view, base(view->memory))));
      } else {
        addresses.push_back(values.emplace_back(std::get<std::vector<std::byte>>(argument)).data());
      }
    }
    const cuda::Cubin cubin =
        cuda::Compiler::get().compile(call.source, device_.info().architecture());
    cuda::Kernel kernel(device_, cubin, call.entry);
    addresses.push_back(nullptr);
    kernel.run(stream_, call.launch, addresses.data());
    stream_.synchronize();  // before the kernel is unloaded
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
  void place(std::deque<Memory>& list, std::span<const std::byte> bytes, std::int64_t off) {
    list.push_back({cuda::Buffer(device_, static_cast<std::int64_t>(bytes.size()) + off), off});
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

/// The case on the machine's first GPU.
inline void expect_on_device(GroupCase& group, const GroupCase::Lower& lower) {
  cuda::Device& device = cuda::Device::get();
  const cuda::Lowered lowered = lower(group.laid(), group.group(), cuda::machine_of(device.info()));
  group.check(lowered, [&](const cuda::Lowered& l, std::span<const Operand> operands,
                           std::span<const Tensor> packed) {
    OnDevice memory(device, l, operands, packed);
    for (const cuda::Call& call : l.calls) memory.run(call);
    memory.download();
  });
}
inline void expect_on_device(GroupCase& group, const cuda::Family& family) {
  if (!group.accepted(family, cuda::machine_of(cuda::Device::get().info())))
    ADD_FAILURE() << family.name << " declines\n" << group.laid().graph;
  else
    expect_on_device(group, GroupCase::Lower(family.lower));
}

}  // namespace tensor::emulator
