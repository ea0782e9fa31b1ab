# SPDX-License-Identifier: Apache-2.0
# What must be there before anything compiles, with the package's name when it is not.

find_path(BRAID_EV_INCLUDE ev.h)
find_library(BRAID_EV_ARCHIVE NAMES libev.a)
if(NOT BRAID_EV_INCLUDE OR NOT BRAID_EV_ARCHIVE)
	message(FATAL_ERROR "libev's header or static library is missing: install libev-dev "
		"(scripts/setup does it)")
endif()

# libibverbs is opened at run time; only its headers are used here.
find_path(BRAID_VERBS_INCLUDE infiniband/verbs.h)
if(NOT BRAID_VERBS_INCLUDE)
	message(FATAL_ERROR "infiniband/verbs.h is missing: install libibverbs-dev "
		"(scripts/setup does it)")
endif()

# Static, so that a container without libev still loads the plugin.
add_library(braid_libev STATIC IMPORTED GLOBAL)
set_target_properties(braid_libev PROPERTIES
	IMPORTED_LOCATION "${BRAID_EV_ARCHIVE}"
	INTERFACE_INCLUDE_DIRECTORIES "${BRAID_EV_INCLUDE}"
	INTERFACE_LINK_LIBRARIES m)

if(BUILD_TESTING OR NOT DEFINED BUILD_TESTING)
	find_path(BRAID_CMOCKA_INCLUDE cmocka.h)
	find_library(BRAID_CMOCKA_LIBRARY NAMES cmocka)
	if(NOT BRAID_CMOCKA_INCLUDE OR NOT BRAID_CMOCKA_LIBRARY)
		message(FATAL_ERROR "cmocka is missing: install libcmocka-dev (scripts/setup does it), "
			"or configure with -DBUILD_TESTING=OFF")
	endif()
	add_library(braid_cmocka UNKNOWN IMPORTED GLOBAL)
	set_target_properties(braid_cmocka PROPERTIES
		IMPORTED_LOCATION "${BRAID_CMOCKA_LIBRARY}"
		INTERFACE_INCLUDE_DIRECTORIES "${BRAID_CMOCKA_INCLUDE}")
endif()
