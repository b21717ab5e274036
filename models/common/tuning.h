// --tune: tuning before a compiled model is run, as a person at a terminal sees it.
#pragma once

#include <iosfwd>
#include <string>

#include "models/common/forward.h"
#include "tensor/tune.h"

namespace models {

/// Seconds of "280us", "300ms", "60s", "5m" or "1h". UserError, naming `option`, on anything else,
/// on nothing and on more than a day.
double parse_duration(const std::string& option, const std::string& text);

/// Tunes the function for these inputs as `tuning` says, or until Ctrl-C. On a terminal a bar shows
/// how far it is, otherwise a line now and then does; `quiet` shows neither, nor the table in
/// `out`. Then come the options to compile with, which read the log.
tensor::CompileOptions tuned(const Forward& function, const tensor::nn::StateDict& inputs,
                             tensor::CompileOptions options, tensor::TuneOptions tuning, bool quiet,
                             std::ostream& out);

}  // namespace models
