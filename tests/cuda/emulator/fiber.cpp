#include "tests/cuda/emulator/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <new>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace tensor::emulator {

/// How a fiber begins, and what AddressSanitizer wants to know of its stack.
struct FiberBegin {
  Fiber::Entry entry = nullptr;
  void* argument = nullptr;
  void* own_state = nullptr;
  const void* outer_stack = nullptr;
  std::size_t outer_bytes = 0;

  void entered() {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(own_state, &outer_stack, &outer_bytes);
#endif
  }
  static void run(void* self) {
    auto* begin = static_cast<FiberBegin*>(self);
    begin->entered();
    begin->entry(begin->argument);
  }
};

#ifdef __x86_64__

// The registers that a function must keep (System V ABI for AMD64, section 3.2.1) go to the stack
// that is left and come from the one that is entered.
asm(R"(
.pushsection .text
.type tensor_switch_stack, @function
tensor_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tensor_switch_stack, . - tensor_switch_stack
.type tensor_enter_fiber, @function
tensor_enter_fiber:
  movq %r13, %rdi
  callq *%r12
  ud2
.size tensor_enter_fiber, . - tensor_enter_fiber
.popsection
)");
void switch_stack(void** save, void* to) asm("tensor_switch_stack");
void enter_fiber() asm("tensor_enter_fiber");

struct Fiber::Contexts : FiberBegin {
  void* inside = nullptr;
  void* outside = nullptr;
};

void Fiber::start(Entry entry, void* argument) {
  contexts_->entry = entry;
  contexts_->argument = argument;
  contexts_->own_state = nullptr;
  auto* top = reinterpret_cast<std::uint64_t*>(stack_ + kStackBytes);
  *--top = 0;
  *--top = 0;
  *--top = reinterpret_cast<std::uint64_t>(&enter_fiber);
  *--top = 0;  // rbp
  *--top = 0;  // rbx
  *--top = reinterpret_cast<std::uint64_t>(&FiberBegin::run);
  *--top = reinterpret_cast<std::uint64_t>(static_cast<FiberBegin*>(contexts_.get()));
  *--top = 0;  // r14
  *--top = 0;  // r15
  contexts_->inside = top;
}
#define TENSOR_SWITCH(from, to) switch_stack(&contexts_->from, contexts_->to)

#else

struct Fiber::Contexts : FiberBegin {
  ucontext_t inside, outside;
};

void Fiber::start(Entry entry, void* argument) {
  contexts_->entry = entry;
  contexts_->argument = argument;
  getcontext(&contexts_->inside);
  contexts_->inside.uc_stack.ss_sp = stack_;
  contexts_->inside.uc_stack.ss_size = kStackBytes;
  // makecontext passes ints only.
  const auto address = reinterpret_cast<std::uintptr_t>(contexts_.get());
  const auto call = [](unsigned high, unsigned low) {
    FiberBegin::run(static_cast<FiberBegin*>(
        reinterpret_cast<Contexts*>(std::uint64_t{high} << 32 | std::uint64_t{low})));
  };
  makecontext(&contexts_->inside, reinterpret_cast<void (*)()>(+call), 2,
              static_cast<unsigned>(std::uint64_t{address} >> 32), static_cast<unsigned>(address));
}
#define TENSOR_SWITCH(from, to) swapcontext(&contexts_->from, &contexts_->to)

#endif

Fiber::Fiber() : contexts_(std::make_unique<Contexts>()) {
  void* memory = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kGuardBytes, PROT_NONE);  // an overflow ends the process at once
  stack_ = static_cast<std::byte*>(memory) + kGuardBytes;
}
Fiber::~Fiber() { munmap(stack_ - kGuardBytes, kStackBytes + kGuardBytes); }

void Fiber::resume() {
#ifdef __SANITIZE_ADDRESS__
  void* mine = nullptr;
  __sanitizer_start_switch_fiber(&mine, stack_, kStackBytes);
#endif
  TENSOR_SWITCH(outside, inside);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(mine, nullptr, nullptr);
#endif
}

void Fiber::pause() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&contexts_->own_state, contexts_->outer_stack,
                                 contexts_->outer_bytes);
#endif
  TENSOR_SWITCH(inside, outside);
  contexts_->entered();
}

}  // namespace tensor::emulator
