#include "src/tune/cpu_measurer.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "src/core/parallel.h"
#include "src/core/storage.h"
#include "tensor/error.h"

namespace tensor {
namespace {

using Clock = std::chrono::steady_clock;

// A block that is larger than the last-level cache: after it was written nothing else is in there.
class Flush {
 public:
  explicit Flush(double cache_bytes)
      : bytes_(static_cast<std::int64_t>(std::min(2 * cache_bytes, kMost))),
        block_(detail::allocate(bytes_)) {}
  void operator()() { std::memset(block_->data, ++value_, static_cast<std::size_t>(bytes_)); }

 private:
  // Of a cache that many share, as server processors' are, a part is meant for this program.
  static constexpr double kMost = 64 << 20;
  std::int64_t bytes_;
  std::shared_ptr<detail::Storage> block_;
  unsigned char value_ = 0;
};

class CpuTrial : public Trial {
 public:
  CpuTrial(const Problem& problem, const Schedule& schedule, const cpu::Machine& machine)
      : problem_(problem), group_(problem.group(schedule)), machine_(machine) {}

  void compile() override {
    kernel_ = cpu::Families(cpu::cpu_families(), machine_).build(problem_.alone().laid, group_);
  }

  void check() override {
    run();
    const auto level0 = [this] {
      CpuTrial trial(problem_, problem_.space().chosen, machine_);
      trial.compile();
      trial.run();
      return trial.operands_;
    };
    if (const std::string fault = problem_.reference().fault(operands_, level0); !fault.empty())
      fail(kernel_->description(), fault);
    const bool has_weights =
        std::any_of(operands_.begin(), operands_.end(), [](const OperandBlock& operand) {
          constexpr std::size_t kSmall = 64 << 10;  // stays in the cache of a core
          return operand.is_constant && operand.bytes().size() > kSmall;
        });
    if (has_weights && problem_.model_bytes() > machine_.cache_bytes)
      flush_.emplace(machine_.cache_bytes);
  }

  double time() override {
    if (flush_) {
      (*flush_)();
      return once();
    }
    // What else the machine does only ever adds to a time: of short ones the least counts.
    constexpr int kMost = 5;
    constexpr double kEnoughUs = 1000;
    double least = once(), sum = least;
    for (int i = 1; i < kMost && sum < kEnoughUs; ++i) {
      const double time = once();
      least = std::min(least, time);
      sum += time;
    }
    return least;
  }

 private:
  void run() {
    operands_ = problem_.reference().operands();
    for (const OperandBlock& operand : operands_) addresses_.push_back(operand.first());
    scratch_ = detail::allocate(static_cast<std::int64_t>(kernel_->scratch_bytes()));
    kernel_->run(addresses_, scratch_->data);
  }

  double once() {
    write_inputs();
    const Clock::time_point start = Clock::now();
    kernel_->run(addresses_, scratch_->data);
    const std::chrono::duration<double, std::micro> time = Clock::now() - start;
    return std::max(time.count(), 1e-3);  // of a clock that did not move
  }

  // What the groups before have just written, each thread its part.
  void write_inputs() {
    constexpr std::size_t kLine = 64;
    for (std::size_t i = 0; i < group_.reads.size(); ++i) {
      if (operands_[i].is_constant) continue;
      const auto bytes = operands_[i].bytes();
      cpu::parallel_for(machine_.threads, std::ssize(bytes) / kLine, [&](std::int64_t line, int) {
        volatile std::byte& first = bytes[static_cast<std::size_t>(line) * kLine];
        first = first;
      });
    }
  }

  const Problem& problem_;
  Group group_;
  cpu::Machine machine_;
  std::unique_ptr<cpu::Kernel> kernel_;
  std::vector<OperandBlock> operands_;
  std::vector<std::byte*> addresses_;
  std::shared_ptr<detail::Storage> scratch_;
  std::optional<Flush> flush_;
};

}  // namespace

Measuring cpu_measuring(const cpu::Machine& machine, const std::deque<Problem>& problems) {
  const auto problem = [&problems](int task) -> const Problem& {
    return problems.at(static_cast<std::size_t>(task));
  };
  Measuring how;
  how.tasks = [&problems] { return problems.size(); };
  how.prepare = [=](int task) { problem(task).reference(); };
  how.make = [=](const Candidate& candidate) {
    return std::make_unique<CpuTrial>(problem(candidate.task), candidate.schedule, machine);
  };
  how.repeats = 7;
  return how;
}

}  // namespace tensor
