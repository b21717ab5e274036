#include "models/service/model.h"

#include <algorithm>
#include <thread>

#include "models/common/preprocess.h"
#include "models/common/report.h"
#include "models/common/run_options.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tensor/text.h"

namespace models::service {

using tensor::nn::StateDict;

namespace {

StateDict pixels(const tensor::Shape& shape) {
  return {{"pixel_values", tensor::broadcast_to(tensor::zeros({}, tensor::f32), shape)}};
}

std::vector<Port> outputs_of(const NamedExecutable& executable) {
  std::vector<Port> ports;
  for (std::size_t i = 0; i < executable.outputs.size(); ++i) {
    const tensor::TensorType& type = executable.executable.output_types()[i];
    ports.push_back({executable.outputs[i], type.dtype, type.shape});
  }
  return ports;
}

}  // namespace

Model::Model(Opened opened, OpenOptions options)
    : options_(std::move(options)),
      opened_(std::move(opened)),
      compiled_(opened_.compile),
      finishing_([this](const StateDict& inputs, const tensor::Sharing& sharing) {
        return compile_named([this](const StateDict& in) { return program()->run(in, {}); }, inputs,
                             {.device = options_.device, .sharing = sharing});
      }) {}

const Ports& Model::ports() {
  std::call_once(probed_, [this] { probe(); });
  return ports_;
}

std::vector<std::string> Model::needed_inputs() const {
  std::vector<std::string> names;
  for (const Port& port : opened_.ports.inputs)
    if (!port.is_optional) names.push_back(port.name);
  return names;
}

void Model::probe() {
  ports_ = opened_.ports;
  if (!program()) return;
  const tensor::Shape usual = program()->usual_shape();
  const auto outputs_for = [&](std::int64_t height, std::int64_t width) {
    return outputs_of(compiled_.executable(pixels({1, usual[0], height, width})));
  };
  ports_.outputs = outputs_for(usual[1], usual[2]);
  bool is_fixed = false;
  try {
    constexpr std::int64_t kOther = 32;  // more, or less: what every network can halve five times
    const auto other = [&](std::int64_t extent) {
      return extent > 4 * kOther ? extent - kOther : extent + kOther;
    };
    const std::vector<Port> others = outputs_for(other(usual[1]), other(usual[2]));
    for (std::size_t i = 0; i < others.size(); ++i)
      widen(ports_.outputs[i], *others[i].shape, others[i].name);
  } catch (const tensor::UserError&) {
    is_fixed = true;  // the model takes one size
  }
  for (Port& port : ports_.outputs) (*port.shape)[0] = -1;
  for (Port& port : ports_.inputs) {
    const int height = port.shape->rank() - 2;
    if (is_fixed) (*port.shape)[height] = usual[1], (*port.shape)[height + 1] = usual[2];
  }
}

StateDict Model::compiled(const StateDict& inputs) {
  StateDict outputs = compiled_.executable(inputs)(inputs);
  if (std::ranges::none_of(inputs, [](const auto& x) { return x.second.device().is_cuda(); }))
    for (auto& [name, value] : outputs) value = value.to("cpu");
  return outputs;
}

void Model::check_call(const StateDict& inputs) const {
  check_inputs(opened_.ports, inputs);
  if (program()) program()->check(inputs);
}

StateDict Model::run(const StateDict& inputs) {
  check_call(inputs);
  return compiled(inputs);
}

StateDict Model::enqueue(const StateDict& inputs, tensor::CudaStream stream) {
  check_call(inputs);
  const NamedExecutable executable = compiled_.executable(inputs);
  const std::vector<tensor::Tensor> results =
      tensor::enqueue(executable.executable, executable.arguments(inputs), stream);
  if (executable.rest) tensor::synchronize(options_.device, stream);
  StateDict outputs = executable.finished(results);
  if (executable.rest)
    for (auto& [name, value] : outputs) value = value.to(options_.device);
  return outputs;
}

std::vector<Outcome> Model::run_each(const std::vector<StateDict>& calls) {
  std::vector<Outcome> outcomes(calls.size());
  std::vector<std::size_t> good;
  std::vector<const StateDict*> joined;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    try {
      if (!opened_.ports.are_batched) {
        outcomes[i].outputs = run(calls[i]);
        continue;
      }
      check_call(calls[i]);
      good.push_back(i);
      joined.push_back(&calls[i]);
    } catch (...) {
      outcomes[i].error = std::current_exception();
    }
  }
  std::vector<Outcome> answers =
      run_joined(joined, batches(), [this](const StateDict& inputs) { return compiled(inputs); });
  for (std::size_t i = 0; i < good.size(); ++i) outcomes[good[i]] = std::move(answers[i]);
  return outcomes;
}

