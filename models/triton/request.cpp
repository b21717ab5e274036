#include "models/triton/request.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "models/triton/calls.h"
#include "tensor/creation.h"
#include "tensor/error.h"
#include "tensor/index.h"

namespace models::triton {

namespace {

struct Row {
  int type;
  std::string_view datatype;
};
constexpr std::array<Row, 11> kTypes{{{TRITONSERVER_TYPE_BOOL, "BOOL"},
                                      {TRITONSERVER_TYPE_UINT8, "UINT8"},
                                      {TRITONSERVER_TYPE_INT8, "INT8"},
                                      {TRITONSERVER_TYPE_INT16, "INT16"},
                                      {TRITONSERVER_TYPE_INT32, "INT32"},
                                      {TRITONSERVER_TYPE_INT64, "INT64"},
                                      {TRITONSERVER_TYPE_FP16, "FP16"},
                                      {TRITONSERVER_TYPE_BF16, "BF16"},
                                      {TRITONSERVER_TYPE_FP32, "FP32"},
                                      {TRITONSERVER_TYPE_FP64, "FP64"},
                                      {TRITONSERVER_TYPE_BYTES, "BYTES"}}};

/// What cannot be mended where it happens: the server's log has it.
void log_failure(TRITONSERVER_Error* error) {
  if (!error) return;
  const std::string text = TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  if (TRITONSERVER_Error* again =
          TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, "tensor", 0, text.c_str()))
    TRITONSERVER_ErrorDelete(again);
}

tensor::Device gpu(std::int64_t number) { return tensor::Device("cuda:" + std::to_string(number)); }

void write(TRITONBACKEND_Response* response, const service::Array& array) {
  TRITONBACKEND_Output* output = nullptr;
  check(TRITONBACKEND_ResponseOutput(response, &output, array.name.c_str(), type_of(array.datatype),
                                     array.shape.begin(),
                                     static_cast<std::uint32_t>(array.shape.rank())));
  void* buffer = nullptr;
  int memory = TRITONSERVER_MEMORY_CPU;
  std::int64_t device = 0;
  check(TRITONBACKEND_OutputBuffer(output, &buffer, array.bytes.size(), &memory, &device));
  if (array.bytes.empty()) return;
  if (memory != TRITONSERVER_MEMORY_GPU) {
    std::memcpy(buffer, array.bytes.data(), array.bytes.size());
    return;
  }
  const void* bytes = array.bytes.data();
  const tensor::Shape shape = {std::ssize(array.bytes)};
  tensor::from_memory(buffer, shape, tensor::u8, nullptr, gpu(device))(tensor::ellipsis) =
      tensor::from_memory(bytes, shape, tensor::u8, nullptr);
}

}  // namespace

std::uint64_t now() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

int type_of(std::string_view datatype) {
  const auto row = std::ranges::find(kTypes, datatype, &Row::datatype);
  return row == kTypes.end() ? TRITONSERVER_TYPE_INVALID : row->type;
}

std::string_view datatype_of(int type) {
  const auto row = std::ranges::find(kTypes, type, &Row::type);
  return row == kTypes.end() ? "a type that is not known" : row->datatype;
}

Request::Request(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request)
    : instance_(instance), request_(request) {
  // Without a response there is nobody to tell: it is released as it is.
  if (TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response_, request)) {
    log_failure(error);
    is_open_ = false;
    return;
  }
  try {
    std::uint32_t count = 0;
    check(TRITONBACKEND_RequestOutputCount(request, &count));
    for (std::uint32_t i = 0; i < count; ++i) {
      const char* name = nullptr;
      check(TRITONBACKEND_RequestOutputName(request, i, &name));
      wanted_.emplace_back(name);
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

Request::~Request() {
  if (!request_) return;
  if (is_open_)
    send(TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "the backend gave no answer"));
  log_failure(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL));
}

bool Request::is_cancelled() const {
  bool cancelled = false;
  if (TRITONBACKEND_RequestIsCancelled)
    check(TRITONBACKEND_RequestIsCancelled(request_, &cancelled));
  return cancelled;
}

std::vector<Request::Input> Request::inputs() {
  std::uint32_t count = 0;
  check(TRITONBACKEND_RequestInputCount(request_, &count));
  std::vector<Input> inputs(count);
  joined_.assign(count, {});
  for (std::uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_Input* input = nullptr;
    check(TRITONBACKEND_RequestInputByIndex(request_, i, &input));
    const char* name = nullptr;
    const std::int64_t* shape = nullptr;
    std::uint32_t rank = 0, buffers = 0;
    std::uint64_t bytes = 0;
    check(TRITONBACKEND_InputProperties(input, &name, &inputs[i].type, &shape, &rank, &bytes,
                                        &buffers));
    inputs[i].name = name;
    inputs[i].shape = tensor::Shape(std::span(shape, rank));
    for (std::uint32_t piece = 0; piece < buffers; ++piece) {
      const void* buffer = nullptr;
      std::uint64_t size = 0;
      int memory = TRITONSERVER_MEMORY_CPU;
      std::int64_t device = 0;
      check(TRITONBACKEND_InputBuffer(input, piece, &buffer, &size, &memory, &device));
      if (memory == TRITONSERVER_MEMORY_GPU) {
        if (buffers > 1)
          tensor::fail(name, "lies in a GPU's memory in ", buffers, " pieces, need one");
        inputs[i].device = gpu(device);
      }
      const std::string_view part(static_cast<const char*>(buffer), size);
      if (buffers == 1)
        inputs[i].bytes = part;
      else
        inputs[i].bytes = joined_[i] += part;
    }
    if (inputs[i].bytes.size() != bytes)
      tensor::fail(name, "got ", inputs[i].bytes.size(), " bytes, of which ", bytes,
                   " were announced");
  }
  return inputs;
}

bool Request::wants(const std::string& output) const {
  return std::ranges::find(wanted_, output) != wanted_.end();
}

void Request::answer(const std::vector<service::Array>& outputs) {
  try {
    for (const service::Array& array : outputs) write(response_, array);
    is_good_ = true;
    send(nullptr);
  } catch (...) {
    is_good_ = false;
    fail(std::current_exception());
  }
}

void Request::fail(const std::exception_ptr& error) { send(error_of(error)); }

void Request::cancel() {
  send(TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_CANCELLED, "the client cancelled the request"));
}

void Request::send(TRITONSERVER_Error* error) {
  is_open_ = false;
  log_failure(TRITONBACKEND_ResponseSend(response_, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  if (error) TRITONSERVER_ErrorDelete(error);
}

void Request::release(const Times& times) {
  TRITONBACKEND_Request* request = std::exchange(request_, nullptr);
  log_failure(TRITONBACKEND_ModelInstanceReportStatistics(
      instance_, request, is_good_, times.start, times.compute_start, times.compute_end, now()));
  log_failure(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

}  // namespace models::triton
