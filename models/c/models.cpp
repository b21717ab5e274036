// Options, models and answers of the C interface.
#include <algorithm>
#include <array>

#include "models/c/tensors.h"
#include "models/service/model.h"

namespace models::c {

namespace {

struct OptionsObject {
  std::mutex mutex;
  service::OpenOptions options;
};
using AllOptions = Handles<OptionsObject, tc_options, Kind::options>;
using Models = Handles<service::Model, tc_model, Kind::model>;

struct AnswerObject {
  ImageResult result;
  std::string json;
};
using Answers = Handles<AnswerObject, tc_answer, Kind::answer>;

service::OpenOptions options_of(const tc_options* options) {
  if (!options) return {};
  const std::shared_ptr<OptionsObject> object = AllOptions::all().at(options);
  const std::lock_guard lock(object->mutex);
  return object->options;
}

using Side = std::vector<service::Port> service::Ports::*;

/// What `read` makes of the ports on one side, while the model stays.
template <class Read>
tc_status with_ports(const tc_model* model, Side side, const Read& read) {
  return guarded([&] {
    const std::shared_ptr<service::Model> object = Models::all().at(model);
    read(object->ports().*side);
  });
}

template <class Read>
tc_status with_port(const tc_model* model, Side side, std::size_t index, const Read& read) {
  return with_ports(model, side, [&](const std::vector<service::Port>& all) {
    if (index >= all.size())
      tensor::fail("index", "got ", index, ", the model has ", all.size(), " of these");
    read(all[index]);
  });
}

tc_status count(const tc_model* model, Side side, std::size_t* result) {
  return with_ports(model, side, [&](const auto& all) { need(result, "count") = all.size(); });
}

tc_status name(const tc_model* model, Side side, std::size_t index, const char** result) {
  return with_port(model, side, index,
                   [&](const service::Port& port) { need(result, "name") = port.name.c_str(); });
}

tc_status type(const tc_model* model, Side side, std::size_t index, tc_dtype* dtype, int* rank,
               std::int64_t* extents, std::size_t capacity) {
  return with_port(model, side, index, [&](const service::Port& port) {
    write_type(port.dtype, port.shape ? &*port.shape : nullptr, dtype, rank, extents, capacity);
  });
}

constexpr Side kInputs = &service::Ports::inputs, kOutputs = &service::Ports::outputs;

tensor::nn::StateDict named(const std::vector<service::Port>& inputs, const tc_tensor* const* given,
                            std::size_t count) {
  if (count != inputs.size())
    tensor::fail("inputs", "got ", count, ", the model takes ", inputs.size());
  if (count > 0) need(given, "inputs");
  tensor::nn::StateDict result;
  for (std::size_t i = 0; i < count; ++i) {
    if (!given[i] && inputs[i].is_optional) continue;
    result.emplace(inputs[i].name, Tensors::all().at(given[i])->value);
  }
  return result;
}

}  // namespace

}  // namespace models::c

using namespace models::c;

tc_status tc_options_new(tc_options** options) {
  return guarded([&] {
    need(options, "options");
    *options = AllOptions::all().add(std::make_shared<OptionsObject>());
  });
}

tc_status tc_options_set(tc_options* options, const char* name, const char* value) {
  return guarded([&] {
    const std::shared_ptr<OptionsObject> object = AllOptions::all().at(options);
    need(name, "name");
    need(value, "value");
    const std::lock_guard lock(object->mutex);
    object->options.set(name, value);
  });
}

tc_status tc_options_free(tc_options* options) {
  return guarded([&] { AllOptions::all().remove(options); });
}

tc_status tc_model_open(const char* path, const tc_options* options, tc_model** model) {
  return guarded([&] {
    need(path, "path");
    need(model, "model");
    *model = Models::all().add(models::service::Model::open(path, options_of(options)));
  });
}

tc_status tc_model_parse(const void* bytes, size_t size, const tc_options* options,
                         tc_model** model) {
  return guarded([&] {
    need(model, "model");
    *model = Models::all().add(
        models::service::Model::parse(span_of(bytes, size), "the model", options_of(options)));
  });
}

tc_status tc_model_free(tc_model* model) {
  return guarded([&] { Models::all().remove(model); });
}

