// A server for the backend's tests: the functions that Triton has for backends, which count what
// becomes of every object. tests/triton/fake_server.cpp defines them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/triton/triton_api.h"

struct TRITONSERVER_Error {
  int code;
  std::string text;
};

struct TRITONSERVER_Message {
  std::string json;
};

struct TRITONBACKEND_Model {
  std::string folder, config;
  bool completes = true;
  std::string completed = {};  // what the backend made of the configuration
  void* state = nullptr;
};

struct TRITONBACKEND_ModelInstance {
  TRITONBACKEND_Model* model;
  int kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  void* state = nullptr;
  std::atomic<std::uint64_t> succeeded = 0, failed = 0, rows = 0, executions = 0;
};

struct TRITONBACKEND_Input {
  std::string name;
  int type;
  std::vector<std::int64_t> shape;
  std::vector<std::string> pieces;
  int memory = TRITONSERVER_MEMORY_CPU;
  void* on_gpu = nullptr;  // the one piece as it lies in GPU 0's memory
};

struct TRITONBACKEND_Output {
  int type;
  std::vector<std::int64_t> shape;
  std::string bytes;
  void* on_gpu = nullptr;
};

struct TRITONBACKEND_Response {
  TRITONBACKEND_Request* request;
  std::map<std::string, TRITONBACKEND_Output> outputs;
};

struct TRITONBACKEND_Request {
  std::vector<TRITONBACKEND_Input> inputs;
  std::vector<std::string> wanted;
  void* output_on_gpu = nullptr;  // where in GPU 0's memory all outputs are wanted
  bool is_cancelled = false;
  std::unique_ptr<TRITONBACKEND_Response> response = nullptr;
  // What became of it.
  int responses = 0, finals = 0, releases = 0, reports = 0, code = -1;  // 0: no error
  std::string error = {};
  std::map<std::string, TRITONBACKEND_Output> outputs = {};
};

namespace fake {

/// Errors and messages that nobody deleted yet.
std::int64_t living();
/// What the next call of this function gives instead of doing its work: "ResponseOutput".
void fail_next(const std::string& function);

}  // namespace fake

// What the backend exports.
extern "C" {
TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend);
TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend);
TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model);
TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model);
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance);
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance);
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       std::uint32_t count);
}
