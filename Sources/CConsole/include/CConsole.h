#ifndef CCONSOLE_H
#define CCONSOLE_H

/// A file of the console as it is served.
struct cconsole_file {
    const char *name;
    const unsigned char *bytes;
    unsigned long length;
};

/// Returns the number of files.
unsigned long cconsole_count(void);

/// Returns a file; null if there are not so many.
const struct cconsole_file *cconsole_file(unsigned long index);

#endif