tc_status tc_model_input_count(const tc_model* model, size_t* result) {
  return count(model, kInputs, result);
}
tc_status tc_model_output_count(const tc_model* model, size_t* result) {
  return count(model, kOutputs, result);
}
tc_status tc_model_input_name(const tc_model* model, size_t index, const char** result) {
  return name(model, kInputs, index, result);
}
tc_status tc_model_output_name(const tc_model* model, size_t index, const char** result) {
  return name(model, kOutputs, index, result);
}
tc_status tc_model_input_type(const tc_model* model, size_t index, tc_dtype* dtype, int* rank,
                              int64_t* extents, size_t capacity) {
  return type(model, kInputs, index, dtype, rank, extents, capacity);
}
tc_status tc_model_output_type(const tc_model* model, size_t index, tc_dtype* dtype, int* rank,
                               int64_t* extents, size_t capacity) {
  return type(model, kOutputs, index, dtype, rank, extents, capacity);
}
tc_status tc_model_input_is_optional(const tc_model* model, size_t index, int* yes) {
  return with_port(model, kInputs, index, [&](const models::service::Port& port) {
    need(yes, "yes") = port.is_optional ? 1 : 0;
  });
}
tc_status tc_model_takes_pictures(const tc_model* model, int* yes) {
  return guarded([&] { need(yes, "yes") = Models::all().at(model)->program() ? 1 : 0; });
}

namespace {

template <class Run>
tc_status run_with(tc_model* model, const tc_tensor* const* inputs, size_t input_count,
                   tc_tensor** outputs, size_t output_count, const Run& run) {
  return guarded([&] {
    const std::shared_ptr<models::service::Model> object = Models::all().at(model);
    const models::service::Ports& ports = object->ports();
    if (output_count != ports.outputs.size())
      tensor::fail("outputs", "got room for ", output_count, ", the model gives ",
                   ports.outputs.size());
    if (output_count > 0) need(outputs, "outputs");
    const tensor::nn::StateDict results = run(*object, named(ports.inputs, inputs, input_count));
    for (std::size_t i = 0; i < output_count; ++i)
      outputs[i] = handle_of(results.at(ports.outputs[i].name));
  });
}

}  // namespace

tc_status tc_model_run(tc_model* model, const tc_tensor* const* inputs, size_t input_count,
                       tc_tensor** outputs, size_t output_count) {
  return run_with(model, inputs, input_count, outputs, output_count,
                  [](models::service::Model& object, const tensor::nn::StateDict& given) {
                    return object.run(given);
                  });
}

tc_status tc_model_enqueue(tc_model* model, const tc_tensor* const* inputs, size_t input_count,
                           tc_tensor** outputs, size_t output_count, void* stream) {
  return run_with(model, inputs, input_count, outputs, output_count,
                  [&](models::service::Model& object, const tensor::nn::StateDict& given) {
                    return object.enqueue(given, stream);
                  });
}

tc_status tc_model_look(tc_model* model, const void* bytes, size_t size, tc_answer** answer) {
  return guarded([&] {
    need(answer, "answer");
    const std::shared_ptr<models::service::Model> object = Models::all().at(model);
    models::service::Seen seen = object->look(span_of(bytes, size));
    if (seen.error) std::rethrow_exception(seen.error);
    std::string json = models::service::json_of(seen.result, *object->program());
    *answer = Answers::all().add(
        std::make_shared<AnswerObject>(AnswerObject{std::move(seen.result), std::move(json)}));
  });
}

tc_status tc_answer_json(const tc_answer* answer, const char** text) {
  return guarded([&] { need(text, "text") = Answers::all().at(answer)->json.c_str(); });
}

tc_status tc_answer_count(const tc_answer* answer, size_t* count) {
  return guarded([&] { need(count, "count") = Answers::all().at(answer)->result.findings.size(); });
}

tc_status tc_answer_finding(const tc_answer* answer, size_t index, const char** label, int64_t* id,
                            double* score, double* box) {
  return guarded([&] {
    const std::shared_ptr<AnswerObject> object = Answers::all().at(answer);
    const std::vector<models::Finding>& findings = object->result.findings;
    if (index >= findings.size())
      tensor::fail("index", "got ", index, ", the answer has ", findings.size(), " findings");
    const models::Finding& finding = findings[index];
    if (label) *label = finding.label.c_str();
    if (id) *id = finding.id;
    if (score) *score = finding.score;
    if (box) std::ranges::copy(finding.box.value_or(std::array<double, 4>{}), box);
  });
}

tc_status tc_answer_classes(const tc_answer* answer, tc_tensor** classes) {
  return guarded([&] {
    need(classes, "classes");
    const tensor::Tensor labels = Answers::all().at(answer)->result.labels;
    if (!labels.defined()) tensor::fail("classes", "this model gives no class for every pixel");
    *classes = handle_of(labels);
  });
}

tc_status tc_answer_free(tc_answer* answer) {
  return guarded([&] { Answers::all().remove(answer); });
}
