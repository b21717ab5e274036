// Request: one request of the server, answered and given back exactly once.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "models/service/face.h"
#include "models/triton/triton_api.h"
#include "tensor/device.h"

namespace models::triton {

/// Nanoseconds, as the server's statistics count them.
std::uint64_t now();

struct Times {
  std::uint64_t start = 0, compute_start = 0, compute_end = 0;
};

class Request {
 public:
  /// Takes it over.
  Request(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request);
  /// Answers with an error what was not answered, and releases it.
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  /// Whether it waits for an answer.
  bool is_open() const { return is_open_; }
  /// Whether the client has gone.
  bool is_cancelled() const;

  /// An array that came, its shape with the batch. Its bytes are the server's, or if they came in
  /// several pieces kept here.
  struct Input {
    std::string name;
    int type = 0;
    tensor::Shape shape;
    std::string_view bytes;
    tensor::Device device = {};  // where the bytes are
  };
  /// UserError on an input in several pieces of which one lies in a GPU's memory.
  std::vector<Input> inputs();
  bool wants(const std::string& output) const;

  void answer(const std::vector<service::Array>& outputs);
  void fail(const std::exception_ptr& error);
  void cancel();
  /// Ends it, for the statistics. It must be answered.
  void release(const Times& times);

 private:
  void send(TRITONSERVER_Error* error);

  TRITONBACKEND_ModelInstance* instance_;
  TRITONBACKEND_Request* request_;
  TRITONBACKEND_Response* response_ = nullptr;
  std::vector<std::string> wanted_, joined_;
  bool is_open_ = true, is_good_ = false;
};

/// The server's number for "FP32", and back.
int type_of(std::string_view datatype);
std::string_view datatype_of(int type);

}  // namespace models::triton
