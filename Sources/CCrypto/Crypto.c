#include "CCrypto.h"

#define HOLDFAST_LIBRARY "libcrypto.so.3"
#include "LoadedLibrary.h"

int crypto_is_available(void) { return library_is_available(); }

HOLDFAST_FUNCTIONS(HOLDFAST_DEFINE)
