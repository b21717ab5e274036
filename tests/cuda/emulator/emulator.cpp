#include "tests/cuda/emulator/emulator.h"

#include <cstring>

#include "src/core/storage.h"
#include "src/kernels/cuda/tensor_map.h"

namespace tensor::emulator {
namespace {

/// Memory that begins where memory of the device does.
class Aligned {
 public:
  static constexpr std::size_t kAlignment = 1024;
  explicit Aligned(std::size_t bytes) : storage_(bytes + kAlignment, std::byte{0xff}) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    begin_ = storage_.data() + (kAlignment - address % kAlignment) % kAlignment;
  }
  std::byte* begin() const { return begin_; }

 private:
  std::vector<std::byte> storage_;
  std::byte* begin_;
};

}  // namespace

void emulate_call(const cuda::Call& call, const std::vector<Region>& regions,
                  const std::function<std::byte*(const cuda::Pointer&)>& base,
                  const Options& options) {
  const Program& program = program_of(call.source, call.entry, options.capability);
  std::vector<unsigned> sizes(64);
  sizes.resize(program.sizes(sizes.data()));
  if (sizes.size() != call.arguments.size())
    throw Fault(call.entry + ": takes " + std::to_string(sizes.size()) + " arguments, got " +
                std::to_string(call.arguments.size()));
  std::deque<MapOnHost> maps;
  struct alignas(64) Bytes {
    std::byte bytes[4096];
  };
  std::deque<Bytes> values;
  std::vector<void*> addresses;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    Bytes& value = values.emplace_back();
    std::size_t size = 0;
    if (const auto* pointer = std::get_if<cuda::Pointer>(&call.arguments[i])) {
      std::byte* address = base(*pointer) + pointer->bytes;
      std::memcpy(value.bytes, &address, size = sizeof address);
    } else if (const auto* view = std::get_if<cuda::TensorMapOf>(&call.arguments[i])) {
      std::byte* memory = base(view->memory);
      if (const std::string why = cuda::fault(*view, reinterpret_cast<std::uintptr_t>(memory));
          !why.empty())
        throw Fault(call.entry + ": argument " + std::to_string(i) + ": " + why);
      maps.push_back({*view, memory + view->memory.bytes});
      const cuda::TensorMapBytes map = map_bytes(&maps.back());
      std::memcpy(value.bytes, &map, size = sizeof map);
    } else {
      const auto& bytes = std::get<std::vector<std::byte>>(call.arguments[i]);
      std::memcpy(value.bytes, bytes.data(), size = bytes.size());
    }
    if (size != sizes[i])
      throw Fault(call.entry + ": argument " + std::to_string(i) + " is " +
                  std::to_string(sizes[i]) + " bytes, got " + std::to_string(size));
    addresses.push_back(value.bytes);
  }
  Engine engine(program, call.entry, call.launch, regions, options.engine);
  engine.run(addresses.data());
}

void emulate(const cuda::Lowered& lowered, std::span<const Operand> operands,
             std::span<const Tensor> packed, const Options& options) {
  if (lowered.on_host) {
    std::vector<std::byte*> addresses;
    for (const Operand& operand : operands) addresses.push_back(operand.memory.data());
    lowered.on_host(addresses);
    return;
  }
  std::vector<Region> regions;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    std::byte* begin = operands[i].memory.data();
    regions.push_back({"operand " + std::to_string(i), begin, begin + operands[i].memory.size(),
                       operands[i].is_constant, operands[i].is_written});
  }
  std::deque<Aligned> constants;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    const Tensor dense = packed[i].copy();
    const auto bytes = static_cast<std::size_t>(dense.nbytes());
    std::byte* begin = constants.emplace_back(bytes).begin();
    std::memcpy(begin, detail::stored(dense).first(), bytes);
    regions.push_back({"packed constant " + std::to_string(i), begin, begin + bytes, true, false});
  }
  const Aligned scratch(static_cast<std::size_t>(lowered.scratch_bytes));
  regions.push_back(
      {"scratch", scratch.begin(), scratch.begin() + lowered.scratch_bytes, false, true});
  const auto base = [&](const cuda::Pointer& pointer) -> std::byte* {
    const auto index = static_cast<std::size_t>(pointer.index);
    switch (pointer.base) {
      case cuda::Pointer::Base::operand:
        if (index >= operands.size()) break;
        return operands[index].memory.data();
      case cuda::Pointer::Base::packed:
        if (index >= constants.size()) break;
        return constants[index].begin();
      case cuda::Pointer::Base::scratch:
        return scratch.begin();
    }
    throw Fault(lowered.description + ": points to operand or constant " + std::to_string(index) +
                ", which there is not");
  };
  for (const cuda::Call& call : lowered.calls) emulate_call(call, regions, base, options);
}

}  // namespace tensor::emulator
