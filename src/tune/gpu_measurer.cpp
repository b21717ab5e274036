#include "src/tune/gpu_measurer.h"

#include <algorithm>
#include <sstream>
#include <thread>

#include "src/core/rounding.h"
#include "src/core/storage.h"
#include "src/tune/worker.h"
#include "tensor/error.h"

namespace tensor {
namespace {

constexpr std::int64_t kLine = 1024;  // what swizzled boxes ask for, and more
constexpr int kWarmUps = 2;

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
  // count, and a small part of the GPU's memory.
  constexpr int kFewest = 16, kMost = 256;
  constexpr std::int64_t kReserve = 3, kShare = 8;
  const std::int64_t most_bytes = std::min(std::int64_t{1} << 30, device_bytes / kShare);
  const Used used(lowered, operands.size());
  const auto size = [](std::span<std::byte> bytes) {
    return static_cast<std::int64_t>(bytes.size());
  };
  std::int64_t weights = 0;
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (operands[i].is_constant && used.operands[i]) weights += size(operands[i].bytes());
  for (const Tensor& x : packed) weights += x.nbytes();
  TrialMemory memory;
  if (weights > 0) {
    const auto wanted = std::clamp<std::int64_t>(kReserve * l2_bytes / weights + 1, kFewest, kMost);
    memory.copies = static_cast<int>(std::clamp<std::int64_t>(most_bytes / weights, 2, wanted));
  } else {
    memory.copies = kFewest;
  }
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t place = memory.bytes;
    memory.bytes += round_up(bytes, kLine);
    return place;
  };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    auto& places = memory.operands.emplace_back();
    if (operands[i].is_constant && !used.operands[i]) continue;
    for (int copy = 0; copy < (operands[i].is_constant ? memory.copies : 1); ++copy)
      places.push_back(take(size(operands[i].bytes())));
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

GpuLoop::GpuLoop(cuda::Device& device, const cuda::Lowered& lowered,
                 std::span<const std::shared_ptr<cuda::Kernel>> kernels,
                 std::span<const OperandBlock> operands, std::span<const Tensor> packed)
    : lowered_(lowered),
      kernels_(kernels),
      operands_(operands.begin(), operands.end()),
      memory_(place_trial(lowered, operands, packed, device.info().l2_bytes,
                          device.info().memory_bytes)),
      block_(device, memory_.bytes),
      stream_(device),
      begin_(device),
      end_(device) {
  upload(packed);
  if (lowered.scratch_bytes > 0) {
    std::vector<std::byte> scratch(static_cast<std::size_t>(lowered.scratch_bytes));
    poison(scratch);
    block_.upload(scratch, memory_.scratch);
  }
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
          [&](const cuda::Pointer& pointer) {
            return block_.address() +
                   static_cast<cuda::Address>(memory_.at(pointer, copy, operands_));
          },
          follows);
}

void GpuLoop::run(std::span<const OperandBlock> written) {
  record(stream_, 1);
  stream_.synchronize();
  for (std::size_t i = 0; i < written.size(); ++i)
    block_.download(written[i].bytes(),
                    memory_.operands[operands_.size() - written.size() + i].front());
}

double GpuLoop::time() {
  const auto once = [&] {
    begin_.record(stream_);
    graph_->start(stream_);
    end_.record(stream_);
    stream_.synchronize();
    return end_.microseconds_since(begin_) / memory_.copies;
  };
  if (!graph_) {
    graph_.emplace(stream_.device(), [&](cuda::Stream& to) { record(to, memory_.copies); });
    for (int i = 0; i < kWarmUps; ++i) once();
  }
  return once();
}

// ---- Trials

namespace {

class GpuTrial : public Trial {
 public:
  GpuTrial(cuda::Device& device, const Problem& problem, const Schedule& schedule)
      : device_(device), problem_(problem), schedule_(schedule), group_(problem.group(schedule)) {}

