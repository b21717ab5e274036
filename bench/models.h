// The nine models of the GTCO paper (Table I) with random weights and pixels.
#pragma once

#include "bench/bench.h"

namespace bench {

/// vit-base-patch16-224 and its larger ones, detr-resnet-50-e3, -e6 and -e12, setr-naive-base,
/// setr-naive and setr-pup, for `batch` images each.
std::vector<Case> nine_models(int batch);

}  // namespace bench
