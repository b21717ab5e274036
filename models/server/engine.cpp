// Running a program's own processing around its model, with a clock at every step.
#include "models/server/engine.h"

#include <iomanip>
#include <stdexcept>

#include "models/common/preprocess.h"
#include "models/common/report.h"
#include "models/common/session.h"
#include "models/common/text.h"
#include "models/detr/detr_program.h"
#include "models/setr/setr_program.h"
#include "models/vit/vit_program.h"
#include "tensor/io.h"
#include "tensor/text.h"

namespace models::server {

using tensor::Tensor;
using tensor::nn::StateDict;

namespace {

using Clock = Engine::Clock;

class StopWatch {
 public:
  explicit StopWatch(Clock::time_point start) : last_(start) {}
  /// Milliseconds since the start or the last lap.
  double lap() {
    const Clock::time_point now = Clock::now();
    return std::chrono::duration<double, std::milli>(now - std::exchange(last_, now)).count();
  }

 private:
  Clock::time_point last_;
};

std::string hexadecimal(Color color) {
  tensor::TextWriter text;
  text << '#' << std::hex << std::setfill('0');
  for (const std::uint8_t level : color) text << std::setw(2) << int{level};
  return text.str();
}

/// [class, pixels, class, pixels, ...] of u8 labels, row by row.
void print_runs(std::ostream& out, const Tensor& labels) {
  const auto pixels = labels.span<std::uint8_t>();
  out << '[';
  for (std::size_t begin = 0, end = 0; begin < pixels.size(); begin = end) {
    while (end < pixels.size() && pixels[end] == pixels[begin]) ++end;
    out << (begin == 0 ? "" : ",") << int{pixels[begin]} << ',' << end - begin;
  }
  out << ']';
}

}  // namespace

std::string Answer::json() const {
  tensor::TextWriter out;
  out << "{\"model\": " << json_text(model) << ", \"mode\": \""
      << (mode == Mode::eager ? "eager" : "compiled") << "\", \"width\": " << width
      << ", \"height\": " << height << ", \"score\": " << json_text(score_name)
      << ", \"findings\": ";
  print_findings_json(out, findings, score_name);
  out << ", \"texts\": [";
  for (std::size_t i = 0; i < findings.size(); ++i)
    out << (i == 0 ? "" : ", ") << json_text(score_text(findings[i]));
  out << "], \"colors\": [";
  for (std::size_t i = 0; i < colors.size(); ++i)
    out << (i == 0 ? "" : ", ") << json_text(hexadecimal(colors[i]));
  out << "], \"stages\": [" << std::fixed << std::setprecision(3);
  for (std::size_t i = 0; i < stages.size(); ++i)
    out << (i == 0 ? "" : ", ") << "{\"name\": " << json_text(stages[i].name)
        << ", \"ms\": " << stages[i].milliseconds << '}';
  out << ']';
  if (labels.defined()) {
    out << ", \"mask\": ";
    print_runs(out, labels);
  }
  out << '}';
  return out.str();
}

struct Engine::Model {
  Model(std::unique_ptr<Program> opened, int threads)
      : program(std::move(opened)),
        compiled([this, threads](const StateDict& inputs, const tensor::Sharing& sharing) {
          return compile_named([this](const StateDict& in) { return program->run(in, {}); }, inputs,
                               with_names(*program, {.threads = threads, .sharing = sharing}));
        }) {}

  std::unique_ptr<Program> program;
  CompiledForward compiled;
};

Engine::Engine(const Checkpoints& checkpoints, int threads) {
  const auto add = [&](std::unique_ptr<Program> program, const std::string& checkpoint) {
    program->open(checkpoint);
    models_.push_back(std::make_unique<Model>(std::move(program), threads));
  };
  add(vit::make_program(), checkpoints.vit);
  add(std::make_unique<detr::DetrProgram>(), checkpoints.detr);
  add(std::make_unique<setr::SetrProgram>(), checkpoints.setr);
}

Engine::~Engine() = default;

Engine::Model& Engine::find(const std::string& name) const {
  for (const std::unique_ptr<Model>& model : models_)
    if (model->program->name() == name) return *model;
  tensor::fail("model", "got \"", name, "\", need vit, detr or setr");
}

const Program& Engine::program(const std::string& name) const { return *find(name).program; }

Answer Engine::run(const std::string& name, Mode mode, std::span<const std::byte> bytes,
                   Clock::time_point asked) {
  Model& model = find(name);
  const Program& program = *model.program;
  StopWatch watch(asked);
  double wait = watch.lap(), before = 0, compile = 0, run = 0, after = 0;
  const Tensor image = tensor::decode_image(bytes, kImage, kMostPixels);
  const double decode = watch.lap();

  // SETR calls its model once a window: what lies before the first call prepares, the rest is what
  // becomes of the outputs.
  bool called = false, made = false;
  const auto forward = [&](const StateDict& inputs) {
    if (!is_pass(inputs)) return program.run(inputs, {});
    (called ? after : before) += watch.lap();
    called = true;
    program.check(inputs);
    StateDict outputs;
    if (mode == Mode::eager) {
      outputs = program.run(inputs, {});
    } else {
      bool now = false;
      const NamedExecutable executable = model.compiled.executable(inputs, &now);
      (now ? compile : wait) += watch.lap();
      made = made || now;
      outputs = executable(inputs);
    }
    if (has_nan(outputs))
      throw std::runtime_error(name +
                               ": the model's output is NaN: the weights are damaged, or values "
                               "overflow");
    run += watch.lap();
    return outputs;
  };
  const ImageResult seen = program.look(image, false, forward);
  after += watch.lap();

  Answer answer{name, mode, image.shape(0), image.shape(1), program.score_name(), seen.findings};
  for (const Finding& finding : seen.findings) answer.colors.push_back(program.color(finding.id));
  answer.labels = seen.labels;
  answer.stages = {{"wait", wait}, {"decode", decode}, {"preprocess", before}};
  if (made) answer.stages.push_back({"compile", compile});
  answer.stages.insert(answer.stages.end(), {{"model", run}, {"postprocess", after}});
  return answer;
}

}  // namespace models::server
