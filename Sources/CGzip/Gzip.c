#include "CGzip.h"

#include "Zlib.h"

#include <stdlib.h>

#define HOLDFAST_LIBRARY "libz.so.1"
#include "LoadedLibrary.h"

int gzip_is_available(void) { return library_is_available(); }

// zlib compares the first character, and the size of the stream.
static const char version[] = "1";

struct gzip_writer {
    z_stream stream;
};

struct gzip_writer *gzip_open(int level) {
    if (!gzip_is_available()) return NULL;
    struct gzip_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) return NULL;
    // 15 bits of window, and 16 more for the header and the check sum of gzip.
    if (library.deflateInit2_(&writer->stream, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY, version,
                           sizeof writer->stream)
        == Z_OK)
        return writer;
    free(writer);
    return NULL;
}

size_t gzip_write(struct gzip_writer *writer, const unsigned char *bytes, size_t *length, unsigned char *output,
                  size_t capacity, int is_last) {
    const size_t most = 1 << 30;
    size_t given = *length < most ? *length : most;
    size_t room = capacity < most ? capacity : most;
    writer->stream.next_in = (unsigned char *)bytes;
    writer->stream.avail_in = (unsigned)given;
    writer->stream.next_out = output;
    writer->stream.avail_out = (unsigned)room;
    library.deflate(&writer->stream, is_last && given == *length ? Z_FINISH : Z_NO_FLUSH);
    *length = given - writer->stream.avail_in;
    return room - writer->stream.avail_out;
}

void gzip_close(struct gzip_writer *writer) {
    library.deflateEnd(&writer->stream);
    free(writer);
}

ptrdiff_t gzip_expand(const unsigned char *bytes, size_t length, unsigned char *output, size_t capacity) {
    const size_t most = 1 << 30;
    if (!gzip_is_available()) return -1;
    if (length > most || capacity > most) return -2;
    z_stream stream = {.next_in = (unsigned char *)bytes, .avail_in = (unsigned)length, .next_out = output,
                       .avail_out = (unsigned)capacity};
    if (library.inflateInit2_(&stream, 15 + 16, version, sizeof stream) != Z_OK) return -1;
    int end = library.inflate(&stream, Z_FINISH);
    size_t written = stream.total_out;
    size_t rest = stream.avail_in;
    library.inflateEnd(&stream);
    if (end == Z_STREAM_END) return rest == 0 ? (ptrdiff_t)written : -1;
    return written == capacity ? -2 : -1;
}
