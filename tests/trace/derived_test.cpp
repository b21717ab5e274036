// Derived constants: each made once while it is there, found again along chains of which a part is
// gone, and never stale.
#include "src/trace/derived.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tensor/tensor.h"

namespace tn = tensor;
using tn::Tensor;

namespace {

constexpr std::int64_t kLarge = 1 << 19;  // float32, more than is known by content

class Derived : public ::testing::Test {
 protected:
  Derived() { graph_.derive_with(all_); }

  Tensor doubled(const Tensor& x) {
    return derived(graph_, "doubled", {x}, [&] { return ++made_, x * 2; });
  }
  Tensor negated(const Tensor& x) {
    return derived(graph_, "negated", {x}, [&] { return ++made_, -x; });
  }
  Tensor halved_for_others(const Tensor& x) {
    return derived_for_others(graph_, "halved", {x}, [this, x] { return ++made_, x * 0.5; });
  }
  // How often something is made by `body`.
  template <class Body>
  int made_by(const Body& body) {
    const int before = made_;
    body();
    return made_ - before;
  }
  static bool is_same(const Tensor& a, const Tensor& b) {
    return tn::detail::impl(a).storage == tn::detail::impl(b).storage;
  }

  const std::shared_ptr<tn::DerivedConstants> all_ = std::make_shared<tn::DerivedConstants>();
  tn::Graph graph_;
  int made_ = 0;
};

TEST_F(Derived, IsMadeOnceWhileItIsThere) {
  const Tensor x = tn::ones({kLarge});
  {
    const Tensor first = doubled(x);
    EXPECT_EQ(made_by([&] { EXPECT_TRUE(is_same(doubled(x), first)); }), 0);
    EXPECT_EQ(made_by([&] { EXPECT_FALSE(is_same(negated(x), first)); }), 1);
  }
  EXPECT_EQ(made_by([&] { doubled(x); }), 1) << "nobody holds it any more";
}

TEST_F(Derived, KnowsSmallOnesByTheirElements) {
  const Tensor first = doubled(tn::array({1, 2, 3}));
  EXPECT_EQ(made_by([&] { EXPECT_TRUE(is_same(doubled(tn::array({1, 2, 3})), first)); }), 0);
  EXPECT_EQ(made_by([&] { doubled(tn::array({1, 2, 4})); }), 1);
  EXPECT_EQ(made_by([&] { doubled(tn::array({1, 2, 3}).astype(tn::f64)); }), 1);
  EXPECT_EQ(made_by([&] { doubled(tn::array({{1, 2, 3}})); }), 1);
  const Tensor zero = doubled(tn::array({0.0f}));
  EXPECT_EQ(made_by([&] { doubled(tn::array({-0.0f})); }), 1);
}

TEST_F(Derived, TellsViewsApart) {
  const Tensor x = tn::Generator(1).normal({1024, 1024});
  const Tensor rows = doubled(x);
  EXPECT_EQ(made_by([&] { doubled(tn::transpose(x)); }), 1);
  const Tensor half = doubled(x(tn::slice(0, 512)));
  EXPECT_EQ(made_by([&] { doubled(x(tn::slice(512, 1024))); }), 1);
  EXPECT_EQ(made_by([&] { EXPECT_TRUE(is_same(doubled(x(tn::slice(0, 512))), half)); }), 0);
  // Of a view nothing is made.
  const Tensor view = derived(graph_, "view", {x}, [&] { return ++made_, tn::transpose(x); });
  EXPECT_TRUE(is_same(view, x));
}

TEST_F(Derived, AChainIsFoundAgainThoughItsMiddleIsGone) {
  const Tensor x = tn::ones({kLarge});
  const Tensor last = negated(doubled(x));  // what was doubled is gone
  EXPECT_EQ(made_by([&] { EXPECT_TRUE(is_same(negated(doubled(x)), last)); }), 1);
  all_->tidy();
  EXPECT_EQ(made_by([&] { EXPECT_TRUE(is_same(negated(doubled(x)), last)); }), 1);
  // Also from constants that are made anew.
  const auto fresh = [] { return tn::array({1.0f, 2.0f}); };
  const Tensor small = negated(doubled(fresh()));
  all_->tidy();
  EXPECT_EQ(made_by([&] { EXPECT_TRUE(is_same(negated(doubled(fresh())), small)); }), 1);
}

TEST_F(Derived, AMiddleThatIsGoneIsMadeOnlyForWhoLooks) {
  const Tensor x = tn::ones({kLarge});
  const Tensor last = negated(halved_for_others(x));
  EXPECT_EQ(made_, 2);
  Tensor middle;
  EXPECT_EQ(made_by([&] {
              middle = halved_for_others(x);
              EXPECT_TRUE(is_same(negated(middle), last));
              EXPECT_TRUE(is_same(halved_for_others(x), middle));
              EXPECT_EQ(middle.type(), x.type());
            }),
            0);
  EXPECT_EQ(made_by([&] { EXPECT_EQ(middle(kLarge - 1).item(), 0.5); }), 1);
  EXPECT_EQ(made_by([&] { EXPECT_EQ(middle(0).item(), 0.5); }), 0);
}

// What a function computes of constants while it is traced, as often as there are sizes.
class Lent : public Derived {
 protected:
  Tensor lent(const Tensor& x) {
    return all_->derivation("tripled", {x}).lend([this, x] { return ++made_, x * 3; });
  }
};

TEST_F(Lent, IsMadeAgainOnlyForWhoLooks) {
  const Tensor x = tn::ones({kLarge});
  const Tensor first = lent(x), result = negated(first);
  EXPECT_EQ(made_, 2);
  Tensor second;
  EXPECT_EQ(made_by([&] {
              second = lent(x);
              EXPECT_FALSE(is_same(second, first)) << "somebody may write into it";
              EXPECT_TRUE(is_same(negated(second), result));
            }),
            0);
  EXPECT_EQ(made_by([&] { EXPECT_EQ(second(1).item(), 3); }), 1);
}

TEST_F(Lent, IsAnotherConstantOnceItIsWritten) {
  const Tensor x = tn::ones({kLarge});
  const Tensor result = negated(lent(x));
  Tensor second = lent(x), third = lent(x);
  second(0) = 7;
  EXPECT_EQ(negated(second)(0).item(), -7);
  EXPECT_EQ(second(1).item(), 3);
  third.mutable_data<float>()[1] = 8;
  EXPECT_EQ(negated(third)(1).item(), -8);
  EXPECT_TRUE(is_same(negated(lent(x)), result));
}

TEST_F(Lent, IsMadeOfWhatTheSourceWas) {
  Tensor x = tn::ones({kLarge});
  const Tensor first = lent(x);
  const Tensor second = lent(x), of_second = lent(second), again = lent(lent(x));
  x(0) = 5;
  EXPECT_EQ(second(0).item(), 3);
  Tensor written = again;
  written(0) = 1;
  EXPECT_EQ(of_second(0).item(), 9);
  EXPECT_EQ(lent(x)(0).item(), 15);
}

// From many threads at once, the first time that anybody looks.
TEST_F(Derived, ConcurrencyWhatIsLateIsMadeOnce) {
  const Tensor x = tn::ones({kLarge}), other = negated(halved_for_others(x));
  const Tensor late = halved_for_others(x);
  EXPECT_EQ(made_by([&] {
              std::vector<std::jthread> threads;
              for (int i = 0; i < 8; ++i)
                threads.emplace_back([&] { EXPECT_EQ(late(0).item(), 0.5); });
            }),
            1);
}

// However it is written into: elements that are late are those of before.
TEST_F(Derived, WhatIsLateIsMadeBeforeAWrite) {
  for (const bool is_exposed : {false, true}) {
    Tensor x = tn::ones({kLarge});
    const Tensor other = negated(halved_for_others(x)), late = halved_for_others(x);
    EXPECT_EQ(made_by([&] {
                if (is_exposed)
                  x.mutable_data<float>()[0] = 6;
                else
                  x(0) = 6;
              }),
              1);
    EXPECT_EQ(late(0).item(), 0.5);
    EXPECT_EQ(halved_for_others(x)(0).item(), 3);
  }
  // Of what may be written unseen nothing is late.
  Tensor exposed = tn::ones({kLarge});
  exposed.mutable_data<float>();
  const auto storage = tn::detail::impl(exposed).storage;
  all_->see(storage, 1);
  const Tensor other = negated(halved_for_others(exposed));
  EXPECT_EQ(made_by([&] { halved_for_others(exposed); }), 1);
}

TEST_F(Derived, AnAssignmentIsSeen) {
  for (const std::int64_t size : {std::int64_t{4}, kLarge}) {
    Tensor x = tn::ones({size});
    const Tensor before = doubled(x), chain = negated(before);
    x(0) = 5;
    EXPECT_EQ(doubled(x)(0).item(), 10) << size;
    EXPECT_EQ(negated(doubled(x))(0).item(), -10) << size;
    EXPECT_EQ(before(0).item(), 2) << size;
  }
}

TEST_F(Derived, WritesThroughPointersAreSeen) {
  Tensor small = tn::ones({4}), large = tn::ones({kLarge});
  const Tensor first = doubled(small), second = doubled(large);
  small.mutable_data<float>()[0] = 3;
  large.mutable_data<float>()[0] = 3;
  EXPECT_EQ(doubled(small)(0).item(), 6);
  EXPECT_EQ(doubled(large)(0).item(), 6) << "exposed, of no known version: made anew";
  EXPECT_EQ(made_by([&] { doubled(large); }), 1);
  // A pointer from before.
  Tensor written = tn::ones({4});
  float* pointer = written.mutable_data<float>();
  const Tensor old = doubled(written);
  *pointer = 7;
  EXPECT_EQ(doubled(written)(0).item(), 14);
  EXPECT_EQ(doubled(tn::ones({4}))(0).item(), 2);
}

TEST_F(Derived, AnExposedStorageIsKnownInItsVersion) {
  Tensor x = tn::ones({kLarge});
  float* pointer = x.mutable_data<float>();
  const auto storage = tn::detail::impl(x).storage;
  all_->see(storage, 1);
  const Tensor ones = doubled(x);
  EXPECT_EQ(made_by([&] { EXPECT_TRUE(is_same(doubled(x), ones)); }), 0);
  *pointer = 2;
  all_->see(storage, 2);
  const Tensor other = doubled(x);
  EXPECT_EQ(other(0).item(), 4);
  *pointer = 1;
  all_->see(storage, 1);
  EXPECT_TRUE(is_same(doubled(x), ones));
}

// A storage may come to lie where another one was.
TEST_F(Derived, AStorageThatIsGoneIsNotTakenForAnother) {
  for (int i = 0; i < 20; ++i) {
    const Tensor kept = doubled(tn::full({kLarge}, i, tn::f32));
    EXPECT_EQ(kept(0).item(), 2 * i);
    if (i % 3 == 0) all_->tidy();
  }
}

TEST_F(Derived, ALongChainGoesWithoutRecursion) {
  Tensor x = tn::array({1.0f});
  for (int i = 0; i < 100'000; ++i) x = negated(x);
  EXPECT_EQ(x.item(0), 1);
  x = {};
  all_->tidy();
}

TEST_F(Derived, OutlivesWhatKnewIt) {
  Tensor x = tn::ones({kLarge}), kept;
  {
    tn::Graph graph;
    graph.derive_with(std::make_shared<tn::DerivedConstants>());
    kept = derived(graph, "sum", {x}, [&] { return x + x; });
  }
  x(0) = 9;
  EXPECT_EQ(kept(0).item(), 2);
  EXPECT_EQ(made_by([&] { negated(kept), doubled(kept); }), 2) << "it may be a source elsewhere";
}

}  // namespace
