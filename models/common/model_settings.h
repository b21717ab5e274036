// Sizes of a model that config.json gives, and loading what they make by the checkpoint's names.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/common/checkpoint.h"
#include "models/common/preprocess.h"
#include "models/common/vision_model.h"

namespace models {

/// No model of pictures is wider or deeper.
inline constexpr std::int64_t kMostFeatures = 1 << 17, kMostLayers = 256, kMostStages = 8;

/// A whole number from 1 to `most`.
std::int64_t positive_setting(const tensor::Json& settings, std::string_view key,
                              std::int64_t fallback, std::int64_t most = kMostFeatures);
/// A list of `count` of them; of any count up to kMostStages, where that is 0.
std::vector<std::int64_t> positive_settings(const tensor::Json& settings, std::string_view key,
                                            const std::vector<std::int64_t>& fallback,
                                            std::size_t count, std::int64_t most = kMostFeatures);
/// A whole number, or [height, width], each from 1 on.
Size size_setting(const tensor::Json& value);
Size size_setting(const tensor::Json& settings, std::string_view key, Size fallback);
/// A number of config.json above 0.
double ratio_setting(const tensor::Json& settings, std::string_view key, double fallback);
/// UserError unless it divides the width.
void check_heads(const tensor::Json& settings, std::int64_t heads, std::int64_t width);

/// How many classes the tensor "classifier.weight" has, 0 if there is none; config.json must agree.
std::int64_t classes_of(const Checkpoint& checkpoint);
/// What of a checkpoint's names is not as the members of its model are called.
struct Naming {
  std::function<tensor::nn::Source(const std::string& path)> rename = {};
  std::function<bool(const std::string& name)> ignore = {};  // of what is not needed
};

/// Loads the parameters, whose paths are the checkpoint's names without the `beginning` ("swin.")
/// that those of all but a head have in models with one, and perhaps in others. `naming` sees names
/// without it.
void load_named(const std::vector<tensor::nn::Parameter>& parameters, const Checkpoint& checkpoint,
                const std::string& beginning, const Naming& naming = {});
template <class Module>
void load_named(Module& module, const Checkpoint& checkpoint, const std::string& beginning,
                const Naming& naming = {}) {
  load_named(tensor::nn::parameters(module), checkpoint, beginning, naming);
}

/// Reads labels, scores and how pictures are prepared: as preprocessor_config.json says or, without
/// one, as transformers' class `processor` does. UserError where that makes images of another size
/// than model.image, unless any is taken.
void read_task(VisionModel& model, const Checkpoint& checkpoint, std::int64_t classes,
               std::string_view processor, bool any_size);

}  // namespace models
