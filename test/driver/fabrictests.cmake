# SPDX-License-Identifier: Apache-2.0
# ctests of the plugin itself, unmodified, over the software fabric. Healthy runs first, then faults.

set(plugin "$<TARGET_FILE:nccl-net-braid>")
set(fabric "$<TARGET_FILE_DIR:fabric_verbs>")
# Timers short enough for tests; what is checked does not depend on them.
set(fast --env NCCL_IB_TIMEOUT=10 --env NCCL_IB_RETRY_CNT=3 --env BRAID_STALL_MS=200)

function(driver_fabric name seconds)
	add_test(NAME driver_fabric_${name}
		COMMAND braid_driver --plugin ${plugin} --fabric-lib ${fabric} --timeout 25 --quiet
			--linger 20 ${ARGN})
	set_tests_properties(driver_fabric_${name} PROPERTIES LABELS driver TIMEOUT ${seconds})
endfunction()

foreach(op allreduce alltoall sendrecv)
	foreach(proto simple ll direct)
		driver_fabric(${op}_${proto} 60 --op ${op} --proto ${proto} --ranks 4 --rails 4
			--iters 2 --sizes 0,4,8,4K,1000004,4M)
	endforeach()
endforeach()
foreach(version ${versions})
	driver_fabric(v${version} 60 --api ${version} --op all --proto mix --iters 3
		--sizes 0,8,1M)
endforeach()
driver_fabric(roce 60 --op all --proto mix --iters 3 --sizes 8,1M --link roce --rails 2)
driver_fabric(rail_wiring 60 --op all --proto mix --iters 3 --sizes 8,1M --wiring rail --rails 4)
driver_fabric(one_rail 60 --op all --proto mix --iters 3 --sizes 8,1M --rails 1)
driver_fabric(eight_rails 60 --op all --proto mix --iters 3 --sizes 8,4M --rails 8)
driver_fabric(unequal 60 --sizes 16M --iters 3 --rails 3 --rate 400,200,100)
driver_fabric(channels 60 --op all --proto mix --iters 3 --sizes 8,1000004,4M --ranks 3
	--channels 4 --flush --reg-churn --close-at-once)
driver_fabric(large 90 --op sendrecv --proto direct --iters 1 --sizes 1G --rails 4)
# Stopped for longer than any timer: waited for, and no path is blamed.
driver_fabric(paused 60 --sizes 16M --iters 3 --stop 1@1+20:5000 --expect calm
	--env BRAID_PEER_TIMEOUT_MS=2000 --env BRAID_NO_PATH_MS=1000 --env BRAID_STALL_MS=200)
driver_fabric(killed 60 --sizes 16M --iters 3 --kill 1@1+20 --expect remote:2000)
driver_fabric(killed_ranks4 60 --ranks 4 --op alltoall --sizes 16M --iters 3 --kill 2@1+20
	--expect remote:2000)

# All but one of four, in sequence, at once, and with several ranks and all protocols on them.
driver_fabric(sequence 60 --rails 4 --rate 400 --sizes 4M --iters 8 ${fast}
	--fault-iter 1 --fault "cut host=0 rail=0 bytes=100000"
	--fault-iter 2 --fault "cut host=1 rail=1 bytes=100000"
	--fault-iter 3 --fault "nic_death host=0 rail=2 bytes=100000")
driver_fabric(at_once 60 --rails 4 --rate 400 --sizes 4M --iters 4 ${fast}
	--fault-iter 1 --fault "cut host=0 rail=0 bytes=100000"
	--fault "cut host=1 rail=1 bytes=100000" --fault "port_down host=0 rail=2 bytes=100000")
driver_fabric(ranks4_faults 60 --ranks 4 --rails 4 --rate 400 --op all --proto all --sizes 1M
	--iters 3 ${fast} --fault-iter 1 --fault "cut host=0 rail=0 bytes=100000"
	--fault "cut host=1 rail=1 bytes=100000" --fault "port_down host=2 rail=2 bytes=100000")
driver_fabric(large_cut 90 --op sendrecv --proto direct --iters 2 --sizes 256M --rails 4
	--fault-iter 1 --fault "cut host=0 rail=0 bytes=20000000")
# One rail carries whole messages as single writes; what is half there goes whole over another.
driver_fabric(alone 60 --link roce --env BRAID_STRIPE=none --rails 3 --rate 400 --op sendrecv
	--proto direct --direct-slice 3M --sizes 12M --iters 4 ${fast}
	--fault-iter 1 --fault "cut host=0 rail=0 bytes=5000000"
	--fault-iter 2 --fault "port_down host=1 rail=1 bytes=5000000")
driver_fabric(default_timers 60 --rails 2 --rate 400 --sizes 16M --iters 4
	--fault-iter 1 --fault "cut host=0 rail=1 bytes=1000000")
driver_fabric(phase_cut 60 --rails 2 --rate 400 --sizes 16M --iters 4 ${fast}
	--fault-iter 1 --fault-at-phase 50 --fault "nic_death host=1 rail=0")

add_test(NAME driver_fabric_sweep
	COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/fault_sweep" $<TARGET_FILE:braid_driver> ${plugin}
		${fabric})
set_tests_properties(driver_fabric_sweep PROPERTIES LABELS "driver;sweep" TIMEOUT 300
	RUN_SERIAL ON)

