// How large SETR is: what `setr --info` prints.
#pragma once

#include "models/common/info.h"
#include "models/common/preprocess.h"
#include "models/setr/setr.h"

namespace models::setr {

/// The parts of SETR for one window of this size. The running statistics of the batch
/// normalisations do not count as parameters.
Info describe(Setr& net, const std::string& model, Size window);

}  // namespace models::setr
