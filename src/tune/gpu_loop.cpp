#include "src/tune/gpu_loop.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "src/core/rounding.h"
#include "src/core/storage.h"

namespace tensor {
namespace {

constexpr int kLoopWarmUps = 2;

// Marks what kernels' arguments point to.
struct Used {
  std::vector<bool> operands;
  Used(const cuda::Lowered& lowered, std::size_t count) : operands(count, false) {
    for (const cuda::Call& call : lowered.calls)
      for (const cuda::Argument& argument : call.arguments) {
        if (const auto* pointer = std::get_if<cuda::Pointer>(&argument)) mark(*pointer);
        if (const auto* view = std::get_if<cuda::TensorMapOf>(&argument)) mark(view->memory);
      }
  }
  void mark(const cuda::Pointer& pointer) {
    if (pointer.base == cuda::Pointer::Base::operand)
      operands.at(static_cast<std::size_t>(pointer.index)) = true;
  }
};

}  // namespace

std::vector<Tensor> packed_of(const cuda::Lowered& lowered,
                              std::span<const OperandBlock> operands) {
  std::vector<Tensor> packed;
  for (const cuda::Lowered::Packed& p : lowered.packed) {
    std::vector<Tensor> constants;
    for (const int operand : p.operands)
      constants.push_back(operands[static_cast<std::size_t>(operand)].value);
    packed.push_back(p.pack(constants).copy());
  }
  return packed;
}

TrialMemory place_trial(const cuda::Lowered& lowered, std::span<const OperandBlock> operands,
                        std::span<const Tensor> packed, std::int64_t l2_bytes,
                        std::int64_t device_bytes) {
  // As many copies as leave nothing of the first one in the cache when it is read again, with a
  // reserve since the cache does not drop the oldest; a graph long enough for its start not to
  // count, and a small part of the GPU's memory. Operands of hundreds of megabytes sweep the cache
  // themselves, in launches that take their time.
  constexpr int kLeast = 4, kFew = 16, kMost = 256;
  constexpr std::int64_t kReserve = 3, kShare = 8, kLongBytes = std::int64_t{4} << 30;
  const std::int64_t most_bytes = std::min(std::int64_t{1} << 30, device_bytes / kShare);
  const Used used(lowered, operands.size());
  std::int64_t weights = 0, others = 0;
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (used.operands[i]) (operands[i].is_constant ? weights : others) += operands[i].all().size();
  for (const Tensor& x : packed) weights += x.nbytes();
  std::int64_t copies = kFew;
  if (others > kReserve * l2_bytes)
    copies = std::clamp<std::int64_t>(kLongBytes / others, kLeast, kFew);
  else if (weights > 0)
    copies = std::clamp<std::int64_t>(kReserve * l2_bytes / weights + 1, kFew, kMost);
  if (weights > 0) copies = std::min(copies, std::max<std::int64_t>(most_bytes / weights, 2));
  TrialMemory memory;
  memory.copies = static_cast<int>(copies);
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t place = memory.bytes;
    memory.bytes += round_up(bytes, kAddressLine);
    return place;
  };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    auto& places = memory.operands.emplace_back();
    if (!operands[i].is_constant || !used.operands[i]) continue;
    for (int copy = 0; copy < memory.copies; ++copy)
      places.push_back(take(operands[i].all().size()));
  }
  for (const Tensor& x : packed) {
    auto& places = memory.packed.emplace_back();
    for (int copy = 0; copy < memory.copies; ++copy) places.push_back(take(x.nbytes()));
  }
  memory.scratch = take(lowered.scratch_bytes);
  return memory;
}

std::int64_t TrialMemory::at(const cuda::Pointer& pointer, int copy,
                             std::span<const OperandBlock> blocks) const {
  if (pointer.base == cuda::Pointer::Base::scratch) return scratch;
  const auto index = static_cast<std::size_t>(pointer.index);
  const bool is_operand = pointer.base == cuda::Pointer::Base::operand;
  const std::vector<std::int64_t>& places = (is_operand ? operands : packed).at(index);
  return places.at(static_cast<std::size_t>(copy) % places.size()) +
         (is_operand ? blocks[index].first_at() : 0);
}

// ---- Operands on the device

namespace {

std::vector<std::int64_t> places_of(std::span<const OperandBlock> operands) {
  std::vector<std::int64_t> places = {0};
  for (const OperandBlock& operand : operands)
    places.push_back(places.back() +
                     (operand.is_constant ? 0 : round_up(operand.all().size(), kAddressLine)));
  return places;
}

}  // namespace

