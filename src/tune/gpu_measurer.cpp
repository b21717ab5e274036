#include "src/tune/gpu_measurer.h"

#include <algorithm>
#include <list>
#include <thread>

#include "src/core/cores.h"
#include "src/tune/gpu_difference.h"
#include "src/tune/gpu_loop.h"
#include "src/tune/worker.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor {
namespace {

// What all trials of a problem need on the device.
struct ProblemOnDevice {
  DeviceOperands reads;
  std::optional<DeviceOperands> trusted = {};  // what level 0's kernel made of them, once needed

  std::int64_t bytes() const { return reads.bytes() + (trusted ? trusted->bytes() : 0); }
};

// What trials share. Made before there is a child, and used by one thread of it.
class TrialsOnDevice {
 public:
  explicit TrialsOnDevice(int device) : index_(device) {}
  cuda::Device& device() const { return cuda::Device::get(index_); }
  GpuDifference& difference() {
    if (!difference_) difference_.emplace(device());
    return *difference_;
  }
  /// Kept for as long as they take a fourth of the device's memory: tasks take turns.
  std::shared_ptr<ProblemOnDevice> of(const Problem& problem, std::span<const OperandBlock> reads) {
    constexpr std::int64_t kShare = 4;
    const auto known = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const Kept& kept) { return kept.first == &problem; });
    if (known != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, known);
      return kept_.front().second;
    }
    std::int64_t bytes = 0;
    for (auto kept = kept_.begin(); kept != kept_.end();) {
      bytes += kept->second->bytes();
      kept = bytes > device().info().memory_bytes / kShare ? kept_.erase(kept) : std::next(kept);
    }
    const auto made =
        std::make_shared<ProblemOnDevice>(ProblemOnDevice{DeviceOperands(device(), reads)});
    made->reads.upload(reads);
    kept_.emplace_front(&problem, made);
    return made;
  }

 private:
  using Kept = std::pair<const Problem*, std::shared_ptr<ProblemOnDevice>>;
  int index_;
  std::optional<GpuDifference> difference_;
  std::list<Kept> kept_;  // which was asked for last comes first
};

class GpuTrial : public Trial {
 public:
  GpuTrial(TrialsOnDevice& shared, const Problem& problem, const Schedule& schedule)
      : shared_(shared),
        device_(shared.device()),
        problem_(problem),
        schedule_(schedule),
        group_(problem.group(schedule)) {}

  // All that takes time and no GPU. Code is loaded later: that would disturb what is timed now.
  void compile() override {
    const cuda::Machine machine = cuda::machine_of(device_.info());
    lowered_ = cuda::Families(cuda::cuda_families(), machine).build(problem_.alone().laid, group_);
    if (lowered_.on_host) fail("tune", "runs on the host, where GPU time is not taken");
    for (const cuda::Call& call : lowered_.calls)
      cubins_.push_back(cuda::compiled(call, device_.info()));
    operands_ = problem_.reference().outlines();
    packed_ = packed_of(lowered_, operands_);
  }

  void check() override {
    run();
    std::string fault = fault_of_known();
    if (fault.empty() && !problem_.reference().is_whole()) fault = fault_beside_level0();
    if (!fault.empty()) fail(lowered_.description, fault);
  }

  double time() override {
    make_loop();
    return loop_->time();
  }
  void rest() override {
    loop_.reset();
    problem_on_device_.reset();
  }

 private:
  std::span<const OperandBlock> reads() const {
    return std::span(operands_).first(group_.reads.size());
  }
  std::span<const OperandBlock> writes() const {
    return std::span(operands_).subspan(group_.reads.size());
  }

  void run() {
    for (std::size_t i = 0; i < cubins_.size(); ++i)
      kernels_.push_back(cuda::load_kernel(device_, lowered_.calls[i], cubins_[i]));
    make_loop();
    loop_->run();
  }

  void make_loop() {
    if (loop_) return;
    problem_on_device_ = shared_.of(problem_, reads());
    loop_.emplace(device_, lowered_, kernels_, operands_, packed_, problem_on_device_->reads,
                  reads().size());
  }

  std::string fault_of_known() {
    for (std::size_t i = 0; i < writes().size(); ++i)
      for (const ByteRange range : problem_.reference().known(operands_, i))
        loop_->results().download(writes()[i], i, range);
    return problem_.reference().fault_of_known(operands_);
  }

  std::string fault_beside_level0() {
    if (schedule_ == problem_.space().chosen) return {};  // this is what is trusted
    std::optional<DeviceOperands>& trusted = problem_on_device_->trusted;
    if (!trusted) {
      GpuTrial level0(shared_, problem_, problem_.space().chosen);
      level0.compile();
      level0.run();
      if (const std::string fault = level0.fault_of_known(); !fault.empty())
        fail("tune", "the kernel that others are compared with has a ", fault);
      trusted = std::move(level0.loop_->results());
    }
    for (std::size_t i = 0; i < writes().size(); ++i) {
      const auto at = static_cast<cuda::Address>(writes()[i].first_at());
      const GpuDifference::Found found = shared_.difference()(
          writes()[i].value, loop_->results().address(i) + at, trusted->address(i) + at);
      std::string fault =
          problem_.reference().fault_beside_trusted(i, found.difference, found.largest);
      if (!fault.empty()) return fault;
    }
    return {};
  }

  TrialsOnDevice& shared_;
  cuda::Device& device_;
  const Problem& problem_;
  Schedule schedule_;
  Group group_;
  cuda::Lowered lowered_;
  std::vector<cuda::Cubin> cubins_;  // of its calls
  std::vector<std::shared_ptr<cuda::Kernel>> kernels_;
  std::vector<OperandBlock> operands_;
  std::vector<Tensor> packed_;
  std::shared_ptr<ProblemOnDevice> problem_on_device_;
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
  how.make = [=, shared = std::make_shared<TrialsOnDevice>(device)](const Candidate& candidate) {
    return std::make_unique<GpuTrial>(*shared, problem(candidate.task), candidate.schedule);
  };
  how.is_lost = [=] {
    try {
      cuda::Device::get(device).enter();
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  how.compilers = std::max(2, available_cores());
  return how;
}

// ---- The device's data

std::string device_text(const cuda::DeviceInfo& d) {
  TextWriter text;
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
  TextReader text(line);
  text >> d.index >> d.capability >> d.multiprocessors >> d.registers >> d.threads >>
      d.memory_bytes >> d.l2_bytes >> d.shared_bytes >> d.shared_block_bytes >> d.clock_ghz >>
      d.memory_gbps;
  text.get();
  std::getline(text, d.name);
  if (d.name.empty()) internal_error("tune", "a child says of its GPU \"", line, '"');
  return d;
}

cuda::DeviceInfo ask_for_device(int index) {
  if (cuda::Device::is_started()) return cuda::Device::get(index).info();
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
