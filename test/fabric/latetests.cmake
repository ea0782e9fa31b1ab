# SPDX-License-Identifier: Apache-2.0
# The plugin against packets that arrive after their sender gave up: only its fence keeps them out.

set(late_args --plugin $<TARGET_FILE:nccl-net-braid> --fabric-lib ${fabric_dir} --timeout 25 --quiet
	--rails 3 --rate 400 --sizes 4M --iters 40 --linger 20
	--env NCCL_IB_TIMEOUT=10 --env NCCL_IB_RETRY_CNT=3 --env BRAID_STALL_MS=200)

# The sender gives up after 17 ms; the path may be back in use when the longest delay is over.
foreach(delay_ms 5 30 300 1000)
	foreach(dir tx rx both)
		set(seen "")
		if(NOT delay_ms EQUAL 5) # those may all be in time
			set(seen --at "39:${CMAKE_CURRENT_SOURCE_DIR}/tests/late_seen $<TARGET_FILE:fabricctl> $RUN_DIR/fabric 20")
		endif()
		add_test(NAME fabric_plugin_late_${dir}_${delay_ms}
			COMMAND braid_driver ${late_args} --proto mix ${seen} --fault-iter 2 --fault
				"late host=0 rail=1 dir=${dir} delay_ms=${delay_ms} bytes=100000")
		set_tests_properties(fabric_plugin_late_${dir}_${delay_ms} PROPERTIES
			LABELS "fabric;driver" TIMEOUT 60)
	endforeach()
endforeach()

# A rail that is late again and again, with the requester's repetitions in between.
add_test(NAME fabric_plugin_late_heal
	COMMAND braid_driver ${late_args} --proto all --ranks 3 --op alltoall
		--fault-iter 2 --fault "late host=0 rail=1 delay_ms=40"
		--fault "heal host=0 rail=1 ms=200" --fault "late host=1 rail=1 delay_ms=90 ms=400"
		--fault "heal host=1 rail=1 ms=500" --fault "late host=2 rail=0 delay_ms=15 ms=600"
		--fault "heal host=2 rail=0 ms=900")
add_test(NAME fabric_plugin_late_red
	COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/tests/late_red" $<TARGET_FILE:braid_driver> ${late_args}
		--proto mix --fault-iter 2
		--fault "late host=0 rail=1 delay_ms=30 bytes=100000")
set_tests_properties(fabric_plugin_late_heal fabric_plugin_late_red PROPERTIES
	LABELS "fabric;driver" TIMEOUT 120)