DeviceOperands::DeviceOperands(cuda::Device& device, std::span<const OperandBlock> operands)
    : places_(places_of(operands)), buffer_(device, places_.back()) {
  buffer_.fill(kPoison);
}

// What a block repeats is repeated on the device, which is much faster: each copy is of all that is
// there already.
void DeviceOperands::upload(std::span<const OperandBlock> operands) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const OperandBlock& operand = operands[i];
    if (operand.is_constant) continue;
    const std::int64_t size = operand.all().size();
    std::int64_t done = operand.period > 0 ? operand.period : size;
    buffer_.upload(operand.bytes().first(static_cast<std::size_t>(done)), places_[i]);
    for (std::int64_t more = 0; done < size; done += more) {
      more = std::min(done, size - done);
      buffer_.repeat(places_[i], static_cast<std::size_t>(more), std::array{places_[i] + done});
    }
  }
}

void DeviceOperands::download(const OperandBlock& operand, std::size_t index,
                              ByteRange range) const {
  buffer_.download(operand.bytes().subspan(static_cast<std::size_t>(range.begin),
                                           static_cast<std::size_t>(range.size())),
                   places_[index] + range.begin);
}

// ---- The loop

GpuLoop::GpuLoop(cuda::Device& device, const cuda::Lowered& lowered,
                 std::span<const std::shared_ptr<cuda::Kernel>> kernels,
                 std::span<const OperandBlock> operands, std::span<const Tensor> packed,
                 const DeviceOperands& reads, std::size_t read_count)
    : lowered_(lowered),
      kernels_(kernels),
      operands_(operands.begin(), operands.end()),
      reads_(reads),
      read_count_(read_count),
      results_(device, operands.subspan(read_count)),
      memory_(place_trial(lowered, operands, packed, device.info().l2_bytes,
                          device.info().memory_bytes)),
      block_(device, memory_.bytes),
      stream_(device),
      begin_(device),
      end_(device) {
  block_.fill(kPoison);
  upload(packed);
}

// From the host one time: the copies of weights are made on the device, which is much faster.
void GpuLoop::upload(std::span<const Tensor> packed) {
  const auto put = [&](std::span<const std::byte> bytes, const std::vector<std::int64_t>& places) {
    if (places.empty()) return;
    block_.upload(bytes, places[0]);
    block_.repeat(places[0], bytes.size(), std::span(places).subspan(1));
  };
  for (std::size_t i = 0; i < operands_.size(); ++i) put(operands_[i].bytes(), memory_.operands[i]);
  for (std::size_t i = 0; i < packed.size(); ++i)
    put({detail::stored(packed[i]).first(), static_cast<std::size_t>(packed[i].nbytes())},
        memory_.packed[i]);
}

void GpuLoop::record(cuda::Stream& stream, int copies) const {
  bool follows = false;
  for (int copy = 0; copy < copies; ++copy)
    for (std::size_t i = 0; i < kernels_.size(); ++i, follows = true)
      cuda::start(
          stream, *kernels_[i], lowered_.calls[i],
          [&](const cuda::Pointer& pointer) { return address(pointer, copy); }, follows);
}

cuda::Address GpuLoop::address(const cuda::Pointer& pointer, int copy) const {
  const auto index = static_cast<std::size_t>(pointer.index);
  if (pointer.base != cuda::Pointer::Base::operand || operands_[index].is_constant)
    return block_.address() + static_cast<cuda::Address>(memory_.at(pointer, copy, operands_));
  const cuda::Address begin =
      index < read_count_ ? reads_.address(index) : results_.address(index - read_count_);
  return begin + static_cast<cuda::Address>(operands_[index].first_at());
}

void GpuLoop::run() {
  record(stream_, 1);
  stream_.synchronize();
}

// A GPU that works without a pause for some 25 ms may reach its power limit and lower its clock.
// Long graphs are followed by a pause, so that whatever is timed next has the full clock, too.
double GpuLoop::time() {
  constexpr double kLongUs = 1000, kPause = 2;  // times as long
  const auto once = [&] {
    begin_.record(stream_);
    graph_->start(stream_);
    end_.record(stream_);
    stream_.synchronize();
    const double us = end_.microseconds_since(begin_);
    if (us > kLongUs)
      std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(kPause * us));
    return us / memory_.copies;
  };
  if (!graph_) {
    graph_.emplace(stream_.device(), [&](cuda::Stream& to) { record(to, memory_.copies); });
    for (int i = 0; i < kLoopWarmUps; ++i) once();
  }
  return once();
}

}  // namespace tensor