/// What `look` calls: a pass of its own, checked on both sides, or what is made of outputs.
StateDict Model::pass(const StateDict& inputs, const Forward& forward) {
  if (!is_pass(inputs))
    return options_.device.is_cuda() ? finishing_.executable(inputs)(inputs)
                                     : program()->run(inputs, {});
  program()->check(inputs);
  StateDict outputs = forward(inputs);
  if (has_nan(outputs))
    throw tensor::Error(program()->name() +
                        ": the model's output is NaN: the weights are damaged, or values overflow");
  return outputs;
}

tensor::Tensor Model::decoded(std::span<const std::byte> picture) const {
  return tensor::decode_image(picture, kImage, options_.max_pixels);
}

Seen Model::see(const std::function<tensor::Tensor()>& image, const Forward& forward) {
  Seen seen;
  try {
    if (!program())
      tensor::fail("model",
                   "takes tensors: a plan or an ONNX file does not say how pictures "
                   "become its inputs; open a checkpoint folder");
    seen.result = program()->look(image(), false,
                                  [&](const StateDict& inputs) { return pass(inputs, forward); });
  } catch (...) {
    seen.error = std::current_exception();
  }
  return seen;
}

Seen Model::look(std::span<const std::byte> picture) {
  return see([&] { return decoded(picture); },
             [this](const StateDict& in) { return compiled_.executable(in)(in); });
}

Seen Model::look(const tensor::Tensor& image) {
  const auto checked = [&] {
    if (image.dtype() != tensor::u8 || image.rank() != 3 || image.shape(2) != 3 ||
        image.size() == 0)
      tensor::fail(kImage, "got ", image.type(), ", need u8(rows, columns, 3), the colours in RGB");
    return image;
  };
  return see(checked, [this](const StateDict& in) { return compiled_.executable(in)(in); });
}

std::vector<Seen> Model::look_each(const std::vector<std::span<const std::byte>>& pictures) {
  if (pictures.size() == 1) return {look(pictures.front())};
  std::vector<Seen> seen(pictures.size());
  Meeting meeting(pictures.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < pictures.size(); ++i) try {
      threads.emplace_back([&, i] {
        seen[i] = see([&] { return decoded(pictures[i]); },
                      [&](const StateDict& inputs) { return meeting.ask(inputs); });
        meeting.leave();
      });
    } catch (...) {  // no thread is to be had: the others do not wait for it
      seen[i].error = std::current_exception();
      meeting.leave();
    }
  meeting.serve(batches(), [this](const StateDict& in) { return compiled_.executable(in)(in); });
  return threads.clear(), seen;
}

void Model::warm_up() {
  if (!program()) return;
  const tensor::Shape usual = program()->usual_shape();
  for (const std::int64_t batch : batches().sizes) {
    StateDict inputs = program()->blank({1, {usual[1], usual[2]}});
    for (auto& [name, value] : inputs) {
      tensor::Shape shape = value.shape();
      shape[0] = batch;
      value = tensor::broadcast_to(tensor::zeros({}, value.dtype()) + 1, shape);
    }
    compiled_.executable(inputs)(inputs);
  }
}

std::string json_of(const ImageResult& result, const Program& program) {
  tensor::TextWriter text;
  text << "{\"findings\": ";
  print_findings_json(text, result.findings, program.score_name());
  text << "}";
  return text.str();
}

}  // namespace models::service
