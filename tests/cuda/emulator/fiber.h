// Fibers: many threads of control on one thread of the machine, switched by hand.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace tensor::emulator {

class Fiber {
 public:
  using Entry = void (*)(void*);
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  /// The next switch to this fiber calls entry(argument), which must never return.
  void start(Entry entry, void* argument);
  /// Goes on in this fiber until it pauses.
  void resume();
  /// Called by this fiber: goes on where it was resumed.
  void pause();

  bool holds(const void* address) const {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= stack_ && byte < stack_ + kStackBytes;
  }

 private:
  static constexpr std::size_t kStackBytes = 128 << 10, kGuardBytes = 4 << 10;
  std::byte* stack_ = nullptr;
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
};

}  // namespace tensor::emulator
