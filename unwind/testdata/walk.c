/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goes down chains of calls that need every kind of unwind rule. At the bottom
 * of each it writes down what a walk needs and should find:
 *
 *	CAPTURE name
 *	REGS pc sp fp              (hex, as all numbers)
 *	STACK address bytes        (one line for each stack)
 *	BACKTRACE pc...            (glibc's own unwinder, from this function outward)
 *	CHAIN function...          (known functions, innermost first)
 *	MAPS
 *	...                        (/proc/self/maps)
 *	END
 *
 * With the argument "step" it captures nothing: a debugger watches each step.
 * With -DMUSL it needs no more than POSIX, and writes an empty BACKTRACE.
 */
#define _GNU_SOURCE
#include <alloca.h>
#ifndef MUSL
#include <execinfo.h>
#endif
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory") /* no tail call, no merging */

#ifdef __aarch64__
#define PC(uc) ((uc).uc_mcontext.pc)
#define SP(uc) ((uc).uc_mcontext.sp)
#define FP(uc) ((uc).uc_mcontext.regs[29])
#else
#define PC(uc) ((uc).uc_mcontext.gregs[REG_RIP])
#define SP(uc) ((uc).uc_mcontext.gregs[REG_RSP])
#define FP(uc) ((uc).uc_mcontext.gregs[REG_RBP])
#endif

#ifdef MUSL
static int backtrace(void **pcs, int n) { return 0; }
#endif

/* Registers as they are within capture. */
#if defined(MUSL) && defined(__x86_64__)
#define HERE(uc) __asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2" \
				  : "=r"(PC(uc)), "=r"(SP(uc)), "=r"(FP(uc)))
#else
#define HERE(uc) getcontext(&(uc))
#endif

static int quiet;
static volatile int sink;
static const char *current_chain, *current_name;
static char alternate[65536] __attribute__((aligned(16)));
static uintptr_t other_stack; /* where the interrupted code's stack begins */

static uintptr_t end_of_mapping(uintptr_t addr)
{
	unsigned long from, to, end = 0;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && addr >= from && addr < to)
			end = to;
	if (f)
		fclose(f);
	return end;
}

static void dump_stack(uintptr_t from)
{
	uintptr_t end = end_of_mapping(from);
	if (end - from > 1 << 18)
		end = from + (1 << 18);
	printf("STACK %lx ", (unsigned long)from);
	for (uintptr_t p = from; p < end; p++)
		printf("%02x", *(unsigned char *)p);
	printf("\n");
}

NOINLINE static void capture(void)
{
	void *pcs[256];
	ucontext_t uc;
	if (quiet) {
		sink++;
		return;
	}
	HERE(uc);
	int n = backtrace(pcs, 256);
	printf("CAPTURE %s\nREGS %llx %llx %llx\n", current_name, (unsigned long long)PC(uc),
	       (unsigned long long)SP(uc), (unsigned long long)FP(uc));
	dump_stack((uintptr_t)SP(uc));
	if (other_stack)
		dump_stack(other_stack);
	printf("BACKTRACE");
	for (int i = 0; i < n; i++)
		printf(" %lx", (unsigned long)pcs[i]);
	printf("\nCHAIN capture %s\nMAPS\n", current_chain);
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	while (f && fgets(line, sizeof line, f))
		fputs(line, stdout);
	if (f)
		fclose(f);
	printf("END\n");
	fflush(stdout);
}

static void begin(const char *name, const char *chain)
{
	current_name = name;
	current_chain = chain;
}

/* Frames of several sizes, with and without saved registers. */
NOINLINE static int leaf(int x) { capture(); KEEP; return x + 1; }
NOINLINE static int small(int x) { int r = leaf(x + 1) * x; KEEP; return r; }
NOINLINE static int big(int x)
{
	char buf[5000];
	memset(buf, x, sizeof buf);
	int r = small(x) + buf[x & 0xfff];
	KEEP;
	return r;
}
NOINLINE static int many(int a, int b, int c, int d, int e, int f, int g, int h)
{
	int r = big(a) + b * c + d * e + f * g + h;
	KEEP;
	return r * a + b + c + d + e + f + g + h;
}

