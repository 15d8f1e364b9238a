# SPDX-License-Identifier: BSD-3-Clause
# Tests the vcpkg port without vcpkg. Checks the version in its manifest, and runs its portfile with
# stand-ins for vcpkg's functions.
# Use: cmake -D WORK=FOLDER -D VERSION=VERSION -D COMPILER=COMPILER -D GENERATOR=GENERATOR -P vcpkg_port.cmake
cmake_minimum_required(VERSION 3.25)
set(PORT scanrec)
set(port ${CMAKE_CURRENT_LIST_DIR}/../packaging/vcpkg/${PORT})
set(CURRENT_PACKAGES_DIR ${WORK}/packages)
file(REMOVE_RECURSE ${WORK})
file(READ ${port}/vcpkg.json manifest)
string(JSON version GET "${manifest}" version-semver)
if(NOT version STREQUAL VERSION)
  message(SEND_ERROR "vcpkg.json: version-semver: expected ${VERSION}, got ${version}")
endif()
function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 given "" SOURCE_PATH OPTIONS)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${given_SOURCE_PATH} -B ${WORK}/build -G ${GENERATOR}
            -DCMAKE_CXX_COMPILER=${COMPILER} ${given_OPTIONS}
    OUTPUT_QUIET ERROR_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
  if(said MATCHES "not used by the project")  # a misspelt option
    message(SEND_ERROR "${said}")
  endif()
endfunction()
function(vcpkg_cmake_install)
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${WORK}/build --prefix ${CURRENT_PACKAGES_DIR}
                  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endfunction()
function(vcpkg_cmake_config_fixup)
  file(RENAME ${CURRENT_PACKAGES_DIR}/${ARGV1} ${CURRENT_PACKAGES_DIR}/share/${PORT})
endfunction()
function(vcpkg_fixup_pkgconfig)
  file(SIZE ${CURRENT_PACKAGES_DIR}/share/pkgconfig/${PORT}.pc size)  # fails if it is absent
endfunction()
function(vcpkg_install_copyright)
  file(COPY_FILE ${ARGV1} ${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright)
endfunction()
include(${port}/portfile.cmake)
file(SIZE ${CURRENT_PACKAGES_DIR}/share/${PORT}/scanrecConfig.cmake size)
