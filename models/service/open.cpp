// What stands behind a path or bytes.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "models/common/session.h"
#include "models/common/text.h"
#include "models/common/validators.h"
#include "models/depth/depth_program.h"
#include "models/detr/detr_program.h"
#include "models/registry/registry.h"
#include "models/service/model.h"
#include "models/setr/setr_program.h"
#include "models/vit/vit_program.h"
#include "tensor/json.h"
#include "tensor/log.h"
#include "tensor/text.h"

namespace models::service {

namespace fs = std::filesystem;
using tensor::nn::StateDict;

namespace {

std::int64_t whole(const std::string& name, const std::string& text, std::int64_t least,
                   std::int64_t most) {
  if (const std::string problem = whole_number(least, most)(text); !problem.empty())
    tensor::fail(name, problem);
  return static_cast<std::int64_t>(parse_number(text));
}

/// The program of that name, or for a checkpoint the one that takes what its config.json calls
/// itself.
std::unique_ptr<Program> program_for(const std::string& folder, const OpenOptions& options) {
  std::string name = options.program;
  if (name.empty()) {
    const tensor::Json config = tensor::Json::load((fs::path(folder) / "config.json").string());
    if (!config.is_object()) tensor::fail(config.path(), "need an object { ... }");
    name = program_of(config);
  }
  if (name == "vit") return vit::make_program();
  if (name == "detr") return std::make_unique<detr::DetrProgram>();
  if (name == "setr") return std::make_unique<setr::SetrProgram>();
  if (name == "depth") return std::make_unique<depth::DepthProgram>();
  tensor::fail("program", "got \"", name, "\", need vit, detr, setr or depth");
}

/// The options of the program, as on its command line.
void apply(Program& program, const std::vector<std::string>& arguments) {
  CLI::App app(program.description(), program.name());
  program.add_options(app);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Error& error) {
    tensor::fail(program.name(), "does not take these options: ", one_line(error.what()));
  }
}

RunOptions run_options(const OpenOptions& options) {
  tensor::TextWriter device;
  device << options.device;
  RunOptions run;
  run.device = device.str();
  run.dtype = options.dtype;
  if (options.threads > 0 && !options.device.is_cuda()) run.threads = options.threads;
  check_run(run);
  return run;
}

Opened of_checkpoint(const std::string& folder, const OpenOptions& options) {
  const RunOptions run = run_options(options);
  Opened opened;
  opened.program = program_for(folder, options);
  Program& program = *opened.program;
  apply(program, options.arguments);
  program.run_on(options.device);
  program.take(options.takes);
  program.open(folder);
  const tensor::CompileOptions how = with_names(program, compile_options(run, {}));
  opened.compile = [&program, how](const StateDict& inputs, const tensor::Sharing& sharing) {
    tensor::CompileOptions shared = how;
    shared.sharing = sharing;
    return compile_named([&program](const StateDict& in) { return program.run(in, {}); }, inputs,
                         shared);
  };
  const std::int64_t channels = program.usual_shape()[0];
  for (const std::string& name : program.inputs()) {
    const bool is_mask = name != "pixel_values";
    opened.ports.inputs.push_back(
        {name, is_mask ? tensor::i64 : tensor::f32,
         is_mask ? tensor::Shape{-1, -1, -1} : tensor::Shape{-1, channels, -1, -1}, is_mask});
  }
  opened.ports.are_batched = true;
  opened.batches = Batches::powers(options.max_batch, options.device.is_cuda());
  return opened;
}

void refuse_arguments(const std::string& name, const OpenOptions& options) {
  if (options.arguments.empty()) return;
  tensor::fail(name, "has no option \"", options.arguments.front().substr(2),
               "\": only checkpoint folders have a program with options");
}

Opened of_plan(const tensor::Plan& plan, const std::string& name, const OpenOptions& options) {
  refuse_arguments(name, options);
  const RunOptions run = run_options(options);
  const tensor::LoadOptions how{.device = run.device,
                                .threads = static_cast<int>(run.threads.value_or(0))};
  std::vector<PlannedSize> sizes;  // all of them are built now: no call waits for it
  for (const tensor::Plan::Size& size : plan.sizes())
    sizes.push_back({plan.about(size), plan.executable(size, how)});
  Opened opened;
  opened.ports = ports_of(sizes, name);
  std::vector<std::string> inputs, outputs;
  for (const Port& port : opened.ports.inputs) inputs.push_back(port.name);
  for (const Port& port : opened.ports.outputs) outputs.push_back(port.name);
  opened.compile = [=](const StateDict& given, const tensor::Sharing&) {
    for (const PlannedSize& size : sizes)
      if (NamedExecutable named{inputs, outputs, size.executable}; named.fits(given)) return named;
    tensor::Plan::Size types;
    for (const std::string& input : inputs) types.push_back(given.at(input).type());
    return NamedExecutable{inputs, outputs, plan.executable(types, how)};  // tells what there is
  };
  opened.batches.fill = options.device.is_cuda();
  if (!opened.ports.are_batched) return opened;
  std::set<std::int64_t> rows;
  for (const PlannedSize& size : sizes) rows.insert(size.executable.input_types()[0].shape[0]);
  opened.batches.sizes.assign(rows.begin(), rows.end());
  return opened;
}

Opened of_onnx(const tensor::OnnxModel& model, const std::string& name,
               const OpenOptions& options) {
  refuse_arguments(name, options);
  Opened opened;
  opened.ports = ports_of(model);
  const tensor::CompileOptions how = compile_options(run_options(options), model.parameters());
  opened.compile = [model, how, name](const StateDict& inputs, const tensor::Sharing& sharing) {
    tensor::CompileOptions shared = how;
    shared.sharing = sharing;
    const tensor::OnnxSplit parts = model.split(inputs);
    NamedExecutable result = compile_named(
        [&](const StateDict& in) { return StateDict(parts.head.run(in)); }, inputs, shared);
    if (parts.node.empty()) return result;
    tensor::log(tensor::LogLevel::info, name, ": ", note_of(parts));
    result.rest = rest_of(parts, shared);
    return result;
  };
  if (opened.ports.are_batched)
    opened.batches = Batches::powers(options.max_batch, options.device.is_cuda());
  return opened;
}

/// A plan is a safetensors file: the length of a JSON text in eight bytes, and the text.
bool is_plan(std::string_view start) { return start.size() > 8 && start[8] == '{'; }

Opened of_file(const std::string& path, const OpenOptions& options) {
  tensor::Classic<std::ifstream> file(path, std::ios::binary);
  std::string start(9, '\0');
  file.read(start.data(), std::ssize(start));
  start.resize(static_cast<std::size_t>(file.gcount()));
  if (is_plan(start)) return of_plan(tensor::Plan::load(path), path, options);
  return of_onnx(tensor::load_onnx(path), path, options);
}

Opened of_folder(const std::string& path, const OpenOptions& options) {
  const auto holds = [&](const char* name) { return fs::exists(fs::path(path) / name); };
  if (holds("config.json")) return of_checkpoint(path, options);
  for (const char* name : {"model.tensor", "model.onnx"})
    if (holds(name)) return of_file((fs::path(path) / name).string(), options);
  tensor::fail(
      path,
      "holds no model: need config.json and model.safetensors (a checkpoint), model.tensor "
      "(a plan) or model.onnx");
}

}  // namespace

