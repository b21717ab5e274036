#include "models/onnx/onnx_program.h"

#include <CLI/CLI.hpp>
#include <iomanip>
#include <optional>
#include <ostream>
#include <set>

#include "models/common/plan.h"
#include "models/common/progress.h"
#include "models/common/read_files.h"
#include "models/common/run_options.h"
#include "models/common/text.h"
#include "models/common/tuning.h"
#include "models/common/validators.h"
#include "models/onnx/onnx_inputs.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tensor/text.h"
#include "tensor/version.h"

namespace models::onnx {

using tensor::Tensor;
using tensor::nn::StateDict;

namespace {

struct OnnxOptions : RunOptions {
  std::string model, output;
  std::vector<std::string> inputs;
  std::vector<double> mean, std;
  ImageRule images;
};

void declare(CLI::App& app, OnnxOptions& o) {
  app.add_option("model", o.model, "the ONNX file")->required()->type_name("FILE.onnx");
  app.add_option("inputs", o.inputs,
                 "NAME=FILE for every input: an npy file, or an image for an input of (1, 3, "
                 "height, width); an npz file has names; of the last input NAME= may be left out");
  app.add_option("--output", o.output, "write the outputs here; npy for the only one")
      ->type_name("FILE.npz");
  app.add_flag("--info", o.info, "print inputs, outputs, operators and parameters, and stop");
  app.add_option("--mean", o.mean, "of images: what to subtract from levels / 255 (0,0,0)")
      ->delimiter(',')
      ->expected(3)
      ->type_name("R,G,B");
  app.add_option("--std", o.std, "of images: what to divide by then (1,1,1)")
      ->delimiter(',')
      ->expected(3)
      ->check(number(1e-6, 1e6))
      ->type_name("R,G,B");
  app.add_option("--max-pixels", o.images.max_pixels, "refuse larger images")
      ->check(whole_number(1))
      ->type_name("N");
  declare_run(app, o);
  app.add_option("--calibrate", o.calibrate,
                 "with --dtype i8: an image, an npz file, or a folder of either, on which "
                 "activations get one scale for each product, in place of one for each row; "
                 "inputs that a file lacks are those of the run")
      ->type_name("PATH");
  app.add_option("--plan", o.plan,
                 "take the compiled model from this file, which is of the same model and options, "
                 "and add to it, or begin it, where it lacks the inputs' shapes")
      ->type_name("FILE");
  app.set_version_flag("--version", "onnx " + std::string(tensor::version()));
  app.footer(
      "Examples:\n"
      "  onnx model.onnx --info\n"
      "  onnx model.onnx photo.jpg --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225\n"
      "  onnx model.onnx pixels=in.npy mask=mask.npy --output out.npz --report\n");
}

void check(OnnxOptions& o) {
  check_run(o);
  if (!o.output.empty() && !lower(o.output).ends_with(".npz") && !lower(o.output).ends_with(".npy"))
    tensor::fail("--output", "got ", o.output, ", need a name that ends in .npz or .npy");
  Normalization& rule = o.images.normalization;
  rule.normalize = !o.mean.empty() || !o.std.empty();
  for (std::size_t i = 0; i < 3; ++i) {
    rule.mean[i] = o.mean.empty() ? 0 : static_cast<float>(o.mean[i]);
    rule.std[i] = o.std.empty() ? 1 : static_cast<float>(o.std[i]);
  }
}

void print_model(std::ostream& out, const std::string& file, const tensor::OnnxModel& model) {
  out << one_line(file) << ": opset " << model.opset();
  if (!model.producer().empty()) out << ", by " << one_line(model.producer());
  out << "\n";
  for (const tensor::OnnxValue& value : model.inputs()) out << "  input   " << value << "\n";
  for (const tensor::OnnxValue& value : model.outputs()) out << "  output  " << value << "\n";
  std::int64_t nodes = 0, elements = 0, bytes = 0;
  for (const auto& [type, count] : model.operators()) nodes += count;
  for (const auto& [name, x] : model.parameters()) elements += x.size(), bytes += x.nbytes();
  out << nodes << " nodes of " << model.operators().size() << " operators\n";
  for (const auto& [type, count] : model.operators())
    out << "  " << std::setw(5) << count << "  " << one_line(type) << "\n";
  out << model.parameters().size() << " stored tensors of " << elements << " elements, " << bytes
      << " bytes\n";
}

std::string output_line(const std::string& name, const Tensor& x) {
  tensor::TextWriter text;
  text << one_line(name) << " " << x.type();
  if (x.size() > 0) {
    const Tensor numbers = x.to(tensor::f64);
    text << ": " << min(numbers).item() << " to " << max(numbers).item() << ", mean "
         << mean(numbers).item();
  }
  return text.str() + "\n";
}

void save(const std::string& path, const StateDict& outputs) {
  if (lower(path).ends_with(".npz")) return tensor::save_npz(path, outputs);
  if (outputs.size() != 1)
    tensor::fail("--output", "got ", path, ", but there are ", outputs.size(),
                 " outputs: name an npz file");
  tensor::save_npy(path, outputs.begin()->second);
}

/// The scales of what the files of --calibrate hold.
std::map<std::string, float> calibrated(const OnnxOptions& o, const tensor::OnnxModel& model,
                                        const Forward& forward, const StateDict& inputs,
                                        tensor::CompileOptions how) {
  const std::vector<std::string> files = calibration_files(o.calibrate);
  Progress progress("calibration", std::ssize(files), o.quiet);
  for (const std::string& file : files) {
    how.scales = calibrate_named(forward, example_inputs(model, file, o.images, inputs), how);
    progress.step();
  }
  return how.scales;
}

/// Compiled for these inputs, after calibration and tuning if they are asked for.
NamedExecutable compiled(const OnnxOptions& o, const tensor::OnnxModel& model,
                         const StateDict& inputs, std::ostream& out) {
  const Forward forward = [&](const StateDict& in) { return StateDict(model.run(in)); };
  tensor::CompileOptions how = compile_options(o, model.parameters());
  if (!o.calibrate.empty()) how.scales = calibrated(o, model, forward, inputs, how);
  if (!o.tune.empty()) how = tuned(forward, inputs, how, tune_options(o), o.quiet, out);
  return compile_named(forward, inputs, how);
}

/// Names are divided by spaces in a plan.
void check_names(const tensor::OnnxModel& model) {
  for (const auto* values : {&model.inputs(), &model.outputs()})
    for (const tensor::OnnxValue& value : *values)
      if (value.name.empty() || value.name.find_first_of(" \t\n\v\f\r") != std::string::npos)
        tensor::fail("--plan", "cannot keep the name \"", one_line(value.name),
                     "\" of the model: need names without spaces");
}

/// What a plan must have been made of to be taken.
PlanKey key_of(const OnnxOptions& o, const tensor::OnnxModel& model) {
  check_names(model);
  const std::vector<std::string> examples =
      o.calibrate.empty() ? std::vector<std::string>() : calibration_files(o.calibrate);
  return plan_key("onnx", o, examples, fingerprint(model.files()));
}

bool gives_all(const NamedExecutable& executable, const tensor::OnnxModel& model) {
  std::set<std::string> given(executable.outputs.begin(), executable.outputs.end()), needed;
  for (const tensor::OnnxValue& value : model.outputs()) needed.insert(value.name);
  return given == needed;
}

/// From the plan, if there is one. Of a model that is compiled in parts, a plan has the head.
NamedExecutable executable_for(const OnnxOptions& o, const tensor::OnnxModel& model,
                               const StateDict& inputs, std::ostream& out) {
  std::optional<tensor::OnnxSplit> made;
  const auto parts = [&]() -> const tensor::OnnxSplit& {
    return made ? *made : made.emplace(model.split(inputs));
  };
  const auto make = [&] {
    if (!o.plan.empty()) check_names(parts().head);
    return compiled(o, parts().head, inputs, out);
  };
  NamedExecutable executable = o.plan.empty()
                                   ? make()
                                   : planned_or_made(o.plan, key_of(o, model), inputs,
                                                     load_options(o, {}), !o.tune.empty(), make);
  if (gives_all(executable, model)) return executable;
  if (!o.quiet) out << one_line(note_of(parts())) << "\n";
  executable.rest = rest_of(parts(), compile_options(o, model.parameters()));
  return executable;
}

int run(OnnxOptions& o, std::ostream& out) {
  check(o);
  const tensor::OnnxModel model = tensor::load_onnx(o.model);
  if (o.info) {
    print_model(out, o.model, model);
    return 0;
  }
  std::vector<std::string> files = model.files();
  for (const std::string& argument : o.inputs) files.push_back(named_file(argument, model).file);
  if (!o.calibrate.empty())
    for (const std::string& file : calibration_files(o.calibrate)) files.push_back(file);
  const ReadFiles read("input", files);
  for (const auto& [option, target] :
       {std::pair("--output", o.output), {"--profile", o.profile}, {"--plan", o.plan}})
    read.refuse_to_overwrite(option, target, "file");
  const StateDict inputs = read_inputs(model, o.inputs, o.images);
  bool is_good = true;
  StateDict outputs;
  if (o.eager) {
    outputs = StateDict(model.run(inputs));
  } else {
    const NamedExecutable executable = executable_for(o, model, inputs, out);
    outputs = executable(inputs);
    is_good = inspect(o, executable.executable, executable.arguments(inputs), out);
  }
  if (!o.quiet)
    for (const tensor::OnnxValue& value : model.outputs())
      out << output_line(value.name, outputs.at(value.name));
  if (!o.output.empty()) save(o.output, outputs);
  return is_good ? 0 : 1;
}

}  // namespace

int run_onnx(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  return run_main("onnx", out, err, [&] {
    OnnxOptions options;
    CLI::App app("Runs the model of an ONNX file.", "onnx");
    declare(app, options);
    return is_answered(app, arguments, out) ? 0 : run(options, out);
  });
}

}  // namespace models::onnx
