/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_SIM_MARK_H
#define BRAID_SIM_MARK_H

/** Rare situations that a long enough series of runs must have been in. */
#define MARK_LIST(X)                                                                               \
	X(REPLAY, "a piece was posted a second time")                                              \
	X(REPLAY_TWICE, "a piece was posted a third time")                                         \
	X(CROSSED_FENCES, "both ends began to fence before they heard of each other")              \
	X(FENCING_HEARD, "the peer's fence was done first")                                        \
	X(FENCED_WAITS, "the own fence was done first")                                            \
	X(TWO_AT_ONCE, "two paths in repair at the same time")                                     \
	X(THREE_LOST, "three paths lost in one run")                                               \
	X(FAULT_IN_FENCE, "a path failed while another was being fenced")                          \
	X(FAULT_IN_REPLAY, "a path failed right after it got replayed pieces")                     \
	X(CUT, "reaping took too long and the QP was reset")                                       \
	X(CUT_FAILED, "the reset failed")                                                          \
	X(DEAD, "a fence ended at a dead device")                                                  \
	X(REFUSED, "a QP could not be moved to ERR")                                               \
	X(MARKER_FAILED, "the marker could not be posted")                                         \
	X(CTS_AGAIN, "a clear-to-send entry was posted again")                                     \
	X(CTS_THERE, "an entry of a lost path had arrived and was not repeated")                   \
	X(ACK_AGAIN, "an acknowledgement was posted again to probe a silent path")                 \
	X(ACK_WAITS, "an acknowledgement waited for an entry")                                     \
	X(ACK_LATE, "one waited in vain and was posted in a round")                                \
	X(ENTRY_ACKS, "an entry acknowledged what no word had")                                    \
	X(ACK_AND_CTS_LOST, "an entry was lost that acknowledged what nothing else had yet")       \
	X(FENCED_ACKS, "FENCED acknowledged what no word had")                                     \
	X(CTS_HALF, "a half-written clear-to-send line was looked at")                             \
	X(BOOK_COVERS, "pieces without a hardware acknowledgement were in the book")               \
	X(PLACED_UNBOOKED, "a piece was placed, not in the book, and posted again")                \
	X(ACKED_UNPLACED, "a NIC acknowledged what it did not place")                              \
	X(ACKED_UNSURFACED, "a NIC died with completions nobody will see")                         \
	X(COMPLETED_REPLAYED, "a piece that had completed at the sender was posted again")         \
	X(ZOMBIE_LANDED, "a held packet was placed before the fence")                              \
	X(ZOMBIE_DROPPED, "a held packet met a fenced QP")                                         \
	X(RESENT, "the requester sent again, the responder had it already")                        \
	X(HALF_WRITE, "a write was half placed when its path was fenced")                          \
	X(POST_FAIL_NONE, "a post failed with nothing queued")                                     \
	X(POST_FAIL_HALF, "a post failed half way")                                                \
	X(POST_EAGAIN, "a send queue was full")                                                    \
	X(DONE_WAITS_WRS, "a covered send waited for its work requests")                           \
	X(DUP_FENCE, "a FENCE frame came twice")                                                   \
	X(DUP_FENCED, "a FENCED frame came twice")                                                 \
	X(NO_PATH, "both ends failed for lack of a path")                                          \
	X(LATE_WC, "a completion came after its path was fenced")                                  \
	X(HOST_STOPPED, "a host was stopped")                                                      \
	X(STOPPED_LONG, "a host was stopped for a minute")                                         \
	X(STANDBY_USED, "a standby path carried data")                                             \
	X(TWO_LINES, "more than eight paths")                                                      \
	X(WINDOW_FULL, "a receive found the window full")                                          \
	X(CLAMPED, "a send was larger than its receive")                                           \
	X(EMPTY, "an empty message")                                                               \
	X(CLOSE_COVERS, "CLOSE covered what no acknowledgement did")                               \
	X(ASKED, "a stall clock asked for a sign of life")                                         \
	X(STALL_FOUND, "a silent path was found by the stall clock alone")                         \
	X(PROBED, "a sender probed a path that was silent")                                        \
	X(BACK, "a path came back")                                                                \
	X(BACK_TWICE, "a path came back a second time")                                            \
	X(STILL_DOWN, "an attempt to rejoin failed")                                               \
	X(FENCE_WHILE_DOWN, "FENCE for an attempt that this end had not joined")                   \
	X(DATA_AFTER_BACK, "a piece went over a path that had come back")                          \
	X(LOST_AGAIN, "a path that had come back was lost with pieces on it")                      \
	X(BUILD_FAILED, "no new QP on a dead HCA")                                                 \
	X(HINTED, "the software heard that a port is up")                                          \
	X(OLD_QP_DROPPED, "a packet for a QP that is no more")                                     \
	X(GARBLED, "a probe arrived, but not as it was sent")                                      \
	X(ABSENT, "a path that was not connected at first")                                        \
	X(ABSENT_BACK, "such a path carried data")                                                 \
	X(LEFT_BUSY, "an end left with requests outstanding")                                      \
	X(LEFT_ALONE, "the other end heard of it")                                                 \
	X(KILLED, "a process died")                                                                \
	X(SIBLING_TOLD, "one of two comms told the other that their rails failed")                 \
	X(TWO_COMMS, "two comms over the same rails")                                              \
	X(LINK_LOST, "a frame waited for the link to come back")                                   \
	X(LINK_FULL, "the link took no frame")                                                     \
	X(TOLD_LATE, "a frame left that the link had refused before")                              \
	X(FENCED_WHILE_DOWN,                                                                       \
	  "FENCED without a FENCE, for an attempt that this end had not joined")                   \
	X(REPLACED, "an HCA was opened again, with other keys")                                    \
	X(REKEYED, "a message on hand was given another key")                                      \
	X(PATH_SLOW, "a path was found slow")                                                      \
	X(LARGE_LOST, "a wire that lets small packets pass lost a long one")                       \
	X(SEQ_WRAP, "the low bits of seq wrapped")

enum mark {
#define MARK_ENUM(name, text) MARK_##name,
	MARK_LIST(MARK_ENUM)
#undef MARK_ENUM
	MARK_COUNT
};

#endif
