# SPDX-License-Identifier: Apache-2.0
# The manual page braid(7), made from include/config.def. Without scdoc there is none.

if(BUILD_TESTING)
	add_test(NAME gate_man COMMAND "${PROJECT_SOURCE_DIR}/scripts/gen_man" --source)
	set_tests_properties(gate_man PROPERTIES LABELS gate TIMEOUT 60
		ENVIRONMENT "CC=${CMAKE_C_COMPILER}")
endif()

find_program(BRAID_SCDOC scdoc)
if(NOT BRAID_SCDOC)
	return()
endif()
add_custom_command(
	OUTPUT "${PROJECT_BINARY_DIR}/braid.7"
	COMMAND "${CMAKE_COMMAND}" -E env "CC=${CMAKE_C_COMPILER}"
		"${PROJECT_SOURCE_DIR}/scripts/gen_man" > "${PROJECT_BINARY_DIR}/braid.7"
	DEPENDS "${PROJECT_SOURCE_DIR}/scripts/gen_man" "${PROJECT_SOURCE_DIR}/include/config.def"
	VERBATIM)
add_custom_target(man ALL DEPENDS "${PROJECT_BINARY_DIR}/braid.7")
install(FILES "${PROJECT_BINARY_DIR}/braid.7" DESTINATION "${CMAKE_INSTALL_MANDIR}/man7")
