// Compression as gzip does it (RFC 1952), piece by piece, by zlib, which is loaded at the first use.
#ifndef HOLDFAST_CGZIP_H
#define HOLDFAST_CGZIP_H

#include <stddef.h>

struct gzip_writer;

/// Whether zlib is installed.
int gzip_is_available(void);

/// Begins an output. The level is 1 (fast) to 9 (small). Returns NULL if there is no memory, or no zlib.
struct gzip_writer *gzip_open(int level);

/// Compresses bytes. Sets the length to how many of them were taken, and returns how many bytes of output were written.
/// The output is full: call again with the rest. After the last bytes, call until the output is not full.
size_t gzip_write(struct gzip_writer *writer, const unsigned char *bytes, size_t *length, unsigned char *output,
                  size_t capacity, int is_last);

void gzip_close(struct gzip_writer *writer);

/// Expands a whole gzip file (RFC 1952) into the output. Returns its length, -1 if it is malformed or not whole, -2 if the
/// output is too short.
ptrdiff_t gzip_expand(const unsigned char *bytes, size_t length, unsigned char *output, size_t capacity);

#endif
