// Joining calls of a model: rows of calls that are alike run as one batch.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "models/common/forward.h"

namespace models::service {

/// What became of one call.
struct Outcome {
  tensor::nn::StateDict outputs = {};
  std::exception_ptr error = nullptr;
};

/// The sizes of the batches that may run, rising.
struct Batches {
  std::vector<std::int64_t> sizes = {1};
  /// Whether to fill a larger one with zeros rather than to run two smaller ones: on a GPU, where a
  /// batch takes little longer than a row.
  bool fill = false;

  /// 1, 2, 4 and so on up to `most`.
  static Batches powers(std::int64_t most, bool fill);
  /// The size to run next where so many rows wait.
  std::int64_t next(std::int64_t waiting) const;
};

/// Runs calls, each of one or more rows (axis 0 of its inputs), in as few batches as possible:
/// those whose names, types and shapes but for the rows are equal. An error is that of all in its
/// batch.
std::vector<Outcome> run_joined(const std::vector<const tensor::nn::StateDict*>& calls,
                                const Batches& batches, const Forward& run);

/// Where threads that each need a forward pass meet the one that runs them.
class Meeting {
 public:
  /// For so many threads, each of which calls `leave` when it needs no more.
  explicit Meeting(std::size_t members) : members_(members) {}

  /// Waits until the pass is run; throws its error.
  tensor::nn::StateDict ask(const tensor::nn::StateDict& inputs);
  void leave();
  /// Runs what is asked, whenever all members wait, until all have left.
  void serve(const Batches& batches, const Forward& run);

 private:
  struct Question {
    const tensor::nn::StateDict* inputs = nullptr;
    Outcome outcome = {};
    bool is_answered = false;
  };

  std::mutex mutex_;
  std::condition_variable all_wait_, answered_;
  std::size_t members_;
  std::vector<Question*> waiting_;
};

}  // namespace models::service
