// Kernels of elementwise operators: a scalar function over the storage type T, computed in
// Compute<T>.
#pragma once

#include "src/core/dispatch.h"
#include "src/core/loop.h"
#include "src/ops/op.h"
#include "src/ops/scalar.h"
#include "tensor/error.h"

namespace tensor::pointwise {

using namespace scalar;

template <class T, class R, auto f>
void unary_loop(std::byte* const* data, const std::int64_t* strides, std::int64_t count) {
  std::byte* out = data[0];
  const std::byte* in = data[1];
  for (; count > 0; --count, out += strides[0], in += strides[1])
    *reinterpret_cast<R*>(out) = R(f(static_cast<Compute<T>>(*reinterpret_cast<const T*>(in))));
}

template <class T, class R, auto f>
void binary_loop(std::byte* const* data, const std::int64_t* strides, std::int64_t count) {
  std::byte* out = data[0];
  const std::byte *a = data[1], *b = data[2];
  for (; count > 0; --count, out += strides[0], a += strides[1], b += strides[2])
    *reinterpret_cast<R*>(out) = R(f(static_cast<Compute<T>>(*reinterpret_cast<const T*>(a)),
                                     static_cast<Compute<T>>(*reinterpret_cast<const T*>(b))));
}

/// The same in float only, for vector programs.
template <auto f, int inputs>
void float_loop(float* to, const float* const* from, const std::int64_t* strides,
                std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (inputs == 1)
      to[i] = static_cast<float>(f(from[0][i * strides[0]]));
    else
      to[i] = static_cast<float>(f(from[0][i * strides[0]], from[1][i * strides[1]]));
  }
}

/// The loop of integers of 8 and 16 bits and bool, as floats.
template <auto f>
void whole_loop(float* to, const float* const* from, const std::int64_t* strides,
                std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<float>(f(static_cast<std::int32_t>(from[0][i * strides[0]]),
                                 static_cast<std::int32_t>(from[1][i * strides[1]])));
}

/// Which element types an operator is defined on.
enum class Domain { floating, number, whole, any };

template <Domain domain, class Body>
void dispatch_domain(DType dtype, std::string_view where, Body&& body) {
  if constexpr (domain == Domain::floating) {
    dispatch_floating(dtype, where, body);
  } else {
    dispatch(dtype, [&]<class Tag>(Tag tag) {
      if constexpr (domain == Domain::number && std::is_same_v<typename Tag::type, bool>)
        internal_error(where, "got a boolean tensor after type inference");
      else if constexpr (domain == Domain::whole &&
                         std::is_floating_point_v<Compute<typename Tag::type>>)
        internal_error(where, "got a floating tensor after type inference");
      else
        body(tag);
    });
  }
}

template <Domain domain, bool to_bool, auto f>
void eval_unary(std::span<const ConstView> in, const Attrs&, const View& out) {
  dispatch_domain<domain>(in[0].dtype, "unary", [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    run_strided(out, in, unary_loop<T, std::conditional_t<to_bool, bool, T>, f>);
  });
}

template <Domain domain, bool to_bool, auto f>
void eval_binary(std::span<const ConstView> in, const Attrs&, const View& out) {
  dispatch_domain<domain>(in[0].dtype, "binary", [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    run_strided(out, in, binary_loop<T, std::conditional_t<to_bool, bool, T>, f>);
  });
}

template <class From, class To>
void cast_loop(std::byte* const* data, const std::int64_t* strides, std::int64_t count) {
  std::byte* out = data[0];
  const std::byte* in = data[1];
  for (; count > 0; --count, out += strides[0], in += strides[1])
    *reinterpret_cast<To*>(out) = convert<To>(*reinterpret_cast<const From*>(in));
}

inline void eval_cast(std::span<const ConstView> in, const Attrs&, const View& out) {
  dispatch(in[0].dtype, [&]<class From>(From) {
    dispatch(out.dtype, [&]<class To>(To) {
      run_strided(out, in, cast_loop<typename From::type, typename To::type>);
    });
  });
}

template <class T>
void where_loop(std::byte* const* data, const std::int64_t* strides, std::int64_t count) {
  std::byte* out = data[0];
  const std::byte *condition = data[1], *a = data[2], *b = data[3];
  for (; count > 0;
       --count, out += strides[0], condition += strides[1], a += strides[2], b += strides[3])
    *reinterpret_cast<T*>(out) =
        *reinterpret_cast<const T*>(*reinterpret_cast<const bool*>(condition) ? a : b);
}

inline void eval_where(std::span<const ConstView> in, const Attrs&, const View& out) {
  dispatch(out.dtype,
           [&]<class Tag>(Tag) { run_strided(out, in, where_loop<typename Tag::type>); });
}

}  // namespace tensor::pointwise
