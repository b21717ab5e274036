// Streams, events and graphs of the emulated driver: what is queued runs when somebody waits.
#include <utility>

#include "tests/cuda/emulator/driver_state.h"

// What kernels call to set a condition; the driver has it for them.
extern "C" __attribute__((visibility("default"))) void cudaGraphSetConditional(
    unsigned long long handle, unsigned value) {
  *reinterpret_cast<unsigned*>(handle) = value;
}

namespace tensor::emulator {

int enqueue(cuda::StreamHandle* stream, std::function<void()> work) {
  if (current != stream->device) complain("a stream of another device than the current one");
  if (stream->device->lost) return stream->device->lost;
  if (stream->capture)
    stream->capture->work.push_back(std::move(work));
  else
    stream->work.push_back(std::move(work));
  return 0;
}

namespace {

int create_stream(cuda::StreamHandle** stream, unsigned) {
  const std::lock_guard lock(state().mutex);
  if (const int why = trouble()) return why;
  *stream = new cuda::StreamHandle{current, {}, nullptr};
  state().streams.push_back(*stream);
  return 0;
}
int destroy_stream(cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  if (!stream->work.empty()) complain("a stream is destroyed while work is queued");
  std::erase(state().streams, stream);
  delete stream;
  return 0;
}
int synchronize(cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  if (!stream) {
    if (const int why = trouble()) return why;
    return finish_copies(*current), 0;
  }
  if (stream->capture) return kInvalid;
  int& lost = stream->device->lost;
  try {
    while (lost == 0 && !stream->work.empty()) {
      const std::function<void()> work = std::move(stream->work.front());
      stream->work.pop_front();
      work();
    }
  } catch (const Error& error) {
    state().fault = error.what();
    lost = kFailed;
  } catch (const Failure& failure) {
    lost = failure.error;
  }
  if (lost != 0) stream->work.clear();
  return lost;
}
int create_event(cuda::EventHandle** event, unsigned) { return *event = new cuda::EventHandle, 0; }
int destroy_event(cuda::EventHandle* event) {
  delete event;
  return 0;
}
int record(cuda::EventHandle* event, cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  event->is_reached = false, event->stream = stream;
  return enqueue(stream, [event] { event->is_reached = true; });
}
int query_event(cuda::EventHandle* event) {
  const std::lock_guard lock(state().mutex);
  return current->lost != 0 ? current->lost : event->is_reached ? 0 : cuda::kNotReady;
}
int wait_for_event(cuda::EventHandle* event) {
  {
    const std::lock_guard lock(state().mutex);
    if (current->lost != 0 || event->is_reached || !event->stream) return current->lost;
  }
  return synchronize(event->stream);
}
int elapsed(float* milliseconds, cuda::EventHandle* a, cuda::EventHandle* b) {
  if (!a->is_reached || !b->is_reached) return kInvalid;
  return *milliseconds = 0.001f, 0;
}
void check_copy(int result) {
  if (result != 0) throw Fault("a copy outside of the memory in use");
}
int upload_async(Address to, const void* from, std::size_t bytes, cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  check_pinned(from, bytes);
  return enqueue(stream, [=] { check_copy(copy_in(to, from, bytes)); });
}
int download_async(void* to, Address from, std::size_t bytes, cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  check_pinned(to, bytes);
  return enqueue(stream, [=] { check_copy(copy_out(to, from, bytes)); });
}
int copy_async(Address to, Address from, std::size_t bytes, cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  return enqueue(stream, [=] {
    std::vector<std::byte> between(bytes);
    check_copy(copy_out(between.data(), from, bytes));
    check_copy(copy_in(to, between.data(), bytes));
  });
}
int call_host(cuda::StreamHandle* stream, void (*function)(void*), void* argument) {
  const std::lock_guard lock(state().mutex);
  return enqueue(stream, [=] { function(argument); });
}
int begin_capture(cuda::StreamHandle* stream, int) {
  stream->capture = new cuda::GraphHandle;
  return 0;
}
int end_capture(cuda::StreamHandle* stream, cuda::GraphHandle** graph) {
  return *graph = std::exchange(stream->capture, nullptr), 0;
}
// Graphs are sequences here: all nodes depend on all before them.
int capture_info(cuda::StreamHandle* stream, int* status, unsigned long long*,
                 cuda::GraphHandle** graph, cuda::NodeHandle* const**, const void**,
                 std::size_t* count) {
  return *status = 1, *graph = stream->capture, *count = 0, 0;
}
int set_capture_position(cuda::StreamHandle*, cuda::NodeHandle**, const void*, std::size_t,
                         unsigned) {
  return 0;
}
int create_condition(unsigned long long* handle, cuda::GraphHandle*, cuda::Context*, unsigned value,
                     unsigned) {
  const std::lock_guard lock(state().mutex);
  *handle = reinterpret_cast<unsigned long long>(&state().conditions.emplace_back(value));
  return 0;
}
int add_node(cuda::NodeHandle**, cuda::GraphHandle* graph, cuda::NodeHandle* const*, const void*,
             std::size_t, cuda::ConditionalNode* node) {
  const std::lock_guard lock(state().mutex);
  cuda::GraphHandle* body = &state().bodies.emplace_back();
  node->bodies = &state().body_of_nodes.emplace_back(body);
  graph->work.push_back([body, condition = reinterpret_cast<const unsigned*>(node->handle)] {
    ++(*condition != 0 ? state().counts.bodies_run : state().counts.bodies_skipped);
    if (*condition != 0)
      for (const auto& work : body->work) work();
  });
  return 0;
}
int begin_capture_to(cuda::StreamHandle* stream, cuda::GraphHandle* graph, cuda::NodeHandle* const*,
                     const void*, std::size_t, int) {
  return stream->capture = graph, 0;
}
int instantiate(cuda::GraphExecHandle** executable, cuda::GraphHandle* graph, unsigned long long) {
  const std::lock_guard lock(state().mutex);
  ++state().counts.graphs;
  return *executable = new cuda::GraphExecHandle{*graph}, 0;
}
int destroy_graph(cuda::GraphHandle* graph) {
  delete graph;
  return 0;
}
int destroy_executable(cuda::GraphExecHandle* executable) {
  delete executable;
  return 0;
}
int launch_graph(cuda::GraphExecHandle* executable, cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  for (const auto& work : executable->work) enqueue(stream, work);
  return 0;
}

}  // namespace

Functions stream_functions() {
  return {
      {"cuStreamCreate", pointer_to(create_stream)},
      {"cuStreamDestroy_v2", pointer_to(destroy_stream)},
      {"cuStreamSynchronize", pointer_to(synchronize)},
      {"cuEventCreate", pointer_to(create_event)},
      {"cuEventDestroy_v2", pointer_to(destroy_event)},
      {"cuEventRecord", pointer_to(record)},
      {"cuEventQuery", pointer_to(query_event)},
      {"cuEventSynchronize", pointer_to(wait_for_event)},
      {"cuEventElapsedTime", pointer_to(elapsed)},
      {"cuMemcpyHtoDAsync_v2", pointer_to(upload_async)},
      {"cuMemcpyDtoHAsync_v2", pointer_to(download_async)},
      {"cuMemcpyDtoDAsync_v2", pointer_to(copy_async)},
      {"cuLaunchHostFunc", pointer_to(call_host)},
      {"cuStreamBeginCapture_v2", pointer_to(begin_capture)},
      {"cuStreamEndCapture", pointer_to(end_capture)},
      {"cuStreamGetCaptureInfo_v3", pointer_to(capture_info)},
      {"cuStreamUpdateCaptureDependencies_v2", pointer_to(set_capture_position)},
      {"cuStreamBeginCaptureToGraph", pointer_to(begin_capture_to)},
      {"cuGraphConditionalHandleCreate", pointer_to(create_condition)},
      {"cuGraphAddNode_v2", pointer_to(add_node)},
      {"cuGraphInstantiateWithFlags", pointer_to(instantiate)},
      {"cuGraphDestroy", pointer_to(destroy_graph)},
      {"cuGraphExecDestroy", pointer_to(destroy_executable)},
      {"cuGraphLaunch", pointer_to(launch_graph)},
  };
}

}  // namespace tensor::emulator
