// Compiling for several devices: the function is traced once for the whole batch, to see whether
// that can be divided, and compiled for each size of a part.
#include <algorithm>

#include "src/compile.h"
#include "src/runtime/parts.h"
#include "src/trace/items.h"
#include "src/trace/trace.h"

namespace tensor::detail {
namespace {

// What was compiled for one device, on another of its model: nothing is planned anew.
std::shared_ptr<const Program> linked_again(const Program& program, Target target,
                                            const CompileOptions& options,
                                            const std::function<bool()>& make_room) {
  auto kernels = target.lower(program.laid, program.plan);
  auto again = link(program.laid, program.plan, std::move(kernels), std::move(target),
                    program.common, program.computes);
  again->common->keep_within(options.memory_limit, *again, make_room);
  return again;
}

}  // namespace

std::shared_ptr<const Program> compile_for_devices(const TensorFunction& function,
                                                   const std::vector<TensorType>& inputs,
                                                   CompileOptions options, bool any_extent,
                                                   const MakePiece& known,
                                                   const std::function<bool()>& make_room) {
  Division division = divide(inputs, options.device, options.devices, options.whole_inputs);
  const bool is_one = division.pieces.size() == 1;
  if (!is_one && !options.sharing) options.sharing = Sharing();
  bool is_checked = is_one;
  const std::vector<bool> is_batch = division.is_batch;
  const std::int64_t items = division.items;
  std::vector<std::shared_ptr<const Program>> compiled;
  return program_of(std::move(division), [&](const Division::Piece& piece) {
    if (known)
      if (auto program = known(piece)) return program;
    if (!is_checked)
      check_items(trace(function, inputs, options.names, options.sharing->common()->derived()),
                  is_batch, items);
    is_checked = true;
    Target target = target_of(piece.device, options.threads, any_extent, options.spin_us);
    for (const auto& before : compiled)
      if (before->inputs == piece.inputs && before->target.tuned_as == target.tuned_as)
        return linked_again(*before, std::move(target), options, make_room);
    compiled.push_back(
        compile_until(Until::linked, function, piece.inputs, options, std::move(target), make_room)
            .program);
    return compiled.back();
  });
}

}  // namespace tensor::detail
