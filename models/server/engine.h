// Engine: the models behind the demo's page. An image's bytes go in, what a model sees in it comes
// out, with the time of every stage.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/common/cli.h"

namespace models::server {

enum class Mode { eager, compiled };

/// An upload may take so many bytes, and unpack to so many pixels: a class map of 2^24 pixels takes
/// half a gigabyte of intermediate results.
inline constexpr std::int64_t kMostBytes = 16 << 20, kMostPixels = 1 << 24;

/// One stage of an answer, "decode" for instance.
struct Stage {
  std::string name;
  double milliseconds = 0;
};

struct Answer {
  std::string model;
  Mode mode = Mode::compiled;
  std::int64_t height = 0, width = 0;  // of the image, turned as its EXIF orientation says
  std::string score_name;              // what the findings' score is: "score" or "share"
  std::vector<Finding> findings;
  std::vector<Color> colors = {};  // of each finding
  tensor::Tensor labels = {};      // u8 [height, width], the class of every pixel; only of SETR
  std::vector<Stage> stages = {};  // in order; "compile" only where that was done for this answer

  /// {"model": "setr", "mode": "compiled", "width": ..., "height": ..., "score": "share",
  /// "findings": [...], "texts": ["98.7 %", ...], "colors": ["#e6194b", ...], "stages": [{"name":
  /// "decode", "ms": 1.25},
  /// ...], "mask": [class, pixels, class, pixels, ...]}: runs of equal class, row by row.
  std::string json() const;
};

/// The folders that hold the checkpoints.
struct Checkpoints {
  std::string vit, detr, setr;
};

/// Opens the three models once; any number of threads may run them.
class Engine {
 public:
  using Clock = std::chrono::steady_clock;

  /// `threads` for compiled models: 0 is one a core. UserError on a folder that is no checkpoint.
  explicit Engine(const Checkpoints& checkpoints, int threads = 0);
  ~Engine();

  static constexpr std::array<const char*, 3> kModels{"vit", "detr", "setr"};

  /// Decodes an image and shows it to a model of kModels. UserError where the bytes are no image of
  /// at most kMostPixels, or the model cannot take it. The stage "wait" begins when the answer was
  /// `asked` for; waiting for another thread that compiles counts as well.
  Answer run(const std::string& model, Mode mode, std::span<const std::byte> image,
             Clock::time_point asked = Clock::now());
  /// The program of a model of kModels.
  const Program& program(const std::string& model) const;

 private:
  struct Model;
  Model& find(const std::string& name) const;

  std::vector<std::unique_ptr<Model>> models_;
};

}  // namespace models::server
