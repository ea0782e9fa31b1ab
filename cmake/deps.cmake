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

# libev goes in statically, so that a container without it still loads the plugin. Distributions
# compile libev.a for position independent executables, where it may address the C library's stderr
# directly; a shared object may not. So its one object is taken out, that reference is renamed, and
# ev_stderr.c provides the variable.
if(NOT CMAKE_OBJCOPY)
	message(FATAL_ERROR "objcopy is missing: install binutils (scripts/setup does it)")
endif()
set(ev_dir "${PROJECT_BINARY_DIR}/libev")
file(MAKE_DIRECTORY "${ev_dir}")
add_custom_command(
	OUTPUT "${ev_dir}/braid_ev.o"
	COMMAND "${CMAKE_AR}" x "${BRAID_EV_ARCHIVE}" ev.o
	COMMAND "${CMAKE_OBJCOPY}" --redefine-sym stderr=braid_ev_stderr ev.o braid_ev.o
	DEPENDS "${BRAID_EV_ARCHIVE}"
	WORKING_DIRECTORY "${ev_dir}"
	VERBATIM)
add_library(braid_libev STATIC cmake/ev_stderr.c "${ev_dir}/braid_ev.o")
set_source_files_properties("${ev_dir}/braid_ev.o" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
target_include_directories(braid_libev SYSTEM PUBLIC "${BRAID_EV_INCLUDE}")
target_link_libraries(braid_libev PUBLIC m)

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
