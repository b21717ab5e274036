// The command line that vit, detr, setr and depth share: a model program says how to open and run
// its model, and this part does the options, files, printing and errors.
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "models/common/checkpoint.h"
#include "models/common/draw.h"
#include "models/common/forward.h"
#include "models/common/info.h"
#include "models/common/observer.h"
#include "models/common/run_options.h"
#include "models/common/sizes.h"
#include "tensor/nn.h"

namespace CLI {
class App;
}

namespace models {

struct Options : RunOptions {
  std::vector<std::string> images;  // files and folders as given
  std::string checkpoint, model;
  std::optional<std::uint64_t> random_weights;
  std::string input, output, out;
  bool hidden_states = false, json = false;
  std::int64_t max_pixels = std::int64_t{1} << 26, bucket = 0;
};

/// One thing that a model sees in an image: a class, an object or a region.
struct Finding {
  std::string label;
  std::int64_t id = 0;
  double score = 0;                          // in [0, 1] if it is a share
  std::optional<std::array<double, 4>> box;  // left, top, right, bottom in the image's pixels
  bool is_share = true;  // a probability or a part of the image, instead of a measure
};

struct ImageResult {
  std::vector<Finding> findings;
  tensor::Tensor picture;      // u8 [H, W, 3]; only if it was asked for
  tensor::Tensor labels = {};  // u8 [H, W], of every pixel its class or how near it is, if the
                               // model tells such
  tensor::nn::StateDict features =
      {};  // each [1, ...], in place of findings if they were asked for
};

/// What a program tells of a picture besides labels.
enum class Shows { labels, boxes, classes, depth };

/// Whether these are inputs of a forward pass. Those that are not are what `Program::look` makes of
/// the outputs, for `Program::run` to go on with.
inline bool is_pass(const tensor::nn::StateDict& inputs) {
  return inputs.contains("pixel_values") || inputs.contains("levels");
}

class Program {
 public:
  virtual ~Program() = default;

  virtual std::string name() const = 0;         // "vit"
  virtual std::string description() const = 0;  // one line for --help
  virtual std::string examples() const = 0;     // for the end of --help, one command a line
  virtual std::vector<std::string> standard_models() const = 0;  // what --model takes
  /// What a finding's score is, for --json: "score", or "share" of the image.
  virtual std::string score_name() const { return "score"; }
  /// What findings and results have: boxes, or a class or the nearness of every pixel.
  virtual Shows shows() const { return Shows::labels; }
  /// How pictures show findings of this id.
  virtual Color color(std::int64_t id) const { return palette(id); }
  /// Where label maps go, as --out says it for pictures: SETR's --labels.
  virtual std::string labels_path() const { return {}; }
  /// The model's own options, "--top" for instance.
  virtual void add_options(CLI::App&) {}

  /// What `open` and `make` are to prepare for.
  void take(Takes takes) { takes_ = takes; }
  /// Opens a checkpoint folder.
  virtual void open(const std::string& checkpoint) = 0;
  /// Makes a standard model with parameters that take no memory.
  virtual void make(const std::string& model) = 0;
  /// From now on, images are padded to multiples of so many pixels, so that those of similar sizes
  /// share an executable. UserError where the model has nothing that tells it what is padding.
  virtual void bucket(std::int64_t pixels);
  /// From now on, images have features in place of findings. UserError where the model has none.
  virtual void give_features();
  virtual std::vector<tensor::nn::Parameter> parameters() = 0;
  virtual Info info() = 0;

  /// How often a forward pass calls its observer, for the progress bar.
  virtual std::int64_t steps() const = 0;
  /// The inputs that `run` takes where they are given; it needs "pixel_values".
  virtual std::vector<std::string> inputs() const { return {"pixel_values"}; }
  /// The pixel_values that it is for, [channels, height, width], where images may have any size.
  virtual tensor::Shape usual_shape() const = 0;
  /// Inputs of a forward pass without values that mean something: as `look` makes them of an image,
  /// or if tensors are taken, or several images, pixel_values.
  virtual tensor::nn::StateDict blank(const InputSize& size) const;
  /// Throws UserError on inputs whose values the model cannot take.
  virtual void check(const tensor::nn::StateDict&) const {}
  /// Inputs ("pixel_values" [batch, channels, height, width], ...) to outputs ("logits", ...): a
  /// pure function of tensors, so that it can be traced.
  virtual tensor::nn::StateDict run(const tensor::nn::StateDict& inputs,
                                    const Observer& observe) const = 0;
  /// Where its forward passes run: on a GPU, `look` leaves to them what they can do besides the
  /// model, and calls them with "levels", u8 [1, h, w, 3], in place of "pixel_values".
  void run_on(const tensor::Device& device) { device_ = device; }
  /// How many forward passes `look` makes for this image.
  virtual std::int64_t passes(const tensor::Tensor&) const { return 1; }
  /// A u8 image [H, W, 3]; `forward` is `run`, eager or compiled.
  virtual ImageResult look(const tensor::Tensor& image, bool with_picture,
                           const Forward& forward) const = 0;

 protected:
  bool is_of_images(const InputSize& size) const {
    return takes_ == Takes::images && size.batch == 1;
  }

  tensor::Device device_;
  Takes takes_ = Takes::images;
};

/// Parses the arguments and does what they say. Returns the exit code: 0; 1 for bad input, told in
/// one line on `err`; 2 for a fault of the program.
int run_program(Program& program, const std::vector<std::string>& arguments, std::ostream& out,
                std::ostream& err);
/// The same from main().
int run_program(Program& program, int argc, const char* const* argv);

}  // namespace models
