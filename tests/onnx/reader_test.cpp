// The bytes of ONNX files: what is sound is read, what is not is refused with its place.
#include "src/onnx/elements.h"
#include "tests/headers.h"
#include "tests/io/io_testing.h"
#include "tests/onnx_writer.h"

namespace tensor::testing {
namespace {

using namespace by_hand;

using check::error_of;

std::string refusal(const std::string& bytes) {
  return error_of([&] { parse_onnx(bytes_of(bytes), "m"); });
}

Tensor element_of(const Message& message) {
  const auto bytes = bytes_of(message.str());
  return onnx::ElementReader("m").read(onnx::read_tensor(bytes, "m"));
}

TEST(OnnxReader, ReadsElementsInEveryForm) {
  EXPECT_TRUE(array_equal(element_of(tensor<float>("w", {1, 2, 3}, {3})), array({1.0, 2.0, 3.0})));
  EXPECT_EQ(element_of(tensor<std::int8_t>("w", {-1, 2}, {2, 1})).shape(), Shape({2, 1}));
  // Not packed, packed, and both.
  Message single = tensor_head("w", {2}, 7).integer(7, -1).integer(7, 5);
  EXPECT_TRUE(array_equal(element_of(single), array({-1, 5})));
  Message packed = tensor_head("w", {3}, 7).text(7, Message().varint(300).varint(-2).str());
  EXPECT_TRUE(array_equal(element_of(packed.integer(7, 7)), array({300, -2, 7})));
  const float numbers[] = {0.5F, -2};
  const std::string bytes(reinterpret_cast<const char*>(numbers), sizeof numbers);
  EXPECT_TRUE(array_equal(element_of(tensor_head("w", {3}, 1).text(4, bytes).number(4, 3)),
                          array({0.5, -2.0, 3.0})));
  // 16-bit floating types as the numbers that their bits are; flags; a scalar.
  EXPECT_EQ(element_of(tensor_head("w", {}, 10).integer(5, 0x3c00)).item(), 1);
  EXPECT_EQ(element_of(tensor_head("w", {}, 16).integer(5, 0x4000)).item(), 2);
  EXPECT_TRUE(element_of(tensor_head("w", {}, 9).integer(5, 1)).item<bool>());
  EXPECT_EQ(element_of(tensor_head("w", {0, 3}, 1)).shape(), Shape({0, 3}));
}

TEST(OnnxReader, RefusesElementsThatDoNotFit) {
  const auto refused = [](const Message& m) { return error_of([&] { element_of(m); }); };
  EXPECT_EQ(refused(tensor<float>("w", {1, 2}, {3})),
            "m: tensor \"w\": holds 8 bytes, its shape (3,) of f32 needs 12");
  EXPECT_EQ(refused(tensor_head("w", {2}, 7).integer(7, 1)),
            "m: tensor \"w\": holds 1 elements, its shape (2,) needs 2");
  EXPECT_EQ(refused(tensor_head("w", {}, 2).integer(5, 256)),
            "m: tensor \"w\": holds the number 256, which does not fit into u8");
  EXPECT_EQ(refused(tensor_head("w", {}, 10).integer(5, -1)),
            "m: tensor \"w\": holds the bits -1 of a number of 16 bits");
  EXPECT_EQ(refused(tensor_head("w", {}, 13)),
            "m: tensor \"w\": has elements of the type UINT64, which this library does not have");
  EXPECT_EQ(refused(tensor_head("w", {}, 99)),
            "m: tensor \"w\": has elements of the type number 99, which this library does not "
            "have");
  EXPECT_EQ(refused(tensor_head("w", {-1}, 1)),
            "m: tensor \"w\": has an extent of -1, need at least 0");
  const std::int64_t large = std::int64_t{1} << 40;
  EXPECT_EQ(refused(tensor_head("w", {large, large}, 1)),
            "m: tensor \"w\": takes 2^63 bytes or more");
  EXPECT_EQ(refused(tensor_head("w", {1}, 9).text(9, "\2")),
            "m: tensor \"w\": element 0 of bool is 2, need 0 or 1");
  EXPECT_EQ(
      refused(tensor_head("w", {1}, 1).text(4, "abc")),
      "m: is no ONNX model, or damaged: ModelProto (0 messages deep), field 4: packed numbers "
      "of 3 bytes, need a multiple of 4");
}

TEST(OnnxReader, RefusesDamagedBytes) {
  const std::string start = "m: is no ONNX model, or damaged: ModelProto (0 messages deep), field ";
  EXPECT_EQ(refusal(""), "m: is no ONNX model: it has no graph");
  EXPECT_EQ(refusal("\x08"), start + "1: ends after 0 bytes, need 1: was the file cut off?");
  EXPECT_EQ(refusal("\x3a\x05zz"), start + "7: ends after 2 bytes, need 5: was the file cut off?");
  EXPECT_EQ(refusal(std::string("\x00", 1)), start + "0: a field of the number 0");
  EXPECT_EQ(refusal("\x0b"), start + "1: a value of the wire type 3, need 0, 1, 2 or 5");
  EXPECT_EQ(refusal("\x3d    "), start + "7: a value of the wire type 5, need 2");
  EXPECT_EQ(refusal("\x08" + std::string(9, '\xff') + "\x02"),
            start + "1: a number of more than 64 bits");
  EXPECT_EQ(refusal("\x08" + std::string(9, '\xff') + "\xff\x01"),
            start + "1: a number of more than 64 bits");
  EXPECT_EQ(refusal("\x08" + std::string(9, '\x80') + "\x80\x01"),
            start + "1: a number of more than ten bytes");
  const Message twice = Message().message(7, Message()).message(7, Message());
  EXPECT_EQ(refusal(twice.str()), start + "7: a second graph");
}

TEST(OnnxReader, BoundsMemoryAndStack) {
  Message inner = graph({node("Relu", {"x"}, {"y"})}, {}, {});
  for (int i = 0; i < 60; ++i)
    inner = graph({node("If", {"x"}, {"y"}, {graph_attribute("then_branch", inner)})}, {}, {});
  EXPECT_NE(refusal(model(inner).str()).find("more than 100 messages within each other"),
            std::string::npos);
  std::string empty;
  for (int i = 0; i < (1 << 21) + 2; ++i) empty += std::string("\x0a\x00", 2);  // nodes
  EXPECT_NE(refusal(Message().text(7, empty).str()).find("the file has more parts than any model"),
            std::string::npos);
}

TEST(OnnxReader, PassesOverUnknownFields) {
  Message m =
      model(graph({node("Relu", {"x"}, {"y"})}, {value("x", 1, {"3"})}, {value("y", 1, {"3"})}));
  m.integer(100, 5).text(101, "later").number(102, 1);
  EXPECT_TRUE(array_equal(parsed(m)({array({-1.0F, 0.0F, 2.0F})})[0], array({0.0, 0.0, 2.0})));
}

// ---- Files

class OnnxFile : public FolderTest {
 protected:
  // y = x + w, with the elements of w in that place.
  std::string model_with(const std::vector<std::pair<std::string, std::string>>& external) {
    Message w = tensor_head("w", {2}, 1).integer(14, 1);
    for (const auto& [key, text] : external) w.message(13, Message().text(1, key).text(2, text));
    const Message g = graph({node("Add", {"x", "w"}, {"y"})}, {value("x", 1, {"2"})},
                            {value("y", 1, {"2"})}, {w});
    write_bytes(path("m.onnx"), model(g).str());
    return path("m.onnx");
  }
  std::string refusal_of(const std::vector<std::pair<std::string, std::string>>& external) {
    const std::string file = model_with(external);
    return error_of([&] { load_onnx(file); });
  }
};

TEST_F(OnnxFile, ElementsMayLieBesideIt) {
  const float elements[] = {9, 1, 2};
  write_bytes(path("w.bin"), std::string(reinterpret_cast<const char*>(elements), 12));
  const std::string file = model_with({{"location", "w.bin"}, {"offset", "4"}, {"length", "8"}});
  const OnnxModel model = load_onnx(file);
  EXPECT_TRUE(array_equal(model({array({1.0F, 1.0F})})[0], array({2.0, 3.0})));
  EXPECT_TRUE(model.parameters()[0].second.is_read_only());  // the mapped file itself
  EXPECT_EQ(model.files(),
            (std::vector<std::string>{file, std::filesystem::canonical(path("w.bin"))}));
  EXPECT_EQ(error_of([&] { parse_onnx(bytes_of(read_bytes(file)), "m"); }),
            "m: tensor \"w\": lies in another file (\"w.bin\"), but the model has no folder: use "
            "load_onnx");
}

TEST_F(OnnxFile, ElementsLieInItsFolderOnly) {
  const std::string start = path("m.onnx") + ": tensor \"w\": ";
  write_bytes(path("w.bin"), "12345678");
  const std::string outside = ", outside of the model's folder: put it beside the model";
  EXPECT_EQ(refusal_of({{"location", "/etc/passwd"}}), start + "lies in \"/etc/passwd\"" + outside);
  EXPECT_EQ(refusal_of({{"location", "a/../../w.bin"}}),
            start + "lies in \"a/../../w.bin\"" + outside);
  EXPECT_EQ(refusal_of({}), start + "lies in \"\"" + outside);
  std::filesystem::create_symlink("/etc/passwd", path("link"));
  EXPECT_EQ(refusal_of({{"location", "link"}}), start + "lies in \"link\"" + outside);
  EXPECT_EQ(refusal_of({{"location", "none"}}),
            start +
                "lies in \"none\", which cannot be opened: No such file or directory: put it "
                "beside the model");
  EXPECT_EQ(refusal_of({{"location", "w.bin"}, {"offset", "4"}}),
            start +
                "lies at byte 4 of \"w.bin\", which ends after 8 bytes, need 8 more from there "
                "on");
  EXPECT_EQ(refusal_of({{"location", "w.bin"}, {"offset", "-4"}}),
            start + "has the external offset or length \"-4\", need a number");
  EXPECT_EQ(refusal_of({{"location", "w.bin"}, {"length", "4"}}),
            start + "has 4 external bytes, its shape (2,) of f32 needs 8");
}

TEST_F(OnnxFile, IsRefusedWhereItIsEmptyOrNotThere) {
  write_bytes(path("m.onnx"), "");
  EXPECT_EQ(error_of([&] { load_onnx(path("m.onnx")); }),
            path("m.onnx") + ": is no ONNX model: it is empty");
  EXPECT_EQ(error_of([&] { load_onnx(path("none")); }),
            path("none") + ": cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace tensor::testing
