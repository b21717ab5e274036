#include "src/runtime/uploads.h"

#include "src/core/device_seam.h"
#include "src/core/rounding.h"
#include "src/runtime/reach.h"
#include "tensor/io.h"
#include "tensor/text.h"

namespace tensor::detail {
namespace {

constexpr std::int64_t kEach = 1024;  // every one is aligned to: for swizzled boxes, and more
constexpr std::int64_t kTogether = 32 << 20;  // bytes of a block

Reach reach_in(const Tensor& x) { return reach_of(x.shape(), x.strides(), x.dtype()); }

}  // namespace

Uploads::Uploads(const Graph& graph, Device device) : graph_(graph), device_(device) {
  TextWriter where;
  where << "on " << device << ' ';
  where_ = where.str();
}

void Uploads::add(const std::string& form, std::vector<Tensor> constants, const Pack& pack,
                  Tensor& to) {
  DerivedConstants::Derivation derivation;
  if (graph_.derived()) derivation = graph_.derived()->derivation(where_ + form, constants);
  if (const auto known = derivation.known()) {
    to = *known;
    return;
  }
  Tensor packed = pack(constants);
  const std::int64_t bytes = round_up(reach_in(packed).bytes, kEach);
  if (!waiting_.empty() && bytes_ + bytes > kTogether) flush();
  waiting_.push_back({std::move(derivation), std::move(packed), bytes_, &to});
  bytes_ += bytes;
}

void Uploads::finish() {
  if (!waiting_.empty()) flush();
}

void Uploads::flush() {
  const std::shared_ptr<Storage> block = allocate_on(device_, bytes_);
  for (const Upload& one : waiting_) {
    const TensorImpl& from = stored(one.packed);
    const Reach reach = reach_in(one.packed);
    TensorImpl impl = from;
    impl.storage = std::make_shared<Storage>();
    impl.storage->data = block->data + one.place;
    impl.storage->owner = block;
    impl.storage->device = device_;
    impl.offset = -reach.first / item_size(from.type.dtype);
    if (one.packed.size() > 0) {
      upload(device_, impl.storage->data,
             {from.first() + reach.first, static_cast<std::size_t>(reach.bytes)});
      forget_pages(one.packed);
    }
    *one.to = one.derivation.keep(make_tensor(std::move(impl)));
  }
  waiting_.clear();
  bytes_ = 0;
}

}  // namespace tensor::detail
