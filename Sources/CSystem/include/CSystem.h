// System calls that Glibc's Swift overlay lacks, or whose flags and macros Swift cannot import. Each function makes one
// call and contains no logic.
#ifndef HOLDFAST_CSYSTEM_H
#define HOLDFAST_CSYSTEM_H

#include <stdint.h>

struct csystem_event {
    uint64_t token;
    uint32_t events;
};

extern const uint32_t csystem_epoll_in;
extern const uint32_t csystem_epoll_out;
extern const uint32_t csystem_epoll_hang_up;
extern const uint32_t csystem_epoll_error;

/// Creates a non-blocking stream socket of this address family, closed on exec.
int csystem_stream_socket(int family);
/// Accepts a waiting connection as a non-blocking socket, closed on exec.
/// @param peer receives its address, a sockaddr_storage.
int csystem_accept(int listener, void *peer, unsigned peer_size);
/// Sends without raising SIGPIPE.
long csystem_send(int socket, const void *bytes, unsigned long count);

int csystem_eventfd(void);

int csystem_epoll_create(void);
int csystem_epoll_add(int epoll, int descriptor, uint32_t events, uint64_t token);
int csystem_epoll_modify(int epoll, int descriptor, uint32_t events, uint64_t token);
int csystem_epoll_remove(int epoll, int descriptor);
int csystem_epoll_wait(int epoll, struct csystem_event *events, int capacity, int milliseconds);

/// Returns the number of cores that this process may run on; 0 if it is unknown.
int csystem_available_cores(void);

/// Names the calling thread; the kernel keeps 15 bytes of the name.
void csystem_name_thread(const char *name);

/// Limits the number of arenas of the C library's allocator, unless MALLOC_ARENA_MAX in the environment does.
void csystem_limit_arenas(int count);

#endif