void OpenOptions::set(const std::string& name, const std::string& value) {
  constexpr std::int64_t kMostThreads = 1024, kMostRows = 4096;
  if (name == "device") {
    device = tensor::Device(value);
  } else if (name == "dtype") {
    dtype = value;
  } else if (name == "program") {
    program = value;
  } else if (name == "threads") {
    threads = static_cast<int>(whole(name, value, 0, kMostThreads));
  } else if (name == "max_pixels") {
    max_pixels = whole(name, value, 1, std::int64_t{1} << 40);
  } else if (name == "max_batch") {
    max_batch = whole(name, value, 1, kMostRows);
  } else if (name == "input") {
    if (value != "image" && value != "tensor")
      tensor::fail(name, "got \"", value, "\", need image or tensor");
    takes = value == "image" ? Takes::images : Takes::tensors;
  } else {
    arguments.insert(arguments.end(), {"--" + name, value});
  }
}

std::unique_ptr<Model> Model::open(const std::string& path, const OpenOptions& options) {
  if (!fs::exists(path))
    tensor::fail(path, "is not there: name a checkpoint folder, a plan or an ONNX file");
  return std::make_unique<Model>(
      fs::is_directory(path) ? of_folder(path, options) : of_file(path, options), options);
}

std::unique_ptr<Model> Model::parse(std::span<const std::byte> bytes, const std::string& name,
                                    const OpenOptions& options) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return std::make_unique<Model>(is_plan(text)
                                     ? of_plan(tensor::Plan::parse(bytes, name), name, options)
                                     : of_onnx(tensor::parse_onnx(bytes, name), name, options),
                                 options);
}

}  // namespace models::service
