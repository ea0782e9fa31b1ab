/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_CAUSE_H
#define BRAID_CAUSE_H

#include <stddef.h>

/**
 * Why a path was given up, or why a comm failed. One list: enum, wire value, name and class.
 *
 * Class PATH: this path is at fault, another one may carry the data (fail over).
 * Class SOFT: memory, key, length or protocol fault; replaying it elsewhere would spread it (stop).
 * Class ECHO: follows from an earlier error of the same QP; never reported as a cause (P6).
 *
 * Values travel in FENCE and FENCED frames: append only.
 */
#define CAUSE_LIST(X)                                                                              \
	X(NONE, ECHO, "none")                                                                      \
	X(FLUSH, ECHO, "flushed")                                                                  \
	X(RETRY_EXC, PATH, "transport retry exceeded")                                             \
	X(RNR_RETRY_EXC, PATH, "receiver-not-ready retry exceeded")                                \
	X(RESP_TIMEOUT, PATH, "response timeout")                                                  \
	X(LOC_QP_OP, PATH, "local QP operation error")                                             \
	X(REM_OP, PATH, "remote operation error")                                                  \
	X(ABORTED, PATH, "remote aborted")                                                         \
	X(FATAL, PATH, "fatal completion error")                                                   \
	X(GENERAL, PATH, "general completion error")                                               \
	X(PORT_DOWN, PATH, "port down")                                                            \
	X(DEVICE_FATAL, PATH, "device fatal")                                                      \
	X(QP_FATAL, PATH, "QP fatal event")                                                        \
	X(GID_CHANGED, PATH, "GID changed")                                                        \
	X(POST_FAILED, PATH, "posting work failed")                                                \
	X(STALL, PATH, "no progress")                                                              \
	X(PAIR, PATH, "the same rails failed on another connection")                               \
	X(PROBE, PATH, "its probe did not get through")                                            \
	X(PEER_NOTICE, PATH, "peer fenced it")                                                     \
	X(NOT_CONNECTED, PATH, "never connected")                                                  \
	X(LOC_LEN, SOFT, "local length error")                                                     \
	X(LOC_PROT, SOFT, "local protection error")                                                \
	X(MW_BIND, SOFT, "memory window bind error")                                               \
	X(BAD_RESP, SOFT, "bad response")                                                          \
	X(LOC_ACCESS, SOFT, "local access error")                                                  \
	X(REM_INV_REQ, SOFT, "remote invalid request")                                             \
	X(REM_ACCESS, SOFT, "remote access error")                                                 \
	X(PROTOCOL, SOFT, "protocol violation")                                                    \
	X(UNFENCED, SOFT, "QP could not be fenced")                                                \
	X(NO_PATH, SOFT, "no path left")                                                           \
	X(PEER_CLOSED, SOFT, "peer closed the connection")                                         \
	X(PEER_GONE, SOFT, "peer process is gone")

enum cause_class {
	CAUSE_CLASS_ECHO,
	CAUSE_CLASS_PATH,
	CAUSE_CLASS_SOFT
};

enum cause {
#define CAUSE_ENUM(name, klass, text) CAUSE_##name,
	CAUSE_LIST(CAUSE_ENUM)
#undef CAUSE_ENUM
	CAUSE_COUNT
};

/** Text of a cause, lower case, for log lines; "unknown" when out of range. */
static inline const char *cause_name(enum cause cause)
{
	static const char *const names[] = {
#define CAUSE_NAME(name, klass, text) text,
		CAUSE_LIST(CAUSE_NAME)
#undef CAUSE_NAME
	};
	return (size_t)cause < CAUSE_COUNT ? names[cause] : "unknown";
}

/** Class of a cause; SOFT when out of range, since an unknown value must not be replayed. */
static inline enum cause_class cause_class(enum cause cause)
{
	static const enum cause_class classes[] = {
#define CAUSE_CLASS(name, klass, text) CAUSE_CLASS_##klass,
		CAUSE_LIST(CAUSE_CLASS)
#undef CAUSE_CLASS
	};
	return (size_t)cause < CAUSE_COUNT ? classes[cause] : CAUSE_CLASS_SOFT;
}

#endif