/* A frame of a size known at run time only: rbp is the base. */
NOINLINE static int variable(int n)
{
	char *p = alloca((size_t)n * 16);
	memset(p, 1, (size_t)n * 16);
	int r = small(p[n]);
	KEEP;
	return r + p[0];
}

/* A realigned stack: the CFA is read from memory. */
NOINLINE static int realigned(int n)
{
	char *p = alloca((size_t)n * 16);
	int buf[64] __attribute__((aligned(64)));
	memset(p, 1, (size_t)n * 16);
	memset(buf, n, sizeof buf);
	int r = small(buf[n & 63] + p[1]);
	KEEP;
	return r + buf[1] + p[0];
}

NOINLINE static int recurse(int n)
{
	int r = n ? recurse(n - 1) + n : leaf(n);
	KEEP;
	return r;
}

/* Through the C library and back. */
static int captured;
NOINLINE static int compare(const void *a, const void *b)
{
	if (!captured++)
		capture();
	KEEP;
	return *(const int *)a - *(const int *)b;
}
NOINLINE static int sorting(void)
{
	int v[] = { 5, 3, 9, 1 };
	captured = 0;
	qsort(v, 4, sizeof v[0], compare);
	KEEP;
	return v[0];
}

/* Signal handlers: the interrupted function was about to write to nowhere. */
static sigjmp_buf back;
NOINLINE static void handler(int sig)
{
	capture();
	KEEP;
	siglongjmp(back, sig);
}
NOINLINE static int fault(int *p)
{
	other_stack = other_stack ? (uintptr_t)__builtin_frame_address(0) - 4096 : 0;
	KEEP;
	*p = 1; /* the innermost frame behind the handler */
	return *p;
}
NOINLINE static int faulting(int on_other_stack)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = on_other_stack ? SA_ONSTACK : 0 };
	stack_t ss = { .ss_sp = alternate, .ss_size = sizeof alternate };
	sigaltstack(&ss, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	other_stack = (uintptr_t)on_other_stack;
	int r = sigsetjmp(back, 1);
	if (!r)
		r = fault((int *)(uintptr_t)16);
	other_stack = 0;
	KEEP;
	return r;
}

NOINLINE static void *thread(void *arg)
{
	sink += small(3);
	KEEP;
	return arg;
}

NOINLINE static int jumps(void)
{
	jmp_buf env;
	volatile int n = 0;
	if (setjmp(env) < 3) {
		n++;
		sink += (int)strtol("12", NULL, 10);
		longjmp(env, n);
	}
	return n;
}

int main(int argc, char **argv)
{
	quiet = argc > 1 && !strcmp(argv[1], "step");
	if (!quiet) {
		void *warm[4];
		backtrace(warm, 4); /* loads libgcc now */
	}
	begin("plain", "leaf small big many main");
	sink += many(argc, 2, 3, 4, 5, 6, 7, 8);
	begin("variable", "leaf small variable main");
	sink += variable(argc + 10);
	begin("realigned", "leaf small realigned main");
	sink += realigned(argc + 10);
	begin("recursion", "leaf recurse recurse recurse recurse recurse recurse main");
	sink += recurse(5);
	begin("qsort", "compare * sorting main");
	sink += sorting();
	sink += jumps();
	if (quiet) {
		char text[64];
		snprintf(text, sizeof text, "%d %s %.3f\n", sink, argv[0], 1.5);
		sink += (int)strlen(text) + (int)strtol(text, NULL, 10);
		return 0;
	}
	begin("signal", "handler * fault faulting main");
	sink += faulting(0);
	begin("altstack", "handler * fault faulting main");
	sink += faulting(1);
	begin("thread", "leaf small thread *");
	pthread_t t;
	pthread_create(&t, NULL, thread, NULL);
	pthread_join(t, NULL);
	return 0;
}
