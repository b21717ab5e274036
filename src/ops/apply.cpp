// apply_op: the one way from a public function to an operator's kernel.
#include <algorithm>
#include <utility>
#include <vector>

#include "src/ops/on_device.h"
#include "src/ops/op.h"
#include "src/ops/recorder.h"
#include "tensor/creation.h"

namespace tensor {
namespace {

Tensor make_view(const Tensor& x, DType dtype, const Layout& layout) {
  detail::TensorImpl impl = detail::impl(x);
  impl.type = {layout.shape, dtype};
  impl.strides = layout.strides;
  impl.offset += layout.offset;
  impl.weak = false;
  for (int axis = 0; axis < layout.shape.rank(); ++axis)
    impl.overlapping |= layout.strides[axis] == 0 && layout.shape[axis] > 1;
  return detail::make_tensor(std::move(impl));
}

Tensor evaluated(const OpInfo& row, std::span<const Tensor> inputs, const Attrs& attrs,
                 const TensorType& type) {
  Tensor result = empty(type.shape, type.dtype);
  std::vector<ConstView> views;
  for (const Tensor& x : inputs) views.push_back(const_view(x));
  row.eval(views, attrs, mutable_view(result));
  return result;
}

thread_local Recall* recall_of_this_thread = nullptr;

}  // namespace

Recall* Recall::of_this_thread() { return recall_of_this_thread; }
Recall::Scope::Scope(Recall* recall) : before_(std::exchange(recall_of_this_thread, recall)) {}
Recall::Scope::~Scope() { recall_of_this_thread = before_; }

Tensor apply_op(Op op, std::span<const Tensor> inputs, const Attrs& attrs) {
  const OpInfo& row = info(op);
  std::vector<TensorType> types;
  for (const Tensor& x : inputs) {
    if (!x.defined())
      fail(row.name, "got an undefined tensor (default constructed): give it a value first");
    types.push_back(x.type());
  }
  const TensorType type = infer(op, types, attrs);
  for (const Tensor& x : inputs)
    if (Recorder* recorder = detail::impl(x).recorder.get())
      return recorder->record(op, inputs, attrs, type);

  const bool on_device = std::any_of(inputs.begin(), inputs.end(),
                                     [](const Tensor& x) { return x.device().is_cuda(); });
  if (row.view) {
    if (const auto layout = row.view(types[0], inputs[0].strides(), attrs))
      return make_view(inputs[0], type.dtype, *layout);
    if (on_device) return apply_op(op, {apply_op(Op::copy, {inputs[0]})}, attrs);
  }
  if (on_device) return apply_on_device(op, inputs, attrs, type);
  Recall* const recall = Recall::of_this_thread();
  if (!recall) return evaluated(row, inputs, attrs, type);
  return recall->result(op, inputs, attrs, type,
                        [&row, in = std::vector(inputs.begin(), inputs.end()), attrs, type] {
                          return evaluated(row, in, attrs, type);
                        });
}

}  // namespace tensor
