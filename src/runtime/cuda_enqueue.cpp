// Calls of a CudaEngine that are handed to a stream of the caller's (tensor/interop.h).
#include <algorithm>

#include "src/kernels/cuda/driver/range.h"
#include "src/runtime/cuda_engine.h"
#include "src/runtime/device_memory.h"

namespace tensor::detail {

// Nothing may be under way in memory that goes.
CudaEngine::~CudaEngine() {
  for (const InFlight& call : in_flight_) {
    try {
      call.done.wait();
    } catch (const std::exception&) {  // the device is lost: enter() says so from now on
    }
  }
}

bool CudaEngine::only_starts_kernels(const std::vector<Tensor>& inputs,
                                     const std::vector<Tensor>& outputs) const {
  const auto fits_there = [&](const Tensor& x, std::size_t operand) {
    return x.device().is_cuda() && fits(x, operand);
  };
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!fits_there(inputs[i], i)) return false;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (program_.placement.is_copied(i) || !fits_there(outputs[i], inputs.size() + i)) return false;
  return call_host_bytes_ == 0 && !device_.waits_for_kernels() && !memory_.values.is_limited();
}

// Calls that are over keep nothing any longer.
std::list<CudaEngine::InFlight> CudaEngine::take_finished() const {
  std::list<InFlight> finished;
  for (auto call = in_flight_.begin(); call != in_flight_.end();) {
    const auto next = std::next(call);
    if (call->done.is_reached()) finished.splice(finished.end(), in_flight_, call);
    call = next;
  }
  return finished;
}

// The memory of the stream's latest call, whose kernels are over when those of the next begin.
std::unique_ptr<CudaEngine::Held> CudaEngine::held_for(cuda::StreamHandle* stream) const {
  for (InFlight& call : in_flight_)
    if (call.stream == stream && call.held) return std::move(call.held);
  auto held = std::unique_ptr<Held>(new Held{contexts_.take([&] { return new_context(); }),
                                             memory_.values.take(values_bytes_), std::nullopt});
  held->context->values.storage = held->values.block();
  return held;
}

// Where operands lie in each call anew, a graph over their mirrors, and copies there and back, take
// the host less time than all kernels one by one.
std::shared_ptr<Recorded> CudaEngine::start_on(Held& held, cuda::Stream& stream) const {
  Context& context = *held.context;
  context.mirrors.storage = nullptr;
  const Recordings::Found found = recording_for(context);
  bool is_whole = true;  // every operand is all of its mirror
  for (std::size_t i = 0; i < context.operands.size(); ++i)
    is_whole &= context.operands[i].nbytes() == operand_bytes_[i];
  if (!is_started_one_by_one(context, found) || launches_ <= kFewLaunches || !is_whole)
    return start(context, stream, found);
  if (!held.mirrors)
    held.mirrors.emplace(memory_.mirrors.take(mirrors_bytes_, context.mirrors.last));
  context.mirrors.storage = held.mirrors->block();
  context.mirrors.last = context.mirrors.data();
  const std::vector<cuda::Address> at =
      std::exchange(context.at, std::vector<cuda::Address>(context.at.size(), kMirrorOfDevice));
  const std::size_t inputs = program_.inputs.size();
  for (std::size_t i = 0; i < inputs; ++i)
    cuda::copy(stream, operand_address(context, i), at[i], operand_bytes_[i]);
  std::shared_ptr<Recorded> recorded = start(context, stream, recording_for(context));
  for (std::size_t i = inputs; i < at.size(); ++i)
    cuda::copy(stream, at[i], operand_address(context, i), operand_bytes_[i]);
  return recorded;
}

void CudaEngine::enqueue(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
                         void* handle) const {
  const cuda::Range range(name_);
  device_.enter();
  auto* const foreign = static_cast<cuda::StreamHandle*>(handle);
  cuda::Stream stream(device_, foreign);
  if (!only_starts_kernels(inputs, outputs)) {
    stream.synchronize();
    return run(inputs, outputs, {});
  }
  std::list<InFlight> finished, mine;  // let go of when the lock is given back: owners may call us
  const std::lock_guard lock(in_flight_mutex_);
  finished = take_finished();
  InFlight& call = mine.emplace_back(device_, foreign);
  call.held = held_for(foreign);
  Context& context = *call.held->context;
  try {
    bind(context, inputs, outputs);
    call.recorded = start_on(*call.held, stream);
    call.done.record(stream);
  } catch (...) {
    settle(stream);
    throw;
  }
  call.operands = std::exchange(context.operands, std::vector<Tensor>(context.operands.size()));
  in_flight_.splice(in_flight_.end(), mine);
}

}  // namespace tensor::detail
