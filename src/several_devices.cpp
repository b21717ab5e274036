// Compiling for several devices that divide the batch: the function is traced once for all of it,
// to see whether that can be divided, and compiled for each size of a part. For devices that divide
// products it is compiled once for each.
#include <algorithm>
#include <map>
#include <optional>

#include "src/compile.h"
#include "src/kernels/cuda/driver/communicator.h"
#include "src/runtime/describe.h"
#include "src/runtime/parts.h"
#include "src/runtime/program.h"
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

// "12 x 3072 @ layers.*.fc2": the equal ones together.
std::string chains_text(const std::vector<ProductChain>& chains, bool are_divided) {
  struct Kind {
    int count = 0;
    std::string where;
  };
  std::map<std::int64_t, Kind, std::greater<>> kinds;
  for (const ProductChain& chain : chains) {
    if (chain.is_divided != are_divided) continue;
    Kind& kind = kinds[chain.extent];
    kind.where = kind.count++ == 0 ? chain.where : merged_place(kind.where, chain.where);
  }
  TextWriter text;
  for (const auto& [extent, kind] : kinds)
    text << (text.str().empty() ? "" : ", ") << kind.count << " x " << extent
         << (kind.where.empty() ? "" : " @ ") << kind.where;
  return text.str();
}

std::string about(const std::vector<ProductChain>& chains, int count) {
  const std::string whole = chains_text(chains, false);
  TextWriter text;
  text << "      products divided by columns or heads: " << chains_text(chains, true) << "\n";
  if (!whole.empty())
    text << "      whole, since " << count << " devices cannot have equal shares: " << whole
         << "\n";
  return text.str();
}

// What all devices compute must be the same: what one of them chooses by it, such as the best
// boxes, all must.
void check_model(const std::vector<cuda::Device*>& devices) {
  const cuda::DeviceInfo& first = devices.front()->info();
  for (const cuda::Device* device : devices)
    if (const cuda::DeviceInfo& info = device->info(); info.tuned_as() != first.tuned_as())
      fail("compile", "got cuda:", first.index, ", ", first.tuned_as(), ", and cuda:", info.index,
           ", ", info.tuned_as(),
           ", need GPUs of one model to divide products: divide the batch, or choose others");
}

// The sums of a program in the order in which it makes them, each by its place in the graph.
std::vector<std::size_t> order_of_sums(const Program& program) {
  const Graph& graph = program.laid.graph;
  std::vector<ValueId> all;
  for (ValueId id = 0; id < graph.size(); ++id)
    if (graph.is_op(id, Op::all_reduce)) all.push_back(id);
  std::vector<std::size_t> order;
  for (const Group& group : program.plan.groups)
    if (const ValueId id = group.nodes.front(); graph.is_op(id, Op::all_reduce))
      order.push_back(
          static_cast<std::size_t>(std::find(all.begin(), all.end(), id) - all.begin()));
  return order;
}

std::shared_ptr<const Program> compile_shares(const TensorFunction& function,
                                              const std::vector<TensorType>& inputs,
                                              CompileOptions options, bool any_extent,
                                              const std::function<bool()>& make_room) {
  Division division = share_products(inputs, options.device, options.devices, options.whole_inputs);
  const auto count = static_cast<int>(division.pieces.size());
  const auto target_at = [&](int i) {
    return target_of(division.pieces[static_cast<std::size_t>(i)].device, options.threads,
                     any_extent, options.spin_us);
  };
  if (count == 1)
    return compile_until(Until::linked, function, inputs, options, target_at(0), make_room).program;
  if (!options.sharing) options.sharing = Sharing();
  std::vector<cuda::Device*> devices;
  for (const Division::Piece& piece : division.pieces)
    devices.push_back(&cuda::Device::get(piece.device.index()));
  check_model(devices);
  const auto sums = cuda::Communicator::of(devices);
  std::vector<std::shared_ptr<const Program>> programs;
  std::optional<Compilation> first;
  for (int i = 0; i < count; ++i) {
    Target target = target_at(i);
    target.share = {i, count, sums};
    Compilation compiled =
        compile_until(Until::linked, function, inputs, options, std::move(target), make_room, false,
                      first ? &*first : nullptr);
    programs.push_back(compiled.program);
    if (!first) first = std::move(compiled);
    if (order_of_sums(*programs.back()) != order_of_sums(*programs.front()))
      internal_error("compile", "devices would add up products in different orders");
  }
  return program_of_shares(std::move(division), std::move(programs), about(first->chains, count));
}

}  // namespace

std::shared_ptr<const Program> compile_for_devices(const TensorFunction& function,
                                                   const std::vector<TensorType>& inputs,
                                                   CompileOptions options, bool any_extent,
                                                   const MakePiece& known,
                                                   const std::function<bool()>& make_room) {
  if (options.divide == Divide::products)
    return compile_shares(function, inputs, std::move(options), any_extent, make_room);
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
