// The part of zlib's binary interface that is used. It has been stable since version 1.2; its headers are not needed to
// build the server. A test compares it with them.
#ifndef HOLDFAST_ZLIB_H
#define HOLDFAST_ZLIB_H

#ifndef HOLDFAST_REAL_TYPES
typedef struct {
    const unsigned char *next_in;
    unsigned avail_in;
    unsigned long total_in;
    unsigned char *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *msg;
    void *state;
    void *zalloc;
    void *zfree;
    void *opaque;
    int data_type;
    unsigned long adler;
    unsigned long reserved;
} z_stream;

enum { Z_NO_FLUSH = 0, Z_FINISH = 4, Z_OK = 0, Z_STREAM_END = 1, Z_DEFLATED = 8, Z_DEFAULT_STRATEGY = 0 };
#endif

// The return type, name, parameters and arguments of each function.
#define HOLDFAST_FUNCTIONS(F)                                                                                          \
    F(int, deflateInit2_,                                                                                              \
      (z_stream *stream, int level, int method, int bits, int memory, int strategy, const char *version, int size),    \
      (stream, level, method, bits, memory, strategy, version, size))                                                  \
    F(int, deflate, (z_stream * stream, int flush), (stream, flush))                                                   \
    F(int, deflateEnd, (z_stream * stream), (stream))                                                                  \
    F(int, inflateInit2_, (z_stream * stream, int bits, const char *version, int size), (stream, bits, version, size)) \
    F(int, inflate, (z_stream * stream, int flush), (stream, flush))                                                   \
    F(int, inflateEnd, (z_stream * stream), (stream))

#endif
