// The options that the model programs share, and what they make the programs do.
#include "models/common/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <locale>
#include <set>
#include <system_error>

#include "models/common/features.h"
#include "models/common/list_images.h"
#include "models/common/preprocess.h"
#include "models/common/progress.h"
#include "models/common/read_files.h"
#include "models/common/report.h"
#include "models/common/session.h"
#include "models/common/text.h"
#include "models/common/tuning.h"
#include "models/common/validators.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/text.h"
#include "tensor/version.h"

namespace models {

namespace fs = std::filesystem;
using tensor::Tensor;
using tensor::nn::StateDict;

namespace {

void declare(CLI::App& app, Options& o, Program& program) {
  app.add_option("images", o.images, "image files (PNG, JPEG, BMP, WebP), or folders of them");
  app.add_option("--checkpoint", o.checkpoint,
                 "folder with config.json and model.safetensors (or its shards)")
      ->type_name("DIR");
  app.add_option(
         "--model", o.model,
         "a standard size instead of a checkpoint: " + joined(program.standard_models(), ", "))
      ->type_name("NAME");
  app.add_option("--random-weights", o.random_weights, "fill the --model with random weights")
      ->check(whole_number(0))
      ->type_name("SEED");
  program.add_options(app);
  app.add_option("--out", o.out,
                 "write the annotated picture here; a folder if there are several images")
      ->type_name("FILE.png");
  app.add_option(
         "--max-pixels", o.max_pixels,
         "refuse larger images before they are decoded (" + std::to_string(o.max_pixels) + ")")
      ->check(whole_number(1))
      ->type_name("N");
  app.add_option("--bucket", o.bucket,
                 "pad images to multiples of N pixels, so that similar sizes share one executable; "
                 "results change slightly")
      ->check(whole_number(1, 4096))
      ->type_name("N");
  app.add_flag("--json", o.json, "print JSON instead of text");
  app.add_option("--input", o.input, "run saved pixel_values instead of images")
      ->type_name("FILE.safetensors");
  app.add_option("--output", o.output, "where the results of --input go, or the features of images")
      ->type_name("FILE.safetensors");
  app.add_flag("--hidden-states", o.hidden_states, "add every layer's output to --output");
  app.add_flag("--info", o.info, "print layers, parameters, multiply-adds and memory, and stop");
  declare_run(app, o);
  app.add_option("--calibrate", o.calibrate,
                 "with --dtype i8: an image, or a folder of them, on which activations get one "
                 "scale for each product, in place of one for each row; faster, less exact")
      ->type_name("PATH");
  app.add_option(
         "--plan", o.plan,
         "take the compiled model from this file, which is of the same weights and options, "
         "and add to it, or begin it, where it lacks an input size")
      ->type_name("FILE");
  app.add_option("--sizes", o.sizes,
                 "add these sizes to the --plan ahead: 480x640,800x1333,b1,b8 are two heights x "
                 "widths, in pixels of the model's input (after preprocessing), each with batches "
                 "of 1 and 8")
      ->type_name("LIST");
  app.set_version_flag("--version", program.name() + " " + std::string(tensor::version()));
  app.footer("Examples:\n" + program.examples());
}

/// --sizes beside the other options.
void check_sizes(const Options& o) {
  using tensor::fail;
  if (o.sizes.empty()) return;
  parse_sizes(o.sizes, {});
  if (o.plan.empty()) fail("--sizes", "fills a plan ahead: need --plan FILE, too");
  if (!o.tune.empty()) fail("--sizes", "goes without --tune, which is for one size: leave one out");
  for (const auto& [option, given] :
       {std::pair("--report", o.report), {"--profile", !o.profile.empty()}, {"--verify", o.verify}})
    if (given && o.images.empty() && o.input.empty())
      fail(option, "needs a run, but --sizes only fills the plan: name images, or use --input");
}

/// Everything that can be wrong with the options before any file is opened.
void check(const Options& o, const Program& program) {
  using tensor::fail;
  if (!o.checkpoint.empty() && !o.model.empty())
    fail("arguments", "got both --checkpoint and --model, need one of them");
  if (o.checkpoint.empty() && o.model.empty())
    fail("arguments", "need either --checkpoint DIR or --model NAME");
  const std::vector<std::string> names = program.standard_models();
  if (!o.model.empty() && std::find(names.begin(), names.end(), o.model) == names.end())
    fail("--model", "got \"", o.model, "\", need one of ", joined(names, ", "));
  if (o.random_weights && o.model.empty()) fail("--random-weights", "needs --model NAME");
  if (!o.model.empty() && !o.random_weights && !o.info)
    fail("--model", "has no weights of its own: add --random-weights SEED, or use --checkpoint");
  if (o.output.empty() ? !o.input.empty() : o.input.empty() && o.images.empty())
    fail("arguments", "--input and --output go together");
  if (o.hidden_states && o.input.empty()) fail("--hidden-states", "needs --input and --output");
  if (!o.input.empty() && !o.images.empty())
    fail("arguments", "need either images or --input, not both");
  if (o.images.empty() && o.input.empty() && !o.info && o.sizes.empty())
    fail("arguments", "there is nothing to do: name images, or use --input or --info");
  if (!o.out.empty() && o.images.empty()) fail("--out", "needs images");
  if (o.json && o.images.empty()) fail("--json", "needs images");
  check_run(o);
  check_sizes(o);
}

/// Of the saved tensors those that the model takes.
StateDict saved_inputs(const Program& program, const std::string& file) {
  StateDict saved = tensor::load_safetensors(file).tensors, inputs;
  for (const std::string& name : program.inputs())
    if (const auto found = saved.find(name); found != saved.end()) inputs.insert(*found);
  const auto pixels = inputs.find("pixel_values");
  if (pixels == inputs.end()) tensor::fail(file, "holds no tensor \"pixel_values\"");
  if (!is_floating(pixels->second.dtype()) || pixels->second.rank() != 4 ||
      pixels->second.size() == 0)
    tensor::fail(file, "pixel_values is ", pixels->second.type(),
                 ", need f32(batch, channels, height, width)");
  return inputs;
}

/// --sizes.
void fill_plan(Program& program, const Options& o, std::ostream& notes) {
  const tensor::Shape usual = program.usual_shape();
  Session session(program, o, 1, notes);
  session.fill(parse_sizes(o.sizes, {usual[1], usual[2]}));
  session.progress().clear();
  if (!o.quiet) notes << o.plan << ": " << tensor::Plan::load(o.plan).sizes().size() << " sizes\n";
}

/// Saved inputs to saved outputs. False if --verify found something.
bool run_saved(Program& program, const Options& o, std::ostream& out) {
  const ReadFiles read("input", {o.input});
  read.refuse_to_overwrite("--output", o.output, "file");
  read.refuse_to_overwrite("--profile", o.profile, "file");
  const StateDict inputs = saved_inputs(program, o.input);
  Session session(program, o, 1, out);
  StateDict outputs = session.forward(inputs);
  for (auto& [name, value] : outputs) value = value.copy();
  tensor::save_safetensors(o.output, outputs);
  session.progress().clear();
  if (!o.quiet) {
    out << o.output << ":";
    for (const auto& [name, value] : outputs) out << " " << name << " " << value.shape();
    out << "\n";
  }
  return session.inspect(out);
}

/// Where the picture of each image goes: what `option` said.
class Pictures {
 public:
  Pictures(const char* option, const std::string& path, const std::vector<std::string>& images) {
    if (path.empty()) return;
    std::error_code error;
    const bool is_folder = fs::is_directory(path, error);
    const bool is_single = !is_folder && lower(path).ends_with(".png");
    if (!is_folder && !is_single && fs::path(path).has_extension())
      tensor::fail(option, "got ", path, ", need a name that ends in .png, or a folder (", path,
                   "/)");
    if (is_single && images.size() > 1)
      tensor::fail(option, "got ", images.size(), " images for the one file ", path,
                   ": name a folder");
    if (is_single)
      targets_ = {fs::path(path).lexically_normal().string()};
    else
      targets_ = names_in(path, images);
    const ReadFiles inputs("input image", images);
    for (const std::string& target : targets_)
      inputs.refuse_to_overwrite(option, target, is_single ? "file" : "folder");
    if (is_single) return;
    fs::create_directories(path, error);
    if (error) tensor::fail(path, "cannot be made a folder: ", error.message());
  }

