// Constants: the tensors that a traced function reads, with the values that they had when it did,
// whatever is written into them later.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/core/storage.h"
#include "src/trace/graph.h"

namespace tensor {

/// Elements are shared until somebody writes into them, and copied then, before it is done. Where
/// that could go unseen, through a pointer, they are copied at once; large ones that the function
/// found are shared even so, and a hash of them tells of writes, which are refused.
class Constants : private detail::Watcher {
 public:
  Constants() : Watcher(true) { start_watching(); }
  virtual ~Constants();
  /// The node of x's present values, made where there is none. Its elements are on the host:
  /// kernels are built from them there, for whatever device. UserError where the values of a shared
  /// one were written unseen.
  ValueId value_of(Graph& graph, const Tensor& x, const std::string& where);
  /// Gives the nodes their final values, and watches no longer. UserError as above.
  void finish(Graph& graph);

 private:
  struct Held {
    ValueId id = -1;
    Tensor given;            // keeps the storage alive
    Tensor value;            // shares the elements of `given`, or has copies
    std::uint64_t hash = 0;  // of the elements, where writes go unseen
    bool has_hash = false;
    bool is_shared = true;
    bool is_current = true;  // no write into `given` was seen since
  };
  void before_write(const detail::Storage& storage, bool is_certain) override;
  ValueId add(Graph& graph, const Tensor& x, const std::string& where);
  [[noreturn]] static void refuse(const Tensor& x, const std::string& where);
  void let_go();

  const std::uint64_t begin_ = detail::write_clock();
  std::mutex mutex_;  // other threads may write
  std::vector<Held> held_;
  std::map<std::string, std::size_t> known_;  // in held_, by where the elements lie
  std::unordered_map<const detail::Storage*, std::vector<std::size_t>> watched_;  // the same
};

}  // namespace tensor
