#include "src/kernels/cuda/driver/driver.h"
#include "src/kernels/cuda/driver/graph.h"
#include "src/kernels/cuda/driver/load.h"
#include "src/kernels/cuda/templates.h"

namespace tensor::cuda {
namespace {

struct Position {
  GraphHandle* graph = nullptr;
  NodeHandle* const* nodes = nullptr;  // on which the next one depends
  const void* edges = nullptr;
  std::size_t count = 0;
};

Position position_of(Stream& stream) {
  Position position;
  int status = 0;
  stream.check(driver().capture_info(stream.handle(), &status, nullptr, &position.graph,
                                     &position.nodes, &position.edges, &position.count),
               "recording a condition");
  return position;
}

// The body of a new conditional node, after which the stream goes on.
GraphHandle* add_body(Stream& stream, unsigned long long handle) {
  ConditionalNode node;
  node.handle = handle;
  node.context = stream.device().context();
  const Position at = position_of(stream);
  NodeHandle* added = nullptr;
  stream.check(driver().add_node(&added, at.graph, at.nodes, at.edges, at.count, &node),
               "recording a condition");
  stream.check(driver().set_capture_position(stream.handle(), &added, nullptr, 1, kInPlaceOfOthers),
               "recording a condition");
  return node.bodies[0];
}

}  // namespace

bool Conditions::are_known() {
  return driver().create_condition && driver().add_node && driver().capture_info &&
         driver().set_capture_position && driver().begin_capture_to;
}

// The graph's side of it is a function that the driver has for kernels.
KernelSource Conditions::source() {
  return {.name = "set_condition.cu",
          .text = R"(#include "ptx.h"
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned value);
extern "C" __global__ void set_condition(unsigned long long handle, const bool* condition,
                                         bool value) {
  tensor::device::wait_for_previous();
  cudaGraphSetConditional(handle, *condition == value);
}
)",
          .headers = device_headers(),
          .options = {"-default-device"}};
}

Conditions::Conditions(Device& device) {
  const Call call{.source = source(), .entry = "set_condition", .launch = {}, .arguments = {}};
  const Call* const calls[] = {&call};
  set_ = load_kernels(device, calls).front();
}

void Conditions::record(Stream& stream, Address condition, bool value,
                        const std::function<void(Stream&)>& record) const {
  unsigned long long handle = 0;
  stream.check(driver().create_condition(&handle, position_of(stream).graph,
                                         stream.device().context(), 0, 0),
               "recording a condition");
  (*set_)(stream, Launch{}, handle, condition, value);
  GraphHandle* body = add_body(stream, handle);
  Stream inside(stream.device(), true);
  stream.check(
      driver().begin_capture_to(inside.handle(), body, nullptr, nullptr, 0, kThreadLocalCapture),
      "recording a condition");
  try {
    record(inside);
  } catch (...) {
    driver().end_capture(inside.handle(), &body);
    throw;
  }
  stream.check(driver().end_capture(inside.handle(), &body), "recording a condition");
  stream.launched().add(inside.launched());
}

}  // namespace tensor::cuda
