// How large DETR is: what `detr --info` prints.
#pragma once

#include "models/common/info.h"
#include "models/common/preprocess.h"
#include "models/detr/detr.h"

namespace models::detr {

/// The parts of DETR for one image of this size. The frozen batch normalisations count neither as
/// parameters nor as work: they fold into the convolutions.
Info describe(Detr& detr, const std::string& model, Size image);

}  // namespace models::detr
