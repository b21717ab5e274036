// Keys of different lists of parts differ, where texts without marks between them would not.
#include "src/core/key.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace tensor {
namespace {

template <class... Parts>
std::string key_of(const Parts&... parts) {
  Key key;
  (key << ... << parts);
  return key.take();
}

TEST(Key, TellsWhereTextsAndListsEnd) {
  EXPECT_NE(key_of("ab", "c"), key_of("a", "bc"));
  EXPECT_NE(key_of(std::string("a"), std::string()), key_of(std::string(), std::string("a")));
  EXPECT_NE(key_of(Dims{1, 2}, Dims{3}), key_of(Dims{1}, Dims{2, 3}));
  EXPECT_NE(key_of(Dims{}, Dims{0}), key_of(Dims{0}, Dims{}));
  EXPECT_EQ(key_of(Dims{1, 2}, "a"), key_of(Dims{1, 2}, "a"));
}

TEST(Key, TellsTypesApart) {
  EXPECT_NE(key_of(TensorType{{2, 3}, f32}), key_of(TensorType{{2, 3}, f16}));
  EXPECT_NE(key_of(TensorType{{2, 3}, f32}), key_of(TensorType{{3, 2}, f32}));
  EXPECT_EQ(key_of(TensorType{{2, 3}, f32}), key_of(TensorType{{2, 3}, f32}));
}

TEST(Key, TellsAttributesApart) {
  const Attrs axis = {{"axis", 1}};
  EXPECT_EQ(key_of(axis), key_of(Attrs{{"axis", 1}}));
  for (const Attrs& other :
       {Attrs(), Attrs{{"axes", 1}}, Attrs{{"axis", 2}}, Attrs{{"axis", 1.0}},
        Attrs{{"axis", true}}, Attrs{{"axis", Ints{1}}}, Attrs{{"axis", std::string("1")}},
        Attrs{{"axis", AttrValue()}}, Attrs{{"axis", 1}, {"keepdims", false}}})
    EXPECT_NE(key_of(axis), key_of(other)) << other;
  const double eps = 1e-5;
  EXPECT_NE(key_of(Attrs{{"eps", eps}}),
            key_of(Attrs{{"eps", std::nextafter(eps, std::numeric_limits<double>::max())}}));
  EXPECT_NE(key_of(Attrs{{"a", Ints{1}}, {"b", Ints{}}}),
            key_of(Attrs{{"a", Ints{}}, {"b", Ints{1}}}));
}

}  // namespace
}  // namespace tensor
