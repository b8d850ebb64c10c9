// Text files that are embedded in the program. The C preprocessor copies their bytes quickly; as Swift arrays they would
// be type-checked number by number in every build.
#ifndef HOLDFAST_CEMBEDDED_H
#define HOLDFAST_CEMBEDDED_H

#include <stddef.h>

struct embedded_file {
    const char *name;
    /// Ends with a zero byte.
    const unsigned char *text;
    /// The bytes of a file that is no text; 0 of the others.
    size_t size;
};

/// Returns the files of the console; the last one is followed by one without a name.
const struct embedded_file *embedded_console(void);

/// Returns the articles of the manual; the last one is followed by one without a name.
const struct embedded_file *embedded_manual(void);

/// Returns the pictures of the manual and the style sheet of its pages; the last one is followed by one without a name.
const struct embedded_file *embedded_manual_files(void);

/// Returns the OpenAPI document. Ends with a zero byte.
const unsigned char *embedded_openapi(void);

#endif
