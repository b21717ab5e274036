// A server in the test's own process, and clients: a good one, and one that sends any bytes.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <string>

#include "models/server/server.h"
#include "tensor/json.h"
#include "tests/io/io_testing.h"

namespace server_testing {

using models::server::Engine;
using models::server::Server;
using tensor::Json;

inline std::string source(const std::string& file) { return TENSOR_TEST_DATA "/../../" + file; }
inline std::string digit(int number) {
  return source("examples/images/digits/digit-" + std::to_string(number) + ".png");
}
inline std::string scene(int number) {
  return source("examples/images/scenes/scene-" + std::to_string(number) + ".png");
}

/// The models that ship, opened once for all tests.
inline Engine& engine() {
  static Engine shipped(
      {source("models/vit/pretrained/digits"), source("models/detr/pretrained/scenes"),
       source("models/setr/pretrained/scenes")},
      1);
  return shipped;
}

inline models::server::ServerOptions options() {
  models::server::ServerOptions result;
  result.port = 0;
  result.samples = source("examples/images");
  return result;
}

/// A TCP connection that sends what it is told to, and nothing else.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~RawClient() { ::close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  /// False once the server has closed the connection.
  bool send(const std::string& bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<std::size_t>(n);
    }
    return true;
  }
  void end() { ::shutdown(socket_, SHUT_WR); }
  /// Everything until the server closes the connection.
  std::string answer() {
    std::string all;
    char part[4096];
    for (ssize_t n; (n = ::recv(socket_, part, sizeof part, 0)) > 0;)
      all.append(part, static_cast<std::size_t>(n));
    return all;
  }

 private:
  int socket_;
};

class ServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<Server>(engine(), options()); }
  static void TearDownTestSuite() { server_.reset(); }

  static httplib::Client client() {
    httplib::Client result("127.0.0.1", server_->port());
    result.set_read_timeout(120);
    return result;
  }
  /// What POST /api/run answers to this body.
  static httplib::Result post(const std::string& model, const std::string& mode,
                              const std::string& body) {
    return client().Post("/api/run?model=" + model + "&mode=" + mode, body, "image/png");
  }
  static Json run(const std::string& model, const std::string& mode, const std::string& file) {
    const httplib::Result got = post(model, mode, tensor::testing::read_bytes(file));
    if (!got) tensor::fail("post", to_string(got.error()));
    EXPECT_EQ(got->status, 200) << got->body;
    return Json::parse(got->body, "answer");
  }
  static std::string raw(const std::string& request) {
    RawClient connection(server_->port());
    connection.send(request);
    return connection.answer();
  }

  static std::unique_ptr<Server> server_;
};

inline std::unique_ptr<Server> ServerTest::server_;

/// The status, and the three texts of {"error": {...}}, in which `got` must hold this part.
inline void expect_error(int status, const std::string& body, int need_status,
                         const std::string& what, const std::string& got) {
  EXPECT_EQ(status, need_status) << body;
  const Json error = Json::parse(body, "answer")["error"];
  EXPECT_EQ(error["what"].text(), what);
  EXPECT_NE(error["got"].text().find(got), std::string::npos) << body;
  EXPECT_GT(error["need"].text().size(), 3) << body;
}

/// The same of a whole answer as it came over the wire.
inline void expect_error(const std::string& answer, int need_status, const std::string& what,
                         const std::string& got) {
  ASSERT_TRUE(answer.starts_with("HTTP/1.1 ")) << '"' << answer << '"';
  const std::size_t body = answer.find("\r\n\r\n");
  ASSERT_NE(body, answer.npos);
  expect_error(std::stoi(answer.substr(9, 3)), answer.substr(body + 4), need_status, what, got);
}

}  // namespace server_testing
