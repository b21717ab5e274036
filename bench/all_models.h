// Every model that bench_models measures beside its peers (bench/peers/models.py).
#pragma once

#include <vector>

#include "bench/model.h"

namespace bench {

/// The nine models of the paper, those of the folder models at the settings of the weights that
/// their names tell, and three that the library has not got.
std::vector<Model> all_models();

}  // namespace bench
