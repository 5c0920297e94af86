// SPDX-License-Identifier: Apache-2.0
/* Native frames in a chosen number under Python: built without frame pointers. */
#include <time.h>

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static volatile unsigned long sink;

/* descend calls itself depth times, says where it is, and computes until end. */
__attribute__((noinline)) long descend(int depth, long nanos)
{
	long result;

	if (depth > 0) {
		result = descend(depth - 1, nanos) + 1;
		sink++; /* no tail call */
		return result;
	}
	for (long end = now() + nanos; now() < end;)
		for (int i = 0; i < 10000; i++)
			sink += i;
	return 0;
}
