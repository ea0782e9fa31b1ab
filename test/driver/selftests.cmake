# SPDX-License-Identifier: Apache-2.0
# ctests of the driver itself, over the loopback plugin: healthy runs are green, each misbehaviour is
# noticed for what it is. A red test fails when its check is taken out of the driver.

set(loopback "$<TARGET_FILE:loopback_plugin>")
set(check_red "${CMAKE_CURRENT_SOURCE_DIR}/check_red")

function(driver_green name)
	add_test(NAME driver_green_${name}
		COMMAND braid_driver --plugin ${loopback} --timeout 60 --quiet ${ARGN})
	set_tests_properties(driver_green_${name} PROPERTIES LABELS driver TIMEOUT 120)
endfunction()

function(driver_red name pattern fault)
	add_test(NAME driver_red_${name}
		COMMAND ${check_red} ${pattern} $<TARGET_FILE:braid_driver> --plugin ${loopback}
			--timeout 3 --iters 2 --sizes 4M --direct-slice 128K
			--env LOOPBACK_FAULT=${fault} ${ARGN})
	set_tests_properties(driver_red_${name} PROPERTIES LABELS driver TIMEOUT 60)
endfunction()

foreach(version ${versions})
	driver_green(v${version} --api ${version} --op all --proto mix --iters 3 --sizes 0,8,4K,1M)
endforeach()
driver_green(ranks4 --ranks 4 --op all --proto all --iters 2 --sizes 0,4,4K,1M,4M)
driver_green(odd --ranks 3 --op all --proto all --iters 2 --sizes 12,4100,1000004 --channels 3)
driver_green(extras --ranks 4 --op all --proto all --iters 1 --sizes 8,1M --channels 2 --flush
	--reg-churn --close-at-once --linger 20)
driver_green(large --op sendrecv --proto direct --iters 1 --sizes 64M)
driver_green(paused --sizes 8M --iters 3 --stop 1@1+20:200)
driver_green(commands --iters 4 --sizes 32M
	--at "1+30:touch $RUN_DIR/ran" --at "2:test -e $RUN_DIR/ran")
driver_green(killed --ranks 4 --sizes 16M --iters 3 --kill 1@1+20 --expect remote)
driver_green(aborted --op stream --sizes 64M --iters 2 --abort 0@1+20 --expect remote)

driver_red(command "reason='command" none --at "1:false")
driver_red(command_late "never ran" none --at "9:true")
driver_red(killed_numb "a survivor was not told" numb --op stream --sizes 64M --kill 1@1+20
	--expect remote)
driver_red(killed_fickle "api_errors=[1-9]" fickle --op stream --sizes 64M --kill 1@1+20
	--expect remote)
driver_red(killed_late "was told after" none --op stream --sizes 64M --kill 1@1+20
	--expect remote:0)
driver_red(self_test "wrong_elements=[1-9]" none --self-test corrupt)
foreach(proto simple ll direct)
	driver_red(corrupt_${proto} "wrong_elements=[1-9]" corrupt:11 --proto ${proto})
	driver_red(duplicate_${proto} "duplicates=[1-9]" duplicate:11 --proto ${proto})
	driver_red(drop_${proto} "early_dones=[1-9]" drop:11 --proto ${proto})
	driver_red(lose_${proto} "no end in sight" lose:11 --proto ${proto})
	driver_red(size_${proto} "size_errors=[1-9]" size:11 --proto ${proto})
	driver_red(error_${proto} "net_errors=[1-9]" error:11 --proto ${proto})
	driver_red(request_${proto} "api_errors=[1-9]" request:12 --proto ${proto})
	driver_red(request_recv_${proto} "api_errors=[1-9]" request_recv:12 --proto ${proto})
	driver_red(send_size_${proto} "size_errors=[1-9]" send_size:11 --proto ${proto})
	driver_red(after_${proto} "late_writes=[1-9]" after --proto ${proto})
	driver_red(underrun_${proto} "guard_hits=[1-9]" underrun:0 --proto ${proto} --op sendrecv)
	driver_red(eager_${proto} "wrong_elements=[1-9]" eager:11 --proto ${proto} --op sendrecv)
endforeach()
foreach(proto simple ll)
	driver_red(late_${proto} "late_writes=[1-9]" late:11 --proto ${proto})
endforeach()
# A user buffer that was late-written while the result was still in use is simply wrong.
driver_red(env_rank "wrong_elements=[1-9]" none --proto direct
	--env-rank "1:LOOPBACK_FAULT=late:11")
driver_red(wrapper "wrong_elements=[1-9]" none --proto direct
	--wrapper "env LOOPBACK_FAULT=$(test $RANK = 0 && echo none || echo late:11)")
driver_red(late_direct "wrong_elements=[1-9]" late:11 --proto direct)
driver_red(torn_ll "wrong_elements=[1-9]" torn:11 --proto ll)
driver_red(change_ll "wrong_elements=[1-9]" change:11 --proto ll)
driver_red(hole_ll "early_dones=[1-9]" hole:11 --proto ll)
driver_red(hole_simple "wrong_elements=[1-9]" hole:11 --proto simple)
driver_red(hole_direct "wrong_elements=[1-9]" hole:11 --proto direct)
driver_red(overrun_simple "guard_hits=[1-9]" overrun:11 --proto simple)
driver_red(overrun_direct "guard_hits=[1-9]" overrun:31 --proto direct --op sendrecv)
