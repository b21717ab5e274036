#include "tensor/json.h"

#include "tests/io/io_testing.h"

namespace tensor {
namespace {

using check::error_of;

Json parse(std::string_view text) { return Json::parse(text, "c.json"); }
std::string parse_message(std::string_view text) {
  return error_of([&] { parse(text); });
}

TEST(Json, ReadsEveryKindOfValue) {
  const Json config =
      parse(R"({"flag": true, "count": -3, "rate": 1e-3, "name": "\u00e9\n", "none": null,
                "list": [1, 2.0, 3], "deep": {"x": [[1, 2], [3]]}, "half": [0.5, 1]})");
  EXPECT_TRUE(config.is_object());
  EXPECT_EQ(config.size(), 8u);
  EXPECT_EQ(config.keys(), (std::vector<std::string>{"flag", "count", "rate", "name", "none",
                                                     "list", "deep", "half"}));
  EXPECT_TRUE(config["flag"].is_bool());
  EXPECT_TRUE(config["flag"].boolean());
  EXPECT_TRUE(config["count"].is_integer());
  EXPECT_TRUE(config["count"].is_number());
  EXPECT_EQ(config["count"].integer(), -3);
  EXPECT_EQ(config["count"].number(), -3.0);
  EXPECT_FALSE(config["rate"].is_integer());
  EXPECT_EQ(config["rate"].number(), 1e-3);
  EXPECT_TRUE(config["name"].is_string());
  EXPECT_EQ(config["name"].text(), "\xc3\xa9\n");
  EXPECT_TRUE(config["none"].is_null());
  EXPECT_FALSE(config.has("none"));
  EXPECT_FALSE(config.has("absent"));
  EXPECT_TRUE(config.has("flag"));
  EXPECT_TRUE(config["list"].is_array());
  EXPECT_EQ(config["list"].ints(), (Ints{1, 2, 3}));
  EXPECT_EQ(config["list"][2].integer(), 3);
  EXPECT_EQ(config["half"].numbers(), (std::vector<double>{0.5, 1}));
  EXPECT_EQ(config["deep"]["x"].attribute(), AttrValue(Ints{1, 2, 3}));
}

TEST(Json, AttributeKeepsTheKindOfAValue) {
  const Json config =
      parse(R"({"a": null, "b": false, "c": 4, "d": 0.5, "e": "x", "f": [], "g": {}, "h": [1.5]})");
  EXPECT_TRUE(config["a"].attribute().is_none());
  EXPECT_EQ(config["b"].attribute(), AttrValue(false));
  EXPECT_EQ(config["c"].attribute(), AttrValue(4));
  EXPECT_EQ(config["d"].attribute(), AttrValue(0.5));
  EXPECT_EQ(config["e"].attribute(), AttrValue("x"));
  EXPECT_EQ(config["f"].attribute(), AttrValue(Ints{}));
  EXPECT_EQ(error_of([&] { config["g"].attribute(); }),
            "c.json: g: got an object, need a value or an array of whole numbers");
  EXPECT_EQ(error_of([&] { config["h"].attribute(); }),
            "c.json: h[0]: got 1.5, need a whole number");
}

TEST(Json, DefaultsStandForAbsentAndNull) {
  const Json config = parse(R"({"b": true, "i": 7, "n": 0.25, "t": "yes", "z": null})");
  EXPECT_TRUE(config.boolean("b", false));
  EXPECT_EQ(config.integer("i", 1), 7);
  EXPECT_EQ(config.number("n", 1), 0.25);
  EXPECT_EQ(config.text("t", "no"), "yes");
  EXPECT_TRUE(config.boolean("z", true));
  EXPECT_EQ(config.integer("z", 1), 1);
  EXPECT_EQ(config.number("q", 1.5), 1.5);
  EXPECT_EQ(config.text("q", "no"), "no");
}

TEST(Json, MismatchesNameThePath) {
  const Json config =
      parse(R"({"backbone": {"depths": [3, 4, "six"], "a.b": {"c": 1}}, "big": 18446744073709551615,
                               "null": null, "half": 0.5, "list": [true], "object": {}})");
  EXPECT_EQ(error_of([&] { config["backbone"]["depths"][2].integer(); }),
            "c.json: backbone.depths[2]: got \"six\", need a whole number");
  EXPECT_EQ(error_of([&] { config["backbone"]["depths"].ints(); }),
            "c.json: backbone.depths[2]: got \"six\", need a whole number");
  EXPECT_EQ(error_of([&] { config["backbone"]["a.b"]["c"].text(); }),
            "c.json: backbone.\"a.b\".c: got 1, need a string");
  EXPECT_EQ(error_of([&] { config["big"].integer(); }),
            "c.json: big: got 1.84467e+19, need a whole number");
  EXPECT_EQ(config["big"].number(), 18446744073709551615.0);
  EXPECT_EQ(error_of([&] { config["null"].boolean(); }),
            "c.json: null: got null, need true or false");
  EXPECT_EQ(error_of([&] { config["half"].text(); }), "c.json: half: got 0.5, need a string");
  EXPECT_EQ(error_of([&] { config["list"].number(); }),
            "c.json: list: got an array of 1, need a number");
  EXPECT_EQ(error_of([&] { config["list"].numbers(); }),
            "c.json: list[0]: got true, need a number");
  EXPECT_EQ(error_of([&] { config["half"].numbers(); }),
            "c.json: half: got 0.5, need an array of numbers");
  EXPECT_EQ(error_of([&] { config["half"].ints(); }),
            "c.json: half: got 0.5, need an array of whole numbers");
  EXPECT_EQ(error_of([&] { config["half"].size(); }),
            "c.json: half: got 0.5, need an array or an object");
  EXPECT_EQ(error_of([&] { config["half"].keys(); }), "c.json: half: got 0.5, need an object");
  EXPECT_EQ(error_of([&] { config["half"].has("x"); }), "c.json: half: got 0.5, need an object");
  EXPECT_EQ(error_of([&] { config["half"]["x"]; }),
            "c.json: half: got 0.5, need an object with the key \"x\"");
  EXPECT_EQ(error_of([&] { config["object"][0]; }), "c.json: object: got an object, need an array");
  EXPECT_EQ(error_of([&] { config["list"][1]; }),
            "c.json: list: got an array of 1, need an element 1");
  EXPECT_EQ(error_of([&] { config["backbone"]["depth"]; }),
            "c.json: backbone: the key \"depth\" is missing; did you mean \"depths\"?");
  EXPECT_EQ(error_of([&] { config["other"]; }), "c.json: the key \"other\" is missing");
  EXPECT_EQ(config.path(), "c.json");
  EXPECT_EQ(config["backbone"]["depths"][0].path(), "c.json: backbone.depths[0]");
}

