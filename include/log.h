/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_INCLUDE_LOG_H
#define BRAID_INCLUDE_LOG_H

/*
 * Logging and assertions for every layer. Lines go to one process-wide sink, NCCL's logger once
 * the plugin has set it; without a sink WARN lines go to stderr and the rest is dropped.
 *
 * WARN: someone must act. INFO: once an event, never once a message. TRACE: compiled out unless
 * BRAID_TRACE is defined. Nothing here allocates, takes a lock of its own or changes errno, so
 * "%m" works and a caller may log before it reads errno.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOG_PREFIX         "NET/Braid "
#define LOG_LINE_MAX_BYTES 1024 /* longer lines are cut and end in "..." */

/** Values are NCCL's, so that they can be handed on as they are. */
enum log_level {
	LOG_LEVEL_WARN = 2,
	LOG_LEVEL_INFO = 3,
	LOG_LEVEL_TRACE = 5
};

/**
 * NCCL's subsystem bits (NCCL_DEBUG_SUBSYS). Its default set shows INIT and ENV but not NET, so
 * an INFO line carries INIT as well: incidents are to be seen with a plain NCCL_DEBUG=INFO.
 */
enum log_flag {
	LOG_FLAG_INIT = 0x1,
	LOG_FLAG_NET = 0x10,
	LOG_FLAG_ENV = 0x80
};
#define LOG_FLAGS_ALL (~0UL)

/** Receives one formatted line without a newline. Any thread may call it. */
typedef void (*log_sink_fn)(int level, unsigned long flags, const char *file, int line,
			    const char *fmt, ...);

/** Set the sink for the whole process; NULL goes back to stderr. Any thread, never blocks. */
void log_sink_set(log_sink_fn sink);

/**
 * Format and emit one line. Control characters (a peer's text may hold some) become '?'.
 * `file` is cut to its last component. Use the macros below.
 */
void log_write(enum log_level level, unsigned long flags, const char *file, int line,
	       const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/** State of one rate-limited call site; zero is its start. Any number of threads. */
struct log_limit {
	_Atomic uint64_t window_start_ns; /* 0 = no line yet */
	_Atomic unsigned pass_count;      /* in this window */
	_Atomic unsigned held_count;      /* since the last line that passed */
};

#define LOG_LIMIT_WINDOW_NS  10000000000ULL
#define LOG_LIMIT_PASS_COUNT 5U

/**
 * May a line pass at `now_ns` (monotonic, not 0)? LOG_LIMIT_PASS_COUNT do in each window of
 * LOG_LIMIT_WINDOW_NS. When one may, *held_count says how many were held back before it.
 */
bool log_limit_pass(struct log_limit *limit, uint64_t now_ns, unsigned *held_count);

/** A WARN line through `limit`; says how many like it were held back. */
void log_write_limited(struct log_limit *limit, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/** Emit a WARN line naming the broken condition. Used by INVARIANT. */
void log_invariant(const char *file, int line, const char *function, const char *condition);

/** Emit a WARN line, then abort. */
_Noreturn void log_panic(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define LOG_WARN(...) log_write(LOG_LEVEL_WARN, LOG_FLAGS_ALL, __FILE__, __LINE__, __VA_ARGS__)
#define LOG_INFO(...)                                                                              \
	log_write(LOG_LEVEL_INFO, LOG_FLAG_INIT | LOG_FLAG_NET, __FILE__, __LINE__, __VA_ARGS__)
/** For values taken from the environment: shown where NCCL shows its own. */
#define LOG_ENV(...)                                                                               \
	log_write(LOG_LEVEL_INFO, LOG_FLAG_INIT | LOG_FLAG_ENV, __FILE__, __LINE__, __VA_ARGS__)

/** LOG_WARN for what may repeat: at most 5 lines in 10 s from one call site, then a count. */
#define LOG_WARN_LIMITED(...)                                                                      \
	do {                                                                                       \
		static struct log_limit log_limit_;                                                \
		log_write_limited(&log_limit_, __FILE__, __LINE__, __VA_ARGS__);                   \
	} while (0)

#ifdef BRAID_TRACE
#define LOG_TRACE(...) log_write(LOG_LEVEL_TRACE, LOG_FLAG_NET, __FILE__, __LINE__, __VA_ARGS__)
#else
#define LOG_TRACE(...)                                                                             \
	do {                                                                                       \
		if (0) {                                                                           \
			log_write(LOG_LEVEL_TRACE, 0, __FILE__, __LINE__, __VA_ARGS__);            \
		}                                                                                  \
	} while (0)
#endif

/** Debug builds only: arguments and invariants that a caller of ours must have kept. */
#ifdef NDEBUG
#define ASSERT(condition) ((void)sizeof(condition))
#else
#define ASSERT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			log_panic(__FILE__, __LINE__, "assertion failed in %s: %s", __func__,      \
				  #condition);                                                     \
		}                                                                                  \
	} while (0)
#endif

/** Always on, control path, in functions that return 0 or -errno: logs and returns -EIO. */
#define INVARIANT(condition)                                                                       \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			log_invariant(__FILE__, __LINE__, __func__, #condition);                   \
			return -EIO;                                                               \
		}                                                                                  \
	} while (0)

/** Always on, and only where going on could deliver wrong bytes. */
#define PANIC(...) log_panic(__FILE__, __LINE__, __VA_ARGS__)

#endif
