# The consumer by Conan, against the package that is tested.
import os

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain


class Consumer(ConanFile):
    settings = "os", "compiler", "build_type", "arch"

    def layout(self):
        # The build folder of the repository, for nothing is written beside the sources.
        self.folders.build = self.folders.generators = os.path.join("..", "..", "..", "build", "conan")

    def requirements(self):
        self.requires(self.tested_reference_str)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        self.run(os.path.join(self.build_folder, "consumer"), env="conanrun")
