// The nine models of the GTCO paper (Table I): what is tuned and measured here, and planned in
// tests.
#pragma once

#include <vector>

#include "bench/model.h"

namespace bench {

/// vit-base-patch16-224 and its larger ones, detr-resnet-50-e3, -e6 and -e12, setr-naive-base,
/// setr-naive and setr-pup.
std::vector<Model> nine_models();

}  // namespace bench
