#include "CEmbedded.h"

#include <zlib.h>

size_t embedded_gzip(const unsigned char *bytes, size_t length, unsigned char *output, size_t capacity) {
    z_stream stream = {0};
    if (length > 1 << 30 || capacity > 1 << 30) return 0;
    // 15 bits of window, and 16 more for the header and the check sum of gzip.
    if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
    stream.next_in = (unsigned char *)bytes;
    stream.avail_in = (unsigned)length;
    stream.next_out = output;
    stream.avail_out = (unsigned)capacity;
    int status = deflate(&stream, Z_FINISH);
    size_t written = stream.total_out;
    deflateEnd(&stream);
    return status == Z_STREAM_END ? written : 0;
}
