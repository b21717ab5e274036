#include "src/runtime/parts.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <utility>

#include "src/core/storage.h"
#include "src/kernels/cuda/driver/communicator.h"
#include "src/runtime/program.h"
#include "tensor/text.h"

namespace tensor::detail {
namespace {

// Items of axis 0.
Tensor items(const Tensor& x, std::int64_t begin, std::int64_t count) {
  TensorImpl view = impl(x);
  view.type.shape[0] = count;
  view.offset += begin * view.strides[0];
  return make_tensor(std::move(view));
}

std::string devices_text(const std::vector<Device>& devices) {
  TextWriter text;
  for (std::size_t i = 0; i < devices.size(); ++i)
    text << (i == 0 ? "" : i + 1 == devices.size() ? " and " : ", ") << devices[i];
  return text.str();
}

void check_devices(const Device& device, const std::vector<Device>& devices) {
  if (!(device == Device()))
    fail("compile", "got device ", device, " and devices ", devices_text(devices),
         ", need one of the two: leave device out");
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].is_cuda() && devices.size() > 1)
      fail("compile", "got devices ", devices_text(devices),
           ", need GPUs alone, such as cuda:0 and ",
           "cuda:1: the CPU divides its work among threads, and is too slow beside a GPU");
    if (std::count(devices.begin(), devices.end(), devices[i]) > 1)
      fail("compile", "got devices ", devices_text(devices), ", need each once");
  }
}

void check_whole(const std::vector<std::size_t>& whole_inputs, std::size_t inputs) {
  for (const std::size_t i : whole_inputs)
    if (i >= inputs)
      fail("compile", "got input ", i, " among whole_inputs, need one of ", inputs,
           ", which count from 0");
}

// The type of an output of all pieces together.
TensorType joined(const Division& division, std::size_t output,
                  const std::vector<std::shared_ptr<const Program>>& programs) {
  TensorType all = programs.front()->outputs[output];
  const auto refuse = [&](const TensorType& type, std::int64_t count) {
    fail("compile", "output ", output, " is ", type, " for ", count, " of ", division.items,
         " items, need axis 0 to count them for several devices: leave it out, or compile for one ",
         "device");
  };
  const std::int64_t most = division.pieces.front().count;
  if (all.shape.empty() || all.shape[0] % most != 0) refuse(all, most);
  const std::int64_t places = all.shape[0] / most;  // of an item
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const TensorType& type = programs[i]->outputs[output];
    TensorType need = all;
    need.shape[0] = places * division.pieces[i].count;
    if (!(type == need)) refuse(type, division.pieces[i].count);
  }
  all.shape[0] = places * division.items;
  return all;
}

}  // namespace

Division divide(const std::vector<TensorType>& inputs, const std::vector<Device>& devices,
                const std::vector<std::size_t>& whole_inputs) {
  check_whole(whole_inputs, inputs.size());
  Division division{.inputs = inputs, .is_batch = {}, .items = -1, .pieces = {}};
  std::size_t first = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_batch = !inputs[i].shape.empty() && !std::ranges::count(whole_inputs, i);
    division.is_batch.push_back(is_batch);
    if (!is_batch) continue;
    const std::int64_t items = inputs[i].shape[0];
    if (division.items < 0) division.items = items, first = i;
    if (division.items != items)
      fail("compile", "input ", first, " is ", inputs[first], ", input ", i, " is ", inputs[i],
           ", need one batch, axis 0, of all inputs for several devices: name those that are no ",
           "batches in whole_inputs");
  }
  if (division.items < 0)
    fail("compile", "got no input with a batch, need one to divide it among ",
         devices_text(devices), ": compile for one device");
  const auto count = std::clamp<std::int64_t>(division.items, 1, std::ssize(devices));
  for (std::int64_t i = 0, begin = 0; i < count; ++i) {
    Division::Piece piece{devices[static_cast<std::size_t>(i)], begin,
                          division.items / count + (i < division.items % count), inputs};
    for (std::size_t k = 0; k < inputs.size(); ++k)
      if (division.is_batch[k]) piece.inputs[k].shape[0] = piece.count;
    begin += piece.count;
    division.pieces.push_back(std::move(piece));
  }
  return division;
}

Division divide(const std::vector<TensorType>& inputs, const Device& device,
                const std::vector<Device>& devices, const std::vector<std::size_t>& whole_inputs) {
  check_devices(device, devices);
  return divide(inputs, devices, whole_inputs);
}

Division share_products(const std::vector<TensorType>& inputs, const Device& device,
                        const std::vector<Device>& devices,
                        const std::vector<std::size_t>& whole_inputs) {
  check_devices(device, devices);
  if (!whole_inputs.empty())
    fail("compile", "got whole_inputs where devices divide products, and all of them have all ",
         "inputs: leave it out");
  Division division{.inputs = inputs,
                    .is_batch = std::vector<bool>(inputs.size(), false),
                    .items = 1,
                    .pieces = {}};
  for (const Device& one : devices) division.pieces.push_back({one, 0, 1, inputs});
  return division;
}

std::shared_ptr<const Program> program_of(Division division, const MakePiece& make) {
  if (division.pieces.size() == 1) return make(division.pieces.front());
  std::vector<std::shared_ptr<const Program>> programs;
  for (const Division::Piece& piece : division.pieces) programs.push_back(make(piece));
  const auto program = std::make_shared<Program>();
  const Program& first = *programs.front();
  program->common = first.common;
  program->computes = first.computes;
  program->inputs = division.inputs;
  for (std::size_t i = 0; i < first.outputs.size(); ++i)
    program->outputs.push_back(joined(division, i, programs));
  program->parts = std::make_unique<Parts>(std::move(division), std::move(programs));
  return program;
}