# The same under the sanitizers, with fewer places: one of each thirteen, which meets all kinds of
# traffic on both ends. A slow build sends its few messages over other rails, so more rules may find
# no traffic; driver_fabric_sweep counts them strictly.
add_test(NAME driver_fabric_sweep_few
	COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/fault_sweep" $<TARGET_FILE:braid_driver> ${plugin}
		${fabric})
set_tests_properties(driver_fabric_sweep_few PROPERTIES TIMEOUT 300
	LABELS "driver;sanitize"
	ENVIRONMENT "FAULT_SWEEP_EVERY=13;FAULT_SWEEP_UNFIRED=40")
foreach(name allreduce_simple alltoall_ll sendrecv_direct killed sequence at_once phase_cut)
	set_tests_properties(driver_fabric_${name} PROPERTIES LABELS "driver;sanitize")
endforeach()

# A fixed set of random runs; more seeds: fault_random DRIVER PLUGIN FABRIC_DIR FIRST COUNT.
add_test(NAME driver_fabric_random
	COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/fault_random" $<TARGET_FILE:braid_driver> ${plugin}
		${fabric} 1 60)
set_tests_properties(driver_fabric_random PROPERTIES LABELS "driver;sweep" TIMEOUT 300)

# Rails that come back: cut one, heal it, then cut the other, so that only the healed one is left.
driver_fabric(heal 90 --rails 2 --rate 400 --sizes 16M --iters 100 ${fast}
	--fault-iter 3 --fault "cut host=0 rail=0 bytes=100000"
	--fault-iter 6 --fault "heal host=0 rail=0"
	--fault-iter 90 --fault "cut host=0 rail=1 bytes=100000")
driver_fabric(port_up 90 --rails 2 --rate 400 --sizes 16M --iters 100 ${fast}
	--fault-iter 3 --fault "port_down host=0 rail=0"
	--fault-iter 6 --fault "port_up host=0 rail=0"
	--fault-iter 90 --fault "port_down host=0 rail=1 bytes=100000")
# HCAs that fail or are replaced and are opened again, at either end and at both, with memory that was
# registered before, meanwhile and after; then the others go for good, so that only these are left.
driver_fabric(reopen_sender 60 --op stream --rails 2 --rate 400 --sizes 8M --iters 60 ${fast}
	--fault-iter 3 --fault "nic_death host=0 rail=0 bytes=100000"
	--fault-iter 6 --fault "heal host=0 rail=0"
	--fault-iter 50 --fault "cut host=0 rail=1 bytes=100000")
driver_fabric(reopen_receiver 60 --op stream --rails 2 --rate 400 --sizes 8M --iters 60 ${fast}
	--fault-iter 3 --fault "unplug host=1 rail=0 bytes=100000"
	--fault-iter 6 --fault "heal host=1 rail=0"
	--fault-iter 50 --fault "cut host=1 rail=1 bytes=100000")
driver_fabric(reopen_both 60 --op allreduce --proto mix --channels 2 --rails 3 --rate 400 --sizes 8M
	--iters 60 --reg-churn ${fast}
	--fault-iter 3 --fault "unplug host=1 rail=1 bytes=200000" --fault-at-phase 20
	--fault "nic_death host=0 rail=0" --fault "unplug host=1 rail=0 ms=20"
	--fault-iter 6 --fault "heal host=0 rail=0" --fault "heal host=1 rail=0"
	--fault "heal host=1 rail=1"
	--fault-iter 50 --fault "cut host=0 rail=2 bytes=100000"
	--fault "nic_death host=1 rail=1 bytes=300000")
# All of them, so that what is on hand goes over queue pairs whose keys it was not posted with.
driver_fabric(reopen_all 60 --op all --proto mix --rails 2 --rate 400 --sizes 8M --iters 8 ${fast}
	--fault-iter 3 --fault "nic_death host=0 rail=0 bytes=100000"
	--fault "nic_death host=0 rail=1 bytes=300000" --fault "heal host=0 rail=0 ms=800"
	--fault-iter 13 --fault "unplug host=1 rail=0 bytes=100000"
	--fault "heal host=1 rail=0 ms=800"
	--fault-iter 20 --fault "heal host=0 rail=1" --fault "unplug host=0 rail=0 bytes=100000"
	--fault "unplug host=1 rail=1 bytes=500000" --fault "heal host=0 rail=0 ms=900"
	--fault "heal host=1 rail=1 ms=800")
# A node that starts with a bad port, which is mended later and then has to carry everything alone.
file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/bad_port.txt" "port_down host=0 rail=1\n")
driver_fabric(bad_port 90 --rails 2 --rate 400 --sizes 8M --iters 60 ${fast}
	--env FABRIC_FAULTS=${CMAKE_CURRENT_BINARY_DIR}/bad_port.txt
	--fault-iter 3 --fault "port_up host=0 rail=1"
	--fault-iter 50 --fault "port_down host=0 rail=0 bytes=100000")
driver_fabric(no_path 90 --rails 2 --rate 400 --sizes 8M --iters 6 ${fast}
	--fault-iter 3 --fault "cut host=0 rail=0" --fault "cut host=0 rail=1"
	--fault "heal host=0 rail=1 ms=1500")
