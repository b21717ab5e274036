// Runs with a stop_token, on whatever device.
#pragma once

#include <gtest/gtest.h>

#include <thread>

#include "tensor/compile.h"
#include "tensor/tensor.h"

namespace tensor::check {

/// A chain of so many products, each a kernel.
inline std::vector<Tensor> chain(const std::vector<Tensor>& in, int length) {
  Tensor x = in[0];
  for (int i = 0; i < length; ++i) x = softmax(matmul(x, in[1]));
  return {x};
}

/// A run without a request is as any other; one that is asked to stop, before or while it is under
/// way, throws; and the next ones are right again.
inline void expect_stops(const Executable& f, const std::vector<Tensor>& in) {
  const std::vector<Tensor> want = f(in);
  std::vector<Tensor> out = {full(want[0].shape(), -1, f32)};
  std::stop_source unused, before;
  f.run(in, out, unused.get_token());
  EXPECT_TRUE(array_equal(out[0], want[0].to("cpu")));
  before.request_stop();
  out = {full(want[0].shape(), -1, f32)};
  EXPECT_THROW(f.run(in, out, before.get_token()), Cancelled);
  EXPECT_TRUE(array_equal(out[0], full(want[0].shape(), -1, f32))) << "it ran";
  std::stop_source during;
  std::jthread other([&] { during.request_stop(); });
  const auto run_until_stopped = [&] {
    for (;;) f.run(in, out, during.get_token());
  };
  EXPECT_THROW(run_until_stopped(), Cancelled);
  f.run(in, out);
  EXPECT_TRUE(array_equal(out[0], want[0].to("cpu")));
}

}  // namespace tensor::check
