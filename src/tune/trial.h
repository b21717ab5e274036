// Trials: candidates as they are compiled, checked and timed in a worker's process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/tune/measurer.h"
#include "src/tune/worker.h"

namespace tensor {

/// One candidate on its device.
class Trial {
 public:
  virtual ~Trial() = default;
  /// Makes its kernels. Trials are compiled in several threads at a time; all else of all trials
  /// happens in one.
  virtual void compile() = 0;
  /// Runs it once on poisoned memory and compares with the reference. Throws when it is wrong.
  virtual void check() = 0;
  /// Microseconds of one run: weights come from memory, all else is in the cache.
  virtual double time() = 0;
  /// Gives back what it needs between runs: others come before its next one.
  virtual void rest() {}
};

/// How a device measures.
struct Measuring {
  /// What all trials of a task need, before the first: takes its time without being blamed. Any
  /// number of threads may call it.
  std::function<void(int task)> prepare = nullptr;
  std::function<std::unique_ptr<Trial>(const Candidate&)> make;  // in any thread
  /// How many tasks there are. A child knows those that there were when it began: with another
  /// number there is a new child. Null: there are always the same.
  std::function<std::size_t()> tasks = nullptr;
  /// After an exception: whether this process can use the device no longer.
  std::function<bool()> is_lost = nullptr;
  int compilers = 0;  // threads that compile while others are timed; 0: nothing happens meanwhile
  int repeats = 5;
  int finalists = 3;         // of a task in a batch are timed again, by turns,
  double finalist_of = 1.1;  // if they take at most so many times the best one's time,
  int final_repeats = 11;    // so often beside the first times
};

/// An item of the worker: "3 gemm.swapped tokens=104".
std::string item_of(const Candidate& candidate);
/// Compiles, checks and times the items: Worker::Work. Kernels that fail to compile, run or be
/// right are told as failed.
void measure_items(const Measuring& how, const std::vector<std::string>& items, Channel& channel);

/// Times in a child process.
class ChildMeasurer : public Measurer {
 public:
  ChildMeasurer(Measuring how, Worker::Limits limits, Worker::Stop stop = nullptr)
      : how_(how),
        worker_([how](const auto& items, Channel& channel) { measure_items(how, items, channel); },
                limits, std::move(stop)) {}
  /// Neither times nor an error: stopped before.
  std::vector<Measured> measure(std::span<const Candidate> candidates) override {
    return measure_telling(candidates, nullptr);
  }
  std::vector<Measured> measure_telling(std::span<const Candidate> candidates,
                                        const Hear& hear) override;

 private:
  Measuring how_;
  std::size_t tasks_ = 0;  // that the child knows
  Worker worker_;
};

}  // namespace tensor
