#include "models/triton/served.h"

#include <cstring>

#include "models/common/preprocess.h"
#include "models/service/bytes.h"
#include "models/triton/calls.h"
#include "tensor/creation.h"
#include "tensor/text.h"

namespace models::triton {

namespace {

constexpr std::int64_t kMaxBatch = 8;  // where neither configuration nor model says

std::string device_text(const tensor::Device& device) {
  tensor::TextWriter text;
  text << device;
  return text.str();
}

std::string folder_of(TRITONBACKEND_Model* model) {
  int artifact = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  const char* location = nullptr;
  std::uint64_t version = 0;
  check(TRITONBACKEND_ModelRepository(model, &artifact, &location));
  check(TRITONBACKEND_ModelVersion(model, &version));
  return std::string(location) + "/" + std::to_string(version);
}

tensor::Device device_of(TRITONBACKEND_ModelInstance* instance) {
  int kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  std::int32_t device = 0;
  check(TRITONBACKEND_ModelInstanceKind(instance, &kind));
  check(TRITONBACKEND_ModelInstanceDeviceId(instance, &device));
  return kind == TRITONSERVER_INSTANCEGROUPKIND_GPU
             ? tensor::Device("cuda:" + std::to_string(device))
             : tensor::Device();
}

/// The elements where they lie, or a copy where no tensor could lie there.
tensor::Tensor tensor_of(const Request::Input& input) {
  const std::optional<tensor::DType> dtype = service::dtype_named(datatype_of(input.type));
  if (!dtype)
    tensor::fail(input.name, "has elements of ", datatype_of(input.type),
                 ", which models do not take");
  const auto item = static_cast<std::size_t>(tensor::item_size(*dtype));
  const auto need = static_cast<std::size_t>(tensor::num_elements(input.shape)) * item;
  if (input.bytes.size() != need)
    tensor::fail(input.name, "got ", input.bytes.size(), " bytes, need ", need, " for ",
                 tensor::TensorType{input.shape, *dtype});
  if (input.device.is_cuda())
    return tensor::from_memory(const_cast<char*>(input.bytes.data()), input.shape, *dtype, nullptr,
                               input.device);
  const void* data = input.bytes.data();
  std::shared_ptr<std::vector<std::byte>> owner;
  if (reinterpret_cast<std::uintptr_t>(data) % item != 0 || need == 0) {
    owner = std::make_shared<std::vector<std::byte>>(need + item);
    std::memcpy(owner->data(), data, need);
    data = owner->data();
  }
  return tensor::from_memory(data, input.shape, *dtype, owner);
}

service::Array array_of(const std::string& name, const tensor::Tensor& result) {
  const tensor::Tensor x = result.to("cpu");
  const std::span<const std::byte> bytes = service::bytes_of(x.is_contiguous() ? x : x.copy());
  return {name,
          std::string(service::datatype_of(x.dtype())),
          x.shape(),
          {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

}  // namespace

ServedModel::ServedModel(TRITONBACKEND_Model* model) : folder_(folder_of(model)) {
  TRITONSERVER_Message* message = nullptr;
  check(TRITONBACKEND_ModelConfig(model, 1, &message));
  config_ = read_config(text_of(Message(message).get()));
  max_batch_ = config_.max_batch > 0 ? config_.max_batch : kMaxBatch;
  const std::shared_ptr<service::Model> opened = on(config_.device);
  takes_pictures_ = opened->program() && opened->options().takes == Takes::images;
  face_ = face_of(*opened, takes_pictures_);
  bool wants_completion = false;
  check(TRITONBACKEND_ModelAutoCompleteConfig(model, &wants_completion));
  if (wants_completion)
    check(TRITONBACKEND_ModelSetConfig(model, 1, message_of(completed(config_, face_)).get()));
  else
    check_config(config_, face_);
  if (takes_pictures_ && !wants_completion && config_.max_batch == 0)
    tensor::fail(config_.name, "got max_batch_size 0, need at least 1 for pictures");
}

std::shared_ptr<service::Model> ServedModel::on(const tensor::Device& device) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<service::Model>& model = models_[device_text(device)];
  if (!model) model = service::Model::open(folder_, open_options(config_, device, max_batch_));
  return model;
}

Instance::Instance(TRITONBACKEND_ModelInstance* instance, ServedModel& served)
    : instance_(instance), served_(served), model_(served.on(device_of(instance))) {
  model_->warm_up();
}

Instance::Task Instance::task_of(Request& request) const {
  Task task{&request};
  for (const Request::Input& input : request.inputs()) {
    if (!served_.takes_pictures()) {
      const tensor::Tensor x = tensor_of(input);
      const bool is_on_gpu = x.device().is_cuda();
      task.inputs.emplace(input.name, is_on_gpu ? x.to(model_->options().device) : x);
      continue;
    }
    if (input.name != service::kPicture || input.type != TRITONSERVER_TYPE_BYTES)
      tensor::fail(input.name, "got ", datatype_of(input.type), ", need \"", service::kPicture,
                   "\" of BYTES: the bytes of picture files");
    if (input.device.is_cuda())
      tensor::fail(input.name,
                   "lies in a GPU's memory, where pictures are not read: send it, or "
                   "use system shared memory");
    const std::int64_t count = tensor::num_elements(input.shape);
    task.pictures = service::texts_in(input.bytes, count, input.name);
  }
  return task;
}

void Instance::answer_pictures(std::deque<Task>& tasks) const {
  std::vector<std::span<const std::byte>> pictures;
  for (const Task& task : tasks)
    for (const std::string_view picture : task.pictures)
      pictures.push_back(std::as_bytes(std::span(picture)));
  const std::vector<service::Seen> seen = model_->look_each(pictures);
  std::size_t at = 0;
  for (const Task& task : tasks) {
    std::vector<ImageResult> results;
    std::exception_ptr error;
    for (std::size_t i = 0; i < task.pictures.size(); ++i, ++at) {
      if (seen[at].error && !error) error = seen[at].error;
      results.push_back(seen[at].result);
    }
    try {
      if (error) std::rethrow_exception(error);
      std::vector<service::Array> outputs;
      for (const service::Array& output : served_.face().outputs)
        if (task.request->wants(output.name))
          outputs.push_back(service::face_output(output, results, *model_->program()));
      task.request->answer(outputs);
    } catch (...) {
      task.request->fail(std::current_exception());
    }
  }
}

void Instance::answer_calls(std::deque<Task>& tasks) const {
  std::vector<tensor::nn::StateDict> calls;
  for (const Task& task : tasks) calls.push_back(task.inputs);
  const std::vector<service::Outcome> outcomes = model_->run_each(calls);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    try {
      if (outcomes[i].error) std::rethrow_exception(outcomes[i].error);
      std::vector<service::Array> outputs;
      for (const auto& [name, value] : outcomes[i].outputs)
        if (tasks[i].request->wants(name)) outputs.push_back(array_of(name, value));
      tasks[i].request->answer(outputs);
    } catch (...) {
      tasks[i].request->fail(std::current_exception());
    }
  }
}

void Instance::execute(std::span<TRITONBACKEND_Request* const> requests) {
  Times times{.start = now()};
  std::deque<Request> owned;
  for (TRITONBACKEND_Request* request : requests) owned.emplace_back(instance_, request);
  std::deque<Task> tasks;
  std::uint64_t rows = 0;
  for (Request& request : owned) {
    if (!request.is_open()) continue;
    try {
      if (request.is_cancelled()) {
        request.cancel();
        continue;
      }
      tasks.push_back(task_of(request));
      const Task& task = tasks.back();
      rows += served_.takes_pictures() ? task.pictures.size()
              : served_.face().max_batch > 0
                  ? static_cast<std::uint64_t>(task.inputs.begin()->second.shape(0))
                  : 1;
    } catch (...) {
      request.fail(std::current_exception());
    }
  }
  times.compute_start = now();
  if (!tasks.empty()) served_.takes_pictures() ? answer_pictures(tasks) : answer_calls(tasks);
  times.compute_end = now();
  tasks.clear();  // what lies in the server's memory goes before the requests do
  for (Request& request : owned) request.release(times);
  if (rows > 0)
    check(TRITONBACKEND_ModelInstanceReportBatchStatistics(
        instance_, rows, times.start, times.compute_start, times.compute_end, now()));
}

}  // namespace models::triton