TEST(Json, AValueOutlivesItsDocument) {
  Json inner = parse("[1]");
  {
    const Json outer = parse(R"({"x": {"y": [5]}})");
    inner = outer["x"]["y"][0];
  }
  EXPECT_EQ(inner.integer(), 5);
  EXPECT_EQ(inner.path(), "c.json: x.y[0]");
}

TEST(Json, RefusesDuplicateKeys) {
  EXPECT_EQ(parse_message("{\"a\": 1,\n \"b\": {\"a\": 2},\n \"a\": 3}"),
            "c.json: line 3: the key \"a\" appears twice in one object");
  // The same key, once written with an escape.
  EXPECT_EQ(parse_message(R"({"a": 1, "\u0061": 2})"),
            "c.json: line 1: the key \"a\" appears twice in one object");
  EXPECT_EQ(parse(R"([{"a": 1}, {"a": 2}])").size(), 2u);
}

TEST(Json, LimitsTheDepth) {
  EXPECT_EQ(parse(std::string(64, '[') + std::string(64, ']')).size(), 1u);
  EXPECT_EQ(parse_message(std::string(65, '[') + std::string(65, ']')),
            "c.json: line 1: nested deeper than 64 levels");
  EXPECT_EQ(parse_message(std::string(5'000'000, '[')),
            "c.json: line 1: nested deeper than 64 levels");
}