std::shared_ptr<const Program> program_of_shares(
    Division division, std::vector<std::shared_ptr<const Program>> programs, std::string about) {
  const auto program = std::make_shared<Program>();
  const Program& first = *programs.front();
  program->common = first.common;
  program->computes = first.computes;
  program->inputs = first.inputs, program->outputs = first.outputs;
  program->parts =
      std::make_unique<Parts>(std::move(division), std::move(programs), std::move(about));
  return program;
}

Parts::Parts(Division division, std::vector<std::shared_ptr<const Program>> programs,
             std::string about)
    : division_(std::move(division)),
      programs_(std::move(programs)),
      about_(std::move(about)),
      sums_(programs_.front()->target.share.sums),
      unread_(programs_.size()) {}

std::string Parts::does() const {
  std::vector<Device> devices;
  for (const Division::Piece& piece : division_.pieces) devices.push_back(piece.device);
  return std::string("divides its ") + (have_shares() ? "products" : "batch") + " among " +
         devices_text(devices);
}

std::string Parts::name_of(std::size_t part) const {
  const Division::Piece& piece = division_.pieces[part];
  TextWriter text;
  if (have_shares()) {
    text << "share " << part + 1 << " of " << size();
    return text.str();
  }
  text << "items " << piece.begin << " to " << piece.begin + piece.count - 1 << " of "
       << division_.items;
  return text.str();
}

std::vector<Tensor> Parts::inputs_of(std::size_t part, const std::vector<Tensor>& inputs) const {
  const Division::Piece& piece = division_.pieces[part];
  std::vector<Tensor> own = inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (division_.is_batch[i]) own[i] = items(inputs[i], piece.begin, piece.count);
  return own;
}

void Parts::run_all(const std::function<void(std::size_t part)>& work) const {
  const Pool<Crew>::Lease crew =
      programs_.front()->common->crews().take([] { return std::make_unique<Crew>(); });
  have_shares() ? run_shares(*crew, work) : crew->run(size(), work);
}

// Where one fails, the others may wait for its sums. So it waits for them for a while, and then
// ends that, and with it the use of the executable; errors that all have alike end nothing.
void Parts::run_shares(Crew& crew, const std::function<void(std::size_t part)>& work) const {
  constexpr std::chrono::seconds kWhile{1};
  const cuda::Communicator::Turn turn = sums_->take_turn();
  sums_->check();
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t ended = 0;
  std::exception_ptr first;
  crew.run(size(), [&](std::size_t part) {
    std::string cause;
    try {
      work(part);
    } catch (const std::exception& error) {
      cause = error.what();
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    std::unique_lock lock(mutex);
    ++ended;
    changed.notify_all();
    if (!cause.empty() && !changed.wait_for(lock, kWhile, [&] { return ended == size(); }))
      sums_->abort(cause);
  });
  if (first) std::rethrow_exception(first);
}

// Of shares the first writes the outputs, and the others what nobody reads.
std::vector<Tensor> Parts::outputs_of(std::size_t part, const std::vector<Tensor>& outputs) const {
  if (have_shares()) {
    std::vector<Tensor>& unread = unread_[part];
    if (part > 0 && unread.empty())
      unread = outputs_on(*programs_[part], division_.pieces[part].device);
    return part == 0 ? outputs : unread;
  }
  const Division::Piece& piece = division_.pieces[part];
  std::vector<Tensor> own;
  for (const Tensor& output : outputs) {
    const std::int64_t places = output.shape(0) / division_.items;  // of an item
    own.push_back(items(output, places * piece.begin, places * piece.count));
  }
  return own;
}

void Parts::run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                const std::stop_token& stop) const {
  for (const auto& program : programs_) program->shared.check();
  check_goes_on(stop);
  // A share that stopped would leave the others waiting for its sums.
  const std::stop_token while_running = have_shares() ? std::stop_token() : stop;
  run_all([&](std::size_t part) {
    std::vector<Tensor> own = outputs_of(part, outputs);
    run_checked(*programs_[part], inputs_of(part, inputs), own, while_running);
  });
}

std::vector<double> Parts::time_whole(const std::vector<Tensor>& inputs, int repeats) const {
  std::vector<std::vector<double>> times(size());
  run_all([&](std::size_t part) {
    times[part] = programs_[part]->engine->time_whole(inputs_of(part, inputs), repeats);
  });
  std::vector<double> longest = times.front();
  for (const std::vector<double>& one : times)
    for (std::size_t i = 0; i < one.size(); ++i) longest[i] = std::max(longest[i], one[i]);
  return longest;
}

std::vector<std::vector<double>> Parts::time_share(std::size_t part,
                                                   const std::vector<Tensor>& inputs,
                                                   int repeats) const {
  std::vector<std::vector<double>> times;
  run_all([&](std::size_t i) {
    auto mine = programs_[i]->engine->time(inputs, repeats);
    if (i == part) times = std::move(mine);
  });
  return times;
}

std::vector<std::vector<double>> PartOfCall::time(int repeats) const {
  return all && all->have_shares() ? all->time_share(part, inputs, repeats)
                                   : program->engine->time(inputs, repeats);
}

std::vector<PartOfCall> parts_of(const Program& program, const std::vector<Tensor>& inputs) {
  if (!program.parts) return {{&program, inputs}};
  std::vector<PartOfCall> result;
  for (std::size_t i = 0; i < program.parts->size(); ++i)
    result.push_back(
        {&(*program.parts)[i], program.parts->inputs_of(i, inputs), program.parts.get(), i});
  return result;
}

}  // namespace tensor::detail
