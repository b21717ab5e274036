// SETR as its program runs it, and how large it is: what `setr --info` prints.
#pragma once

#include "models/common/vision_model.h"
#include "models/setr/setr_processing.h"

namespace models::setr {

/// The parts of SETR for one window of this size. The running statistics of the batch
/// normalisations do not count as parameters.
Info describe(Setr& net, const std::string& model, Size window);

/// The model as the program takes it. `scale` is in place of that of the preprocessing.
VisionModel vision_model(Setr net, const std::vector<std::string>& names,
                         const std::vector<Color>& colors, SetrPreprocessing preprocessing,
                         const std::optional<SizeRule>& scale);

}  // namespace models::setr
