#include "models/common/calibration.h"

#include "models/common/list_images.h"
#include "models/common/progress.h"
#include "tensor/io.h"

namespace models {

using tensor::nn::StateDict;

std::map<std::string, float> calibrated(const Program& program, const Options& o,
                                        tensor::CompileOptions how) {
  const std::vector<std::string> files = list_images({o.calibrate}).files;
  Progress progress("calibration", std::ssize(files), o.quiet);
  const Forward run = [&](const StateDict& inputs) { return program.run(inputs, {}); };
  // What `look` goes on with: outputs in float32, from the host.
  CompiledForward exact([&](const StateDict& inputs, const tensor::Sharing& sharing) {
    return compile_named(run, inputs, {.sharing = sharing});
  });
  how.scales = {};
  const Forward measured = [&](const StateDict& inputs) {
    if (!is_pass(inputs)) return run(inputs);
    program.check(inputs);
    how.scales = calibrate_named(run, inputs, how);
    return exact.executable(inputs)(inputs);
  };
  for (const std::string& file : files) {
    program.look(tensor::load_image(file, o.max_pixels), false, measured);
    progress.step();
  }
  return how.scales;
}

}  // namespace models
