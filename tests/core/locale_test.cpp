// Whatever streams write does not depend on the program's locale, nor on that of the stream.
#include <gtest/gtest.h>

#include <sstream>

#include "tensor/tensor.h"
#include "tests/locale.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

template <class T>
std::string printed(const T& value) {
  std::ostringstream out;  // with the program's locale
  out << value;
  return out.str();
}

TEST(Locale, NumbersInTextsAreCpps) {
  const check::ForeignLocale foreign;
  EXPECT_EQ(printed(1234.5), "1.234,5");  // it is in force
  EXPECT_EQ(printed(Shape{1024, 2000}), "(1024, 2000)");
  EXPECT_EQ(printed(zeros({1024, 2000}).type()), "f32(1024, 2000)");
  EXPECT_EQ(printed(Device("cuda:1234")), "cuda:1234");
  EXPECT_EQ(printed(Attrs{{"i", 12345}, {"d", 1234.5}, {"b", true}, {"l", Ints{1000, 2}}}),
            "i=12345, d=1234.5, b=true, l=[1000, 2]");
  EXPECT_EQ(printed(array({1234567, -5})), "[1234567      -5]");
  EXPECT_EQ(printed(array({1234.5, 0.25})), "[1.2345e+03 2.5000e-01]");
  EXPECT_EQ(printed(Tensor(0.1f).astype(f16)), "0.1");
  EXPECT_EQ(check::error_of([] { ones({2}, u8) + 1000; }),
            "add: the number 1000 does not fit into u8: convert the tensor with astype first");
  EXPECT_EQ(check::error_of([] {
              ones({1000, 2}) + ones({1001, 2});
            }).find('.'),
            std::string::npos);
}

// The flags of a stream are for what its owner writes.
TEST(Locale, ShapesAreDecimal) {
  std::ostringstream out;
  out << std::hex << std::showbase << Shape{255} << 255;
  EXPECT_EQ(out.str(), "(255,)0xff");
}

TEST(Locale, TextsAreReadAsWritten) {
  const check::ForeignLocale foreign;
  TextWriter text;
  text << 1234567 << ' ' << 0.5;
  EXPECT_EQ(text.str(), "1234567 0.5");
  TextReader reader("1234567 0.5 1,2");
  int whole = 0, next = 0;
  double part = 0;
  reader >> whole >> part >> next;
  EXPECT_EQ(whole, 1234567);
  EXPECT_EQ(part, 0.5);
  EXPECT_EQ(next, 1);
}

}  // namespace
}  // namespace tensor