  bool wanted() const { return !targets_.empty(); }
  bool overlap(const Pictures& others) const {
    return std::ranges::find_first_of(targets_, others.targets_) != targets_.end();
  }

  void write(std::size_t image, const Tensor& picture) const {
    tensor::save_png(targets_[image], picture);
  }

 private:
  static std::vector<std::string> names_in(const fs::path& folder,
                                           const std::vector<std::string>& images) {
    std::vector<std::string> names;
    std::set<std::string> used;
    for (const std::string& image : images) {
      const std::string stem = fs::path(image).stem().string();
      std::string name = stem;
      for (int i = 2; !used.insert(name).second; ++i) name = stem + "-" + std::to_string(i);
      names.push_back((folder / (name + ".png")).lexically_normal().string());
    }
    return names;
  }

  std::vector<std::string> targets_;  // of each image
};

/// What is wrong with this image, where the message may say just "the image".
std::string about_file(const std::string& file, std::string_view what) {
  const std::string start = std::string(kImage) + ":";
  return what.starts_with(start) ? file + ":" + std::string(what.substr(start.size()))
                                 : std::string(what);
}

/// Every image in turn. False if one of them failed, the others are still done, or if --verify
/// found something.
bool run_images(Program& program, const Options& o, std::ostream& out, std::ostream& err) {
  const auto [images, notes] = list_images(o.images);
  if (!o.quiet)
    for (const std::string& note : notes) err << complaint(program.name(), note) << "\n";
  const Pictures pictures("--out", o.out, images);
  const Pictures labels("--labels", program.labels_path(), images);
  if (pictures.overlap(labels))
    tensor::fail("--labels", "would overwrite the pictures of --out: name another place");
  ReadFiles("input image", images).refuse_to_overwrite("--profile", o.profile, "file");
  Features features(o.output, images);
  Session session(program, o, std::ssize(images), o.json ? err : out);
  const std::string& model = o.model.empty() ? o.checkpoint : o.model;
  const auto checked = [&](const std::string& file) {
    return [&](const StateDict& inputs) {
      StateDict outputs = session.forward(inputs);
      if (has_nan(outputs))
        tensor::fail(model, "the model's output is NaN for ", file,
                     ": the weights are damaged, or values overflow",
                     o.eager ? "" : " (compare with --eager)");
      return outputs;
    };
  };
  bool all_good = true;
  if (o.json) out << "[";
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::string& file = images[i];
    if (o.json) out << (i == 0 ? "\n" : ",\n") << "  {\"file\": " << json_text(file) << ", ";
    try {
      const Tensor image = tensor::load_image(file, o.max_pixels);
      session.begin(program.passes(image));
      const ImageResult result = program.look(image, pictures.wanted(), checked(file));
      if (pictures.wanted()) pictures.write(i, result.picture);
      if (labels.wanted()) labels.write(i, result.labels);
      features.add(result.features);
      session.progress().clear();
      if (o.json) {
        out << "\"findings\": ";
        print_findings_json(out, result.findings, program.score_name());
      } else {
        out << one_line(file) << "\n";
        if (result.features.empty()) print_findings(out, result.findings);
        for (const auto& [name, value] : result.features)
          out << "  " << name << " " << value.shape() << "\n";
      }
    } catch (const tensor::UserError& error) {
      all_good = false;
      session.progress().clear();
      const std::string what = about_file(file, error.what());
      if (o.json) out << "\"error\": " << json_text(what);
      err << complaint(program.name(), what) << "\n";
    }
    if (o.json) out << "}";
    flush(out);
  }
  if (o.json) out << "\n]\n";
  // Where an image failed, rows would not tell whose they are.
  if (!o.output.empty() && all_good) features.save();
  return session.inspect(o.json ? err : out) && all_good;
}

/// Random weights, each parameter from a seed of its own so that the progress can be shown.
void randomize(const std::vector<tensor::nn::Parameter>& parameters, std::uint64_t seed,
               bool quiet) {
  constexpr std::int64_t kSeeds = std::numeric_limits<std::int64_t>::max();
  const auto count = static_cast<std::int64_t>(parameters.size());
  const Tensor seeds = tensor::Generator(seed).randint(0, kSeeds, {count});
  std::int64_t total = 0;
  for (const tensor::nn::Parameter& p : parameters) total += p.tensor->size();
  Progress progress("random weights", total, quiet);
  for (std::int64_t i = 0; i < count; ++i) {
    const tensor::nn::Parameter& p = parameters[static_cast<std::size_t>(i)];
    tensor::nn::randomize({p}, seeds.item<std::uint64_t>(i));
    progress.step(p.tensor->size());
  }
}

int run(Program& program, const Options& o, std::ostream& out, std::ostream& err) {
  check(o, program);
  program.run_on(o.devices().front());
  program.take(o.input.empty() ? Takes::images : Takes::tensors);
  if (o.model.empty()) {
    program.open(o.checkpoint);
  } else {
    program.make(o.model);
    if (o.random_weights && !o.info) randomize(program.parameters(), *o.random_weights, o.quiet);
  }
  if (o.bucket > 0) program.bucket(o.bucket);
  if (!o.output.empty() && !o.images.empty()) program.give_features();
  if (o.info) {
    print_info(out, program.info());
    return 0;
  }
  if (!o.sizes.empty()) fill_plan(program, o, o.json ? err : out);
  if (o.images.empty() && o.input.empty()) return 0;
  const bool good = o.input.empty() ? run_images(program, o, out, err) : run_saved(program, o, out);
  return good ? 0 : 1;
}

int parse_and_run(Program& program, const std::vector<std::string>& arguments, std::ostream& out,
                  std::ostream& err) {
  Options options;
  CLI::App app(program.description(), program.name());
  declare(app, options, program);
  if (is_answered(app, arguments, out)) return 0;
  return run(program, options, out, err);
}

}  // namespace

