#define _GNU_SOURCE
#include "CSystem.h"

#include <malloc.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>

const uint32_t csystem_epoll_in = EPOLLIN;
const uint32_t csystem_epoll_out = EPOLLOUT;
const uint32_t csystem_epoll_hang_up = EPOLLHUP;
const uint32_t csystem_epoll_error = EPOLLERR;

enum { MAXIMUM_EVENTS = 256 };

int csystem_stream_socket(int family) {
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int csystem_accept(int listener, void *peer, unsigned peer_size) {
    socklen_t size = peer_size;
    return accept4(listener, peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

long csystem_send(int socket, const void *bytes, unsigned long count) {
    return send(socket, bytes, count, MSG_NOSIGNAL);
}

int csystem_eventfd(void) {
    return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

int csystem_epoll_create(void) {
    return epoll_create1(EPOLL_CLOEXEC);
}

int csystem_epoll_add(int epoll, int descriptor, uint32_t events, uint64_t token) {
    struct epoll_event event = {.events = events, .data = {.u64 = token}};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

int csystem_epoll_modify(int epoll, int descriptor, uint32_t events, uint64_t token) {
    struct epoll_event event = {.events = events, .data = {.u64 = token}};
    return epoll_ctl(epoll, EPOLL_CTL_MOD, descriptor, &event);
}

int csystem_epoll_remove(int epoll, int descriptor) {
    return epoll_ctl(epoll, EPOLL_CTL_DEL, descriptor, 0);
}

int csystem_epoll_wait(int epoll, struct csystem_event *events, int capacity, int milliseconds) {
    struct epoll_event found[MAXIMUM_EVENTS];
    int count = epoll_wait(epoll, found, capacity < MAXIMUM_EVENTS ? capacity : MAXIMUM_EVENTS, milliseconds);
    for (int index = 0; index < count; index++) {
        events[index].token = found[index].data.u64;
        events[index].events = found[index].events;
    }
    return count;
}

int csystem_available_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

void csystem_name_thread(const char *name) {
    prctl(PR_SET_NAME, name);
}

void csystem_limit_arenas(int count) {
#ifdef M_ARENA_MAX
    if (!getenv("MALLOC_ARENA_MAX")) mallopt(M_ARENA_MAX, count);
#endif
}
