# SPDX-License-Identifier: BSD-3-Clause
# The vcpkg port as far as it goes without vcpkg: its manifest has the fields and the version that it must
# have, and its portfile, run with stand-ins for vcpkg's functions, leaves the files that a port must.
# Use: cmake -D WORK=FOLDER -D VERSION=VERSION -D COMPILER=COMPILER -D GENERATOR=GENERATOR -P vcpkg_port.cmake
cmake_minimum_required(VERSION 3.25)
set(PORT scanrec)
set(port ${CMAKE_CURRENT_LIST_DIR}/../packaging/vcpkg/${PORT})
set(CURRENT_PACKAGES_DIR ${WORK}/packages)
file(REMOVE_RECURSE ${WORK})

function(expect what got wanted)
  if(NOT got STREQUAL wanted)
    message(SEND_ERROR "${what}: expected ${wanted}, got ${got}")
  endif()
endfunction()

# ---- the manifest ---------------------------------------------------------------------------------

file(READ ${port}/vcpkg.json manifest)
foreach(field name version-semver description license supports)
  string(JSON kind TYPE "${manifest}" ${field})
  expect("vcpkg.json: ${field}" ${kind} STRING)
endforeach()
string(JSON name GET "${manifest}" name)
expect("vcpkg.json: name" ${name} ${PORT})
string(JSON version GET "${manifest}" version-semver)
expect("vcpkg.json: version-semver" ${version} ${VERSION})
# Dependencies are names, or objects that have one.
function(check_dependencies)
  string(JSON last LENGTH "${manifest}" ${ARGN})
  math(EXPR last "${last} - 1")
  foreach(i RANGE ${last})
    string(JSON kind TYPE "${manifest}" ${ARGN} ${i})
    if(kind STREQUAL "OBJECT")
      string(JSON kind TYPE "${manifest}" ${ARGN} ${i} name)
    endif()
    expect("vcpkg.json: ${ARGN} ${i}" ${kind} STRING)
  endforeach()
endfunction()
check_dependencies(dependencies)
string(JSON last LENGTH "${manifest}" features)
math(EXPR last "${last} - 1")
foreach(i RANGE ${last})
  string(JSON feature MEMBER "${manifest}" features ${i})
  string(JSON kind TYPE "${manifest}" features ${feature} description)
  expect("vcpkg.json: ${feature}" ${kind} STRING)
  check_dependencies(features ${feature} dependencies)
endforeach()

# ---- the portfile ---------------------------------------------------------------------------------

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 given "" SOURCE_PATH OPTIONS)
  expect("vcpkg_cmake_configure" "${given_UNPARSED_ARGUMENTS}" "")
  # An option that nothing reads is a misspelt one.
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${given_SOURCE_PATH} -B ${WORK}/build -G ${GENERATOR}
            -DCMAKE_CXX_COMPILER=${COMPILER} ${given_OPTIONS}
    OUTPUT_QUIET ERROR_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
  if(said MATCHES "not used by the project")
    message(SEND_ERROR "${said}")
  endif()
endfunction()
function(vcpkg_cmake_install)
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${WORK}/build --prefix ${CURRENT_PACKAGES_DIR}
                  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endfunction()
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 given "" CONFIG_PATH "")
  file(RENAME ${CURRENT_PACKAGES_DIR}/${given_CONFIG_PATH} ${CURRENT_PACKAGES_DIR}/share/${PORT})
  file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/share/cmake)
endfunction()
function(vcpkg_fixup_pkgconfig)
  if(NOT EXISTS ${CURRENT_PACKAGES_DIR}/share/pkgconfig/${PORT}.pc)
    message(SEND_ERROR "there is no share/pkgconfig/${PORT}.pc")
  endif()
endfunction()
function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 given "" "" FILE_LIST)
  file(COPY_FILE ${given_FILE_LIST} ${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright)
endfunction()
include(${port}/portfile.cmake)

file(GLOB found RELATIVE ${CURRENT_PACKAGES_DIR} ${CURRENT_PACKAGES_DIR}/* ${CURRENT_PACKAGES_DIR}/share/*)
expect("folders" "${found}" "include;share;share/pkgconfig;share/scanrec")
foreach(file include/scanrec/scan.hpp share/scanrec/scanrecConfig.cmake share/scanrec/copyright
        share/scanrec/usage)
  if(NOT EXISTS ${CURRENT_PACKAGES_DIR}/${file})
    message(SEND_ERROR "the port leaves no ${file}")
  endif()
endforeach()
