/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP packets that leave and arrive, as byte ranges of a connection's direction.
 * Segmentation offload joins and splits packets between the two ends, but the
 * ranges stay. SYN and FIN count as a byte each, as in TCP's own sequence space,
 * so that accept and connect have a cause, too. Bare acknowledgements are left
 * out, and so are tunnelled packets and IPv6 with extension headers.
 */
#ifndef PATHPROF_PACKET_H
#define PATHPROF_PACKET_H

#include "context.h"
#include "file.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	unsigned int flags;
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
	unsigned int len, data_len;
	u16 protocol;
	u16 network_header;
	unsigned char *head, *data;
};

#pragma clang attribute pop

#define IFF_LOOPBACK 8
/* Network byte order, on little-endian processors. */
#define ETH_IP 0x0008
#define ETH_IPV6 0xdd86
#define PROTOCOL_TCP 6

struct ip4 {
	u8 version_length, service;
	u16 total;
	u32 fragment;
	u8 ttl, protocol;
	u16 checksum;
	u32 source, destination;
};

struct ip6 {
	u32 flow;
	u16 payload;
	u8 next, hops;
	u64 source[2], destination[2];
};

struct tcp {
	u16 source, destination;
	u32 seq, ack;
	u8 length, flags;
};

#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4

/*
 * packet_event fills in connection, sequence number and length of the packet
 * whose network header is at, with size bytes from there on; 0: not to be sent.
 */
inlined int packet_event(struct event *e, struct sk_buff *skb, u8 *at, u32 size)
{
	u64 conn = 0;
	u32 header, length, seq;
	struct tcp tcp;

	if (skb->protocol == ETH_IP) {
		struct {
			struct ip4 ip;
			struct tcp tcp;
		} both; /* unless the header has options: one read */
		struct ip4 ip;

		if (bpf_probe_read_kernel(&both, sizeof(both), at) || both.ip.protocol != PROTOCOL_TCP)
			return 0;
		ip = both.ip;
		header = (ip.version_length & 15) * 4;
		if (header == sizeof(ip))
			tcp = both.tcp;
		else if (bpf_probe_read_kernel(&tcp, sizeof(tcp), at + header))
			return 0;
		/* 0: larger than 64 kB. A short frame is padded: then size is too much. */
		length = ip.total ? __builtin_bswap16(ip.total) : size;
		conn = mix(ip.source, ip.destination);
	} else if (skb->protocol == ETH_IPV6) {
		struct {
			struct ip6 ip;
			struct tcp tcp;
		} both;
		struct ip6 ip;

		if (bpf_probe_read_kernel(&both, sizeof(both), at) || both.ip.next != PROTOCOL_TCP)
			return 0;
		ip = both.ip;
		tcp = both.tcp;
		header = sizeof(ip);
		length = ip.payload ? header + __builtin_bswap16(ip.payload) : size;
		conn = mix(mix(ip.source[0], ip.source[1]), mix(ip.destination[0], ip.destination[1]));
	} else {
		return 0;
	}
	header += (tcp.length >> 4) * 4;
	if (length < header)
		return 0;
	length -= header;
	length += !!(tcp.flags & TCP_SYN) + !!(tcp.flags & TCP_FIN);
	if (!length && !(tcp.flags & TCP_RST))
		return 0;
	conn = mix(conn, (u64)tcp.source << 16 | tcp.destination);
	/* Each network namespace has a loopback device with the same addresses. */
	if (skb->dev->flags & IFF_LOOPBACK)
		conn = mix(conn, skb->dev->nd_net.net->ns.inum);
	seq = __builtin_bswap32(tcp.seq);
	e->value = conn;
	e->extra = (u64)seq << 32 | length;
	return 1;
}

inlined void emit_packet(struct event *e, enum event_kind kind)
{
	u64 id = bpf_get_current_pid_tgid();

	e->time = bpf_ktime_get_ns();
	e->kind = kind;
	e->other_pid = id >> 32;
	e->other_tid = (u32)id;
	context_at(e, 0);
	emit(e, sizeof(*e), kind);
}

/* The device's driver is about to get the packet: data is at the link's header. */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(on_send, struct sk_buff *skb)
{
	struct event e = {};
	u8 *at = skb->head + skb->network_header;

	if (packet_event(&e, skb, at, skb->len - (u32)(at - skb->data)))
		emit_packet(&e, EVENT_SEND);
	return 0;
}

/* Before any protocol: data is at the network header (net/core/dev.c). */
SEC("tp_btf/netif_receive_skb")
int BPF_PROG(on_receive, struct sk_buff *skb)
{
	struct event e = {};

	if (packet_event(&e, skb, skb->data, skb->len))
		emit_packet(&e, EVENT_RECEIVE);
	return 0;
}

#endif
