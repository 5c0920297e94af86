// SPDX-License-Identifier: Apache-2.0
/* Two threads that wake each other as often as they can, on one CPU. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

static sem_t ping, pong;

static void *other(void *arg)
{
	for (;;) {
		sem_wait(&ping);
		sem_post(&pong);
	}
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(argc > 1 ? atoi(argv[1]) : 0, &set);
	sched_setaffinity(0, sizeof(set), &set);
	sem_init(&ping, 0, 0);
	sem_init(&pong, 0, 0);
	pthread_create(&thread, 0, other, 0);
	puts("ready");
	fflush(stdout);
	for (;;) {
		sem_post(&ping);
		sem_wait(&pong);
	}
}
