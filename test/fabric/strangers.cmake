# SPDX-License-Identifier: Apache-2.0
# Programs nobody here wrote: what they ask of libibverbs has to be answered as they expect.

function(fabric_stranger name package kind pattern)
	add_test(NAME fabric_stranger_${name}
		COMMAND fabricctl run "${CMAKE_CURRENT_SOURCE_DIR}/tests/stranger" ${package} ${kind}
			${pattern} ${ARGN})
	set_tests_properties(fabric_stranger_${name} PROPERTIES LABELS fabric TIMEOUT 90
		SKIP_RETURN_CODE 77)
endfunction()

fabric_stranger(devices ibverbs-utils alone "fab1[ \t]+02fab0" ibv_devices)
fabric_stranger(devinfo ibverbs-utils alone "PORT_ACTIVE" ibv_devinfo -v)
fabric_stranger(rc_pingpong ibverbs-utils pair "500 iters" ibv_rc_pingpong -d fab0 -n 500)
fabric_stranger(rc_pingpong_events ibverbs-utils pair "500 iters"
	ibv_rc_pingpong -d fab1 -n 500 -e)
fabric_stranger(uc_pingpong ibverbs-utils pair "500 iters" ibv_uc_pingpong -d fab0 -n 500 -e)
fabric_stranger(srq_pingpong ibverbs-utils pair "500 iters" ibv_srq_pingpong -d fab0 -n 500)
fabric_stranger(srq_pingpong_events ibverbs-utils pairs "500 iters"
	ibv_srq_pingpong -d fab0 -n 500 -e -q 16)
foreach(program ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_send_lat ib_read_lat)
	fabric_stranger(${program} perftest pair "^ *65536 +200 " ${program} -d fab0 -F -n 200
		-s 65536)
endforeach()
fabric_stranger(ib_send_bw_srq perftest pair "^ *65536 +400 " ib_send_bw -d fab0 -F -n 200
	-s 65536 --use-srq -q 2)
fabric_stranger(ib_write_bw_sizes perftest pair "^ *8388608 +20 " ib_write_bw -d fab0 -F -n 20 -a)
fabric_stranger(ib_write_bw_bidirectional perftest pair "^ *65536 +1600 " ib_write_bw -d fab1 -F
	-n 400 -s 65536 -b -q 4)
fabric_stranger(ib_send_bw_event perftest pair "^ *65536 +200 " ib_send_bw -d fab0 -F -n 200
	-s 65536 -e)
foreach(type CMP_AND_SWAP FETCH_AND_ADD)
	fabric_stranger(ib_atomic_bw_${type} perftest pair "^ *8 +200 " ib_atomic_bw -d fab0 -F
		-n 200 -A ${type})
endforeach()
fabric_stranger(ib_atomic_lat perftest pair "^ *8 +200 " ib_atomic_lat -d fab0 -F -n 200)
fabric_stranger(ib_write_bw_uc perftest pair "^ *65536 +200 " ib_write_bw -d fab0 -F -n 200
	-s 65536 -c UC)
