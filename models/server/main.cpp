// demo-server: see demo-server --help.
#include <pthread.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "models/common/text.h"
#include "models/common/validators.h"
#include "models/server/server.h"
#include "tensor/version.h"

namespace {

using models::server::Checkpoints;

/// SIGINT and SIGTERM are held back in every thread that is started from here on.
sigset_t hold_back_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

/// Where the weights and pictures that ship are: in the source tree, or installed beside a program.
std::string data_folder() {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(DEMO_SOURCE "/models", error)) return DEMO_SOURCE;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "share" / "tensor").string();
}

void serve(const Checkpoints& checkpoints, int threads, const models::server::ServerOptions& how) {
  const sigset_t stop_signals = hold_back_stop_signals();
  models::server::Engine engine(checkpoints, threads);
  models::server::Server server(engine, how);
  std::cout << "demo-server: " << server.url() << " (Ctrl-C stops it)" << std::endl;
  int signal = 0;
  sigwait(&stop_signals, &signal);
  std::cout << "demo-server: stopping" << std::endl;
  // A second signal ends it at once.
  pthread_sigmask(SIG_UNBLOCK, &stop_signals, nullptr);
  server.stop();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string source = data_folder();
  Checkpoints checkpoints{source + "/models/vit/pretrained/digits",
                          source + "/models/detr/pretrained/scenes",
                          source + "/models/setr/pretrained/scenes"};
  models::server::ServerOptions options;
  options.samples = source + "/examples/images";
  int threads = 0;
  CLI::App app("A web page that shows images to ViT, DETR and SETR.", "demo-server");
  app.add_option("--port", options.port, "where it listens (8080); 0 for any that is free")
      ->type_name("N")
      ->check(models::whole_number(0, 65535));
  app.add_option("--host", options.host,
                 "the address it listens on (127.0.0.1: for this machine only)")
      ->type_name("NAME");
  app.add_option("--checkpoint-vit", checkpoints.vit, "a ViT instead of the one that ships")
      ->type_name("DIR");
  app.add_option("--checkpoint-detr", checkpoints.detr, "a DETR instead of the one that ships")
      ->type_name("DIR");
  app.add_option("--checkpoint-setr", checkpoints.setr, "a SETR instead of the one that ships")
      ->type_name("DIR");
  app.add_option("--samples", options.samples,
                 "a folder with the folders digits and scenes instead of the images that ship")
      ->type_name("DIR");
  app.add_option("--threads", threads, "how many threads compute (one a core)")
      ->type_name("N")
      ->check(models::whole_number(1, 1024));
  app.set_version_flag("--version", "demo-server " + std::string(tensor::version()));
  try {
    app.parse(argc, argv);
    serve(checkpoints, threads, options);
    return 0;
  } catch (const CLI::Success& done) {
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    std::cerr << "demo-server: " << models::one_line(error.what()) << " (see demo-server --help)\n";
    return 1;
  } catch (const tensor::UserError& error) {
    std::cerr << "demo-server: " << models::one_line(error.what()) << "\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "demo-server: " << models::one_line(error.what()) << "\n";
    return 2;
  }
}
