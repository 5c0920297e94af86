/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which file a descriptor is when a task waits on it. A number is used again as
 * soon as it is closed, so what it is has to be read here, in the task's own
 * context, and not later from /proc.
 */
#ifndef PATHPROF_FILE_H
#define PATHPROF_FILE_H

#include "output.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	u32 s_dev;
};

struct inode {
	u16 i_mode;
	unsigned long i_ino;
	struct super_block *i_sb;
};

struct file {
	struct inode *f_inode;
	void *f_op;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct___files {
	struct files_struct *files;
};

struct in6_addr {
	u8 in6_u[16];
};

struct sock_common {
	u32 skc_daddr, skc_rcv_saddr;
	u16 skc_dport; /* network byte order */
	u16 skc_num;
	u16 skc_family;
	volatile u8 skc_state;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
};

struct socket;

struct sock {
	struct sock_common __sk_common;
	u16 sk_protocol; /* since 5.6 */
	struct socket *sk_socket;
};

struct socket {
	struct sock *sk;
};

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};

struct unix_sock {
	struct sock *peer;
};

#pragma clang attribute pop

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

/*
 * The last file seen of each descriptor, as a hash, at a place that is a hash of
 * process and number: another that falls there is only sent again.
 */
#define FILES_SEEN (1 << 16)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FILES_SEEN);
	__type(key, u32);
	__type(value, u64);
} files_seen SEC(".maps");

/* Switches do not interrupt each other. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct file_event);
} file_rooms SEC(".maps");

inlined u64 mix(u64 h, u64 word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
	return h ^ (h >> 29);
}

/* file_of returns the current task's open file of a number, NULL if there is none. */
inlined struct file *file_of(struct task_struct *task, u32 fd)
{
	struct fdtable *table = ((struct task_struct___files *)task)->files->fdt;
	struct file *file = 0;

	if (fd >= table->max_fds)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd);
	return file;
}

/* unix_peer returns the inode of the socket that a Unix socket is connected to, 0
 * if there is none, or the kernel's types do not tell. */
inlined u64 unix_peer(struct sock *sk)
{
	struct sock *peer;
	void *socket;

	if (!bpf_core_field_exists(struct unix_sock, peer) || !bpf_core_field_exists(struct socket_alloc, vfs_inode))
		return 0;
	peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
	socket = BPF_CORE_READ(peer, sk_socket);
	if (!socket)
		return 0; /* none, or closed */
	socket -= bpf_core_field_offset(struct socket_alloc, socket);
	return BPF_CORE_READ((struct socket_alloc *)socket, vfs_inode.i_ino);
}

/* set_ends fills in a TCP or UDP socket's addresses and ports, and a Unix socket's
 * peer. */
inlined void set_ends(struct file_event *f, struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);
	struct sock *sk = BPF_CORE_READ(socket, sk);

	f->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (f->family == AF_UNIX) {
		*(u64 *)f->peer = unix_peer(sk);
		return;
	}
	f->protocol = BPF_CORE_READ(sk, sk_protocol);
	f->socket_state = BPF_CORE_READ(sk, __sk_common.skc_state);
	f->local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	f->peer_port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (f->family == AF_INET) {
		*(u32 *)f->local = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		*(u32 *)f->peer = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	} else if (f->family == AF_INET6) {
		BPF_CORE_READ_INTO(&f->local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&f->peer, sk, __sk_common.skc_v6_daddr);
	}
}

/* What tells files apart: struct file may be used again for another. */
struct file_words {
	struct inode *inode;
	u64 functions;
};

#define FILE_HEAD 64

/* words_of reads a file's words, at once where its first bytes have both. */
inlined void words_of(struct file *file, struct file_words *w)
{
	u32 inode = bpf_core_field_offset(struct file, f_inode);
	u32 functions = bpf_core_field_offset(struct file, f_op);
	u8 head[FILE_HEAD] __attribute__((aligned(8)));

	w->inode = 0;
	if (inode > FILE_HEAD - 8 || functions > FILE_HEAD - 8) {
		w->inode = BPF_CORE_READ(file, f_inode);
		w->functions = (u64)BPF_CORE_READ(file, f_op);
	} else if (!bpf_probe_read_kernel(head, sizeof(head), file)) {
		w->inode = *(struct inode **)(head + inode);
		w->functions = *(u64 *)(head + functions);
	}
}

/* emit_file says what descriptor fd of the current task is, if that is news. */
global_fn u32 emit_file(u32 fd, u64 time)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct file *file = file_of(task, fd);
	struct file_words words;
	struct inode *inode;
	u32 tgid = task->tgid, zero = 0, at;
	struct file_event *f;
	u64 number, *seen, tag;

	if (!file)
		return 0;
	words_of(file, &words);
	inode = words.inode;
	if (!inode)
		return 0;
	number = BPF_CORE_READ(inode, i_ino);
	tag = mix(0, (u64)tgid << 32 | fd);
	at = tag & (FILES_SEEN - 1);
	seen = bpf_map_lookup_elem(&files_seen, &at);
	/* All anonymous files have one inode: an epoll differs from a timer by its functions. */
	tag = mix(mix(mix(tag, (u64)inode), number), words.functions);
	f = bpf_map_lookup_elem(&file_rooms, &zero);
	if (!seen || !f || *seen == tag)
		return 0;
	__builtin_memset(f, 0, sizeof(*f));
	f->event.time = time;
	f->event.kind = EVENT_FILE;
	f->event.value = fd;
	f->event.extra = number;
	f->event.pid = tgid;
	f->event.tid = task->pid;
	f->event.vector = BPF_CORE_READ(inode, i_sb, s_dev);
	f->event.state = BPF_CORE_READ(inode, i_mode);
	if ((f->event.state & S_IFMT) == S_IFSOCK)
		set_ends(f, file);
	if (emit(f, sizeof(*f), EVENT_FILE))
		*seen = tag;
	return 1;
}

#endif
