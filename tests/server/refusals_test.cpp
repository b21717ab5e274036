// What the server does with requests that are wrong, hostile or slow: a clear error, and no harm.
#include <chrono>
#include <thread>

#include "tensor/creation.h"
#include "tensor/io.h"
#include "tests/error_of.h"
#include "tests/server/server_testing.h"
#include "tests/temporary_folder.h"

namespace {

using namespace server_testing;
using tensor::check::error_of;
using tensor::check::TemporaryFolder;
using tensor::testing::read_bytes;
using namespace std::chrono_literals;

const std::string kRun = "POST /api/run?model=vit&mode=compiled HTTP/1.1\r\nHost: test\r\n";

class ServerRefusals : public ServerTest {
 protected:
  void TearDown() override {  // whatever was refused, the server goes on
    const auto got = post("vit", "compiled", read_bytes(digit(7)));
    ASSERT_TRUE(got);
    EXPECT_EQ(got->status, 200);
  }
  static void expect_refused(const httplib::Result& got, int status, const std::string& what,
                             const std::string& part) {
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_EQ(got->get_header_value("Content-Type"), "application/json");
    expect_error(got->status, got->body, status, what, part);
  }
};

TEST_F(ServerRefusals, UnknownPaths) {
  for (const std::string path :
       {"/nothing", "/api", "/api/run/", "/samples/", "/samples/../CMakeLists.txt",
        "/samples/%2e%2e/%2e%2e/README.md", "/%00", "/api/run%0a", "//", "/app.js%20"})
    expect_refused(client().Get(path), 404, "there is nothing at this address", "/");
  expect_refused(client().Post("/nothing", "body", "image/png"), 404,
                 "there is nothing at this address", "/nothing");
  expect_refused(client().Get("/" + std::string(5000, 'a')), 404,
                 "there is nothing at this address", "aaaa");
}

TEST_F(ServerRefusals, WrongMethods) {
  const httplib::Result get = client().Get("/api/run?model=vit&mode=eager");
  expect_refused(get, 405, "the method does not fit the address", "GET /api/run");
  EXPECT_EQ(get->get_header_value("Allow"), "POST");
  const httplib::Result post = client().Post("/", "body", "image/png");
  expect_refused(post, 405, "the method does not fit the address", "POST /");
  EXPECT_EQ(post->get_header_value("Allow"), "GET, HEAD");
  expect_refused(client().Put("/api/run", "body", "image/png"), 405,
                 "the method does not fit the address", "PUT /api/run");
  expect_refused(client().Delete("/app.js"), 405, "the method does not fit the address",
                 "DELETE /app.js");
  expect_refused(client().Options("/api/about"), 405, "the method does not fit the address",
                 "OPTIONS /api/about");
  for (const std::string method : {"TRACE", "CONNECT", "PATCH"})
    expect_error(raw(method + " / HTTP/1.1\r\nHost: test\r\n\r\n"), 405,
                 "the method does not fit the address", method);
}

TEST_F(ServerRefusals, UnknownModelsAndModes) {
  const std::string image = read_bytes(digit(8));
  const auto ask = [&](const std::string& query) {
    return client().Post("/api/run" + query, image, "image/png");
  };
  expect_refused(ask("?model=yolo&mode=eager"), 400, "the model is not known", "yolo");
  expect_refused(ask("?mode=eager"), 400, "the model is not known", "none");
  expect_refused(ask("?model=vit&mode=fast"), 400, "the mode is not known", "fast");
  expect_refused(ask("?model=vit"), 400, "the mode is not known", "none");
  expect_refused(ask(""), 400, "the model is not known", "none");
  // What a client sends comes back as JSON text, never as anything else.
  expect_refused(ask("?model=%22%3E%3Cscript%3E%ff%00&mode=eager"), 400, "the model is not known",
                 "\"><script>");
}

TEST_F(ServerRefusals, BodiesThatAreNoImage) {
  expect_refused(post("vit", "eager", ""), 400, "the body is empty", "0 bytes");
  expect_refused(post("vit", "eager", "hello"), 400, "the image cannot be used", "");
  expect_refused(post("detr", "compiled", std::string(100000, '\0')), 400,
                 "the image cannot be used", "");
  expect_refused(post("setr", "compiled", "{\"image\": 1}"), 400, "the image cannot be used", "");
  const std::string image = read_bytes(scene(1));
  for (const std::size_t size : {1ul, 7ul, 8ul, 30ul, image.size() / 2, image.size() - 20})
    expect_refused(post("detr", "compiled", image.substr(0, size)), 400, "the image cannot be used",
                   "");
}

TEST_F(ServerRefusals, ImagesWithTooManyPixels) {
  // Fifteen kilobytes that unpack to 25 million pixels: refused before anything is unpacked.
  const TemporaryFolder folder;
  const std::string path = folder / "large.png";
  tensor::save_png(path, tensor::zeros({5000, 5000}, tensor::u8));
  const std::string bomb = read_bytes(path);
  EXPECT_LT(bomb.size(), 1 << 18);
  expect_refused(post("vit", "eager", bomb), 400, "the image cannot be used", "5000");
}

TEST_F(ServerRefusals, SaysWhatIsWrongWithANarrowImage) {
  const TemporaryFolder folder;
  const std::string path = folder / "narrow.png";
  tensor::save_png(path, tensor::zeros({5000, 1, 3}, tensor::u8));
  expect_refused(post("detr", "compiled", read_bytes(path)), 400, "the image cannot be used",
                 "it is 1 x 5000 pixels: resized for the model it would be 0 x ");
}

TEST_F(ServerRefusals, ImagesOfUnusualShapesGetAnAnswer) {
  const TemporaryFolder folder;
  const std::string path = folder / "shape.png";
  for (const auto& [height, width] : {std::pair(1, 1), {1, 5000}, {5000, 1}, {2, 3}}) {
    tensor::save_png(path, tensor::zeros({height, width, 3}, tensor::u8));
    for (const std::string model : {"vit", "detr", "setr"}) {
      const httplib::Result got = post(model, "compiled", read_bytes(path));
      ASSERT_TRUE(got) << model << ' ' << height << " x " << width;
      EXPECT_TRUE(got->status == 200 || got->status == 400) << got->status << got->body;
      EXPECT_NO_THROW(Json::parse(got->body, "answer")) << got->body;
    }
  }
}

TEST_F(ServerRefusals, TooManyBytes) {
  const std::string large(static_cast<std::size_t>(models::server::kMostBytes) + 1, 'x');
  expect_refused(post("vit", "eager", large), 413, "the image is too large", "16777217 bytes");
  // Just as many as may be: refused for what they are.
  expect_refused(post("vit", "eager", large.substr(1)), 400, "the image cannot be used", "");
  const httplib::Result chunked = client().Post(
      "/api/run?model=vit&mode=eager",
      [&](std::size_t, httplib::DataSink& sink) {
        sink.write(large.data(), large.size());
        sink.done();
        return true;
      },
      "image/png");
  expect_refused(chunked, 413, "the image is too large", "more than 16777216 bytes");
}

TEST_F(ServerRefusals, ContentLengthsThatAreMissingOrWrong) {
  expect_error(raw(kRun + "\r\n"), 411, "the length of the body is missing", "no Content-Length");
  for (const std::string length : {"-5", "ten", "0x10", "1e3", "99999999999999999999", "5, 5"}) {
    SCOPED_TRACE(length);
    expect_error(raw(kRun + "Content-Length: " + length + "\r\n\r\nhello"), 400,
                 "the Content-Length is no length", length);
  }
  expect_error(raw(kRun + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), 400,
               "the Content-Length is no length", "several");
  // Less than the body: what follows is not taken for another request.
  const std::string less = raw(kRun + "Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n\r\n");
  expect_error(less, 400, "the image cannot be used", "");
  EXPECT_EQ(less.find("HTTP/1.1", 1), less.npos);
  // More than the body, and the client ends there: httplib answers nobody who has closed his side.
  RawClient liar(server_->port());
  liar.send(kRun + "Content-Length: 500\r\n\r\nhello");
  liar.end();
  EXPECT_EQ(liar.answer(), "");
}

TEST_F(ServerRefusals, BodiesInOtherWrappings) {
  const std::string length = "Content-Length: 5\r\n";
  expect_error(raw(kRun + length + "Content-Encoding: gzip\r\n\r\nhello"), 415,
               "packed bodies are not taken", "gzip");
  expect_error(raw(kRun + length + "Content-Type: multipart/form-data; boundary=x\r\n\r\nhello"),
               415, "forms are not taken", "multipart");
  expect_error(raw(kRun + "Transfer-Encoding: gzip, chunked\r\n\r\nhello"), 400,
               "the transfer encoding is not known", "gzip, chunked");
  expect_error(raw(kRun + "Transfer-Encoding: chunked\r\n\r\nzz\r\nhello"), 400,
               "the body ends early", "0 bytes");
  // A large form is read to its end, so that the client comes to reading the answer.
  const httplib::MultipartFormDataItems form = {
      {"image", std::string(8 << 20, 'x'), "digit.png", "image/png"}};
  expect_refused(client().Post("/api/run?model=vit&mode=eager", form), 415, "forms are not taken",
                 "multipart");
}

TEST_F(ServerRefusals, RequestsThatAreNone) {
  for (const std::string request : {"hello\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                                    "BREW / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n"})
    expect_error(raw(request), 400, "this is not understood", "");
  expect_error(raw("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\nHost: test\r\n\r\n"), 414,
               "the address is too long", "");
  expect_error(raw("GET / HTTP/1.1\r\nHost: test\r\nRange: bytes=x\r\n\r\n"), 416,
               "the range is not understood", "");
  RawClient(server_->port()).send("GET");  // and gone
}

/// A server that waits a second for the next byte and two for a body.
class SlowClients : public ::testing::Test {
 protected:
  void SetUp() override {
    models::server::ServerOptions impatient = options();
    impatient.idle_seconds = 1;
    impatient.upload_seconds = 2;
    server_ = std::make_unique<Server>(engine(), impatient);
  }
  std::unique_ptr<Server> server_;
};

TEST_F(SlowClients, ABodyThatStops) {
  RawClient client(server_->port());
  client.send(kRun + "Content-Length: 500\r\n\r\nhello");
  expect_error(client.answer(), 400, "the body ends early", "5 bytes of 500");
}

TEST_F(SlowClients, ABodyThatTrickles) {
  RawClient client(server_->port());
  client.send(kRun + "Content-Length: 500\r\n\r\n");
  for (int i = 0; i < 30 && client.send("x"); ++i) std::this_thread::sleep_for(100ms);
  expect_error(client.answer(), 408, "the upload takes too long", "so far");
}

TEST_F(ServerRefusals, SlowClientsDoNotKeepOthersWaiting) {
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(std::make_unique<RawClient>(server_->port()));
    slow.back()->send(kRun + "Content-Length: 500\r\n\r\n");
  }
  httplib::Client quick("127.0.0.1", server_->port());
  const auto begin = std::chrono::steady_clock::now();
  const httplib::Result got = quick.Get("/");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);  // the slow ones are let go after 5
}

TEST(ServerStarts, TellsAStrangeAddressFromATakenPort) {
  models::server::ServerOptions strange = options();
  strange.host = "192.0.2.1";  // of documentation (RFC 5737), of no machine
  EXPECT_EQ(error_of([&] { Server server(engine(), strange); }),
            "192.0.2.1: is no address of this machine: name one with --host");
}

TEST(ServerStarts, RefusesATakenPortInWords) {
  Server first(engine(), options());
  models::server::ServerOptions same = options();
  same.port = first.port();
  const std::string message = error_of([&] { Server second(engine(), same); });
  EXPECT_NE(message.find("127.0.0.1: port " + std::to_string(same.port) + " cannot be had"),
            message.npos)
      << message;
  EXPECT_NE(message.find("--port"), message.npos);
}

TEST(ServerStarts, RefusesUnknownHostsAndFolders) {
  models::server::ServerOptions bad = options();
  bad.host = "no.such.host.invalid";
  EXPECT_NE(error_of([&] { Server s(engine(), bad); }).find("--host"), std::string::npos);
  bad = options();
  bad.samples = "/nowhere";
  const std::string message = error_of([&] { Server s(engine(), bad); });
  EXPECT_TRUE(message.starts_with("/nowhere/digits: ")) << message;
}

TEST(ServerStarts, AndStopsWithRequestsUnderWay) {
  Server server(engine(), options());
  const int port = server.port();
  EXPECT_EQ(server.url(), "http://127.0.0.1:" + std::to_string(port) + "/");
  httplib::Client client("127.0.0.1", port);
  std::thread stopping;
  // Stops while the body is half sent; the answer still comes.
  const std::string image = read_bytes(digit(5));
  const httplib::Result got = client.Post(
      "/api/run?model=vit&mode=eager", image.size(),
      [&](std::size_t offset, std::size_t length, httplib::DataSink& sink) {
        if (offset > 0 && !stopping.joinable()) {
          std::this_thread::sleep_for(100ms);  // the server has begun to read
          stopping = std::thread([&] { server.stop(); });
          std::this_thread::sleep_for(100ms);
        }
        return sink.write(image.data() + offset, std::min<std::size_t>(length, 1000));
      },
      "image/png");
  ASSERT_TRUE(stopping.joinable());
  stopping.join();
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(got->status, 200) << got->body;
  EXPECT_FALSE(httplib::Client("127.0.0.1", port).Get("/"));
  server.stop();  // again: nothing more happens
}

}  // namespace