void Program::bucket(std::int64_t) {
  tensor::fail("--bucket",
               "pads images, but this model has no mask that says what is padding: leave it ",
               "out, or resize the images to fewer sizes");
}

void Program::give_features() {
  tensor::fail("--output",
               "is for the features of images, but this model names what it sees in them: leave it "
               "out, or give saved pixel_values by --input");
}

StateDict Program::blank(const InputSize& size) const {
  const auto [batch, pixels] = size;
  const auto zeros = [](const tensor::Shape& shape, tensor::DType dtype) {
    return tensor::broadcast_to(tensor::zeros({}, dtype), shape);
  };
  if (is_of_images(size) && device_.is_cuda())
    return {{"levels", zeros({batch, pixels.height, pixels.width, 3}, tensor::u8)}};
  return {
      {"pixel_values", zeros({batch, usual_shape()[0], pixels.height, pixels.width}, tensor::f32)}};
}

int run_program(Program& program, const std::vector<std::string>& arguments, std::ostream& out,
                std::ostream& err) {
  return run_main(program.name(), out, err,
                  [&] { return parse_and_run(program, arguments, out, err); });
}

int run_program(Program& program, int argc, const char* const* argv) {
  return run_program(program, std::vector<std::string>(argv + 1, argv + argc), std::cout,
                     std::cerr);
}

}  // namespace models
