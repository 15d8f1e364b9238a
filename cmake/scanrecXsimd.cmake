# SPDX-License-Identifier: BSD-3-Clause
# Corrects the imported target xsimd of Debian 12. It links xtl, a header-only library that the Debian
# package neither needs nor installs, so the linker would look for a file libxtl.
get_target_property(_scanrec_xsimd_links xsimd INTERFACE_LINK_LIBRARIES)
if("xtl" IN_LIST _scanrec_xsimd_links)
  find_package(xtl QUIET CONFIG)
  if(NOT TARGET xtl)
    list(REMOVE_ITEM _scanrec_xsimd_links xtl)
    set_property(TARGET xsimd PROPERTY INTERFACE_LINK_LIBRARIES ${_scanrec_xsimd_links})
  endif()
endif()
unset(_scanrec_xsimd_links)
