#include "tests/triton/fake_server.h"

#include <mutex>
#include <set>

#include "tensor/json.h"

namespace {

std::atomic<std::int64_t> objects = 0;
std::mutex failing_mutex;
std::set<std::string> failing;

TRITONSERVER_Error* outcome(const std::string& function) {
  const std::lock_guard lock(failing_mutex);
  if (failing.erase(function) == 0) return nullptr;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, (function + " failed").c_str());
}

}  // namespace

namespace fake {
std::int64_t living() { return objects; }
void fail_next(const std::string& function) {
  const std::lock_guard lock(failing_mutex);
  failing.insert(function);
}
}  // namespace fake

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(std::uint32_t* major, std::uint32_t* minor) {
  *major = 1, *minor = 19;
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_ErrorNew(int code, const char* text) {
  ++objects;
  return new TRITONSERVER_Error{code, text};
}
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) {
  --objects;
  delete error;
}
const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return error->text.c_str(); }
TRITONSERVER_Error* TRITONSERVER_LogMessage(int, const char*, int, const char*) { return nullptr; }
TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message** message,
                                                              const char* text, std::size_t size) {
  ++objects;
  *message = new TRITONSERVER_Message{{text, size}};
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message,
                                                        const char** text, std::size_t* size) {
  *text = message->json.data();
  *size = message->json.size();
  return nullptr;
}
TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  --objects;
  delete message;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model*, std::uint64_t* version) {
  *version = 1;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model, int* artifact,
                                                  const char** location) {
  *artifact = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = model->folder.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, std::uint32_t,
                                              TRITONSERVER_Message** config) {
  return TRITONSERVER_MessageNewFromSerializedJson(config, model->config.data(),
                                                   model->config.size());
}
TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model* model,
                                                          bool* wanted) {
  *wanted = model->completes;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model, std::uint32_t,
                                                 TRITONSERVER_Message* config) {
  const tensor::Json given = tensor::Json::parse(model->config, "the given configuration");
  const tensor::Json completed = tensor::Json::parse(config->json, "the completed configuration");
  if (given.has("dynamic_batching") && !completed.has("dynamic_batching"))
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "Cannot update scheduling choice");
  model->completed = config->json;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state) {
  *state = model->state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state) {
  model->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance* instance,
                                                    int* kind) {
  *kind = instance->kind;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance*,
                                                        std::int32_t* device) {
  *device = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* instance,
                                                     TRITONBACKEND_Model** model) {
  *model = instance->model;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance* instance,
                                                     void** state) {
  *state = instance->state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance* instance,
                                                        void* state) {
  instance->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request,
                                                    std::uint32_t* count) {
  *count = static_cast<std::uint32_t>(request->inputs.size());
  return outcome("RequestInputCount");
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request,
                                                      std::uint32_t index,
                                                      TRITONBACKEND_Input** input) {
  *input = &request->inputs.at(index);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request,
                                                     std::uint32_t* count) {
  *count = static_cast<std::uint32_t>(request->wanted.size());
  return outcome("RequestOutputCount");
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request,
                                                    std::uint32_t index, const char** name) {
  *name = request->wanted.at(index).c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, std::uint32_t) {
  ++request->releases;
  for (TRITONBACKEND_Input& input : request->inputs)
    for (std::string& piece : input.pieces) std::string().swap(piece);  // the memory is gone
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request* request,
                                                     bool* cancelled) {
  *cancelled = request->is_cancelled;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  int* type, const std::int64_t** shape,
                                                  std::uint32_t* rank, std::uint64_t* bytes,
                                                  std::uint32_t* buffers) {
  *name = input->name.c_str();
  *type = input->type;
  *shape = input->shape.data();
  *rank = static_cast<std::uint32_t>(input->shape.size());
  *bytes = 0;
  for (const std::string& piece : input->pieces) *bytes += piece.size();
  *buffers = static_cast<std::uint32_t>(input->pieces.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, std::uint32_t index,
                                              const void** buffer, std::uint64_t* bytes,
                                              int* memory, std::int64_t* device) {
  *device = 0;
  *buffer = input->on_gpu ? input->on_gpu : input->pieces.at(index).data();
  *bytes = input->pieces[index].size();
  *memory = input->memory;
  return outcome("InputBuffer");
}

TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response,
                                              TRITONBACKEND_Request* request) {
  if (TRITONSERVER_Error* error = outcome("ResponseNew")) return error;
  ++request->responses;
  request->response = std::make_unique<TRITONBACKEND_Response>();
  request->response->request = request;
  *response = request->response.get();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response,
                                                 TRITONBACKEND_Output** output, const char* name,
                                                 int type, const std::int64_t* shape,
                                                 std::uint32_t rank) {
  *output = &response->outputs[name];
  (*output)->type = type;
  (*output)->shape.assign(shape, shape + rank);
  (*output)->on_gpu = response->request->output_on_gpu;
  return outcome("ResponseOutput");
}
TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** buffer,
                                               std::uint64_t bytes, int* memory,
                                               std::int64_t* device) {
  output->bytes.resize(bytes);
  *buffer = output->on_gpu ? output->on_gpu : output->bytes.data();
  *memory = output->on_gpu ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU;
  *device = 0;
  return outcome("OutputBuffer");
}
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response,
                                               std::uint32_t flags, TRITONSERVER_Error* error) {
  TRITONBACKEND_Request& request = *response->request;
  if (flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL) ++request.finals;
  request.code = error ? error->code : 0;
  if (error) request.error = error->text;
  request.outputs = std::move(response->outputs);
  request.response.reset();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, bool success,
    std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t) {
  if (request->releases == 0) ++request->reports;  // later it would be lost
  ++(success ? instance->succeeded : instance->failed);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, std::uint64_t rows, std::uint64_t, std::uint64_t,
    std::uint64_t, std::uint64_t) {
  instance->rows += rows;
  ++instance->executions;
  return nullptr;
}

}  // extern "C"
