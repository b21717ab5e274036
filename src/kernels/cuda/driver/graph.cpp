#include "src/kernels/cuda/driver/graph.h"

#include <algorithm>
#include <utility>

#include "src/kernels/cuda/driver/driver.h"
#include "tensor/error.h"

namespace tensor::cuda {
PinnedBuffer::PinnedBuffer(Device& device, std::int64_t bytes) : device_(&device), bytes_(bytes) {
  device.enter();
  void* memory = nullptr;
  const int result =
      driver().allocate_pinned(&memory, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  if (result == kOutOfMemory)
    fail("cuda", "cannot lock ", bytes,
         " bytes of host memory: end other programs, or use smaller "
         "batches");
  device.check(result, "locking host memory");
  data_ = static_cast<std::byte*>(memory);
}
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
PinnedBuffer::~PinnedBuffer() {
  if (!data_) return;
  if (device_->make_current()) driver().free_pinned(data_);
}

LaunchGraph::LaunchGraph(Device& device, const std::function<void(Stream&)>& record)
    : device_(&device) {
  Stream stream(device, true);
  device.check(driver().begin_capture(stream.handle(), kThreadLocalCapture), "recording a graph");
  GraphHandle* graph = nullptr;
  try {
    record(stream);
  } catch (...) {
    driver().end_capture(stream.handle(), &graph);
    if (graph) driver().destroy_graph(graph);
    throw;
  }
  device.check(driver().end_capture(stream.handle(), &graph), "recording a graph");
  const int result = driver().instantiate(&handle_, graph, 0);
  driver().destroy_graph(graph);
  device.check(result, "making a graph");
  launched_ = stream.launched();
}
LaunchGraph::~LaunchGraph() {
  if (device_->make_current()) driver().destroy_executable(handle_);
}

void LaunchGraph::start(Stream& stream) const {
  device_->enter();
  stream.launched().add(launched_);
  stream.check(driver().launch_graph(handle_, stream.handle()), "starting a graph");
}

void upload(Stream& stream, Address to, const std::byte* from, std::int64_t bytes) {
  if (bytes == 0) return;
  stream.device().enter();
  stream.check(driver().upload_async(to, from, static_cast<std::size_t>(bytes), stream.handle()),
               "copying to the device");
}
void download(Stream& stream, std::byte* to, Address from, std::int64_t bytes) {
  if (bytes == 0) return;
  stream.device().enter();
  stream.check(driver().download_async(to, from, static_cast<std::size_t>(bytes), stream.handle()),
               "copying from the device");
}
void copy(Stream& stream, Address to, Address from, std::int64_t bytes) {
  if (bytes == 0) return;
  stream.device().enter();
  stream.check(driver().copy_async(to, from, static_cast<std::size_t>(bytes), stream.handle()),
               "copying on the device");
}
void call_on_host(Stream& stream, void (*function)(void*), void* argument) {
  stream.device().enter();
  stream.check(driver().call_host(stream.handle(), function, argument), "calling a host function");
}

}  // namespace tensor::cuda
