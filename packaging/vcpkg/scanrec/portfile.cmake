# SPDX-License-Identifier: BSD-3-Clause
# An overlay port that installs the checkout it is part of: vcpkg install scanrec --overlay-ports=packaging/vcpkg.
# A port in a registry would call vcpkg_from_git or vcpkg_from_github instead of the next line.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

set(VCPKG_BUILD_TYPE release)  # there are only headers
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DSCANREC_BUILD_TESTS=OFF
    -DSCANREC_BUILD_BENCH=OFF
    -DSCANREC_BUILD_EXAMPLES=OFF
    -DSCANREC_CUDA=OFF  # the consuming project enables CUDA with its own compiler
    -DSCANREC_MPI=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/scanrec)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