  // All that takes time and no GPU. Code is loaded later: that would disturb what is timed now.
  void compile() override {
    lowered_ = cuda::lower_group(problem_.alone().laid, group_, cuda::machine_of(device_.info()));
    if (lowered_.on_host) fail("tune", "runs on the host, where GPU time is not taken");
    for (const cuda::Call& call : lowered_.calls)
      cubins_.push_back(cuda::compiled(call, device_.info()));
    operands_ = problem_.reference().operands();
    packed_ = packed_of(lowered_, operands_);
  }

  void check() override {
    run();
    const auto level0 = [this] {
      if (schedule_ == problem_.space().chosen) return operands_;
      GpuTrial trial(device_, problem_, problem_.space().chosen);
      trial.compile();
      trial.run();
      return trial.operands_;
    };
    if (const std::string fault = problem_.reference().fault(operands_, level0); !fault.empty())
      fail(lowered_.description, fault);
  }

  double time() override {
    make_loop();
    return loop_->time();
  }
  void rest() override { loop_.reset(); }

 private:
  void run() {
    for (std::size_t i = 0; i < cubins_.size(); ++i)
      kernels_.push_back(cuda::load_kernel(device_, lowered_.calls[i], cubins_[i]));
    make_loop();
    loop_->run(std::span(operands_).subspan(group_.reads.size()));
  }

  void make_loop() {
    if (!loop_) loop_.emplace(device_, lowered_, kernels_, operands_, packed_);
  }

  cuda::Device& device_;
  const Problem& problem_;
  Schedule schedule_;
  Group group_;
  cuda::Lowered lowered_;
  std::vector<cuda::Cubin> cubins_;  // of its calls
  std::vector<std::shared_ptr<cuda::Kernel>> kernels_;
  std::vector<OperandBlock> operands_;
  std::vector<Tensor> packed_;
  std::optional<GpuLoop> loop_;
};

}  // namespace

Measuring gpu_measuring(int device, const std::deque<Problem>& problems) {
  const auto problem = [&problems](int task) -> const Problem& {
    return problems.at(static_cast<std::size_t>(task));
  };
  Measuring how;
  how.tasks = [&problems] { return problems.size(); };
  how.prepare = [=](int task) { problem(task).reference(); };
  how.make = [=](const Candidate& candidate) {
    return std::make_unique<GpuTrial>(cuda::Device::get(device), problem(candidate.task),
                                      candidate.schedule);
  };
  how.is_lost = [=] {
    try {
      cuda::Device::get(device).enter();
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  how.compilers = static_cast<int>(std::max(2u, std::thread::hardware_concurrency()));
  return how;
}

// ---- The device's data

std::string device_text(const cuda::DeviceInfo& d) {
  std::ostringstream text;
  text.precision(17);
  for (const std::int64_t number :
       {std::int64_t{d.index}, std::int64_t{d.capability}, std::int64_t{d.multiprocessors},
        std::int64_t{d.registers}, std::int64_t{d.threads}, d.memory_bytes, d.l2_bytes,
        d.shared_bytes, d.shared_block_bytes})
    text << number << ' ';
  text << d.clock_ghz << ' ' << d.memory_gbps << ' ' << d.name;
  return text.str();
}

cuda::DeviceInfo parse_device(const std::string& line) {
  cuda::DeviceInfo d;
  std::istringstream text(line);
  text >> d.index >> d.capability >> d.multiprocessors >> d.registers >> d.threads >>
      d.memory_bytes >> d.l2_bytes >> d.shared_bytes >> d.shared_block_bytes >> d.clock_ghz >>
      d.memory_gbps;
  text.get();
  std::getline(text, d.name);
  if (d.name.empty()) internal_error("tune", "a child says of its GPU \"", line, '"');
  return d;
}

cuda::DeviceInfo ask_for_device(int index) {
  if (cuda::Device::is_started())
    fail("tune", "this process uses the GPU already, and children of such a process cannot: tune ",
         "before anything is compiled for it, or in a process of its own");
  Worker worker(
      [index](const std::vector<std::string>&, Channel& channel) {
        channel.done(0, device_text(cuda::Device::get(index).info()));
      },
      {.item_seconds = 120, .idle_seconds = 120});
  const Answer answer = worker.run({"device"})[0];
  if (!answer.error.empty()) throw UserError(answer.error);
  return parse_device(answer.result);
}

}  // namespace tensor
