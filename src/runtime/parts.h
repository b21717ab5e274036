// Parts: a program for several devices, each of which runs a part of the batch, or has a share of
// the products.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/runtime/common.h"
#include "tensor/executable.h"

namespace tensor::cuda {
class Communicator;
}

namespace tensor::detail {

/// Where a batch is cut.
struct Division {
  struct Piece {
    Device device;
    std::int64_t begin = 0, count = 0;  // of the items
    std::vector<TensorType> inputs;
  };
  std::vector<TensorType> inputs;
  std::vector<bool> is_batch;  // the inputs; others go to all
  std::int64_t items = 0;
  std::vector<Piece> pieces;  // the first have one item more where they are not equal
};

/// UserError where the inputs have no batch, or not one of one size.
Division divide(const std::vector<TensorType>& inputs, const std::vector<Device>& devices,
                const std::vector<std::size_t>& whole_inputs);
/// The same of options that users give: UserError on one device named twice, on devices that are no
/// GPUs, and where `device` is given, too.
Division divide(const std::vector<TensorType>& inputs, const Device& device,
                const std::vector<Device>& devices, const std::vector<std::size_t>& whole_inputs);

/// The same for devices that have shares of the products: each piece is the whole batch.
Division share_products(const std::vector<TensorType>& inputs, const Device& device,
                        const std::vector<Device>& devices,
                        const std::vector<std::size_t>& whole_inputs);

struct Program;
/// Makes the program of a piece.
using MakePiece = std::function<std::shared_ptr<const Program>(const Division::Piece& piece)>;
/// The program of all pieces; of a single one its own.
std::shared_ptr<const Program> program_of(Division division, const MakePiece& make);
/// The program of devices that have shares of the products, one for each. `about` is what reports
/// say of it.
std::shared_ptr<const Program> program_of_shares(
    Division division, std::vector<std::shared_ptr<const Program>> programs, std::string about);

/// What a program of several devices has in place of a graph and an engine. Immutable: any number
/// of threads may run it at a time.
class Parts {
 public:
  Parts(Division division, std::vector<std::shared_ptr<const Program>> programs,
        std::string about = {});

  std::size_t size() const { return programs_.size(); }
  const Program& operator[](std::size_t part) const { return *programs_[part]; }
  /// "divides its batch among cuda:0 and cuda:1".
  std::string does() const;
  /// "items 0 to 2 of 5", or "share 1 of 2".
  std::string name_of(std::size_t part) const;
  /// Whether they add up products, so that none runs without the others.
  bool have_shares() const { return sums_ != nullptr; }
  const std::string& about() const { return about_; }

  /// What a part takes of a call's inputs: views.
  std::vector<Tensor> inputs_of(std::size_t part, const std::vector<Tensor>& inputs) const;
  /// Tensors of the program's types on the host, the outputs contiguous, in memory of their own.
  /// Each part writes its items where they belong.
  void run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
           const std::stop_token& stop) const;
  /// Engine::time_whole of all parts at the same time: of each run the longest.
  std::vector<double> time_whole(const std::vector<Tensor>& inputs, int repeats) const;
  /// Engine::time of one of the parts with shares, all of which run.
  std::vector<std::vector<double>> time_share(std::size_t part, const std::vector<Tensor>& inputs,
                                              int repeats) const;

 private:
  std::vector<Tensor> outputs_of(std::size_t part, const std::vector<Tensor>& outputs) const;
  void run_all(const std::function<void(std::size_t part)>& work) const;
  void run_shares(Crew& crew, const std::function<void(std::size_t part)>& work) const;

  Division division_;
  std::vector<std::shared_ptr<const Program>> programs_;
  std::string about_;
  std::shared_ptr<cuda::Communicator> sums_;  // of shares
  // What the shares but the first have as outputs, which nobody gets: on their devices.
  mutable std::vector<std::vector<Tensor>> unread_;
};

/// The programs of a program with engines, and their inputs: of several devices its parts, else
/// itself.
struct PartOfCall {
  const Program* program;
  std::vector<Tensor> inputs;
  const Parts* all = nullptr;  // none of a single device
  std::size_t part = 0;

  /// Engine::time.
  std::vector<std::vector<double>> time(int repeats) const;
};
std::vector<PartOfCall> parts_of(const Program& program, const std::vector<Tensor>& inputs);

}  // namespace tensor::detail
