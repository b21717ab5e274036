// Dispatch: from a DType to the C++ type of its elements, and the type in which arithmetic on it
// happens.
#pragma once

#include <limits>
#include <string_view>
#include <type_traits>

#include "tensor/dtype.h"
#include "tensor/error.h"

namespace tensor {

template <class T>
struct TypeTag {
  using type = T;
};

/// Calls body(TypeTag<T>{}) with the element type of `dtype`.
template <class Body>
decltype(auto) dispatch(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::boolean:
      return body(TypeTag<bool>{});
    case DType::u8:
      return body(TypeTag<std::uint8_t>{});
    case DType::i8:
      return body(TypeTag<std::int8_t>{});
    case DType::i16:
      return body(TypeTag<std::int16_t>{});
    case DType::i32:
      return body(TypeTag<std::int32_t>{});
    case DType::i64:
      return body(TypeTag<std::int64_t>{});
    case DType::f16:
      return body(TypeTag<Float16>{});
    case DType::bf16:
      return body(TypeTag<BFloat16>{});
    case DType::f32:
      return body(TypeTag<float>{});
    case DType::f64:
      return body(TypeTag<double>{});
  }
  internal_error("dispatch", "no element type ", static_cast<int>(dtype));
}

/// As `dispatch` for floating types; throws UserError naming `where` for the others.
template <class Body>
decltype(auto) dispatch_floating(DType dtype, std::string_view where, Body&& body) {
  switch (dtype) {
    case DType::f16:
      return body(TypeTag<Float16>{});
    case DType::bf16:
      return body(TypeTag<BFloat16>{});
    case DType::f32:
      return body(TypeTag<float>{});
    case DType::f64:
      return body(TypeTag<double>{});
    default:
      fail(where, "got a tensor of ", dtype, ", need a floating type: convert it with astype(f32)");
  }
}

/// Where an integer lies to what `dtype` holds: -1 below, 1 above, 0 within (as in floating types).
inline int beyond_range(std::int64_t value, DType dtype) {
  return dispatch(dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    if constexpr (std::is_integral_v<T>) {
      if (value < static_cast<std::int64_t>(std::numeric_limits<T>::min())) return -1;
      if (value > static_cast<std::int64_t>(std::numeric_limits<T>::max())) return 1;
    }
    return 0;
  });
}

/// float for the 16-bit floating types, T itself otherwise.
template <class T>
using Compute =
    std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

/// The type sums of T are accumulated in: double for floating types (the reference is to be
/// trusted), int64 for the others.
template <class T>
using Accumulator = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

/// C++ conversion without undefined behaviour: to bool tests against zero, to an integer saturates,
/// NaN becomes 0.
template <class To, class From>
To convert(From from) {
  const auto value = static_cast<Compute<From>>(from);
  if constexpr (std::is_same_v<To, bool>) {
    return value != Compute<From>(0);
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<Compute<From>>) {
    return detail::saturated<To>(value);
  } else if constexpr (std::is_same_v<To, Float16> || std::is_same_v<To, BFloat16>) {
    return To(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace tensor
