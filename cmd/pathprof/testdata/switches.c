// SPDX-License-Identifier: Apache-2.0
/* Two threads that hand over to each other: by semaphores, and by TCP. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

static sem_t ping, pong;
static volatile unsigned long sink;

static void spin(long rounds)
{
	for (long i = 0; i < rounds; i++)
		sink += i;
}

/* pongs answers for ever. */
void pongs(long work)
{
	for (;;) {
		sem_wait(&ping);
		spin(work);
		sem_post(&pong);
	}
}

/* pings asks n times; each side computes for work rounds a turn. */
void pings(long n, long work)
{
	while (n--) {
		sem_post(&ping);
		sem_wait(&pong);
		spin(work);
	}
}

#define MESSAGE 32

static int echo[2];

/* connect_both makes a TCP connection to itself. */
int connect_both(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);
	int door = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (bind(door, (struct sockaddr *)&at, size) || listen(door, 1) ||
	    getsockname(door, (struct sockaddr *)&at, &size))
		return -1;
	echo[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(echo[0], (struct sockaddr *)&at, size))
		return -1;
	echo[1] = accept(door, 0, 0);
	for (int i = 0; i < 2; i++)
		setsockopt(echo[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return close(door);
}

/* echoes answers for ever. */
void echoes(void)
{
	char text[MESSAGE];

	while (recv(echo[1], text, MESSAGE, MSG_WAITALL) == MESSAGE)
		send(echo[1], text, MESSAGE, 0);
}

void calls(long n)
{
	char text[MESSAGE] = { 0 };

	while (n--) {
		send(echo[0], text, MESSAGE, 0);
		recv(echo[0], text, MESSAGE, MSG_WAITALL);
	}
}
