# SPDX-License-Identifier: BSD-3-Clause
"""Conan 2 recipe of the headers and the CMake package: `conan create packaging/conan`

Projects find the CMake configuration that scanrec itself installs. It has the components
`compiled`, `mpi`, and `cuda` in projects that enable CUDA. The component `eigen` needs the option
with_eigen, which adds Eigen to the requirements.
"""

import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.scm import Version

OLDEST = {"gcc": "12", "clang": "14", "apple-clang": "15"}


class Scanrec(ConanFile):
    name = "scanrec"
    description = "Linear recurrences over long sequences, and their adjoints"
    license = "BSD-3-Clause"
    topics = ("scan", "recurrence", "simd", "autodiff", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"with_eigen": [True, False]}
    default_options = {"with_eigen": False}
    no_copy_source = True

    @property
    def _repository(self):
        return Path(self.recipe_folder).parents[1]

    def set_version(self):
        header = load(self, str(self._repository / "include" / "scanrec" / "version.hpp"))
        numbers = re.findall(r"^#define SCANREC_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.M)
        self.version = ".".join(numbers)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*"):
            copy(self, pattern, str(self._repository), self.export_sources_folder)

    def requirements(self):
        self.requires("xsimd/[>=8.1]", transitive_headers=True)
        if self.options.with_eigen:
            self.requires("eigen/[>=3.4]", transitive_headers=True)

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.25]")

    def validate(self):
        check_min_cppstd(self, 20)
        compiler, version = str(self.settings.compiler), self.settings.compiler.version
        if compiler not in OLDEST or Version(version) < OLDEST[compiler]:
            raise ConanInvalidConfiguration(
                f"scanrec needs GCC 12, Clang 14, Apple Clang 15 or newer, got {compiler} {version}"
            )

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("BUILD_TESTS", "BUILD_BENCH", "BUILD_EXAMPLES", "CUDA", "MPI"):
            toolchain.cache_variables[f"SCANREC_{part}"] = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()

    # There are only headers, so one package serves every compiler and option.
    def package_id(self):
        self.info.clear()

    def package_info(self):
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["share/cmake/scanrec"]
        self.cpp_info.set_property("pkg_config_name", "scanrec")
        if self.settings.get_safe("os") in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
