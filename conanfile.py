# tensor as a package of Conan 2: conan create . (nothing is downloaded: what it is built from, scripts/setup.sh has the
# list, comes from the system).
import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import load


class Tensor(ConanFile):
    name = "tensor"
    description = "A NumPy-like C++20 tensor library with native vision models"
    license = "Apache-2.0"
    package_type = "library"
    settings = "os", "compiler", "build_type", "arch"
    options = {"shared": [True, False], "onednn": [True, False], "xgboost": [True, False]}
    default_options = {"shared": False, "onednn": False, "xgboost": True}
    exports = "CMakeLists.txt"
    exports_sources = "CMakeLists.txt", "cmake/*", "examples/images/*", "include/*", "models/*", "src/*"
    no_copy_source = True
    test_package_folder = "tests/package/consumer"

    def set_version(self):
        project = load(self, os.path.join(self.recipe_folder, "CMakeLists.txt"))
        self.version = re.search(r"project\(tensor VERSION ([0-9.]+)", project).group(1)

    def layout(self):
        self.folders.build = "build"
        self.folders.generators = "conan"

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # the presets of the repository are its own
        for name in ("TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables[f"TENSOR_BUILD_{name}"] = False
        toolchain.cache_variables["TENSOR_WITH_ONEDNN"] = bool(self.options.onednn)
        toolchain.cache_variables["TENSOR_WITH_XGBOOST"] = bool(self.options.xgboost)
        toolchain.cache_variables["TENSOR_UNITY"] = True
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        # Not by CMake(self), which wants the toolchain: a build that was not made by Conan can be exported, too.
        self.run(f'cmake --install "{self.build_folder}" --prefix "{self.package_folder}"')

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # the package has its tensorConfig.cmake
        self.cpp_info.builddirs = ["lib/cmake/tensor"]
