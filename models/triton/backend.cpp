// What the server calls.
#include <span>

#include "models/triton/calls.h"
#include "models/triton/served.h"
#include "tensor/export.h"
#include "tensor/log.h"

using models::triton::check;
using models::triton::guarded;
using models::triton::Instance;
using models::triton::ServedModel;

namespace {

/// The oldest interface with all that is called here (RequestIsCancelled, newer, may be absent).
constexpr std::uint32_t kMajor = 1, kMinor = 10;

void check_version() {
  std::uint32_t major = 0, minor = 0;
  check(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major == kMajor && minor >= kMinor) return;
  tensor::fail("tensor", "the server's interface to backends is ", major, ".", minor, ", need ",
               kMajor, ".", kMinor, " or a later ", kMajor, ": use another Triton, or build this ",
               "backend anew");
}

void log_by_server() {
  tensor::set_log(
      [](tensor::LogLevel level, std::string_view text) {
        const int severity =
            level == tensor::LogLevel::info ? TRITONSERVER_LOG_INFO : TRITONSERVER_LOG_WARN;
        if (TRITONSERVER_Error* error =
                TRITONSERVER_LogMessage(severity, "tensor", 0, std::string(text).c_str()))
          TRITONSERVER_ErrorDelete(error);
      },
      tensor::LogLevel::info);
}

template <class State>
State* state_of(TRITONBACKEND_Model* model) {
  void* state = nullptr;
  check(TRITONBACKEND_ModelState(model, &state));
  return static_cast<State*>(state);
}

Instance* state_of(TRITONBACKEND_ModelInstance* instance) {
  void* state = nullptr;
  check(TRITONBACKEND_ModelInstanceState(instance, &state));
  return static_cast<Instance*>(state);
}

}  // namespace

extern "C" {

TENSOR_API TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {
  return guarded([] {
    check_version();
    log_by_server();
  });
}

TENSOR_API TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend*) {
  return guarded([] { tensor::set_log(nullptr); });
}

TENSOR_API TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return guarded([&] {
    auto served = std::make_unique<ServedModel>(model);
    check(TRITONBACKEND_ModelSetState(model, served.get()));
    served.release();  // until ModelFinalize
  });
}

TENSOR_API TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return guarded([&] { delete state_of<ServedModel>(model); });
}

TENSOR_API TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(
    TRITONBACKEND_ModelInstance* instance) {
  return guarded([&] {
    TRITONBACKEND_Model* model = nullptr;
    check(TRITONBACKEND_ModelInstanceModel(instance, &model));
    auto state = std::make_unique<Instance>(instance, *state_of<ServedModel>(model));
    check(TRITONBACKEND_ModelInstanceSetState(instance, state.get()));
    state.release();  // until ModelInstanceFinalize
  });
}

TENSOR_API TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(
    TRITONBACKEND_ModelInstance* instance) {
  return guarded([&] { delete state_of(instance); });
}

// From here on an answer of every request is the backend's to give: no error is returned.
TENSOR_API TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, std::uint32_t count) {
  if (TRITONSERVER_Error* error =
          guarded([&] { state_of(instance)->execute(std::span(requests, count)); }))
    TRITONSERVER_ErrorDelete(error);
  return nullptr;
}

}  // extern "C"
