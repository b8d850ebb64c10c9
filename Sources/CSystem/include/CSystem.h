// System calls that Glibc's Swift overlay lacks, or whose macros Swift cannot import.
#ifndef HOLDFAST_CSYSTEM_H
#define HOLDFAST_CSYSTEM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static inline int csystem_accept4(int fd, struct sockaddr *address, socklen_t *length) {
    return accept4(fd, address, length, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

static inline int csystem_eventfd(void) {
    return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

static inline int csystem_epoll_add(int epoll, int fd, uint32_t events, uint64_t token) {
    struct epoll_event event = { .events = events, .data = { .u64 = token } };
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static inline int csystem_epoll_modify(int epoll, int fd, uint32_t events, uint64_t token) {
    struct epoll_event event = { .events = events, .data = { .u64 = token } };
    return epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
}

static inline uint64_t csystem_epoll_token(const struct epoll_event *event) {
    return event->data.u64;
}

static const uint32_t csystem_epoll_in = EPOLLIN;
static const uint32_t csystem_epoll_out = EPOLLOUT;
static const uint32_t csystem_epoll_peer_closed = EPOLLRDHUP;
static const uint32_t csystem_epoll_hang_up = EPOLLHUP;
static const uint32_t csystem_epoll_error = EPOLLERR;

#endif
