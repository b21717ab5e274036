// SharedConstants: tells that somebody wrote into a constant that a program shares.
#pragma once

#include <atomic>
#include <unordered_map>

#include "src/core/storage.h"
#include "src/trace/graph.h"

namespace tensor::detail {

/// Sees assignments and what executables write. A pointer that is handed out tells nothing: most
/// are read through.
class SharedConstants : private Watcher {
 public:
  virtual ~SharedConstants();
  /// The graph stays as it is as long as this lives. Once.
  void watch(const Graph& graph);
  /// UserError after such a write. Costs one look at a number.
  void check() const {
    if (written_.load(std::memory_order_relaxed) >= 0) refuse();
  }

 private:
  void before_write(const Storage& storage, bool is_certain) override;
  [[noreturn]] void refuse() const;

  const Graph* graph_ = nullptr;
  std::unordered_map<const Storage*, ValueId> watched_;
  std::atomic<ValueId> written_ = -1;
};

}  // namespace tensor::detail
