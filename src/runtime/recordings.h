// Recordings: the CUDA graphs of the programs that share memory, the most recently used.
#pragma once

#include <array>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "src/kernels/cuda/driver/graph.h"

namespace tensor::detail {

/// What a step on the host does in one context.
struct HostCall {
  const std::function<void(std::span<std::byte* const>)>* run = nullptr;
  std::vector<std::byte*> operands;
  std::exception_ptr* error = nullptr;  // what it threw
};

/// All of a program's work in one context, for memory at certain addresses.
struct Recorded {
  using Blocks = std::array<cuda::Address, 3>;

  const void* context = nullptr;
  Blocks blocks = {};             // what the call takes
  std::vector<cuda::Address> at;  // the operands
  std::deque<HostCall> host_calls;
  std::optional<cuda::LaunchGraph> graph;  // not of what came once
};

class Recordings {
 public:
  static constexpr std::size_t kMost = 64;          // of all programs
  static constexpr std::size_t kMostOfContext = 4;  // of one call at a time of one program

  struct Found {
    std::shared_ptr<Recorded> recorded;  // outlives its place here
    bool is_new = false;
  };
  /// The least recently used ones go.
  Found of(const void* context, const Recorded::Blocks& blocks,
           const std::vector<cuda::Address>& at) {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    auto last = recent_.end();
    for (auto r = recent_.begin(); r != recent_.end(); ++r) {
      if ((*r)->context != context) continue;
      if ((*r)->blocks == blocks && (*r)->at == at) {
        recent_.splice(recent_.begin(), recent_, r);
        return {recent_.front(), false};
      }
      ++count, last = r;
    }
    if (count >= kMostOfContext) recent_.erase(last);
    recent_.push_front(std::make_shared<Recorded>());
    Recorded& added = *recent_.front();
    added.context = context, added.blocks = blocks, added.at = at;
    if (recent_.size() > kMost) recent_.pop_back();
    return {recent_.front(), true};
  }
  /// Those of a context that goes.
  void forget(const void* context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(recent_, [&](const auto& recorded) { return recorded->context == context; });
  }

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<Recorded>> recent_;  // the latest first
};

}  // namespace tensor::detail