TEST(Json, LimitsTheNumberOfValues) {
  std::string text = "[0";
  for (int i = 0; i < 1 << 18; ++i) text += ",0";
  EXPECT_EQ(parse_message(text + "]"),
            "c.json: holds more than 262144 values, too many for what it is read as");
}

// The parser beneath takes a zero byte for the end of the text.
TEST(Json, RefusesZeroBytes) {
  EXPECT_EQ(parse_message(std::string("{}\0{", 4)), "c.json: not valid JSON: line 1: a zero byte");
  EXPECT_EQ(parse_message(std::string("{\n\"a\": \0 1}", 11)),
            "c.json: not valid JSON: line 2: a zero byte");
  EXPECT_EQ(parse("\"\\u0000\"").text(), std::string(1, '\0'));
}

TEST(Json, RefusesWhatIsNotStrictJson) {
  const std::string start = "c.json: not valid JSON: line ";
  EXPECT_EQ(parse_message(""),
            start +
                "1, column 1: syntax error while parsing value - unexpected end of "
                "input; expected '[', '{', or a literal");
  EXPECT_EQ(
      parse_message("{\n\"a\": 1} x"),
      start +
          "2, column 9: syntax error while parsing value - invalid literal; last read: '1} x'; "
          "expected end of input");
  EXPECT_EQ(parse_message("[1e999]"), start + "1: number overflow parsing '1e999'");
  for (const char* text :
       {"{", "[1,]", "{\"a\":1,}", "{'a': 1}", "[01]", "[NaN]", "[+1]", "[.5]", "// x\n1",
        "[\"\x01\"]", "[\"\\x\"]", "\"a", "tru", "1 2", "[1}", "{\"a\" 1}", "{1: 2}"})
    EXPECT_EQ(parse_message(text).substr(0, start.size()), start) << text;
}

TEST(Json, RefusesInvalidUtf8) {
  for (const char* text : {"\"\xff\"", "\"\xc3\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
                           "\"\xf4\x90\x80\x80\"", "\"\\ud800\"", "\"\\udc00\\ud800\""})
    EXPECT_NE(parse_message(text).find("not valid JSON"), std::string::npos) << text;
  // The bytes themselves never reach the message.
  EXPECT_NE(parse_message("\"\xff\"").find("ill-formed UTF-8 byte; last read: '\"?'"),
            std::string::npos);
}

TEST(Json, KeepsMessagesShort) {
  EXPECT_LT(parse_message('"' + std::string(1'000'000, 'a')).size(), 400u);
  EXPECT_EQ(error_of([] { parse('"' + std::string(100, 'a') + '"').integer(); }),
            "c.json: got \"" + std::string(80, 'a') + "...\", need a whole number");
  EXPECT_EQ(error_of([] { parse(R"("\u001b[31m")").integer(); }),
            "c.json: got \"\\x1b[31m\", need a whole number");
}

class JsonFile : public testing::FolderTest {};

TEST_F(JsonFile, Loads) {
  testing::write_bytes(path("a.json"), R"({"x": 5})");
  EXPECT_EQ(Json::load(path("a.json"))["x"].integer(), 5);
  EXPECT_EQ(error_of([&] { Json::load(path("a.json"))["other"]; }),
            path("a.json") + ": the key \"other\" is missing");
}

TEST_F(JsonFile, RefusesWhatIsNoFile) {
  EXPECT_EQ(error_of([&] { Json::load(path("b.json")); }),
            path("b.json") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(error_of([&] { Json::load(folder_.path()); }),
            folder_.path() + ": is a folder, need a file");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { Json::load(path("pipe")); }), path("pipe") + ": is not a regular file");
  testing::write_bytes(path("big.json"), "[1, 2, 3]");
  EXPECT_EQ(error_of([&] { Json::load(path("big.json"), 8); }),
            path("big.json") + ": has 9 bytes, more than the 8 that a JSON file may have");
}

}  // namespace
}  // namespace tensor
